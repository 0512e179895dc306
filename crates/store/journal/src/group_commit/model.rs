//! Tests the hand-over between writers with loom on a simulated disk (`make loom`). The group commit and
//! the writer are the real ones; time does not pass.

#![allow(clippy::unwrap_used, reason = "a model")]

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use env::files::{Failure, Fault, SimDisk};
use loom::future::block_on;
use loom::thread;

use crate::core::Core;
use crate::error::AppendError;
use crate::meter::AppendOutcome;
use crate::options::{Durability, Layout, Options};

type Appended = Result<AppendOutcome, AppendError>;

/// Maximum number of preemptions; a soak test allows one more. More take hours and hardly ever find a
/// new case.
const PREEMPTIONS: usize = 3;

fn model(run: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    let soak = std::env::var_os("HOLDFAST_SOAK").is_some();
    builder.preemption_bound = Some(PREEMPTIONS + usize::from(soak));
    builder.max_branches = 20_000;
    builder.check(run);
}

fn open(layout: Layout) -> (Arc<Core>, SimDisk) {
    let disk = SimDisk::new(1);
    let options = Options {
        layout,
        segment_bytes: 64 << 10,
        ring_bytes: 16 << 10,
        fill_ahead_bytes: 16 << 10,
        group_wait: Duration::ZERO,
        files: Arc::new(disk.clone()),
        ..Options::default()
    };
    (Core::open(Path::new("/journal"), options).unwrap().0, disk)
}

fn append(core: &Core) -> Appended {
    let appended = core.gate.append(&[[7; 16]], Durability::Persist);
    if let Ok(outcome) = &appended {
        assert!(core.gate.persisted() >= outcome.position, "acknowledged before it is persisted");
    }
    appended
}

fn spawn(core: &Arc<Core>) -> thread::JoinHandle<Appended> {
    let core = Arc::clone(core);
    thread::spawn(move || append(&core))
}

/// Checks that each appended record is there exactly once.
fn all_there(appended: &[Appended]) {
    let mut positions: Vec<_> = appended.iter().map(|a| a.as_ref().unwrap().position).collect();
    positions.sort_unstable();
    assert!(positions.iter().zip(1..).all(|(p, n)| *p == n), "{positions:?}");
}

#[test]
fn concurrent_appends_each_get_their_own_result() {
    model(|| {
        let (core, _) = open(Layout::Packed);
        let others = [spawn(&core), spawn(&core)];
        let mut appended = vec![append(&core)];
        appended.extend(others.map(|t| t.join().unwrap()));
        all_there(&appended);
    });
}

#[test]
fn task_is_woken_by_the_journal_thread_while_a_thread_leads() {
    model(|| {
        let (core, _) = open(Layout::Packed);
        let server = {
            let core = Arc::clone(&core);
            thread::spawn(move || core.gate.serve())
        };
        let other = spawn(&core);
        let task = block_on(core.gate.append_async(&[vec![7; 16]], Durability::Persist));
        all_there(&[task, other.join().unwrap()]);
        core.close().unwrap();
        server.join().unwrap();
    });
}

#[test]
fn failed_write_poisons_every_waiting_append() {
    model(|| {
        let (core, disk) = open(Layout::Sparse);
        append(&core).unwrap();
        disk.fail(&[Fault { call: disk.calls() + 1, failure: Failure::PowerCut }]);
        let others = [spawn(&core), spawn(&core)];
        let mut appended = vec![append(&core)];
        appended.extend(others.map(|t| t.join().unwrap()));
        let poisoned = |a: &Appended| matches!(a, Err(AppendError::Poisoned(_)));
        assert!(appended.iter().all(poisoned), "{appended:?}");
        assert_eq!(core.gate.persisted(), 1);
    });
}

#[test]
fn close_persists_appends_accepted_before_it() {
    model(|| {
        let (core, _) = open(Layout::Packed);
        let other = spawn(&core);
        core.close().unwrap();
        let taken = match other.join().unwrap() {
            Ok(outcome) => outcome.position,
            Err(AppendError::Closed) => 0,
            Err(e) => panic!("{e}"),
        };
        assert_eq!(core.gate.persisted(), taken);
    });
}

#[test]
fn persist_completes_while_writers_append() {
    model(|| {
        let (core, _) = open(Layout::Packed);
        let others = [spawn(&core), spawn(&core)];
        core.gate.persist().unwrap();
        core.gate.persist().unwrap();
        all_there(&others.map(|t| t.join().unwrap()));
    });
}

#[test]
fn flush_during_appends_persists_all_earlier_records() {
    model(|| {
        let (core, _) = open(Layout::Packed);
        let first = core.gate.append(&[[7; 16]], Durability::Flush);
        let beside = {
            let core = Arc::clone(&core);
            thread::spawn(move || {
                let appended = core.gate.append(&[[7; 16]], Durability::Flush);
                core.gate.persist().unwrap();
                let last = appended.as_ref().unwrap().position;
                assert!(core.gate.persisted() >= last, "its own flush, or one behind it");
                appended
            })
        };
        let other = spawn(&core);
        core.gate.persist().unwrap();
        all_there(&[first, beside.join().unwrap(), other.join().unwrap()]);
        assert_eq!(core.gate.persisted(), 3);
    });
}

#[test]
fn close_waits_for_a_flush_during_appends() {
    model(|| {
        let (core, _) = open(Layout::Packed);
        core.gate.append(&[[7; 16]], Durability::Flush).unwrap();
        let flushing = {
            let core = Arc::clone(&core);
            thread::spawn(move || core.gate.persist())
        };
        core.close().unwrap();
        flushing.join().unwrap().unwrap();
        assert_eq!(core.gate.persisted(), 1);
    });
}

#[test]
fn failed_flush_poisons_concurrent_appends() {
    model(|| {
        let (core, disk) = open(Layout::Packed);
        core.gate.append(&[[7; 16]], Durability::Flush).unwrap();
        disk.fail(&[Fault { call: disk.calls() + 1, failure: Failure::PowerCut }]);
        let other = spawn(&core);
        assert!(core.gate.persist().is_err());
        assert!(matches!(other.join().unwrap(), Err(AppendError::Poisoned(_))));
        assert_eq!(core.gate.persisted(), 0);
    });
}

#[test]
fn ring_is_archived_during_appends() {
    model(|| {
        let (core, _) = open(Layout::Ring);
        let archiver = {
            let core = Arc::clone(&core);
            thread::spawn(move || core.gate.serve_archive())
        };
        for _ in 0..5 {
            core.gate.append(&[[7; 2100]], Durability::Persist).unwrap();
        }
        core.close().unwrap();
        archiver.join().unwrap();
        assert_eq!(core.gate.persisted(), 5);
    });
}
