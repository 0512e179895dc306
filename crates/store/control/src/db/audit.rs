//! The audit log: rows of their own, and those that a [`WriteContext`] appends with its change.

use rusqlite::{Connection, params};

use super::ControlStore;
use super::decisions::Kind;
use super::rows::{self, cut, signed, unsigned};
use crate::limits::{AUDIT_IDLE_ROWS_MAX, AUDIT_ROWS_MAX, DETAIL_BYTES_MAX};
use crate::{AuditEntry, AuditOutcome, ControlResult, PendingAudit, WriteContext};
use sqlite::Reader;

/// Number of new audit rows between two deletions of old ones, because finding the oldest row to
/// keep reads an index.
const AUDIT_TRIM_ROWS: u64 = 10_000;

impl ControlStore {
    /// Appends to the audit log. The oldest rows beyond [`AUDIT_ROWS_MAX`] are deleted, and
    /// those of actions that changed nothing beyond [`AUDIT_IDLE_ROWS_MAX`].
    pub fn audit(&self, entry: &AuditEntry) -> ControlResult<()> {
        self.write(&WriteContext::server(), |tx| append(tx, entry).map(drop))
    }

    /// Returns rows of the audit log, newest first, with numbers below `before` if given.
    pub fn audit_log(
        &self,
        reader: &Reader,
        before: Option<u64>,
        limit: u64,
    ) -> ControlResult<Vec<AuditEntry>> {
        self.read(reader, |tx| page(tx, before, limit))
    }

    /// Appends the context's row with the outcome `begun`, durably, unless a change has already
    /// written it. Call this before something outside the store is changed.
    pub fn write_audit(&self, context: &WriteContext) -> ControlResult<()> {
        // Every durable write appends the waiting row.
        match context.pending() {
            PendingAudit::Waiting(_) => self.append_audit(context),
            PendingAudit::None | PendingAudit::Written { .. } => Ok(()),
        }
    }

    /// Sets the outcome of the context's row, and appends the row if no change has written it.
    /// Survives a killed process; a power cut right after it may leave the row as begun.
    pub fn end_audit(&self, context: &WriteContext, outcome: AuditOutcome) -> ControlResult<()> {
        let pending = context.pending();
        context.set_pending(PendingAudit::None);
        match pending {
            PendingAudit::None => Ok(()),
            PendingAudit::Waiting(entry) => {
                let entry = AuditEntry { outcome, ..entry };
                self.write_soft(context.reader(), |tx| append(tx, &entry).map(drop))
            }
            PendingAudit::Written { id, .. } => {
                self.write_soft(context.reader(), |tx| finish(tx, id, outcome))
            }
        }
    }

    /// Drops the row of a context if nothing was changed under the context: an unwritten row is not
    /// written, and a written one is deleted. Otherwise sets the outcome.
    pub fn leave_out_audit(
        &self,
        context: &WriteContext,
        outcome: AuditOutcome,
    ) -> ControlResult<()> {
        match context.pending() {
            PendingAudit::Written { id, changed } => {
                if changed && outcome != AuditOutcome::Unchanged {
                    return self.end_audit(context, outcome);
                }
                context.set_pending(PendingAudit::None);
                self.write_soft(context.reader(), |tx| delete(tx, id))
            }
            PendingAudit::None | PendingAudit::Waiting(_) => {
                context.set_pending(PendingAudit::None);
                Ok(())
            }
        }
    }

    /// Runs one durable transaction, and writes the context's row of the audit log in it.
    pub(super) fn write<T>(
        &self,
        context: &WriteContext,
        work: impl FnOnce(&Connection) -> ControlResult<T>,
    ) -> ControlResult<T> {
        self.audited(context, true, work)
    }

    /// Writes the context's row of the audit log before any change, durably.
    fn append_audit(&self, context: &WriteContext) -> ControlResult<()> {
        self.audited(context, false, |_| Ok(()))
    }

    fn audited<T>(
        &self,
        context: &WriteContext,
        changes: bool,
        work: impl FnOnce(&Connection) -> ControlResult<T>,
    ) -> ControlResult<T> {
        let before = context.pending();
        let done = self.decide(context.reader(), Kind::Durable, |tx| {
            let out = work(tx)?;
            let written = match context.pending() {
                PendingAudit::None => None,
                PendingAudit::Waiting(entry) => Some((append(tx, &entry)?, changes)),
                PendingAudit::Written { id, changed } => Some((id, changed || changes)),
            };
            // Set while the writer is still locked, so that another thread that writes under this
            // context does not write a second row.
            if let Some((id, changed)) = written {
                context.set_pending(PendingAudit::Written { id, changed });
            }
            Ok(out)
        });
        if done.is_err() {
            context.set_pending(before);
        }
        done
    }
}

