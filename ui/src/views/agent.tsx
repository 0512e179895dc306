// One agent: what it is, what changed on it, what it watches.

import { useState } from "preact/hooks";
import {
  agent as find,
  coverage,
  grants,
  groupSync,
  lastScan,
  newest,
  watched,
} from "../api/calls";
import type { Agent, GroupSync, LastScan, Watched } from "../api/types";
import { plain, span } from "../core/format";
import { useResource } from "../core/load";
import { may } from "../core/grants";
import { place } from "../core/route";
import { Changes } from "../parts/changes";
import { Gaps } from "../parts/gaps";
import { Status } from "../parts/marks";
import { ScanNow } from "../parts/scan";
import { WatchedPaths } from "../parts/watched";
import { Empty, Failure, Safe, Time, Title, Waiting } from "../parts/text";
import { system } from "./agents";
import { Files } from "./files";

const CHANGES = 50;
const GAPS = 5;

function Scanned({ scan }: { scan: LastScan | null }) {
  if (scan?.end) return <Time time={scan.end} relative />;
  if (!scan?.start) return <>none yet</>;
  return (
    <>
      running since <Time time={scan.start} />
    </>
  );
}

/** Whether the agent runs the settings of its groups. */
function syncWords(sync: GroupSync | null): string {
  if (sync === null) return "—";
  if (sync.refused) return `refused: ${sync.refused.detail}`;
  return sync.synced ? "applied" : "not applied yet";
}

/** When the next scan begins; the time of the agent's clock. */
function NextScan({ watched }: { watched: Watched | null }) {
  if (watched === null) return <>—</>;
  return (
    <>
      <Time time={watched.next_scan} />{" "}
      <span class="note">every {span(watched.scan_interval_s * 1000)}</span>
    </>
  );
}

/** Since when the agent is silent, and whether its silence removes it. */
function silence(agent: Agent): [label: string, value: preact.ComponentChildren][] {
  const facts: [label: string, value: preact.ComponentChildren][] = [];
  if (agent.silent_since) {
    facts.push(["Silent since", <Time time={agent.silent_since} relative />]);
  }
  if (agent.ephemeral_s) {
    facts.push(["Ephemeral", `removed after ${span(agent.ephemeral_s * 1000)} of silence`]);
  }
  return facts;
}

function Facts({ agent }: { agent: Agent }) {
  const roots = useResource(`watched ${agent.id}`, (stop) => watched(agent.id, stop));
  const scan = useResource(`scan ${agent.id}`, (stop) => lastScan(agent.id, stop));
  const sync = useResource(`sync ${agent.id}`, (stop) => groupSync(agent.id, stop));
  const facts: [label: string, value: preact.ComponentChildren][] = [
    ["Id", agent.id],
    ["Last seen", <Time time={agent.lastKeepAlive} relative />],
    ...silence(agent),
    ["System", <Safe text={system(agent) || "—"} />],
    ["Architecture", agent.os?.arch ?? "—"],
    ["Address", agent.ip ?? agent.registerIP ?? "—"],
    ["Groups", <Safe text={agent.group?.join(", ") ?? "—"} />],
    ["Group settings", <Safe text={syncWords(sync.data)} />],
    ["Last scan", <Scanned scan={scan.data} />],
    ["Next scan", <NextScan watched={roots.data} />],
    ["Version", agent.version ?? "—"],
    ["Enrolled", <Time time={agent.dateAdd} />],
  ];
  return (
    <dl class="facts card">
      {facts.map(([label, value]) => (
        <div key={label}>
          <dt>{label}</dt>
          <dd>{value}</dd>
        </div>
      ))}
    </dl>
  );
}

/** The sentence in place of an empty list: only what is known of the agent. */
function nothing(
  id: string,
  agent: Agent | null,
  scan: LastScan | null,
): { changes: [string, string?]; gaps: string } {
  if (id === "000") {
    return {
      changes: ["No changes", "The server itself is not scanned."],
      gaps: "No gaps recorded",
    };
  }
  if (agent?.status === "never_connected" || agent?.status === "pending") {
    return {
      changes: ["Never connected", "Nothing is known of this agent's files and packages."],
      gaps: "Not known: the agent never connected",
    };
  }
  if (agent === null) return { changes: ["No changes known"], gaps: "No gaps known" };
  if (scan === null) return { changes: ["No changes known"], gaps: "No gaps known" };
  if (scan.end === null && scan.previous_end === undefined) {
    return {
      changes: ["First scan not finished", "Changes are known from the end of the first scan on."],
      gaps: "No gaps",
    };
  }
  return { changes: ["No changes yet", "Nothing differs from the first scan."], gaps: "No gaps" };
}

