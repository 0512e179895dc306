//! Names that wait for the end of a transaction of dpkg. dpkg writes each file under a temporary
//! name, and its lists are complete only afterwards.

use std::collections::BTreeMap;
use std::path::Path;

use explain::limits::{HELD_MAX, HOLD_MAX};
use explain::{DpkgLock, LockHolder};
use model::{Depth, DueCheck, ItemKey, Notices, Writer};
use watch::add_notices;

/// Interval at which the end of the transaction is looked for, nanoseconds.
const POLL_NS: u64 = 100_000_000;

/// A held name.
#[derive(Debug)]
struct HeldName {
    /// Time at which it came.
    since_ns: u64,
    /// The transaction whose end it waits for.
    holder: Option<LockHolder>,
    due: DueCheck,
}

/// The held names. They are bounded; more are checked at once.
#[derive(Debug)]
pub(crate) struct HeldNames {
    lock: DpkgLock,
    names: BTreeMap<ItemKey, HeldName>,
}

impl HeldNames {
    pub(crate) fn new(root: &Path) -> Self {
        Self { lock: DpkgLock::new(root), names: BTreeMap::new() }
    }

    pub(crate) fn len(&self) -> usize {
        self.names.len()
    }

    /// Returns the time at which held names are looked at again.
    pub(crate) fn next_due_ns(&self, now_ns: u64) -> Option<u64> {
        (!self.names.is_empty()).then(|| now_ns.saturating_add(POLL_NS))
    }

    /// Takes the names that are due, holds those that only dpkg changed while it runs, and returns
    /// the others with at most `released_max` names whose wait is over.
    pub(crate) fn filter(
        &mut self,
        due: Vec<DueCheck>,
        now_ns: u64,
        released_max: usize,
        is_by_dpkg: &dyn Fn(&[Writer]) -> bool,
    ) -> Vec<DueCheck> {
        if due.is_empty() && self.names.is_empty() {
            return due;
        }
        let holder = self.lock.holder();
        let mut ready = Vec::with_capacity(due.len());
        for mut due in due {
            let before = self.names.remove(&due.key);
            let since_ns = before.as_ref().map_or(now_ns, |held| held.since_ns);
            if let Some(held) = before {
                due.depth = due.depth.max(held.due.depth);
                add_notices(&mut due.notices, &held.due.notices);
            }
            let Notices { writers, more_writers, others_below, .. } = &due.notices;
            let hold = holder.is_some()
                && *more_writers == 0
                && !others_below
                && !is_over(since_ns, now_ns)
                && self.names.len() < HELD_MAX
                && is_by_dpkg(writers);
            if hold {
                self.names.insert(due.key.clone(), HeldName { since_ns, holder, due });
            } else {
                ready.push(due);
            }
        }
        self.release(holder, now_ns, released_max, &mut ready);
        self.release_below(&mut ready);
        ready
    }

    /// Moves the held names below directories that are checked now to `ready`. The check finds them
    /// anyway, and needs their notices to know their writers.
    fn release_below(&mut self, ready: &mut Vec<DueCheck>) {
        let directories = ready.iter().filter(|due| due.depth != Depth::Name);
        let directories: Vec<Vec<u8>> = directories.map(|due| due.key.path()).collect();
        if directories.is_empty() {
            return;
        }
        let is_below = |key: &ItemKey| {
            directories.iter().any(|directory| {
                let rest = key.directory.strip_prefix(directory.as_slice());
                rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(b"/"))
            })
        };
        let below = self.names.extract_if(.., |key, _| is_below(key));
        ready.extend(below.map(|(_, held)| held.due));
    }

    /// Moves names whose wait is over to `ready`, in the order of their paths: a new directory is
    /// checked together with what is in it.
    fn release(
        &mut self,
        holder: Option<LockHolder>,
        now_ns: u64,
        most: usize,
        ready: &mut Vec<DueCheck>,
    ) {
        let is_released = |held: &HeldName| {
            holder.is_none() || held.holder != holder || is_over(held.since_ns, now_ns)
        };
        let released = self.names.iter().filter(|(_, held)| is_released(held));
        let released: Vec<ItemKey> = released.map(|(key, _)| key.clone()).take(most).collect();
        for key in released {
            ready.extend(self.names.remove(&key).map(|held| held.due));
        }
    }
}

