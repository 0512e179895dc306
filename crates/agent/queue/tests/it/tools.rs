//! The functions behind `holdfast queue list`, `verify` and `compact`.

use std::ops::ControlFlow;
use std::path::Path;

use crate::common::{apply, base, changed, cycle, delete_op, open, open_new};
use model::Dataset;
use queue::{ListFilter, ListedItem, compact, list, verify};
use rusqlite::Connection;

fn listed(path: &Path, filter: &ListFilter) -> Vec<ListedItem> {
    let mut found = Vec::new();
    list(path, filter, &mut |item| {
        found.push(item);
        ControlFlow::Continue(())
    })
    .unwrap();
    found
}

#[test]
fn list_applies_its_filters() {
    let (_folder, path, _, queue) = open_new();
    apply(&queue, vec![base("/a/1", 1), base("/a/2", 2), base("/b/1", 3)]);
    cycle(&queue);
    apply(&queue, vec![changed("/a/2", 4), delete_op("/b/1")]);
    queue.put_document(&Dataset::new("inventory-packages"), b"bash", b"{}").unwrap();
    let all = listed(&path, &ListFilter::default());
    assert_eq!(all.len(), 4);
    let pending = listed(&path, &ListFilter { pending: true, ..ListFilter::default() });
    let names: Vec<_> = pending
        .iter()
        .map(|item| (String::from_utf8(item.key.path()).unwrap(), item.body.is_gone(), item.known))
        .collect();
    assert_eq!(
        names,
        [
            ("/a/2".to_owned(), false, true),
            ("/b/1".to_owned(), true, true),
            ("bash".to_owned(), false, false)
        ]
    );
    let dataset = Some("inventory-packages".to_owned());
    assert_eq!(listed(&path, &ListFilter { dataset, ..ListFilter::default() }).len(), 1);
    let prefix = b"/a".to_vec();
    assert_eq!(listed(&path, &ListFilter { prefix, ..ListFilter::default() }).len(), 2);
}

#[test]
fn verify_accepts_open_database_and_reports_damage() {
    let (_folder, path, _, queue) = open_new();
    apply(&queue, (0..300).map(|n| changed(&format!("/d{}/{n}", n % 7), n)).collect());
    cycle(&queue);
    apply(&queue, vec![delete_op("/d0/0"), delete_op("/d1/1")]);
    let found = verify(&path).unwrap();
    assert_eq!(found.problems, Vec::<String>::new());
    assert_eq!((found.items, found.events, found.directories), (300, 302, 7));
    queue.close().unwrap();
    let conn = Connection::open(&path).unwrap();
    conn.execute_batch(
        "DELETE FROM directory WHERE id = 1; \
         UPDATE item SET observation = x'ff' WHERE directory = 2 AND gone = 0; \
         DELETE FROM event WHERE seq = 17; UPDATE dataset SET told = leased + 1;",
    )
    .unwrap();
    drop(conn);
    let text = verify(&path).unwrap().problems.join("\n");
    for part in ["dictionary, directory number 1", "cannot be decoded", "missing 1", "leased"] {
        assert!(text.contains(part), "{part}: {text}");
    }
}

#[test]
fn compacting_gives_space_back_and_keeps_everything() {
    let (_folder, path, clock, queue) = open_new();
    apply(&queue, (0..20_000).map(|n| changed(&format!("/d{:03}/{n}", n % 100), n)).collect());
    let lease = queue.lease_events(usize::MAX, usize::MAX).unwrap();
    queue.ack_events(lease).unwrap();
    drop(queue);
    let before = listed(&path, &ListFilter::default());
    let done = compact(&path).unwrap();
    assert!(done.bytes_after < done.bytes_before / 2, "{done:?}");
    assert_eq!(done.bytes_after, std::fs::metadata(&path).unwrap().len());
    assert_eq!(listed(&path, &ListFilter::default()), before);
    let (queue, report) = open(&path, &clock);
    assert!(report.unclean, "compacting does not make an unclean end a clean one");
    // Event numbers are not reused even after the table was rewritten.
    apply(&queue, vec![changed("/x", 1)]);
    assert_eq!(queue.lease_events(1, usize::MAX).unwrap().items[0].seq, 20_001);
}

#[test]
fn unused_space_returns_to_the_file_system_while_the_agent_runs() {
    let (_folder, path, _, queue) = open_new();
    let mut largest = 0;
    for round in 0..12u64 {
        let ops = (0..2000).map(|n| changed(&format!("/d{:02}/{n}", n % 50), round * 2000 + n));
        apply(&queue, ops.collect());
        largest = largest.max(queue.status().unwrap().bytes);
    }
    let lease = queue.lease_events(usize::MAX, usize::MAX).unwrap();
    queue.ack_events(lease).unwrap();
    let left = page_bytes(&path);
    assert!(left < largest / 2, "{left} of {largest} bytes still taken");
}

/// Returns the size of all pages, including unused ones. The file has this size after a checkpoint.
fn page_bytes(path: &Path) -> u64 {
    let conn = Connection::open(path).unwrap();
    let pages: i64 = conn.query_row("PRAGMA page_count", [], |row| row.get(0)).unwrap();
    pages as u64 * 4096
}
