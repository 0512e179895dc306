//! Names below directories that are gone, or are not in the baseline. They wait until the directory's
//! own name is due: its notification, which may come later, says who removed or moved all of them.

use std::collections::BTreeMap;

use model::path::is_at_or_below;
use model::{Depth, DueCheck, ItemKey};
use watch::add_notices;

/// Longest wait, nanoseconds. The directory's own name is due sooner, unless it was merged with
/// others or changes all the time.
const WAIT_MAX: u64 = 2_000_000_000;

/// See the module's documentation.
#[derive(Debug, Default)]
pub(crate) struct DeferredNames {
    /// The names of each directory, and the time at which they came.
    names: BTreeMap<ItemKey, (u64, Vec<DueCheck>)>,
}

impl DeferredNames {
    /// Lets names wait for their directory.
    pub(crate) fn add(&mut self, directory: ItemKey, names: Vec<DueCheck>, now_ns: u64) {
        self.names.entry(directory).or_insert_with(|| (now_ns, Vec::new())).1.extend(names);
    }

    /// Returns the number of waiting names.
    pub(crate) fn len(&self) -> usize {
        self.names.values().map(|(_, names)| names.len()).sum()
    }

    /// Returns the time at which the next wait is over.
    pub(crate) fn next_due_ns(&self) -> Option<u64> {
        self.names.values().map(|(since_ns, _)| since_ns.saturating_add(WAIT_MAX)).min()
    }

    /// Returns true if names wait for this directory.
    pub(crate) fn is_awaited(&self, directory: &ItemKey) -> bool {
        self.names.contains_key(directory)
    }

    /// Adds to the due names those that waited for one of them. An awaited directory is unknown: its
    /// check finds everything below it.
    pub(crate) fn release(&mut self, due: Vec<DueCheck>, now_ns: u64) -> Vec<DueCheck> {
        let mut all: BTreeMap<ItemKey, DueCheck> = BTreeMap::new();
        for due in due {
            add(&mut all, due);
        }
        if self.names.is_empty() {
            return all.into_values().collect();
        }
        let is_deep = |due: &&DueCheck| due.depth != Depth::Name || self.is_awaited(&due.key);
        let deep: Vec<Vec<u8>> = all.values().filter(is_deep).map(|due| due.key.path()).collect();
        let is_ready = |directory: &ItemKey, (since_ns, _): &mut (u64, Vec<DueCheck>)| {
            now_ns.saturating_sub(*since_ns) >= WAIT_MAX
                || deep.iter().any(|path| is_at_or_below(&directory.path(), path))
        };
        let ready: Vec<DueCheck> =
            self.names.extract_if(.., is_ready).flat_map(|(_, (_, names))| names).collect();
        for due in ready {
            add(&mut all, due);
        }
        all.into_values().collect()
    }
}

/// Adds a name, whose notices may be in two parts.
fn add(all: &mut BTreeMap<ItemKey, DueCheck>, due: DueCheck) {
    match all.get_mut(&due.key) {
        Some(known) => {
            known.depth = known.depth.max(due.depth);
            add_notices(&mut known.notices, &due.notices);
        }
        None => drop(all.insert(due.key.clone(), due)),
    }
}

#[cfg(test)]
mod tests {
    use model::Notices;

    use super::*;

    fn due(path: &str, count: u32) -> DueCheck {
        let notices = Notices { first_us: 1, last_us: 1, count, ..Notices::default() };
        DueCheck { notices, ..DueCheck::name(ItemKey::of_path(path.as_bytes())) }
    }

    fn paths(due: &[DueCheck]) -> Vec<String> {
        due.iter().map(|due| String::from_utf8(due.key.path()).unwrap()).collect()
    }

    #[test]
    fn names_are_due_together_with_their_directory() {
        let mut deferred = DeferredNames::default();
        deferred.add(due("/r/d", 0).key, vec![due("/r/d/a", 1), due("/r/d/s/b", 1)], 5);
        let other = deferred.release(vec![due("/r/x", 1)], 6);
        assert_eq!((paths(&other), deferred.len()), (vec!["/r/x".into()], 2));
        let together = deferred.release(vec![due("/r/d", 1), due("/r/d/a", 2)], 7);
        assert_eq!(paths(&together), ["/r/d", "/r/d/a", "/r/d/s/b"]);
        assert_eq!(together[1].notices.count, 3, "the notices of a name are gathered");
        assert_eq!((deferred.len(), deferred.next_due_ns()), (0, None));
    }

    #[test]
    fn names_are_due_with_an_awaited_directory_above_theirs() {
        let mut deferred = DeferredNames::default();
        deferred.add(due("/r/d/s", 0).key, vec![due("/r/d/s/b", 1)], 5);
        assert!(!deferred.is_awaited(&due("/r/d", 0).key));
        assert_eq!(paths(&deferred.release(vec![due("/r/d", 0)], 6)), ["/r/d"]);
        deferred.add(due("/r/d", 0).key, vec![due("/r/d/s", 1)], 5);
        // The check of `d` finds everything below it.
        let together = deferred.release(vec![due("/r/d", 0)], 6);
        assert_eq!(paths(&together), ["/r/d", "/r/d/s", "/r/d/s/b"]);
    }

    #[test]
    fn wait_ends_with_a_directory_above_or_after_a_while() {
        let mut deferred = DeferredNames::default();
        deferred.add(due("/r/d", 0).key, vec![due("/r/d/a", 1)], 5);
        let tree = DueCheck { depth: Depth::Below, ..due("/r", 1) };
        assert_eq!(paths(&deferred.release(vec![tree], 6)), ["/r", "/r/d/a"]);
        deferred.add(due("/r/d", 0).key, vec![due("/r/d/a", 1)], 5);
        assert_eq!(deferred.next_due_ns(), Some(5 + WAIT_MAX));
        assert_eq!(deferred.release(Vec::new(), 4 + WAIT_MAX).len(), 0);
        assert_eq!(paths(&deferred.release(Vec::new(), 5 + WAIT_MAX)), ["/r/d/a"]);
    }
}
