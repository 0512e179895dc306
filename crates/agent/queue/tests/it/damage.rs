//! Damaged databases: bits flipped by the disk, and content that cannot be decoded. Valid items are
//! kept, only invalid ones are dropped and reported, and no damage makes the agent restart
//! endlessly.

use std::path::Path;

use crate::common::{
    self, add_files, apply, assert_dropped, assert_rebuilt, base, baseline, changed, crash_image,
    cycle, open, open_new, overwrite, own, try_open, with_suffix,
};
use model::Dataset;
use queue::{QueueError, QueueOptions};

#[test]
fn undecodable_item_is_named_and_dropped_at_the_next_open() {
    let (_folder, path, clock, queue) = open_new();
    add_files(&queue);
    apply(&queue, vec![changed("/e/1", 1), changed("/e/2", 2)]);
    cycle(&queue);
    let told = queue.lease_events(9, usize::MAX).unwrap().items;
    queue.close().unwrap();
    let (queue, _) = open(&path, &clock);
    let db = rusqlite::Connection::open(&path).unwrap();
    db.execute("UPDATE item SET observation = x'ff00' WHERE directory = 5", []).unwrap();
    drop(db);
    let mut reader = queue.baseline(&common::files()).unwrap();
    let refused = model::Baseline::directory(&mut reader, b"/d4", &mut Vec::new());
    assert!(refused.unwrap_err().0.contains("/d4/"));
    assert!(queue.is_damaged());
    queue.close().unwrap();
    let (queue, report) = open(&path, &clock);
    assert_dropped(&queue, &report, 50, "/d4/00200");
    // The rest is kept, including the events.
    assert_eq!((report.items, report.events), (1_952, 3));
    let now = queue.lease_events(9, usize::MAX).unwrap().items;
    assert_eq!(now[..2], told[..]);
    assert_eq!(baseline(&queue, "/d3").len(), 50);
    assert!(baseline(&queue, "/d4").is_empty());
    apply(&queue, vec![base("/d4/00200", 7)]);
    assert_eq!(cycle(&queue), own(&[("/d4/00200", Some(7))]));
    queue.close().unwrap();
    assert_eq!(queue::verify(&path).unwrap().problem_count, 0);
    assert!(!open(&path, &clock).1.needs_check());
}

/// One flipped bit makes an observation look like a document of another dataset.
#[test]
fn observation_that_decodes_as_a_document_is_dropped() {
    let (_folder, path, clock, queue) = open_new();
    apply(&queue, vec![base("/a/1", 1), base("/a/2", 2)]);
    let packages = Dataset::inventory_packages();
    assert!(queue.put_document(&packages, b"bash", b"{}").unwrap());
    queue.close().unwrap();
    let db = rusqlite::Connection::open(&path).unwrap();
    let flip = "UPDATE item SET observation = CAST(x'00' || substr(observation, 2) AS BLOB) \
                WHERE name = x'31'";
    assert_eq!(db.execute(flip, []).unwrap(), 1);
    drop(db);
    let (queue, report) = open(&path, &clock);
    assert_dropped(&queue, &report, 1, "/a/1");
    assert_eq!((report.items, baseline(&queue, "/a").len()), (2, 1));
}

/// Flips the lowest bit of the byte before this content, as a faulty disk may.
fn flip_before(path: &Path, content: &[u8]) {
    let all = std::fs::read(path).unwrap();
    let places = all.windows(content.len()).enumerate().filter(|(_, w)| *w == content);
    let [place] = places.map(|(place, _)| place - 1).collect::<Vec<_>>()[..] else {
        panic!("not one such content")
    };
    overwrite(path, place as u64, &[all[place] ^ 1]);
}

/// Returns the first column of a query, such as column types.
fn types(path: &Path, query: &str) -> Vec<String> {
    let db = rusqlite::Connection::open(path).unwrap();
    let mut select = db.prepare(query).unwrap();
    select.query_map([], |row| row.get(0)).unwrap().map(Result::unwrap).collect()
}

