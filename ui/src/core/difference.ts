// One change as rows of old and new values. Pure functions.

import type { Change, FileBody, PackageBody } from "../api/types";
import { bytes, exact, growth, permissions, plural, word } from "./format";

type Body = FileBody | PackageBody;

/** True for a package; a file always has a path. */
export const isPackage = (body: Body | null): body is PackageBody =>
  body !== null && !("path" in body);

/** The name the API gives a field in `changed_fields`; each covers one or more rows. */
type Field = FileField | keyof PackageBody;

type FileField =
  | "type"
  | "size"
  | "hash"
  | "mode"
  | "uid"
  | "gid"
  | "mtime"
  | "ctime"
  | "inode"
  | "device"
  | "links"
  | "target_path"
  | "xattrs"
  | "flags"
  | "error";

export interface Value {
  text: string;
  /** Shown next to the value in a muted colour: `rw-r--r--`, `12.4 MiB`. */
  note: string;
}

export interface Row {
  field: Field;
  label: string;
  before: Value | null;
  after: Value | null;
  changed: boolean;
  /** Whether a part of the value can differ in a way worth pointing at (not so in digests). */
  partial: boolean;
}

const value = (text: string | undefined, note = ""): Value | null =>
  text === undefined || text === "" ? null : { text, note };

const person = (id: string | undefined, name: string | undefined): Value | null =>
  id === undefined ? null : name ? { text: name, note: id } : { text: id, note: "" };

function size(n: number | undefined): Value | null {
  if (n === undefined) return null;
  const short = bytes(n);
  return value(`${n.toLocaleString("en")} B`, short.endsWith(" B") ? "" : short);
}

const time = (t: string | undefined) => value(t === undefined ? t : exact(t));

interface Column<B> {
  field: Field;
  label: string;
  partial?: boolean;
  read: (body: B) => Value | null;
}

type FileColumn = Column<FileBody>;

const digest = (name: "sha256" | "sha1" | "md5" | "blake3", label: string): FileColumn => ({
  field: "hash",
  label,
  read: (f) => value(f.hash?.[name]),
});

const COLUMNS: FileColumn[] = [
  { field: "type", label: "Type", read: (f) => value(f.type && word(f.type)) },
  { field: "size", label: "Size", read: (f) => size(f.size) },
  digest("sha256", "SHA-256"),
  digest("sha1", "SHA-1"),
  digest("md5", "MD5"),
  digest("blake3", "BLAKE3"),
  {
    field: "mode",
    label: "Mode",
    partial: true,
    read: (f) => value(f.mode, permissions(f.mode ?? "")),
  },
  { field: "uid", label: "Owner", read: (f) => person(f.uid, f.owner) },
  { field: "gid", label: "Group", read: (f) => person(f.gid, f.group) },
  { field: "mtime", label: "mtime", partial: true, read: (f) => time(f.mtime) },
  { field: "ctime", label: "ctime", partial: true, read: (f) => time(f.ctime) },
  { field: "target_path", label: "Points to", partial: true, read: (f) => value(f.target_path) },
  { field: "links", label: "Hard links", read: (f) => value(f.links?.toString()) },
  { field: "inode", label: "Inode", read: (f) => value(f.inode) },
  { field: "device", label: "Device", read: (f) => value(f.device) },
  { field: "flags", label: "Flags", partial: true, read: (f) => value(f.flags?.join(", ")) },
  { field: "error", label: "Not readable", read: (f) => value(f.error) },
];

function attributes(before: FileBody | null, after: FileBody | null): FileColumn[] {
  const names = new Set([
    ...Object.keys(before?.xattrs ?? {}),
    ...Object.keys(after?.xattrs ?? {}),
  ]);
  return [...names].sort().map((name) => ({
    field: "xattrs",
    label: name,
    partial: true,
    read: (f) => value(f.xattrs?.[name]),
  }));
}

const PACKAGE_COLUMNS: Column<PackageBody>[] = [
  { field: "name", label: "Name", read: (p) => value(p.name) },
  { field: "version", label: "Version", partial: true, read: (p) => value(p.version) },
  { field: "architecture", label: "Architecture", read: (p) => value(p.architecture) },
  { field: "vendor", label: "Vendor", partial: true, read: (p) => value(p.vendor) },
  { field: "description", label: "Description", partial: true, read: (p) => value(p.description) },
  { field: "size", label: "Installed size", read: (p) => size(p.size) },
  { field: "installed", label: "Installed", partial: true, read: (p) => time(p.installed) },
  { field: "source", label: "Source", partial: true, read: (p) => value(p.source) },
  { field: "category", label: "Category", read: (p) => value(p.category) },
  { field: "priority", label: "Priority", read: (p) => value(p.priority) },
  { field: "multiarch", label: "Multi-arch", read: (p) => value(p.multiarch) },
  { field: "state", label: "State", read: (p) => value(p.state) },
  { field: "type", label: "Format", read: (p) => value(p.type) },
];

const same = (a: Value | null, b: Value | null) => a?.text === b?.text && a?.note === b?.note;

/** Every attribute known before or after, in a fixed order; those of a change marked. */
export function rows(change: Pick<Change, "kind" | "before" | "after">): Row[] {
  const { before, after, kind } = change;
  if (isPackage(before) || isPackage(after)) {
    return compare(
      PACKAGE_COLUMNS,
      before as PackageBody | null,
      after as PackageBody | null,
      kind,
    );
  }
  return compare([...COLUMNS, ...attributes(before, after)], before, after, kind);
}

