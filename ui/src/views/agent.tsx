// One agent: what it is, what changed on it, what it watches.

import { useState } from "preact/hooks";
import { agent as find, changes, coverage, files, scan } from "../api/calls";
import { ApiError } from "../api/client";
import type { Agent, FileItem } from "../api/types";
import { bytes, plain, plural, word } from "../core/format";
import { useResource } from "../core/load";
import { place, refine, route } from "../core/route";
import { Changes } from "../parts/changes";
import { Gaps } from "../parts/gaps";
import { Status } from "../parts/marks";
import { Pager } from "../parts/pager";
import { Search } from "../parts/search";
import { Row, Table } from "../parts/table";
import { Empty, Failure, Path, Safe, Time, Title, Waiting } from "../parts/text";
import { system } from "./agents";

const FILES = 100;
const CHANGES = 50;
const GAPS = 5;

function Facts({ agent }: { agent: Agent }) {
  const facts: [label: string, value: preact.ComponentChildren][] = [
    ["Id", agent.id],
    ["Last seen", <Time time={agent.lastKeepAlive} relative />],
    ["System", <Safe text={system(agent) || "—"} />],
    ["Architecture", agent.os?.arch ?? "—"],
    ["Address", agent.ip ?? agent.registerIP ?? "—"],
    ["Groups", <Safe text={agent.group?.join(", ") ?? "—"} />],
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

type Order = { state: "none" | "busy" | "sent"; error: ApiError | null };

function ScanNow({ id }: { id: string }) {
  const [order, setOrder] = useState<Order>({ state: "none", error: null });
  const send = async () => {
    if (order.state === "busy") return;
    setOrder({ state: "busy", error: null });
    try {
      const answer = await scan(id);
      const failed = answer.failed[0];
      if (failed) {
        throw new ApiError(200, "Not sent", failed.message, failed.remediation, failed.code);
      }
      setOrder({ state: "sent", error: null });
    } catch (cause) {
      const error =
        cause instanceof ApiError ? cause : new ApiError(0, "Unexpected", String(cause));
      setOrder({ state: "none", error });
    }
  };
  return (
    <>
      <div class="order">
        <button
          type="button"
          class="button primary"
          aria-disabled={order.state === "busy"}
          onClick={() => void send()}
        >
          Scan now
        </button>
        <span class="quiet" role="status">
          {order.state === "sent" ? "Ordered. The agent takes it up at its next heartbeat." : ""}
        </span>
      </div>
      {order.error ? <Failure error={order.error} /> : null}
    </>
  );
}

function History({ id }: { id: string }) {
  const found = useResource(`changes ${id}`, (stop) =>
    changes({ agents_list: id, limit: CHANGES }, stop),
  );
  const gaps = useResource(`gaps ${id}`, (stop) =>
    coverage({ agents_list: id, limit: GAPS }, stop),
  );
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
          <Empty title="No changes yet">Nothing differs from the first scan.</Empty>
        ) : (
          <Changes label="Changes of this agent" changes={found.data.items} oneAgent />
        )}
      </section>
      <section aria-labelledby="gaps">
        <div class="section-head">
          <h2 id="gaps">Coverage</h2>
        </div>
        {gaps.error ? <Failure error={gaps.error} retry={gaps.reload} /> : null}
        {gaps.data?.items.length === 0 ? <Empty title="No gaps" /> : null}
        {gaps.data ? <Gaps gaps={gaps.data.items} oneAgent /> : null}
      </section>
    </>
  );
}

function FileLine({ id, file }: { id: string; file: FileItem }) {
  const to = place(["agents", id, "file"], { path: file.file });
  return (
    <Row to={to}>
      <td class="c-path">
        <a class="row-link" href={to} title={plain(file.file)}>
          <Path path={file.file} />
        </a>
      </td>
      <td class="c-type">{word(file.type)}</td>
      <td class="c-size">{file.size === undefined ? "—" : bytes(file.size)}</td>
      <td class="c-mode mono">{file.mode ?? file.perm ?? "—"}</td>
      <td class="c-owner">
        <Safe text={`${file.uname || (file.uid ?? "?")}:${file.gname || (file.gid ?? "?")}`} />
      </td>
      <td class="c-time">
        <Time time={file.mtime} />
      </td>
    </Row>
  );
}

function Files({ id }: { id: string }) {
  const { query } = route.value;
  const search = query.get("search") ?? "";
  const offset = Number(query.get("offset") ?? 0) || 0;
  const found = useResource(JSON.stringify([id, search, offset]), (stop) =>
    files(id, { search, offset, limit: FILES }, stop),
  );
  const set = (change: Record<string, string>) =>
    refine(place(["agents", id, "files"], { search, ...change }));
  const total = found.data?.total ?? 0;
  return (
    <section aria-labelledby="files">
      <div class="section-head">
        <h2 id="files">Files</h2>
        <p class="quiet" role="status">
          {found.data ? `${plural(total, "file")}${search === "" ? " watched" : " found"}` : ""}
        </p>
      </div>
      <div class="filters" role="search">
        <Search
          label="Search files"
          hint="part of a path"
          slash
          value={search}
          ask={(text) => set({ search: text })}
        />
      </div>
      {found.error ? <Failure error={found.error} retry={found.reload} /> : null}
      {found.data === null ? (
        found.error ? null : (
          <Waiting />
        )
      ) : found.data.items.length === 0 ? (
        <Empty title={search === "" ? "No files yet" : "No file fits"} />
      ) : (
        <Table
          label="Files"
          shape="of-files"
          head={["Path", "Type", "Size", "Mode", "Owner", "Modified"]}
        >
          {found.data.items.map((file) => (
            <FileLine key={file.path_hex ?? file.file} id={id} file={file} />
          ))}
        </Table>
      )}
      <Pager
        label="Pages of files"
        offset={offset}
        size={FILES}
        total={total}
        to={(next) => set({ offset: next === 0 ? "" : String(next) })}
      />
    </section>
  );
}

export function AgentView({ id, part }: { id: string; part: "changes" | "files" }) {
  const found = useResource(`agent ${id}`, (stop) => find(id, stop));
  const agent = found.data;
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
        {agent ? <Status status={agent.status} /> : null}
        {agent && agent.id !== "000" ? <ScanNow id={id} /> : null}
      </div>
      {found.error ? <Failure error={found.error} retry={found.reload} /> : null}
      {!found.loading && found.error === null && agent === null ? (
        <Empty title={`There is no agent ${plain(id)}`} />
      ) : null}
      {agent ? <Facts agent={agent} /> : null}
      <nav class="tabs" aria-label="Parts of this agent">
        {tab("changes", "Changes")}
        {tab("files", "Files")}
      </nav>
      {part === "files" ? <Files id={id} /> : <History id={id} />}
    </>
  );
}
