//! Tests the ports over real sockets with a real store: queries return everything acknowledged.

use std::fmt::Write as _;
use std::io::Read as _;
use std::net::SocketAddr;

use env::files::SimDisk;
use ingest::{Guard, HttpOptions, Protocol};
use prost::Message as _;
use readers::remote::{Label, Sample, TimeSeries, WriteRequest};
use series::{Store, StoreOptions};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream, UdpSocket};
use tokio::sync::watch;

struct Ports {
    folder: tempfile::TempDir,
    _stop: watch::Sender<bool>,
    resp: SocketAddr,
    opentsdb: SocketAddr,
    http: SocketAddr,
    udp: SocketAddr,
}

async fn ports() -> Ports {
    ports_of(StoreOptions::default()).await
}

async fn ports_of(options: StoreOptions) -> Ports {
    let folder = tempfile::tempdir().unwrap();
    let (store, _) = Store::open(&folder.path().join("s"), options).unwrap();
    let (stop, stopped) = watch::channel(false);
    let listen = async || TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (resp, opentsdb, http) = (listen().await, listen().await, listen().await);
    let udp = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let ports = Ports {
        folder,
        _stop: stop,
        resp: resp.local_addr().unwrap(),
        opentsdb: opentsdb.local_addr().unwrap(),
        http: http.local_addr().unwrap(),
        udp: udp.local_addr().unwrap(),
    };
    tokio::spawn(ingest::serve_udp(udp, store.clone(), stopped.clone()));
    tokio::spawn(ingest::serve_tcp(
        resp,
        Protocol::Resp,
        store.clone(),
        Guard::default(),
        stopped.clone(),
    ));
    tokio::spawn(ingest::serve_tcp(
        opentsdb,
        Protocol::OpenTsdb,
        store.clone(),
        Guard::default(),
        stopped,
    ));
    let router = ingest::router(store, HttpOptions::default());
    tokio::spawn(async move { axum::serve(http, router).await.unwrap() });
    ports
}

/// Sends everything, closes our side, reads until the server closes its own.
async fn exchange(port: SocketAddr, text: &str) -> String {
    let mut stream = TcpStream::connect(port).await.unwrap();
    stream.write_all(text.as_bytes()).await.unwrap();
    stream.shutdown().await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    answer
}

/// Sends a POST. Returns the status and the body, with chunks joined.
async fn post(ports: &Ports, path: &str, body: &str) -> (u16, String) {
    post_as(ports, path, "", body.as_bytes()).await
}

/// Does the same with extra header lines. Repeats the request if its answer was lost because the
/// server closed the connection before it read the whole body.
async fn post_as(ports: &Ports, path: &str, headers: &str, body: &[u8]) -> (u16, String) {
    let length = body.len();
    let head =
        format!("POST {path} HTTP/1.0\r\nhost: x\r\ncontent-length: {length}\r\n{headers}\r\n");
    let request = [head.as_bytes(), body].concat();
    for _ in 0..100 {
        let mut stream = TcpStream::connect(ports.http).await.unwrap();
        let _ = stream.write_all(&request).await;
        let mut answer = String::new();
        let _ = stream.read_to_string(&mut answer).await;
        if let Some((head, body)) = answer.split_once("\r\n\r\n") {
            return (head.split(' ').nth(1).unwrap().parse().unwrap(), body.to_owned());
        }
    }
    panic!("no answer to POST {path} with {length} bytes");
}

