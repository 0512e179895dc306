// The filter of the history, as the address has it and as the API wants it. Pure functions.

export interface Filter {
  agent: string;
  path: string;
  kind: string;
  cause: string;
  /** Only the changes of this cause, each on a line of its own. */
  cause_id: string;
  /** One of `FROM_UNITS`, `between`, or empty. */
  within: string;
  /** Local times of `between`. */
  from: string;
  to: string;
  /** The start that `within` had on the first page: the next pages keep it. */
  since: string;
  cursor: string;
}

export const FROM_UNITS: [value: string, label: string, ms: number][] = [
  ["15m", "last 15 minutes", 900_000],
  ["1h", "last hour", 3_600_000],
  ["1d", "last day", 86_400_000],
  ["7d", "last 7 days", 604_800_000],
  ["30d", "last 30 days", 2_592_000_000],
];

export function filterOf(query: URLSearchParams): Filter {
  const text = (name: keyof Filter) => query.get(name) ?? "";
  return {
    agent: text("agent"),
    path: text("path"),
    kind: text("kind"),
    cause: text("cause"),
    cause_id: text("cause_id"),
    within: text("within"),
    from: text("from"),
    to: text("to"),
    since: text("since"),
    cursor: text("cursor"),
  };
}

/** A local time as RFC 3339; empty when it is none. */
export function universal(local: string): string {
  const ms = local === "" ? Number.NaN : Date.parse(local);
  return Number.isNaN(ms) ? "" : new Date(ms).toISOString();
}

export interface Sent {
  [name: string]: string;
  agents_list: string;
  path: string;
  kind: string;
  cause: string;
  cause_id: string;
  collapse: string;
  from: string;
  to: string;
  cursor: string;
}

export function parameters(filter: Filter, now: number): Sent {
  const unit = FROM_UNITS.find(([value]) => value === filter.within);
  const between = filter.within === "between";
  const start = unit ? new Date(now - unit[2]).toISOString() : "";
  return {
    agents_list: filter.agent,
    path: filter.path,
    kind: filter.kind,
    cause: filter.cause,
    cause_id: filter.cause_id,
    collapse: filter.cause_id === "" ? "cause" : "",
    from: between ? universal(filter.from) : filter.since || start,
    to: between ? universal(filter.to) : "",
    cursor: filter.cursor,
  };
}
