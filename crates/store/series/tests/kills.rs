//! Processes that are killed with SIGKILL while they write: everything that they reported as
//! acknowledged survives.
//!
//! A program of its own: a process that it starts has the locks of other tests until it calls exec.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    missing_docs,
    reason = "a test that cannot go on fails"
)]

use std::io::{BufRead, BufReader, Write as _};
use std::path::Path;
use std::process::Stdio;

use series::{Ack, Batch, Selector, Store, StoreOptions, TimeRange};

const SECOND: i64 = 1_000_000_000;
/// Number of hosts. Each batch has one row per host.
const HOSTS: i64 = 40;

fn options() -> StoreOptions {
    StoreOptions { head_bytes_max: 100 << 10, segment_bytes: 256 << 10, ..StoreOptions::default() }
}

/// The process that is killed, not a test. It prints the number of each acknowledged batch.
#[test]
#[ignore = "started by the test that kills it"]
fn write_until_killed() {
    let dir = std::env::var_os("SERIES_KILL_DIR").unwrap();
    let begin: i64 = std::env::var("SERIES_KILL_BEGIN").unwrap().parse().unwrap();
    let (store, _) = Store::open(Path::new(&dir), options()).unwrap();
    for number in begin.. {
        let mut batch = Batch::new();
        for host in 0..HOSTS {
            let row = store.row(format!("a|b host={host}").as_bytes()).unwrap();
            batch.push(row, number * 10 * SECOND, &[number as f64, host as f64]).unwrap();
        }
        // Both survive a kill.
        let ack = if number % 2 == 0 { Ack::Flushed } else { Ack::Persisted };
        store.write(batch, ack).unwrap();
        let mut out = std::io::stdout().lock();
        writeln!(out, "\nacknowledged {number}").unwrap();
        out.flush().unwrap();
    }
}

fn kills() -> i64 {
    std::env::var("HOLDFAST_KILLS").ok().and_then(|n| n.parse().ok()).unwrap_or(6)
}

#[test]
fn acknowledged_writes_survive_sigkill() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().join("series");
    let mut begin = 0;
    for kill in 0..kills() {
        let mut child = needs::own_process(module_path!(), "write_until_killed")
            .env("SERIES_KILL_DIR", &dir)
            .env("SERIES_KILL_BEGIN", begin.to_string())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let numbers = lines.map_while(Result::ok).filter_map(|line| {
            line.strip_prefix("acknowledged ").and_then(|n| n.parse::<i64>().ok())
        });
        let wanted = begin + 5 + kill * 37 % 120;
        let mut last = begin - 1;
        for number in numbers {
            last = last.max(number);
            if last == wanted {
                child.kill().unwrap();
            }
        }
        child.wait().unwrap();
        assert!(last >= wanted, "the child ended by itself");
        begin = check(&dir, last);
    }
}

/// Checks that all batches up to `last` are there once. Returns the next number.
fn check(dir: &Path, last: i64) -> i64 {
    let (store, _) = Store::open(dir, options()).unwrap();
    let snapshot = store.snapshot();
    let all = store.find(&Selector::default());
    assert_eq!(all.len() as i64, 2 * HOSTS);
    let mut end = last;
    for series in &all {
        let found = snapshot.summary(series, TimeRange::ALL).unwrap().unwrap();
        assert_eq!(found.count as i64, found.last_ns / (10 * SECOND) + 1, "{}", series.name());
        assert!(found.last_ns >= last * 10 * SECOND, "{}: acknowledged and gone", series.name());
        end = end.max(found.last_ns / (10 * SECOND));
    }
    end + 1
}
