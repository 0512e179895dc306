//! The journal as the log of the registry's rows: in a server, and in a folder without one.

use std::sync::Arc;

use anyhow::Context as _;
use commit::{Commit, JournalLog};
use control::log::RowLog;
use control::{ControlError, ControlStore};
use folder::{DataFolder, is_there};
use journal::{Journal, Options};
use state::StateStore;
use tracing::warn;

use super::{database, folder_registry};
use crate::config::ServerConfig;

/// Opens the registry's database; see [`ControlStore::open_without_log`].
pub(super) fn open_control(
    config: &ServerConfig,
    folder: &DataFolder,
    log: Option<Arc<dyn RowLog>>,
) -> anyhow::Result<Arc<ControlStore>> {
    folder.expect_registry()?;
    let file = folder.registry_db();
    let opened = match log {
        Some(log) => ControlStore::open_logged(&file, config.db.readers, log),
        None => ControlStore::open_without_log(&file),
    };
    let store = opened.and_then(|store| store.warm().map(|()| store));
    Ok(Arc::new(store.map_err(|e| match e {
        older @ (ControlError::Behind { .. }
        | ControlError::BeforeJournal { .. }
        | ControlError::Record { .. }) => folder_registry::older(folder, &older),
        other => database(&file, other.into()),
    })?))
}

/// Keeps the journal above what the registry has durably.
pub(super) fn keep_for_registry(commit: &Commit, store: &Arc<ControlStore>) {
    let store = Arc::downgrade(store);
    commit.keep_above(move || {
        let Some(store) = store.upgrade() else { return 0 };
        store.floor().unwrap_or_else(|error| {
            warn!("the journal is kept for the registry: {error}");
            store.last_floor()
        })
    });
}

/// Returns the position up to which the journal must reach: that of the database that has more.
pub(super) fn position_expected(
    folder: &DataFolder,
    state: &StateStore,
    restored: bool,
) -> anyhow::Result<u64> {
    let applied = state.applied().context("state")?.0;
    // A restored registry may be of a later moment than the state, or of a journal that is gone.
    Ok(if restored { applied } else { applied.max(registry_position(folder)?) })
}

fn registry_position(folder: &DataFolder) -> anyhow::Result<u64> {
    let file = folder.registry_db();
    let position = ControlStore::position_of(&file).map_err(|e| database(&file, e.into()))?;
    Ok(position.unwrap_or_default())
}

/// Opens the journal of a folder that the caller has claimed; makes one if there is none. `None` in a
/// restored folder, which may yet follow the server of its backup: nothing is added to its journal before
/// the first start, but the registry has what is there.
pub(super) fn open(folder: &DataFolder) -> anyhow::Result<Option<JournalLog>> {
    if folder.restored_marker().exists() {
        folder::apply_tail(folder)?;
        return Ok(None);
    }
    let applied = state_position(folder)?.max(registry_position(folder)?);
    open_journal(folder, applied).map(Some)
}

fn state_position(folder: &DataFolder) -> anyhow::Result<u64> {
    let file = folder.state_db();
    Ok(if is_there(&file)? { StateStore::peek_applied(&file)?.0 } else { 0 })
}

fn open_journal(folder: &DataFolder, position_expected: u64) -> anyhow::Result<JournalLog> {
    let options = Options { position_expected, ..Options::default() };
    let (journal, _) = Journal::open(&folder.journal(), options).context("journal")?;
    Ok(JournalLog(journal))
}

/// Applies the records that a registry lacks, as far as that is possible. Returns the reason why it
/// cannot have all: it is older than the journal, newer, or they do not fit.
pub(super) fn unusable_records(folder: &DataFolder) -> anyhow::Result<Option<ControlError>> {
    if folder.restored_marker().exists() {
        return Ok(None);
    }
    // A promoted follower's registry may have more than its journal.
    let log = open_journal(folder, state_position(folder)?)?;
    let end = log.end();
    match ControlStore::catch_up(&folder.registry_db(), &log) {
        Err(
            error @ (ControlError::Behind { .. }
            | ControlError::BeforeJournal { .. }
            | ControlError::Record { .. }
            | ControlError::Journal(_)),
        ) => return Ok(Some(error)),
        done => drop(done?),
    }
    let applied = registry_position(folder)?;
    Ok((applied > end).then_some(ControlError::Ahead { applied, end }))
}
