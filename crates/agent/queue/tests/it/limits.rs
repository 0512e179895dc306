//! The byte limit and the full disk.

use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use crate::common::{
    self, apply, base, changed, cycle, files, open, open_new, open_new_with, try_open,
};
use model::document::NoNames;
use model::{Coverage, CoverageKind, EventBody, Op, Sink as _};
use queue::{Queue, QueueOptions, Transaction, known_gaps};

fn body(event: &queue::QueuedEvent) -> EventBody {
    serde_json::from_slice(&event.body).unwrap()
}

fn storm(queue: &Queue, rounds: u64) -> u64 {
    for round in 0..rounds {
        let ops = (0..100).map(|n| changed(&format!("/a/{n:02}"), round * 100 + n));
        apply(queue, ops.collect());
    }
    rounds * 100
}

#[test]
fn oldest_events_over_the_limit_are_dropped_and_reported() {
    let options = QueueOptions { byte_limit: 2_000_000, ..QueueOptions::default() };
    let (_folder, _, _, queue) = open_new_with(&options);
    let gone = Coverage {
        kind: CoverageKind::RootGone,
        path: "/mnt".into(),
        from_us: 1,
        to_us: 2,
        found: None,
        lasting: None,
        detail: "not mounted".into(),
    };
    queue.append_coverage(&files(), gone.clone()).unwrap();
    known_gaps::set_known(&queue).unwrap();
    let appended = storm(&queue, 60);
    assert!(!known_gaps::are_known(&queue).unwrap(), "the open gaps are to be reported again");
    let status = queue.status().unwrap();
    assert!(status.bytes <= 2_200_000, "{status:?}");
    assert!(status.events_dropped > 0);
    assert_eq!(status.datasets[0].items, 100, "state is never dropped");
    let lease = queue.lease_events(usize::MAX, usize::MAX).unwrap();
    let (mut changes, mut dropped, mut others) = (Vec::new(), 0, Vec::new());
    for event in &lease.items {
        let body = body(event);
        match body.holdfast.coverage {
            None => changes.push(body.file.unwrap().size.unwrap()),
            Some(coverage) if coverage.kind != CoverageKind::EventsDropped => {
                others.push(coverage);
            }
            Some(coverage) => {
                assert!(coverage.from_us > 0 && coverage.from_us <= coverage.to_us);
                dropped += coverage.found.unwrap();
            }
        }
    }
    // Coverage events of earlier drops were dropped as well; their counts are in the later ones.
    assert_eq!(others, [gone], "no other gap is dropped");
    assert!(dropped > 0);
    assert_eq!(dropped, status.events_dropped);
    assert_eq!(changes.last(), Some(&(appended - 1)), "the newest are kept");
    assert!(changes.windows(2).all(|pair| pair[1] == pair[0] + 1), "without a hole");
    assert!(changes[0] <= status.events_dropped);
    assert_eq!(cycle(&queue).len(), 100);
}

#[test]
fn state_above_byte_limit_is_reported_once_and_kept() {
    let options = QueueOptions { byte_limit: 100_000, ..QueueOptions::default() };
    let (_folder, _, _, queue) = open_new_with(&options);
    for round in 0..40 {
        apply(&queue, (0..100).map(|n| base(&format!("/{round:02}/{n:02}"), n)).collect());
    }
    let lease = queue.lease_events(usize::MAX, usize::MAX).unwrap();
    let kinds: Vec<_> =
        lease.items.iter().map(|e| body(e).holdfast.coverage.unwrap().kind).collect();
    assert!(kinds.contains(&CoverageKind::LimitReached), "{kinds:?}");
    assert!(kinds.len() <= 2, "{kinds:?}");
    assert_eq!(queue.status().unwrap().datasets[0].items, 4000);
}

#[test]
fn acknowledged_space_returns_to_the_file_system() {
    let (_folder, path, _, queue) = open_new();
    storm(&queue, 200);
    let lease = queue.lease_events(usize::MAX, usize::MAX).unwrap();
    queue.ack_events(lease).unwrap();
    // The acknowledgement has given back most of it.
    assert!(queue.compact().unwrap() > 0);
    let after = std::fs::metadata(&path).unwrap().len();
    assert!(after < 1_000_000, "{after}");
    assert_eq!(queue.status().unwrap().datasets[0].items, 100);
}

/// A small tmpfs that is unmounted on drop.
struct TinyDisk(tempfile::TempDir);

impl TinyDisk {
    fn mount() -> Option<Self> {
        let folder = tempfile::tempdir().unwrap();
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", "size=3m", "tmpfs"])
            .arg(folder.path())
            .output()
            .is_ok_and(|output| output.status.success());
        mounted.then_some(Self(folder))
    }

    fn grow(&self) {
        let grown = Command::new("mount")
            .args(["-o", "remount,size=60m"])
            .arg(self.path())
            .status()
            .is_ok_and(|status| status.success());
        assert!(grown);
    }

    fn path(&self) -> &Path {
        self.0.path()
    }
}

impl Drop for TinyDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(self.path()).status();
    }
}

#[test]
fn full_disk_loses_no_commit_in_group_mode() {
    full_disk(Transaction::Group);
}

#[test]
fn full_disk_loses_no_commit_in_per_event_mode() {
    full_disk(Transaction::PerEvent);
}

fn full_disk(transaction: Transaction) {
    let Some(disk) = TinyDisk::mount() else {
        return needs::skip("needs root to mount a tmpfs");
    };
    let path = disk.path().join("agent.db");
    let clock = env::clock::ManualClock::at(common::START_US);
    let options = QueueOptions { transaction, ..QueueOptions::default() };
    let (queue, _) = try_open(&path, &options, &clock).unwrap();
    let mut sink = queue.sink(&files(), Arc::new(NoNames)).unwrap();
    let mut committed = 0;
    let failed = loop {
        let ops: Vec<Op> =
            (0..100).map(|n| changed(&format!("/{committed:04}/{n:03}"), n)).collect();
        let mut batch = ops.clone();
        match sink.apply(&mut batch) {
            Ok(_) => committed += 1,
            Err(error) => {
                // The whole batch, or its part that was not committed yet.
                assert!(ops.ends_with(&batch) && !batch.is_empty(), "handed back");
                let whole = transaction == Transaction::Group;
                assert!(!whole || batch == ops);
                break (error, ops.len() - batch.len());
            }
        }
        assert!(committed < 10_000);
    };
    let (failed, singly) = failed;
    assert!(failed.0.contains("disk full"), "{failed}");
    assert!(committed > 3 || singly > 0);
    let check = |queue: &Queue, batches: u64| {
        let (status, changes) = (queue.status().unwrap(), batches * 100 + singly as u64);
        assert_eq!((status.datasets[0].items, status.events), (changes, changes));
    };
    check(&queue, committed);
    // A kill at this point loses nothing either.
    let (_image, copy) = common::crash_image(&path);
    check(&try_open(&copy, &QueueOptions::default(), &clock).unwrap().0, committed);
    // With free space again it continues without a restart.
    disk.grow();
    sink.apply(&mut (0..100).map(|n| changed(&format!("/late/{n:03}"), n)).collect()).unwrap();
    check(&queue, committed + 1);
    assert_eq!(cycle(&queue).len() as u64, (committed + 1) * 100 + singly as u64);
    queue.close().unwrap();
    let (queue, report) = open(&path, &clock);
    assert!(!report.unclean);
    check(&queue, committed + 1);
}
