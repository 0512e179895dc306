//! Queries that clients of Akumuli send, and their answers.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    missing_docs,
    reason = "a test that cannot go on fails"
)]

use std::time::{SystemTime, UNIX_EPOCH};

use query::{Budget, Memory, QUERY_TIME_MAX, Query, run};
use series::{Ack, Batch, Store, StoreOptions, Wal};

/// Returns a store with `cpu` and `mem` of two hosts.
fn store() -> (tempfile::TempDir, Store) {
    let folder = tempfile::tempdir().unwrap();
    let options = StoreOptions { wal: Wal::Off, background: false, ..StoreOptions::default() };
    let (store, _) = Store::open(&folder.path().join("s"), options).unwrap();
    let mut batch = Batch::new();
    for (host, more) in [("a", 0.0), ("b", 10.0)] {
        let row = store.row(format!("cpu|mem host={host}").as_bytes()).unwrap();
        for i in 1..=4_u8 {
            let x = more + f64::from(i);
            batch.push(row, i64::from(i) * 10, &[x, 100.0 - x]).unwrap();
        }
    }
    store.write(batch, Ack::Persisted).unwrap();
    (folder, store)
}

fn written(store: &Store, query: Result<Query, String>) -> String {
    let budget = Budget::new(QUERY_TIME_MAX, Memory::default(), || false);
    let mut answer = Vec::new();
    match query {
        Ok(query) => drop(run(store, &query, &budget, |piece| {
            answer.extend_from_slice(&piece);
            true
        })),
        Err(e) => return format!("-{e}"),
    }
    String::from_utf8(answer).unwrap()
}

