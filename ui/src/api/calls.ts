// The operations the dashboard uses, one function each.

import { access } from "../core/session";
import { address, ApiError, lines, listOf, request, type Parameters } from "./client";
import type {
  Agent,
  Change,
  FileItem,
  Gap,
  Grants,
  GroupSync,
  LastScan,
  List,
  Outcome,
  PackageBody,
  Summary,
  Watched,
} from "./types";

async function list<T>(path: string, p: Parameters, signal?: AbortSignal): Promise<List<T>> {
  return listOf<T>(await request(access, "GET", address(path, p), signal));
}

async function data<T>(path: string, p: Parameters, signal?: AbortSignal): Promise<T> {
  const body = (await request(access, "GET", address(path, p), signal)) as { data: T };
  return body.data;
}

/** Agents by status, by group and by operating system: all three from one request. */
export const summary = (signal?: AbortSignal) => data<Summary>("/agents/summary", {}, signal);

/** What is wrong with the server's wall clock, and the remedy; null while it is followed. */
export async function heldClock(signal?: AbortSignal): Promise<string | null> {
  const [word, ...causes] = await lines(access, "/readyz", signal);
  return word === "clock_held" ? causes.join(" ").replace(/^clock_held since \S+: /, "") : null;
}

export const agents = (p: Parameters, signal?: AbortSignal) => list<Agent>("/agents", p, signal);

export async function agent(id: string, signal?: AbortSignal): Promise<Agent | null> {
  return (await agents({ agents_list: id }, signal)).items[0] ?? null;
}

/** The agent's last scan; null if the agent does not exist. */
export const lastScan = async (id: string, signal?: AbortSignal) =>
  (await list<LastScan>(`/syscheck/${encodeURIComponent(id)}/last_scan`, {}, signal)).items[0] ??
  null;

/** How the agent watches its paths; null if it never reported it. */
export const watched = async (id: string, signal?: AbortSignal) =>
  (await list<Watched>("/coverage/state", { agents_list: id }, signal)).items[0] ?? null;

/** Whether the agent runs its groups' configuration; null for the server itself. */
export const groupSync = async (id: string, signal?: AbortSignal) =>
  (await list<GroupSync>(`/agents/${encodeURIComponent(id)}/group/is_sync`, {}, signal)).items[0] ??
  null;

export const files = (id: string, p: Parameters, signal?: AbortSignal) =>
  list<FileItem>(`/syscheck/${encodeURIComponent(id)}`, p, signal);

/** The installed package with this key, `name:architecture`; null if there is none. */
export async function packageOf(id: string, key: string, signal?: AbortSignal) {
  const at = key.lastIndexOf(":");
  const q = `name="${key.slice(0, at)}";architecture="${key.slice(at + 1)}"`;
  const path = "/states/inventory-packages";
  const found = await list<{ document: { package?: PackageBody } }>(
    path,
    { agents_list: id, q, limit: 1 },
    signal,
  );
  return found.items[0]?.document.package ?? null;
}

/** The permissions of the logged in user. */
export const grants = (signal?: AbortSignal) =>
  data<Grants>("/security/users/me/policies", {}, signal);

export const changes = (p: Parameters, signal?: AbortSignal) => list<Change>("/changes", p, signal);

export const change = (id: string, signal?: AbortSignal) =>
  data<Change>(`/changes/${encodeURIComponent(id)}`, {}, signal);

export const coverage = (p: Parameters, signal?: AbortSignal) => list<Gap>("/coverage", p, signal);

/** Issues the command to scan now; the agent receives it with its next heartbeat. Returns its number. */
export async function scan(id: string): Promise<number> {
  const body = await request(access, "PUT", address("/syscheck", { agents_list: id }));
  const [failed] = listOf<string>(body).failed;
  if (failed) {
    throw new ApiError(200, "Not ordered", failed.message, failed.remediation, failed.code);
  }
  return (body as { data: { command: number } }).data.command;
}

/** The outcome of a command at one agent; null if the server has none. */
export async function outcome(command: number, id: string, stop: AbortSignal) {
  const path = `/commands/${command}`;
  const { outcomes } = await data<{ outcomes: Outcome[] }>(path, {}, stop);
  return outcomes.find((found) => found.agent === id) ?? null;
}

/**
 * A loader of the newest changes that asks only whether something is new, once it has them: the
 * answer is a page of files before and after, which need not be refreshed every few seconds. `key` names
 * the filter, without the moment in which it was applied.
 */
export function newest() {
  let held: { key: string; page: List<Change> } | null = null;
  return async (key: string, p: Parameters, stop: AbortSignal): Promise<List<Change>> => {
    const since = held?.key === key ? held.page.newest : null;
    if (held && since !== null) {
      const fresh = await changes({ ...p, since, limit: 1 }, stop);
      if (fresh.items.length === 0) return held.page;
    }
    const page = await changes(p, stop);
    held = { key, page };
    return page;
  };
}
