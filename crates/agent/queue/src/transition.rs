//! The life of one item as pure functions: no I/O, no clock.
//!
//! An item is a [`Row`]: `seen` is the version of what it holds (one clock for the database, never
//! back), `known` says that the server may have it, `gone` that it is no longer there. A dataset
//! has [`Marks`]; an item is *pending* while its `seen` is above `told`.
//!
//! Invariants, each covered by the tests of this file:
//! - a row is dropped without telling only if no session can have carried it, and a delete is told
//!   only of what one may have carried;
//! - whatever changes after it was sent is pending again;
//! - a cycle hands out all that was pending when it began, and ends whatever is born meanwhile;
//! - `told` never passes an item that was not answered.

/// One item, without its body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Row {
    /// Version: the database's clock at the item's last change.
    pub seen: u64,
    /// The server may have it, whatever the watermarks say.
    pub known: bool,
    /// It is no longer there; a delete is to be told.
    pub gone: bool,
}

/// What a dataset has told.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Marks {
    /// The clock when the current or last cycle began.
    pub leased: u64,
    /// Everything up to here was answered.
    pub told: u64,
    /// The clock when the database was last opened. Of what it held then any session may have
    /// carried anything: it may be an older state of itself (a power cut, a copy put back), and the
    /// cycles that it does not know of sent its items too.
    pub reached: u64,
    /// A cycle has begun and not ended.
    pub unfinished: bool,
}

impl Marks {
    /// The database is opened when the last committed `seen` is `last`.
    #[must_use]
    pub fn open(self, last: u64) -> Self {
        Self { reached: self.reached.max(last), ..self }
    }

    /// A cycle begins when the last committed `seen` is `last`; an unfinished one goes on.
    #[must_use]
    pub fn begin(self, last: u64) -> Self {
        if self.unfinished { self } else { Self { leased: last, unfinished: true, ..self } }
    }

    /// The cycle ends: every item up to `leased` was answered.
    #[must_use]
    pub fn end(self) -> Self {
        Self { told: self.leased, unfinished: false, ..self }
    }

    /// Whether the row is still to be told.
    pub fn is_pending(self, row: Row) -> bool {
        row.seen > self.told
    }

    /// Whether the cycle hands the row out: pending, and not born after the cycle began. A newcomer
    /// is the next cycle's, however often it changes before: a cycle that is outrun by newcomers
    /// would never end, and what lies before its cursor would wait for ever. What was there when
    /// the cycle began is told by it, however fast it changes.
    pub fn is_due(self, row: Row) -> bool {
        self.is_pending(row) && (row.known || row.seen <= self.leased)
    }

    /// Whether any session, answered or not, may have carried the row: exactly what a cycle of this
    /// opening could hand out so far, and all that was there before it.
    pub fn may_be_known(self, row: Row) -> bool {
        row.known || row.seen <= self.leased.max(self.reached)
    }
}

/// The item is as observed now; `seen` is the next value of the clock.
pub fn put(old: Option<Row>, marks: Marks, seen: u64) -> Row {
    Row { seen, known: old.is_some_and(|row| marks.may_be_known(row)), gone: false }
}

/// The item is no longer there. `None`: the row goes at once, as nobody was ever told of it.
pub fn delete(old: Option<Row>, marks: Marks, seen: u64) -> Option<Row> {
    let row = old?;
    if row.gone {
        return Some(row);
    }
    marks.may_be_known(row).then_some(Row { seen, known: true, gone: true })
}

/// The item was verified again, nothing to tell. `None`: it was not there (or gone), so that this
/// is a [`put`].
pub fn touch(old: Option<Row>) -> Option<Row> {
    old.filter(|row| !row.gone)
}

/// A session that carried the item at `answered` was accepted.
pub fn acknowledge(row: Row, answered: u64) -> Option<Row> {
    (!row.gone || row.seen != answered).then_some(row)
}

/// The server holds a version above the item's: the clock was lifted and `seen` is its next value.
pub fn restamp(row: Row, seen: u64) -> Row {
    Row { seen, known: true, ..row }
}

/// The database's clock: microseconds since the epoch, but never twice the same and never back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct HybridClock {
    last: u64,
}

/// Highest version that the clock follows; above it a server's version is taken for nonsense.
/// About the year 148,000, and it leaves room below the database's signed 64 bits.
pub const VERSION_MAX: u64 = 1 << 62;

impl HybridClock {
    /// A clock that goes on after `last`.
    pub fn after(last: u64) -> Self {
        Self { last }
    }

    /// The last value given out.
    pub fn last(self) -> u64 {
        self.last
    }

    /// The next value at `now_us`.
    pub fn tick(&mut self, now_us: u64) -> u64 {
        self.last = (self.last + 1).max(now_us.min(VERSION_MAX));
        self.last
    }

    /// Go on above `version`. `false` when that is beyond [`VERSION_MAX`]; then nothing changes.
    pub fn lift(&mut self, version: u64) -> bool {
        let sane = version <= VERSION_MAX;
        if sane {
            self.last = self.last.max(version);
        }
        sane
    }
}

#[cfg(test)]
#[path = "transition_tests.rs"]
mod tests;
