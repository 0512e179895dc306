//! Remote read over a real store. The golden bytes are those of Prometheus' own encoders.

use std::path::Path;
use std::sync::Arc;

use axum::Router;
use axum::body::{Body, Bytes, to_bytes};
use axum::http::{HeaderMap, Request, Version};
use env::files::SimDisk;
use prost::Message;
use series::{Ack, Batch, Store, StoreOptions, Wal};
use tower::ServiceExt as _;

/// Accepts chunks, then samples; asks for `none`, and for `cpu` with `host=~"a|b"` and hints.
const REQUEST: &str = "\
    0a16080510051a1012085f5f6e616d655f5f1a046e6f6e650a390898f8ffffffffffffff0110a08d061a0f12085f5f6e\
    616d655f5f1a036370751a0d08021204686f73741a03617c622208080512047261746512020100";
const SAMPLES: &str = "\
    0a000a8c010a560a0f0a085f5f6e616d655f5f12036370750a090a04686f7374120161120c09000000000000044010e8\
    07120c09000000000000008010807d120d09020000000000f07f1098f201120d09000000000000044010a4eb020a320a\
    0f0a085f5f6e616d655f5f12036370750a090a04686f73741201621214090000000000001c4010fbffffffffffffffff01";
const FRAMES: &str = "\
    53b01c812c0a4f0a0f0a085f5f6e616d655f5f12036370750a090a04686f7374120161123108e80710a4eb0218012226\
    0004d00f40040000000000009875c076002c1ffff800000000000181f48ffd000000000000801001472255059a0a430a\
    0f0a085f5f6e616d655f5f12036370750a090a04686f7374120162122508fbffffffffffffffff0110fbffffffffffff\
    ffff011801220b000109401c0000000000001001";
const STREAMED: &str = "application/x-streamed-protobuf; proto=prometheus.ChunkedReadResponse";

#[derive(Clone, PartialEq, Message)]
struct ReadRequest {
    #[prost(message, repeated, tag = "1")]
    queries: Vec<Query>,
    #[prost(int32, repeated, packed = "false", tag = "2")]
    accepted: Vec<i32>,
}

#[derive(Clone, PartialEq, Message)]
struct Query {
    #[prost(int64, tag = "1")]
    start: i64,
    #[prost(int64, tag = "2")]
    end: i64,
    #[prost(message, repeated, tag = "3")]
    matchers: Vec<Matcher>,
}

#[derive(Clone, PartialEq, Message)]
struct Matcher {
    #[prost(int32, tag = "1")]
    op: i32,
    #[prost(string, tag = "2")]
    label: String,
    #[prost(string, tag = "3")]
    value: String,
}

#[derive(Clone, PartialEq, Message)]
struct Chunked {
    #[prost(message, repeated, tag = "1")]
    series: Vec<ChunkedSeries>,
}

#[derive(Clone, PartialEq, Message)]
struct ChunkedSeries {
    #[prost(bytes = "vec", repeated, tag = "1")]
    labels: Vec<Vec<u8>>,
    #[prost(message, repeated, tag = "2")]
    chunks: Vec<Chunk>,
}

#[derive(Clone, PartialEq, Message)]
struct Chunk {
    #[prost(int64, tag = "1")]
    first: i64,
    #[prost(int64, tag = "2")]
    last: i64,
    #[prost(bytes = "vec", tag = "4")]
    data: Vec<u8>,
}

fn store() -> Store {
    let files = Arc::new(SimDisk::new(1));
    let options =
        StoreOptions { wal: Wal::Off, background: false, files, ..StoreOptions::default() };
    Store::open(Path::new("/series"), options.keeping_all()).unwrap().0
}

/// Returns the operations over a store with two series, one of which has two samples in a millisecond.
fn served() -> Router {
    let store = store();
    let mut batch = Batch::new();
    let stale = f64::from_bits(series::END_OF_SERIES);
    let row = store.row(b"cpu host=a").unwrap();
    for (micros, value) in [
        (1_000_000, 1.5),
        (1_000_400, 2.5),
        (16_000_000, -0.0),
        (31_000_000, stale),
        (46_500_999, 2.5),
    ] {
        batch.push(row, micros * 1000, &[value]).unwrap();
    }
    let row = store.row(b"cpu host=b").unwrap();
    batch.push(row, -4_000_001, &[7.0]).unwrap();
    store.write(batch, Ack::Persisted).unwrap();
    prometheus_api::routes::<()>(store, budget::Memory::default()).with_state(())
}