/// Blob and text differ in one bit of the record's header, which no check of SQLite covers.
#[test]
fn event_body_flipped_to_text_is_still_leased() {
    let (_folder, path, clock, queue) = open_new();
    apply(&queue, vec![changed("/e/1", 1), changed("/e/2", 2)]);
    let told = queue.lease_events(9, usize::MAX).unwrap().items;
    queue.close().unwrap();
    // The byte before the body is its type, because the dataset number 1 takes no byte.
    flip_before(&path, &told[0].body);
    assert_eq!(types(&path, "SELECT typeof(body) FROM event"), ["text", "blob"]);
    let check = types(&path, "PRAGMA integrity_check");
    assert_eq!(check, ["ok"]);
    assert_eq!(queue::verify(&path).unwrap().problem_count, 1);
    let (queue, report) = open(&path, &clock);
    assert!(!report.needs_check());
    assert_eq!(queue.lease_events(9, usize::MAX).unwrap().items, told);
    assert_eq!(queue.event(1).unwrap().as_ref(), Some(&told[0].body));
    let mut bodies = Vec::new();
    queue.events_after(&common::files(), 0, &mut |_, body| bodies.push(body.to_vec())).unwrap();
    assert_eq!(bodies, told.iter().map(|event| event.body.clone()).collect::<Vec<_>>());
    assert!(queue.status().unwrap().oldest_event_us.is_some());
    let lease = queue.lease_events(9, usize::MAX).unwrap();
    assert_eq!(queue.ack_events(lease).unwrap(), 2);
    assert!(!queue.is_damaged());
}

/// Each case is one flipped bit, written as SQL: 8-byte integer and real, zero and empty text, blob
/// and text.
#[test]
fn item_with_a_mistyped_column_is_dropped_alone() {
    for odd in [
        "observation = CAST(observation AS TEXT)",
        "seen = CAST(seen AS REAL) + 0.5",
        "gone = CAST('' AS TEXT)",
        "known = CAST('' AS TEXT)",
        "gone = 1",
    ] {
        let (_folder, path, clock, queue) = open_new();
        apply(&queue, vec![changed("/a/1", 1), base("/a/2", 2)]);
        queue.close().unwrap();
        let db = rusqlite::Connection::open(&path).unwrap();
        let sql = format!("UPDATE item SET {odd} WHERE name = x'31'");
        assert_eq!(db.execute(&sql, []).unwrap(), 1, "{odd}");
        drop(db);
        assert!(queue::verify(&path).unwrap().problem_count > 0, "{odd}");
        let (queue, report) = open(&path, &clock);
        assert_dropped(&queue, &report, 1, "/a/1");
        assert_eq!((report.items, report.events), (1, 2), "{odd}");
        assert_eq!(baseline(&queue, "/a"), [("2".to_owned(), 2)]);
        assert_eq!(cycle(&queue), own(&[("/a/2", Some(2))]));
    }
}

#[test]
fn mistyped_notes_and_meta_values_are_tolerated() {
    let (_folder, path, clock, queue) = open_new();
    apply(&queue, vec![base("/a/1", 1)]);
    let refuse = queue::Skip { index: 0, reason: model::SkipReason::Json, version: 0 };
    common::cycle_skipping(&queue, &|_| vec![refuse]);
    queue.meta_set("n", b"value").unwrap();
    let (_image, copy) = crash_image(&path);
    let db = rusqlite::Connection::open(&copy).unwrap();
    db.execute_batch(
        "UPDATE note SET value = CAST(value AS TEXT);
         INSERT OR REPLACE INTO meta VALUES('events_dropped', CAST('' AS TEXT));
         UPDATE exception SET reason = CAST(reason AS BLOB)",
    )
    .unwrap();
    drop(db);
    let (queue, report) = open(&copy, &clock);
    assert_eq!((report.items, report.rebuilt, report.dropped), (1, None, None));
    assert_eq!(queue.meta_get("n").unwrap().as_deref(), Some(&b"value"[..]));
    assert_eq!(queue::peek_note(&copy, "n").unwrap().as_deref(), Some(&b"value"[..]));
    assert_eq!(queue.status().unwrap().events_dropped, 0);
    assert!(queue.snapshot(&common::files()).unwrap().exceptions().is_empty());
    assert!(!queue.is_damaged());
}

