//! A session that was applied before: it writes nothing, but its answer still names the writes that
//! later ones have overtaken, in case its sender missed the first answer.

use model::{AgentId, Dataset, SessionRecord, SkipReason, Skipped, Write};
use rusqlite::{Connection, OptionalExtension, Row, params};

use sqlite::Packed;

/// The document's and the tombstone's version; either may be null.
const VERSIONS: &str = "SELECT
    (SELECT version FROM document WHERE collection = c.number AND id = ?3),
    (SELECT version FROM tombstone WHERE collection = c.number AND id = ?3)
    FROM collection c JOIN dataset d ON d.number = c.dataset WHERE c.agent = ?1 AND d.name = ?2";

/// Returns the writes that would be stale now. Reads only.
pub(super) fn overtaken(
    db: &Connection,
    session: &SessionRecord,
) -> rusqlite::Result<Vec<Skipped>> {
    let mut skipped = Vec::new();
    for (index, write) in session.writes.iter().enumerate() {
        let (id, version, newest) = match write {
            Write::Upsert { dataset, id, version, .. } => {
                let (document, tombstone) = versions(db, session.agent, dataset, id)?;
                (id, *version, document.max(tombstone))
            }
            Write::Delete { dataset, id, version } => {
                (id, *version, versions(db, session.agent, dataset, id)?.0)
            }
            Write::Clean { .. }
            | Write::Event { .. }
            | Write::Describe { .. }
            | Write::ClockOff { .. }
            | Write::RaiseVersion { .. } => continue,
        };
        if version != 0 && newest > version {
            let (index, id, reason) = (index as u32, id.clone(), SkipReason::Stale);
            skipped.push(Skipped { index, id, reason, version: newest });
        }
    }
    Ok(skipped)
}

/// Returns the versions of the document and of its tombstone; 0 for one that does not exist.
fn versions(
    db: &Connection,
    agent: AgentId,
    dataset: &Dataset,
    id: &str,
) -> rusqlite::Result<(u64, u64)> {
    let version = |r: &Row<'_>, column| {
        r.get::<_, Option<i64>>(column).map(|version| version.unwrap_or(0) as u64)
    };
    let found = db
        .prepare_cached(VERSIONS)?
        .query_row(params![agent.0, dataset.name(), Packed::new(id)], |r| {
            Ok((version(r, 0)?, version(r, 1)?))
        })
        .optional()?;
    Ok(found.unwrap_or_default())
}
