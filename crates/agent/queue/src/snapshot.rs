//! Snapshots for integrity checks.

use model::{ItemKey, SkipReason};

use crate::body::Body;
use crate::error::QueueError;

/// One item that was told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToldItem {
    /// Which.
    pub key: ItemKey,
    /// Its version.
    pub seen: u64,
    /// What it holds; never gone.
    pub body: Body,
}

/// One item that the server refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Exception {
    /// Which.
    pub key: ItemKey,
    /// The version that was refused.
    pub seen: u64,
    /// Why.
    pub reason: SkipReason,
}

/// One dataset at one instant, for digests.
pub struct Snapshot {
    pub(crate) pending: Vec<ItemKey>,
    pub(crate) exceptions: Vec<Exception>,
}

impl Snapshot {
    /// Items seen but not told, gone ones included: left out on both sides.
    pub fn pending(&self) -> &[ItemKey] {
        &self.pending
    }

    /// Items that the server refused: left out on both sides.
    pub fn exceptions(&self) -> &[Exception] {
        &self.exceptions
    }

    /// Every told item that is neither pending nor an exception, in the order of the keys' places.
    ///
    /// # Errors
    /// When the database cannot be read, or with what `visit` gives.
    pub fn for_each(
        &self,
        _visit: &mut dyn FnMut(ToldItem) -> Result<(), QueueError>,
    ) -> Result<(), QueueError> {
        todo!()
    }
}
