// Gaps in coverage, in words.

const TITLES: Record<string, string> = {
  agent_down: "Agent was not running",
  baseline: "First look",
  root_gone: "Watched folder missing",
  unreadable: "Not readable",
  clock_jump: "Clock jumped",
  overflow: "Kernel queue overflowed",
  limit_reached: "Limit reached",
  database_rebuilt: "Agent database rebuilt",
  events_dropped: "History dropped on the agent",
  retention: "History past its retention",
  quarantined: "Record set aside",
  disk_low: "Disk nearly full",
};

export const title = (kind: string): string => TITLES[kind] ?? kind.replaceAll("_", " ");

/** Kinds that are part of a normal life and need no attention. */
export const calm = (kind: string): boolean => kind === "baseline" || kind === "retention";
