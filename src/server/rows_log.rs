//! The journal of a folder without a server, as the log of its registry's rows.

use anyhow::Context as _;
use commit::JournalLog;
use control::{ControlError, ControlStore};
use folder::{DataFolder, is_there};
use journal::{Journal, Options};
use state::StateStore;

/// Opens the journal of a folder that the caller has claimed; makes one if there is none. `None` in a
/// restored folder, which may yet follow the server of its backup: nothing is added to its journal before
/// the first start, but the registry has what is there.
pub(super) fn open(folder: &DataFolder) -> anyhow::Result<Option<JournalLog>> {
    if folder.restored_marker().exists() {
        folder::apply_tail(folder)?;
        return Ok(None);
    }
    let mut position_expected = 0;
    if is_there(&folder.state_db())? {
        position_expected = StateStore::peek_applied(&folder.state_db())?.0;
    }
    let options = Options { position_expected, ..Options::default() };
    let (journal, _) = Journal::open(&folder.journal(), options).context("journal")?;
    Ok(Some(JournalLog(journal)))
}

/// Returns the error for a registry that lacks records which the journal no longer has.
pub(super) fn lost_records(folder: &DataFolder) -> anyhow::Result<Option<ControlError>> {
    let applied = ControlStore::position_of(&folder.registry_db())?;
    let (Some(applied), Some(log)) = (applied, open(folder)?) else { return Ok(None) };
    Ok(log.expect_all_after(applied).err())
}
