// One request to the REST API: the bearer token, the envelopes and the errors.

import type { List } from "./types";

/** Longer than the server takes for any answer, its own limit included. */
const ANSWER_MS_MAX = 20_000;

/** A refusal by the server, or no answer at all (status 0). */
export class ApiError extends Error {
  constructor(
    readonly status: number,
    readonly title: string,
    readonly detail: string,
    readonly remediation = "",
    readonly code: number | null = null,
  ) {
    super(detail);
  }
}

export interface Access {
  token(): string | null;
  /** Called when the server no longer knows the token. */
  refused(): void;
}

export type Parameters = Record<string, string | number | boolean | null | undefined>;

/** Path and query; parameters that are empty are left out. */
export function address(path: string, parameters: Parameters = {}): string {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(parameters)) {
    if (value !== null && value !== undefined && value !== "") query.set(name, String(value));
  }
  const text = query.toString();
  return text === "" ? path : `${path}?${text}`;
}

/** The error an answer stands for. Bodies that are not the API's (a proxy's, say) get its status. */
export function errorOf(status: number, body: unknown): ApiError {
  const o = (typeof body === "object" && body !== null ? body : {}) as Record<string, unknown>;
  const text = (name: string) => (typeof o[name] === "string" ? (o[name] as string) : "");
  return new ApiError(
    status,
    text("title") || `Status ${status}`,
    text("detail") || text("message") || `the server answered with status ${status}`,
    text("remediation"),
    typeof o["error"] === "number" ? o["error"] : null,
  );
}

/** The list in an answer's envelope. */
export function listOf<T>(body: unknown): List<T> {
  const whole = body as { data?: Record<string, unknown>; message?: string };
  const data = whole.data ?? {};
  const items = (data["affected_items"] ?? []) as T[];
  const failed = (data["failed_items"] ?? []) as {
    error: { code: number; message: string; remediation?: string };
    id: (string | number)[];
  }[];
  const cursor = data["next_cursor"];
  return {
    items,
    total: Number(data["total_affected_items"] ?? items.length),
    cursor: typeof cursor === "string" && cursor !== "" ? cursor : null,
    newest: typeof data["newest"] === "number" ? data["newest"] : null,
    message: whole.message ?? "",
    failed: failed.map((f) => ({ ...f.error, ids: f.id.map(String) })),
  };
}

/** HTTP Basic for names and passwords in any script. */
export function basic(name: string, password: string): string {
  const bytes = new TextEncoder().encode(`${name}:${password}`);
  return `Basic ${btoa(String.fromCharCode(...bytes))}`;
}

async function body(answer: Response): Promise<unknown> {
  const text = await answer.text();
  try {
    return text === "" ? {} : (JSON.parse(text) as unknown);
  } catch {
    return {};
  }
}

async function fetchOrSay(url: string, init: RequestInit): Promise<Response> {
  const late = AbortSignal.timeout(ANSWER_MS_MAX);
  const signal = init.signal ? AbortSignal.any([init.signal, late]) : late;
  try {
    // No cookies, and no password dialogue of the browser's own on 401.
    return await fetch(url, { ...init, signal, credentials: "omit", cache: "no-store" });
  } catch (cause) {
    if (init.signal?.aborted) throw cause;
    throw new ApiError(
      0,
      "No answer",
      "the server does not answer",
      "Check that Holdfast is running and that this machine reaches it; the page retries automatically.",
    );
  }
}

/** Log in; answers the token. */
export async function authenticate(name: string, password: string): Promise<string> {
  const answer = await fetchOrSay("/security/user/authenticate", {
    method: "POST",
    headers: { authorization: basic(name, password) },
  });
  const json = await body(answer);
  const token = (json as { data?: { token?: unknown } }).data?.token;
  if (!answer.ok || typeof token !== "string") throw errorOf(answer.status, json);
  return token;
}

/** A new token for the valid one. */
export async function renewed(access: Access): Promise<string | null> {
  const json = await request(access, "POST", "/security/user/renew");
  const token = (json as { data?: { token?: unknown } }).data?.token;
  return typeof token === "string" ? token : null;
}

/** The lines of an answer that is plain text, asked for with the token. */
export async function lines(access: Access, url: string, signal?: AbortSignal): Promise<string[]> {
  const token = access.token();
  const headers: HeadersInit = token === null ? {} : { authorization: `Bearer ${token}` };
  const answer = await fetchOrSay(url, { headers, ...(signal ? { signal } : {}) });
  return (await answer.text()).split("\n").filter((line) => line !== "");
}

/** One request with the token. */
export async function request(
  access: Access,
  method: "GET" | "POST" | "PUT" | "DELETE",
  url: string,
  signal?: AbortSignal,
): Promise<unknown> {
  const token = access.token();
  const answer = await fetchOrSay(url, {
    method,
    headers: token === null ? {} : { authorization: `Bearer ${token}` },
    ...(signal ? { signal } : {}),
  });
  const json = await body(answer);
  if (answer.ok) return json;
  // A late answer to an old token must not end the session that replaced it.
  if (answer.status === 401 && access.token() === token) access.refused();
  throw errorOf(answer.status, json);
}
