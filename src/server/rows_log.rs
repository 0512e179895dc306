//! The journal of a folder without a server, as the log of its registry's rows.

use anyhow::Context as _;
use commit::JournalLog;
use control::{ControlError, ControlStore};
use folder::{DataFolder, is_there};
use journal::{Journal, Options};
use state::StateStore;

/// Opens the journal of a folder that the caller has claimed. Makes one if there is none.
pub(super) fn open(folder: &DataFolder) -> anyhow::Result<JournalLog> {
    let mut position_expected = 0;
    // A restored state goes on without its journal.
    if is_there(&folder.state_db())? && !folder.restored_marker().exists() {
        position_expected = StateStore::peek_applied(&folder.state_db())?.0;
    }
    let options = Options { position_expected, ..Options::default() };
    let (journal, _) = Journal::open(&folder.journal(), options).context("journal")?;
    Ok(JournalLog(journal))
}

/// Returns the error for a registry that lacks records which the journal no longer has.
pub(super) fn lost_records(folder: &DataFolder) -> anyhow::Result<Option<ControlError>> {
    let Some(applied) = ControlStore::position_of(&folder.registry_db())? else { return Ok(None) };
    Ok(open(folder)?.expect_all_after(applied).err())
}