fn bytes(hex: &str) -> Vec<u8> {
    let pairs = hex.as_bytes().chunks(2).map(|pair| std::str::from_utf8(pair).unwrap());
    pairs.map(|pair| u8::from_str_radix(pair, 16).unwrap()).collect()
}

fn packed(message: &[u8]) -> Vec<u8> {
    snap::raw::Encoder::new().compress_vec(message).unwrap()
}

async fn send(
    router: Router,
    method: &str,
    version: Version,
    body: Vec<u8>,
) -> (u16, HeaderMap, Bytes) {
    let request = Request::builder().method(method).uri("/read").version(version);
    let request = request.header("accept-encoding", "gzip, snappy").body(Body::from(body)).unwrap();
    let answer = router.oneshot(request).await.unwrap();
    let (status, headers) = (answer.status().as_u16(), answer.headers().clone());
    (status, headers, to_bytes(answer.into_body(), 1 << 26).await.unwrap())
}

fn text(body: &[u8]) -> &str {
    std::str::from_utf8(body).unwrap()
}

#[tokio::test]
async fn streamed_frames_are_those_of_prometheus() {
    let (status, headers, body) =
        send(served(), "POST", Version::HTTP_11, packed(&bytes(REQUEST))).await;
    assert_eq!((status, headers["content-type"].to_str().unwrap()), (200, STREAMED));
    assert!(!headers.contains_key("content-encoding"));
    assert_eq!(body, bytes(FRAMES));
}

#[tokio::test]
async fn samples_are_those_of_prometheus() {
    let mut samples_first = bytes(REQUEST);
    let end = samples_first.len();
    samples_first[end - 2..].copy_from_slice(&[0, 1]);
    let old = (Version::HTTP_10, bytes(REQUEST));
    for (version, request) in [(Version::HTTP_11, samples_first), old] {
        let (status, headers, body) = send(served(), "POST", version, packed(&request)).await;
        assert_eq!(
            (status, &headers["content-type"]),
            (200, &"application/x-protobuf".parse().unwrap())
        );
        assert_eq!(headers.get_all("content-encoding").iter().collect::<Vec<_>>(), ["snappy"]);
        let message = snap::raw::Decoder::new().decompress_vec(&body).unwrap();
        assert_eq!(message, bytes(SAMPLES));
    }
}

/// Returns a request for all series that accepts these forms.
fn all(accepted: &[i32]) -> ReadRequest {
    let query = Query { start: i64::MIN, end: i64::MAX, matchers: Vec::new() };
    ReadRequest { queries: vec![query], accepted: accepted.to_vec() }
}

#[tokio::test]
async fn first_known_form_is_chosen() {
    for (accepted, kind) in [
        (&[][..], "application/x-protobuf"),
        (&[7, 1, 0][..], STREAMED),
        (&[7, 0, 1][..], "application/x-protobuf"),
    ] {
        let body = packed(&all(accepted).encode_to_vec());
        let (status, headers, _) = send(served(), "POST", Version::HTTP_2, body).await;
        assert_eq!(
            (status, headers["content-type"].to_str().unwrap()),
            (200, kind),
            "{accepted:?}"
        );
    }
}

#[tokio::test]
async fn range_includes_both_ends_and_no_more() {
    let mut request = all(&[]);
    for (start, end, samples) in
        [(1000, 16_000, 2), (1001, 15_999, 0), (46_500, 46_500, 1), (16_000, 1000, 0), (-5, -5, 1)]
    {
        request.queries[0].start = start;
        request.queries[0].end = end;
        let body = packed(&request.encode_to_vec());
        let (_, _, answer) = send(served(), "POST", Version::HTTP_11, body).await;
        let message = snap::raw::Decoder::new().decompress_vec(&answer).unwrap();
        // A sample has a tag and a length, and its value has a tag of its own.
        let found =
            message.windows(3).filter(|w| w[0] == 0x12 && w[1] >= 0x0c && w[2] == 9).count();
        assert_eq!(found, samples, "{start} to {end}");
    }
}