function compare<B>(
  columns: Column<B>[],
  before: B | null,
  after: B | null,
  kind: Change["kind"],
): Row[] {
  const out: Row[] = [];
  for (const column of columns) {
    const old = before && column.read(before);
    const young = after && column.read(after);
    if (old === null && young === null) continue;
    out.push({
      field: column.field,
      label: column.label,
      before: old,
      after: young,
      changed: kind === "modified" && !same(old, young),
      partial: column.partial ?? false,
    });
  }
  return out;
}

const WORD = /[\p{L}\p{N}]/u;
const inWord = (text: string[], at: number) =>
  WORD.test(text[at - 1] ?? "") && WORD.test(text[at] ?? "");

/** Both texts cut where they begin and where they cease to differ, at the ends of words. */
export function parts(a: string, b: string): { head: string; a: string; b: string; tail: string } {
  const x = [...a];
  const y = [...b];
  const most = Math.min(x.length, y.length);
  let head = 0;
  while (head < most && x[head] === y[head]) head += 1;
  while (head > 0 && (inWord(x, head) || inWord(y, head))) head -= 1;
  let tail = 0;
  while (tail < most - head && x[x.length - 1 - tail] === y[y.length - 1 - tail]) tail += 1;
  while (tail > 0 && (inWord(x, x.length - tail) || inWord(y, y.length - tail))) tail -= 1;
  return {
    head: x.slice(0, head).join(""),
    a: x.slice(head, x.length - tail).join(""),
    b: y.slice(head, y.length - tail).join(""),
    tail: x.slice(x.length - tail).join(""),
  };
}

const arrow = (a: string | undefined, b: string | undefined) => `${a ?? "none"} → ${b ?? "none"}`;

/** The version before and after, then the architecture and the vendor. */
function packageGist(before: PackageBody | null, after: PackageBody | null): string[] {
  const now = after ?? before;
  if (now === null) return [];
  const said =
    before && after && before.version !== after.version
      ? [`version ${arrow(before.version, after.version)}`]
      : [`version ${now.version}`];
  if (now.architecture !== "") said.push(now.architecture);
  if (before && after && before.vendor !== after.vendor) {
    said.push(`vendor ${arrow(before.vendor, after.vendor)}`);
  } else if (now.vendor !== undefined) said.push(now.vendor);
  return said;
}

function modified(before: FileBody, after: FileBody, all: Row[]): string[] {
  const differs = (field: Field) => all.some((row) => row.changed && row.field === field);
  const said: string[] = [];
  if (differs("type"))
    said.push(`was a ${word(before.type ?? "")}, now a ${word(after.type ?? "")}`);
  const grown = growth(before.size ?? 0, after.size ?? 0);
  if (differs("hash")) said.push(grown === "" ? "content, same size" : `content ${grown}`);
  else if (differs("size") && !differs("target_path")) said.push(`size ${grown}`);
  if (differs("mode")) said.push(`mode ${arrow(before.mode, after.mode)}`);
  if (differs("uid"))
    said.push(`owner ${arrow(before.owner ?? before.uid, after.owner ?? after.uid)}`);
  if (differs("gid"))
    said.push(`group ${arrow(before.group ?? before.gid, after.group ?? after.gid)}`);
  if (differs("target_path")) said.push(`target ${arrow(before.target_path, after.target_path)}`);
  if (differs("flags"))
    said.push(
      `flags ${arrow(before.flags?.join(", ") ?? "none", after.flags?.join(", ") ?? "none")}`,
    );
  if (differs("xattrs")) said.push("extended attributes");
  if (differs("error")) said.push(after.error ? `not readable: ${after.error}` : "readable again");
  if (differs("links")) said.push("hard links");
  if (differs("device")) said.push("another file system");
  if (differs("inode")) said.push("file replaced");
  if (said.length === 0 && differs("mtime")) said.push("modification time");
  if (said.length === 0 && differs("ctime")) said.push("inode touched");
  return said;
}

function description(file: FileBody): string[] {
  const said = [word(file.type ?? "file")];
  if (file.size !== undefined && file.type === "file") said.push(bytes(file.size));
  if (file.target_path !== undefined) said.push(`to ${file.target_path}`);
  if (file.mode !== undefined) said.push(file.mode);
  const owner = file.owner ?? file.uid;
  const group = file.group ?? file.gid;
  if (owner !== undefined && group !== undefined) said.push(`${owner}:${group}`);
  return said;
}

/** A change in a few words, the weightiest first. */
export function gist(change: Pick<Change, "kind" | "before" | "after" | "transient">): string[] {
  const { before, after, transient } = change;
  if (transient !== undefined) {
    const names = transient.names ?? [];
    return [`${plural(transient.count, "file")} created and removed`, names.join(", ")].filter(
      (said) => said !== "",
    );
  }
  if (isPackage(before) || isPackage(after)) {
    return packageGist(before as PackageBody | null, after as PackageBody | null);
  }
  if (change.kind === "modified" && before && after) {
    return modified(before, after, rows(change));
  }
  const file = after ?? before;
  const said = file ? description(file) : [];
  return change.kind === "deleted" ? said.map((s, i) => (i === 0 ? `was a ${s}` : s)) : said;
}
