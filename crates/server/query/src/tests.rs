use series::{Ack, Batch, StoreOptions, Wal};

use super::*;

mod memory;

/// Returns a store with two hosts, one of which has two metrics with common times, and events.
pub(super) fn store() -> (tempfile::TempDir, Store) {
    let folder = tempfile::tempdir().unwrap();
    let options = StoreOptions { wal: Wal::Off, background: false, ..StoreOptions::default() };
    let (store, _) = Store::open(&folder.path().join("s"), options).unwrap();
    let both = store.row(b"cpu|mem dc=1 host=a").unwrap();
    let one = store.row(b"cpu dc=1 host=b").unwrap();
    let log = store.row(b"!log host=a").unwrap();
    let mut batch = Batch::new();
    for i in 1..=6 {
        let x = f64::from(i);
        batch.push(both, i64::from(i) * 10, &[x, 12.0 - 2.0 * x]).unwrap();
    }
    for i in 1..=3 {
        batch.push(one, i64::from(i) * 10 + 5, &[f64::from(i) * 10.0]).unwrap();
    }
    for (time, text) in [(12, "start"), (22, "user=bob, again")] {
        batch.push_event(log, time, text.as_bytes()).unwrap();
    }
    store.write(batch, Ack::Persisted).unwrap();
    (folder, store)
}

fn answer(store: &Store, text: &str) -> String {
    answer_within(store, text, &Budget::new(QUERY_TIME_MAX, Memory::default(), || false))
}

fn answer_within(store: &Store, text: &str, budget: &Budget) -> String {
    let query = match Query::parse(text.as_bytes()) {
        Ok(query) => query,
        Err(e) => return format!("-{e}"),
    };
    let mut answer = Vec::new();
    let cut = run(store, &query, budget, |piece| {
        answer.extend_from_slice(&piece);
        true
    });
    assert_eq!(cut, None, "all of it fits into one piece");
    String::from_utf8(answer).unwrap()
}

