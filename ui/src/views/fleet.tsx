// The fleet at a glance: three widgets from one request, what changed last, what was not watched.

import { useState } from "preact/hooks";
import { coverage, heldClock, newest, summary } from "../api/calls";
import type { AgentStatus, Summary } from "../api/types";
import { count, plural, word } from "../core/format";
import { urgent } from "../core/gap";
import { useResource } from "../core/load";
import { place } from "../core/route";
import { Changes } from "../parts/changes";
import { Counts, type Count } from "../parts/counts";
import { Gaps } from "../parts/gaps";
import { Shape } from "../parts/marks";
import { Empty, Failure, Safe, Time, Title, Waiting } from "../parts/text";

const STATUSES: AgentStatus[] = ["active", "disconnected", "pending", "never_connected"];
const CHANGES = 15;
const GAPS = 6;
const OPEN_GAPS = 6;

function named(of: Record<string, number>, filter: string): Count[] {
  return Object.entries(of)
    .sort(([a, m], [b, n]) => n - m || a.localeCompare(b))
    .map(([name, n]) => ({ name, label: name, n, to: place(["agents"], { [filter]: name }) }));
}

function Widgets({ of }: { of: Summary }) {
  const total = STATUSES.reduce((sum, status) => sum + (of.status[status] ?? 0), 0);
  const active = of.status.active ?? 0;
  const statuses = STATUSES.map((status) => ({
    name: status,
    label: word(status),
    n: of.status[status] ?? 0,
    to: place(["agents"], { status }),
    tone: status,
  }));
  return (
    <>
      <p class="lead">
        {total === 0
          ? "No agent has enrolled yet."
          : of.silent.agents > 0
            ? `${plural(total, "agent")}, ${count(of.silent.agents)} silent.`
            : active === total
              ? `${plural(total, "agent")}, ${total === 1 ? "active" : "all active"}.`
              : `${count(active)} of ${plural(total, "agent")} active.`}
      </p>
      <div class="widgets">
        <Counts title="Agents by status" counts={statuses} whole={total} empty="No agents." />
        <Counts
          title="Agents by group"
          counts={named(of.groups, "group")}
          whole={total}
          empty="No groups."
        />
        <Counts
          title="Agents by operating system"
          counts={named(of.os, "os")}
          whole={total}
          empty="No agent has reported its system yet."
        />
      </div>
    </>
  );
}

/** How many changes of the history are explained. */
function Causes({ of }: { of: Summary["changes"] }) {
  if (of === undefined) return null;
  return (
    <p class="quiet">
      Of all changes,{" "}
      <a href={place(["changes"], { cause: "unexplained" })}>{count(of.unexplained)} unexplained</a>
      , {count(of.package)} by packages, {count(of.deployment)} by deployments.
    </p>
  );
}

function Recent({ causes }: { causes: Summary["changes"] }) {
  const [load] = useState(newest);
  const ask = { limit: CHANGES, sort: "unexplained", collapse: "cause" };
  const recent = useResource("recent", (stop) => load("recent", ask, stop));
  return (
    <section aria-labelledby="recent">
      <div class="section-head">
        <h2 id="recent">Recent changes, unexplained first</h2>
        <a href={place(["changes"])}>All changes</a>
      </div>
      <Causes of={causes} />
      {recent.error ? <Failure error={recent.error} retry={recent.reload} /> : null}
      {recent.data === null ? (
        recent.error ? null : (
          <Waiting />
        )
      ) : recent.data.items.length === 0 ? (
        <Empty title="No changes yet">
          The first scan records what is there; from then on every difference is listed here.
        </Empty>
      ) : (
        <Changes label="Recent changes" changes={recent.data.items} />
      )}
    </section>
  );
}

function Coverage() {
  const gaps = useResource("gaps", async (stop) => {
    const [open, recent] = await Promise.all([
      coverage({ open: "true", limit: OPEN_GAPS }, stop),
      coverage({ limit: GAPS }, stop),
    ]);
    return { ...recent, items: urgent([...open.items, ...recent.items]) };
  });
  return (
    <section aria-labelledby="gaps">
      <div class="section-head">
        <h2 id="gaps">Coverage</h2>
        <p class="quiet">Intervals and paths that were not watched.</p>
      </div>
      {gaps.error ? <Failure error={gaps.error} retry={gaps.reload} /> : null}
      {gaps.data === null ? (
        gaps.error ? null : (
          <Waiting />
        )
      ) : gaps.data.items.length === 0 ? (
        <Empty title="No gaps" />
      ) : (
        <Gaps gaps={gaps.data.items} />
      )}
    </section>
  );
}

/** Says that the server's wall clock moved by more than a day, and what to do. */
function HeldClock() {
  const held = useResource("clock", heldClock).data;
  if (!held) return null;
  return (
    <div class="notice tone-gap" role="status">
      <Shape kind="warning" />
      <div>
        <p class="notice-title">The server's clock is held</p>
        <p>{held}</p>
      </div>
    </div>
  );
}

/** Names the agents that are not heard although they did not say goodbye. */
function SilentAgents({ of }: { of: Summary["silent"] }) {
  if (of.agents === 0) return null;
  const more = of.agents - of.names.length;
  return (
    <div class="notice tone-gap" role="status">
      <Shape kind="warning" />
      <div>
        <p class="notice-title">
          {of.agents === 1 ? "1 agent is silent" : `${count(of.agents)} agents are silent`}
        </p>
        <p>
          Not heard since <Time time={of.since} relative />:{" "}
          <a href={place(["agents"], { status: "silent" })}>
            <Safe text={of.names.join(", ")} />
            {more > 0 ? ` and ${count(more)} more` : ""}
          </a>
          . Their changes arrive when they are heard again.
        </p>
      </div>
    </div>
  );
}

export function Fleet() {
  const fleet = useResource("summary", summary);
  return (
    <>
      <Title title="Fleet" />
      <HeldClock />
      {fleet.data ? <SilentAgents of={fleet.data.silent} /> : null}
      {fleet.error ? <Failure error={fleet.error} retry={fleet.reload} /> : null}
      {fleet.data ? <Widgets of={fleet.data} /> : fleet.error ? null : <Waiting />}
      <Recent causes={fleet.data?.changes} />
      <Coverage />
    </>
  );
}
