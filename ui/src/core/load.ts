// Loading and refreshing: a view asks for a resource by key; it is fetched at once, again every few
// seconds while the page is in sight, and what is shown stays until newer data replaces it.

import { signal } from "@preact/signals";
import { useCallback, useEffect, useRef, useState } from "preact/hooks";
import { ApiError } from "../api/client";

export const POLL_MS = 5000;

/** Whether the page refreshes itself. */
export const live = signal(true);

/** The clock of relative times, milliseconds since the epoch. */
export const now = signal(Date.now());

/** What the header says of the connection. */
export const contact = signal<{ at: number; lost: boolean }>({ at: 0, lost: false });

export function tick(): void {
  setInterval(() => {
    if (document.visibilityState === "visible") now.value = Date.now();
  }, 1000);
}

export interface Resource<T> {
  data: T | null;
  error: ApiError | null;
  loading: boolean;
  reload: () => void;
}

interface Held<T> {
  key: string;
  data: T | null;
  error: ApiError | null;
  loading: boolean;
}

function fault(cause: unknown): ApiError {
  if (cause instanceof ApiError) return cause;
  return new ApiError(0, "Unexpected", cause instanceof Error ? cause.message : String(cause));
}

/**
 * `key` names what is loaded: when it changes, the old data goes. `poll` false loads once.
 */
export function useResource<T>(
  key: string,
  load: (signal: AbortSignal) => Promise<T>,
  poll = true,
): Resource<T> {
  const [held, setHeld] = useState<Held<T>>({ key, data: null, error: null, loading: true });
  const latest = useRef(load);
  latest.current = load;
  const again = useRef<() => void>(() => undefined);

  useEffect(() => {
    let stop = new AbortController();
    let busy = false;
    let ended = false;
    const run = async () => {
      stop.abort();
      const mine = (stop = new AbortController());
      busy = true;
      let next: Partial<Held<T>>;
      try {
        const data = await latest.current(mine.signal);
        contact.value = { at: Date.now(), lost: false };
        next = { data, error: null };
      } catch (cause) {
        if (mine.signal.aborted || ended) return;
        const error = fault(cause);
        if (error.status === 0) contact.value = { ...contact.value, lost: true };
        next = { error };
      }
      if (mine.signal.aborted || ended) return;
      busy = false;
      now.value = Date.now();
      setHeld((old) => {
        const data = old.key === key ? old.data : null;
        return { key, data, error: null, loading: false, ...next };
      });
    };
    again.current = () => void run();
    const refresh = () => {
      if (poll && live.value && !busy && document.visibilityState === "visible") void run();
    };
    void run();
    const timer = setInterval(refresh, POLL_MS);
    document.addEventListener("visibilitychange", refresh);
    return () => {
      ended = true;
      stop.abort();
      clearInterval(timer);
      document.removeEventListener("visibilitychange", refresh);
    };
  }, [key, poll]);

  const reload = useCallback(() => again.current(), []);
  if (held.key !== key) return { data: null, error: null, loading: true, reload };
  return { data: held.data, error: held.error, loading: held.loading, reload };
}
