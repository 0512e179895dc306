//! Pieces of what is acknowledged as a whole, sent while the rest is still made.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    missing_docs,
    reason = "a test that cannot go on fails"
)]

mod support;

use std::path::Path;
use std::sync::Arc;

use env::files::SimDisk;
use series::{Ack, Batch, Store, StoreOptions, Wal, WriteError};
use support::{contents, open, options};

fn one(store: &Store, time_ns: i64) -> Batch {
    let mut batch = Batch::new();
    batch.push(store.row(b"load host=a").unwrap(), time_ns, &[1.5]).unwrap();
    batch
}

#[test]
fn a_piece_costs_no_flush_and_survives_power_loss_with_what_is_behind_it() {
    for seed in 1..=20 {
        let disk = SimDisk::new(seed);
        let (store, _) = open(&disk, Wal::Always);
        store.write(one(&store, 1), Ack::Persisted).unwrap();
        for time_ns in 2..=4 {
            let ticket = store.try_submit(one(&store, time_ns), Ack::Begun).unwrap().unwrap();
            assert_eq!(ticket.wait().unwrap().flushes, 0);
        }
        let outcome = store.write(Batch::new(), Ack::Persisted).unwrap();
        assert!(outcome.flushes > 0);
        let (found, _) = open(&disk.crash(seed), Wal::Always);
        assert_eq!(contents(&found)["load host=a"].len(), 4, "seed {seed}");
    }
}

#[test]
fn a_piece_for_which_there_is_no_room_comes_back_and_a_closed_store_takes_none() {
    let disk = SimDisk::new(1);
    let options = StoreOptions {
        queued_samples_max: 0,
        background: true,
        files: Arc::new(disk.clone()),
        ..options(&disk, Wal::Always)
    };
    let (store, _) = Store::open(Path::new("/s"), options).unwrap();
    let back = store.try_submit(one(&store, 1), Ack::Begun).unwrap();
    assert_eq!(back.unwrap_err(), one(&store, 1));
    let other = store.clone();
    store.close().unwrap();
    let refused = other.try_submit(Batch::new(), Ack::Begun);
    assert!(matches!(refused, Err(WriteError::Closed)));
}