/// Each case has the fields of a query over all times, and its rows as CSV with raw times.
const CASES: &[(&str, &str)] = &[
    // Kinds of queries.
    (r#""select": "mem", "limit": 2"#, "mem dc=1 host=a,10,10\nmem dc=1 host=a,20,8\n"),
    (r#""select": "unknown""#, ""),
    (
        r#""select": "meta:names""#,
        "!log host=a\ncpu dc=1 host=a\ncpu dc=1 host=b\nmem dc=1 host=a\n",
    ),
    (r#""select": "meta:names:mem""#, "mem dc=1 host=a\n"),
    (r#""select-events": "!log""#, "!log host=a,12,start\n!log host=a,22,\"user=bob, again\"\n"),
    (r#""select-events": "!log", "filter": "^user=""#, "!log host=a,22,\"user=bob, again\"\n"),
    (
        r#""aggregate": {"cpu": "count", "mem": ["sum", "mean"]}"#,
        "cpu:count dc=1 host=b,35,3\ncpu:count dc=1 host=a,60,6\nmem:sum dc=1 host=a,60,30\n\
         mem:mean dc=1 host=a,60,5\n",
    ),
    (
        r#""aggregate": {"mem": ["min", "max", "first", "last"]}"#,
        "mem:min dc=1 host=a,60,0\nmem:max dc=1 host=a,60,10\nmem:first dc=1 host=a,60,10\n\
         mem:last dc=1 host=a,60,0\n",
    ),
    (
        r#""aggregate": {"cpu": ["min_timestamp", "max_timestamp", "first_timestamp", "last_timestamp"]}, "where": {"host": "b"}"#,
        "cpu:min_timestamp dc=1 host=b,15\ncpu:first_timestamp dc=1 host=b,15\n\
         cpu:max_timestamp dc=1 host=b,35\ncpu:last_timestamp dc=1 host=b,35\n",
    ),
    (
        r#""group-aggregate": {"metric": "cpu", "func": ["min", "sum"], "step": "30n"}, "where": {"host": "a"}"#,
        "cpu:min|cpu:sum dc=1 host=a,0,1,3\ncpu:min|cpu:sum dc=1 host=a,30,3,12\n\
         cpu:min|cpu:sum dc=1 host=a,60,6,6\n",
    ),
    (
        r#""group-aggregate": {"metric": ["cpu", "mem"], "func": "max", "step": "60n"}, "where": {"host": "a"}, "order-by": "series""#,
        "cpu:max dc=1 host=a,0,5\ncpu:max dc=1 host=a,60,6\nmem:max dc=1 host=a,0,10\n\
         mem:max dc=1 host=a,60,0\n",
    ),
    (
        r#""join": ["cpu", "mem"], "limit": 3"#,
        "cpu|mem dc=1 host=a,10,1,10\ncpu|mem dc=1 host=b,15,10,\ncpu|mem dc=1 host=a,20,2,8\n",
    ),
    (
        r#""group-aggregate-join": {"metric": ["cpu", "mem"], "func": "sum", "step": "30n"}, "where": {"host": "a"}"#,
        "cpu|mem dc=1 host=a,0,3,18\ncpu|mem dc=1 host=a,30,12,12\ncpu|mem dc=1 host=a,60,6,0\n",
    ),
    // A metric that is named twice does not change the tags in the names.
    (
        r#""group-aggregate": {"metric": "cpu", "func": ["max", "max"], "step": "60n"}, "where": {"host": "a"}, "limit": 1"#,
        "cpu:max|cpu:max dc=1 host=a,0,5,5\n",
    ),
    // Selection of series and their names in the answer.
    (
        r#""select": "cpu", "where": {"host": ["b", "z"], "dc": "1"}, "limit": 1"#,
        "cpu dc=1 host=b,15,10\n",
    ),
    (
        r#""select": "cpu", "where": [{"host": "b", "dc": "1"}], "limit": 1"#,
        "cpu dc=1 host=b,15,10\n",
    ),
    // A series that passes two sets of tests appears once.
    (
        r#""select": "cpu", "where": [{"host": "b", "dc": "1"}, {"dc": "1", "host": ["a", "b"]}], "pivot-by-tag": ["dc"], "limit": 3"#,
        "cpu dc=1,10,1\ncpu dc=1,15,10\ncpu dc=1,20,2\n",
    ),
    // A list names all tags of a series.
    (r#""select": "cpu", "where": [{"host": "b"}]"#, ""),
    (r#""select": "meta:names", "offset": 1, "limit": 2"#, "cpu dc=1 host=a\ncpu dc=1 host=b\n"),
    (r#""select": "cpu", "limit": 0"#, ""),
    (r#""select": "cpu", "where": {"host": "z"}"#, ""),
    (
        r#""select": "cpu", "pivot-by-tag": ["dc"], "limit": 3"#,
        "cpu dc=1,10,1\ncpu dc=1,15,10\ncpu dc=1,20,2\n",
    ),
    (
        r#""select": "cpu", "group-by-tag": ["dc"], "limit": 2"#,
        "cpu host=a,10,1\ncpu host=b,15,10\n",
    ),
    (
        r#""group-aggregate": {"metric": "cpu", "func": "max", "step": "1us"}, "pivot-by-tag": ["dc"]"#,
        "cpu:max dc=1,0,30\n",
    ),
    // Selection of rows and their order.
    (
        r#""select": "cpu", "order-by": "series", "offset": 5, "limit": 2"#,
        "cpu dc=1 host=a,60,6\ncpu dc=1 host=b,15,10\n",
    ),
    (
        r#""select": "cpu", "filter": {"gt": 5, "le": 20}"#,
        "cpu dc=1 host=b,15,10\ncpu dc=1 host=b,25,20\ncpu dc=1 host=a,60,6\n",
    ),
    (
        r#""join": ["cpu", "mem"], "filter": {"cpu": {"ge": 3}, "mem": {"lt": 5}}"#,
        "cpu|mem dc=1 host=a,40,4,4\ncpu|mem dc=1 host=a,50,5,2\ncpu|mem dc=1 host=a,60,6,0\n",
    ),
    // A condition on one metric does not affect another.
    (
        r#""aggregate": {"cpu": "max", "mem": "max"}, "filter": {"cpu": {"gt": 9}}"#,
        "cpu:max dc=1 host=b,35,30\nmem:max dc=1 host=a,60,10\n",
    ),
    (
        r#""join": ["cpu", "mem"], "filter": {"cpu": {"gt": 29}, "mem": {"gt": 9}, "=": {"require": "any"}}"#,
        "cpu|mem dc=1 host=a,10,1,10\ncpu|mem dc=1 host=b,35,30,\n",
    ),
    // Functions.
    (
        r#""select": "mem", "apply": [{"name": "scale", "weights": [-1]}, {"name": "abs"}], "limit": 2"#,
        "mem dc=1 host=a,10,10\nmem dc=1 host=a,20,8\n",
    ),
    (
        r#""select": "mem", "apply": [{"name": "rate"}], "limit": 1"#,
        "mem dc=1 host=a,20,-200000000\n",
    ),
    (
        r#""select": "cpu", "where": {"host": "a"}, "apply": [{"name": "accumulate"}], "limit": 3"#,
        "cpu dc=1 host=a,10,1\ncpu dc=1 host=a,20,3\ncpu dc=1 host=a,30,6\n",
    ),
    (
        r#""select": "cpu", "where": {"host": "b"}, "apply": [{"name": "ewma", "decay": 0.5}]"#,
        "cpu dc=1 host=b,15,10\ncpu dc=1 host=b,25,15\ncpu dc=1 host=b,35,22.5\n",
    ),
    (
        r#""select": "cpu", "where": {"host": "b"}, "apply": [{"name": "sma", "window-width": 2}]"#,
        "cpu dc=1 host=b,15,10\ncpu dc=1 host=b,25,15\ncpu dc=1 host=b,35,25\n",
    ),
    (
        r#""select": "cpu", "where": {"host": "b"}, "apply": [{"name": "cma"}]"#,
        "cpu dc=1 host=b,15,10\ncpu dc=1 host=b,25,15\ncpu dc=1 host=b,35,20\n",
    ),
    (
        r#""join": ["cpu", "mem"], "where": {"host": "a"}, "limit": 2, "apply": [{"name": "eval", "expr": "cpu / (cpu + mem) * 100"}]"#,
        "cpu|mem dc=1 host=a,10,9.0909090909090917\ncpu|mem dc=1 host=a,20,20\n",
    ),
    (
        r#""join": ["cpu", "mem"], "where": {"host": "a"}, "limit": 1, "apply": [{"name": "divide"}]"#,
        "cpu|mem dc=1 host=a,10,0.10000000000000001\n",
    ),
    (
        r#""select": "cpu", "apply": [{"name": "frequent-items", "error": 0.01, "portion": 0.5}]"#,
        "cpu dc=1 host=a,60,6\n",
    ),
    (
        r#""select": "cpu", "apply": [{"name": "heavy-hitters", "error": 0.01, "portion": 0.5}]"#,
        "cpu dc=1 host=b,35,60\n",
    ),
    (
        r#""select-events": "!log", "apply": [{"name": "frequent-items", "error": 0.1, "portion": 0.1}]"#,
        "!log host=a,22,2\n",
    ),
    (
        r#""join": ["cpu", "mem"], "where": {"host": "a"}, "eval": "cpu+mem", "limit": 1"#,
        "cpu|mem dc=1 host=a,10,11\n",
    ),
    (r#""select": "cpu", "eval": {"expr": "cpu*2"}, "limit": 1"#, "cpu dc=1 host=a,10,2\n"),
    (
        r#""select": "cpu", "apply": [{"name": "top", "N": 1}]"#,
        "cpu dc=1 host=b,15,10\ncpu dc=1 host=b,25,20\ncpu dc=1 host=b,35,30\n",
    ),
    (
        r#""aggregate": {"cpu": "last"}, "apply": [{"name": "top", "N": 1}]"#,
        "cpu:last dc=1 host=b,35,30\n",
    ),
];

#[test]
fn query_cases_return_expected_rows() {
    let (_folder, store) = store();
    let output =
        r#""range": {"from": 0, "to": 1000}, "output": {"format": "csv", "timestamp": "raw"}"#;
    for (fields, rows) in CASES {
        assert_eq!(answer(&store, &format!("{{{fields}, {output}}}")), *rows, "{fields}");
    }
}

#[test]
fn reversed_range_returns_rows_newest_first() {
    let (_folder, store) = store();
    let output =
        r#""range": {"from": 36, "to": 9}, "output": {"format": "csv", "timestamp": "raw"}"#;
    let rows =
        answer(&store, &format!(r#"{{"select": "cpu", "limit": 3, "offset": 1, {output}}}"#));
    assert_eq!(rows, "cpu dc=1 host=a,30,3\ncpu dc=1 host=b,25,20\ncpu dc=1 host=a,20,2\n");
    let rows = answer(&store, &format!(r#"{{"select-events": "log", {output}}}"#));
    assert_eq!(rows, "!log host=a,22,\"user=bob, again\"\n!log host=a,12,start\n");
    let rows = answer(&store, &format!(r#"{{"join": ["cpu", "mem"], "limit": 2, {output}}}"#));
    assert_eq!(rows, "cpu|mem dc=1 host=b,35,30,\ncpu|mem dc=1 host=a,30,3,6\n");
}

#[test]
fn resp_and_csv_output_format_raw_and_iso_times() {
    let (_folder, store) = store();
    let range = r#""range": {"from": 0, "to": 12}"#;
    let ask = |fields: &str, output: &str| {
        answer(&store, &format!(r#"{{{fields}, {range}, "output": {output}}}"#))
    };
    let join = r#""join": ["cpu", "mem"]"#;
    assert_eq!(
        ask(join, r#"{"format": "resp"}"#),
        "+cpu|mem dc=1 host=a\r\n+19700101T000000.000000010\r\n*2\r\n+1\r\n+10\r\n"
    );
    assert_eq!(
        ask(r#""select": "cpu""#, r#"{"format": "resp", "timestamp": "raw"}"#),
        "+cpu dc=1 host=a\r\n:10\r\n+1\r\n"
    );
    assert_eq!(
        ask(join, r#"{"format": "csv", "timestamp": "iso"}"#),
        "cpu|mem dc=1 host=a,19700101T000000.000000010,1,10\n"
    );
}

#[test]
fn series_without_samples_in_range_has_no_rank() {
    let (_folder, store) = store();
    let mut batch = Batch::new();
    for (host, time_ns) in [("below", 10), ("elsewhere", 500)] {
        let row = store.row(format!("debt host={host}").as_bytes()).unwrap();
        batch.push(row, time_ns, &[-5.0]).unwrap();
    }
    store.write(batch, Ack::Persisted).unwrap();
    let top = r#""apply": [{"name": "top", "N": 1}], "range": {"from": 0, "to": 99}"#;
    let output = r#""output": {"format": "csv", "timestamp": "raw"}"#;
    // The first query uses the sums of blocks, the second one the sums of rows.
    for what in [r#""select": "debt""#, r#""select": "debt", "filter": {"lt": 0}"#] {
        let rows = answer(&store, &format!("{{{what}, {top}, {output}}}"));
        assert_eq!(rows, "debt host=below,10,-5\n", "{what}");
    }
}

#[test]
fn nan_has_no_rank() {
    let (_folder, store) = store();
    let row = store.row(b"cpu dc=1 host=c").unwrap();
    let mut batch = Batch::new();
    batch.push(row, 10, &[f64::NAN]).unwrap();
    store.write(batch, Ack::Persisted).unwrap();
    let top = r#"{"name": "top", "N": 1}"#;
    let heavy = r#"{"name": "heavy-hitters", "error": 0.1, "portion": 0.5}"#;
    let (select, max) = (r#""select": "cpu""#, r#""aggregate": {"cpu": "max"}"#);
    for (what, apply) in [(select, top), (max, top), (select, heavy)] {
        let fields = format!(r#"{what}, "range": {{"from": 0, "to": 99}}, "apply": [{apply}]"#);
        let answer = answer(&store, &format!("{{{fields}}}"));
        assert!(answer.contains("host=b") && !answer.contains("host=c"), "{what}: {answer}");
    }
}

const TWO_SHARES: &str = r#"{"name": "heavy-hitters", "error": 0, "portion": 0.1}, {"name": "frequent-items", "error": 0, "portion": 0.1}"#;

#[test]
fn invalid_query_is_refused_with_the_reason() {
    let (_folder, store) = store();
    let range = r#""range": {"from": 0, "to": 9}"#;
    let cases = [
        ("", "JSON"),
        ("{}", "exactly one"),
        (r#"{"select": "cpu"}"#, "range"),
        (&*format!(r#"{{"select": "cpu", "select": "mem", {range}}}"#), "select"),
        (&*format!(r#"{{"select": "cpu", "wher": 1, {range}}}"#), "wher"),
        (&*format!(r#"{{"select": "!log", {range}}}"#), "select-events"),
        (
            &*format!(
                r#"{{"select": "cpu", "apply": [{{"name": "eval", "expr": "(1"}}], {range}}}"#
            ),
            ")",
        ),
        (&*format!(r#"{{"select": "cpu", "apply": [{{"name": "top"}}], {range}}}"#), "apply"),
        (&*format!(r#"{{"select": "cpu", "apply": [{TWO_SHARES}], {range}}}"#), "once"),
        (&*format!(r#"{{"select": "cpu", "order-by": "size", {range}}}"#), "order-by"),
        (&*format!(r#"{{"select": "cpu", "filter": {{"cpux": {{"gt": 9}}}}, {range}}}"#), "cpux"),
        (&*format!(r#"{{"select-events": "log", "filter": {{"gt": 9}}, {range}}}"#), "filter"),
        (
            &*format!(
                r#"{{"select": "cpu", "apply": [{{"name": "eval", "expr": "cpux * 2"}}], {range}}}"#
            ),
            "cpux",
        ),
        (
            &*format!(
                r#"{{"group-aggregate": {{"metric": "cpu", "func": "mode", "step": "1s"}}, {range}}}"#
            ),
            "mode",
        ),
    ];
    for (text, part) in cases {
        let refusal = answer(&store, text);
        assert!(refusal.starts_with('-') && refusal.contains(part), "{text}: {refusal}");
    }
}

#[test]
fn query_over_budget_ends_with_an_error() {
    let (_folder, store) = store();
    let text = r#"{"select": "cpu", "range": {"from": 0, "to": 1000}}"#;
    let late = Budget::new(std::time::Duration::ZERO, Memory::default(), || false);
    let said = answer_within(&store, text, &late);
    assert!(said.starts_with("-Query took longer"), "{said}");
    let names = r#"{"select": "meta:names"}"#;
    assert!(answer_within(&store, names, &late).contains("-Query took longer"));
    // A disconnected client ends a query even if no row passes its conditions.
    let gone = Budget::new(QUERY_TIME_MAX, Memory::default(), || true);
    let text = r#"{"select": "cpu", "filter": {"gt": 999}, "range": {"from": 0, "to": 1000}}"#;
    assert!(answer_within(&store, text, &gone).contains("gone"));
}

#[test]
fn backward_query_reverses_rows_of_equal_time() {
    let (_folder, store) = store();
    let rows: Vec<_> = ["x", "y"]
        .iter()
        .map(|host| store.row(format!("tie host={host}").as_bytes()).unwrap())
        .collect();
    let mut batch = Batch::new();
    for time in 1..=3 {
        for (row, value) in rows.iter().zip([1.0, 2.0]) {
            batch.push(*row, time, &[value]).unwrap();
        }
    }
    store.write(batch, Ack::Persisted).unwrap();
    let fields = [
        r#""select": "tie", "group-by-tag": ["host"]"#,
        r#""select": "tie""#,
        r#""join": ["tie", "tie"], "group-by-tag": ["host"]"#,
    ];
    for fields in fields {
        let ask = |range: &str| -> Vec<String> {
            let output = r#""output": {"format": "csv", "timestamp": "raw"}"#;
            let said = answer(&store, &format!(r#"{{{fields}, "range": {range}, {output}}}"#));
            said.lines().map(str::to_owned).collect()
        };
        let mut forward = ask(r#"{"from": 1, "to": 4}"#);
        assert_eq!(forward.len(), 6, "{fields}");
        forward.reverse();
        assert_eq!(ask(r#"{"from": 3, "to": 0}"#), forward, "{fields}");
    }
}

#[test]
fn aggregate_keeps_the_order_of_series_over_a_backward_range() {
    let (_folder, store) = store();
    let ask = |range: &str| {
        let fields =
            r#""aggregate": {"cpu": "sum"}, "output": {"format": "csv", "timestamp": "raw"}"#;
        answer(&store, &format!(r#"{{{fields}, "range": {range}}}"#))
    };
    let backward = ask(r#"{"from": 1000, "to": 0}"#);
    let names: Vec<&str> = backward.lines().filter_map(|line| line.split(',').next()).collect();
    assert_eq!(names, ["cpu:sum dc=1 host=a", "cpu:sum dc=1 host=b"], "{backward}");
}

#[test]
fn query_spans_partitions_in_both_directions() {
    let (_folder, store) = store();
    let row = store.row(b"long host=a").unwrap();
    let mut batch = Batch::new();
    for i in 0..9 {
        batch.push(row, i * series::PARTITION_NS / 2, &[i as f64]).unwrap();
    }
    store.write(batch, Ack::Persisted).unwrap();
    let end = 9 * series::PARTITION_NS;
    let values = |range: String| {
        let csv = r#""output": {"format": "csv", "timestamp": "raw"}"#;
        let rows = answer(&store, &format!(r#"{{"select": "long", "range": {range}, {csv}}}"#));
        let values: Vec<u8> = rows.lines().filter_map(|line| line.bytes().last()).collect();
        String::from_utf8(values).unwrap()
    };
    assert_eq!(values(format!(r#"{{"from": 0, "to": {end}}}"#)), "012345678");
    assert_eq!(values(format!(r#"{{"from": {end}, "to": -1}}"#)), "876543210");
}

#[test]
fn damaged_group_member_is_reported_and_the_rest_is_returned() {
    let folder = tempfile::tempdir().unwrap();
    let options = StoreOptions { wal: Wal::Off, background: false, ..StoreOptions::default() };
    let dir = folder.path().join("s");
    let (store, _) = Store::open(&dir, options).unwrap();
    let [a, b] = [b"cpu dc=1 host=a", b"cpu dc=1 host=b"].map(|name| store.row(name).unwrap());
    let mut batch = Batch::new();
    for time in [0, 10, 20, 30, 40, 50] {
        batch.push(a, time, &[1.0]).unwrap();
        batch.push(b, time, &[1.0]).unwrap();
    }
    store.write(batch, Ack::Persisted).unwrap();
    store.seal().unwrap();
    let mut batch = Batch::new();
    batch.push(a, 70, &[1.0]).unwrap();
    store.write(batch, Ack::Persisted).unwrap();
    // The first chunk belongs to host a and follows a header of 44 bytes.
    let part = std::fs::read_dir(dir.join("parts")).unwrap().next().unwrap().unwrap().path();
    let mut bytes = std::fs::read(&part).unwrap();
    bytes[46] ^= 1;
    std::fs::write(&part, bytes).unwrap();
    for func in ["sum", "max"] {
        let text = format!(
            r#"{{"group-aggregate": {{"metric": "cpu", "func": "{func}", "step": "20n"}},
            "pivot-by-tag": ["dc"], "range": {{"from": 0, "to": 100}},
            "output": {{"format": "csv", "timestamp": "raw"}}}}"#
        );
        let found = answer(&store, &text);
        let (rows, told): (Vec<&str>, Vec<&str>) =
            found.lines().partition(|line| !line.starts_with('-'));
        let value = if func == "sum" { 2 } else { 1 };
        let row = |time: i64, value: i64| format!("cpu:{func} dc=1,{time},{value}");
        assert_eq!(rows, [row(0, value), row(20, value), row(40, value), row(60, 1)], "{found}");
        assert!(matches!(told[..], [one] if one.contains("damaged")), "{found}");
    }
}
