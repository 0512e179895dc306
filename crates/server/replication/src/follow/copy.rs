//! The folder that follows: its journal stores every record at the server's position, and its state
//! and registry apply them in larger steps so that the journal can be trimmed.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use commit::{CommitOptions, JournalLog};
use control::ControlStore;
use journal::{AppendError, Durability, Journal, Options};
use state::{StateOptions, StateStore};
use tracing::info;

use super::error::FollowError;
use super::folder::FollowerFolder;

/// Bytes of records after which they are applied to the state.
const APPLY_BYTES: u64 = 16 * 1024 * 1024;
/// Time after which records are applied to the state.
const APPLY_EVERY: Duration = Duration::from_secs(30);

/// An open folder that follows.
pub(super) struct Copy {
    journal: Journal,
    state: Arc<StateStore>,
    registry_db: PathBuf,
    last: LastRecord,
    unapplied_bytes: u64,
    applied_at: Instant,
}

/// The last record that is persisted in the folder.
#[derive(Debug, Clone, Copy)]
pub(super) struct LastRecord {
    pub(super) position: u64,
    /// CRC-32C of the record; `None` if the journal does not hold it.
    pub(super) crc: Option<u32>,
}

impl Copy {
    /// Opens the copy and applies the journal's records that the state lacks. Blocks.
    pub(super) fn open(folder: &FollowerFolder) -> Result<Self, FollowError> {
        let state = StateStore::open(&folder.state_db, StateOptions::default())?;
        let applied = state.applied()?.0;
        let dir = &folder.journal;
        let has_segments = |stat: journal::FolderStat| !stat.segments.is_empty();
        if !dir.exists()
            || !journal::stat(dir).map(has_segments).map_err(FollowError::JournalFolder)?
        {
            journal::begin_at(dir, applied + 1).map_err(FollowError::JournalFolder)?;
        }
        let options = Options { position_expected: applied, ..Options::default() };
        let (journal, _) = Journal::open(dir, options)
            .map_err(|cause| FollowError::Journal { dir: dir.clone(), cause })?;
        let position = journal.persisted_position();
        let last = LastRecord { position, crc: crc_at(&journal, position)? };
        Ok(Self {
            journal,
            state: Arc::new(state),
            registry_db: folder.registry_db.clone(),
            last,
            // A process that ended before it applied them leaves records.
            unapplied_bytes: u64::from(position > applied),
            applied_at: Instant::now(),
        })
    }

    /// Returns the name of the store that is followed.
    pub(super) fn store(&self) -> String {
        self.state.store_id()
    }

    pub(super) fn last(&self) -> LastRecord {
        self.last
    }

    /// Persists records, the first of which has position `first`. They may be acknowledged afterwards.
    pub(super) async fn append(
        &mut self,
        first: u64,
        records: Vec<Vec<u8>>,
    ) -> Result<u64, AppendError> {
        let crc = records.last().map(|r| crc32c::crc32c(r));
        self.unapplied_bytes += records.iter().map(|r| r.len() as u64).sum::<u64>();
        let outcome = self.journal.append_async(records, Durability::Persist).await?;
        if outcome.first != first {
            // Unreachable: the caller counts from `last`, and there is no other writer.
            let why = format!("record {first} became {}", outcome.first);
            return Err(AppendError::Poisoned(why));
        }
        self.last = LastRecord { position: outcome.position, crc };
        Ok(outcome.position)
    }

    /// Returns true if it is time to [`Copy::apply`].
    pub(super) fn is_due(&self) -> bool {
        self.unapplied_bytes >= APPLY_BYTES
            || (self.unapplied_bytes > 0 && self.applied_at.elapsed() >= APPLY_EVERY)
    }

    /// Applies the journal's records to state and registry, durably, and trims the journal.
    pub(super) async fn apply(&mut self) -> Result<(), FollowError> {
        let (journal, state) = (self.journal.clone(), self.state.clone());
        let registry_db = self.registry_db.clone();
        tokio::task::spawn_blocking(move || apply(&journal, &state, &registry_db)).await??;
        (self.unapplied_bytes, self.applied_at) = (0, Instant::now());
        Ok(())
    }

    /// Applies everything and closes the journal.
    pub(super) async fn close(mut self) -> Result<(), FollowError> {
        self.apply().await?;
        let journal = self.journal;
        tokio::task::spawn_blocking(move || journal.close()).await??;
        Ok(())
    }
}

fn apply(journal: &Journal, state: &StateStore, registry_db: &Path) -> Result<(), FollowError> {
    // The registry first: a record is trimmed once the state has it.
    let decisions = ControlStore::catch_up(registry_db, &JournalLog(journal.clone()))?;
    let report =
        commit::catch_up(journal, state, &CommitOptions::default()).map_err(FollowError::Apply)?;
    let position = state.checkpoint()?;
    // The record at the position itself stays: it links the journal to the state.
    journal.trim(position.0)?;
    if report.records > 0 {
        info!(records = report.records, decisions, to = report.to.0, "applied");
    }
    Ok(())
}

fn crc_at(journal: &Journal, position: u64) -> Result<Option<u32>, FollowError> {
    if journal.first_position() == 0 || position < journal.first_position() {
        return Ok(None);
    }
    match journal.read_from(position)?.next().transpose()? {
        Some((_, record)) => Ok(Some(crc32c::crc32c(&record))),
        None => Err(FollowError::LastRecord(position)),
    }
}

/// Turns a followed folder into a server's, with a new store name, so that every agent's documents
/// are compared with what it reported. Blocks.
pub(super) fn promote(folder: &FollowerFolder) -> Result<u64, FollowError> {
    let copy = Copy::open(folder)?;
    apply(&copy.journal, &copy.state, &copy.registry_db)?;
    let position = copy.last.position;
    copy.journal.close()?;
    drop(copy.state);
    StateStore::prepare_promoted(&folder.state_db)?;
    Ok(position)
}
