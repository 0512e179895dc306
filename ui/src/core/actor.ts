// The process and user that made a change, in words.

import type { Actor, Change, ProcessBody, ProgramBody, UserBody } from "../api/types";

const name = (user: UserBody): string => user.name ?? user.id;

/** The user that logged in, and the effective user if it is another one. */
export function userText(user: UserBody | undefined): string {
  if (user === undefined) return "";
  const { effective } = user;
  const other = effective !== undefined && effective.id !== user.id;
  return other ? `${name(user)} (${name(effective)})` : name(user);
}

const lastPart = (path: string): string => path.slice(path.lastIndexOf("/") + 1);

/** Names of the programs that come into question. Events of older agents list them as executables. */
function candidates(process: ProcessBody, actor: Actor | undefined): string {
  const programs = (process.candidates ?? []).map((one) => one.name);
  const executables = (actor?.executables ?? []).map((one) => lastPart(one.path ?? ""));
  const names = new Set(programs.length > 0 ? programs : executables);
  return [...names].filter((n) => n !== "").join(" or ");
}

/** One line: user and process, or why they are not known. */
export function who(change: Change): string {
  const { seen, user, process } = change;
  if (seen === undefined) return "found by scan";
  const actors = seen.actors ?? [];
  const count = actors.length + (seen.more ?? 0);
  if (count > 1) return `${count} processes`;
  if (process !== undefined) {
    const named = process.name ?? candidates(process, actors[0]);
    const what = named === "" ? `process ${process.pid}` : named;
    return [userText(user), what].filter((text) => text !== "").join(" ");
  }
  if (actors[0]?.reason) return actors[0].reason;
  return seen.found_by === "scan" ? "found with its directory" : "not attributed";
}

/** The process and its ancestors, the process itself first. */
export function lineage(process: ProcessBody | undefined): ProcessBody[] {
  const found: ProcessBody[] = [];
  for (let one = process; one !== undefined && found.length < 16; one = one.parent) found.push(one);
  return found;
}

/** A line of the table of processes: a process, or a program that it ran. */
export interface ProgramRow {
  pid: number;
  /** How the program relates to the change; empty for the only one, and for ancestors. */
  note: string;
  program: Partial<ProgramBody>;
}

/** The programs of the process, then its ancestors. */
export function programRows(process: ProcessBody | undefined): ProgramRow[] {
  const [writer, ...ancestors] = lineage(process);
  if (writer === undefined) return [];
  const { pid, candidates = [], earlier = [] } = writer;
  const row = (note: string) => (program: ProgramBody) => ({ pid, note, program });
  const own =
    candidates.length > 0
      ? candidates.map(row("comes into question"))
      : [{ pid, note: "", program: writer }];
  return [
    ...earlier.map(row("perhaps changed it before")),
    ...own,
    ...ancestors.map((one) => ({ pid: one.pid, note: "", program: one })),
  ];
}

const CERTAINTY: Record<string, string> = {
  exact: "certain",
  ambiguous: "process certain, one of several programs or users",
  uncertain: "not certain",
  unknown: "not known",
};

/** Certainty of the attribution, in words. */
export const certainty = (word: string | undefined): string =>
  word === undefined ? "" : (CERTAINTY[word] ?? word);
