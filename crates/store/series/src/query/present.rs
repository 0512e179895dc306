//! Finds the rows that may have samples in a range, by the sets of rows of the parts.

use roaring::RoaringBitmap;

use super::snapshot::Snapshot;
use crate::head::partition_range;
use crate::model::TimeRange;

/// Maximum number of parts whose rows are examined. In a range with more parts, any row may be
/// present.
const PARTS_MAX: usize = 64;
/// Maximum number of rows looked up in a head under one lock, while writers wait.
const ROWS_AT_ONCE: usize = 4096;

impl Snapshot {
    /// Returns those of `rows` that may have samples in a range. An unreadable part counts as
    /// having all rows: reading them reports the error.
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
        // Most rows still in use are in the newest parts, so these are examined first.
        for (_, part) in here {
            if missing.is_empty() || part.take_from(&mut missing).is_err() {
                return rows;
            }
        }
        for cell in &self.heads {
            let ids: Vec<u32> = missing.iter().collect();
            for some in ids.chunks(ROWS_AT_ONCE) {
                let head = cell.head.read();
                let here = some.iter().filter(|id| head.reaches(**id, range));
                missing -= here.collect::<RoaringBitmap>();
            }
        }
        rows - missing
    }
}
