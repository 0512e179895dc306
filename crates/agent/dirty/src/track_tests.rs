use std::time::Duration;

use model::{Depth, DueCheck};

use super::*;

const START: u64 = 1_000_000_000_000;
const CREATE: u64 = libc::FAN_CREATE;
const DELETE: u64 = libc::FAN_DELETE;
const DIRECTORY: u64 = libc::FAN_ONDIR;
const CLOSE: u64 = libc::FAN_CLOSE_WRITE;

/// A tracker whose directories have the handles `path`, so that tests can name them.
struct Fixture(Tracker, u64);

impl Fixture {
    fn new(roots: &[&str], excluded: &[&str]) -> Self {
        let bytes =
            |paths: &[&str]| paths.iter().map(|p| p.as_bytes().to_vec()).collect::<Vec<_>>();
        let paths = Paths {
            roots: bytes(roots),
            excluded: bytes(excluded),
            canary: Some(b"/own/canary".to_vec()),
            directories_max: 1_000,
            dirty_max: 1_000,
        };
        Self(Tracker::new(paths, Windows::default()), START)
    }

    fn enter(&mut self, path: &str) {
        self.0.enter(path.as_bytes(), path.as_bytes()).unwrap();
    }

    fn apply(&mut self, mask: u64, directory: &str, name: &str, object: &str) {
        let directory = Handle(directory.as_bytes());
        self.0.apply(
            &Notification {
                mask,
                pid: 7,
                entry: Some(Entry { directory, name: name.as_bytes() }),
                moved_to: None,
                object: Some(Handle(object.as_bytes())),
            },
            &ReadTimes { from_ns: self.1 - 1, to_ns: self.1, wall_us: 1 },
        );
    }

    fn rename(&mut self, mask: u64, from: (&str, &str), to: (&str, &str), object: &str) {
        let entry = |(directory, name): (&'static str, &'static str)| Entry {
            directory: Handle(directory.as_bytes()),
            name: name.as_bytes(),
        };
        let leak = |(directory, name): (&str, &str)| -> (&'static str, &'static str) {
            (directory.to_owned().leak(), name.to_owned().leak())
        };
        self.0.apply(
            &Notification {
                mask: mask | libc::FAN_RENAME,
                pid: 7,
                entry: Some(entry(leak(from))),
                moved_to: Some(entry(leak(to))),
                object: Some(Handle(object.as_bytes())),
            },
            &ReadTimes { from_ns: self.1 - 1, to_ns: self.1, wall_us: 1 },
        );
    }

    /// Returns what is due in the end, as paths.
    fn due(&mut self) -> Vec<(String, Depth)> {
        let later = self.1 + Duration::from_mins(1).as_nanos() as u64;
        // A quiet time follows, so that no name is busy.
        self.1 = later + Duration::from_mins(10).as_nanos() as u64;
        let show = |due: DueCheck| (String::from_utf8(due.key.path()).unwrap(), due.depth);
        let mut due = self.0.take_due(later, usize::MAX);
        due.extend(std::iter::from_fn(|| self.0.take_due_tree(later)));
        due.sort_by(|one, other| one.key.cmp(&other.key));
        due.into_iter().map(show).collect()
    }
}

fn name(path: &str) -> (String, Depth) {
    (path.to_owned(), Depth::Name)
}

fn below(path: &str) -> (String, Depth) {
    (path.to_owned(), Depth::Below)
}

#[test]
fn names_in_a_directory_removed_between_reads_have_paths() {
    let mut fixture = Fixture::new(&["/r"], &[]);
    fixture.enter("/r");
    // The kernel merges creation and removal into the first of them.
    fixture.apply(CREATE | DELETE | DIRECTORY, "/r", "d", "D");
    fixture.apply(CREATE | DELETE, "D", "f", "F");
    fixture.apply(CREATE | DIRECTORY, "/r", "d", "E");
    fixture.0.drained();
    assert_eq!(fixture.due(), [below("/r/d"), name("/r/d/f")]);
    fixture.apply(CREATE, "E", "g", "G");
    assert_eq!(fixture.due(), [name("/r/d/g")]);
    fixture.apply(CREATE, "D", "late", "F");
    assert_eq!(fixture.due(), [], "the removed directory is forgotten");
}

