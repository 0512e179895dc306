// One file of one agent: its current state and its history.

import { changes, files } from "../api/calls";
import type { FileItem } from "../api/types";
import { bytes, count, exact, moment, permissions, plain, word } from "../core/format";
import { useResource } from "../core/load";
import { place } from "../core/route";
import { Changes } from "../parts/changes";
import { Digest, Empty, Failure, Path, Safe, Title, Waiting } from "../parts/text";

const CHANGES = 100;

function facts(file: FileItem): [label: string, value: string, note?: string][] {
  const out: [string, string | undefined, (string | undefined)?][] = [
    ["Seen so", file.date && moment(file.date)],
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
    ["Not readable", file.error],
    ...Object.entries(file.xattrs ?? {}).map(([name, value]): [string, string] => [name, value]),
  ];
  return out
    .filter((fact): fact is [string, string, string | undefined] => Boolean(fact[1]))
    .map(([label, value, note]) =>
      note && note !== value ? [label, value, note] : [label, value],
    );
}

export function FileView({ id, path }: { id: string; path: string }) {
  const found = useResource(`file ${id} ${path}`, async (stop) => ({
    file: (await files(id, { file: path, limit: 1 }, stop)).items[0] ?? null,
  }));
  const past = useResource(`past ${id} ${path}`, (stop) =>
    changes({ agents_list: id, file: path, limit: CHANGES }, stop),
  );
  const file = found.data?.file ?? null;
  const items = past.data?.items ?? null;
  return (
    <>
      <nav class="crumbs" aria-label="Breadcrumb">
        <a href={place(["agents"])}>Agents</a>
        <a href={place(["agents", id])}>{id}</a>
        <a href={place(["agents", id, "files"])} data-up>
          Files
        </a>
      </nav>
      <Title title={plain(path)}>
        <Path path={path} />
      </Title>
      {found.error ? <Failure error={found.error} retry={found.reload} /> : null}
      {found.loading ? <Waiting /> : null}
      {found.data && file === null ? (
        <Empty title="Not there now">The agent's last scan did not find this path.</Empty>
      ) : null}
      {file ? (
        <>
          <dl class="facts card wide">
            {facts(file).map(([label, value, note]) => (
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
          <Changes label="Changes of this file" changes={items} oneAgent />
        )}
      </section>
    </>
  );
}
