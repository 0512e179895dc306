// Tables whose rows lead somewhere: a real link in the row, a click anywhere on it, and the arrow
// keys between the rows.

import type { ComponentChildren, TargetedKeyboardEvent, TargetedMouseEvent } from "preact";
import { useLayoutEffect, useRef } from "preact/hooks";
import { cameFrom, go } from "../core/route";

interface TableProps {
  label: string;
  /** Class that names the columns' widths. */
  shape: string;
  head: ComponentChildren[];
  children: ComponentChildren;
}

const LINK = ".row-link";

function step(event: TargetedKeyboardEvent<HTMLTableSectionElement>): void {
  const by = event.key === "ArrowDown" ? 1 : event.key === "ArrowUp" ? -1 : 0;
  if (by === 0 || event.altKey || event.ctrlKey || event.metaKey) return;
  const links = [...event.currentTarget.querySelectorAll<HTMLElement>(LINK)];
  const at = links.indexOf(document.activeElement as HTMLElement);
  const next = links[at + by];
  if (at < 0 || next === undefined) return;
  event.preventDefault();
  next.focus();
}

export function Table({ label, shape, head, children }: TableProps) {
  const body = useRef<HTMLTableSectionElement>(null);
  useLayoutEffect(() => {
    // Back from a row: the focus returns to it, before the paint as a heading's.
    const idle =
      document.activeElement === document.body || document.activeElement?.tagName === "H1";
    if (cameFrom.value === "" || !idle) return;
    const links = body.current?.querySelectorAll<HTMLElement>(LINK) ?? [];
    const origin = [...links].find((link) => link.getAttribute("href") === cameFrom.value);
    if (origin) {
      origin.focus();
      cameFrom.value = "";
    }
  }, []);
  return (
    <table class={`table ${shape}`} aria-label={label}>
      <thead>
        <tr>
          {head.map((cell) => (
            <th scope="col">{cell}</th>
          ))}
        </tr>
      </thead>
      <tbody ref={body} onKeyDown={step}>
        {children}
      </tbody>
    </table>
  );
}

interface RowProps {
  /** Where the `row-link` leads, or what it does. */
  to: string | (() => void);
  /** Further classes of the row. */
  more?: string;
  children: ComponentChildren;
}

export function Row({ to, more = "", children }: RowProps) {
  const open = (event: TargetedMouseEvent<HTMLTableRowElement>) => {
    const target = event.target as Element;
    const selected = getSelection()?.toString() ?? "";
    if (event.defaultPrevented || target.closest("a, button") || selected !== "") return;
    if (typeof to === "string") go(to);
    else to();
  };
  return (
    <tr class={`row ${more}`.trim()} onClick={open}>
      {children}
    </tr>
  );
}
