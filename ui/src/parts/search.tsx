// A search field that asks once the person pauses, at once on Enter, and empties on Escape.

import type { TargetedEvent, TargetedKeyboardEvent } from "preact";
import { useEffect, useId, useLayoutEffect, useRef, useState } from "preact/hooks";

const PAUSE_MS = 350;

interface Props {
  label: string;
  hint: string;
  value: string;
  /** `/` puts the cursor here. */
  slash?: boolean;
  /** Id of a `datalist`. */
  list?: string;
  ask: (text: string) => void;
}

export function Search({ label, hint, value, slash = false, list, ask }: Props) {
  const id = useId();
  const [text, setText] = useState(value);
  const asked = useRef(value);
  const timer = useRef<ReturnType<typeof setTimeout>>(undefined);

  useLayoutEffect(() => {
    // The address changed by other means, such as the browser's back. Before the paint: after it
    // text typed in between would be lost.
    if (value !== asked.current) {
      asked.current = value;
      setText(value);
    }
  }, [value]);
  useEffect(() => () => clearTimeout(timer.current), []);

  const send = (next: string) => {
    clearTimeout(timer.current);
    if (next === asked.current) return;
    asked.current = next;
    ask(next);
  };
  const typed = (event: TargetedEvent<HTMLInputElement>) => {
    const next = event.currentTarget.value;
    setText(next);
    clearTimeout(timer.current);
    timer.current = setTimeout(() => send(next), PAUSE_MS);
  };
  const key = (event: TargetedKeyboardEvent<HTMLInputElement>) => {
    if (event.key === "Enter") send(text);
    if (event.key !== "Escape" || text === "") return;
    event.stopPropagation();
    setText("");
    send("");
  };
  return (
    <div class="field">
      <label for={id}>
        {label}
        {slash ? <kbd aria-hidden="true">/</kbd> : null}
      </label>
      <input
        id={id}
        type="search"
        autocomplete="off"
        spellcheck={false}
        placeholder={hint}
        value={text}
        list={list}
        data-slash={slash ? "" : undefined}
        onInput={typed}
        onKeyDown={key}
      />
    </div>
  );
}
