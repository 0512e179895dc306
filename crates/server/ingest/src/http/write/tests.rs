use std::path::Path;
use std::sync::mpsc;

use axum::body::Body;
use env::files::SimDisk;
use series::{StoreOptions, Wal};
use tokio::sync::mpsc::unbounded_channel;

use super::*;

fn store() -> Store {
    let files = Arc::new(SimDisk::new(1));
    let options =
        StoreOptions { wal: Wal::Always, background: false, files, ..StoreOptions::default() };
    Store::open(Path::new("/series"), options).unwrap().0
}

#[tokio::test(flavor = "multi_thread")]
async fn body_counts_towards_the_limits_after_its_client_has_left() {
    let (store, quotas) = (store(), WriteQuotas::default());
    let (begins, mut begun) = unbounded_channel();
    let (end, ends) = mpsc::channel::<()>();
    let read = move |_: &[u8], _: &mut RowCollector<'_>| {
        begins.send(()).unwrap();
        let _ = ends.recv();
        Ok(())
    };
    let writing = {
        let (store, quotas) = (store.clone(), quotas.clone());
        let request = Request::new(Body::from(vec![b'#'; 3 * UNIT_BYTES]));
        async move { store_body(&store, &quotas, request, PACKED_LINES, read).await }
    };
    let writing = tokio::spawn(writing);
    begun.recv().await.unwrap();
    writing.abort();
    assert!(writing.await.unwrap_err().is_cancelled(), "the client has left");
    let free =
        || [&quotas.readers, &quotas.bodies, &quotas.unpacked].map(|s| s.available_permits());
    let unpacked = WRITE_BYTES_MAX / UNIT_BYTES;
    assert_eq!(free(), [READERS_MAX - 1, UNITS - 3, UNITS - unpacked]);
    end.send(()).unwrap();
    drop(quotas.readers.acquire_many(READERS_MAX as u32).await.unwrap());
    assert_eq!(free(), [READERS_MAX, UNITS, UNITS]);
}
