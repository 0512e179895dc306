//! Runs the fuzz targets on their committed corpus (`fuzz/`) in every ordinary test run.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    missing_docs,
    reason = "a test that cannot go on fails"
)]

#[path = "../fuzz/src/frames.rs"]
mod frames;
#[path = "../fuzz/src/query.rs"]
mod query;
#[path = "../fuzz/src/readers.rs"]
mod readers;
#[path = "../fuzz/src/targets.rs"]
mod targets;

/// The readers, under the names that the fuzz targets use.
mod ingest {
    pub(crate) use ::ingest::influx::{Precision, read as influx_read};
    pub(crate) use ::ingest::remote::read as remote_read;
    pub(crate) use ::ingest::{CollectedRows, RespReader, RowCollector, TelnetReader};
}

use std::fs;
use std::path::Path;

use ::query::answer_all;
use env::random::{Random as _, SeededRandom};
use replication::wire;

/// Replays the inputs of one target: about `most` of them, spread evenly; all with `HOLDFAST_SOAK`.
fn replay(name: &str, most: usize, target: fn(&[u8])) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus").join(name);
    let mut inputs: Vec<_> = fs::read_dir(&folder)
        .unwrap_or_else(|e| panic!("{}: {e}", folder.display()))
        .map(|entry| entry.unwrap().path())
        .collect();
    inputs.sort();
    assert!(!inputs.is_empty(), "{} is empty", folder.display());
    let soak = std::env::var("HOLDFAST_SOAK").is_ok();
    let step = if soak { 1 } else { inputs.len().div_ceil(most) };
    let random = SeededRandom::new(7);
    for input in inputs.iter().step_by(step) {
        println!("{}", input.display());
        let bytes = fs::read(input).unwrap();
        target(&bytes);
        // Replay each input once more with one byte changed.
        let mut changed = bytes;
        if !changed.is_empty() {
            let at = random.next_u64().unwrap() as usize % changed.len();
            if let Some(byte) = changed.get_mut(at) {
                *byte ^= 1 << (random.next_u64().unwrap() % 8);
            }
        }
        target(&changed);
    }
}

#[test]
fn segments_with_hostile_insides_do_no_harm() {
    replay("segment", 50, targets::segment);
}

#[test]
fn damaged_journals_give_a_prefix_or_an_error() {
    replay("damage", 100, targets::damage);
}

#[test]
fn sessions_of_strangers_are_taken_whole_or_refused() {
    replay("session", 1000, targets::session);
}

#[test]
fn records_of_any_bytes_are_read_whole_or_refused() {
    replay("record", 1000, targets::record);
}

#[test]
fn follower_streams_decode_equally_however_they_are_split() {
    replay("frames", 1000, frames::frames);
}

#[test]
fn columns_chunks_and_records_of_any_bytes_are_read_or_refused() {
    replay("series_codec", 1000, readers::codec);
}

#[test]
fn foreign_metrics_streams_are_accepted_or_refused_at_any_split() {
    replay("series_readers", 1000, readers::readers);
}

#[test]
fn queries_of_strangers_are_answered_and_the_same_way_twice() {
    replay("series_query", 1000, query::query);
}
