// The files of one agent as they stand now.

import { files } from "../api/calls";
import type { FileItem } from "../api/types";
import { bytes, plain, plural, word } from "../core/format";
import { useResource } from "../core/load";
import { place, refine, route } from "../core/route";
import { Choice, type Choices } from "../parts/choice";
import { Pager } from "../parts/pager";
import { Search } from "../parts/search";
import { Row, Table } from "../parts/table";
import { Empty, Failure, Path, Safe, Time, Waiting } from "../parts/text";

const PAGE = 100;

function FileLine({ id, file }: { id: string; file: FileItem }) {
  const to = place(["agents", id, "file"], { path: file.file });
  return (
    <Row to={to}>
      <td class="c-path">
        <a class="row-link" href={to} title={plain(file.file)}>
          <Path path={file.file} />
        </a>
        {file.target_path === undefined ? null : (
          <span class="quiet">
            {" → "}
            <Safe text={file.target_path} />
          </span>
        )}
      </td>
      <td class="c-type">{word(file.type)}</td>
      <td class="c-size">{file.size === undefined ? "—" : bytes(file.size)}</td>
      <td class="c-mode mono">{file.mode ?? file.perm ?? "—"}</td>
      <td class="c-owner">
        <Safe text={`${file.uname || (file.uid ?? "?")}:${file.gname || (file.gid ?? "?")}`} />
      </td>
      <td class="c-time">
        <Time time={file.mtime} />
      </td>
    </Row>
  );
}

const TYPES: Choices = [
  ["", "any"],
  ...["file", "dir", "symlink", "fifo", "socket", "block_device", "char_device"].map(
    (name): [string, string] => [name, word(name)],
  ),
];

const ORDERS: Choices = [
  ["", "by path"],
  ["-date", "changed last first"],
  ["-mtime", "newest first"],
  ["-size", "largest first"],
];

export function Files({ id }: { id: string }) {
  const { query } = route.value;
  const search = query.get("search") ?? "";
  const offset = Number(query.get("offset") ?? 0) || 0;
  const sort = query.get("sort") ?? "";
  const type = query.get("type") ?? "";
  const filter = { search, sort, type };
  const found = useResource(JSON.stringify([id, filter, offset]), (stop) =>
    files(id, { ...filter, offset, limit: PAGE }, stop),
  );
  const set = (change: Record<string, string>) =>
    refine(place(["agents", id, "files"], { ...filter, ...change }));
  const total = found.data?.total ?? 0;
  const narrowed = search !== "" || type !== "";
  return (
    <section aria-labelledby="files">
      <div class="section-head">
        <h2 id="files">Files</h2>
        <p class="quiet" role="status">
          {found.data ? `${plural(total, "item")}${narrowed ? " found" : " watched"}` : ""}
        </p>
      </div>
      <div class="filters" role="search">
        <Search
          label="Search files"
          hint="part of a path"
          slash
          value={search}
          ask={(text) => set({ search: text })}
        />
        <Choice label="Type" value={type} of={TYPES} choose={(next) => set({ type: next })} />
        <Choice label="Order" value={sort} of={ORDERS} choose={(next) => set({ sort: next })} />
      </div>
      {found.error ? <Failure error={found.error} retry={found.reload} /> : null}
      {found.data === null ? (
        found.error ? null : (
          <Waiting />
        )
      ) : found.data.items.length === 0 ? (
        <Empty title={narrowed ? "No file fits" : "No files yet"} />
      ) : (
        <Table
          label="Files"
          shape="of-files"
          head={["Path", "Type", "Size", "Mode", "Owner", "Modified"]}
        >
          {found.data.items.map((file) => (
            <FileLine key={file.path_hex ?? file.file} id={id} file={file} />
          ))}
        </Table>
      )}
      <Pager
        label="Pages of files"
        offset={offset}
        size={PAGE}
        total={total}
        to={(next) => set({ offset: next === 0 ? "" : String(next) })}
      />
    </section>
  );
}
