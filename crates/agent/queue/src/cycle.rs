//! Cycles.

use model::{Dataset, ItemKey, SkipReason};

use crate::body::Body;

/// A cycle that has begun.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cycle {
    /// Everything seen up to here is told when it ends.
    pub leased: u64,
    /// Everything seen up to here was told before.
    pub told: u64,
    /// It goes on from where an earlier one broke off.
    pub resumed: bool,
}

/// One item to be told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeasedItem {
    /// Which.
    pub key: ItemKey,
    /// Its version.
    pub seen: u64,
    /// What it holds, or that it is gone.
    pub body: Body,
}

/// Where a walk stands: the next item is the first at or behind it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Cursor {
    /// Directory number.
    pub(crate) directory: i64,
    /// Name in it; the smallest name not yet visited.
    pub(crate) name: Vec<u8>,
}

/// Items handed out for one session; answer with [`crate::Queue::ack`] or
/// [`crate::Queue::return_`]. Dropping it is the same as returning it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lease {
    pub(crate) dataset: Dataset,
    pub(crate) cycle: u64,
    pub(crate) start: Cursor,
    /// Place of each item, parallel to `items`.
    pub(crate) places: Vec<i64>,
    items: Vec<LeasedItem>,
}

impl Lease {
    /// The items in the order of their keys; at least one.
    pub fn items(&self) -> &[LeasedItem] {
        &self.items
    }

    /// Which dataset they belong to.
    pub fn dataset(&self) -> &Dataset {
        &self.dataset
    }

    /// Keep the first `count` items (at least one) and give back the rest: the next lease begins
    /// with them. For sessions that turn out too large.
    pub fn truncate(&mut self, count: usize) {
        self.items.truncate(count.max(1));
        self.places.truncate(count.max(1));
    }
}

/// One item of a lease that the server left out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Skip {
    /// Its place in [`Lease::items`].
    pub index: usize,
    /// Why.
    pub reason: SkipReason,
    /// For `stale` the version that the server holds.
    pub version: u64,
}

/// What an acknowledgement changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct AckOutcome {
    /// Rows of gone items removed.
    pub removed: u64,
    /// Items that will be sent again above the server's version.
    pub restamped: u64,
    /// Items set aside until their next change.
    pub exceptions: u64,
}
