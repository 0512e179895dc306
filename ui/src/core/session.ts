// Who is logged in: the token in memory and, for a reload of the tab, in sessionStorage.

import { signal } from "@preact/signals";
import { authenticate, renewed, request, type Access } from "../api/client";

const KEY = "holdfast.session";

interface Session {
  user: string;
  token: string;
  /** When the token came, milliseconds since the epoch by this browser's clock. */
  since?: number;
}

function stored(): Session | null {
  try {
    const value = JSON.parse(sessionStorage.getItem(KEY) ?? "null") as Partial<Session> | null;
    if (!value?.user || !value.token) return null;
    return { user: value.user, token: value.token, since: value.since ?? Date.now() };
  } catch {
    return null;
  }
}

function store(value: Session | null): void {
  try {
    if (value === null) sessionStorage.removeItem(KEY);
    else sessionStorage.setItem(KEY, JSON.stringify(value));
  } catch {
    // A browser that forbids storage: the session lives as long as the page.
  }
}

export const session = signal<Session | null>(stored());

/** Why the login form is shown, where there is something to say. */
export const farewell = signal("");

export const access: Access = {
  token: () => session.value?.token ?? null,
  refused: () => end("Your session has ended. Log in again to continue where you were."),
};

export async function logIn(user: string, password: string): Promise<void> {
  const token = await authenticate(user, password);
  session.value = { user, token, since: Date.now() };
  farewell.value = "";
  store(session.value);
}

/** How often it is looked whether the token is due for renewal, milliseconds. */
const LOOK_EVERY_MS = 30_000;

/**
 * Whether more than half of a token's life is over, `ageSeconds` after it came: the server's clock
 * and the browser's may differ.
 */
export function isDue(token: string, ageSeconds: number): boolean {
  try {
    const part = (token.split(".")[1] ?? "").replaceAll("-", "+").replaceAll("_", "/");
    const claims = JSON.parse(atob(part)) as { nbf?: number; exp?: number };
    if (typeof claims.nbf !== "number" || typeof claims.exp !== "number") return false;
    return ageSeconds > (claims.exp - claims.nbf) / 2;
  } catch {
    return false;
  }
}

/** An open page stays logged in: the server ends that 12 hours after the login. */
async function renew(): Promise<void> {
  const old = session.value;
  if (old === null || !isDue(old.token, (Date.now() - (old.since ?? 0)) / 1000)) return;
  try {
    const token = await renewed(access);
    if (token === null || session.value?.token !== old.token) return;
    session.value = { user: old.user, token, since: Date.now() };
    store(session.value);
  } catch {
    // The next look tries again; a refused token has ended the session already.
  }
}

setInterval(() => void renew(), LOOK_EVERY_MS);

export function end(reason: string): void {
  session.value = null;
  farewell.value = reason;
  store(null);
}

/** End the session on the server too; a server that does not answer is no reason to stay. */
export async function logOut(): Promise<void> {
  try {
    await request(access, "DELETE", "/security/user/authenticate");
  } catch {
    // The token dies by itself.
  }
  end("You are logged out.");
}