/// Open does not check everything. Damage that it does not find must not make the agent restart
/// endlessly.
#[test]
fn damage_undetected_at_open_is_moved_aside_after_three_hits() {
    let (_folder, path, clock, queue) = open_new();
    apply(&queue, vec![base("/a/1", 1)]);
    queue.meta_set("n", b"value").unwrap();
    queue.close().unwrap();
    let db = rusqlite::Connection::open(&path).unwrap();
    db.execute("UPDATE note SET value = 1.5", []).unwrap();
    drop(db);
    for _ in 0..3 {
        let (queue, report) = open(&path, &clock);
        assert_eq!((report.rebuilt, report.items), (None, 1));
        assert!(matches!(queue.meta_get("n"), Err(QueueError::Corrupt { .. })));
        assert!(queue.is_damaged());
        queue.close().unwrap();
    }
    let (queue, report) = open(&path, &clock);
    assert_rebuilt(&queue, &report);
    queue.close().unwrap();
    let (queue, report) = open(&path, &clock);
    assert!(!report.needs_check());
    drop(queue);
}

#[test]
fn clean_run_resets_the_damage_counter() {
    let (_folder, path, clock, mut queue) = open_new();
    for round in 0..8 {
        if round % 3 > 0 {
            queue.note_damage();
        }
        queue.close().unwrap();
        let report;
        (queue, report) = open(&path, &clock);
        assert_eq!((report.unclean, report.rebuilt), (round % 3 > 0, None), "{round}");
    }
}

#[test]
fn more_rows_than_can_be_dropped_move_the_file_aside() {
    let (_folder, path, clock, queue) = open_new();
    let items = |n: u64| base(&format!("/d{:02}/{n:05}", n / 500), n);
    apply(&queue, (0..10_001).map(items).collect());
    queue.close().unwrap();
    let spoil = |but: &[u8]| {
        let db = rusqlite::Connection::open(&path).unwrap();
        db.execute("UPDATE item SET observation = x'ff00' WHERE name <> ?1", [but]).unwrap();
    };
    spoil(b"00000");
    let (queue, report) = open(&path, &clock);
    assert_dropped(&queue, &report, 10_000, "/d00/00001");
    assert_eq!(report.items, 1);
    apply(&queue, (0..10_001).map(items).collect());
    queue.close().unwrap();
    spoil(b"");
    let (queue, report) = open(&path, &clock);
    assert_rebuilt(&queue, &report);
}

/// A failed read of the disk must not look like damage: the file would be moved aside.
#[test]
fn unreadable_database_is_an_error_of_the_disk() {
    let (folder, path, clock, queue) = open_new();
    queue.close().unwrap();
    overwrite(&path, 0, &[0xff; 4096]);
    // Every read at the beginning of this file fails with EIO.
    std::os::unix::fs::symlink("/proc/self/mem", with_suffix(&path, "-wal")).unwrap();
    let error = try_open(&path, &QueueOptions::default(), &clock).err().unwrap().to_string();
    assert!(error.contains("os error 5"), "{error}");
    assert!(error.contains("agent.db-wal: read: "), "{error}");
    let copies = std::fs::read_dir(folder.path()).unwrap().flatten();
    let moved = copies.filter(|e| e.file_name().to_string_lossy().contains("corrupt"));
    assert_eq!(moved.count(), 0);
}
