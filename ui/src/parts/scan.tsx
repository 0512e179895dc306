// The button that starts a scan of one agent, and the state of that command.

import { useEffect, useState } from "preact/hooks";
import { outcome, scan } from "../api/calls";
import { ApiError } from "../api/client";
import type { Outcome } from "../api/types";
import { Failure, Safe } from "./text";

const WATCH_MS = 1000;

const STATES: Record<Outcome["state"], string> = {
  pending: "Command issued. The agent receives it with its next heartbeat.",
  sent: "The agent has received the command.",
  acknowledged: "Scanned.",
  failed: "The agent could not scan:",
  expired: "The agent never asked for the command.",
  cancelled: "The command was cancelled.",
};

interface Issued {
  busy: boolean;
  command: number | null;
  outcome: Pick<Outcome, "state" | "detail"> | null;
  error: ApiError | null;
}

const NONE: Issued = { busy: false, command: null, outcome: null, error: null };

const fault = (cause: unknown) =>
  cause instanceof ApiError ? cause : new ApiError(0, "Unexpected", String(cause));

const open = (issued: Issued) => ["pending", "sent"].includes(issued.outcome?.state ?? "");

export function ScanNow({ id }: { id: string }) {
  const [issued, setIssued] = useState<Issued>(NONE);
  const { command, outcome: reported } = issued;
  const waiting = command !== null && open(issued);

  useEffect(() => {
    if (!waiting) return;
    const stop = new AbortController();
    const refresh = async () => {
      try {
        const found = await outcome(command, id, stop.signal);
        setIssued((o) => (o.command === command ? { ...o, outcome: found } : o));
      } catch {
        // Asked again in a moment; the views say when the server does not answer.
      }
    };
    const timer = setInterval(() => void refresh(), WATCH_MS);
    return () => {
      stop.abort();
      clearInterval(timer);
    };
  }, [command, waiting, id]);

  const send = async () => {
    if (issued.busy) return;
    setIssued({ ...NONE, busy: true });
    try {
      const number = await scan(id);
      setIssued({ ...NONE, command: number, outcome: { state: "pending", detail: "" } });
    } catch (cause) {
      setIssued({ ...NONE, error: fault(cause) });
    }
  };
  return (
    <>
      <div class="order">
        <span class="quiet" role="status">
          {reported ? (
            <>
              {STATES[reported.state]} <Safe text={reported.detail.replace(/^scan: /, "")} />
            </>
          ) : null}
        </span>
        <button
          type="button"
          class="button primary"
          aria-disabled={issued.busy}
          onClick={() => void send()}
        >
          Scan now
        </button>
      </div>
      {issued.error ? <Failure error={issued.error} /> : null}
    </>
  );
}
