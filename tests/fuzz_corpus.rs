//! Runs the fuzz targets on their committed corpus (`fuzz/`) in every ordinary test run.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    missing_docs,
    reason = "a test that cannot go on fails"
)]

#[path = "../crates/agent/dirty/src/decode.rs"]
#[allow(dead_code, unreachable_pub, reason = "the decoder's own crate uses the rest")]
mod decode;
#[path = "../fuzz/src/frames.rs"]
mod frames;
#[path = "../crates/agent/attribution/src/message.rs"]
#[allow(dead_code, unreachable_pub, reason = "the decoder's own crate uses the rest")]
mod message;
#[path = "../fuzz/src/messages.rs"]
mod messages;
#[path = "../fuzz/src/notices.rs"]
mod notices;
#[path = "../fuzz/src/query.rs"]
mod query;
#[path = "../fuzz/src/readers.rs"]
mod readers;
#[path = "../fuzz/src/targets.rs"]
mod targets;

use std::fs;
use std::path::Path;

use ::query::answer_all;
use env::random::{Random as _, SeededRandom};
use replication::wire;

/// Changed inputs of each target in a soak.
const CHANGED: usize = 7000;

/// Replays the inputs of one target: about `most` of them, spread evenly, each as it is and with
/// changes. With `HOLDFAST_SOAK` all of them, with [`CHANGED`] changed ones in total.
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
    let changes = if soak { CHANGED.div_ceil(inputs.len()) } else { 2 };
    let random = SeededRandom::new(7);
    for input in inputs.iter().step_by(step) {
        println!("{}", input.display());
        let bytes = fs::read(input).unwrap();
        target(&bytes);
        for number in 0..changes {
            target(&change(&bytes, number, &random));
        }
    }
}

/// Returns a changed copy: with one bit flipped, with one byte of a length or an offset at its
/// limits, cut short, or with a part repeated.
fn change(bytes: &[u8], number: usize, random: &SeededRandom) -> Vec<u8> {
    let draw = |below: usize| random.next_u64().unwrap() as usize % below.max(1);
    let mut changed = bytes.to_vec();
    let at = draw(changed.len());
    match (number % 4, changed.get_mut(at)) {
        (_, None) => {}
        (0, Some(byte)) => *byte ^= 1 << draw(8),
        (1, Some(byte)) => *byte = *[0, 1, 0x7f, 0x80, 0xff].get(draw(5)).unwrap(),
        (2, _) => changed.truncate(at),
        (_, _) => {
            let part = changed.split_off(at);
            changed.extend_from_within(draw(at)..);
            changed.extend(part);
        }
    }
    changed
}

#[test]
fn corpus_segments_decode_consistently() {
    replay("segment", 50, targets::segment);
}

#[test]
fn corpus_of_damaged_journals_reads_a_prefix_or_fails() {
    replay("damage", 100, targets::damage);
}

#[test]
fn corpus_sessions_round_trip_or_are_refused() {
    replay("session", 1000, targets::session);
}

#[test]
fn corpus_records_round_trip_or_are_refused() {
    replay("record", 1000, targets::record);
}

#[test]
fn corpus_follower_streams_decode_equally_when_split() {
    replay("frames", 1000, frames::frames);
}

#[test]
fn corpus_notifications_decode_alike_alone_and_together() {
    replay("notices", 1000, notices::notices);
}

#[test]
fn corpus_process_messages_decode_alike_alone_and_together() {
    replay("messages", 1000, messages::messages);
}

#[test]
fn corpus_series_files_decode_or_are_refused() {
    replay("series_codec", 1000, readers::codec);
}

#[test]
fn corpus_metrics_streams_parse_equally_at_any_split() {
    replay("series_readers", 1000, readers::readers);
}

#[test]
fn corpus_queries_have_deterministic_answers() {
    replay("series_query", 1000, query::query);
}
