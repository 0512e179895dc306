//! Rows of the registry as records of the journal. The registry appends them before it commits; the
//! state passes them by.

use control::log::{RowLog, RowLogError};
use control::{ControlError, ControlResult};
use journal::{AppendError, Durability, Journal};
use model::{Position, Record};

use crate::applier::{Message, Submitted};
use crate::disk::{DiskState, disk_state};
use crate::options::RECORD_BYTES_MAX;
use crate::replay::check_version;
use crate::shared::{Floor, Shared};
use crate::{Commit, CommitError};

/// Share of the space below which sessions are refused that is kept from rows, too: with the rest, a
/// revocation works while sessions are refused.
const RESERVE_SHARE: u64 = 4;

impl Commit {
    /// Appends the rows that decisions changed, as the registry encodes them. Returns their position when
    /// they are persisted; the caller then commits them. Blocks; does not wait for the state.
    ///
    /// # Errors
    /// `Full`, `TooLarge` and `Closed`: nothing was stored. Otherwise it is not known whether the record
    /// is in the journal.
    pub fn append_rows(&self, rows: Vec<u8>) -> Result<Position, CommitError> {
        if let Some(error) = self.shared.progress.borrow().failed.clone() {
            return Err(CommitError::Full(error.to_string()));
        }
        expect_space(&self.shared)?;
        let encoded = Record::RegistryRows(rows).encode();
        let (bytes, limit) = (encoded.len() as u64, self.shared.options.record_bytes_max);
        if bytes > limit {
            return Err(CommitError::TooLarge { bytes, limit });
        }
        let outcome =
            self.shared.journal.append(&encoded, Durability::Persist).map_err(|error| {
                let error = CommitError::from(error);
                if matches!(error, CommitError::Poisoned(_)) {
                    self.shared.fail(&error);
                }
                error
            })?;
        let position = Position(outcome.position);
        // The state has nothing to do for it.
        let record = Record::RegistryRows(Vec::new());
        let submitted = Submitted { position, record, caller: None };
        // If the applier has stopped, the next start passes the record by.
        let _ = self.sender.send(Message::Record(Box::new(submitted)));
        Ok(position)
    }

    /// Sets what makes another store durable, and returns the position up to which it has every record:
    /// the journal is kept above it. It returns 0 if nothing may be trimmed now.
    pub fn keep_above(&self, floor: impl Fn() -> u64 + Send + Sync + 'static) {
        *self.shared.floor.lock() = Floor::Above(Box::new(floor));
    }
}

/// The function that [`RowLog::read`] passes rows on to.
type Apply<'a> = &'a mut dyn FnMut(u64, &[u8]) -> ControlResult<()>;

impl RowLog for Commit {
    fn append(&self, rows: Vec<u8>) -> Result<u64, RowLogError> {
        match self.append_rows(rows) {
            Ok(position) => Ok(position.0),
            Err(CommitError::TooLarge { limit, .. }) => {
                Err(RowLogError::TooLarge { bytes_max: limit })
            }
            Err(error @ (CommitError::Full(_) | CommitError::Closed)) => {
                Err(RowLogError::Refused(error.to_string()))
            }
            Err(error) => Err(RowLogError::Unknown(error.to_string())),
        }
    }

    fn end(&self) -> u64 {
        self.shared.journal.persisted_position()
    }

    fn start(&self) -> u64 {
        first_position(&self.shared.journal) - 1
    }

    fn read(&self, after: u64, apply: Apply<'_>) -> ControlResult<()> {
        read(&self.shared.journal, after, apply)
    }
}

/// The journal of a folder that no server uses, as the log of its registry.
pub struct JournalLog(pub Journal);

impl JournalLog {
    /// Returns an error unless the journal has all records after a position.
    ///
    /// # Errors
    /// `Behind`.
    pub fn expect_all_after(&self, position: u64) -> ControlResult<()> {
        expect_all_after(&self.0, position)
    }
}

impl RowLog for JournalLog {
    fn append(&self, rows: Vec<u8>) -> Result<u64, RowLogError> {
        let record = Record::RegistryRows(rows).encode();
        if record.len() as u64 > RECORD_BYTES_MAX {
            return Err(RowLogError::TooLarge { bytes_max: RECORD_BYTES_MAX });
        }
        match self.0.append(&record, Durability::Persist) {
            Ok(outcome) => Ok(outcome.position),
            Err(AppendError::Poisoned(why)) => Err(RowLogError::Unknown(why)),
            Err(error) => Err(RowLogError::Refused(error.to_string())),
        }
    }

    fn end(&self) -> u64 {
        self.0.persisted_position()
    }

    fn start(&self) -> u64 {
        first_position(&self.0) - 1
    }

    fn read(&self, after: u64, apply: Apply<'_>) -> ControlResult<()> {
        read(&self.0, after, apply)
    }
}

/// Passes on the rows of a journal's records after a position.
fn read(journal: &Journal, after: u64, apply: Apply<'_>) -> ControlResult<()> {
    expect_all_after(journal, after)?;
    if after >= journal.persisted_position() {
        return Ok(());
    }
    let failed = |why: &dyn std::fmt::Display| ControlError::Journal(why.to_string());
    for record in journal.read_from(after + 1).map_err(|e| failed(&e))? {
        let (position, bytes) = record.map_err(|e| failed(&e))?;
        if bytes.iter().all(|byte| *byte == 0) {
            // It may have been a session, too: the state has an event for it.
            tracing::warn!(position, "a record that the journal lost may have been a decision");
            continue;
        }
        check_version(Position(position), &bytes).map_err(|e| failed(&e))?;
        let rows = Record::registry_rows(&bytes)
            .map_err(|why| failed(&format_args!("record {position}: {why}")))?;
        if let Some(rows) = rows {
            apply(position, &rows)?;
        }
    }
    Ok(())
}

/// Returns an error if the journal does not have all records after a position.
fn expect_all_after(journal: &Journal, position: u64) -> ControlResult<()> {
    let (first, end) = (first_position(journal), journal.persisted_position());
    if position < end && first > position + 1 {
        return Err(ControlError::Behind { applied: position, first });
    }
    Ok(())
}

/// Returns an error if the disk is so full that the commit of rows might fail after they are logged.
fn expect_space(shared: &Shared) -> Result<(), CommitError> {
    // Known from the last check, a second ago at most.
    let Some(disk) = shared.disk_full.lock().clone() else { return Ok(()) };
    for folder in &shared.options.folders {
        let free = disk_state(folder, &shared.options.disk).map(DiskState::free_bytes);
        if free.is_ok_and(|free| free < shared.options.disk.critical_bytes / RESERVE_SHARE) {
            return Err(CommitError::Full(format!(
                "the server's disk is full: free space there: {disk}"
            )));
        }
    }
    Ok(())
}

/// Returns the position of the first record; an empty journal begins after its end.
fn first_position(journal: &Journal) -> u64 {
    match journal.first_position() {
        0 => journal.persisted_position() + 1,
        first => first,
    }
}
