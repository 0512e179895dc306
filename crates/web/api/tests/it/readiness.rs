//! `/readyz`: one word for anyone, the cause for callers with a token.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use crate::common::world_with;
use axum::http::StatusCode;
use env::clock::ManualClock;
use env::files::{Failure, Fault, SimDisk};
use series::{Ack, Batch, Store, StoreOptions, Wal};

#[tokio::test]
async fn failed_series_log_is_one_word_and_a_cause_with_a_token() {
    let (disk, clock) = (SimDisk::new(1), ManualClock::at(4_000_000_000_000_000));
    let options = StoreOptions {
        wal: Wal::Always,
        background: false,
        files: Arc::new(disk.clone()),
        clock: Arc::new(clock.clone()),
        ..StoreOptions::default()
    };
    let (store, _) = Store::open(Path::new("/series"), options).unwrap();
    let write = |store: &Store, time_ns: i64| {
        let mut batch = Batch::new();
        batch.push(store.row(b"load host=a").unwrap(), time_ns, &[1.0]).unwrap();
        store.write(batch, Ack::Persisted)
    };
    write(&store, 1).unwrap();
    let shared = store.clone();
    let world = world_with(move |options| options.series = Some(shared));
    assert_eq!(world.get("/readyz", "").await.status, StatusCode::OK);
    let fault = |call| Fault { call: disk.calls() + call, failure: Failure::Io };
    disk.fail(&[fault(1), fault(2)]);
    write(&store, 2).unwrap_err();
    write(&store, 3).unwrap_err();
    disk.clear_faults();
    for token in ["", "no.valid.token"] {
        let answer = world.get("/readyz", token).await;
        assert_eq!(answer.status, StatusCode::SERVICE_UNAVAILABLE);
        assert_eq!(answer.body, b"series_log_failed\n");
    }
    let admin = world.admin().await;
    let details = async || String::from_utf8(world.get("/readyz", &admin).await.body).unwrap();
    let first = details().await;
    assert!(first.starts_with("series_log_failed\nseries_log_failed since "), "{first}");
    assert!(first.contains("opened again soon"), "{first}");
    for attempt in 0..3 {
        clock.advance(Duration::from_mins(1));
        assert!(store.reopen_log().unwrap(), "{attempt}");
        assert_eq!(details().await, "ok\n");
        write(&store, 4).unwrap();
        disk.fail(&[fault(1)]);
        write(&store, 5).unwrap_err();
    }
    clock.advance(Duration::from_mins(1));
    assert!(!store.reopen_log().unwrap());
    let last = details().await;
    assert!(last.contains("start the server again"), "{last}");
}
