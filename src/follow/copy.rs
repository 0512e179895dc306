//! The folder that follows: its journal, which takes every record at the server's position, and
//! its state, which applies them in larger steps so that the journal can be trimmed.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use commit::CommitOptions;
use journal::{AppendError, Durability, Journal, Options};
use state::{SqliteState, StateOptions, StateStore};
use tracing::info;

use crate::folder::DataFolder;

/// Bytes of records after which they are applied.
const APPLY_BYTES: u64 = 16 * 1024 * 1024;
/// Time after which records are applied.
const APPLY_EVERY: Duration = Duration::from_secs(30);

/// An open folder that follows.
pub(crate) struct Copy {
    journal: Journal,
    state: Arc<SqliteState>,
    /// Position and CRC-32C of the last record; without a CRC when the journal holds none.
    last: (u64, Option<u32>),
    unapplied_bytes: u64,
    applied_at: Instant,
}

impl Copy {
    /// Open, and bring the state up to the journal. Blocks.
    pub(crate) fn open(folder: &DataFolder) -> anyhow::Result<Self> {
        let state = SqliteState::open(&folder.state_db(), StateOptions::default())?;
        let applied = state.applied()?.0;
        let dir = folder.journal();
        if !has_segments(&dir)? {
            journal::begin_at(&dir, applied + 1)?;
        }
        let options = Options { position_expected: applied, ..Options::default() };
        let (journal, _) = Journal::open(&dir, options).with_context(|| {
            format!("journal; `holdfast journal verify {}` says what is wrong", dir.display())
        })?;
        let position = journal.persisted_position();
        let last = (position, checksum_at(&journal, position)?);
        let copy = Self {
            journal,
            state: Arc::new(state),
            last,
            unapplied_bytes: 0,
            applied_at: Instant::now(),
        };
        Ok(copy)
    }

    /// The store that is followed.
    pub(crate) fn store(&self) -> String {
        self.state.store_id()
    }

    /// Position and CRC-32C of the last record persisted here.
    pub(crate) fn last(&self) -> (u64, Option<u32>) {
        self.last
    }

    /// Persist records whose first has position `first`. They are acknowledged after this.
    pub(crate) async fn append(
        &mut self,
        first: u64,
        records: Vec<Vec<u8>>,
    ) -> Result<u64, AppendError> {
        let crc = records.last().map(|r| crc32c::crc32c(r));
        self.unapplied_bytes += records.iter().map(|r| r.len() as u64).sum::<u64>();
        let outcome = self.journal.append_async(records, Durability::Persist).await?;
        if outcome.first != first {
            // Cannot be: the caller counts from `last`, and nobody else appends.
            let why = format!("record {first} became {}", outcome.first);
            return Err(AppendError::Poisoned(why));
        }
        self.last = (outcome.position, crc);
        Ok(outcome.position)
    }

    /// Whether it is time to [`Copy::apply`].
    pub(crate) fn is_due(&self) -> bool {
        self.unapplied_bytes >= APPLY_BYTES
            || (self.unapplied_bytes > 0 && self.applied_at.elapsed() >= APPLY_EVERY)
    }

    /// Apply what the journal holds, checkpoint the state and trim the journal.
    pub(crate) async fn apply(&mut self) -> anyhow::Result<()> {
        let (journal, state) = (self.journal.clone(), self.state.clone());
        tokio::task::spawn_blocking(move || apply(&journal, &*state)).await??;
        (self.unapplied_bytes, self.applied_at) = (0, Instant::now());
        Ok(())
    }

    /// Apply everything and close in good order.
    pub(crate) async fn close(mut self) -> anyhow::Result<()> {
        self.apply().await?;
        let journal = self.journal;
        tokio::task::spawn_blocking(move || journal.close()).await??;
        Ok(())
    }
}

fn apply(journal: &Journal, state: &dyn StateStore) -> anyhow::Result<()> {
    let report = commit::catch_up(journal, state, &CommitOptions::default()).context("commit")?;
    let position = state.checkpoint()?;
    // The record at the position itself stays: it shows where journal and state meet.
    journal.trim(position.0)?;
    if report.records > 0 {
        info!(records = report.records, to = report.to.0, "applied");
    }
    Ok(())
}

fn checksum_at(journal: &Journal, position: u64) -> anyhow::Result<Option<u32>> {
    if journal.first_position() == 0 || position < journal.first_position() {
        return Ok(None);
    }
    match journal.read_from(position)?.next().transpose()? {
        Some((_, record)) => Ok(Some(crc32c::crc32c(&record))),
        None => bail!("the journal's last record {position} cannot be read: verify the journal"),
    }
}

fn has_segments(dir: &Path) -> anyhow::Result<bool> {
    Ok(dir.exists() && !journal::stat(dir)?.segments.is_empty())
}

/// Make a followed folder a server's, which starts with a new store name: every agent is compared
/// with what it told. Blocks.
pub(crate) fn promote(folder: &DataFolder) -> anyhow::Result<u64> {
    let copy = Copy::open(folder)?;
    apply(&copy.journal, &*copy.state)?;
    let position = copy.last.0;
    copy.journal.close()?;
    drop(copy.state);
    SqliteState::prepare_promoted(&folder.state_db())?;
    Ok(position)
}
