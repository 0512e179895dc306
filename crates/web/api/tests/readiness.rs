//! `/readyz`: one word for anyone, the cause for callers with a token.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod common;

use std::path::Path;
use std::sync::Arc;

use axum::http::StatusCode;
use common::world_with;
use env::files::{Failure, Fault, SimDisk};
use series::{Ack, Batch, Store, StoreOptions, Wal};

#[tokio::test]
async fn failed_series_log_is_one_word_and_a_cause_with_a_token() {
    let disk = SimDisk::new(1);
    let options = StoreOptions {
        wal: Wal::Always,
        background: false,
        files: Arc::new(disk.clone()),
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
    for token in ["", "no.valid.token"] {
        let answer = world.get("/readyz", token).await;
        assert_eq!(answer.status, StatusCode::SERVICE_UNAVAILABLE);
        assert_eq!(answer.body, b"series_log_failed\n");
    }
    let details = world.get("/readyz", &world.admin().await).await.body;
    let details = String::from_utf8(details).unwrap();
    assert!(details.starts_with("series_log_failed\nseries_log_failed since "), "{details}");
    assert!(details.contains("start the server again"), "{details}");
}