#[test]
fn notifications_before_a_scan_enters_are_kept() {
    let mut fixture = Fixture::new(&["/r"], &[]);
    fixture.enter("/r");
    fixture.apply(CREATE, "/r/d", "f", "F");
    fixture.apply(libc::FAN_ATTRIB | DIRECTORY, "/r/d", ".", "/r/d");
    assert_eq!(fixture.due(), []);
    fixture.enter("/r/d");
    assert_eq!(fixture.due(), [name("/r/d"), name("/r/d/f")]);
    fixture.0.end_first_scan();
    fixture.apply(CREATE, "/r/e", "f", "F");
    fixture.enter("/r/e");
    assert_eq!(fixture.due(), [], "after the first scan the listing is enough");
    assert_eq!(fixture.0.unknown_handles(), 3);
}

#[test]
fn whole_file_system_can_be_a_root() {
    let mut fixture = Fixture::new(&["/"], &["/own"]);
    fixture.enter("/");
    fixture.enter("/etc");
    fixture.apply(CREATE, "/etc", "f", "F");
    fixture.apply(libc::FAN_ATTRIB | DIRECTORY, "/", ".", "/");
    fixture.apply(libc::FAN_ATTRIB | DIRECTORY, "/etc", ".", "/etc");
    fixture.apply(CREATE | DIRECTORY, "/", "own", "OWN");
    fixture.apply(CREATE, "OWN", "f", "F");
    assert_eq!(fixture.due(), [name("/"), name("/etc"), name("/etc/f")]);
    fixture.0.dirty_all(&NotificationInfo {
        now: START,
        wall_us: 1,
        ..NotificationInfo::default()
    });
    fixture.apply(CREATE, "/etc", "g", "F");
    assert_eq!(fixture.due(), [below("/")]);
}

#[test]
fn change_of_a_path_above_a_root_makes_it_due() {
    let mut fixture = Fixture::new(&["/a/b/root", "/a/other"], &[]);
    for path in ["/", "/a", "/a/b", "/a/b/root"] {
        let node = fixture.0.add_path(path.as_bytes()).unwrap();
        fixture.0.index.set_handle(node, path.as_bytes());
    }
    fixture.apply(CREATE, "/a", "f", "F");
    assert_eq!(fixture.due(), []);
    fixture.rename(DIRECTORY, ("/a", "b"), ("/a", "c"), "/a/b");
    assert_eq!(fixture.due(), [below("/a/b/root")]);
    assert_eq!(fixture.0.moved_roots, [0].into());
    fixture.apply(DELETE | DIRECTORY, "/", "a", "/a");
    assert_eq!(fixture.due(), [below("/a/other"), below("/a/b/root")]);
}

#[test]
fn close_alone_makes_no_writer_where_writes_are_notified() {
    let closed_only = |marked_ns: u64, masks: &[u64]| {
        let mut t = Fixture::new(&["/r"], &[]);
        let node = t.0.enter(b"/r", b"/r").unwrap();
        t.0.set_marked(node, marked_ns);
        for mask in masks {
            t.apply(*mask, "/r", "f", "file");
        }
        let due = t.0.take_due(START * 2, 10);
        let writers = due.iter().flat_map(|due| &due.notices.writers);
        writers.map(|writer| writer.seen == WriterSeen::OnlyClosing).collect::<Vec<_>>()
    };
    let before = START - 2;
    assert_eq!(closed_only(before, &[CLOSE]), [true]);
    assert_eq!(closed_only(before, &[CLOSE | libc::FAN_MODIFY]), [false]);
    assert_eq!(closed_only(before, &[CLOSE, CREATE]), [false], "in any order");
    assert_eq!(closed_only(before, &[libc::FAN_ATTRIB, CLOSE]), [false]);
    assert_eq!(closed_only(START - 1, &[CLOSE]), [false], "the write may be before the mark");
    assert_eq!(closed_only(0, &[CLOSE]), [false], "without a mark no write is notified");
}

