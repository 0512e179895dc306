// The list of agents, by status, group, operating system and search.

import { agents } from "../api/calls";
import type { Agent } from "../api/types";
import { word } from "../core/format";
import { useResource } from "../core/load";
import { place, refine, route } from "../core/route";
import { Status } from "../parts/marks";
import { Choice, type Choices } from "../parts/choice";
import { Pager } from "../parts/pager";
import { Search } from "../parts/search";
import { Row, Table } from "../parts/table";
import { Empty, Failure, Safe, Time, Title, Waiting } from "../parts/text";

const PAGE = 50;
const SERVER = "000";
const STATUSES: Choices = [
  ["", "any"],
  ...["active", "disconnected", "pending", "never_connected"].map((name): [string, string] => [
    name,
    word(name),
  ]),
  ["silent", "silent"],
];
const FILTERS = ["search", "status", "group", "os"] as const;

/** Silent is a filter of its own: the status of such an agent may still be active. */
const standing = (status: string | undefined) =>
  status === "silent" ? { silent: "true" } : { status };

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
        <Status agent={agent} />
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
    agents({ search, ...standing(status), group, "os.platform": os, offset, limit: PAGE }, stop),
  );
  // The server lists itself as agent 000; it is no agent of the fleet.
  const items = found.data?.items.filter((agent) => agent.id !== SERVER) ?? [];
  const itself = found.data !== null && (found.data.items.length > items.length || offset > 0);
  const total = (found.data?.total ?? 0) - (itself ? 1 : 0);
  const set = (change: Record<string, string>) =>
    refine(place(["agents"], { ...filter, ...change }));
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
        <Choice
          label="Status"
          value={status ?? ""}
          of={STATUSES}
          choose={(next) => set({ status: next })}
        />
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
      ) : items.length === 0 ? (
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
          {items.map((agent) => (
            <Line key={agent.id} agent={agent} />
          ))}
        </Table>
      )}
      <Pager
        label="Pages of agents"
        offset={offset}
        size={PAGE}
        total={total}
        to={(next) => set({ offset: next === 0 ? "" : String(next) })}
      />
    </>
  );
}
