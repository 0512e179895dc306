// Where the person is: the fragment of the address, since every other path belongs to the API.
// `#/agents/001/files?search=ssh`: parts and a query.

import { signal } from "@preact/signals";

export interface Route {
  parts: string[];
  query: URLSearchParams;
  /** The fragment as it stands in the address. */
  hash: string;
}

function decoded(part: string): string {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

export function parse(hash: string): Route {
  const text = hash.replace(/^#/, "");
  const at = text.indexOf("?");
  const path = at < 0 ? text : text.slice(0, at);
  const query = new URLSearchParams(at < 0 ? "" : text.slice(at + 1));
  return { parts: path.split("/").filter(Boolean).map(decoded), query, hash: hash || "#/" };
}

/** The fragment of a place; empty parameters are left out. */
export function place(parts: string[], query: Record<string, string> = {}): string {
  const kept = Object.entries(query).filter(([, value]) => value !== "");
  const path = `#/${parts.map(encodeURIComponent).join("/")}`;
  return kept.length === 0 ? path : `${path}?${new URLSearchParams(kept).toString()}`;
}

const start = typeof location === "undefined" ? "" : location.hash;

export const route = signal<Route>(parse(start));

/** Where the person came from, so that going back finds the row again. */
export const cameFrom = signal("");

/** Whether the person has moved since the page was loaded: then a new view takes the focus. */
export const moved = signal(false);

export function listen(): void {
  addEventListener("hashchange", () => {
    moved.value = true;
    cameFrom.value = route.value.hash;
    route.value = parse(location.hash);
  });
}

export function go(to: string): void {
  location.hash = to;
}

/** The same view with other parameters, without a new step in the history. */
export function refine(to: string): void {
  if (to === route.value.hash) return;
  history.replaceState(null, "", to);
  route.value = parse(to);
}
