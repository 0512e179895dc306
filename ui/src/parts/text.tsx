// Small pieces of text: paths, times, messages.

import type { ComponentChildren } from "preact";
import { useEffect, useLayoutEffect, useRef } from "preact/hooks";
import { ApiError } from "../api/client";
import { now } from "../core/load";
import { moved } from "../core/route";
import { ago, moment, pieces, split } from "../core/format";
import { Shape } from "./marks";

/** Text from a machine we watch: shown as text only, with whatever would hide written out. */
export function Safe({ text }: { text: string }) {
  return (
    <bdi>
      {pieces(text).map((piece) =>
        piece.escaped ? <span class="escape">{piece.text}</span> : piece.text,
      )}
    </bdi>
  );
}

/** Hex that breaks only between groups, so that two of them break alike. */
export function Digest({ text }: { text: string }) {
  return (
    <span class="digest">
      {(text.match(/.{1,16}/g) ?? []).map((group) => (
        <>
          {group}
          <wbr />
        </>
      ))}
    </span>
  );
}

/** A path with its last part in front of the eye. */
export function Path({ path }: { path: string }) {
  const [folder, name] = split(path);
  return (
    <span class="path">
      <span class="folder">
        <Safe text={folder} />
      </span>
      <span class="name">
        <Safe text={name} />
      </span>
    </span>
  );
}

/** A local time; the whole text with its zone is in the title. */
export function Time({ time, relative }: { time: string | undefined; relative?: boolean }) {
  if (!time) return <span class="quiet">—</span>;
  return (
    <time dateTime={time} title={time}>
      {relative ? ago(time, now.value) : moment(time)}
    </time>
  );
}

/** The server's detail and remedy, and a way to try again. */
export function Failure({ error, retry }: { error: ApiError; retry?: () => void }) {
  return (
    <div class="notice tone-deleted" role="alert">
      <Shape kind="warning" />
      <div>
        <p class="notice-title">
          {error.title}
          {error.code === null ? null : <span class="quiet"> (error {error.code})</span>}
        </p>
        <p>{error.detail}</p>
        {error.remediation === "" ? null : <p class="quiet">{error.remediation}</p>}
      </div>
      {retry ? (
        <button type="button" class="button" onClick={retry}>
          Try again
        </button>
      ) : null}
    </div>
  );
}

export function Empty({ title, children }: { title: string; children?: ComponentChildren }) {
  return (
    <div class="empty">
      <p class="empty-title">{title}</p>
      {children === undefined ? null : <p class="quiet">{children}</p>}
    </div>
  );
}

export const Waiting = () => (
  <p class="waiting" role="status">
    Loading…
  </p>
);

/**
 * The heading of a view. It takes the focus when the view is entered, so that a screen reader
 * begins here and Tab goes on from here, and it names the tab.
 */
export function Title({ title, children }: { title: string; children?: ComponentChildren }) {
  const heading = useRef<HTMLHeadingElement>(null);
  useEffect(() => {
    document.title = `${title} · Holdfast`;
  }, [title]);
  // Before the paint: the view never appears without the focus in it.
  useLayoutEffect(() => {
    if (moved.value) heading.current?.focus({ preventScroll: true });
  }, []);
  return (
    <h1 ref={heading} tabIndex={-1}>
      {children ?? title}
    </h1>
  );
}
