//! Memory follows the series that are written now: agents that come and go leave nothing behind.
//! The test runs alone in its process, because it measures resident memory.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    missing_docs,
    reason = "a test that cannot go on fails"
)]

use std::sync::Arc;
use std::time::Duration;

use env::clock::ManualClock;
use series::{Ack, Batch, NameKind, NameList, Selector, SeriesRetention, Store, StoreOptions, Wal};

const PARTITION: Duration = Duration::from_hours(2);
/// Number of series that are written in one partition and never again.
const SERIES: u64 = 5_000;
const ROUNDS: u64 = 14;
/// Number of rounds after which memory must not grow: retention keeps two partitions.
const FIRST_FULL: u64 = 6;

fn resident() -> u64 {
    let text = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = text.lines().find(|l| l.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() << 10
}

#[test]
fn expired_series_release_their_memory() {
    let folder = tempfile::tempdir().unwrap();
    let clock = ManualClock::at(1_000_000_000_000_000);
    let options = StoreOptions {
        wal: Wal::Off,
        retention: SeriesRetention { age: Some(2 * PARTITION), bytes_max: None },
        series_max: 6 * SERIES,
        background: false,
        clock: Arc::new(clock.clone()),
        ..StoreOptions::default()
    };
    let (store, _) = Store::open(&folder.path().join("series"), options).unwrap();
    let mut full = 0;
    for round in 0..ROUNDS {
        let mut batch = Batch::new();
        let now_ns =
            1_000_000_000_000_000_000 + (round * PARTITION.as_secs()) as i64 * 1_000_000_000;
        for i in 0..SERIES {
            let name = format!("load dc={} host=round-{round}-{i} os=linux", i % 7);
            batch.push(store.row(name.as_bytes()).unwrap(), now_ns, &[i as f64]).unwrap();
        }
        store.write(batch, Ack::Flushed).unwrap();
        store.seal().unwrap();
        clock.advance(PARTITION);
        store.retain().unwrap();
        // These are the partitions that are kept, and those whose handles are still valid.
        let rows = store.stats().rows;
        assert!(rows <= 5 * SERIES, "{rows} rows in round {round}");
        if round == FIRST_FULL {
            full = resident();
        }
    }
    let grown = resident().saturating_sub(full);
    let came = (ROUNDS - 1 - FIRST_FULL) * SERIES;
    assert!(grown < came * 100, "{grown} bytes for {came} series that came and went");
    let metrics = NameList { kind: NameKind::Metric, metric: String::new() };
    assert_eq!(store.list(&metrics, "", "", 9), ["load"]);
    assert!(store.find(&Selector::metric("load").with("host", "round-0-1")).is_empty());
    store.close().unwrap();
}
