import { expect, test } from "vitest";
import type { FileBody, PackageBody } from "../api/types";
import { gist, parts, rows } from "./difference";

const file = (change: Partial<FileBody> = {}): FileBody => ({
  path: "/etc/passwd",
  type: "file",
  size: 1432,
  mode: "0644",
  uid: "0",
  gid: "0",
  owner: "root",
  group: "root",
  mtime: "2026-11-20T09:12:44.000000000Z",
  inode: "131090",
  hash: { sha256: "aa" },
  ...change,
});

const modified = (before: FileBody, after: FileBody) => ({
  kind: "modified" as const,
  before,
  after,
});

const changed = (before: FileBody, after: FileBody) =>
  rows(modified(before, after))
    .filter((row) => row.changed)
    .map((row) => row.label);

test("each attribute that differs is marked, and no other", () => {
  expect(changed(file(), file())).toEqual([]);
  expect(changed(file(), file({ mode: "0600" }))).toEqual(["Mode"]);
  expect(changed(file(), file({ uid: "1000", owner: "alice" }))).toEqual(["Owner"]);
  expect(changed(file(), file({ size: 9, hash: { sha256: "bb" } }))).toEqual(["Size", "SHA-256"]);
});

test("a renamed user with the same id is a difference one can see", () => {
  expect(changed(file(), file({ owner: "toor" }))).toEqual(["Owner"]);
  expect(changed(file(), file({ uid: "7" }))).toEqual(["Owner"]);
});

test("an attribute that came or went shows on one side only", () => {
  const row = rows(modified(file(), file({ xattrs: { "user.note": "x" } }))).at(-1);
  expect(row).toMatchObject({ label: "user.note", before: null, changed: true });
  expect(row?.after?.text).toBe("x");
});

test("created and deleted files show every value and mark none", () => {
  const created = rows({ kind: "created", before: null, after: file() });
  expect(created.every((row) => row.before === null && row.after !== null && !row.changed)).toBe(
    true,
  );
  const deleted = rows({ kind: "deleted", before: file(), after: null });
  expect(deleted.every((row) => row.after === null && row.before !== null)).toBe(true);
});

test("the gist says the weightiest first and leaves out what follows from it", () => {
  const of = (change: Partial<FileBody>) => gist(modified(file(), file(change)));
  expect(of({ size: 1500, hash: { sha256: "b" }, mtime: "2026-11-21T00:00:00Z" })).toEqual([
    "content +68 B",
  ]);
  expect(of({ hash: { sha256: "b" }, mode: "0600" })).toEqual([
    "content, same size",
    "mode 0644 → 0600",
  ]);
  expect(of({ mtime: "2026-11-21T00:00:00Z" })).toEqual(["modification time"]);
  expect(of({ error: "Permission denied" })).toEqual(["not readable: Permission denied"]);
});

test("the gist of a file that came or went describes it", () => {
  expect(gist({ kind: "created", before: null, after: file() })).toEqual([
    "file",
    "1,432 B",
    "0644",
    "root:root",
  ]);
  expect(gist({ kind: "deleted", before: file(), after: null })[0]).toBe("was a file");
});

test("two texts are cut where they differ, at the ends of words", () => {
  expect(parts("2026-11-20 09:12:44", "2026-11-21 09:13:44")).toEqual({
    head: "2026-11-",
    a: "20 09:12",
    b: "21 09:13",
    tail: ":44",
  });
  expect(parts("0640", "0644")).toEqual({ head: "", a: "0640", b: "0644", tail: "" });
  expect(parts("/bin/nano", "/usr/bin/nano")).toEqual({
    head: "/",
    a: "",
    b: "usr/",
    tail: "bin/nano",
  });
});

test("what is cut puts together again", () => {
  const texts = ["", "a", "aa", "a b", "/a/b", "ab ab", "b a", "😀 a", "aaa a"];
  for (const a of texts) {
    for (const b of texts) {
      const cut = parts(a, b);
      expect(cut.head + cut.a + cut.tail).toBe(a);
      expect(cut.head + cut.b + cut.tail).toBe(b);
    }
  }
});

const openssl = (change: Partial<PackageBody> = {}): PackageBody => ({
  name: "openssl",
  version: "3.0.2-1",
  architecture: "amd64",
  vendor: "Debian",
  ...change,
});

test("an upgraded package shows both versions, its architecture and vendor", () => {
  const change = {
    kind: "modified" as const,
    before: openssl(),
    after: openssl({ version: "3.5.0-2" }),
  };
  expect(gist(change)).toEqual(["version 3.0.2-1 → 3.5.0-2", "amd64", "Debian"]);
  const version = rows(change).find((row) => row.label === "Version");
  expect([version?.before?.text, version?.after?.text, version?.changed]).toEqual([
    "3.0.2-1",
    "3.5.0-2",
    true,
  ]);
  expect(rows(change).map((row) => row.label)).toEqual([
    "Name",
    "Version",
    "Architecture",
    "Vendor",
  ]);
});

test("an installed and a removed package show their version", () => {
  const created = { kind: "created" as const, before: null, after: openssl() };
  const deleted = { kind: "deleted" as const, before: openssl(), after: null };
  expect(gist(created)).toEqual(["version 3.0.2-1", "amd64", "Debian"]);
  expect(gist(deleted)).toEqual(["version 3.0.2-1", "amd64", "Debian"]);
});