#[test]
fn names_below_a_checked_directory_are_taken_early() {
    let mut fixture = Fixture::new(&["/r"], &[]);
    fixture.enter("/r");
    fixture.apply(CREATE | DIRECTORY, "/r", "new", "NEW");
    fixture.apply(CREATE | DIRECTORY, "NEW", "deep", "DEEP");
    fixture.apply(CREATE, "DEEP", "f", "F");
    fixture.apply(CREATE, "/r", "newer", "G");
    let taken = fixture.0.take_below(b"/r/new", START);
    let mut paths: Vec<_> = taken.iter().map(|due| due.key.path()).collect();
    paths.sort();
    assert_eq!(paths, [b"/r/new/deep".to_vec(), b"/r/new/deep/f".to_vec()]);
    assert!(taken.iter().all(|due| !due.notices.writers.is_empty()));
    assert_eq!(fixture.due(), [below("/r/new"), name("/r/newer")]);
    assert_eq!(fixture.0.take_below(b"/r/gone", START), []);
}

#[test]
fn removed_nested_root_is_marked_again() {
    let mut fixture = Fixture::new(&["/r", "/r/nested"], &[]);
    fixture.enter("/r");
    fixture.enter("/r/nested");
    fixture.apply(DELETE | DIRECTORY, "/r", "nested", "/r/nested");
    assert_eq!(fixture.due(), [below("/r/nested")]);
    assert_eq!(fixture.0.moved_roots, [1].into());
}

#[test]
fn moved_directory_keeps_the_depth_of_its_check() {
    let mut fixture = Fixture::new(&["/r"], &[]);
    fixture.enter("/r");
    fixture.apply(CREATE | DIRECTORY, "/r", "d", "D");
    fixture.rename(DIRECTORY, ("/r", "d"), ("/r", "e"), "D");
    fixture.apply(CREATE, "D", "f", "F");
    assert_eq!(fixture.due(), [below("/r/d"), below("/r/e"), name("/r/e/f")]);
}

#[test]
fn directory_that_moves_in_is_checked_completely() {
    let mut fixture = Fixture::new(&["/r"], &[]);
    fixture.enter("/r");
    fixture.0.end_first_scan();
    fixture.rename(DIRECTORY, ("OUTSIDE", "d"), ("/r", "d"), "D");
    fixture.apply(CREATE, "D", "f", "F");
    assert_eq!(fixture.due(), [below("/r/d"), name("/r/d/f")]);
    fixture.rename(DIRECTORY, ("/r", "d"), ("OUTSIDE", "d"), "D");
    fixture.0.drained();
    fixture.due();
    fixture.apply(CREATE, "D", "f", "F");
    assert_eq!(fixture.due(), [], "it moved out");
}

#[test]
fn only_the_canary_file_counts_in_its_folder() {
    let mut fixture = Fixture::new(&["/r"], &["/own"]);
    for path in ["/own", "/own/canary"] {
        let node = fixture.0.add_path(path.as_bytes()).unwrap();
        fixture.0.index.set_handle(node, path.as_bytes());
    }
    fixture.apply(CREATE, "/own/canary", "agent.db", "F");
    assert_eq!(fixture.0.dirty.len(), 0);
    assert!(!fixture.0.saw_canary(u64::MAX));
    fixture.apply(libc::FAN_CLOSE_WRITE, "/own/canary", CANARY_FILE, "F");
    assert!(!fixture.0.saw_canary(START), "it passes the window");
    assert!(fixture.0.saw_canary(START + 1_000_000_000));
}

#[test]
fn entry_of_a_lost_directory_is_put_back_above() {
    let mut fixture = Fixture::new(&["/r"], &[]);
    fixture.enter("/r");
    let key = ItemKey::new(&b"/r/gone/deep"[..], &b"f"[..]);
    let due = DueCheck { key, depth: Depth::Name, notices: model::Notices::default() };
    fixture.0.put_back(due, START);
    assert_eq!(fixture.due(), [below("/r/gone")]);
}
