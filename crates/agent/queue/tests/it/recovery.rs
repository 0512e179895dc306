//! Opening damaged, foreign, newer and locked databases, and databases after an unclean end.

use std::io::Read as _;
use std::os::unix::fs::PermissionsExt as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::common::{
    self, add_files, apply, assert_rebuilt, base, baseline, changed, crash_image, cycle, delete_op,
    files, open, open_new, overwrite, own, try_open, with_suffix,
};
use env::clock::{Clock, SystemClock};
use env::random::SystemRandom;
use model::Dataset;
use queue::{Queue, QueueError, QueueOptions};

#[test]
fn overwritten_database_header_moves_file_aside() {
    let (_folder, path, clock, queue) = open_new();
    add_files(&queue);
    queue.close().unwrap();
    overwrite(&path, 0, &[0x55; 4096]);
    let (queue, report) = open(&path, &clock);
    assert_rebuilt(&queue, &report);
    let mut kept = Vec::new();
    let moved_to = &report.rebuilt.as_ref().unwrap().moved_to;
    std::fs::File::open(moved_to).unwrap().read_to_end(&mut kept).unwrap();
    assert_eq!(kept[..4096], [0x55; 4096]);
    queue.close().unwrap();
    assert!(open(&path, &clock).1.rebuilt.is_none());
}

#[test]
fn damaged_pages_after_unclean_end_rebuild_database() {
    let (_folder, path, clock, queue) = open_new();
    add_files(&queue);
    queue.close().unwrap();
    let (queue, _) = open(&path, &clock);
    apply(&queue, vec![base("/late/1", 1)]);
    let (_image, copy) = crash_image(&path);
    let length = std::fs::metadata(&copy).unwrap().len();
    for page in (5..length / 4096).step_by(3) {
        overwrite(&copy, page * 4096, &[0xee; 512]);
    }
    let (queue, report) = open(&copy, &clock);
    assert_rebuilt(&queue, &report);
}

#[test]
fn damaged_pages_after_clean_close_rebuild_database() {
    let (_folder, path, clock, queue) = open_new();
    add_files(&queue);
    queue.close().unwrap();
    let length = std::fs::metadata(&path).unwrap().len();
    for page in length / 8192..length / 4096 {
        overwrite(&path, page * 4096, &[0; 4096]);
    }
    let (queue, report) = open(&path, &clock);
    assert!(!report.unclean);
    assert_rebuilt(&queue, &report);
}

#[test]
fn missing_directory_row_is_damage() {
    let (_folder, path, clock, queue) = open_new();
    add_files(&queue);
    let (_image, copy) = crash_image(&path);
    let db = rusqlite::Connection::open(&copy).unwrap();
    db.execute("DELETE FROM directory WHERE id = 3", []).unwrap();
    drop(db);
    let (queue, report) = open(&copy, &clock);
    assert_rebuilt(&queue, &report);
}

/// Open reads the last event first, so the damage is found there.
#[test]
fn damaged_events_after_a_clean_close_are_moved_aside() {
    let (_folder, path, clock, queue) = open_new();
    apply(&queue, (0..2000).map(|n| changed(&format!("/e/{n:05}"), n)).collect());
    queue.close().unwrap();
    let db = rusqlite::Connection::open(&path).unwrap();
    let leaves = "SELECT pageno FROM dbstat WHERE name = 'event' AND pagetype = 'leaf'";
    let last: Option<i64> = db
        .prepare(leaves)
        .and_then(|mut s| s.query_map([], |r| r.get(0))?.collect::<Result<Vec<i64>, _>>())
        .ok()
        .and_then(|pages| pages.into_iter().max());
    // If SQLite has no `dbstat`, take the last page that has the name of the last file.
    let bytes = std::fs::read(&path).unwrap();
    let found = bytes.windows(8).rposition(|w| w == b"/e/01999").unwrap() / 4096;
    let page = last.map_or(found as u64, |page| page as u64 - 1);
    drop(db);
    overwrite(&path, page * 4096, &[0xee; 4096]);
    let (queue, report) = open(&path, &clock);
    assert_rebuilt(&queue, &report);
}

