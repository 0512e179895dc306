//! A store for the ports under test.

use std::net::SocketAddr;

use ingest::HttpOptions;
use series::{Store, StoreOptions, Wal};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

pub(crate) fn store() -> (tempfile::TempDir, Store) {
    let folder = tempfile::tempdir().unwrap();
    let options = StoreOptions { wal: Wal::Off, background: false, ..StoreOptions::default() };
    let (store, _) = Store::open(&folder.path().join("s"), options).unwrap();
    (folder, store)
}

/// Serves the query port of a store.
pub(crate) async fn serve(store: Store) -> SocketAddr {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let router = ingest::router(store, HttpOptions::default());
    tokio::spawn(async move { axum::serve(listener, router).await });
    address
}

/// Sends a POST with extra header lines. Returns the whole answer.
pub(crate) async fn post(address: SocketAddr, path: &str, headers: &str, body: &[u8]) -> String {
    let length = body.len();
    let head =
        format!("POST {path} HTTP/1.0\r\nHost: x\r\nContent-Length: {length}\r\n{headers}\r\n");
    let mut stream = tokio::net::TcpStream::connect(address).await.unwrap();
    stream.write_all(&[head.as_bytes(), body].concat()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    answer
}
