//! Summaries of blocks and roll-ups answer as the samples do.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::unreachable,
    reason = "a test that cannot go on fails"
)]

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use budget::{Budget, Memory};
use env::clock::ManualClock;
use env::files::SimDisk;
use promql::{Annotations, Answer, Points, Query, run};
use series::{Ack, Batch, SeriesRetention, Store, StoreOptions, Wal};

const SECOND: i64 = 1_000_000_000;
/// A partition of the store, seconds.
const PARTITION_S: i64 = 7200;

fn opened(options: StoreOptions) -> Store {
    let files = Arc::new(SimDisk::new(1));
    let options = StoreOptions { wal: Wal::Off, background: false, files, ..options };
    Store::open(Path::new("/series"), options).unwrap().0
}

/// Writes a value every 10 s for some partitions of 2 hours, in parts but for the last half.
fn write(store: &Store, partitions: i64, value: impl Fn(i64) -> f64) {
    let row = store.row(b"load host=a").unwrap();
    for half in 0..2 * partitions {
        let mut batch = Batch::new();
        for at in half * PARTITION_S / 20..(half + 1) * PARTITION_S / 20 {
            batch.push(row, at * 10 * SECOND, &[value(at)]).unwrap();
        }
        store.write(batch, Ack::Persisted).unwrap();
        if half + 1 < 2 * partitions {
            store.seal().unwrap();
        }
    }
}

/// Returns the points of the only series of an answer.
fn ask(store: &Store, query: &str, start_s: i64, end_s: i64, step_s: i64) -> (Points, Annotations) {
    let expr = promql_syntax::parse(query).unwrap();
    let ms = |seconds: i64| seconds * 1000;
    let (start_ms, end_ms, step_ms) = (ms(start_s), ms(end_s), ms(step_s));
    let query = Query { start_ms, end_ms, step_ms, lookback_ms: promql::LOOKBACK_MS };
    let budget = Budget::new(Duration::from_mins(1), Memory::default(), || false);
    match run(store, &expr, query, &budget).unwrap() {
        (Answer::Matrix(mut list), notes) => {
            (list.pop().map(|one| one.1).unwrap_or_default(), notes)
        }
        (Answer::Vector(mut list), notes) => {
            (list.pop().map(|(_, value)| (end_ms, value)).into_iter().collect(), notes)
        }
        _ => unreachable!("the query gives a vector"),
    }
}

#[test]
fn summaries_of_blocks_give_what_the_samples_give() {
    let store = opened(StoreOptions::default().keeping_all());
    let value = |at: i64| match at % 97 {
        0 => f64::from_bits(series::END_OF_SERIES),
        1 => f64::NAN,
        2 => -0.0,
        3 => 0.0,
        rest => (rest as f64).sin() * at as f64,
    };
    write(&store, 3, value);
    let mut queries = Vec::new();
    for name in ["min", "max", "count", "present"] {
        for range_s in [60, 900, 3600, PARTITION_S] {
            queries.push((format!("{name}_over_time(load[{range_s}s])"), range_s));
        }
    }
    for ((query, range_s), start_s) in
        queries.iter().flat_map(|query| [-30, 3, 600, PARTITION_S - 5].map(|start| (query, start)))
    {
        let end_s = start_s + 3 * PARTITION_S;
        // Windows that overlap are answered from samples.
        let (mut samples, _) = ask(&store, query, start_s, end_s, range_s / 2);
        samples.retain(|(time_ms, _)| (time_ms - start_s * 1000) % (range_s * 1000) == 0);
        let (blocks, _) = ask(&store, query, start_s, end_s, *range_s);
        assert_eq!(bits(&blocks), bits(&samples), "{query} from {start_s}");
        assert!(!blocks.is_empty());
    }
}

fn bits(points: &Points) -> Vec<(i64, u64)> {
    points.iter().map(|(time, value)| (*time, value.to_bits())).collect()
}

#[test]
fn roll_ups_answer_where_no_samples_remain() {
    let clock = ManualClock::at(0);
    let partition = Duration::from_secs(PARTITION_S as u64);
    let options = StoreOptions {
        retention: SeriesRetention { age: Some(2 * partition), bytes_max: None },
        rollup_age: Some(100 * partition),
        clock: Arc::new(clock.clone()),
        ..StoreOptions::default()
    };
    let (store, whole) = (opened(options), opened(StoreOptions::default().keeping_all()));
    for store in [&store, &whole] {
        write(store, 4, |at| at as f64);
    }
    clock.advance(4 * partition);
    store.seal().unwrap();
    store.retain().unwrap();
    // The windows of whole buckets, and windows that reach into the samples.
    for name in ["min", "max", "count", "sum", "avg", "first", "last", "present"] {
        for (range_s, end_s) in
            [(300, 3590), (3600, PARTITION_S - 1), (3600, 2 * PARTITION_S + 599)]
        {
            let query = format!("{name}_over_time(load[{range_s}s])");
            let (found, notes) = ask(&store, &query, end_s, end_s, 0);
            assert_eq!(found, ask(&whole, &query, end_s, end_s, 0).0, "{query} at {end_s}");
            assert_eq!(notes.infos(&query).len(), 1, "{query} at {end_s}: {notes:?}");
        }
    }
    // The value of a bucket is its last one, for as long as the bucket is wide.
    let (found, notes) = ask(&store, "load", 450, 450, 0);
    assert_eq!(found, [(450_000, 29.0)]);
    let info = &notes.infos("load")[0];
    assert!(
        info.contains("of samples before 14400 only summaries of up to 300 s remain"),
        "{info}"
    );
    // An answer from samples alone has no info.
    let (_, notes) = ask(&store, "load", 3 * PARTITION_S, 3 * PARTITION_S, 0);
    assert!(notes.infos("load").is_empty(), "{notes:?}");
}

#[test]
fn series_that_differ_in_what_describes_them_are_one_or_refused() {
    let store = opened(StoreOptions::default().keeping_all());
    let mut batch = Batch::new();
    for (name, at_s) in [("m __type__=gauge", 10), ("m __type__=counter", 20), ("n", 10)] {
        batch.push(store.row(name.as_bytes()).unwrap(), at_s * SECOND, &[1.0]).unwrap();
    }
    store.write(batch, Ack::Persisted).unwrap();
    let result = |query: &str, start_ms: i64, step_ms: i64| {
        let expr = promql_syntax::parse(query).unwrap();
        let query = Query { start_ms, end_ms: 20_000, step_ms, lookback_ms: promql::LOOKBACK_MS };
        run(&store, &expr, query, &Budget::new(Duration::from_mins(1), Memory::default(), || false))
    };
    let error = result("sum_over_time(m[1m])", 20_000, 0).unwrap_err().to_string();
    assert_eq!(error, "vector cannot contain metrics with the same labelset");
    let (answer, _) = result("sum_over_time(m[5s])", 10_000, 10_000).unwrap();
    let Answer::Matrix(list) = answer else { unreachable!("a range query") };
    assert_eq!(list.iter().map(|(_, points)| points.len()).collect::<Vec<_>>(), [2]);
    let error = result("m * on () n", 20_000, 0).unwrap_err().to_string();
    assert!(error.contains("multiple matches for labels"), "{error}");
    let error = result("n * on () m", 20_000, 0).unwrap_err().to_string();
    assert!(error.starts_with("found duplicate series for the match group {}"), "{error}");
}