/// The database is older than the last acknowledged cycle. The server may have its items although
/// the database has no record of the cycle that sent them.
#[test]
fn delete_of_an_item_in_a_restored_copy_is_sent() {
    for (unfinished, clean) in [(false, false), (true, false), (false, true), (true, true)] {
        let (_folder, path, clock, queue) = open_new();
        apply(&queue, vec![base("/a/1", 1)]);
        if unfinished {
            queue.begin_cycle(&files()).unwrap();
        }
        apply(&queue, vec![base("/a/2", 2)]);
        if clean {
            queue.close().unwrap();
        }
        let (_image, copy) = crash_image(&path);
        let queue = if clean { open(&path, &clock).0 } else { queue };
        cycle(&queue);
        cycle(&queue);
        drop(queue);
        let (queue, report) = open(&copy, &clock);
        assert_eq!(report.unclean, !clean);
        apply(&queue, vec![delete_op("/a/2"), base("/a/3", 3)]);
        apply(&queue, vec![delete_op("/a/3")]);
        let told = [cycle(&queue), cycle(&queue)].concat();
        assert!(told.contains(&("/a/2".to_owned(), None)), "{unfinished} {clean}: {told:?}");
        assert!(!told.iter().any(|(path, _)| path == "/a/3"), "{told:?}");
    }
}

#[test]
fn damaged_copies_are_limited_to_three() {
    let (folder, path, clock, queue) = open_new();
    queue.close().unwrap();
    for round in 0..6 {
        std::fs::write(&path, format!("garbage {round}").repeat(1000)).unwrap();
        let (queue, report) = open(&path, &clock);
        assert!(report.rebuilt.is_some());
        queue.close().unwrap();
    }
    let names = std::fs::read_dir(folder.path()).unwrap().flatten();
    let copies = names.filter(|e| e.file_name().to_string_lossy().contains("corrupt")).count();
    assert_eq!(copies, 3);
}

#[test]
fn newer_database_version_is_refused_and_left_unchanged() {
    let (_folder, path, clock, queue) = open_new();
    add_files(&queue);
    queue.close().unwrap();
    let db = rusqlite::Connection::open(&path).unwrap();
    db.pragma_update(None, "user_version", 7).unwrap();
    drop(db);
    let before = std::fs::read(&path).unwrap();
    let Err(error) = try_open(&path, &QueueOptions::default(), &clock) else { panic!("opened") };
    assert!(matches!(error, QueueError::Newer { found: 7, known: 2, .. }));
    assert!(error.to_string().contains("version 7"), "{error}");
    assert!(std::fs::read(&path).unwrap() == before, "changed");
}

#[test]
fn foreign_database_is_refused_and_left_unchanged() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("agent.db");
    let db = rusqlite::Connection::open(&path).unwrap();
    db.execute_batch("CREATE TABLE precious(x); INSERT INTO precious VALUES(1)").unwrap();
    drop(db);
    let before = std::fs::read(&path).unwrap();
    let clock = env::clock::ManualClock::at(common::START_US);
    let opened = try_open(&path, &QueueOptions::default(), &clock);
    assert!(matches!(opened, Err(QueueError::Foreign { .. })));
    assert!(std::fs::read(&path).unwrap() == before, "changed");
}

#[test]
fn second_writer_is_locked_out_until_first_closes() {
    let (_folder, path, clock, queue) = open_new();
    let random = Arc::new(SystemRandom);
    let second = Queue::open(&path, QueueOptions::default(), Arc::new(clock.clone()), random);
    assert!(matches!(second, Err(QueueError::Locked { .. })));
    queue.close().unwrap();
    assert!(matches!(queue.begin_cycle(&files()), Err(QueueError::Closed { .. })));
    assert!(matches!(queue.status(), Err(QueueError::Closed { .. })));
    open(&path, &clock);
}

#[test]
fn database_files_have_mode_0640() {
    let (_folder, path, _, queue) = open_new();
    apply(&queue, vec![base("/a/1", 1)]);
    for suffix in ["", "-wal", "-shm", ".lock"] {
        let metadata = std::fs::metadata(with_suffix(&path, suffix)).unwrap();
        assert_eq!(metadata.permissions().mode() & 0o777, 0o640, "{suffix}");
    }
}

