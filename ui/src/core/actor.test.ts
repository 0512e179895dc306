import { expect, test } from "vitest";
import type { Change } from "../api/types";
import { lineage, programRows, userText, who } from "./actor";

const change = (rest: Partial<Change>): Change => ({
  id: "1",
  agent: { id: "001" },
  time: "2026-01-31T12:00:00Z",
  kind: "modified",
  path: "/etc/hosts",
  before: null,
  after: null,
  ...rest,
});

const alice = { id: "1000", name: "alice", effective: { id: "0", name: "root" } };

test("login user comes first, then the effective user and the process", () => {
  const seen = { attribution: "exact", found_by: "realtime" };
  const process = { pid: 7, name: "vim" };
  expect(who(change({ seen, user: alice, process }))).toBe("alice (root) vim");
  expect(userText({ id: "0", effective: { id: "0" } })).toBe("0");
});

test("an unknown writer has its reason in place of a name", () => {
  const reason = "gone before it was read";
  const actors = [{ attribution: "unknown", reason }];
  expect(who(change({ seen: { attribution: "unknown", actors } }))).toBe(reason);
  expect(who(change({}))).toBe("found by scan");
  expect(who(change({ seen: { found_by: "scan" } }))).toBe("found with its directory");
});

test("several executables and several processes are not reduced to one", () => {
  const executables = [{ path: "/bin/sh" }, { path: "/bin/touch" }];
  const ambiguous = {
    attribution: "ambiguous",
    actors: [{ attribution: "ambiguous", executables }],
  };
  expect(who(change({ seen: ambiguous, user: alice, process: { pid: 7 } }))).toBe(
    "alice (root) sh or touch",
  );
  const two = { actors: [{ attribution: "exact" }, { attribution: "exact" }], more: 3 };
  expect(who(change({ seen: two }))).toBe("5 processes");
});

test("ancestors follow the process", () => {
  const process = { pid: 7, parent: { pid: 6, parent: { pid: 1 } } };
  expect(lineage(process).map((one) => one.pid)).toEqual([7, 6, 1]);
});

test("programs of a process come in their order before its ancestors", () => {
  const program = (name: string) => ({ name, executable: `/bin/${name}` });
  const process = {
    pid: 7,
    candidates: [program("bash"), program("cp")],
    earlier: [program("sh")],
    parent: { pid: 1, name: "init" },
  };
  const rows = programRows(process).map((row) => [row.pid, row.program.name, row.note]);
  expect(rows).toEqual([
    [7, "sh", "perhaps changed it before"],
    [7, "bash", "comes into question"],
    [7, "cp", "comes into question"],
    [1, "init", ""],
  ]);
  expect(who(change({ seen: {}, process }))).toBe("bash or cp");
  expect(programRows({ pid: 7, name: "vim" }).map((row) => row.note)).toEqual([""]);
});
