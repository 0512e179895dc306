//! Where detection meets the queue: detection reads a [`Baseline`] and hands [`Batch`]es to a
//! [`Sink`]; the binary joins the two. Neither side knows the other.

use std::fmt;

use crate::change::Change;
use crate::coverage::Coverage;
use crate::observation::Observation;
use crate::path::ItemKey;

/// Failure of a baseline or a sink, as text with its cause.
#[derive(Debug)]
pub struct PortError(pub String);

impl fmt::Display for PortError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for PortError {}

/// One entry of the baseline.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BaselineItem {
    /// Name in its directory.
    pub name: Vec<u8>,
    /// What was last observed.
    pub observation: Observation,
}

/// The agent's last observation per item, read directory by directory.
pub trait Baseline {
    /// The items of one directory (not those below its sub-directories), in any order. Items that
    /// are gone are left out. `into` is cleared first.
    ///
    /// # Errors
    /// When the store cannot be read.
    fn directory(
        &mut self,
        directory: &[u8],
        into: &mut Vec<BaselineItem>,
    ) -> Result<(), PortError>;

    /// The directories strictly below `directory` that hold items, in any order.
    ///
    /// # Errors
    /// When the store cannot be read.
    fn directories_below(&mut self, directory: &[u8]) -> Result<Vec<Vec<u8>>, PortError>;
}

/// One step of a batch.
#[derive(Debug, Clone, PartialEq)]
pub enum Op {
    /// The item is as observed. With `change`, the change becomes an event in the same
    /// transaction; without, it is baseline (the first scan of a path).
    Put {
        key: ItemKey,
        /// As it is now.
        observation: Observation,
        /// What led to it.
        change: Option<Box<Change>>,
    },
    /// Bookkeeping only (verified again, no longer racy): nothing to tell.
    Touch {
        key: ItemKey,
        /// As it is now.
        observation: Observation,
    },
    /// The item is no longer there, or no longer covered by a rule (then without `change`).
    Delete {
        key: ItemKey,
        /// What led to it.
        change: Option<Box<Change>>,
    },
    Coverage(Coverage),
}

/// Steps that commit together.
pub type Batch = Vec<Op>;

/// What a batch cost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SinkOutcome {
    pub items: u64,
    pub events: u64,
}

/// Takes verified changes and keeps them durably.
pub trait Sink {
    /// Commit the batch in one transaction. The batch is drained. A sink that gathers may keep it
    /// back until [`Sink::flush`], within limits of its own.
    ///
    /// # Errors
    /// When it could not be committed; then nothing of it was.
    fn apply(&mut self, batch: &mut Batch) -> Result<SinkOutcome, PortError>;

    /// Commit what was kept back: before anything reads the baseline of a place that was written.
    ///
    /// # Errors
    /// When it could not be committed; then nothing of what was kept back was, and it is dropped:
    /// the next scan finds it again.
    fn flush(&mut self) -> Result<SinkOutcome, PortError> {
        Ok(SinkOutcome::default())
    }
}
