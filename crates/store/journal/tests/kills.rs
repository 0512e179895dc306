//! Kills a real process on a real folder with SIGKILL at random instants. Records that were
//! reported as persisted are still there. `HOLDFAST_KILLS` sets the number of kills (default 200).
//!
//! A program of its own: a process that it starts has the locks of other tests until it calls exec.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stdout,
    clippy::excessive_nesting,
    reason = "a test that cannot go on fails"
)]

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::Stdio;
use std::thread;

use journal::{Durability, Journal, Layout, Options};

const DIR_VARIABLE: &str = "HOLDFAST_KILL_DIR";
const LAYOUTS: [Layout; 3] = [Layout::Packed, Layout::Sparse, Layout::Ring];

fn options(round: usize) -> Options {
    Options {
        layout: LAYOUTS[round % 3],
        segment_bytes: 256 << 10,
        ring_bytes: 64 << 10,
        fill_ahead_bytes: 32 << 10,
        ..Options::default()
    }
}

/// The process that is killed, not a test. It appends from four threads and prints each
/// acknowledged position with its content.
#[test]
#[ignore = "started by the test that kills it"]
fn append_until_killed() {
    let dir = std::env::var(DIR_VARIABLE).unwrap();
    let round = std::env::var("HOLDFAST_KILL_ROUND").unwrap().parse().unwrap();
    let (journal, _) = Journal::open(Path::new(&dir), options(round)).unwrap();
    thread::scope(|scope| {
        for t in 0..4u64 {
            let journal = &journal;
            scope.spawn(move || {
                for n in 0u64.. {
                    let id = (round as u64) << 40 | t << 32 | n;
                    let bytes = 8 + (n as usize * 131) % 900;
                    let record: Vec<u8> =
                        id.to_le_bytes().into_iter().cycle().take(bytes).collect();
                    let outcome = journal.append(&record, Durability::Persist).unwrap();
                    let line = format!("ack {} {id}\n", outcome.position);
                    std::io::stdout().write_all(line.as_bytes()).unwrap();
                }
            });
        }
    });
}

#[test]
fn acknowledged_records_survive_process_kills() {
    let kills: usize =
        std::env::var("HOLDFAST_KILLS").ok().and_then(|v| v.parse().ok()).unwrap_or(200);
    let dir = tempfile::tempdir().unwrap();
    let mut acknowledged: BTreeMap<u64, u64> = BTreeMap::new();
    for round in 0..kills {
        let mut child = needs::own_process(module_path!(), "append_until_killed")
            .env(DIR_VARIABLE, dir.path())
            .env("HOLDFAST_KILL_ROUND", round.to_string())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut wanted: usize = 1 + (round * 7919) % 400;
        let mut last_line = String::new();
        for line in BufReader::new(child.stdout.take().unwrap()).lines() {
            last_line = line.unwrap();
            let mut words = last_line.split(' ');
            let (Some("ack"), Some(position), Some(id)) =
                (words.next(), words.next(), words.next())
            else {
                continue;
            };
            let (Ok(position), Ok(id)) = (position.parse(), id.parse()) else { continue };
            acknowledged.insert(position, id);
            wanted = wanted.saturating_sub(1);
            if wanted == 0 {
                child.kill().unwrap();
            }
        }
        child.wait().unwrap();
        assert_eq!(wanted, 0, "round {round}: the process ended by itself: {last_line}");
        let (journal, recovery) = Journal::open(dir.path(), options(round + 1)).unwrap();
        let first = recovery.first_position;
        let found: BTreeMap<u64, u64> = journal
            .read_from(0)
            .unwrap()
            .map(|record| {
                let (position, record) = record.unwrap();
                let whole = record.chunks(8).all(|c| c == &record[..c.len()]);
                assert!(whole && record.len() >= 8, "round {round}: {position} is torn");
                (position, u64::from_le_bytes(record[..8].try_into().unwrap()))
            })
            .collect();
        assert_eq!(
            found.keys().copied().collect::<Vec<_>>(),
            (first..=recovery.last_position).collect::<Vec<_>>()
        );
        for (position, id) in acknowledged.range(first..) {
            assert_eq!(found.get(position), Some(id), "round {round}: position {position}");
        }
        // The older half is trimmed to keep the test short.
        journal.trim(recovery.last_position / 2).unwrap();
        drop(journal);
    }
    assert!(acknowledged.len() >= kills);
}
