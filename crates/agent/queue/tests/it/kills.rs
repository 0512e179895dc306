//! Real kills. This binary starts itself as a writer, kills it at random times, and checks that
//! every acknowledged change is stored, both its item and its event.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;

use crate::common::{self, changed, files};
use env::clock::{ManualClock, SystemClock};
use env::random::{Random as _, SeededRandom, SystemRandom};
use model::document::NoNames;
use model::{Baseline as _, EventBody, Sink as _};
use queue::{Queue, QueueDurability, QueueOptions, Transaction};

const CHILD_DB: &str = "QUEUE_KILLS_DB";
const CHILD_FROM: &str = "QUEUE_KILLS_FROM";
const CHILD_MODE: &str = "QUEUE_KILLS_MODE";
/// Number of files that are written repeatedly.
const FILES: u64 = 37;

fn options(mode: &str) -> QueueOptions {
    let durability =
        if mode == "power" { QueueDurability::Power } else { QueueDurability::Process };
    let transaction = if mode == "per event" { Transaction::PerEvent } else { Transaction::Group };
    // A small log, so that kills hit checkpoints too.
    QueueOptions {
        durability,
        transaction,
        wal_autocheckpoint_pages: Some(20),
        ..Default::default()
    }
}

/// The writer process; not a test.
#[test]
#[ignore = "started by the test that kills it"]
fn write_until_killed() {
    let path = std::env::var_os(CHILD_DB).unwrap();
    let mut number: u64 = std::env::var(CHILD_FROM).unwrap().parse().unwrap();
    let options = options(&std::env::var(CHILD_MODE).unwrap());
    let clock = Arc::new(SystemClock::new());
    let (queue, _) = Queue::open(Path::new(&path), options, clock, Arc::new(SystemRandom)).unwrap();
    let mut sink = queue.sink(&files(), Arc::new(NoNames)).unwrap();
    let mut out = std::io::stdout();
    loop {
        let size = 1 + number % 9;
        let mut batch: Vec<_> =
            (number..number + size).map(|n| changed(&format!("/k/{:03}", n % FILES), n)).collect();
        sink.apply(&mut batch).unwrap();
        number += size;
        writeln!(out, "\nw {}", number - 1).unwrap();
        if number.is_multiple_of(5) {
            let begun = queue.begin_cycle(&files()).unwrap();
            while let Some(lease) = queue.lease(&files(), 8_000).unwrap() {
                queue.ack(lease, &[]).unwrap();
            }
            queue.end_cycle(&files()).unwrap();
            writeln!(out, "\nt {}", begun.leased_version).unwrap();
        }
    }
}

/// The last numbers that the child printed.
#[derive(Default)]
struct Said {
    written: u64,
    told: u64,
}

fn run_and_kill(path: &Path, mode: &str, from: u64, after_lines: u64) -> Said {
    let mut child = needs::own_process(module_path!(), "write_until_killed")
        .env(CHILD_DB, path)
        .env(CHILD_FROM, from.to_string())
        .env(CHILD_MODE, mode)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut said = Said { written: from - 1, told: 0 };
    let mut lines = 0;
    for line in BufReader::new(child.stdout.take().unwrap()).lines() {
        let Ok(line) = line else { break };
        match line.split_once(' ') {
            Some(("w", n)) => said.written = n.parse().unwrap_or(said.written),
            Some(("t", n)) => said.told = n.parse().unwrap_or(said.told),
            _ => continue,
        }
        lines += 1;
        if lines == after_lines {
            child.kill().unwrap();
        }
    }
    assert!(!child.wait().unwrap().success());
    assert!(lines >= after_lines, "the child died by itself after {lines} lines");
    said
}

/// Checks that everything acknowledged is stored. Returns the last stored number.
fn verify(path: &Path, mode: &str, said: &Said) -> u64 {
    let clock = ManualClock::at(common::START_US);
    let (queue, report) = common::try_open(path, &options(mode), &clock).unwrap();
    assert!(report.unclean && report.rebuilt.is_none());
    let events = queue.lease_events(usize::MAX, usize::MAX).unwrap();
    let numbers: Vec<u64> = events
        .items
        .iter()
        .map(|event| serde_json::from_slice::<EventBody>(&event.body).unwrap())
        .map(|event| event.file.unwrap().size.unwrap())
        .collect();
    let last = *numbers.last().unwrap();
    assert!(last >= said.written, "{last} < {}", said.written);
    assert_eq!(numbers, (1..=last).collect::<Vec<_>>());
    let mut items = Vec::new();
    queue.baseline(&files()).unwrap().directory(b"/k", &mut items).unwrap();
    let held: BTreeMap<_, _> =
        items.into_iter().map(|item| (item.name, item.observation.size)).collect();
    let expected: BTreeMap<_, _> =
        (1..=last).map(|n| (format!("{:03}", n % FILES).into_bytes(), n)).collect();
    assert_eq!(held, expected, "an item without its event, or the other way round");
    let status = queue.status().unwrap();
    assert!(status.datasets[0].acked_version >= said.told);
    last
}

fn kills(mode: &str, count: u64, seed: u64) {
    let folder = tempfile::tempdir().unwrap();
    let path: PathBuf = folder.path().join("agent.db");
    let random = SeededRandom::new(seed);
    let mut from = 1;
    for kill in 0..count {
        let lines = 1 + random.next_u64().unwrap() % 60;
        let said = run_and_kill(&path, mode, from, lines);
        println!("{mode}: kill {kill} after {lines} lines, written {}", said.written);
        from = verify(&path, mode, &said) + 1;
    }
}

fn count() -> u64 {
    std::env::var("QUEUE_KILLS").ok().and_then(|n| n.parse().ok()).unwrap_or(8)
}

#[test]
fn acknowledged_data_survives_kills_in_process_mode() {
    kills("process", count(), 1);
}

#[test]
fn acknowledged_data_survives_kills_in_power_mode() {
    kills("power", count(), 2);
}

#[test]
fn acknowledged_data_survives_kills_in_per_event_mode() {
    kills("per event", count(), 3);
}