#[tokio::test]
async fn series_of_many_chunks_is_one_frame() {
    let store = store();
    let row = store.row(b"long host=a").unwrap();
    let mut batch = Batch::new();
    let mut bits = 1_u64;
    for i in 0..200_000_i64 {
        bits = bits.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        batch.push(row, i * 1_000_000, &[f64::from_bits(bits)]).unwrap();
    }
    store.write(batch, Ack::Persisted).unwrap();
    let router = prometheus_api::routes::<()>(store, budget::Memory::default()).with_state(());
    let body = packed(&all(&[1]).encode_to_vec());
    let (_, _, answer) = send(router, "POST", Version::HTTP_11, body).await;
    let mut rest = &answer[..];
    let length = prost::decode_length_delimiter(&mut rest).unwrap();
    let (head, message) = rest.split_at(4);
    assert_eq!(message.len(), length);
    assert_eq!(crc32c::crc32c(message).to_be_bytes(), head);
    let message = Chunked::decode(message).unwrap();
    assert_eq!(message.series[0].labels.len(), 2);
    let mut samples = 0;
    for chunk in &message.series[0].chunks {
        let count = i64::from(u16::from_be_bytes([chunk.data[0], chunk.data[1]]));
        assert_eq!((chunk.first, chunk.last), (samples, samples + count - 1));
        assert!(count == 120 || samples + count == 200_000);
        samples += count;
    }
    assert_eq!(samples, 200_000);
}

#[tokio::test]
async fn bad_requests_are_refused() {
    let with = |op: i32, label: &str, value: &str| {
        let mut request = all(&[1]);
        let matcher = Matcher { op, label: label.into(), value: value.into() };
        request.queries[0].matchers = vec![matcher];
        request
    };
    let encoded = |request: &ReadRequest| packed(&request.encode_to_vec());
    let mut many = with(2, "a", "x");
    many.queries[0].matchers = vec![many.queries[0].matchers[0].clone(); 65];
    // The header claims 4 GiB less one.
    let claims = vec![0xff, 0xff, 0xff, 0xff, 0x0f, 0, 0];
    for (body, why) in [
        (Vec::new(), "body: snappy: "),
        (b"text".to_vec(), "body: snappy: "),
        (bytes(REQUEST), "body: snappy: "),
        (claims, "body: 4294967295 bytes decompressed; at most 262144 are allowed"),
        (packed(&vec![0; (256 << 10) + 1]), "body: 262145 bytes decompressed"),
        (packed(b"\x0a\x7f"), "body: protobuf: "),
        (packed(b"\x0a\x06\x1a\x04\x12\x02\xff\xff"), "body: protobuf: "),
        (encoded(&all(&[7])), "no accepted response type is supported: [7]"),
        (encoded(&with(4, "a", "x")), "invalid matcher type 4"),
        (encoded(&with(-1, "a", "x")), "invalid matcher type -1"),
        (encoded(&with(2, "a", "(")), "error parsing regexp: "),
        (encoded(&with(3, "a", "(?=x)")), "error parsing regexp: "),
        (encoded(&many), "the request has more than 64 regular expressions"),
        (
            encoded(&ReadRequest {
                queries: vec![all(&[]).queries[0].clone(); 65],
                accepted: vec![],
            }),
            "65 queries; at most 64",
        ),
    ] {
        let (status, _, answer) = send(served(), "POST", Version::HTTP_11, body).await;
        assert!(status == 400 && text(&answer).starts_with(why), "{why}: {status} {answer:?}");
    }
    let (status, headers, _) =
        send(served(), "GET", Version::HTTP_11, packed(&bytes(REQUEST))).await;
    assert_eq!((status, &headers["allow"]), (405, &"POST".parse().unwrap()));
    let chunks_only = encoded(&all(&[1]));
    assert_eq!(send(served(), "POST", Version::HTTP_10, chunks_only).await.0, 400);
}
