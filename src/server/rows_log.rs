//! The journal as the log of the registry's rows: of a running server, and of a folder without one.

use std::path::Path;
use std::sync::Arc;

use anyhow::Context as _;
use commit::{Commit, CommitError};
use control::log::{RowLog, RowLogError};
use control::{ControlError, ControlResult, ControlStore};
use folder::{DataFolder, is_there};
use journal::{AppendError, Durability, Journal, Options};
use model::Record;
use state::StateStore;

/// The journal of a running server.
pub(super) struct ServerLog {
    pub(super) commit: Arc<Commit>,
    pub(super) journal: Journal,
}

impl RowLog for ServerLog {
    fn append(&self, rows: Vec<u8>) -> Result<u64, RowLogError> {
        match self.commit.append_rows(rows) {
            Ok(position) => Ok(position.0),
            Err(
                error @ (CommitError::Full(_) | CommitError::TooLarge { .. } | CommitError::Closed),
            ) => Err(RowLogError::Refused(error.to_string())),
            Err(error) => Err(RowLogError::Unknown(error.to_string())),
        }
    }

    fn end(&self) -> u64 {
        self.journal.persisted_position()
    }

    fn read(&self, after: u64, apply: Apply<'_>) -> ControlResult<()> {
        read(&self.journal, after, apply)
    }
}

/// What [`RowLog::read`] passes rows on to.
type Apply<'a> = &'a mut dyn FnMut(u64, &[u8]) -> ControlResult<()>;

/// The journal of a folder that no server uses.
pub(super) struct FolderLog(Journal);

impl FolderLog {
    /// Opens the journal of a folder that the caller has claimed. Makes one if there is none.
    pub(super) fn open(folder: &DataFolder) -> anyhow::Result<Self> {
        let mut position_expected = 0;
        // A restored state goes on without its journal.
        if is_there(&folder.state_db())? && !folder.restored_marker().exists() {
            position_expected = StateStore::peek_applied(&folder.state_db())?.0;
        }
        let options = Options { position_expected, ..Options::default() };
        let (journal, _) = Journal::open(&folder.journal(), options).context("journal")?;
        Ok(Self(journal))
    }
}

impl FolderLog {
    /// Returns the error for a registry that lacks records which the journal no longer has.
    pub(super) fn lost_after(&self, registry: &Path) -> ControlResult<Option<ControlError>> {
        let Some(applied) = ControlStore::position_of(registry)? else { return Ok(None) };
        Ok(expect_all_after(&self.0, applied).err())
    }
}

impl RowLog for FolderLog {
    fn append(&self, rows: Vec<u8>) -> Result<u64, RowLogError> {
        let record = Record::RegistryRows(rows).encode();
        match self.0.append(&record, Durability::Persist) {
            Ok(outcome) => Ok(outcome.position),
            Err(AppendError::Poisoned(why)) => Err(RowLogError::Unknown(why)),
            Err(error) => Err(RowLogError::Refused(error.to_string())),
        }
    }

    fn end(&self) -> u64 {
        self.0.persisted_position()
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
    // An empty journal begins after its end.
    let end = journal.persisted_position();
    let first = if journal.first_position() == 0 { end + 1 } else { journal.first_position() };
    if position < end && first > position + 1 {
        return Err(ControlError::Behind { applied: position, first });
    }
    Ok(())
}
