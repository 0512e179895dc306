//! Large files that wait to be read: one at a time, and not again right after they were read.

use std::collections::HashMap;
use std::time::Duration;

use model::{Check, ItemKey};

/// A file is read again no sooner than after this many times the duration of its last reading.
pub const REREAD_FACTOR: u32 = 50;
/// Files whose last reading is remembered. Above, the oldest half is forgotten.
const REMEMBERED_MAX: usize = 1_000;

/// The waiting files. The watcher's limits bound their number.
#[derive(Debug, Default)]
pub(crate) struct LargeFiles {
    waiting: HashMap<ItemKey, (u64, Check)>,
    /// Time at which each file may be read again.
    ready: HashMap<ItemKey, u64>,
}

impl LargeFiles {
    /// Adds a file. A later check of the same file replaces an earlier one.
    pub(crate) fn push(&mut self, check: Check, now_ns: u64) {
        let ready = self.ready.get(&check.key).copied().unwrap_or(now_ns);
        self.waiting.insert(check.key.clone(), (ready, check));
    }

    /// Takes the file that has been ready for the longest time.
    pub(crate) fn pop(&mut self, now_ns: u64) -> Option<Check> {
        let (key, _) = self
            .waiting
            .iter()
            .filter(|(_, (ready, _))| *ready <= now_ns)
            .min_by_key(|(_, (ready, _))| *ready)?;
        let key = key.clone();
        self.waiting.remove(&key).map(|(_, check)| check)
    }

    /// Returns the time at which the next file may be read.
    pub(crate) fn next_due_ns(&self) -> Option<u64> {
        self.waiting.values().map(|(ready, _)| *ready).min()
    }

    /// Remembers that a file was read.
    pub(crate) fn note_read(&mut self, key: ItemKey, now_ns: u64, took: Duration) {
        let pause = took.saturating_mul(REREAD_FACTOR).as_nanos() as u64;
        self.ready.insert(key, now_ns.saturating_add(pause));
        if self.ready.len() > REMEMBERED_MAX {
            let mut times: Vec<u64> = self.ready.values().copied().collect();
            times.sort_unstable();
            let middle = times.get(times.len() / 2).copied().unwrap_or_default();
            self.ready.retain(|_, ready| *ready > middle);
        }
    }
}

#[cfg(test)]
mod tests {
    use model::Depth;

    use super::*;

    fn check(name: &str) -> Check {
        Check { key: ItemKey::new("/d", name), depth: Depth::Name, seen: None }
    }

    #[test]
    fn file_is_read_again_after_many_times_its_reading() {
        let mut large = LargeFiles::default();
        large.push(check("a"), 5);
        large.push(check("b"), 4);
        assert_eq!(large.pop(10).map(|c| c.key.name), Some(b"b".to_vec()));
        large.note_read(check("b").key, 10, Duration::from_nanos(2));
        large.push(check("b"), 11);
        assert_eq!(large.pop(11).map(|c| c.key.name), Some(b"a".to_vec()));
        assert_eq!(large.next_due_ns(), Some(110));
        assert!(large.pop(109).is_none() && large.pop(110).is_some());
    }

    #[test]
    fn remembered_readings_are_bounded() {
        let mut large = LargeFiles::default();
        for n in 0..3 * REMEMBERED_MAX as u64 {
            large.note_read(check(&n.to_string()).key, n, Duration::ZERO);
        }
        assert!(large.ready.len() <= REMEMBERED_MAX);
    }
}
