//! Partitions whose files could not be read: merges and retention pass over them for a while, so that
//! they keep nothing else from its turn.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::error::WriteError;

/// Time after which a partition is tried again.
const RETRY_AFTER: Duration = Duration::from_mins(5);
/// Time of nothing but refusals after which what the operating system does not read counts as
/// damaged, where samples go anyway: otherwise one bad sector would keep them for good.
const LOST_AFTER: Duration = Duration::from_hours(24);

struct Refusal {
    /// The first of those that came one after another.
    since: Duration,
    /// Before that it is not tried again.
    until: Duration,
    corrupt: bool,
}

/// See the module. Times are of the clock's monotone side.
#[derive(Default)]
pub(crate) struct Unread(BTreeMap<i64, Refusal>);

impl Unread {
    /// Note what became of a try at `now`.
    pub(crate) fn note<T>(&mut self, partition: i64, done: &Result<T, WriteError>, now: Duration) {
        let corrupt = match done {
            Ok(_) => {
                self.0.remove(&partition);
                return;
            }
            Err(WriteError::Corrupt(_)) => true,
            // Too many open files, for instance: that may be over later.
            Err(WriteError::Io { .. }) => false,
            Err(_) => return,
        };
        let before = self.0.get(&partition).filter(|r| now < r.until + RETRY_AFTER);
        let since = before.map_or(now, |r| r.since);
        self.0.insert(partition, Refusal { since, until: now + RETRY_AFTER, corrupt });
    }

    /// Whether to merge it: what is damaged stays as it is.
    pub(crate) fn may_merge(&self, partition: i64, now: Duration) -> bool {
        self.0.get(&partition).is_none_or(|r| !r.corrupt && r.until <= now)
    }

    /// Whether to let its samples go: what can be read of a damaged one can be kept.
    pub(crate) fn may_go(&self, partition: i64, now: Duration) -> bool {
        self.0.get(&partition).is_none_or(|r| r.until <= now)
    }

    /// Whether it was refused for so long that nothing more is waited for.
    pub(crate) fn is_lost(&self, partition: i64, now: Duration) -> bool {
        self.0.get(&partition).is_some_and(|r| now.saturating_sub(r.since) >= LOST_AFTER)
    }
}
