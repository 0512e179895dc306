//! The handle.

use std::future::Future;
use std::path::Path;
use std::pin::Pin;
use std::task::{Context, Poll};

use crate::batch::Batch;
use crate::error::{NameError, OpenError, WriteError};
use crate::model::{
    MergeOutcome, OpenReport, Outcome, Row, SealOutcome, Selector, Series, StoreStats, TimeRange,
};
use crate::name::RowName;
use crate::options::{Ack, StoreOptions};
use crate::query::Snapshot;

/// A store of series. Cheap to clone; all clones are the same store. It is closed by
/// [`Store::close`], or when the last clone is dropped.
#[derive(Clone)]
pub struct Store {}

/// A batch on its way. Dropping it does not call the batch back.
pub struct Ticket {}

impl Ticket {
    /// Wait until the batch is as durable as asked for, and in the head.
    ///
    /// # Errors
    /// See [`WriteError`].
    pub fn wait(self) -> Result<Outcome, WriteError> {
        Err(WriteError::Closed)
    }
}

impl Future for Ticket {
    type Output = Result<Outcome, WriteError>;

    fn poll(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<Self::Output> {
        Poll::Ready(Err(WriteError::Closed))
    }
}

impl Store {
    /// Open the store in `dir`, creating it if there is none, and replay what is not sealed.
    ///
    /// # Errors
    /// See [`OpenError`].
    pub fn open(_dir: &Path, _options: StoreOptions) -> Result<(Self, OpenReport), OpenError> {
        Ok((Self {}, OpenReport::default()))
    }

    /// The row series of a raw name (`metric|metric tag=value ...`), created if it is new. A raw
    /// text seen before costs one look into a table.
    ///
    /// # Errors
    /// When the text is no name, or the store holds as many series as it may.
    pub fn row(&self, _raw: &[u8]) -> Result<Row, NameError> {
        Err(NameError::Closed)
    }

    /// As [`Store::row`], of a name taken apart.
    ///
    /// # Errors
    /// When the store holds as many series as it may.
    pub fn row_of(&self, _name: &RowName) -> Result<Row, NameError> {
        Err(NameError::Closed)
    }

    /// Store a batch. Returns when it is as durable as asked for, and in the head.
    ///
    /// # Errors
    /// See [`WriteError`].
    pub fn write(&self, batch: Batch, ack: Ack) -> Result<Outcome, WriteError> {
        self.submit(batch, ack)?.wait()
    }

    /// As [`Store::write`], from a task: no thread waits.
    ///
    /// # Errors
    /// See [`WriteError`].
    pub async fn write_async(&self, batch: Batch, ack: Ack) -> Result<Outcome, WriteError> {
        self.submit_async(batch, ack).await?.await
    }

    /// Send a batch on its way; waits only while too much waits for the log already. Drop the
    /// ticket to fire and forget: what fails then is counted in [`StoreStats::batches_failed`].
    ///
    /// # Errors
    /// When the batch is not acceptable, or the store takes nothing any more.
    pub fn submit(&self, _batch: Batch, _ack: Ack) -> Result<Ticket, WriteError> {
        Err(WriteError::Closed)
    }

    /// As [`Store::submit`], from a task: no thread waits.
    ///
    /// # Errors
    /// As [`Store::submit`].
    pub async fn submit_async(&self, batch: Batch, ack: Ack) -> Result<Ticket, WriteError> {
        std::future::ready(self.submit(batch, ack)).await
    }

    /// Series that pass a selector, sorted by name.
    pub fn find(&self, _selector: &Selector) -> Vec<Series> {
        Vec::new()
    }

    /// Names of metrics that begin so, sorted.
    pub fn metrics(&self, _prefix: &str) -> Vec<String> {
        Vec::new()
    }

    /// Names of the tags that series of a metric ("": of any) have and that begin so, sorted.
    pub fn tag_names(&self, _metric: &str, _prefix: &str) -> Vec<String> {
        Vec::new()
    }

    /// Values of a tag of series of a metric ("": of any) that begin so, sorted.
    pub fn tag_values(&self, _metric: &str, _tag: &str, _prefix: &str) -> Vec<String> {
        Vec::new()
    }

    /// What is to be read now.
    pub fn snapshot(&self) -> Snapshot {
        Snapshot {}
    }

    /// Delete samples and events of series in a range. What is written later stays. Persisted when
    /// it returns; the disk's space comes back with merges.
    ///
    /// # Errors
    /// See [`WriteError`].
    pub fn delete(&self, _selector: &Selector, _range: TimeRange) -> Result<Outcome, WriteError> {
        Err(WriteError::Closed)
    }

    /// Seal the head: everything written so far is in parts when it returns, and the log trimmed.
    ///
    /// # Errors
    /// See [`WriteError`]. The head stays as it was and is sealed another time.
    pub fn seal(&self) -> Result<SealOutcome, WriteError> {
        Err(WriteError::Closed)
    }

    /// Merge what is worth merging, roll up what is finished.
    ///
    /// # Errors
    /// See [`WriteError`].
    pub fn merge(&self) -> Result<MergeOutcome, WriteError> {
        Err(WriteError::Closed)
    }

    /// Drop what is older, or more, than the retention keeps.
    ///
    /// # Errors
    /// See [`WriteError`].
    pub fn retain(&self) -> Result<MergeOutcome, WriteError> {
        Err(WriteError::Closed)
    }

    /// Totals, and where the store stands.
    pub fn stats(&self) -> StoreStats {
        StoreStats::default()
    }

    /// Take no more, finish what was taken, seal, and close. Clones that still exist answer that
    /// the store is closed.
    ///
    /// # Errors
    /// When the last seal fails; with the log on nothing is lost by that.
    pub fn close(self) -> Result<(), WriteError> {
        Ok(())
    }
}