fn is_over(since_ns: u64, now_ns: u64) -> bool {
    now_ns.saturating_sub(since_ns) >= HOLD_MAX.as_nanos() as u64
}

#[cfg(test)]
mod tests {
    use model::{Interval, WriterSeen};

    use super::*;

    fn changing(pid: u32, from_ns: u64, to_ns: u64) -> Writer {
        Writer::new(pid, WriterSeen::Changing, Interval { from_ns, to_ns })
    }

    fn due(name: &str, pid: u32, at: u64) -> DueCheck {
        let (first_us, last_us) = (at, at);
        let writers = vec![changing(pid, at, at + 1)];
        let notices = Notices { first_us, last_us, count: 1, writers, ..Notices::default() };
        DueCheck { notices, ..DueCheck::name(ItemKey::new("/d", name)) }
    }

    #[test]
    fn names_are_not_held_without_a_transaction() {
        let mut held = HeldNames::new(Path::new("/none"));
        let ready = held.filter(vec![due("a", 1, 5)], 10, 100, &|_| true);
        assert_eq!((ready.len(), held.len()), (1, 0));
    }

    #[test]
    fn notices_of_a_held_name_are_gathered() {
        let mut held = HeldNames::new(Path::new("/none"));
        let mut before = due("a", 1, 5);
        before.notices.created = true;
        let key = before.key.clone();
        held.names.insert(key, HeldName { since_ns: 0, holder: None, due: before });
        let mut now = due("a", 1, 9);
        now.notices.removed = true;
        let ready = held.filter(vec![now], 10, 100, &|_| true);
        let Notices { first_us, last_us, count, created, removed, ref writers, .. } =
            ready[0].notices;
        assert_eq!((first_us, last_us, count), (5, 9, 2));
        assert!(created && removed, "it existed for a moment");
        let mut twice = changing(1, 5, 6);
        twice.add(&changing(1, 9, 10));
        assert_eq!(writers[..], [twice]);
    }

    #[test]
    fn names_below_a_checked_directory_are_released_with_it() {
        let mut held = HeldNames::new(Path::new("/none"));
        for (directory, name) in [("/d/new", "a"), ("/d/new/sub", "b"), ("/d/newer", "c")] {
            let key = ItemKey::new(directory, name);
            let due = DueCheck { key: key.clone(), ..due("", 1, 5) };
            held.names.insert(key, HeldName { since_ns: 0, holder: None, due });
        }
        let mut ready = vec![due("new", 1, 5)];
        held.release_below(&mut ready);
        assert_eq!(ready.len(), 1, "a name alone has nothing below it");
        ready.push(DueCheck { depth: Depth::Below, ..due("new", 1, 5) });
        held.release_below(&mut ready);
        assert_eq!((ready.len(), held.len()), (4, 1));
    }

    #[test]
    fn wait_of_a_held_name_ends() {
        let mut held = HeldNames::new(Path::new("/none"));
        let holder = |pid| Some(LockHolder(rustix::process::Pid::from_raw(pid)));
        for (name, pid) in [("a", 7), ("b", 7), ("c", 8), ("d", 8)] {
            let due = due(name, 1, 5);
            let name = HeldName { since_ns: 0, holder: holder(pid), due: due.clone() };
            held.names.insert(due.key, name);
        }
        let over_ns = HOLD_MAX.as_nanos() as u64;
        let mut ready = Vec::new();
        held.release(holder(7), over_ns - 1, 1, &mut ready);
        assert_eq!((ready.len(), held.len()), (1, 3), "one of the two of another transaction");
        held.release(holder(7), over_ns - 1, 9, &mut ready);
        held.release(holder(7), over_ns, 1, &mut ready);
        assert_eq!((ready.len(), held.len()), (3, 1), "the wait is limited");
        held.release(None, 1, 9, &mut ready);
        assert_eq!(ready.len(), 4, "the transaction ended");
    }
}
