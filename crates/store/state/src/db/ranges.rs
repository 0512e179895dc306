//! Documents by ranges of their ids, for the comparison with an agent's own
//! (`docs/format/session.md`, "Repair by difference").

use model::{AgentId, Dataset};
use rusqlite::types::Value as SqlValue;
use rusqlite::{CachedStatement, Connection, params_from_iter};

use super::StateStore;
use super::documents::collection;
use crate::error::{Context, StateError};
use sqlite::Reader;
use sqlite::Unpacked;

impl StateStore {
    /// Visits id, version and checksum of every document whose id is lower-case hex of 16 to 64
    /// bytes and whose first eight bytes, big-endian, lie in one of the ranges (first and last,
    /// both inclusive). Documents with other ids are visited once, before the others, whatever the
    /// ranges. The ranges are visited in the given order and must not overlap; within a range there
    /// is no order. Stops when `visit` returns `false`. One snapshot and one time limit cover the
    /// call; it costs what it visits.
    ///
    /// # Errors
    /// Returns an error if the store cannot be read.
    pub fn each_in_ranges(
        &self,
        reader: &Reader,
        agent: AgentId,
        dataset: &Dataset,
        ranges: &[(u64, u64)],
        visit: &mut dyn FnMut(&str, u64, &str) -> bool,
    ) -> Result<(), StateError> {
        self.read(reader, "read documents of ranges", |db| {
            each_in_ranges(db, agent, dataset, ranges, visit)
        })
    }
}

const WHAT: &str = "read documents of ranges";
const READ: &str = "SELECT id, version, checksum FROM document WHERE collection = ?1";
/// Reads in order of the row number, not of the id: rows of one session are adjacent, those of
/// neighbouring ids are not. This halves the time for 100,000 documents.
const READ_ALL: &str = "SELECT id, version, checksum FROM document
    WHERE number IN (SELECT number FROM document WHERE collection = ?1)";

/// Visits the documents whose ids are stored as text, once, and then those of each range of ids.
fn each_in_ranges(
    db: &Connection,
    agent: AgentId,
    dataset: &Dataset,
    ranges: &[(u64, u64)],
    visit: &mut dyn FnMut(&str, u64, &str) -> bool,
) -> Result<(), StateError> {
    let Some((number, _)) = collection(db, agent, dataset)? else { return Ok(()) };
    let number = SqlValue::Integer(number);
    if ranges == [(0, u64::MAX)] {
        let mut all = db.prepare_cached(READ_ALL).context(WHAT)?;
        return run(&mut all, vec![number], visit).map(|_| ());
    }
    // Packed ids are blobs, which sort after every text.
    let mut texts = db.prepare_cached(&format!("{READ} AND id < x''")).context(WHAT)?;
    if !run(&mut texts, vec![number.clone()], visit)? {
        return Ok(());
    }
    let mut above = db.prepare_cached(&format!("{READ} AND id >= ?2")).context(WHAT)?;
    let mut within =
        db.prepare_cached(&format!("{READ} AND id >= ?2 AND id < ?3")).context(WHAT)?;
    let blob = |key: u64| SqlValue::Blob(key.to_be_bytes().to_vec());
    for (first, last) in ranges {
        let on = match last.checked_add(1) {
            Some(end) => run(&mut within, vec![number.clone(), blob(*first), blob(end)], visit)?,
            None => run(&mut above, vec![number.clone(), blob(*first)], visit)?,
        };
        if !on {
            break;
        }
    }
    Ok(())
}

/// Returns true if reading continues.
fn run(
    select: &mut CachedStatement<'_>,
    values: Vec<SqlValue>,
    visit: &mut dyn FnMut(&str, u64, &str) -> bool,
) -> Result<bool, StateError> {
    let mut rows = select.query(params_from_iter(values)).context(WHAT)?;
    while let Some(row) = rows.next().context(WHAT)? {
        let id: Unpacked = row.get(0).context(WHAT)?;
        let version: i64 = row.get(1).context(WHAT)?;
        let checksum: Unpacked = row.get(2).context(WHAT)?;
        if !visit(&id.0, version as u64, &checksum.0) {
            return Ok(false);
        }
    }
    Ok(true)
}
