use std::time::Duration;

use model::{Depth, Interval, Notices, Writer, WriterSeen};

use super::*;
use crate::directory_index::Role;

const MS: u64 = 1_000_000;
const START: u64 = 1_000_000 * MS;

fn changing(pid: u32, from_ns: u64, to_ns: u64) -> Writer {
    Writer::new(pid, WriterSeen::Changing, Interval { from_ns, to_ns })
}

fn noted(now: u64, pid: u32) -> NotificationInfo {
    let writer = changing(pid, now - MS, now);
    NotificationInfo {
        now,
        wall_us: now / 1_000,
        ended: true,
        writer: Some(writer),
        ..NotificationInfo::default()
    }
}

struct Fixture {
    index: DirectoryIndex,
    set: DirtySet,
    root: NodeId,
}

impl Fixture {
    fn new(dirty_max: usize) -> Self {
        let mut index = DirectoryIndex::new(10_000);
        let root = index.add(DirectoryIndex::top(), b"root", None).unwrap();
        index.set_role(root, Some(Role::Watched));
        Self { index, set: DirtySet::new(Windows::default(), dirty_max), root }
    }

    fn directory(&mut self, parent: NodeId, name: &str) -> NodeId {
        self.index.add(parent, name.as_bytes(), None).unwrap()
    }

    fn note(&mut self, directory: NodeId, name: &str, depth: Depth, now: u64) -> u32 {
        self.set.note(&mut self.index, directory, name.as_bytes(), depth, &noted(now, 7))
    }

    /// Returns what is due as paths with their depth, sorted.
    fn due(&mut self, now: u64) -> Vec<(String, Depth, Notices)> {
        let mut found = Vec::new();
        let mut visit = |index: &DirectoryIndex, entry: ReadyEntry| {
            let path = model::path::join(&index.path(entry.directory), &entry.name);
            found.push((String::from_utf8(path).unwrap(), entry.depth, entry.notices));
        };
        self.set.take_due(&mut self.index, now, usize::MAX, &mut visit);
        while self.set.next_due().is_some_and(|due| due <= now) {
            self.set.take_due_tree(&mut self.index, now, &mut visit);
        }
        found.sort_by(|one, other| one.0.cmp(&other.0));
        found
    }

    fn paths(&mut self, now: u64) -> Vec<(String, Depth)> {
        self.due(now).into_iter().map(|(path, depth, _)| (path, depth)).collect()
    }
}

#[test]
fn notifications_of_a_name_are_one_entry() {
    let mut fixture = Fixture::new(100);
    let root = fixture.root;
    for (step, pid) in [7, 8, 7].into_iter().enumerate() {
        let noted = noted(START + step as u64 * MS, pid);
        fixture.set.note(&mut fixture.index, root, b"f", Depth::Name, &noted);
    }
    assert_eq!(fixture.set.len(), 1);
    assert_eq!(fixture.set.next_due(), Some(START + 22 * MS));
    assert!(fixture.due(START + 21 * MS).is_empty());
    let due = fixture.due(START + 22 * MS);
    let [(path, Depth::Name, notices)] = due.as_slice() else { panic!("{due:?}") };
    assert_eq!((path.as_str(), notices.count), ("/root/f", 3));
    assert_eq!((notices.first_us, notices.last_us), (START / 1_000, (START + 2 * MS) / 1_000));
    let mut twice = changing(7, START - MS, START);
    twice.add(&changing(7, START + MS, START + 2 * MS));
    assert_eq!(notices.writers, [twice, changing(8, START, START + MS)]);
}

#[test]
fn writers_beyond_the_limit_are_counted() {
    let mut fixture = Fixture::new(100);
    let root = fixture.root;
    for pid in 1..=11 {
        fixture.set.note(&mut fixture.index, root, b"f", Depth::Name, &noted(START, pid));
    }
    let (_, _, notices) = fixture.due(START + 100 * MS).remove(0);
    assert_eq!((notices.writers.len(), notices.more_writers), (8, 3));
}

#[test]
fn writers_below_a_directory_are_not_its_own() {
    let mut fixture = Fixture::new(100);
    let root = fixture.root;
    let node = fixture.directory(root, "new");
    let created = |pid| NotificationInfo { created: true, ..noted(START, pid) };
    let slot = fixture.set.note(&mut fixture.index, root, b"new", Depth::Below, &created(7));
    fixture.set.cover(&mut fixture.index, slot, node, Depth::Below);
    let removed = NotificationInfo { removed: true, moved: true, ..noted(START, 7) };
    fixture.set.note(&mut fixture.index, node, b"f", Depth::Name, &removed);
    let (_, _, notices) = fixture.due(START + 100 * MS).remove(0);
    assert!(!notices.others_below, "the same process changed both");
    let slot = fixture.set.note(&mut fixture.index, root, b"new", Depth::Below, &created(7));
    fixture.set.cover(&mut fixture.index, slot, node, Depth::Below);
    fixture.set.note(&mut fixture.index, node, b"f", Depth::Name, &noted(START, 8));
    let (_, _, notices) = fixture.due(START + 1_000 * MS).remove(0);
    let pids: Vec<u32> = notices.writers.iter().map(|writer| writer.pid).collect();
    assert_eq!((pids, notices.others_below, notices.count), (vec![7], true, 2));
    assert!(notices.created && !notices.removed && !notices.moved);
}

