//! Partitions whose files could not be read. Merges and retention skip them for a while, so that
//! they do not block other partitions.
//!
//! The manifest stores for how long a partition has only been refused, so that the time adds up
//! over restarts. Time while the store is closed does not count, nor more than [`STEP_MAX`] between
//! two attempts. A kill loses less than an hour and one such step of it.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::error::WriteError;

/// Time after which a partition is tried again.
const RETRY_AFTER: Duration = Duration::from_mins(5);
/// Time of continuous refusals after which a partition that the operating system cannot read counts
/// as damaged when its samples are due to be removed. Otherwise one bad sector would keep them for
/// ever.
const LOST_AFTER: Duration = Duration::from_hours(24);
/// Longest time between two attempts that counts as refused. The state in a longer gap is unknown,
/// and a few refusals far apart do not prove a lasting one.
const STEP_MAX: Duration = Duration::from_hours(2);
const HOUR_S: u64 = 3600;

struct Refusal {
    /// Time of uninterrupted refusals, up to the last one.
    refused: Duration,
    /// Time before which it is not tried again; `None` if it was not tried since the store was
    /// opened.
    until: Option<Duration>,
    corrupt: bool,
}

/// See the module. Times are monotonic.
pub(crate) struct Unread(BTreeMap<i64, Refusal>);

impl Unread {
    /// Restores the state from the manifest: seconds of refusals by partition.
    pub(crate) fn of(refused_s: &BTreeMap<i64, u32>) -> Self {
        let before = |(partition, seconds): (&i64, &u32)| {
            let refused = Duration::from_secs(u64::from(*seconds));
            (*partition, Refusal { refused, until: None, corrupt: false })
        };
        Self(refused_s.iter().map(before).collect())
    }

    /// Returns the seconds of refusals by partition, for the manifest.
    pub(crate) fn refused_s(&self) -> BTreeMap<i64, u32> {
        let seconds = |r: &Refusal| u32::try_from(r.refused.as_secs()).unwrap_or(u32::MAX);
        self.0.iter().map(|(partition, r)| (*partition, seconds(r))).collect()
    }

    /// Removes the partitions that are not in `partitions`.
    pub(crate) fn retain_partitions(&mut self, partitions: &BTreeSet<i64>) {
        self.0.retain(|partition, _| partitions.contains(partition));
    }

    /// Records the result of an attempt at `now`. Returns true if another hour of refusals is
    /// complete.
    pub(crate) fn note<T>(
        &mut self,
        partition: i64,
        done: &Result<T, WriteError>,
        now: Duration,
    ) -> bool {
        let (corrupt, counts) = match done {
            Ok(_) => {
                self.0.remove(&partition);
                return false;
            }
            Err(WriteError::Corrupt(_)) => (true, true),
            // Too many open files, for instance: this may succeed later.
            Err(WriteError::Unread { .. }) => (false, true),
            // A file could not be written.
            Err(WriteError::Io { .. }) => (false, false),
            Err(_) => return false,
        };
        let (had, until) =
            self.0.get(&partition).map_or_else(<_>::default, |r| (r.refused, r.until));
        let since = until.map_or(Duration::ZERO, |until| (now + RETRY_AFTER).saturating_sub(until));
        let refused = had + if counts { since.min(STEP_MAX) } else { Duration::ZERO };
        self.0.insert(partition, Refusal { refused, until: Some(now + RETRY_AFTER), corrupt });
        refused.as_secs() / HOUR_S > had.as_secs() / HOUR_S
    }

    /// Returns true if the partition may be merged. Damaged partitions are left as they are.
    pub(crate) fn may_merge(&self, partition: i64, now: Duration) -> bool {
        self.0.get(&partition).is_none_or(|r| !r.corrupt && r.may_be_tried(now))
    }

    /// Returns true if its samples may be removed. The readable portion of a damaged partition may
    /// be kept.
    pub(crate) fn may_go(&self, partition: i64, now: Duration) -> bool {
        self.0.get(&partition).is_none_or(|r| r.may_be_tried(now))
    }

    /// Returns true if it was refused for so long that it counts as damaged.
    pub(crate) fn is_lost(&self, partition: i64) -> bool {
        self.0.get(&partition).is_some_and(|r| r.refused >= LOST_AFTER)
    }
}

impl Refusal {
    fn may_be_tried(&self, now: Duration) -> bool {
        self.until.is_none_or(|until| until <= now)
    }
}
