//! Partitions whose files could not be read: merges and retention pass over them for a while, so
//! that they keep nothing else from its turn.
//!
//! For how long nothing but refusals came is kept in the manifest, so that it adds up over
//! restarts, whose own time does not count; nor does more than [`STEP_MAX`] between two tries. What
//! a kill loses of it is less than an hour and such a step.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::error::WriteError;

/// Time after which a partition is tried again.
const RETRY_AFTER: Duration = Duration::from_mins(5);
/// Time of nothing but refusals after which what the operating system does not read counts as
/// damaged, where samples go anyway: otherwise one bad sector would keep them for good.
const LOST_AFTER: Duration = Duration::from_hours(24);
/// Longest time between two attempts that counts as refused. The state in a longer gap is unknown,
/// and a few refusals far apart do not prove a lasting one.
const STEP_MAX: Duration = Duration::from_hours(2);
const HOUR_S: u64 = 3600;

struct Refusal {
    /// Time of uninterrupted refusals, up to the last one.
    refused: Duration,
    /// Before that it is not tried again; `None`: not tried yet since the store was opened.
    until: Option<Duration>,
    corrupt: bool,
}

/// See the module. Times are of the clock's monotone side.
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

    /// Forgets those that are not among these any more.
    pub(crate) fn keep(&mut self, partitions: &BTreeSet<i64>) {
        self.0.retain(|partition, _| partitions.contains(partition));
    }

    /// Notes what became of a try at `now`; whether another hour of refusals is full with it.
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
            // Too many open files, for instance: that may be over later.
            Err(WriteError::Unread { .. }) => (false, true),
            // Something of it could not be written.
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

    /// Returns true if the part may be merged. Damaged parts are left as they are.
    pub(crate) fn may_merge(&self, partition: i64, now: Duration) -> bool {
        self.0.get(&partition).is_none_or(|r| !r.corrupt && r.may_be_tried(now))
    }

    /// Returns true if its samples may be dropped. What can be read of a damaged part may be kept.
    pub(crate) fn may_go(&self, partition: i64, now: Duration) -> bool {
        self.0.get(&partition).is_none_or(|r| r.may_be_tried(now))
    }

    /// Returns true if it was refused for so long that nothing more is waited for.
    pub(crate) fn is_lost(&self, partition: i64) -> bool {
        self.0.get(&partition).is_some_and(|r| r.refused >= LOST_AFTER)
    }
}

impl Refusal {
    fn may_be_tried(&self, now: Duration) -> bool {
        self.until.is_none_or(|until| until <= now)
    }
}
