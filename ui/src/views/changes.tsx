// The whole history, newest first, narrowed by agent, path, kind and time.

import type { TargetedEvent } from "preact";
import { useRef, useState } from "preact/hooks";
import { agents, newest } from "../api/calls";
import { plural } from "../core/format";
import { useResource } from "../core/load";
import { place, refine, route } from "../core/route";
import { FROM_UNITS, filterOf, parameters, type Filter } from "../core/filter";
import { Changes } from "../parts/changes";
import { Shape } from "../parts/marks";
import { Search } from "../parts/search";
import { Empty, Failure, Title, Waiting } from "../parts/text";

const PAGE = 100;
const KINDS = ["created", "modified", "deleted", "moved"];
const AGENTS_OFFERED = 500;

type Set = (change: Partial<Filter>) => void;

function Kinds({ filter, set }: { filter: Filter; set: Set }) {
  const chosen = filter.kind === "" ? [] : filter.kind.split(",");
  const toggle = (kind: string) => {
    const next = KINDS.filter((k) => (k === kind ? !chosen.includes(k) : chosen.includes(k)));
    set({ kind: next.length === KINDS.length ? "" : next.join(",") });
  };
  return (
    <fieldset class="field">
      <legend>Kind</legend>
      <div class="toggles">
        {KINDS.map((kind) => (
          <button
            type="button"
            key={kind}
            class={`button toggle tone-${kind}`}
            aria-pressed={chosen.includes(kind)}
            onClick={() => toggle(kind)}
          >
            <Shape kind={kind} />
            {kind}
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
  const narrowed = [filter.agent, filter.path, filter.kind, filter.within].some((v) => v !== "");
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
        <Kinds filter={filter} set={set} />
        <When filter={filter} set={set} />
        {narrowed ? (
          <a class="button quiet-button" href={place(["changes"])}>
            Clear
          </a>
        ) : null}
      </div>
      {found.error ? <Failure error={found.error} retry={found.reload} /> : null}
      {found.data === null ? (
        found.error ? null : (
          <Waiting />
        )
      ) : found.data.items.length === 0 ? (
        <Empty title={narrowed ? "No change fits" : "No changes yet"} />
      ) : (
        <Changes label="Changes" changes={found.data.items} />
      )}
      <nav class="pager" aria-label="Pages of changes">
        <span class="quiet" role="status">
          {found.data ? `${plural(found.data.items.length, "change")} on this page` : ""}
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
