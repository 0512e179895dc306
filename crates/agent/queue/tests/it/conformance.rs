//! Guarantees that depend on `queue.transaction`, each tested in both modes: which changes commit
//! together, what a failed batch returns, and how often the log is checkpointed. Kills, power cuts,
//! races and the model are tested in both modes in separate files.

use std::path::Path;
use std::sync::Arc;

use crate::common::{
    self, apply, base, baseline, changed, cycle, delete_op, files, open_new_with, own, try_open,
};
use model::document::NoNames;
use model::{Coverage, CoverageKind, Dataset, EventBody, Sink as _};
use queue::{DocumentStep, QueueOptions, Transaction};

const MODES: [Transaction; 2] = [Transaction::Group, Transaction::PerEvent];

fn options(transaction: Transaction) -> QueueOptions {
    QueueOptions { transaction, ..QueueOptions::default() }
}

/// Returns the number of transactions in the write-ahead log, which is the number of commit frames
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
        lasting: None,
        detail: String::new(),
    })
}

/// Returns the number of commits for three document changes with an event each and one more event,
/// and the number of commits for three file changes.
fn commits_of(transaction: Transaction) -> (usize, usize) {
    let (_folder, path, _, queue) = open_new_with(&options(transaction));
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
    apply(&queue, vec![changed("/a/1", 1), changed("/a/2", 2), delete_op("/a/0")]);
    (documents - before, commits(&path) - documents)
}

#[test]
fn changes_commit_with_their_events_singly_or_as_one_group() {
    assert_eq!(commits_of(Transaction::PerEvent), (4, 3));
    assert_eq!(commits_of(Transaction::Group), (1, 1));
}

#[test]
fn checkpoint_interval_follows_the_mode_unless_set() {
    let pages = |transaction, wal_autocheckpoint_pages| {
        let options = QueueOptions { wal_autocheckpoint_pages, ..options(transaction) };
        open_new_with(&options).3.status().unwrap().wal_autocheckpoint_pages
    };
    assert_eq!(pages(Transaction::PerEvent, None), 1000);
    assert_eq!(pages(Transaction::PerEvent, Some(50)), 50);
    assert_eq!(pages(Transaction::Group, None), 8000);
}

#[test]
fn last_of_several_changes_of_one_item_in_a_batch_wins() {
    for mode in MODES {
        let (_folder, _, _, queue) = open_new_with(&options(mode));
        apply(
            &queue,
            vec![
                base("/a/1", 1),
                delete_op("/a/1"),
                base("/a/1", 2),
                base("/a/2", 5),
                delete_op("/a/2"),
            ],
        );
        assert_eq!(baseline(&queue, "/a"), [("1".to_owned(), 2)], "{mode:?}");
        cycle(&queue);
        apply(&queue, vec![delete_op("/a/1"), base("/a/1", 3), base("/a/0", 4), delete_op("/a/0")]);
        assert_eq!(baseline(&queue, "/a"), [("1".to_owned(), 3)], "{mode:?}");
        assert_eq!(cycle(&queue), own(&[("/a/1", Some(3))]), "{mode:?}");
    }
}

#[test]
fn directory_emptied_in_batch_can_be_recreated() {
    for mode in MODES {
        let (_folder, path, clock, queue) = open_new_with(&options(mode));
        apply(&queue, vec![base("/new/1", 1), delete_op("/new/1")]);
        apply(&queue, vec![base("/new/2", 2)]);
        queue.close().unwrap();
        let (queue, _) = try_open(&path, &options(mode), &clock).unwrap();
        assert_eq!(baseline(&queue, "/new"), [("2".to_owned(), 2)], "{mode:?}");
        assert_eq!(cycle(&queue), own(&[("/new/2", Some(2))]), "{mode:?}");
    }
}

#[test]
fn failed_batch_is_returned_whole() {
    for mode in MODES {
        let (_folder, _, _, queue) = open_new_with(&options(mode));
        let mut sink = queue.sink(&files(), Arc::new(NoNames)).unwrap();
        queue.close().unwrap();
        let ops = vec![base("/a/1", 1), delete_op("/a/2")];
        let mut batch = ops.clone();
        assert!(sink.apply(&mut batch).is_err());
        assert_eq!(batch, ops, "{mode:?}");
    }
}

#[test]
fn database_written_in_one_mode_opens_in_the_other_after_a_kill() {
    for (before, after) in [(MODES[0], MODES[1]), (MODES[1], MODES[0])] {
        let (_folder, path, clock, queue) = open_new_with(&options(before));
        apply(&queue, vec![base("/a/1", 1), base("/a/2", 2)]);
        cycle(&queue);
        apply(&queue, vec![changed("/a/1", 3), delete_op("/a/2")]);
        let (_image, copy) = common::crash_image(&path);
        let (queue, report) = try_open(&copy, &options(after), &clock).unwrap();
        assert!(report.unclean && report.events == 2);
        apply(&queue, vec![changed("/b/1", 4)]);
        let pending = own(&[("/a/1", Some(3)), ("/a/2", None), ("/b/1", Some(4))]);
        assert_eq!(cycle(&queue), pending, "{before:?} to {after:?}");
        assert_eq!(queue.lease_events(9, usize::MAX).unwrap().items.len(), 3);
    }
}
