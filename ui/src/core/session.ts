// Who is logged in: the token in memory and, for a reload of the tab, in sessionStorage.

import { signal } from "@preact/signals";
import { authenticate, request, type Access } from "../api/client";

const KEY = "holdfast.session";

interface Session {
  user: string;
  token: string;
}

function stored(): Session | null {
  try {
    const value = JSON.parse(sessionStorage.getItem(KEY) ?? "null") as Partial<Session> | null;
    return value?.user && value.token ? { user: value.user, token: value.token } : null;
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
  refused: () => end("Your session has ended. Log in again to go on where you were."),
};

export async function logIn(user: string, password: string): Promise<void> {
  const token = await authenticate(user, password);
  session.value = { user, token };
  farewell.value = "";
  store(session.value);
}

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