function History({ id, agent }: { id: string; agent: Agent | null }) {
  const scan = useResource(`scan ${id}`, (stop) => lastScan(id, stop));
  const empty = nothing(id, agent, scan.data);
  const [recent] = useState(newest);
  const found = useResource(`changes ${id}`, (stop) =>
    recent(id, { agents_list: id, limit: CHANGES }, stop),
  );
  const gaps = useResource(`gaps ${id}`, (stop) =>
    coverage({ agents_list: id, limit: GAPS }, stop),
  );
  const roots = useResource(`watched ${id}`, (stop) => watched(id, stop));
  return (
    <>
      <section aria-labelledby="history">
        <div class="section-head">
          <h2 id="history">Changes</h2>
          <a href={place(["changes"], { agent: id })}>All changes of this agent</a>
        </div>
        {found.error ? <Failure error={found.error} retry={found.reload} /> : null}
        {found.data === null ? (
          found.error ? null : (
            <Waiting />
          )
        ) : found.data.items.length === 0 ? (
          scan.loading ? null : (
            <Empty title={empty.changes[0]}>{empty.changes[1]}</Empty>
          )
        ) : (
          <Changes label="Changes of this agent" changes={found.data.items} oneAgent />
        )}
      </section>
      <section aria-labelledby="gaps">
        <div class="section-head">
          <h2 id="gaps">Coverage</h2>
        </div>
        {gaps.error ? <Failure error={gaps.error} retry={gaps.reload} /> : null}
        {gaps.data?.items.length === 0 ? <Empty title={empty.gaps} /> : null}
        {gaps.data ? <Gaps gaps={gaps.data.items} oneAgent /> : null}
      </section>
      {roots.data ? (
        <section aria-labelledby="watched">
          <div class="section-head">
            <h2 id="watched">Watched paths</h2>
          </div>
          <WatchedPaths watched={roots.data} />
        </section>
      ) : null}
    </>
  );
}

export function AgentView({ id, part }: { id: string; part: "changes" | "files" }) {
  const found = useResource(`agent ${id}`, (stop) => find(id, stop));
  const agent = found.data;
  const missing = !found.loading && found.error === null && agent === null;
  const rights = useResource("grants", grants, false);
  const scannable =
    agent?.status === "active" &&
    agent.id !== "000" &&
    rights.data !== null &&
    may(rights.data, "syscheck:run", agent);
  const name = agent?.name ?? `Agent ${id}`;
  const tab = (to: typeof part, label: string) => (
    <a
      href={place(to === "files" ? ["agents", id, "files"] : ["agents", id])}
      aria-current={part === to ? "page" : undefined}
    >
      {label}
    </a>
  );
  return (
    <>
      <nav class="crumbs" aria-label="Breadcrumb">
        <a href={place(["agents"])} data-up>
          Agents
        </a>
      </nav>
      <div class="view-head">
        <Title title={plain(name)}>
          <Safe text={name} />
        </Title>
        {agent ? <Status agent={agent} /> : null}
        {scannable ? <ScanNow id={id} /> : null}
      </div>
      {found.error ? <Failure error={found.error} retry={found.reload} /> : null}
      {missing ? (
        <Empty title={`There is no agent ${plain(id)}`}>
          A removed agent is no longer listed; its history is below.
        </Empty>
      ) : null}
      {agent ? <Facts agent={agent} /> : null}
      {missing ? <History id={id} agent={null} /> : null}
      {missing || found.loading ? null : (
        <>
          <nav class="tabs" aria-label="Parts of this agent">
            {tab("changes", "Changes")}
            {tab("files", "Files")}
          </nav>
          {part === "files" ? <Files id={id} /> : <History id={id} agent={agent} />}
        </>
      )}
    </>
  );
}
