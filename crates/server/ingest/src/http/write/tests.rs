use std::path::Path;
use std::sync::mpsc;

use axum::body::Body;
use env::files::SimDisk;
use series::{StoreOptions, Wal};
use tokio::sync::mpsc::unbounded_channel;

use super::*;

fn store_on(disk: &SimDisk, background: bool) -> Store {
    let options = StoreOptions {
        wal: Wal::Always,
        background,
        files: Arc::new(disk.clone()),
        ..StoreOptions::default()
    };
    Store::open(Path::new("/series"), options).unwrap().0
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_body_takes_of_the_limits_is_taken_until_it_is_read_also_when_its_client_has_left() {
    let (store, rooms) = (store_on(&SimDisk::new(1), false), Rooms::default());
    let (begins, mut begun) = unbounded_channel();
    let (end, ends) = mpsc::channel::<()>();
    let read = move |_: &[u8], _: &mut Intake<'_>| {
        begins.send(()).unwrap();
        let _ = ends.recv();
        Ok(())
    };
    let writing = {
        let (store, rooms) = (store.clone(), rooms.clone());
        let request = Request::new(Body::from(vec![b'#'; 3 * UNIT_BYTES]));
        async move { take(&store, &rooms, request, PACKED_LINES, read).await }
    };
    let writing = tokio::spawn(writing);
    begun.recv().await.unwrap();
    writing.abort();
    assert!(writing.await.unwrap_err().is_cancelled(), "the client has left");
    let free = || [&rooms.readers, &rooms.bodies, &rooms.unpacked].map(|s| s.available_permits());
    let unpacked = WRITE_BYTES_MAX / UNIT_BYTES;
    assert_eq!(free(), [READERS_MAX - 1, UNITS - 3, UNITS - unpacked]);
    end.send(()).unwrap();
    drop(rooms.readers.acquire_many(READERS_MAX as u32).await.unwrap());
    assert_eq!(free(), [READERS_MAX, UNITS, UNITS]);
}

/// Rows of several pieces.
fn rows(intake: &mut Intake<'_>) {
    let row = intake.row(b"load host=a").unwrap();
    for time_ns in 0..10_000 {
        intake.push_float(row, time_ns, 1.5).unwrap();
    }
    assert!(intake.has_sent());
}

/// Samples of the pieces that [`rows`] sends.
const SENT: u64 = 8192;

/// Waits until the pieces are in the log and the log has persisted all that it has.
async fn persisted(store: &Store) {
    let is_so = || {
        let (stats, log) = (store.stats(), store.stats().log.unwrap());
        stats.samples == SENT && log.persisted_position == log.last_position
    };
    while !is_so() {
        tokio::task::yield_now().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_stored_of_a_body_that_is_refused_survives_power_loss() {
    let disk = SimDisk::new(1);
    let (store, rooms) = (store_on(&disk, true), Rooms::default());
    let read = |_: &[u8], intake: &mut Intake<'_>| {
        rows(intake);
        Err(Unread::Refused("body: cut".into()))
    };
    let request = Request::new(Body::from("x"));
    let answer = take(&store, &rooms, request, PACKED_LINES, read).await;
    assert_eq!(answer.status(), StatusCode::BAD_REQUEST);
    timeout(Duration::from_mins(10), persisted(&store)).await.unwrap();
    assert_eq!(store_on(&disk.crash(1), false).stats().head_samples, SENT);
}

#[tokio::test]
async fn pieces_that_are_refused_behind_them_are_followed_by_what_persists_them() {
    let store = store_on(&SimDisk::new(1), false);
    let batches = || store.stats().batches;
    let mut intake = Intake::sending(&store, true);
    rows(&mut intake);
    assert_eq!(batches(), 2);
    drop(intake);
    assert_eq!(batches(), 3, "refused");
    let mut intake = Intake::sending(&store, true);
    rows(&mut intake);
    drop(intake.finish());
    assert_eq!(batches(), 3 + 3, "persisted by who read it");
}

#[test]
fn what_went_to_the_store_in_pieces_is_persisted_when_it_is_read() {
    // With something behind the last piece, and with nothing.
    for (count, seed) in
        [10_000, SENT as i64].into_iter().flat_map(|n| (1..=8).map(move |s| (n, s)))
    {
        let disk = SimDisk::new(seed);
        let store = store_on(&disk, true);
        let mut intake = Intake::sending(&store, true);
        let row = intake.row(b"load host=a").unwrap();
        (0..count).for_each(|time_ns| intake.push_float(row, time_ns, 1.5).unwrap());
        let taken = intake.finish();
        assert!(taken.batches.is_empty() && taken.failed.is_none());
        let found = store_on(&disk.crash(seed), false).stats().head_samples;
        assert_eq!(found, count as u64, "seed {seed}");
    }
}

#[test]
fn what_a_store_refuses_of_who_read_it_is_told() {
    let store = store_on(&SimDisk::new(1), true);
    let mut intake = Intake::sending(&store, true);
    let row = intake.row(b"load host=a").unwrap();
    intake.push_float(row, 1, 1.5).unwrap();
    store.clone().close().unwrap();
    let failed = intake.finish().failed;
    assert!(matches!(failed, Some(WriteError::Closed)), "{failed:?}");
}
