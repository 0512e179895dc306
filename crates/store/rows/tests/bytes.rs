//! Rows of unknown origin: the target of the fuzzer on altered records.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test that cannot go on fails")]

#[path = "../../../../fuzz/src/rows.rs"]
mod target;

use rows::{Rows, TableRows, Value};

/// Returns a record that fits the target's schema.
fn record() -> Rows {
    let text = |text: &str| Value::Text(text.into());
    let integer = Value::Integer;
    let a = TableRows {
        table: "a".into(),
        gone: vec![vec![integer(1)]],
        put: vec![vec![integer(2), text("x"), Value::Null], vec![integer(9), text("y")]],
        set: Vec::new(),
    };
    let b = TableRows {
        table: "b".into(),
        gone: Vec::new(),
        put: vec![vec![integer(3), Value::Bytes(vec![0xff]), Value::Blob(vec![1])]],
        set: vec![(vec![integer(1), text("z")], 4, vec![Value::Real(0.5)])],
    };
    Rows { schema: 0, tables: vec![a, b], sequences: vec![("a".into(), 12)] }
}

#[test]
fn altered_rows_are_refused_or_applied_but_never_panic() {
    let bytes = record().encode();
    target::registry_rows(&bytes);
    for at in 0..bytes.len() {
        target::registry_rows(&bytes[..at]);
        for bit in 0..8 {
            let mut altered = bytes.clone();
            altered[at] ^= 1 << bit;
            target::registry_rows(&altered);
        }
    }
}
