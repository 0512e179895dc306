// The list of agents, by status, group, operating system and search.

import type { TargetedEvent } from "preact";
import { agents } from "../api/calls";
import type { Agent } from "../api/types";
import { word } from "../core/format";
import { useResource } from "../core/load";
import { place, refine, route } from "../core/route";
import { Status } from "../parts/marks";
import { Pager } from "../parts/pager";
import { Search } from "../parts/search";
import { Row, Table } from "../parts/table";
import { Empty, Failure, Safe, Time, Title, Waiting } from "../parts/text";

const PAGE = 50;
const STATUSES = ["active", "disconnected", "pending", "never_connected"];
const FILTERS = ["search", "status", "group", "os"] as const;

export function system(agent: Agent): string {
  const { name, version } = agent.os ?? {};
  return [name ?? agent.os?.platform, version].filter(Boolean).join(" ");
}

function Line({ agent }: { agent: Agent }) {
  const to = place(["agents", agent.id]);
  return (
    <Row to={to}>
      <td class="c-id">{agent.id}</td>
      <td class="c-name">
        <a class="row-link" href={to}>
          <Safe text={agent.name ?? agent.id} />
        </a>
      </td>
      <td class="c-status">
        <Status status={agent.status} />
      </td>
      <td class="c-system">
        <Safe text={system(agent) || "—"} />
      </td>
      <td class="c-groups">
        <Safe text={agent.group?.join(", ") ?? "—"} />
      </td>
      <td class="c-seen">
        <Time time={agent.lastKeepAlive} relative />
      </td>
    </Row>
  );
}

export function Agents() {
  const { query } = route.value;
  const filter = Object.fromEntries(FILTERS.map((name) => [name, query.get(name) ?? ""]));
  const offset = Number(query.get("offset") ?? 0) || 0;
  const { search, status, group, os } = filter;
  const found = useResource(JSON.stringify([filter, offset]), (stop) =>
    agents({ search, status, group, "os.platform": os, q: "id!=000", offset, limit: PAGE }, stop),
  );
  const set = (change: Record<string, string>) =>
    refine(place(["agents"], { ...filter, ...change }));
  const choose = (event: TargetedEvent<HTMLSelectElement>) =>
    set({ status: event.currentTarget.value });
  const narrowed = FILTERS.some((name) => filter[name] !== "");

  return (
    <>
      <Title title="Agents" />
      <div class="filters" role="search">
        <Search
          label="Search"
          hint="name, id, address, system"
          slash
          value={search ?? ""}
          ask={(text) => set({ search: text })}
        />
        <div class="field">
          <label for="status">Status</label>
          <select id="status" value={status} onChange={choose}>
            <option value="">any</option>
            {STATUSES.map((name) => (
              <option value={name}>{word(name)}</option>
            ))}
          </select>
        </div>
        {(["group", "os"] as const).map((name) =>
          filter[name] ? (
            <button
              type="button"
              class="button chip"
              onClick={() => set({ [name]: "" })}
              aria-label={`Remove the filter ${name === "os" ? "system" : name} ${filter[name]}`}
            >
              {name === "os" ? "system" : name}: <Safe text={filter[name]} />{" "}
              <span aria-hidden="true">×</span>
            </button>
          ) : null,
        )}
      </div>
      {found.error ? <Failure error={found.error} retry={found.reload} /> : null}
      {found.data === null ? (
        found.error ? null : (
          <Waiting />
        )
      ) : found.data.items.length === 0 ? (
        narrowed ? (
          <Empty title="No agent fits" />
        ) : (
          <Empty title="No agent has enrolled yet">
            <code>holdfast enroll</code> on a machine adds it.
          </Empty>
        )
      ) : (
        <Table
          label="Agents"
          shape="of-agents"
          head={["Id", "Name", "Status", "System", "Groups", "Last seen"]}
        >
          {found.data.items.map((agent) => (
            <Line key={agent.id} agent={agent} />
          ))}
        </Table>
      )}
      <Pager
        label="Pages of agents"
        offset={offset}
        size={PAGE}
        total={found.data?.total ?? 0}
        to={(next) => set({ offset: next === 0 ? "" : String(next) })}
      />
    </>
  );
}
