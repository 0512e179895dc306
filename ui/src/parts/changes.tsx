// The list of changes, as the fleet, one agent, one file and the history show it.

import type { Change } from "../api/types";
import { gist } from "../core/difference";
import { plain } from "../core/format";
import { place } from "../core/route";
import { Who } from "./actor";
import { Kind } from "./marks";
import { Row, Table } from "./table";
import { Path, Safe, Time } from "./text";

export const changePlace = (id: string) => place(["changes", id]);

export const agentName = (agent: { id: string; name?: string }) => agent.name ?? agent.id;

interface Props {
  label: string;
  changes: Change[];
  /** Leave out the column of agents. */
  oneAgent?: boolean;
}

export function Changes({ label, changes, oneAgent = false }: Props) {
  const head = ["Time", "Change", "Path", "What changed", ...(oneAgent ? [] : ["Agent"])];
  return (
    <Table label={label} shape={oneAgent ? "of-changes one-agent" : "of-changes"} head={head}>
      {changes.map((change) => (
        <Row key={change.id} to={changePlace(change.id)}>
          <td class="c-time">
            <Time time={change.time} />
            <ClockOff agentTime={change.agent_time} />
          </td>
          <td class="c-kind">
            <Kind kind={change.kind} />
          </td>
          <td class="c-path">
            <a class="row-link" href={changePlace(change.id)} title={plain(change.path)}>
              <Path path={change.path} />
            </a>
            {change.from === undefined ? null : (
              <span class="note">
                {" "}
                moved from <Path path={change.from} />
              </span>
            )}
          </td>
          <td class="c-gist">
            <Gist change={change} />
            <div class="note">
              <Who change={change} />
            </div>
          </td>
          {oneAgent ? null : (
            <td class="c-agent">
              <a href={place(["agents", change.agent.id])}>
                <Safe text={agentName(change.agent)} />
              </a>
            </td>
          )}
        </Row>
      ))}
    </Table>
  );
}

/** A mark next to a time that is the receipt's, because the agent's clock was wrong. */
export function ClockOff({ agentTime }: { agentTime: string | undefined }) {
  if (agentTime === undefined) return null;
  return (
    <span class="quiet" title={`The agent's clock showed ${agentTime}; the time is the receipt's.`}>
      {" "}
      clock off
    </span>
  );
}

export function Gist({ change }: { change: Change }) {
  return (
    <span class="gist">
      {gist(change).map((said, i) => (
        <span class="said" key={said}>
          {i > 0 ? <span class="quiet"> · </span> : null}
          <Safe text={said} />
        </span>
      ))}
    </span>
  );
}
