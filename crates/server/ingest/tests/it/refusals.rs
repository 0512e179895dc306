//! Requests and streams that are refused as a whole.

use std::path::Path;
use std::sync::Arc;

use crate::common::{self, post, serve};
use env::files::{Failure, Fault, SimDisk};
use series::{Store, StoreOptions, Wal};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

#[tokio::test]
async fn remote_write_of_another_type_or_coding_is_answered_415() {
    let (_folder, store) = common::store();
    let address = serve(store).await;
    let body = snap::raw::Encoder::new().compress_vec(b"").unwrap();
    let write = async |kind: &str, coding: &str| {
        let line = |name: &str, value: &str| format!("{name}: {value}\r\n");
        let kind = Some(line("Content-Type", kind)).filter(|_| !kind.is_empty());
        let coding = Some(line("Content-Encoding", coding)).filter(|_| !coding.is_empty());
        let headers = kind.into_iter().chain(coding).collect::<String>();
        post(address, "/api/v1/write", &headers, &body).await
    };
    for (kind, coding) in [
        ("", ""),
        ("application/x-protobuf", ""),
        ("", "snappy"),
        ("application/x-protobuf;proto=prometheus.WriteRequest", "snappy"),
        ("application/x-protobuf; proto=prometheus.WriteRequest", "snappy"),
    ] {
        let answer = write(kind, coding).await;
        assert!(answer.starts_with("HTTP/1.0 204"), "{kind} {coding}: {answer}");
    }
    for (kind, coding, remedy) in [
        ("application/x-protobuf", "gzip", "send snappy"),
        ("application/x-protobuf", "identity", "send snappy"),
        ("application/json", "snappy", "send version 1"),
        ("application/x-protobuf;proto=io.prometheus.write.v2.Request", "snappy", "send version 1"),
        ("application/x-protobuf; proto=io.prometheus.write.v2.Request", "", "send version 1"),
        ("application/x-protobuf;proto=other", "snappy", "send version 1"),
    ] {
        let answer = write(kind, coding).await;
        assert!(answer.starts_with("HTTP/1.0 415"), "{kind} {coding}: {answer}");
        assert!(answer.contains(remedy), "{kind} {coding}: {answer}");
    }
}

#[tokio::test]
async fn disk_error_is_answered_503_with_its_cause() {
    let disk = SimDisk::new(1);
    let files = Arc::new(disk.clone());
    let options = StoreOptions { wal: Wal::Always, files, ..StoreOptions::default() };
    let options = StoreOptions { background: false, ..options };
    let (store, _) = Store::open(Path::new("/series"), options).unwrap();
    let address = serve(store).await;
    let write = async || post(address, "/write", "", b"m,a=1 f=1\n").await;
    disk.fail(&[Fault { call: disk.calls() + 1, failure: Failure::Io }]);
    let refused = write().await;
    assert!(refused.starts_with("HTTP/1.0 503"), "{refused}");
    assert!(refused.contains("cannot open a spare: simulated input/output error"), "{refused}");
    let stored = write().await;
    assert!(stored.starts_with("HTTP/1.0 204"), "{stored}");
}

#[tokio::test]
async fn bulk_string_of_a_false_length_ends_the_connection() {
    let (_folder, store) = common::store();
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (_stop, stopped) = tokio::sync::watch::channel(false);
    let (resp, guard) = (ingest::Protocol::Resp, ingest::Guard::default());
    tokio::spawn(ingest::serve_tcp(listener, resp, store.clone(), guard, stopped));
    let text = "+r a=x\r\n:1\r\n+5\r\n+!e a=x\r\n:1\r\n$3\r\n+fake a=y\r\n:7\r\n+1\r\n+sync\r\n";
    let mut stream = tokio::net::TcpStream::connect(address).await.unwrap();
    stream.write_all(text.as_bytes()).await.unwrap();
    // The server ends the connection, although this side stays open.
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    assert!(answer.contains("the connection ends") && !answer.contains("+OK"), "{answer}");
    let found = |metric| store.find(&series::Selector::metric(metric)).len();
    assert_eq!((found("r"), found("fake")), (1, 0));
}
