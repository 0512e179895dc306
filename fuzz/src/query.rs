//! The reader of queries; see `targets.rs`. The including file must define `answer_all`.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    dead_code,
    unreachable_pub,
    reason = "a fuzzer that finds something panics"
)]

use std::path::Path;
use std::sync::{Arc, LazyLock};

use env::files::SimDisk;
use series::{Ack, Batch, Store, StoreOptions, Wal};

use crate::answer_all;

/// A store with two hosts that have two metrics, one of them in two row series; with the smallest
/// and the largest times; and with events.
static STORE: LazyLock<Store> = LazyLock::new(|| {
    let options = StoreOptions {
        wal: Wal::Off,
        background: false,
        files: Arc::new(SimDisk::new(1)),
        ..StoreOptions::default()
    };
    let store = Store::open(Path::new("/series"), options).unwrap().0;
    let mut batch = Batch::new();
    for (name, values) in [
        ("cpu|mem dc=1 host=a", &[1.5, -2.0][..]),
        ("cpu dc=1 host=b", &[1e300]),
        ("cpu|job:x:max host=a", &[f64::NAN, f64::INFINITY]),
    ] {
        let row = store.row(name.as_bytes()).unwrap();
        for time in [i64::MIN, -1, 0, 10, 20, 1_000_000_007, i64::MAX - 1] {
            batch.push(row, time, values).unwrap();
        }
    }
    let log = store.row(b"!log host=a").unwrap();
    for time in [0, 15] {
        batch.push_event(log, time, b"user=bob, \"again\"\r\n").unwrap();
    }
    store.write(batch, Ack::Persisted).unwrap();
    store
});

/// Sends any bytes as a query: it is answered, and repeating it gives the same answer.
pub fn query(data: &[u8]) {
    let said = answer_all(&STORE, data);
    assert!(said == answer_all(&STORE, data), "two answers to one query");
}
