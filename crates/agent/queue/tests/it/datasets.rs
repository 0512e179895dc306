//! The baseline, touches, documents of other datasets, and notes.

use crate::common::{apply, base, baseline, cycle, delete_op, file, files, open, open_new};
use model::{Baseline as _, Dataset, ItemKey, Op};
use queue::{Body, DocumentStep, QueueError};

#[test]
fn baseline_lists_a_directory_without_nested_or_deleted_items() {
    let (_folder, _, _, queue) = open_new();
    apply(&queue, vec![base("/a/1", 1), base("/a/2", 2), base("/a/b/3", 3), base("/ab/4", 4)]);
    cycle(&queue);
    apply(&queue, vec![delete_op("/a/2")]);
    assert_eq!(baseline(&queue, "/a"), [("1".to_owned(), 1)]);
    assert_eq!(baseline(&queue, "/nowhere"), []);
    let mut held = queue.baseline(&files()).unwrap();
    let mut below = held.directories_below(b"/").unwrap();
    below.sort();
    assert_eq!(below, [&b"/a"[..], b"/a/b", b"/ab"]);
    assert_eq!(held.directories_below(b"/a").unwrap(), [b"/a/b"]);
    assert!(held.directories_below(b"/a/b").unwrap().is_empty());
}

#[test]
fn directories_below_root_exclude_root() {
    let (_folder, _, _, queue) = open_new();
    apply(&queue, vec![base("/", 1), base("/x", 2), base("/a/1", 3)]);
    let mut held = queue.baseline(&files()).unwrap();
    assert_eq!(held.directories_below(b"/").unwrap(), [b"/a"]);
    assert_eq!(baseline(&queue, "/"), [(String::new(), 1), ("x".to_owned(), 2)]);
}

#[test]
fn touch_updates_the_baseline_and_sends_nothing() {
    let (_folder, _, _, queue) = open_new();
    apply(&queue, vec![base("/a/1", 1)]);
    cycle(&queue);
    let key = ItemKey::of_path(b"/a/1");
    apply(&queue, vec![Op::Touch { key: key.clone(), observation: file(7) }]);
    assert_eq!(baseline(&queue, "/a"), [("1".to_owned(), 7)]);
    assert_eq!(cycle(&queue), []);
    // A touch of an item that does not exist creates it.
    apply(&queue, vec![delete_op("/a/1"), Op::Touch { key, observation: file(8) }]);
    assert_eq!(cycle(&queue), [("/a/1".to_owned(), Some(8))]);
}

#[test]
fn range_read_matches_changes_to_existing_rows() {
    let (_folder, _, _, queue) = open_new();
    // Enough rows and changes for one range query over the directory.
    apply(&queue, (0..200).step_by(2).map(|n| base(&format!("/a/{n:03}"), n)).collect());
    cycle(&queue);
    apply(&queue, (50..150).map(|n| base(&format!("/a/{n:03}"), n + 1000)).collect());
    let held = baseline(&queue, "/a");
    assert_eq!(held.len(), 150);
    for (name, size) in held {
        let n: u64 = name.parse().unwrap();
        assert_eq!(size, if (50..150).contains(&n) { n + 1000 } else { n }, "{name}");
    }
    assert_eq!(cycle(&queue).len(), 100);
}

#[test]
fn names_of_arbitrary_bytes_round_trip() {
    let (_folder, _, _, queue) = open_new();
    let names: Vec<Vec<u8>> = (1..=255u8).filter(|b| *b != b'/').map(|b| vec![b, 0xff]).collect();
    let ops = names.iter().map(|name| Op::Put {
        key: ItemKey::new(&b"/\xffdir"[..], name.clone()),
        observation: file(1),
        change: None,
    });
    apply(&queue, ops.collect());
    let mut held = Vec::new();
    queue.baseline(&files()).unwrap().directory(b"/\xffdir", &mut held).unwrap();
    let mut found: Vec<_> = held.into_iter().map(|item| item.name).collect();
    found.sort();
    assert_eq!(found, names);
}

#[test]
fn documents_of_any_dataset_are_sent_but_equal_ones_are_not() {
    let (_folder, _, _, queue) = open_new();
    let packages = Dataset::new("inventory-packages");
    let put = |key: &[u8], body: &[u8]| queue.put_document(&packages, key, body).unwrap();
    assert!(put(b"bash", b"{\"v\":1}") && put(b"zsh", b"{}"));
    assert!(!put(b"bash", b"{\"v\":1}"));
    let tell = || {
        queue.begin_cycle(&packages).unwrap();
        let mut sent = Vec::new();
        while let Some(lease) = queue.lease(&packages, usize::MAX).unwrap() {
            sent.extend(lease.items().map(|i| (i.key.name.to_vec(), i.body().unwrap())));
            queue.ack(lease, &[]).unwrap();
        }
        queue.end_cycle(&packages).unwrap();
        sent
    };
    let document = |body: &[u8]| Body::Document(body.to_vec());
    let expected = [(b"bash".to_vec(), document(b"{\"v\":1}")), (b"zsh".to_vec(), document(b"{}"))];
    assert_eq!(tell(), expected);
    assert!(!put(b"zsh", b"{}") && put(b"bash", b"{\"v\":2}"));
    let delete = |key| DocumentStep { key, document: None, event: None };
    let deleted = queue.apply_documents(&packages, &[delete(b"zsh"), delete(b"none")], &[]);
    assert_eq!(deleted.unwrap().items, 1);
    let expected = [(b"bash".to_vec(), document(b"{\"v\":2}")), (b"zsh".to_vec(), Body::Gone)];
    assert_eq!(tell(), expected);
    // The dataset of files is not affected.
    assert_eq!(cycle(&queue), []);
    let large = vec![b' '; model::limits::DOCUMENT_BYTES_MAX + 1];
    let refused = queue.put_document(&packages, b"k", &large);
    assert!(matches!(refused, Err(QueueError::TooLarge { what: "document", .. })));
}

#[test]
fn notes_survive_reopen_and_are_limited() {
    let (_folder, path, clock, queue) = open_new();
    assert_eq!(queue.meta_get("last_scan_us").unwrap(), None);
    queue.meta_set("last_scan_us", b"1").unwrap();
    queue.meta_set("last_scan_us", b"2").unwrap();
    let large = vec![0; queue::NOTE_BYTES_MAX + 1];
    assert!(matches!(queue.meta_set("x", &large), Err(QueueError::TooLarge { .. })));
    queue.close().unwrap();
    let (queue, _) = open(&path, &clock);
    assert_eq!(queue.meta_get("last_scan_us").unwrap(), Some(b"2".to_vec()));
}

#[test]
fn emptied_directories_are_removed_from_the_directory_table() {
    let (_folder, path, clock, queue) = open_new();
    for round in 0..20 {
        let file = format!("/tmp/build-{round}/x");
        apply(&queue, vec![base(&file, 1)]);
        cycle(&queue);
        apply(&queue, vec![delete_op(&file)]);
        cycle(&queue);
    }
    assert!(queue.baseline(&files()).unwrap().directories_below(b"/").unwrap().is_empty());
    queue.close().unwrap();
    let (queue, report) = open(&path, &clock);
    assert_eq!(report.items, 0);
    let db = rusqlite::Connection::open(&path).unwrap();
    let left: i64 = db.query_row("SELECT count(*) FROM directory", [], |r| r.get(0)).unwrap();
    assert_eq!(left, 0);
    drop(queue);
}