#[test]
fn event_ids_survive_kill_and_are_not_reused() {
    let (_folder, path, clock, queue) = open_new();
    apply(&queue, vec![changed("/a/1", 1), changed("/a/2", 2)]);
    let before = queue.lease_events(9, usize::MAX).unwrap();
    let (_image, copy) = crash_image(&path);
    let (queue, report) = open(&copy, &clock);
    assert!(report.unclean && report.events == 2);
    // Queued events keep their ids, because the server may have them already.
    assert_eq!(queue.lease_events(9, usize::MAX).unwrap(), before);
    apply(&queue, vec![changed("/a/3", 3)]);
    let after = queue.lease_events(9, usize::MAX).unwrap();
    assert_eq!(after.items[..2], before.items[..]);
    assert_eq!(after.items[2].id, format!("{}-3", report.epoch));
    assert!(!before.items[0].id.starts_with(&report.epoch));
    // Numbers are not reused even after all events were removed.
    assert_eq!(queue.ack_events(after).unwrap(), 3);
    queue.close().unwrap();
    let (queue, report) = open(&copy, &clock);
    apply(&queue, vec![changed("/a/4", 4)]);
    let last = queue.lease_events(9, usize::MAX).unwrap();
    assert_eq!(last.items[0].id, format!("{}-4", report.epoch));
}

#[test]
fn delete_after_an_unclean_shutdown_is_always_sent() {
    let (_folder, path, clock, queue) = open_new();
    apply(&queue, vec![base("/a/1", 1)]);
    // A cycle that a power cut lost may have sent the item to the server.
    let (_image, copy) = crash_image(&path);
    let (queue, _) = open(&copy, &clock);
    apply(&queue, vec![delete_op("/a/1")]);
    assert_eq!(cycle(&queue), own(&[("/a/1", None)]));
}

#[test]
fn clean_close_removes_wal_and_needs_no_check() {
    let (folder, path, clock, queue) = open_new();
    apply(&queue, vec![changed("/a/1", 1)]);
    let epoch = queue.status().unwrap().epoch;
    queue.close().unwrap();
    let mut names: Vec<_> =
        std::fs::read_dir(folder.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(names, ["agent.db", "agent.db.lock"]);
    let (queue, report) = open(&path, &clock);
    assert!(!report.needs_check() && !report.created);
    assert_eq!((report.items, report.events), (1, 1));
    assert_ne!(report.epoch, epoch, "a copy that is put back must not make an id twice");
    // The queued event keeps the id under which it may have been sent.
    assert_eq!(queue.lease_events(1, 1).unwrap().items[0].id, format!("{epoch}-1"));
    assert_eq!(baseline(&queue, "/a"), [("1".to_owned(), 1)]);
}

/// The system's clock, which fails once on request.
struct BreakingClock(SystemClock, AtomicBool);

impl Clock for BreakingClock {
    fn now_us(&self) -> u64 {
        assert!(!self.1.swap(false, Ordering::SeqCst), "the clock broke");
        self.0.now_us()
    }

    fn monotonic(&self) -> Duration {
        self.0.monotonic()
    }
}

#[test]
fn panic_in_a_transaction_rolls_it_back_and_blocks_no_writer() {
    let folder = tempfile::tempdir().unwrap();
    let clock = Arc::new(BreakingClock(SystemClock::new(), AtomicBool::new(false)));
    let path = folder.path().join("agent.db");
    let opened = || {
        let clock: Arc<dyn Clock> = clock.clone();
        common::open_unlocked(&path, &QueueOptions::default(), &clock).unwrap()
    };
    let (queue, _) = opened();
    let packages = Dataset::inventory_packages();
    assert!(queue.put_document(&packages, b"a", b"1").unwrap());
    let die = |key: &'static [u8]| {
        clock.1.store(true, Ordering::SeqCst);
        let (queue, packages) = (queue.clone(), packages.clone());
        let dying = std::thread::spawn(move || queue.put_document(&packages, key, b"2"));
        assert!(dying.join().is_err());
    };
    die(b"b");
    assert!(queue.put_document(&packages, b"c", b"3").unwrap());
    let mut held = Vec::new();
    queue.documents(&packages, &mut |key, _| held.push(key.to_vec())).unwrap();
    assert_eq!(held, [b"a".to_vec(), b"c".to_vec()]);
    // A panic does not prevent a clean shutdown either.
    die(b"d");
    queue.close().unwrap();
    let (queue, report) = opened();
    assert!(!report.unclean);
    assert_eq!(report.items, 2);
    queue.close().unwrap();
}
