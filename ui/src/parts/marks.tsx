// Shape and word of every kind and status, so that colour is never the only signal.

import type { ComponentChildren } from "preact";
import type { Agent } from "../api/types";
import { word } from "../core/format";

function Mark({ children }: { children: ComponentChildren }) {
  return (
    <svg class="mark" viewBox="0 0 16 16" width="14" height="14" aria-hidden="true">
      {children}
    </svg>
  );
}

const SHAPES: Record<string, () => ComponentChildren> = {
  created: () => (
    <>
      <rect x="1.5" y="1.5" width="13" height="13" rx="3" class="fill" />
      <path d="M8 4.8v6.4M4.8 8h6.4" class="cut" />
    </>
  ),
  modified: () => (
    <>
      <path d="M8 .8 15.2 8 8 15.2 .8 8z" class="fill" />
      <path d="M5.2 8h5.6" class="cut" />
    </>
  ),
  deleted: () => (
    <>
      <circle cx="8" cy="8" r="6.8" class="fill" />
      <path d="M5.6 5.6l4.8 4.8M10.4 5.6l-4.8 4.8" class="cut" />
    </>
  ),
  moved: () => (
    <>
      <path d="M1.5 2.5h8L15 8l-5.5 5.5h-8z" class="fill" />
      <path d="M4 8h6M8 5.6 10.4 8 8 10.4" class="cut" />
    </>
  ),
  transient: () => <circle cx="8" cy="8" r="6" class="line dashed" />,
  gap: () => <path d="M1 8h4M11 8h4M6.5 3.5l-1.5 9M11 3.5l-1.5 9" class="line" />,
  calm: () => <path d="M1 8h14M4 5v6M12 5v6" class="line" />,
  active: () => <circle cx="8" cy="8" r="6" class="fill" />,
  pending: () => (
    <>
      <circle cx="8" cy="8" r="5.5" class="line" />
      <path d="M8 2.5a5.5 5.5 0 0 1 0 11z" class="fill" />
    </>
  ),
  disconnected: () => (
    <>
      <circle cx="8" cy="8" r="5.5" class="line" />
      <path d="M4.2 11.8l7.6-7.6" class="line" />
    </>
  ),
  never_connected: () => <circle cx="8" cy="8" r="5.5" class="line dashed" />,
  warning: () => (
    <>
      <path d="M8 1.2l7.2 13.2H.8z" class="fill" />
      <path d="M8 6v4M8 12.2v.1" class="cut" />
    </>
  ),
};

export function Shape({ kind }: { kind: string }) {
  const shape = SHAPES[kind];
  return shape ? <Mark>{shape()}</Mark> : null;
}

/** What happened to a file: created, modified, deleted, moved or transient. */
export function Kind({ kind }: { kind: string }) {
  return (
    <span class={`badge tone-${kind}`}>
      <Shape kind={kind} />
      {kind}
    </span>
  );
}

/** The state of an agent: silent or left if it is one of both, else its status. */
export function Status({ agent }: { agent: Pick<Agent, "status" | "state"> }) {
  const { status, state } = agent;
  if (state !== undefined) {
    return (
      <span class={`badge tone-${state === "silent" ? "gap" : "disconnected"}`}>
        <Shape kind={state === "silent" ? "warning" : "disconnected"} />
        {state}
      </span>
    );
  }
  if (status === undefined) return <span class="quiet">unknown</span>;
  return (
    <span class={`badge tone-${status}`}>
      <Shape kind={status} />
      {word(status)}
    </span>
  );
}

/** The product's sign: a keep with a check. */
export function Sign() {
  return (
    <svg class="sign" viewBox="0 0 24 24" width="26" height="26" aria-hidden="true">
      <rect width="24" height="24" rx="5" class="sign-ground" />
      <path
        d="M6 5h3v2h1.5V5h3v2H15V5h3v6.2c0 4-2.4 6.5-6 7.8-3.6-1.3-6-3.8-6-7.8z"
        class="sign-keep"
      />
      <path d="M9 12.2l2.2 2.3L15.3 10" class="sign-check" />
    </svg>
  );
}
