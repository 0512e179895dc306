// A widget of the fleet: a count per name, each a link to the agents behind it.

import { useId } from "preact/hooks";
import { count } from "../core/format";
import { Shape } from "./marks";
import { Safe } from "./text";

export interface Count {
  name: string;
  label: string;
  n: number;
  to: string;
  /** Shape and colour, where the name has one. */
  tone?: string;
}

interface Props {
  title: string;
  counts: Count[];
  /** What a full bar stands for. */
  whole: number;
  /** How many names are shown; the rest are summed. */
  most?: number;
  empty: string;
}

/** Width of a bar in per cent: what is there is seen, however small. */
export const share = (n: number, whole: number): number =>
  n === 0 || whole === 0 ? 0 : Math.min(100, Math.max(1.5, (n / whole) * 100));

export function Counts({ title, counts, whole, most = 6, empty }: Props) {
  const id = useId();
  const shown = counts.slice(0, most);
  const rest = counts.slice(most);
  return (
    <section class="card widget" aria-labelledby={id}>
      <h2 id={id}>{title}</h2>
      {counts.length === 0 ? <p class="quiet">{empty}</p> : null}
      <ul class="counts">
        {shown.map((c) => (
          <li key={c.name}>
            <a class={c.n === 0 ? "count none" : "count"} href={c.to}>
              <span class={`count-label tone-${c.tone ?? "plain"}`}>
                {c.tone ? <Shape kind={c.tone} /> : null}
                <span class="count-text">
                  <Safe text={c.label} />
                </span>
              </span>
              <span class="count-n">{count(c.n)}</span>
              <svg
                class={`bar tone-${c.tone ?? "plain"}`}
                viewBox="0 0 100 4"
                preserveAspectRatio="none"
                aria-hidden="true"
              >
                <rect width="100" height="4" class="bar-ground" />
                <rect width={share(c.n, whole)} height="4" class="bar-fill" />
              </svg>
            </a>
          </li>
        ))}
      </ul>
      {rest.length === 0 ? null : (
        <p class="quiet">
          and {count(rest.length)} more with {count(rest.reduce((sum, c) => sum + c.n, 0))} agents
        </p>
      )}
    </section>
  );
}
