//! The interface between detection and the queue: detection reads a [`Baseline`] and passes
//! [`ChangeBatch`]es to a [`Sink`]; the binary connects the two. Neither side imports the other.

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
    /// The last observation.
    pub observation: Observation,
}

/// The agent's last observation per item, read directory by directory.
pub trait Baseline {
    /// Reads the items of one directory (not of its sub-directories), in any order. Deleted items
    /// are left out. `into` is cleared first.
    ///
    /// # Errors
    /// Returns an error if the store cannot be read.
    fn directory(
        &mut self,
        directory: &[u8],
        into: &mut Vec<BaselineItem>,
    ) -> Result<(), PortError>;

    /// Reads one item; `None` if it is not there or deleted.
    ///
    /// # Errors
    /// Returns an error if the store cannot be read.
    fn item(&mut self, key: &ItemKey) -> Result<Option<Observation>, PortError> {
        let mut items = Vec::new();
        self.directory(&key.directory, &mut items)?;
        Ok(items.into_iter().find(|item| item.name == key.name).map(|item| item.observation))
    }

    /// Returns the directories strictly below `directory` that hold items, in any order.
    ///
    /// # Errors
    /// Returns an error if the store cannot be read.
    fn directories_below(&mut self, directory: &[u8]) -> Result<Vec<Vec<u8>>, PortError>;
}

/// One step of a batch.
#[derive(Debug, Clone, PartialEq)]
pub enum Op {
    /// The item's current state. With `change`, the change becomes an event in the same
    /// transaction; without, the state is baseline (the first scan of a path).
    Put {
        key: ItemKey,
        /// Current state.
        observation: Observation,
        /// Change that led to it.
        change: Option<Box<Change>>,
    },
    /// Bookkeeping only (verified again, no longer racy): nothing is reported.
    Touch {
        key: ItemKey,
        /// Current state.
        observation: Observation,
    },
    /// The item is no longer there, or no longer covered by a rule (then without `change`).
    Delete {
        key: ItemKey,
        /// Change that led to it.
        change: Option<Box<Change>>,
    },
    Coverage(Coverage),
}

/// Steps that commit together.
pub type ChangeBatch = Vec<Op>;

/// The cost of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SinkOutcome {
    pub items: u64,
    pub events: u64,
}

/// Takes verified changes and keeps them durably.
pub trait Sink {
    /// Commits the batch in one transaction and drains it. A sink that gathers batches may hold it
    /// back until [`Sink::flush`], within limits of its own.
    ///
    /// # Errors
    /// Returns an error if the batch could not be committed; then none of it was.
    fn apply(&mut self, batch: &mut ChangeBatch) -> Result<SinkOutcome, PortError>;

    /// Commits the batches held back. Call it before the baseline of a directory that was written
    /// is read.
    ///
    /// # Errors
    /// Returns an error if they could not be committed; then none of them was, and they are
    /// dropped: the next scan finds the changes again.
    fn flush(&mut self) -> Result<SinkOutcome, PortError> {
        Ok(SinkOutcome::default())
    }
}
