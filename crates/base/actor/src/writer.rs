//! Processes that caused notifications.

/// An interval in which something happened, nanoseconds of `CLOCK_MONOTONIC`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Interval {
    pub from_ns: u64,
    pub to_ns: u64,
}

impl Interval {
    /// Returns the interval that covers both.
    fn hull(self, other: Self) -> Self {
        Self { from_ns: self.from_ns.min(other.from_ns), to_ns: self.to_ns.max(other.to_ns) }
    }
}

/// The kind of notifications that a process caused, the most telling first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum WriterSeen {
    /// It changed the item.
    Changing,
    /// It closed the file, in a directory whose writes are not notified yet.
    Closing,
    /// It closed the file and was not seen changing it, although writes are notified there. Another
    /// process may have changed the file through memory, and passed the descriptor on.
    OnlyClosing,
}

/// A process that caused notifications, and when. The kernel reports the process but no time: a
/// change happened between a moment in which the queue was known to be empty and the read that
/// returned its notification.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Writer {
    pub pid: u32,
    pub seen: WriterSeen,
    /// Interval of its last change, or of its last closing if no change was notified.
    pub last: Interval,
    /// Interval of its changes before the last one, if they may have been made by another program
    /// of the same process.
    pub earlier: Option<Interval>,
}

impl Writer {
    /// Returns a process with one notification.
    pub fn new(pid: u32, seen: WriterSeen, last: Interval) -> Self {
        Self { pid, seen, last, earlier: None }
    }

    /// Returns the interval from its first notification to its last one.
    pub fn whole(&self) -> Interval {
        self.earlier.map_or(self.last, |earlier| earlier.hull(self.last))
    }

    /// Adds other notifications of the same process. Closing says nothing if it changed the item.
    pub fn add(&mut self, other: &Self) {
        if other.seen > self.seen {
            return;
        }
        if other.seen < self.seen {
            *self = *other;
            return;
        }
        let in_order = other.last.to_ns >= self.last.to_ns;
        let (before, after) = if in_order { (*self, *other) } else { (*other, *self) };
        // An interval that begins no later contains the former one, with its programs.
        let replaced = Some(before.last).filter(|last| last.from_ns < after.last.from_ns);
        self.last = after.last;
        self.earlier =
            [before.earlier, after.earlier, replaced].into_iter().flatten().reduce(Interval::hull);
    }
}

/// The user and session of a process that causes notifications. They share the time for checks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Origin {
    /// Effective user.
    pub user: u32,
    /// Login session, or the control group of a service.
    pub session: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn writer(seen: WriterSeen, from_ns: u64, to_ns: u64) -> Writer {
        Writer::new(7, seen, Interval { from_ns, to_ns })
    }

    #[test]
    fn last_change_is_kept_apart_from_those_before_it() {
        let mut sum = writer(WriterSeen::Changing, 10, 20);
        sum.add(&writer(WriterSeen::Changing, 10, 25));
        assert_eq!((sum.last, sum.earlier), (Interval { from_ns: 10, to_ns: 25 }, None));
        sum.add(&writer(WriterSeen::Changing, 22, 30));
        sum.add(&writer(WriterSeen::Changing, 40, 50));
        assert_eq!(sum.last, Interval { from_ns: 40, to_ns: 50 });
        assert_eq!(sum.earlier, Some(Interval { from_ns: 10, to_ns: 30 }));
        let mut other = writer(WriterSeen::Changing, 40, 50);
        other.add(&writer(WriterSeen::Changing, 1, 2));
        assert_eq!(other.whole(), Interval { from_ns: 1, to_ns: 50 }, "in any order");
    }

    #[test]
    fn closing_counts_only_without_a_change() {
        let mut sum = writer(WriterSeen::OnlyClosing, 10, 20);
        sum.add(&writer(WriterSeen::Closing, 5, 6));
        assert_eq!((sum.seen, sum.last.from_ns), (WriterSeen::Closing, 5));
        sum.add(&writer(WriterSeen::Changing, 20, 30));
        sum.add(&writer(WriterSeen::OnlyClosing, 40, 50));
        assert_eq!(sum, writer(WriterSeen::Changing, 20, 30));
    }
}