pub(super) fn append(tx: &Connection, entry: &AuditEntry) -> ControlResult<u64> {
    tx.prepare_cached(
        "INSERT INTO audit (at_us, user, action, detail, outcome) VALUES (?1, ?2, ?3, ?4, ?5)",
    )?
    .execute(params![
        entry.at_us.cast_signed(),
        cut(&entry.user, DETAIL_BYTES_MAX),
        cut(&entry.action, DETAIL_BYTES_MAX),
        cut(&entry.detail, DETAIL_BYTES_MAX),
        entry.outcome.name()
    ])?;
    let id = tx.last_insert_rowid().cast_unsigned();
    if id.is_multiple_of(AUDIT_TRIM_ROWS) && id > AUDIT_IDLE_ROWS_MAX {
        trim(tx, AUDIT_ROWS_MAX, AUDIT_IDLE_ROWS_MAX)?;
    }
    Ok(id)
}

/// Deletes old rows. Rows of actions that changed nothing have a limit of their own.
fn trim(tx: &Connection, kept_max: u64, idle_max: u64) -> ControlResult<()> {
    rows::run(
        tx,
        "DELETE FROM audit INDEXED BY audit_idle WHERE outcome IN ('refused', 'unchanged') AND id <=
         (SELECT id FROM audit INDEXED BY audit_idle WHERE outcome IN ('refused', 'unchanged')
          ORDER BY id DESC LIMIT 1 OFFSET ?1)",
        [signed(idle_max)],
    )?;
    rows::run(
        tx,
        "DELETE FROM audit INDEXED BY audit_kept WHERE outcome NOT IN ('refused', 'unchanged')
         AND id <= (SELECT id FROM audit INDEXED BY audit_kept
          WHERE outcome NOT IN ('refused', 'unchanged') ORDER BY id DESC LIMIT 1 OFFSET ?1)",
        [signed(kept_max)],
    )?;
    Ok(())
}

fn finish(tx: &Connection, id: u64, outcome: AuditOutcome) -> ControlResult<()> {
    tx.prepare_cached("UPDATE audit SET outcome = ?2 WHERE id = ?1")?
        .execute(params![signed(id), outcome.name()])?;
    Ok(())
}

fn delete(tx: &Connection, id: u64) -> ControlResult<()> {
    Ok(rows::run(tx, "DELETE FROM audit WHERE id = ?1", [signed(id)]).map(drop)?)
}

pub(super) fn page(
    tx: &Connection,
    before: Option<u64>,
    limit: u64,
) -> ControlResult<Vec<AuditEntry>> {
    let mut statement = tx.prepare_cached(
        "SELECT id, at_us, user, action, detail, outcome FROM audit WHERE id < ?1
         ORDER BY id DESC LIMIT ?2",
    )?;
    let before = before.map_or(i64::MAX, signed);
    let rows = statement
        .query_map(params![before, signed(limit)], |row| {
            Ok(AuditEntry {
                id: unsigned(row, 0)?,
                at_us: unsigned(row, 1)?,
                user: row.get(2)?,
                action: row.get(3)?,
                detail: row.get(4)?,
                outcome: AuditOutcome::from_name(&row.get::<_, String>(5)?),
            })
        })?
        .collect::<Result<_, _>>()?;
    Ok(rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refused_and_unchanged_entries_evict_no_done_audit_entries() {
        let folder = tempfile::TempDir::new().unwrap();
        let store = ControlStore::open(&folder.path().join("registry.db")).unwrap();
        let row = |outcome, n: u64| AuditEntry {
            id: 0,
            at_us: n,
            user: "somebody".into(),
            action: "agent:delete".into(),
            detail: String::new(),
            outcome,
        };
        let left = store.write(&WriteContext::server(), |tx| {
            for n in 0..20 {
                append(tx, &row(AuditOutcome::Done, n))?;
                let refused = vec![row(AuditOutcome::Refused, n); 5];
                let unchanged = vec![row(AuditOutcome::Unchanged, n); 5];
                refused.iter().chain(&unchanged).try_for_each(|row| append(tx, row).map(drop))?;
            }
            trim(tx, 15, 7)?;
            page(tx, None, 1_000)
        });
        let left = left.unwrap();
        let of = |outcome| -> Vec<u64> {
            left.iter().filter(|row| row.outcome == outcome).map(|row| row.at_us).collect()
        };
        assert_eq!(of(AuditOutcome::Done), (5..20).rev().collect::<Vec<_>>());
        assert_eq!(
            (of(AuditOutcome::Unchanged), of(AuditOutcome::Refused)),
            (vec![19; 5], vec![19; 2])
        );
    }
}
