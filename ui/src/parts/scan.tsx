// Ordering a scan of one agent, and how far it is.

import { useEffect, useState } from "preact/hooks";
import { outcome, scan } from "../api/calls";
import { ApiError } from "../api/client";
import type { Outcome } from "../api/types";
import { Failure, Safe } from "./text";

const WATCH_MS = 1000;

const SAID: Record<Outcome["state"], string> = {
  pending: "Ordered. The agent receives the command with its next heartbeat.",
  sent: "The agent has received the command.",
  acknowledged: "Scanned.",
  failed: "The agent could not scan:",
  expired: "The agent never asked for the command.",
  cancelled: "The command was cancelled.",
};

interface Order {
  busy: boolean;
  command: number | null;
  outcome: Pick<Outcome, "state" | "detail"> | null;
  error: ApiError | null;
}

const NONE: Order = { busy: false, command: null, outcome: null, error: null };

const fault = (cause: unknown) =>
  cause instanceof ApiError ? cause : new ApiError(0, "Unexpected", String(cause));

const open = (order: Order) => ["pending", "sent"].includes(order.outcome?.state ?? "");

export function ScanNow({ id }: { id: string }) {
  const [order, setOrder] = useState<Order>(NONE);
  const { command, outcome: told } = order;
  const waiting = command !== null && open(order);

  useEffect(() => {
    if (!waiting) return;
    const stop = new AbortController();
    const look = async () => {
      try {
        const found = await outcome(command, id, stop.signal);
        setOrder((o) => (o.command === command ? { ...o, outcome: found } : o));
      } catch {
        // Asked again in a moment; the views say when the server does not answer.
      }
    };
    const timer = setInterval(() => void look(), WATCH_MS);
    return () => {
      stop.abort();
      clearInterval(timer);
    };
  }, [command, waiting, id]);

  const send = async () => {
    if (order.busy) return;
    setOrder({ ...NONE, busy: true });
    try {
      const number = await scan(id);
      setOrder({ ...NONE, command: number, outcome: { state: "pending", detail: "" } });
    } catch (cause) {
      setOrder({ ...NONE, error: fault(cause) });
    }
  };
  return (
    <>
      <div class="order">
        <span class="quiet" role="status">
          {told ? (
            <>
              {SAID[told.state]} <Safe text={told.detail.replace(/^scan: /, "")} />
            </>
          ) : null}
        </span>
        <button
          type="button"
          class="button primary"
          aria-disabled={order.busy}
          onClick={() => void send()}
        >
          Scan now
        </button>
      </div>
      {order.error ? <Failure error={order.error} /> : null}
    </>
  );
}
