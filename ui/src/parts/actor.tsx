// Who made a change: one line in lists, and the process with its ancestors on the change's page.

import type { Change } from "../api/types";
import { certainty, programRows, userText, who } from "../core/actor";
import type { ProgramRow } from "../core/actor";
import { Digest, Path, Safe, Time } from "./text";

/** User and process, or why they are not known. */
/** The time without fractions of a second, as it is shown. */
const seconds = (time: string): string => time.slice(0, 19);

export function Who({ change }: { change: Change }) {
  const known = change.process !== undefined;
  return (
    <span class={known ? "who" : "who quiet"}>
      <Safe text={who(change)} />
    </span>
  );
}

function Program({ row }: { row: ProgramRow }) {
  const { pid, note, program } = row;
  return (
    <tr>
      <td>{pid}</td>
      <td>
        {program.executable ? (
          <Path path={program.executable} />
        ) : (
          <span class="quiet">not known</span>
        )}
        {note === "" ? null : <div class="note">{note}</div>}
        {program.foreign ? (
          <div class="note">another file than the host has at this path</div>
        ) : null}
        {program.hash ? (
          <div class="note">
            <Digest text={program.hash.sha256} />
          </div>
        ) : null}
      </td>
      <td class="mono">
        <Safe text={program.command_line ?? ""} />
      </td>
      <td>
        <Safe text={program.working_directory ?? ""} />
      </td>
    </tr>
  );
}

/** The writer of a change: certainty, users, session, and the process with its ancestors. */
export function Writer({ change }: { change: Change }) {
  const { seen, user, process, container } = change;
  if (seen === undefined) return null;
  const programs = programRows(process);
  const reasons = (seen.actors ?? []).map((actor) => actor.reason ?? "").filter((r) => r !== "");
  return (
    <section aria-labelledby="writer">
      <h2 id="writer">Who changed it</h2>
      <dl class="facts card">
        <div>
          <dt>Writer</dt>
          <dd>
            <Who change={change} /> <span class="note">{certainty(seen.attribution)}</span>
          </dd>
        </div>
        {user ? (
          <div>
            <dt>User</dt>
            <dd>
              <Safe text={userText(user)} />
              {seen.tty ? <span class="note"> on {seen.tty}</span> : null}
              {seen.session === undefined ? null : (
                <span class="note"> session {seen.session}</span>
              )}
            </dd>
          </div>
        ) : null}
        {container ? (
          <div>
            <dt>Container</dt>
            <dd class="mono">
              <Digest text={container.id} />
            </dd>
          </div>
        ) : null}
        {reasons.length > 0 ? (
          <div>
            <dt>Not certain because</dt>
            <dd>
              <Safe text={[...new Set(reasons)].join("; ")} />
            </dd>
          </div>
        ) : null}
        {seen.first ? (
          <div>
            <dt>Reported by the kernel</dt>
            <dd>
              <Time time={seen.first} />
              {seen.last && seconds(seen.last) !== seconds(seen.first) ? (
                <>
                  {" "}
                  to <Time time={seen.last} />
                </>
              ) : null}
            </dd>
          </div>
        ) : null}
      </dl>
      {programs.length > 0 ? (
        <table class="table" aria-label="Process and its ancestors">
          <thead>
            <tr>
              <th scope="col">Pid</th>
              <th scope="col">Executable</th>
              <th scope="col">Command line</th>
              <th scope="col">Working directory</th>
            </tr>
          </thead>
          <tbody>
            {programs.map((row, number) => (
              <Program key={number} row={row} />
            ))}
          </tbody>
        </table>
      ) : null}
    </section>
  );
}
