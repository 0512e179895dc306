//! Rows of the registry as records of the journal. The registry appends them before it commits; the
//! state passes them by.

use journal::Durability;
use model::{Position, Record};

use crate::applier::{Message, Submitted};
use crate::disk::disk_state;
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

    /// Returns the position of the last record that is persisted.
    pub fn persisted(&self) -> Position {
        Position(self.shared.journal.persisted_position())
    }
}

/// Returns an error if the disk is so full that the commit of rows might fail after they are logged.
fn expect_space(shared: &Shared) -> Result<(), CommitError> {
    // Known from the last check, a second ago at most.
    let Some(disk) = shared.disk_full.lock().clone() else { return Ok(()) };
    for folder in &shared.options.folders {
        let free = disk_state(folder, &shared.options.disk).map(|state| state.free_bytes());
        if free.is_ok_and(|free| free < shared.options.disk.critical_bytes / RESERVE_SHARE) {
            return Err(CommitError::Full(format!(
                "the server's disk is full: free space there: {disk}"
            )));
        }
    }
    Ok(())
}
