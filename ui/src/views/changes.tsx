// The whole history, newest first, narrowed by agent, path, kind, cause and time.

import type { TargetedEvent } from "preact";
import { useRef, useState } from "preact/hooks";
import { agents, newest } from "../api/calls";
import type { Change } from "../api/types";
import { plural } from "../core/format";
import { useResource } from "../core/load";
import { place, refine, route } from "../core/route";
import { FROM_UNITS, filterOf, parameters, type Filter, type Sent } from "../core/filter";
import { Changes } from "../parts/changes";
import { Shape } from "../parts/marks";
import { Search } from "../parts/search";
import { Empty, Failure, Title, Waiting } from "../parts/text";

const PAGE = 100;
const KINDS = ["created", "modified", "deleted", "moved", "transient"];
const CAUSES = ["unexplained", "package", "deployment"];
const AGENTS_OFFERED = 500;

type Set = (change: Partial<Filter>) => void;

interface TogglesProps {
  legend: string;
  words: string[];
  /** The chosen words, comma-separated; empty is all. */
  value: string;
  choose: (value: string) => void;
}

function Toggles({ legend, words, value, choose }: TogglesProps) {
  const chosen = value === "" ? [] : value.split(",");
  const toggle = (word: string) => {
    const next = words.filter((w) => (w === word ? !chosen.includes(w) : chosen.includes(w)));
    choose(next.length === words.length ? "" : next.join(","));
  };
  return (
    <fieldset class="field">
      <legend>{legend}</legend>
      <div class="toggles">
        {words.map((word) => (
          <button
            type="button"
            key={word}
            class={`button toggle tone-${word}`}
            aria-pressed={chosen.includes(word)}
            onClick={() => toggle(word)}
          >
            <Shape kind={word} />
            {word}
          </button>
        ))}
      </div>
    </fieldset>
  );
}

function When({ filter, set }: { filter: Filter; set: Set }) {
  const between = filter.within === "between";
  const time = (name: "from" | "to", label: string) => (
    <div class="field">
      <label for={name}>{label}</label>
      <input
        id={name}
        type="datetime-local"
        step="1"
        value={filter[name]}
        onChange={(event) => set({ [name]: event.currentTarget.value })}
      />
    </div>
  );
  const choose = (event: TargetedEvent<HTMLSelectElement>) =>
    set({ within: event.currentTarget.value, from: "", to: "" });
  return (
    <>
      <div class="field">
        <label for="within">Time</label>
        <select id="within" value={filter.within} onChange={choose}>
          <option value="">any</option>
          {FROM_UNITS.map(([value, label]) => (
            <option value={value}>{label}</option>
          ))}
          <option value="between">between…</option>
        </select>
      </div>
      {between ? time("from", "From") : null}
      {between ? time("to", "To") : null}
    </>
  );
}

function Offered() {
  const found = useResource("agents offered", (s) => agents({ limit: AGENTS_OFFERED }, s), false);
  return (
    <datalist id="agents-offered">
      {found.data?.items.map((agent) => (
        <option value={agent.id}>{agent.name}</option>
      ))}
    </datalist>
  );
}

/** The filter for the changes that one line of the page represents. */
const members = ({ path, kind, cause, to }: Sent, from: string) => ({
  path,
  kind,
  cause,
  from,
  to,
});

function onThisPage(items: Change[]): string {
  const all = items.reduce((sum, { collapsed }) => sum + (collapsed?.changes ?? 1), 0);
  const lines = all === items.length ? "" : ` on ${plural(items.length, "line")}`;
  return `${plural(all, "change")}${lines} on this page`;
}

export function ChangesView() {
  const filter = filterOf(route.value.query);
  const since = useRef("");
  const [load] = useState(newest);
  const key = JSON.stringify(filter);
  const later = filter.cursor !== "";
  const found = useResource(
    key,
    (stop) => {
      const sent = parameters(filter, Date.now());
      since.current = sent.from;
      return load(key, { ...sent, limit: PAGE }, stop);
    },
    // A page further back stands still.
    !later,
  );
  const at = (change: Partial<Filter>) => place(["changes"], { ...filter, ...change });
  const set: Set = (change) => refine(at({ cursor: "", since: "", ...change }));
  const narrowed = [
    filter.agent,
    filter.path,
    filter.kind,
    filter.cause,
    filter.cause_id,
    filter.within,
  ].some((v) => v !== "");
  const cursor = found.data?.cursor ?? null;

  return (
    <>
      <Title title="Changes" />
      <div class="filters" role="search">
        <Search
          label="Path begins with"
          hint="/etc/"
          slash
          value={filter.path}
          ask={(path) => set({ path })}
        />
        <Search
          label="Agent"
          hint="id"
          list="agents-offered"
          value={filter.agent}
          ask={(agent) => set({ agent })}
        />
        <Offered />
        <Toggles legend="Kind" words={KINDS} value={filter.kind} choose={(kind) => set({ kind })} />
        <Toggles
          legend="Cause"
          words={CAUSES}
          value={filter.cause}
          choose={(cause) => set({ cause })}
        />
        <When filter={filter} set={set} />
        {narrowed ? (
          <a class="button quiet-button" href={place(["changes"])}>
            Clear
          </a>
        ) : null}
      </div>
      {filter.cause_id === "" ? null : (
        <p class="lead">Only the changes that belong to one cause.</p>
      )}
      {found.error ? <Failure error={found.error} retry={found.reload} /> : null}
      {found.data === null ? (
        found.error ? null : (
          <Waiting />
        )
      ) : found.data.items.length === 0 ? (
        <Empty title={narrowed ? "No change fits" : "No changes yet"} />
      ) : (
        <Changes
          label="Changes"
          changes={found.data.items}
          filter={members(parameters(filter, Date.now()), since.current)}
        />
      )}
      <nav class="pager" aria-label="Pages of changes">
        <span class="quiet" role="status">
          {found.data ? onThisPage(found.data.items) : ""}
        </span>
        {later ? (
          <a class="button" href={at({ cursor: "", since: "" })}>
            Newest
          </a>
        ) : null}
        {cursor ? (
          <a class="button" href={at({ cursor, since: since.current })}>
            Older
          </a>
        ) : null}
      </nav>
    </>
  );
}
