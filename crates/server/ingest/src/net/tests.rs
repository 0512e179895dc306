use series::StoreOptions;
use tokio::io::{DuplexStream, duplex};
use tokio::sync::mpsc;

use super::*;

/// Returns a store with parts to merge: the store looks for unused rows only after a merge.
fn store(folder: &tempfile::TempDir) -> Store {
    let options = StoreOptions { background: false, ..StoreOptions::default() };
    let (store, _) = Store::open(&folder.path().join("s"), options).unwrap();
    let row = store.row(b"cpu host=a").unwrap();
    for time_ns in 0..4 {
        let mut batch = Batch::new();
        batch.push(row, time_ns, &[1.0]).unwrap();
        store.write(batch, Ack::Persisted).unwrap();
        store.seal().unwrap();
    }
    store
}

async fn answer(client: &mut DuplexStream) -> String {
    let mut line = Vec::new();
    while !line.ends_with(b"\n") {
        line.push(client.read_u8().await.unwrap());
    }
    String::from_utf8(line).unwrap()
}

#[tokio::test]
async fn idle_connection_keeps_its_dictionary_entries() {
    let folder = tempfile::tempdir().unwrap();
    let store = store(&folder);
    let (mut client, server) = duplex(1 << 16);
    let (stop, stopped) = watch::channel(false);
    let (tick, mut ticks) = mpsc::channel(1);
    let reader = Reader::Resp(RespReader::default());
    let connection = Connection::new(server, BytesMut::new(), reader, store.clone());
    let due = move |cx: &mut Context<'_>| match ticks.poll_recv(cx) {
        Poll::Ready(Some(())) => Poll::Ready(()),
        _ => Poll::Pending,
    };
    let serving = tokio::spawn(connection.run(stopped, due));
    client.write_all(b"*2\r\n+mem host=a\r\n:7\r\n+sync\r\n").await.unwrap();
    assert_eq!(answer(&mut client).await, "+OK\r\n");
    let unwritten = store.row(b"mem host=b").unwrap();
    store.merge().unwrap();
    for _ in 0..3 {
        // The second send returns only after the connection has handled the first.
        for _ in 0..2 {
            tick.send(()).await.unwrap();
        }
        store.retain().unwrap();
    }
    assert!(!store.keep_row(unwritten), "the store forgets rows that are not kept");
    client.write_all(b":7\r\n:5\r\n+1\r\n+sync\r\n").await.unwrap();
    assert_eq!(answer(&mut client).await, "+OK\r\n");
    drop((client, stop));
    serving.await.unwrap();
}
