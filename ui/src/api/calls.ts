// The operations the dashboard uses, one function each.

import { access } from "../core/session";
import { address, listOf, request, type Parameters } from "./client";
import type { Agent, Change, FileItem, Gap, List, Summary } from "./types";

async function list<T>(path: string, p: Parameters, signal?: AbortSignal): Promise<List<T>> {
  return listOf<T>(await request(access, "GET", address(path, p), signal));
}

async function data<T>(path: string, p: Parameters, signal?: AbortSignal): Promise<T> {
  const body = (await request(access, "GET", address(path, p), signal)) as { data: T };
  return body.data;
}

/** Agents by status, by group and by operating system: all three from one request. */
export const summary = (signal?: AbortSignal) => data<Summary>("/agents/summary", {}, signal);

export const agents = (p: Parameters, signal?: AbortSignal) => list<Agent>("/agents", p, signal);

export async function agent(id: string, signal?: AbortSignal): Promise<Agent | null> {
  return (await agents({ agents_list: id }, signal)).items[0] ?? null;
}

export const files = (id: string, p: Parameters, signal?: AbortSignal) =>
  list<FileItem>(`/syscheck/${encodeURIComponent(id)}`, p, signal);

export const changes = (p: Parameters, signal?: AbortSignal) => list<Change>("/changes", p, signal);

export const change = (id: string, signal?: AbortSignal) =>
  data<Change>(`/changes/${encodeURIComponent(id)}`, {}, signal);

export const coverage = (p: Parameters, signal?: AbortSignal) => list<Gap>("/coverage", p, signal);

/** Order a scan now; the agent takes the order up at its next heartbeat. */
export async function scan(id: string): Promise<List<string>> {
  return listOf<string>(await request(access, "PUT", address("/syscheck", { agents_list: id })));
}
