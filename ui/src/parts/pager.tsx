// Paging by offset.

import { count } from "../core/format";

interface Props {
  label: string;
  offset: number;
  size: number;
  total: number;
  to: (offset: number) => void;
}

export function Pager({ label, offset, size, total, to }: Props) {
  if (total === 0) return null;
  const last = Math.min(total, offset + size);
  return (
    <nav class="pager" aria-label={label}>
      <span class="quiet" role="status">
        {count(Math.min(offset + 1, total))}–{count(last)} of {count(total)}
      </span>
      {total <= size && offset === 0 ? null : <Steps {...{ offset, size, last, total, to }} />}
    </nav>
  );
}

function Steps({ offset, size, last, total, to }: Omit<Props, "label"> & { last: number }) {
  return (
    <>
      <button
        type="button"
        class="button"
        disabled={offset === 0}
        onClick={() => to(Math.max(0, offset - size))}
      >
        Previous
      </button>
      <button
        type="button"
        class="button"
        disabled={last >= total}
        onClick={() => to(offset + size)}
      >
        Next
      </button>
    </>
  );
}
