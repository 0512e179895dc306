// One change: what was before and what is after, side by side.

import { useState } from "preact/hooks";
import { change as find } from "../api/calls";
import type { Change } from "../api/types";
import { isPackage, parts, rows, type Row, type Value } from "../core/difference";
import { count, plain } from "../core/format";
import { useResource } from "../core/load";
import { place } from "../core/route";
import { ClockOff, Gist, agentName } from "../parts/changes";
import { Writer } from "../parts/actor";
import { CauseFacts } from "../parts/cause";
import { Kind } from "../parts/marks";
import { Digest, Failure, Path, Safe, Time, Title, Waiting } from "../parts/text";

function Cell({ value, other, row }: { value: Value | null; other: Value | null; row: Row }) {
  if (value === null) return <span class="quiet">not set</span>;
  const note = value.note === "" ? null : <span class="note"> {value.note}</span>;
  if (!row.changed || !row.partial || other === null) {
    return (
      <>
        {row.field === "hash" ? <Digest text={value.text} /> : <Safe text={value.text} />}
        {note}
      </>
    );
  }
  const cut = parts(value.text, other.text);
  return (
    <>
      <Safe text={cut.head} />
      {cut.a === "" ? null : (
        <mark>
          <Safe text={cut.a} />
        </mark>
      )}
      <Safe text={cut.tail} />
      {note}
    </>
  );
}

const ofPackage = ({ before, after }: Change) => isPackage(after ?? before);

function Values({ change }: { change: Change }) {
  const [all, setAll] = useState(change.kind !== "modified" || ofPackage(change));
  const every = rows(change);
  const same = every.filter((row) => !row.changed).length;
  const shown = all ? every : every.filter((row) => row.changed);
  const both = change.kind === "modified" || change.kind === "moved";
  return (
    <section aria-labelledby="values">
      <div class="section-head">
        <h2 id="values">
          {both ? "Before and after" : ofPackage(change) ? "The package" : "The file"}
        </h2>
        {both && same > 0 ? (
          <button type="button" class="button" aria-pressed={all} onClick={() => setAll(!all)}>
            {all ? "Show only what changed" : `Show ${count(same)} unchanged too`}
          </button>
        ) : null}
      </div>
      <table class="table of-values" aria-label="Old and new values">
        <thead>
          <tr>
            <th scope="col">Attribute</th>
            <th scope="col">Before</th>
            <th scope="col">After</th>
          </tr>
        </thead>
        <tbody>
          {shown.map((row) => (
            <tr key={row.label} class={row.changed ? "is-changed" : ""} data-field={row.field}>
              <th scope="row">
                <Safe text={row.label} />
                {row.changed ? <span class="flag">changed</span> : null}
              </th>
              <td class="before" data-label="Before">
                {change.before === null ? (
                  <span class="quiet">—</span>
                ) : (
                  <Cell value={row.before} other={row.after} row={row} />
                )}
              </td>
              <td class="after" data-label="After">
                {change.after === null ? (
                  <span class="quiet">—</span>
                ) : (
                  <Cell value={row.after} other={row.before} row={row} />
                )}
              </td>
            </tr>
          ))}
        </tbody>
      </table>
    </section>
  );
}

const SENTENCE = {
  created: "It was not there before.",
  modified: "",
  deleted: "It is no longer there; this is how it last was.",
  moved: "It was moved from another path.",
  transient: "",
};

function Detail({ change }: { change: Change }) {
  const { agent } = change;
  const body = change.after ?? change.before;
  const hex = isPackage(body) ? undefined : body?.path_hex;
  const item = isPackage(body) ? "package" : "file";
  return (
    <>
      <div class="view-head">
        <Title title={plain(change.path)}>
          <Path path={change.path} />
        </Title>
        <Kind kind={change.kind} />
      </div>
      <p class="lead">
        {SENTENCE[change.kind] === "" ? <Gist change={change} /> : SENTENCE[change.kind]}
      </p>
      <dl class="facts card">
        <div>
          <dt>Found</dt>
          <dd>
            <Time time={change.time} />
            <ClockOff agentTime={change.agent_time} />{" "}
            <span class="note">
              <Time time={change.time} relative />
            </span>
          </dd>
        </div>
        <div>
          <dt>Agent</dt>
          <dd>
            <a href={place(["agents", agent.id])}>
              <Safe text={agentName(agent)} />
            </a>{" "}
            <span class="note">{agent.id}</span>
          </dd>
        </div>
        <div>
          <dt>History</dt>
          <dd>
            <a href={place(["agents", agent.id, item], { path: change.path })}>
              This {item}, now and before
            </a>
          </dd>
        </div>
        {change.from === undefined ? null : (
          <div>
            <dt>Former path</dt>
            <dd>
              <Path path={change.from} />
            </dd>
          </div>
        )}
        {hex ? (
          <div>
            <dt>Exact path, in hex</dt>
            <dd class="mono">
              <Digest text={hex} />
            </dd>
          </div>
        ) : null}
      </dl>
      <CauseFacts change={change} />
      <Writer change={change} />
      {change.kind === "transient" ? null : <Values change={change} />}
    </>
  );
}

export function ChangeView({ id }: { id: string }) {
  // A change never changes: loaded once.
  const found = useResource(`change ${id}`, (stop) => find(id, stop), false);
  return (
    <>
      <nav class="crumbs" aria-label="Breadcrumb">
        <a href={place(["changes"])} data-up>
          Changes
        </a>
      </nav>
      {found.error ? (
        <>
          <Title title="Change" />
          <Failure error={found.error} retry={found.reload} />
        </>
      ) : null}
      {found.loading ? <Waiting /> : null}
      {found.data ? <Detail change={found.data} /> : null}
    </>
  );
}
