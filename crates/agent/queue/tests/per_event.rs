//! One transaction for each change, as the published design has it: of files and of documents,
//! each with its event; and SQLite's own distance between checkpoints.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

mod common;

use std::path::Path;

use common::{apply, base, changed, gone, open_new_with};
use model::{Coverage, CoverageKind, Dataset, EventBody};
use queue::{DocumentStep, QueueOptions, Transaction};

/// Transactions in the write-ahead log: frames that end one
/// (sqlite.org/fileformat2.html#walformat).
fn commits(path: &Path) -> usize {
    let log = std::fs::read(common::with_suffix(path, "-wal")).unwrap();
    let number = |at: usize| u32::from_be_bytes(log[at..at + 4].try_into().unwrap());
    let (page_bytes, salts) = (number(8) as usize, &log[16..24]);
    (32..log.len())
        .step_by(24 + page_bytes)
        .take_while(|at| log.get(at + 8..at + 16) == Some(salts))
        .filter(|at| number(at + 4) != 0)
        .count()
}

fn event(n: u64) -> EventBody {
    EventBody::of_coverage(Coverage {
        kind: CoverageKind::AgentDown,
        path: String::new(),
        from_us: n,
        to_us: n,
        found: None,
        detail: String::new(),
    })
}

/// Commits of three documents with an event each, one deleted, and an event of none of them; then
/// of three files.
fn commits_of(transaction: Transaction) -> (usize, usize) {
    let options = QueueOptions { transaction, ..QueueOptions::default() };
    let (_folder, path, _, queue) = open_new_with(options);
    let packages = Dataset::inventory_packages();
    queue.put_document(&packages, b"old", b"{}").unwrap();
    apply(&queue, vec![base("/a/0", 1)]);
    let before = commits(&path);
    let events: Vec<EventBody> = (1..=4).map(event).collect();
    let step = |key, document, event| DocumentStep { key, document, event: Some(event) };
    let steps = [
        step(&b"bash"[..], Some(&b"{}"[..]), &events[0]),
        step(b"zsh", Some(b"{}"), &events[1]),
        step(b"old", None, &events[2]),
    ];
    let outcome = queue.apply_documents(&packages, &steps, &events[3..]).unwrap();
    assert_eq!((outcome.items, outcome.events), (3, 4));
    let documents = commits(&path);
    apply(&queue, vec![changed("/a/1", 1), changed("/a/2", 2), gone("/a/0")]);
    (documents - before, commits(&path) - documents)
}

#[test]
fn every_change_has_a_transaction_of_its_own_with_its_event() {
    assert_eq!(commits_of(Transaction::PerEvent), (4, 3));
    assert_eq!(commits_of(Transaction::Group), (1, 1));
}

#[test]
fn the_log_is_folded_in_as_often_as_sqlite_does_unless_told_otherwise() {
    let pages = |transaction, wal_autocheckpoint_pages| {
        let options =
            QueueOptions { transaction, wal_autocheckpoint_pages, ..QueueOptions::default() };
        open_new_with(options).3.status().unwrap().wal_autocheckpoint_pages
    };
    assert_eq!(pages(Transaction::PerEvent, None), 1000);
    assert_eq!(pages(Transaction::PerEvent, Some(50)), 50);
    assert_eq!(pages(Transaction::Group, None), 8000);
}
