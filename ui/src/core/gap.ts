// Gaps in coverage, in words.

const TITLES: Record<string, string> = {
  agent_down: "Agent was not running",
  baseline: "First scan",
  root_gone: "Watched folder missing",
  unreadable: "Not readable",
  clock_jump: "Clock jumped",
  overflow: "Kernel queue overflowed",
  watch_interrupted: "Watching interrupted",
  limit_reached: "Limit reached",
  database_rebuilt: "Agent database rebuilt",
  events_dropped: "History dropped on the agent",
  retention: "History past its retention",
  quarantined: "Record set aside",
  disk_low: "Disk nearly full",
  identity_cloned: "Identity copied",
  agent_silent: "Agent is silent",
  agent_stopped: "Agent was stopped",
};

export const title = (kind: string): string => TITLES[kind] ?? kind.replaceAll("_", " ");

/** Kinds that are part of a normal life and need no attention. */
export const calm = (kind: string): boolean => kind === "baseline" || kind === "retention";

const rank = (gap: { kind: string; to: string | null }): number =>
  gap.kind === "identity_cloned" ? 0 : gap.to === null ? 1 : 2;

/** Copied identities first, then open gaps, then the others in their order; each gap once. */
export function urgent<G extends { id?: string; kind: string; to: string | null }>(gaps: G[]): G[] {
  const seen = new Set<string>();
  const once = gaps.filter(({ id }) => !id || (!seen.has(id) && seen.add(id)));
  return once.sort((a, b) => rank(a) - rank(b));
}
