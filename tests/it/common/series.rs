//! A series store as a real process, and requests to its ports.

use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::path::Path;
use std::time::Duration;

use super::{PATIENCE, Running};

/// A running `holdfast series serve`.
pub(crate) struct Alone {
    pub(crate) process: Running,
    pub(crate) resp: SocketAddr,
    pub(crate) udp: SocketAddr,
    pub(crate) opentsdb: SocketAddr,
    pub(crate) http: SocketAddr,
}

impl Alone {
    /// Starts a store on this folder and on free ports, with further arguments.
    pub(crate) fn start(data: &Path, words: &[&str]) -> Self {
        let log = data.with_extension("log");
        let own = ["series", "serve", "--data", data.to_str().unwrap()];
        let ports = ["--resp", "--udp", "--opentsdb", "--http"];
        let ports: Vec<&str> = ports.iter().flat_map(|port| [*port, "127.0.0.1:0"]).collect();
        let process = Running::start(&[&own, &ports[..], words].concat(), &log);
        process.line("ready: ");
        let port = |name: &str| process.line(&format!("listening: {name} ")).parse().unwrap();
        let (resp, udp, opentsdb, http) =
            (port("resp"), port("udp"), port("opentsdb"), port("http"));
        Self { process, resp, udp, opentsdb, http }
    }

    /// Returns the rows of a query as CSV with raw times.
    pub(crate) fn query(&self, fields: &str) -> String {
        let body = format!(r#"{{{fields}, "output": {{"format": "csv", "timestamp": "raw"}}}}"#);
        let (status, answer) = post(self.http, "/api/query", &[], body.as_bytes()).unwrap();
        assert_eq!(status, 200, "{answer}");
        answer
    }

    /// Returns the times and values of every series of a metric, by name.
    pub(crate) fn samples(&self, metric: &str) -> BTreeMap<String, BTreeMap<i64, f64>> {
        let all = r#""range": {"from": 0, "to": "20990101T000000"}, "order-by": "series""#;
        let answer = self.query(&format!(r#""select": "{metric}", {all}"#));
        let mut found: BTreeMap<String, BTreeMap<i64, f64>> = BTreeMap::new();
        for line in answer.lines() {
            assert!(!line.starts_with('-'), "the query failed: {line}");
            let fields: Vec<&str> = line.split(',').collect();
            let [name, time, value] = fields[..] else { panic!("{line}") };
            let times = found.entry(name.to_owned()).or_default();
            let before = times.insert(time.parse().unwrap(), value.parse().unwrap());
            assert_eq!(before, None, "{line}: twice");
        }
        found
    }
}

/// Sends a POST. Returns status and body, or `None` without a complete answer.
pub(crate) fn post(
    to: SocketAddr,
    path: &str,
    headers: &[&str],
    body: &[u8],
) -> Option<(u16, String)> {
    request("POST", to, path, headers, body).map(|(status, _, body)| (status, body))
}

/// Sends a request over HTTP/1.0, whose answer ends with the connection. Returns status, head and
/// body.
pub(crate) fn request(
    method: &str,
    to: SocketAddr,
    path: &str,
    headers: &[&str],
    body: &[u8],
) -> Option<(u16, String, String)> {
    let mut stream = TcpStream::connect(to).ok()?;
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let more = [headers, &[""]].concat().join("\r\n");
    let length = body.len();
    let head =
        format!("{method} {path} HTTP/1.0\r\nhost: x\r\n{more}content-length: {length}\r\n\r\n");
    stream.write_all(head.as_bytes()).ok()?;
    stream.write_all(body).ok()?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).ok()?;
    let answer = String::from_utf8_lossy(&answer).into_owned();
    let (head, body) = answer.split_once("\r\n\r\n")?;
    let status = head.split(' ').nth(1)?.parse().ok()?;
    Some((status, head.to_owned(), body.to_owned()))
}

/// Sends everything, closes the sending side and returns the answer until the server closes. `None`
/// means that the server was killed and acknowledged nothing.
pub(crate) fn send_and_read(to: SocketAddr, bytes: &[u8]) -> Option<String> {
    let mut stream = TcpStream::connect(to).ok()?;
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.set_write_timeout(Some(PATIENCE)).unwrap();
    stream.write_all(bytes).ok()?;
    stream.shutdown(std::net::Shutdown::Write).ok()?;
    let mut said = String::new();
    stream.read_to_string(&mut said).ok()?;
    Some(said)
}

/// Sends datagrams without waiting for an answer.
pub(crate) fn datagram(to: SocketAddr, bytes: &[u8]) {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.set_write_timeout(Some(Duration::from_secs(1))).unwrap();
    let _ = socket.send_to(bytes, to);
}
