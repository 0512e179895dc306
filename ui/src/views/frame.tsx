// What stands around every view: the header, the skip link, the keys.

import type { ComponentChildren, TargetedMouseEvent } from "preact";
import { useEffect } from "preact/hooks";
import { contact, live } from "../core/load";
import { moment } from "../core/format";
import { go, place, route } from "../core/route";
import { logOut, session } from "../core/session";
import { choose, next, theme } from "../core/theme";
import { Shape, Sign } from "../parts/marks";

const PLACES: [label: string, parts: string[]][] = [
  ["Fleet", []],
  ["Agents", ["agents"]],
  ["Changes", ["changes"]],
];

const THEMES = { system: "as the system", light: "light", dark: "dark" };

/** `/` goes to the search field, Escape one level up; both as in the texts that offer them. */
function keys(event: KeyboardEvent): void {
  if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey) return;
  const typing = (event.target as Element).matches?.("input, select, textarea");
  if (event.key === "/" && !typing) {
    const field = document.querySelector<HTMLInputElement>("[data-slash]");
    if (field) {
      event.preventDefault();
      field.focus();
      field.select();
    }
  }
  if (event.key === "Escape") {
    if (typing) (event.target as HTMLElement).blur();
    else {
      const up = document.querySelector("[data-up]")?.getAttribute("href");
      if (up) go(up);
    }
  }
}

function Live() {
  const { at, lost } = contact.value;
  const text = lost ? "No answer" : live.value ? "Live" : "Paused";
  return (
    <button
      type="button"
      class={`button bare live ${lost ? "tone-deleted" : live.value ? "tone-active" : "tone-pending"}`}
      aria-pressed={live.value}
      title={at === 0 ? "" : `Last answer ${moment(new Date(at).toISOString())}`}
      onClick={() => {
        live.value = !live.value;
      }}
    >
      <Shape kind={lost ? "warning" : live.value ? "active" : "pending"} />
      {text}
      <span class="hidden">, refresh by itself</span>
    </button>
  );
}

const skip = (event: TargetedMouseEvent<HTMLAnchorElement>) => {
  event.preventDefault();
  document.querySelector<HTMLElement>("#main")?.focus();
};

export function Frame({ children }: { children: ComponentChildren }) {
  useEffect(() => {
    addEventListener("keydown", keys);
    return () => removeEventListener("keydown", keys);
  }, []);
  const here = route.value.parts[0] ?? "";
  return (
    <>
      <a class="skip" href="#main" onClick={skip}>
        Skip to content
      </a>
      <header class="top">
        <a class="brand" href={place([])} aria-label="Holdfast, fleet">
          <Sign />
          <span>Holdfast</span>
        </a>
        <nav class="places" aria-label="Main">
          {PLACES.map(([label, parts]) => (
            <a
              key={label}
              href={place(parts)}
              aria-current={here === (parts[0] ?? "") ? "page" : undefined}
            >
              {label}
            </a>
          ))}
        </nav>
        <div class="tools">
          <Live />
          <button
            type="button"
            class="button bare"
            onClick={() => choose(next(theme.value))}
            aria-label={`Colours: ${THEMES[theme.value]}. Change`}
          >
            <span class="tool-word">{theme.value === "system" ? "Auto" : THEMES[theme.value]}</span>
            <svg class="mark" viewBox="0 0 16 16" width="14" height="14" aria-hidden="true">
              <circle cx="8" cy="8" r="6.3" class="line" />
              <path d="M8 1.7a6.3 6.3 0 0 1 0 12.6z" class="fill" />
            </svg>
          </button>
          <span class="who">{session.value?.user}</span>
          <button type="button" class="button bare" onClick={() => void logOut()}>
            Log out
          </button>
        </div>
      </header>
      <main id="main" tabIndex={-1}>
        {children}
      </main>
    </>
  );
}