/// Returns the rows of a query as CSV with raw times.
async fn query(ports: &Ports, fields: &str) -> String {
    let body = format!(r#"{{{fields}, "output": {{"format": "csv", "timestamp": "raw"}}}}"#);
    post(ports, "/api/query", &body).await.1
}

const ALL: &str = r#""range": {"from": 0, "to": 1000}"#;
const BACK: &str = r#""range": {"from": 999, "to": -1}"#;

#[tokio::test(flavor = "multi_thread")]
async fn data_acknowledged_by_the_end_of_a_stream_is_stored() {
    let ports = ports().await;
    let answer =
        exchange(ports.resp, "+a host=x\r\n:7\r\n+1.5\r\nbad\r\n+a host=y\r\n:8\r\n:2\r\n").await;
    assert!(answer.starts_with("-PARSER") && answer.contains("bad"), "{answer}");
    let answer = exchange(ports.opentsdb, "put t 1 5 host=x\nput t never 5 host=x\n").await;
    assert!(answer.contains("put t never 5 host=x"), "{answer}");
    let lines = "m,host=x f=1,g=2i 5\nm f= 5\nm,host=y f=3 6";
    let (status, body) = post(&ports, "/write", lines).await;
    assert!(status == 400 && body.contains("line 2"), "{body}");
    assert_eq!(post(&ports, "/write?precision=s", "s,host=x v=1 1").await, (204, String::new()));
    assert_eq!(post(&ports, "/api/v2/write?org=o&precision=s", "s,host=x v=1 1").await.0, 204);
    assert_eq!(
        query(&ports, &format!(r#""select": "a", {ALL}"#)).await,
        "a host=x,7,1.5\na host=y,8,2\n"
    );
    assert_eq!(query(&ports, &format!(r#""select": "m_g", {ALL}"#)).await, "m_g host=x,5,2\n");
    let all = query(&ports, r#""aggregate": {"t": "count", "s_v": "max"}"#).await;
    assert_eq!(all, "t:count host=x,1000000000,1\ns_v:max host=x,1000000000,1\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn queries_work_over_http_in_both_directions() {
    let ports = ports().await;
    let mut text = String::new();
    for (i, host) in ["x", "y"].iter().enumerate() {
        for t in 0..6 {
            let time = t * 10 + i;
            let row = format!("+a|b host={host} dc=1\n:{time}\n*2\n:{t}\n:{}\n", t * t);
            text.push_str(&row);
        }
    }
    assert_eq!(exchange(ports.resp, &text).await, "");
    let x = r#""where": {"host": "x"}"#;
    let rows =
        query(&ports, &format!(r#""select": "a", {x}, {BACK}, "limit": 2, "offset": 1"#)).await;
    assert_eq!(rows, "a dc=1 host=x,40,4\na dc=1 host=x,30,3\n");
    let rows =
        query(&ports, &format!(r#""select": "a", {ALL}, "group-by-tag": ["host"], "limit": 3"#))
            .await;
    assert_eq!(rows, "a dc=1,0,0\na dc=1,1,0\na dc=1,10,1\n");
    let rows =
        query(&ports, &format!(r#""select": "b", {x}, {ALL}, "filter": {{"gt": 3, "lt": 20}}"#))
            .await;
    assert_eq!(rows, "b dc=1 host=x,20,4\nb dc=1 host=x,30,9\nb dc=1 host=x,40,16\n");
    let rows = query(
        &ports,
        &format!(r#""join": ["a", "b"], {x}, {ALL}, "limit": 2, "order-by": "series""#),
    )
    .await;
    assert_eq!(rows, "a|b dc=1 host=x,0,0,0\na|b dc=1 host=x,10,1,1\n");
    let step =
        r#""group-aggregate": {"metric": "a", "func": ["min", "max", "count"], "step": "30n"}"#;
    let rows = query(&ports, &format!(r#"{step}, {ALL}, "pivot-by-tag": ["dc"]"#)).await;
    assert_eq!(rows, "a:min|a:max|a:count dc=1,0,0,2,6\na:min|a:max|a:count dc=1,30,3,5,6\n");
    let back = r#""range": {"from": 59, "to": 4}"#;
    let rows = query(&ports, &format!("{step}, {x}, {back}")).await;
    let name = "a:min|a:max|a:count dc=1 host=x";
    assert_eq!(rows, format!("{name},59,3,5,3\n{name},29,1,2,2\n"));
    let rows = query(&ports, &format!(r#""select": "b", {x}, {ALL}, "limit": 2, "apply": [{{"name": "scale", "weights": [2]}}]"#)).await;
    assert_eq!(rows, "b dc=1 host=x,0,0\nb dc=1 host=x,10,2\n");
    assert_eq!(query(&ports, &format!(r#""select": "nothing", {ALL}"#)).await, "");
    assert_eq!(post(&ports, "/api/query", "{}").await.1[..1], *"-");
    let (_, names) =
        post(&ports, "/api/suggest", r#"{"select": "tag-values", "metric": "a", "tag": "host"}"#)
            .await;
    assert_eq!(names, "+x\r\n+y\r\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn line_truncated_by_connection_end_is_refused() {
    let ports = ports().await;
    let answer = exchange(ports.opentsdb, "put t 1 5 host=x\nput t 2 12").await;
    assert!(
        answer.contains("ends inside a line") && answer.ends_with(": put t 2 12\n"),
        "{answer}"
    );
    let answer = exchange(ports.resp, "+r host=x\r\n:1\r\n+5\r\n+r host=x\r\n:2\r\n+12").await;
    assert!(answer.contains("ends inside a sample"), "{answer}");
    let all = query(&ports, r#""aggregate": {"t": "count", "r": "count"}"#).await;
    let mut counts: Vec<&str> = all.lines().collect();
    counts.sort_unstable();
    assert_eq!(counts, ["r:count host=x,1,1", "t:count host=x,1000000000,1"]);
}

/// Reads until the received lines contain `what`.
async fn until(stream: &mut TcpStream, heard: &mut String, what: &str) {
    let mut bytes = vec![0; 1 << 16];
    while !heard.contains(what) {
        let read = stream.read(&mut bytes).await.unwrap();
        assert!(read > 0, "the connection ended before {what}: {heard}");
        heard.push_str(std::str::from_utf8(&bytes[..read]).unwrap());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn each_sync_is_answered_in_order_among_samples_and_errors() {
    let ports = ports().await;
    let text =
        "+a host=x\r\n:7\r\n+1\r\n+sync\r\n+sync\r\nbad\r\n+a host=x\r\n:8\r\n+2\r\n+sync\r\n";
    let answer = exchange(ports.resp, text).await;
    let lines: Vec<&str> = answer.lines().map(|l| l.split(' ').next().unwrap()).collect();
    assert_eq!(lines, ["+OK", "+OK", "-PARSER", "+OK"], "{answer}");
    let text = "put t 1 5 host=x\nsync\nput t never 5 host=x\nsync\nversion\n";
    let answer = exchange(ports.opentsdb, text).await;
    let lines: Vec<&str> = answer.lines().map(|l| l.split(' ').next().unwrap()).collect();
    assert_eq!(lines, ["ok", "put:", "ok", "holdfast"], "{answer}");
}

#[tokio::test(flavor = "multi_thread")]
async fn sync_reply_counts_dropped_refusals() {
    let ports = ports().await;
    let mut text = "+a host=x\r\n:7\r\nno\r\n".repeat(500);
    text.push_str("+a host=x\r\n:7\r\n+1\r\n+sync\r\n+sync\r\n");
    let answer = exchange(ports.resp, &text).await;
    let lines: Vec<&str> = answer.lines().collect();
    let (said, last) = (&lines[..lines.len() - 2], &lines[lines.len() - 2..]);
    let told = said.iter().filter(|l| l.starts_with("-PARSER")).count();
    assert!((1..500).contains(&told), "{told}");
    assert!(last[0].starts_with(&format!("-DB {} rows refused", 500 - told)), "{}", last[0]);
    assert_eq!(last[1], "+OK", "what was told once is not told again");
    let rows = query(&ports, &format!(r#""select": "a", {ALL}"#)).await;
    assert_eq!(rows, "a host=x,7,1\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn sync_is_answered_after_rejections_fill_their_buffer() {
    let ports = ports().await;
    let mut stream = TcpStream::connect(ports.resp).await.unwrap();
    // Each refusal takes about a thousand bytes.
    let line = format!("{}\r\n", "\u{1}".repeat(300));
    stream.write_all(line.repeat(400).as_bytes()).await.unwrap();
    stream.write_all(b"+sync\r\n").await.unwrap();
    let mut heard = String::new();
    until(&mut stream, &mut heard, "rows refused since the last sync").await;
    stream.write_all(b"+sync\r\n").await.unwrap();
    until(&mut stream, &mut heard, "+OK\r\n").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn search_applies_limit_offset_and_exact_tag_sets() {
    let ports = ports().await;
    let mut text = "+cpu dc=1\n:7\n+1\n".to_owned();
    for host in ["a", "b", "c"] {
        write!(text, "+cpu dc=1 host={host}\n:7\n+1\n").unwrap();
    }
    assert_eq!(exchange(ports.resp, &text).await, "");
    let search = async |body: &str| post(&ports, "/api/search", body).await.1;
    let page = r#"{"select": "cpu", "where": {"dc": "1"}, "offset": 1, "limit": 2}"#;
    assert_eq!(search(page).await, "+cpu dc=1 host=a\r\n+cpu dc=1 host=b\r\n");
    let whole = r#"{"select": "cpu", "where": [{"dc": "1"}]}"#;
    assert_eq!(search(whole).await, "+cpu dc=1\r\n");
    let (status, body) =
        post(&ports, "/api/delete", r#"{"metric": "cpu", "where": [{"dc": "1"}]}"#).await;
    assert_eq!((status, &*body), (200, r#"{"series":1}"#));
    let left = query(&ports, &format!(r#""select": "cpu", {ALL}"#)).await;
    assert_eq!(left, "cpu dc=1 host=a,7,1\ncpu dc=1 host=b,7,1\ncpu dc=1 host=c,7,1\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn write_body_over_the_limit_is_refused_before_it_is_read() {
    let ports = ports().await;
    let mut stream = TcpStream::connect(ports.http).await.unwrap();
    let request = format!(
        "POST /write HTTP/1.0\r\nhost: x\r\ncontent-length: {}\r\n\r\n",
        ingest::WRITE_BYTES_MAX + 1
    );
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.0 413"), "{answer}");
}

fn gzip(parts: &[&[u8]]) -> Vec<u8> {
    let pack = |part: &&[u8]| {
        let mut packed = Vec::new();
        flate2::read::GzEncoder::new(*part, flate2::Compression::fast())
            .read_to_end(&mut packed)
            .unwrap();
        packed
    };
    parts.iter().flat_map(pack).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn gzip_lines_are_accepted_and_limited_by_their_unpacked_size() {
    let ports = ports().await;
    let header = "Content-Encoding: GZIP\r\n";
    let write = async |coding: &str, body: &[u8]| {
        post_as(&ports, "/write", &format!("content-encoding: {coding}\r\n"), body).await
    };
    let whole = gzip(&[b"m,host=x f=1 5\n", b"m,host=y f=2 6\nm f= 5\n"]);
    let (status, text) = post_as(&ports, "/write", header, &whole).await;
    assert!(status == 400 && text.contains("line 3: field f: no value"), "{text}");
    assert_eq!(write("identity", b"m,host=z f=3 7").await, (204, String::new()));
    let all = "m_f host=x,5,1\nm_f host=y,6,2\nm_f host=z,7,3\n";
    let held = async || query(&ports, &format!(r#""select": "m_f", {ALL}"#)).await;
    assert_eq!(held().await, all);
    // None of these bodies is stored.
    let cut = gzip(&[b"m,host=cut f=1 5"]);
    for broken in [&cut[..cut.len() - 4], &cut[..5], b"m,host=plain f=1 5"] {
        let (status, text) = write("gzip", broken).await;
        assert!(status == 400 && text.contains("body: gzip: "), "{status} {text}");
    }
    let bomb = gzip(&[b"m,host=bomb f=1 5\n", &vec![b'\n'; ingest::WRITE_BYTES_MAX]]);
    assert!(bomb.len() < 1 << 20);
    assert_eq!(write("gzip", &bomb).await.0, 413);
    for coding in ["deflate", "gzip, gzip", "gzip\r\ncontent-encoding: gzip"] {
        let (status, text) = write(coding, &whole).await;
        assert!(status == 415 && text.contains("content-encoding: "), "{coding}: {text}");
        assert!(text.contains("send gzip or none"), "{coding}: {text}");
    }
    assert_eq!(held().await, all);
}

#[tokio::test(flavor = "multi_thread")]
async fn query_body_over_the_limit_is_refused_on_every_route() {
    let ports = ports().await;
    let body = |bytes: usize| format!(r#"{{"select": "cpu"{}}}"#, " ".repeat(bytes - 17));
    for path in ["/api/search", "/api/query", "/api/suggest", "/api/delete"] {
        let (status, _) = post(&ports, path, &body(ingest::QUERY_BYTES_MAX + 1)).await;
        assert_eq!(status, 413, "{path}");
    }
    let largest = post(&ports, "/api/search", &body(ingest::QUERY_BYTES_MAX)).await;
    assert_eq!(largest, (200, String::new()));
}

#[tokio::test(flavor = "multi_thread")]
async fn browser_page_cannot_write_through_line_protocol_ports() {
    let ports = ports().await;
    let put = (ports.opentsdb, "put cpu 7 1 host=x\nsync\n");
    let resp = (ports.resp, "+cpu host=x\r\n:7\r\n+1\r\n+sync\r\n");
    for (port, lines) in [put, resp] {
        let mut stream = TcpStream::connect(port).await.unwrap();
        let request = format!("POST / HTTP/1.1\r\nhost: x\r\n\r\n{lines}");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = Vec::new();
        // The server may close the connection before it has read everything.
        let _ = stream.read_to_end(&mut answer).await;
        assert!(!answer.windows(2).any(|w| w.eq_ignore_ascii_case(b"ok")), "{answer:?}");
    }
    let all = r#""select": "cpu", "range": {"from": 0, "to": 100000000000}"#;
    assert_eq!(query(&ports, all).await, "");
    let taken = exchange(ports.opentsdb, "put cpu 7 1 host=x\nsync\n").await;
    assert_eq!((&*taken, query(&ports, all).await.lines().count()), ("ok\n", 1));
}

/// Sends a request on a connection that stays open. Returns the status and the body.
async fn post_keep_alive(stream: &mut TcpStream, path: &str, body: &[u8]) -> (u16, String) {
    let head = format!("POST {path} HTTP/1.1\r\nhost: x\r\ncontent-length: {}\r\n\r\n", body.len());
    stream.write_all(&[head.as_bytes(), body].concat()).await.unwrap();
    let mut heard = String::new();
    until(stream, &mut heard, "\r\n\r\n").await;
    let (head, _) = heard.split_once("\r\n\r\n").unwrap();
    let length = head.lines().find_map(|l| l.strip_prefix("content-length: "));
    let (status, end) = (head[9..12].parse().unwrap(), head.len() + 4);
    let whole = end + length.map_or(0, |n| n.parse::<usize>().unwrap());
    while heard.len() < whole {
        let mut byte = [0];
        stream.read_exact(&mut byte).await.unwrap();
        heard.push(char::from(byte[0]));
    }
    (status, heard[end..].to_owned())
}

fn remote(name: &str, millis: i64) -> TimeSeries {
    let label = |name: &str, value: &str| Label { name: name.into(), value: value.into() };
    let labels = vec![label("__name__", name), label("host", "x")];
    TimeSeries { labels, samples: vec![Sample { value: 1.0, timestamp: millis }] }
}

fn request(timeseries: Vec<TimeSeries>) -> Vec<u8> {
    snap::raw::Encoder::new().compress_vec(&WriteRequest { timeseries }.encode_to_vec()).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn bad_line_on_a_socket_is_reported_and_the_rest_is_stored() {
    let ports = ports().await;
    let resp = |time: i64| format!("+r host=x\r\n:{time}\r\n+1\r\n");
    let put = |time: i64| format!("put o {time} 1 host=x\n");
    for (port, good, bad, named, sync, done) in [
        (
            ports.resp,
            &resp as &dyn Fn(i64) -> String,
            "+r host=x\r\n:7\r\n+much\r\n",
            "much",
            "+sync\r\n",
            "+OK\r\n",
        ),
        (ports.opentsdb, &put, "put o 7 much host=x\n", "put o 7 much host=x", "sync\n", "ok\n"),
    ] {
        let mut stream = TcpStream::connect(port).await.unwrap();
        for round in 0..2 {
            let text = [&*good(round * 2), bad, &*good(round * 2 + 1), sync].concat();
            stream.write_all(text.as_bytes()).await.unwrap();
            let mut heard = String::new();
            until(&mut stream, &mut heard, done).await;
            assert!(heard.contains(named), "{heard}");
        }
    }
    // Datagrams get no reply. Sending them again writes the same rows.
    let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let text = "+u host=x\r\n:0\r\n+1\r\nbad\r\n+u host=x\r\n:1\r\n+1\r\n";
    let count = async |metric: &str| {
        let range = r#""range": {"from": 0, "to": 100000000000}"#;
        query(&ports, &format!(r#""select": "{metric}", {range}"#)).await.lines().count()
    };
    while count("u").await < 2 {
        socket.send_to(text.as_bytes(), ports.udp).await.unwrap();
    }
    assert_eq!((count("r").await, count("o").await, count("u").await), (4, 4, 2));
}

#[tokio::test(flavor = "multi_thread")]
async fn bad_line_in_a_request_is_reported_and_the_rest_is_stored() {
    let ports = ports().await;
    let mut stream = TcpStream::connect(ports.http).await.unwrap();
    for round in 0..2 {
        let lines = format!(
            "i,host=x f=1 {}\ni,host=x f=much 7\ni,host=x f=1 {}\n",
            round * 2,
            round * 2 + 1
        );
        let (status, told) = post_keep_alive(&mut stream, "/write", lines.as_bytes()).await;
        assert!(
            status == 400 && told.contains("line 2: ") && told.contains("i,host=x f=much 7"),
            "{told}"
        );
        let series = vec![remote("p", round * 2), remote("!bad", 7), remote("p", round * 2 + 1)];
        let (status, told) = post_keep_alive(&mut stream, "/api/v1/write", &request(series)).await;
        assert!(status == 400 && told.contains("series 2: ") && told.contains("!bad"), "{told}");
    }
    for metric in ["i_f", "p"] {
        let range = r#""range": {"from": 0, "to": 100000000000}"#;
        let rows = query(&ports, &format!(r#""select": "{metric}", {range}"#)).await;
        assert_eq!(rows.lines().count(), 4, "{metric}: {rows}");
    }
}

/// Number of samples of each request.
const LARGE: [i64; 2] = [2 * 4096, 3 * 4096 + 100];

#[tokio::test(flavor = "multi_thread")]
async fn acknowledged_large_request_survives_power_loss() {
    for (seed, samples) in (1..).zip(LARGE.into_iter().cycle().take(6)) {
        let disk = SimDisk::new(seed);
        let options =
            || StoreOptions { files: std::sync::Arc::new(disk.clone()), ..StoreOptions::default() };
        let ports = ports_of(options()).await;
        let mut stream = TcpStream::connect(ports.http).await.unwrap();
        let mut lines = String::new();
        for i in 0..samples {
            writeln!(lines, "i,host=x f={i} {i}").unwrap();
        }
        assert_eq!(post_keep_alive(&mut stream, "/write", lines.as_bytes()).await.0, 204);
        let series = (0..samples).map(|i| remote("p", i)).collect();
        assert_eq!(post_keep_alive(&mut stream, "/api/v1/write", &request(series)).await.0, 204);
        let image = disk.crash(seed);
        let options = StoreOptions { files: std::sync::Arc::new(image), ..options() };
        let (store, _) = Store::open(&ports.folder.path().join("s"), options).unwrap();
        for metric in ["i_f", "p"] {
            let found = store.find(&series::Selector::metric(metric));
            let summary = store.snapshot().summary(&found[0], series::TimeRange::ALL).unwrap();
            assert_eq!(summary.unwrap().count, samples as u64, "{metric}, seed {seed}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn large_request_keeps_last_duplicates_and_reports_its_bad_line() {
    let ports = ports().await;
    let mut lines = String::new();
    for i in 0..9000 {
        writeln!(lines, "i,host=x f={i} {}", i % 4500).unwrap();
    }
    lines += "i,host=x f= 1\n";
    let mut stream = TcpStream::connect(ports.http).await.unwrap();
    let (status, told) = post_keep_alive(&mut stream, "/write", lines.as_bytes()).await;
    assert!(status == 400 && told.contains("1 refused, 9000 samples stored: line 9001"), "{told}");
    let rows = query(&ports, r#""select": "i_f", "range": {"from": 0, "to": 4500}"#).await;
    assert_eq!(rows.lines().count(), 4500);
    for (i, row) in rows.lines().enumerate() {
        assert_eq!(row, format!("i_f host=x,{i},{}", i + 4500));
    }
}