/// Returns the CSV answer to a query with these fields and this range.
fn ask_in(store: &Store, fields: &str, range: &str) -> String {
    let output = r#""output": {"format": "csv", "timestamp": "raw"}"#;
    let text = format!(r#"{{{fields}, "range": {range}, {output}}}"#);
    written(store, Query::parse(text.as_bytes()))
}

fn ask(store: &Store, fields: &str) -> String {
    ask_in(store, fields, r#"{"from": 0, "to": 99}"#)
}

#[test]
fn group_aggregate_is_filtered_by_the_name_of_a_function() {
    let (_folder, store) = store();
    let group = |filter: &str| {
        let group = r#"{"metric": "cpu", "func": ["min", "max"], "step": "20n"}"#;
        ask(&store, &format!(r#""group-aggregate": {group}, "filter": {filter}"#))
    };
    let (early, late) = ("cpu:min|cpu:max host=b,0,11,11\n", "cpu:min|cpu:max host=b,20,12,13\n");
    let last = "cpu:min|cpu:max host=b,40,14,14\n";
    assert_eq!(group(r#"{"max": {"gt": 12}}"#), [late, last].concat());
    assert_eq!(group(r#"{"min": {"gt": 10}, "max": {"lt": 14}}"#), [early, late].concat());
    assert_eq!(group(r#"{"cpu:max": {"gt": 13}}"#), last);
    let refused = group(r#"{"mean": {"gt": 12}}"#);
    assert!(refused.starts_with("-Field filter: no column mean"), "{refused}");
}

#[test]
fn join_drops_rows_whose_value_does_not_pass_the_filter() {
    let (_folder, store) = store();
    let join = |filter: &str| ask(&store, &format!(r#""join": ["cpu", "mem"], {filter}"#));
    assert_eq!(join(r#""filter": {"cpu": {"gt": 13}}"#), "cpu|mem host=b,40,14,86\n");
    assert_eq!(join(r#""filter": {"gt": 13, "lt": 87}"#), "cpu|mem host=b,40,14,86\n");
}

#[test]
fn joined_aggregates_are_named_by_their_metrics() {
    let (_folder, store) = store();
    let join =
        r#""group-aggregate-join": {"metric": ["cpu", "mem"], "func": "max", "step": "99n"}"#;
    let (a, b) = ("cpu|mem host=a,0,4,99\n", "cpu|mem host=b,0,14,89\n");
    assert_eq!(ask(&store, join), [a, b].concat());
    for column in ["cpu", "cpu:max"] {
        assert_eq!(ask(&store, &format!(r#"{join}, "filter": {{"{column}": {{"gt": 9}}}}"#)), b);
    }
}

#[test]
fn backward_query_by_series_keeps_the_order_of_series() {
    let (_folder, store) = store();
    let backward = |fields: &str| {
        ask_in(&store, &format!(r#"{fields}, "order-by": "series""#), r#"{"from": 29, "to": 0}"#)
    };
    assert_eq!(
        backward(r#""select": "cpu""#),
        "cpu host=a,20,2\ncpu host=a,10,1\ncpu host=b,20,12\ncpu host=b,10,11\n"
    );
    assert_eq!(
        backward(r#""join": ["cpu", "mem"], "limit": 3"#),
        "cpu|mem host=a,20,2,98\ncpu|mem host=a,10,1,99\ncpu|mem host=b,20,12,88\n"
    );
}

#[test]
fn names_and_suggestions_are_written_as_csv_on_request() {
    let (_folder, store) = store();
    store.row(b"disk path=a,\\nb").unwrap();
    let search = |select: &str, output: &str| {
        let text = format!(r#"{{"select": "{select}"{output}}}"#);
        written(&store, Query::parse_search(text.as_bytes()))
    };
    let csv = r#", "output": {"format": "csv"}"#;
    assert_eq!(search("cpu", csv), "cpu host=a\ncpu host=b\n");
    assert_eq!(search("disk", csv), "\"disk path=a,\\nb\"\n");
    assert_eq!(search("cpu", ""), "+cpu host=a\r\n+cpu host=b\r\n");
    let values = |output: &str| {
        let fields = r#""select": "tag-values", "metric": "disk", "tag": "path""#;
        written(&store, Query::parse_suggest(format!("{{{fields}{output}}}").as_bytes()))
    };
    assert_eq!(values(csv), "\"a,\nb\"\n");
    assert_eq!(values(""), "$4\r\na,\nb\r\n");
    assert!(values(r#", "output": {"format": "xml"}"#).contains("output.format"));
    assert!(search("cpu", r#", "output": {"format": "xml"}"#).contains("output.format"));
}

#[test]
fn suggestions_of_many_pages_are_complete_and_sorted() {
    let (_folder, store) = store();
    for i in 0..5_000 {
        store.row(format!("up host=web-{i:04} dc={}", i % 2).as_bytes()).unwrap();
    }
    let values = |metric: &str, prefix: &str| {
        let text = format!(
            r#"{{"select": "tag-values", "metric": "{metric}", "tag": "host",
            "starts-with": "{prefix}", "output": {{"format": "csv"}}}}"#
        );
        let found = written(&store, Query::parse_suggest(text.as_bytes()));
        found.lines().map(str::to_owned).collect::<Vec<_>>()
    };
    let web: Vec<String> = (0..5_000).map(|i| format!("web-{i:04}")).collect();
    assert_eq!(values("up", ""), web);
    assert_eq!(values("", ""), [&["a".to_owned(), "b".to_owned()][..], &web].concat());
    assert_eq!(values("up", "web-4"), web[4_000..]);
    assert_eq!(values("cpu", "web"), Vec::<String>::new());
}

#[test]
fn join_as_text_is_refused_with_the_right_form() {
    let (_folder, store) = store();
    let refused = ask(&store, r#""join": "cpu""#);
    assert_eq!(refused, "-Field join is a list of metrics; write [\"cpu\", ...]");
}

#[test]
fn times_may_end_in_z_and_be_now() {
    let (_folder, store) = store();
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos() as i64;
    let row = store.row(b"up host=a").unwrap();
    let mut batch = Batch::new();
    for (time_ns, value) in [(now - 3_600_000_000_000, 1.0), (now + 3_600_000_000_000, 2.0)] {
        batch.push(row, time_ns, &[value]).unwrap();
    }
    store.write(batch, Ack::Persisted).unwrap();
    let last = |range: &str| {
        let rows = ask_in(&store, r#""select": "up""#, range);
        rows.lines().filter_map(|line| line.rsplit(',').next()).collect::<String>()
    };
    assert_eq!(last(r#"{"from": "19700101T000000Z", "to": "now"}"#), "1");
    assert_eq!(last(r#"{"from": "now", "to": "20990101T000000.5Z"}"#), "2");
    assert_eq!(last(r#"{"from": "now", "to": 0}"#), "1");
}

#[test]
fn rfc_3339_times_are_times_of_a_range() {
    let (_folder, store) = store();
    let row = store.row(b"up host=a").unwrap();
    let mut batch = Batch::new();
    let midnight_ns = 1_795_824_000_000_000_000;
    for (time_ns, value) in [(0, 1.0), (500_000_000, 2.0), (1_000_000_000, 3.0)] {
        batch.push(row, midnight_ns + time_ns, &[value]).unwrap();
    }
    store.write(batch, Ack::Persisted).unwrap();
    let values = |from: &str, to: &str| {
        let range = format!(r#"{{"from": "{from}", "to": "{to}"}}"#);
        let rows = ask_in(&store, r#""select": "up""#, &range);
        rows.lines().filter_map(|line| line.rsplit(',').next()).collect::<String>()
    };
    assert_eq!(values("2026-11-28T00:00:00Z", "2026-11-28T00:00:01Z"), "12");
    assert_eq!(values("2026-11-28T00:00:00.5Z", "2026-11-28T00:00:01.000000001Z"), "23");
    assert_eq!(values("2026-11-28T01:00:00+01:00", "2026-11-27T22:00:00.6-02:00"), "12");
    assert_eq!(values("20261128T000000", "2026-11-28T00:00:00.1Z"), "1");
    for (from, to) in [
        ("2026-11-28T00:00:00", "now"),
        ("2026-11-31T00:00:00Z", "now"),
        ("2026-11-28", "now"),
        ("0", "9999-01-01T00:00:00Z"),
    ] {
        let refused =
            ask_in(&store, r#""select": "up""#, &format!(r#"{{"from": "{from}", "to": "{to}"}}"#));
        assert!(refused.starts_with("-Field range."), "{from} {to}: {refused}");
    }
}

#[test]
fn metric_names_with_colons_work_in_filters_and_expressions() {
    let (_folder, store) = store();
    let row = store.row(b"job:x:rate|job:x:max job=a").unwrap();
    let mut batch = Batch::new();
    for i in 1..=3 {
        batch.push(row, i, &[i as f64, 10.0 * i as f64]).unwrap();
    }
    store.write(batch, Ack::Persisted).unwrap();
    let ask = |fields: &str| ask(&store, fields);
    assert_eq!(
        ask(r#""aggregate": {"job:x:rate": "max"}, "filter": {"job:x:rate": {"gt": 3}}"#),
        ""
    );
    assert_eq!(
        ask(r#""select": "job:x:rate", "filter": {"job:x:rate": {"gt": 2}}"#),
        "job:x:rate job=a,3,3\n"
    );
    assert_eq!(
        ask(
            r#""join": ["job:x:rate", "job:x:max"], "limit": 1, "apply": [{"name": "eval", "expr": "job:x:max - job:x:rate"}]"#
        ),
        "job:x:rate|job:x:max job=a,1,9\n"
    );
    // job:x is a different metric, although job:x:max looks like an aggregate of it.
    assert!(ask(r#""select": "job:x:max", "filter": {"job:x": {"gt": 2}}"#).starts_with('-'));
}
