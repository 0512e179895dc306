//! Memory stays bounded when many series are created quickly. The test runs alone in its process,
//! because it measures resident memory.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    missing_docs,
    reason = "a test that cannot go on fails"
)]

use std::time::{Duration, Instant};

use series::{Ack, Batch, Selector, Store, StoreOptions, Wal};

/// Maximum memory of one active series, in bytes: name, postings and head.
const SERIES_BYTES_MAX: u64 = 1024;
const HEAD_BYTES_MAX: usize = 8 << 20;
const BATCH: u64 = 5000;

fn resident() -> u64 {
    let text = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = text.lines().find(|l| l.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() << 10
}

/// With `HOLDFAST_SOAK` the test creates a million series.
#[test]
fn memory_is_bounded_while_many_series_are_created() {
    let count = if std::env::var_os("HOLDFAST_SOAK").is_some() { 1_000_000 } else { 50_000 };
    let folder = tempfile::tempdir().unwrap();
    let options = StoreOptions {
        wal: Wal::Interval(Duration::from_secs(1)),
        head_bytes_max: HEAD_BYTES_MAX,
        series_max: count,
        ..StoreOptions::default()
    };
    let (store, _) = Store::open(&folder.path().join("series"), options).unwrap();
    let (before, began) = (resident(), Instant::now());
    for from in (0..count).step_by(BATCH as usize) {
        let mut batch = Batch::new();
        for i in from..from + BATCH {
            let name = format!("load arch=x64 dc={} host=h{i} os=linux rack={}", i % 7, i % 50);
            batch.push(store.row(name.as_bytes()).unwrap(), i as i64, &[i as f64]).unwrap();
        }
        store.write(batch, Ack::Flushed).unwrap();
        // Writers wait when the heads exceed three times the configured size.
        let head = store.stats().head_bytes;
        assert!(head <= 4 * HEAD_BYTES_MAX as u64, "{head} bytes of heads");
    }
    let took = began.elapsed();
    assert!(count < 1_000_000 || took <= Duration::from_mins(1), "a million in {took:?}");
    assert!(store.row(b"one more").is_err(), "the limit of series is kept");
    let grown = resident().saturating_sub(before);
    assert!(grown <= count * SERIES_BYTES_MAX, "{} bytes a series", grown / count);
    println!("{count} series in {took:?}, {} bytes each", grown / count);
    assert_eq!(store.find(&Selector::metric("load").with("host", "h7")).len(), 1);
    store.close().unwrap();
}
