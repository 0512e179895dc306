//! Memory held by queries.

use super::*;
use budget::HeldMemory;

fn empty() -> (tempfile::TempDir, Store) {
    let folder = tempfile::tempdir().unwrap();
    let options = StoreOptions { wal: Wal::Off, background: false, ..StoreOptions::default() };
    let (store, _) = Store::open(&folder.path().join("s"), options).unwrap();
    (folder, store)
}

/// Returns the answer of a query as CSV with raw times, and the most memory it held, in bytes.
fn answer_and_peak_memory(store: &Store, fields: &str) -> (String, usize) {
    let memory = Memory::default();
    let budget = Budget::new(QUERY_TIME_MAX, memory.clone(), || false);
    let text = format!(r#"{{{fields}, "output": {{"format": "csv", "timestamp": "raw"}}}}"#);
    let (mut rows, mut held) = (String::new(), 0);
    let query = Query::parse(text.as_bytes()).unwrap();
    let cut = run(store, &query, &budget, |piece| {
        rows.push_str(std::str::from_utf8(&piece).unwrap());
        held = held.max(memory.held_bytes());
        true
    });
    assert_eq!(cut, None);
    (rows, held)
}

fn write(store: &Store, name: &str, samples: &[(i64, f64)]) {
    let row = store.row(name.as_bytes()).unwrap();
    for some in samples.chunks(100_000) {
        let mut batch = Batch::new();
        for (time, value) in some {
            batch.push(row, *time, &[*value]).unwrap();
        }
        store.write(batch, Ack::Persisted).unwrap();
    }
}

#[test]
fn query_releases_its_memory_reservation() {
    let (_folder, store) = store();
    let memory = Memory::default();
    for (fields, _) in CASES {
        let budget = Budget::new(QUERY_TIME_MAX, memory.clone(), || false);
        let text = format!(r#"{{{fields}, "range": {{"from": 0, "to": 1000}}}}"#);
        answer_within(&store, &text, &budget);
        assert_eq!(memory.held_bytes(), 0, "{fields}");
    }
}

#[test]
fn any_number_of_names_is_listed_in_bounded_memory() {
    let (_folder, store) = empty();
    let long = "x".repeat(1_000);
    for host in 0..20_000 {
        store.row(format!("up host={host:05} note={long}").as_bytes()).unwrap();
    }
    let (names, held) = answer_and_peak_memory(&store, r#""select": "meta:names:up""#);
    assert!(held <= 12 << 20, "{held} bytes of 20 million were held at once");
    assert!(names.lines().is_sorted());
    assert_eq!(names.lines().count(), 20_000);
}

#[test]
fn events_are_read_in_chunks_in_both_directions() {
    let (_folder, store) = empty();
    let log = store.row(b"!log host=a").unwrap();
    // The times of the parts overlap only at their ends, where one time is written twice. The last
    // rows follow a gap and are not in a part yet.
    for times in [2_000..4_000, 0..2_001, 4_000..6_000, 6_100..6_200] {
        let sealed = times.end <= 6_000;
        for some in times.collect::<Vec<i64>>().chunks(500) {
            let mut batch = Batch::new();
            for time in some {
                batch.push_event(log, *time, format!("{time:04000}").as_bytes()).unwrap();
            }
            store.write(batch, Ack::Persisted).unwrap();
        }
        if sealed {
            store.seal().unwrap();
        }
    }
    let ask = |range: &str| {
        let fields = format!(r#""select-events": "!log", "range": {range}"#);
        let (times, held) = answer_and_peak_memory(&store, &fields);
        assert!(held < 12 << 20, "{held} bytes of 24 million were held at once");
        let time = |line: &str| line.split(',').nth(1).unwrap().parse().unwrap();
        times.lines().map(time).collect::<Vec<i64>>()
    };
    let mut forward = ask(r#"{"from": 0, "to": 7000}"#);
    assert_eq!(forward, (0..6_000).chain(6_100..6_200).collect::<Vec<i64>>());
    forward.reverse();
    assert_eq!(ask(r#"{"from": 6999, "to": -1}"#), forward);
    assert_eq!(ask(r#"{"from": 1999, "to": 2002}"#), [1_999, 2_000, 2_001]);
}

#[test]
fn long_series_is_read_in_bounded_memory_in_any_sample_order() {
    const PARTS: i64 = 5;
    const ROWS: i64 = 300_000;
    let (_folder, store) = empty();
    // Each part has every fifth time, from the newest to the oldest. A third of the times is then
    // written again with other values and stays in the head.
    for part in 0..PARTS {
        let times = (0..ROWS / PARTS).rev().map(|i| i * PARTS + part);
        write(&store, "long host=a", &times.map(|t| (t, t as f64)).collect::<Vec<_>>());
        store.seal().unwrap();
    }
    let again: Vec<(i64, f64)> = (0..ROWS / 3).map(|i| (i * 3, -1.0)).collect();
    write(&store, "long host=a", &again);
    let expected = |time: i64| {
        let value = if time % 3 == 0 { -1 } else { time };
        format!("long host=a,{time},{value}")
    };
    for backward in [false, true] {
        let range = if backward { (ROWS - 1, -1) } else { (0, ROWS) };
        let range = format!(r#""range": {{"from": {}, "to": {}}}"#, range.0, range.1);
        let (rows, held) = answer_and_peak_memory(&store, &format!(r#""select": "long", {range}"#));
        assert!(held < 3 << 20, "{held} bytes of {} were held at once", 16 * ROWS);
        let times: Box<dyn Iterator<Item = i64>> =
            if backward { Box::new((0..ROWS).rev()) } else { Box::new(0..ROWS) };
        assert_eq!(rows.lines().count() as i64, ROWS);
        for (row, time) in rows.lines().zip(times) {
            assert_eq!(row, expected(time));
        }
    }
}

#[test]
fn query_out_of_memory_before_its_first_row_returns_only_error() {
    let (_folder, store) = empty();
    for host in ["a", "b"] {
        let samples: Vec<(i64, f64)> = (0..200_000).map(|t| (t, t as f64)).collect();
        write(&store, &format!("fine host={host}"), &samples);
    }
    // Other queries hold all memory except what this query is guaranteed.
    let memory = Memory::default();
    let others: Vec<Budget> =
        (0..2).map(|_| Budget::new(QUERY_TIME_MAX, memory.clone(), || false)).collect();
    let mut held: Vec<HeldMemory> = others.iter().map(Budget::nothing).collect();
    for held in &mut held {
        held.set(512 << 20).unwrap();
    }
    for (regroup, range) in [
        (r#""pivot-by-tag": ["host"]"#, r#"{"from": 0, "to": 200000}"#),
        (r#""pivot-by-tag": ["host"]"#, r#"{"from": 199999, "to": -1}"#),
        (r#""group-by-tag": ["host"]"#, r#"{"from": 0, "to": 200000}"#),
    ] {
        let text = format!(
            r#"{{"group-aggregate": {{"metric": "fine", "func": "mean", "step": "1n"}}, {regroup},
            "range": {range}}}"#
        );
        let budget = Budget::new(QUERY_TIME_MAX, memory.clone(), || false);
        let answer = answer_within(&store, &text, &budget);
        assert!(answer.starts_with("-Query needs more"), "{answer:.200}");
        assert_eq!(answer.lines().count(), 1, "{answer:.200}");
    }
}
