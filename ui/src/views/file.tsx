// One file of one agent: its current state and its history.

import { changes, files, packageOf } from "../api/calls";
import type { FileItem, PackageBody } from "../api/types";
import { bytes, count, exact, moment, permissions, plain, word } from "../core/format";
import { useResource } from "../core/load";
import { rows } from "../core/difference";
import { place } from "../core/route";
import { Changes } from "../parts/changes";
import { Digest, Empty, Failure, Path, Safe, Title, Waiting } from "../parts/text";

const CHANGES = 100;

type Fact = [label: string, value: string, note?: string];

function facts(file: FileItem): Fact[] {
  const out: [string, string | undefined, (string | undefined)?][] = [
    ["As reported", file.date && moment(file.date)],
    ["Type", word(file.type)],
    ["Size", file.size === undefined ? undefined : `${count(file.size)} B`, bytes(file.size ?? 0)],
    ["Mode", file.mode, file.perm || permissions(file.mode ?? "")],
    ["Owner", file.uname || file.uid, file.uid],
    ["Group", file.gname || file.gid, file.gid],
    ["mtime", file.mtime && exact(file.mtime)],
    ["ctime", file.ctime && exact(file.ctime)],
    ["Points to", file.target_path],
    ["SHA-256", file.sha256],
    ["SHA-1", file.sha1],
    ["MD5", file.md5],
    ["BLAKE3", file.blake3],
    ["Inode", file.inode?.toString()],
    ["Device", file.device],
    ["Hard links", file.links?.toString()],
    ["Exact path, in hex", file.path_hex],
    ["Flags", file.flags?.join(", ")],
    ["Not readable", file.error],
    ...Object.entries(file.xattrs ?? {}).map(([name, value]): [string, string] => [name, value]),
  ];
  return out
    .filter((fact): fact is [string, string, string | undefined] => Boolean(fact[1]))
    .map(([label, value, note]) =>
      note && note !== value ? [label, value, note] : [label, value],
    );
}

const packageFacts = (item: PackageBody): Fact[] =>
  rows({ kind: "created", before: null, after: item }).map(({ label, after }) =>
    after?.note ? [label, after.text, after.note] : [label, after?.text ?? ""],
  );

interface Props {
  id: string;
  /** A file's path, or a package's `name:architecture`. */
  path: string;
  item: "file" | "package";
}

export function ItemView({ id, path, item }: Props) {
  const found = useResource(`${item} ${id} ${path}`, async (stop) => {
    if (item === "package") {
      const installed = await packageOf(id, path, stop);
      return { file: null, known: installed && packageFacts(installed) };
    }
    const file = (await files(id, { file: path, limit: 1 }, stop)).items[0] ?? null;
    return { file, known: file && facts(file) };
  });
  const past = useResource(`past ${id} ${path}`, (stop) =>
    changes({ agents_list: id, file: path, limit: CHANGES }, stop),
  );
  const file = found.data?.file ?? null;
  const known = found.data?.known ?? null;
  const items = past.data?.items ?? null;
  return (
    <>
      <nav class="crumbs" aria-label="Breadcrumb">
        <a href={place(["agents"])}>Agents</a>
        <a href={place(["agents", id])} data-up={item === "package" ? true : undefined}>
          {id}
        </a>
        {item === "file" ? (
          <a href={place(["agents", id, "files"])} data-up>
            Files
          </a>
        ) : null}
      </nav>
      <Title title={plain(path)}>
        <Path path={path} />
      </Title>
      {found.error ? <Failure error={found.error} retry={found.reload} /> : null}
      {found.loading ? <Waiting /> : null}
      {found.data && known === null ? (
        item === "package" ? (
          <Empty title="Not installed now">The agent's last inventory does not list it.</Empty>
        ) : (
          <Empty title="Not there now">The agent's last scan did not find this path.</Empty>
        )
      ) : null}
      {known ? (
        <>
          <dl class="facts card wide">
            {known.map(([label, value, note]) => (
              <div key={label}>
                <dt>{label}</dt>
                <dd class="mono">
                  {/^[0-9a-f]{32,}$/.test(value) ? <Digest text={value} /> : <Safe text={value} />}
                  {note ? <span class="note"> {note}</span> : null}
                </dd>
              </div>
            ))}
          </dl>
        </>
      ) : null}
      <section aria-labelledby="past">
        <div class="section-head">
          <h2 id="past">Changes</h2>
          {file?.type === "dir" ? (
            <a href={place(["changes"], { agent: id, path: `${path}/` })}>
              Changes in this directory
            </a>
          ) : null}
        </div>
        {past.error ? <Failure error={past.error} retry={past.reload} /> : null}
        {items === null ? null : items.length === 0 ? (
          <Empty title="No changes known" />
        ) : (
          <Changes label={`Changes of this ${item}`} changes={items} oneAgent />
        )}
      </section>
    </>
  );
}
