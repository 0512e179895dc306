//! Which rows a range may have anything of: each partition's parts say which rows they have.

use roaring::RoaringBitmap;

use super::snapshot::Snapshot;
use crate::head::partition_range;
use crate::model::TimeRange;

/// Parts whose rows are looked at, at most: where a range has more of them, every row may be there.
const PARTS_MAX: usize = 64;
/// Rows that are looked up in a head at once: writers wait for no more than these.
const ROWS_AT_ONCE: usize = 4096;

impl Snapshot {
    /// Returns those of `rows` that may have samples in a range. An unreadable part may have all of
    /// them: reading them reports the error.
    pub(crate) fn present(&self, rows: RoaringBitmap, range: TimeRange) -> RoaringBitmap {
        let touched = |partition: i64| {
            let of = partition_range(partition);
            range.touches(of.from_ns, of.to_ns - 1)
        };
        let sealed = self.parts.iter().rev();
        let sealed = sealed.flat_map(|(p, parts)| parts.iter().map(move |part| (p, part)));
        let alone = self.rollups.iter().rev().filter(|(_, rollup)| rollup.meta.alone);
        let here = sealed.chain(alone).filter(|(p, _)| touched(**p));
        if here.clone().nth(PARTS_MAX).is_some() {
            return rows;
        }
        let mut missing = rows.clone();
        // What is there still is in the newest ones.
        for (_, part) in here {
            if missing.is_empty() || part.take_from(&mut missing).is_err() {
                return rows;
            }
        }
        for cell in &self.heads {
            let ids: Vec<u32> = missing.iter().collect();
            for some in ids.chunks(ROWS_AT_ONCE) {
                let head = cell.head.read();
                let here = some.iter().filter(|id| head.has(**id));
                missing -= here.collect::<RoaringBitmap>();
            }
        }
        rows - missing
    }
}