#[test]
fn fullest_directory_is_merged_first() {
    let mut fixture = Fixture::new(16);
    let (root, full) = (fixture.root, fixture.root);
    let full = fixture.directory(full, "full");
    let other = fixture.directory(root, "other");
    for number in 0..15 {
        fixture.note(full, &format!("f{number}"), Depth::Name, START);
    }
    fixture.note(other, "a", Depth::Name, START);
    fixture.note(other, "b", Depth::Name, START);
    assert_eq!(fixture.set.len(), 3);
    fixture.note(full, "later", Depth::Name, START);
    assert_eq!(fixture.set.len(), 3, "a later name joins its directory");
    let due = fixture.due(START + 100 * MS);
    let count = due[0].2.count;
    let paths: Vec<_> = due.iter().map(|(path, depth, _)| (path.as_str(), *depth)).collect();
    let name = Depth::Name;
    let expected =
        [("/root/full", Depth::Directory), ("/root/other/a", name), ("/root/other/b", name)];
    assert_eq!(paths, expected);
    assert_eq!(count, 16);
    fixture.note(full, "after", Depth::Name, START + 200 * MS);
    assert_eq!(fixture.paths(START + 900 * MS), [("/root/full/after".to_owned(), name)]);
}

/// A directory that other names are merged into was itself merged into a check of its parent's
/// entries, which does not look into it.
#[test]
fn merging_a_merged_directory_keeps_its_depth() {
    let mut fixture = Fixture::new(16);
    let root = fixture.root;
    for number in 0..40 {
        let directory = fixture.directory(root, &format!("d{number}"));
        for file in 0..8 {
            fixture.note(directory, &format!("f{file}"), Depth::Name, START);
        }
        assert!(fixture.set.len() <= 16);
    }
    assert_eq!(fixture.paths(START + 100 * MS), [("/root".to_owned(), Depth::Below)]);
}

#[test]
fn new_directory_in_a_merged_one_is_checked_completely() {
    let mut fixture = Fixture::new(16);
    let root = fixture.root;
    for number in 0..17 {
        fixture.note(root, &format!("f{number}"), Depth::Name, START);
    }
    fixture.note(root, "new", Depth::Below, START);
    assert_eq!(fixture.paths(START + 100 * MS), [("/root".to_owned(), Depth::Below)]);
}

#[test]
fn lone_names_of_many_directories_merge_into_trees() {
    let mut fixture = Fixture::new(64);
    let root = fixture.root;
    let tree = fixture.directory(root, "tree");
    let lone = fixture.directory(root, "lone");
    fixture.note(lone, "f", Depth::Name, START);
    for number in 0..100 {
        let directory = fixture.directory(tree, &format!("d{number}"));
        fixture.note(directory, "f", Depth::Name, START);
    }
    assert!(fixture.set.len() <= 64);
    let paths = fixture.paths(START + 100 * MS);
    assert_eq!(paths[0], ("/root/lone/f".to_owned(), Depth::Name));
    assert!(paths.contains(&("/root/tree".to_owned(), Depth::Below)), "{paths:?}");
}

#[test]
fn connected_names_are_due_together() {
    let mut fixture = Fixture::new(100);
    let root = fixture.root;
    let old = fixture.note(root, "old", Depth::Name, START);
    let new = fixture.note(root, "new", Depth::Name, START);
    let third = fixture.note(root, "third", Depth::Name, START);
    fixture.set.connect(old, new);
    fixture.set.connect(new, third);
    fixture.note(root, "alone", Depth::Name, START + MS);
    // The first name changes on and on.
    fixture.set.note(&mut fixture.index, root, b"old", Depth::Name, &noted(START + 15 * MS, 7));
    let due: Vec<String> = fixture.paths(START + 20 * MS).into_iter().map(|(p, _)| p).collect();
    assert_eq!(due, ["/root/new", "/root/old", "/root/third"]);
    assert_eq!(fixture.set.len(), 1);
}

#[test]
fn busy_name_is_checked_less_often() {
    let mut fixture = Fixture::new(100);
    let root = fixture.root;
    let mut now = START;
    let mut checks = 0;
    for _ in 0..10_000 {
        now += 10 * MS;
        fixture.note(root, "busy", Depth::Name, now);
        checks += fixture.due(now).len();
    }
    assert!((8..15).contains(&checks), "{checks} checks in 100 s");
    fixture.due(now + 60_000 * MS);
    now += 200_000 * MS;
    fixture.note(root, "busy", Depth::Name, now);
    assert_eq!(fixture.due(now + 20 * MS).len(), 1, "normal again after a quiet minute");
}

#[test]
fn entry_that_is_put_back_keeps_its_notices() {
    let mut fixture = Fixture::new(100);
    let root = fixture.root;
    fixture.note(root, "f", Depth::Name, START);
    let mut ready = Vec::new();
    fixture.set.take_due(&mut fixture.index, START + 100 * MS, 1, |_, entry| ready.push(entry));
    fixture.set.put_back(&mut fixture.index, &ready[0], START + 200 * MS);
    let (_, _, notices) = fixture.due(START + 2_000 * MS).remove(0);
    assert_eq!(notices, ready[0].notices);
}

#[test]
fn windows_can_be_set() {
    let windows = Windows::new(Duration::from_secs(2), Duration::from_secs(5));
    let mut index = DirectoryIndex::new(10);
    let mut set = DirtySet::new(windows, 100);
    let mut noted = noted(START, 7);
    noted.ended = false;
    set.note(&mut index, DirectoryIndex::top(), b"f", Depth::Name, &noted);
    assert_eq!(set.next_due(), Some(START + 2_000 * MS));
}
