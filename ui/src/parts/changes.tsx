// The list of changes, as the fleet, one agent, one file and the history show it.

import { useState } from "preact/hooks";
import { changes as members } from "../api/calls";
import type { Parameters } from "../api/client";
import type { Change } from "../api/types";
import { collapsedText } from "../core/cause";
import { gist } from "../core/difference";
import { plain } from "../core/format";
import { useResource } from "../core/load";
import { place } from "../core/route";
import { Who } from "./actor";
import { Cause } from "./cause";
import { Kind } from "./marks";
import { Row, Table } from "./table";
import { Failure, Path, Safe, Time, Waiting } from "./text";

/** Changes of one cause that are shown at once. */
const MEMBERS = 100;

export const changePlace = (id: string) => place(["changes", id]);

export const agentName = (agent: { id: string; name?: string }) => agent.name ?? agent.id;

interface Props {
  label: string;
  changes: Change[];
  /** Leave out the column of agents. */
  oneAgent?: boolean;
  /** The filter of the list, for the changes that a line represents. */
  filter?: Parameters;
}

export function Changes({ label, changes, oneAgent = false, filter = {} }: Props) {
  const agents = oneAgent ? [] : ["Agent"];
  const head = ["Time", "Change", "Path", "What changed", "Cause", ...agents];
  return (
    <Table label={label} shape={oneAgent ? "of-changes one-agent" : "of-changes"} head={head}>
      {changes.map((change) =>
        change.collapsed === undefined ? (
          <Line key={change.id} change={change} oneAgent={oneAgent} />
        ) : (
          <Collapsed
            key={`${change.agent.id} ${change.cause?.id}`}
            change={change}
            oneAgent={oneAgent}
            filter={filter}
          />
        ),
      )}
    </Table>
  );
}

function When({ change }: { change: Change }) {
  return (
    <td class="c-time">
      <Time time={change.time} />
      <ClockOff agentTime={change.agent_time} />
    </td>
  );
}

function Where({ change }: { change: Change }) {
  return (
    <td class="c-agent">
      <a href={place(["agents", change.agent.id])}>
        <Safe text={agentName(change.agent)} />
      </a>
    </td>
  );
}

interface LineProps {
  change: Change;
  oneAgent: boolean;
  more?: string;
}

function Line({ change, oneAgent, more = "" }: LineProps) {
  return (
    <Row to={changePlace(change.id)} more={more}>
      <When change={change} />
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
      <td class="c-cause">
        <Cause change={change} />
      </td>
      {oneAgent ? null : <Where change={change} />}
    </Row>
  );
}

/** Changes of one cause as one line, which shows them below itself when it is opened. */
function Collapsed({ change, oneAgent, filter }: LineProps & { filter: Parameters }) {
  const [open, setOpen] = useState(false);
  const toggle = () => setOpen(!open);
  return (
    <>
      <Row to={toggle} more="group">
        <When change={change} />
        <td class="c-kind">
          <span class="badge tone-calm">several</span>
        </td>
        <td class="c-path">
          <button type="button" class="row-link group-toggle" aria-expanded={open} onClick={toggle}>
            <span aria-hidden="true">{open ? "▾" : "▸"}</span>
            <Safe text={collapsedText(change)} />
          </button>
        </td>
        <td class="c-gist">
          <span class="note">
            latest: <Path path={change.path} />
          </span>
        </td>
        <td class="c-cause">
          <Safe text={change.cause?.kind ?? ""} />
        </td>
        {oneAgent ? null : <Where change={change} />}
      </Row>
      {open ? (
        <Members key={change.id} change={change} oneAgent={oneAgent} filter={filter} />
      ) : null}
    </>
  );
}

/** The changes of one cause, a page at a time. */
function Members({ change, oneAgent, filter }: LineProps & { filter: Parameters }) {
  const [shown, setShown] = useState<Change[]>([]);
  const [cursor, setCursor] = useState("");
  const [from, setFrom] = useState("");
  // Unexplained changes have lines of their own, whatever id they have.
  const causes = String(filter["cause"] ?? "").split(",");
  const explained = ["package", "deployment"].filter((c) => causes.includes(c));
  const ask = {
    ...filter,
    agents_list: change.agent.id,
    cause: explained.join(",") || "package,deployment",
    cause_id: change.cause?.id,
    limit: MEMBERS,
  };
  const page = useResource(
    `members ${change.id} ${from}`,
    async (stop) => {
      const found = await members({ ...ask, cursor: from }, stop);
      setShown((old) => (from === "" ? found.items : [...old, ...found.items]));
      setCursor(found.cursor ?? "");
      return found;
    },
    false,
  );
  const columns = oneAgent ? 5 : 6;
  return (
    <>
      {shown.map((member) => (
        <Line key={member.id} change={member} oneAgent={oneAgent} more="member" />
      ))}
      {page.error || page.loading || cursor !== "" ? (
        <tr class="member-more">
          <td colSpan={columns}>
            {page.error ? <Failure error={page.error} retry={page.reload} /> : null}
            {page.loading && shown.length === 0 ? <Waiting /> : null}
            {cursor === "" ? null : (
              <button type="button" class="button row-link" onClick={() => setFrom(cursor)}>
                Show more
              </button>
            )}
          </td>
        </tr>
      ) : null}
    </>
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
