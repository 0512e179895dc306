//! The state of one item and its transitions, as pure functions without I/O. The time is an
//! argument.
//!
//! **Protocol**
//!
//! - Every change of an item gives its [`ItemMarks`] a new version from the database's
//!   [`HybridClock`]. Versions are unique in the database and never decrease.
//! - A *cycle* reports a dataset to the server. [`Marks::begin_cycle`] sets `leased_version` to the
//!   clock. The cycle then leases every row for which [`Marks::is_due`] is true, session by
//!   session. [`Marks::end`] sets `acked_version` to `leased_version`. A row is *pending* while its
//!   version is above `acked_version`, so an acknowledgement writes nothing per item.
//! - A deleted item keeps its row, marked `deleted`, until the server has acknowledged the delete.
//!   If no session can have carried the item, its row is removed at once and nothing is reported.
//!
//! **Invariants**, each covered by a test of this module
//!
//! - A row is removed without a report only if no session can have carried it; a delete is reported
//!   only if a session may have carried the item.
//! - A change made after an item was sent makes the item pending again.
//! - A cycle leases every row that was pending when it began, and no item created after that.
//!   Therefore it ends even if items are created faster than they are sent.
//! - `acked_version` never passes an item that was not acknowledged.

/// One item without its content.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ItemMarks {
    /// The database's clock at the item's last change. Column `seen`.
    pub version: u64,
    /// True if the server may have the item, regardless of the marks. Column `known`.
    pub server_may_have: bool,
    /// True if the item no longer exists, and its delete is not acknowledged yet. Column `gone`.
    pub deleted: bool,
}

/// Watermarks of a dataset.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Marks {
    /// The clock when the current or last cycle began. Column `leased`.
    pub leased_version: u64,
    /// Every row up to this version was acknowledged. Column `told`.
    pub acked_version: u64,
    /// The clock when the database was last opened. Column `reached`.
    ///
    /// The file may be in an older state, because a power cut lost its last commits or a copy was
    /// restored. Cycles of which it has no record may have sent any row up to this version.
    pub opened_version: u64,
    /// True if a cycle has begun and not ended.
    pub unfinished: bool,
}

impl Marks {
    /// Returns the marks after the database was opened with `last` as its highest version.
    #[must_use]
    pub fn open(self, last: u64) -> Self {
        Self { opened_version: self.opened_version.max(last), ..self }
    }

    /// Returns the marks after a cycle began with `last` as the highest version given out. An
    /// unfinished cycle continues instead.
    #[must_use]
    pub fn begin_cycle(self, last: u64) -> Self {
        if self.unfinished { self } else { Self { leased_version: last, unfinished: true, ..self } }
    }

    /// Returns the marks after the cycle ended: every row up to `leased_version` was acknowledged.
    #[must_use]
    pub fn end(self) -> Self {
        Self { acked_version: self.leased_version, unfinished: false, ..self }
    }

    /// Returns true if the row is still to be reported.
    pub fn is_pending(self, row: ItemMarks) -> bool {
        row.version > self.acked_version
    }

    /// Returns true if the current cycle leases the row: it is pending, and the item existed when
    /// the cycle began.
    ///
    /// An item created later waits for the next cycle, even if it changes again before. Otherwise
    /// a cycle to which items are added faster than it leases them would never end, and rows before
    /// its cursor would never be reported.
    pub fn is_due(self, row: ItemMarks) -> bool {
        self.is_pending(row) && (row.server_may_have || row.version <= self.leased_version)
    }

    /// Returns true if a session, acknowledged or not, may have carried the row: a cycle since the
    /// database was opened could lease it, or the row existed when the database was opened.
    pub fn may_have_been_sent(self, row: ItemMarks) -> bool {
        row.server_may_have || row.version <= self.leased_version.max(self.opened_version)
    }
}

/// Returns the row of an item that was created or changed; `version` is the clock's next value.
pub fn put(old: Option<ItemMarks>, marks: Marks, version: u64) -> ItemMarks {
    let server_may_have = old.is_some_and(|row| marks.may_have_been_sent(row));
    ItemMarks { version, server_may_have, deleted: false }
}

/// Returns the row of an item that no longer exists; `None` if the row is to be removed at once,
/// because no session can have carried the item.
pub fn delete(old: Option<ItemMarks>, marks: Marks, version: u64) -> Option<ItemMarks> {
    let row = old?;
    if row.deleted {
        // The first delete keeps its version.
        return Some(row);
    }
    let deleted = ItemMarks { version, server_may_have: true, deleted: true };
    marks.may_have_been_sent(row).then_some(deleted)
}

/// Returns the row of an item whose observation is replaced without reporting it; `None` if the
/// item does not exist, so that [`put`] must be used.
pub fn touch(old: Option<ItemMarks>) -> Option<ItemMarks> {
    old.filter(|row| !row.deleted)
}

/// Returns the row after the server accepted a session that carried it at `sent_version`; `None` if
/// the row is to be removed: its delete is acknowledged.
pub fn acknowledge(row: ItemMarks, sent_version: u64) -> Option<ItemMarks> {
    let delete_acknowledged = row.deleted && row.version == sent_version;
    (!delete_acknowledged).then_some(row)
}

/// Returns the row under a new version, so that it is sent again; `version` is the clock's next
/// value.
pub fn restamp(row: ItemMarks, version: u64) -> ItemMarks {
    ItemMarks { version, server_may_have: true, ..row }
}

/// Highest version that the clock accepts from a server, about the year 148,000. A higher one is an
/// error of the server. The limit leaves a margin below the signed 64-bit integers of the database.
pub const VERSION_MAX: u64 = 1 << 62;

/// The source of versions: microseconds since the epoch, but unique and never decreasing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct HybridClock {
    last: u64,
}

impl HybridClock {
    /// Returns a clock whose values are above `last`.
    pub fn after(last: u64) -> Self {
        Self { last }
    }

    /// Returns the last value given out.
    pub fn last(self) -> u64 {
        self.last
    }

    /// Returns the next value at the wall-clock time `now_us`.
    pub fn tick(&mut self, now_us: u64) -> u64 {
        self.last = (self.last + 1).max(now_us.min(VERSION_MAX));
        self.last
    }

    /// Moves the clock to at least `version`, which the server holds.
    pub fn lift(&mut self, version: u64) -> LiftOutcome {
        if version > VERSION_MAX {
            return LiftOutcome::Refused;
        }
        self.last = self.last.max(version);
        LiftOutcome::Done
    }
}

/// The outcome of [`HybridClock::lift`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LiftOutcome {
    /// The clock is at or above the version.
    Done,
    /// The version is above [`VERSION_MAX`]; the clock is unchanged.
    Refused,
}

#[cfg(test)]
#[path = "transition_tests.rs"]
mod tests;
