//! Load on a series store over all protocols, and its acknowledged requests.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::Write as _;
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use flate2::Compression;
use flate2::write::GzEncoder;
use prost::Message as _;
use readers::remote::{Label, Sample, TimeSeries, WriteRequest};

use super::eventually;
use super::series::{Alone, datagram, post, send_and_read};

/// Number of rows in one request.
pub(crate) const ROWS: u64 = 100;
/// Width of a partition, seconds.
const PARTITION: u64 = 7_200;

/// The protocols that can acknowledge.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Protocol {
    /// Single samples, each with its series name.
    Resp,
    /// Rows of two metrics; the series names are sent once, in a dictionary.
    Rows,
    OpenTsdb,
    Influx,
    /// Influx lines in gzip. Even a short gzip body is parsed outside of the connection's task.
    Packed,
    Remote,
}

pub(crate) const PROTOCOLS: [Protocol; 6] = [
    Protocol::Resp,
    Protocol::Rows,
    Protocol::OpenTsdb,
    Protocol::Influx,
    Protocol::Packed,
    Protocol::Remote,
];

impl Protocol {
    /// Returns the metrics of its requests; all of them get the same value.
    pub(crate) fn metrics(self) -> &'static [&'static str] {
        match self {
            Self::Resp => &["resp"],
            Self::Rows => &["rows.float", "rows.integer"],
            Self::OpenTsdb => &["opentsdb"],
            Self::Influx => &["influx_v"],
            Self::Packed => &["packed_v"],
            Self::Remote => &["remote"],
        }
    }
}

/// The rows of one request: the hosts `first..first + ROWS` with one time and one value.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Request {
    first: u64,
    pub(crate) seconds: u64,
    pub(crate) value: u64,
}

impl Request {
    /// Returns the `turn`-th request over N series. Times go back and forth over five partitions.
    fn new(base: u64, turn: u64, series: u64) -> Self {
        let first = turn * ROWS % series;
        Self { first, seconds: base + turn - turn % 5 * PARTITION, value: turn }
    }

    pub(crate) fn hosts(self) -> std::ops::Range<u64> {
        self.first..self.first + ROWS
    }

    /// Sends the request. Returns true if it was acknowledged. A refusal fails the test.
    fn send(self, protocol: Protocol, to: &Ports) -> bool {
        let (seconds, value) = (self.seconds, self.value);
        let mut text = String::new();
        match protocol {
            Protocol::Resp => {
                for host in self.hosts() {
                    let _ =
                        write!(text, "+resp host={host}\r\n:{seconds}000000000\r\n+{value}\r\n");
                }
                text.push_str("+sync\r\n");
                send_and_read(to.resp, text.as_bytes()).is_some_and(|said| fine(&said, "+OK\r\n"))
            }
            Protocol::Rows => {
                let _ = write!(text, "*{}\r\n", 2 * ROWS);
                for host in self.hosts() {
                    let _ = write!(text, "+rows.float|rows.integer host={host}\r\n:{host}\r\n");
                }
                for host in self.hosts() {
                    let time = format!(":{host}\r\n:{seconds}000000000\r\n");
                    let _ = write!(text, "{time}*2\r\n+{value}.0\r\n:{value}\r\n");
                }
                text.push_str("+sync\r\n");
                send_and_read(to.resp, text.as_bytes()).is_some_and(|said| fine(&said, "+OK\r\n"))
            }
            Protocol::OpenTsdb => {
                for host in self.hosts() {
                    let _ = writeln!(text, "put opentsdb {seconds} {value} host={host}");
                }
                text.push_str("sync\n");
                send_and_read(to.opentsdb, text.as_bytes()).is_some_and(|said| fine(&said, "ok\n"))
            }
            Protocol::Influx => {
                for host in self.hosts() {
                    let _ = writeln!(text, "influx,host={host} v={value} {seconds}");
                }
                stored(post(to.http, "/write?precision=s", &[], text.as_bytes()))
            }
            Protocol::Packed => {
                let mut body = GzEncoder::new(Vec::new(), Compression::fast());
                for host in self.hosts() {
                    writeln!(body, "packed,host={host} v={value} {seconds}").unwrap();
                }
                let (headers, body) = (["content-encoding: gzip"], body.finish().unwrap());
                stored(post(to.http, "/write?precision=s", &headers, &body))
            }
            Protocol::Remote => {
                let body = self.remote();
                let headers = ["content-type: application/x-protobuf", "content-encoding: snappy"];
                stored(post(to.http, "/api/v1/write", &headers, &body))
            }
        }
    }

    fn remote(self) -> Vec<u8> {
        let label = |name: &str, value: String| Label { name: name.into(), value };
        let one = |host: u64| TimeSeries {
            labels: vec![label("__name__", "remote".into()), label("host", host.to_string())],
            samples: vec![Sample {
                value: self.value as f64,
                timestamp: self.seconds as i64 * 1000,
            }],
        };
        let request = WriteRequest { timeseries: self.hosts().map(one).collect() };
        snap::raw::Encoder::new().compress_vec(&request.encode_to_vec()).unwrap()
    }
}

/// Returns true if the server answered `sync` before it was killed. Any other answer to good rows
/// fails the test.
fn fine(said: &str, answer: &str) -> bool {
    assert!(said.is_empty() || said == answer, "good rows were refused: {said}");
    !said.is_empty()
}

fn stored(answer: Option<(u16, String)>) -> bool {
    let Some((status, body)) = answer else { return false };
    assert_eq!(status, 204, "good rows were refused: {body}");
    true
}

/// The addresses on which a store listens.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ports {
    pub(crate) resp: SocketAddr,
    pub(crate) udp: SocketAddr,
    pub(crate) opentsdb: SocketAddr,
    pub(crate) http: SocketAddr,
}

impl Ports {
    pub(crate) fn of(store: &Alone) -> Self {
        let Alone { resp, udp, opentsdb, http, .. } = *store;
        Self { resp, udp, opentsdb, http }
    }
}

/// The acknowledged requests, by protocol.
pub(crate) type Acknowledged = BTreeMap<Protocol, Vec<Request>>;

/// The acknowledged requests of each protocol.
#[derive(Default)]
struct Progress {
    requests: [AtomicU64; PROTOCOLS.len()],
    /// Time at which the last acknowledged request began.
    began: [Mutex<Option<Instant>>; PROTOCOLS.len()],
}

impl Progress {
    /// Records an acknowledged request of a protocol, with the time at which it began.
    fn note(&self, protocol: usize, began: Option<Instant>) {
        let Some(began) = began else { return };
        *self.began[protocol].lock().unwrap() = Some(began);
        self.requests[protocol].fetch_add(1, Ordering::Relaxed);
    }
}

/// Metrics that are written without acknowledgements: over RESP, as lines of `put`, and in
/// datagrams, which may be lost in transit.
pub(crate) const STREAMS: [&str; 3] = ["forgotten", "put", "datagram"];

/// An unacknowledged stream, as the times at which its rows were sent.
type Sent = Vec<Instant>;

/// One writer per protocol; each runs until it is stopped or the store is killed.
pub(crate) struct Load {
    stop: Arc<AtomicBool>,
    progress: Arc<Progress>,
    writers: Vec<(Protocol, JoinHandle<Vec<Request>>)>,
    streams: [JoinHandle<Sent>; 3],
}

/// The result of a load.
pub(crate) struct Ended {
    /// The acknowledged requests.
    pub(crate) told: Acknowledged,
    /// Times at which the rows of each of [`STREAMS`] were sent.
    pub(crate) sent: [Sent; 3],
    /// Time since which every protocol has had a whole request acknowledged.
    pub(crate) alive: Option<Instant>,
}

impl Load {
    pub(crate) fn start(ports: Ports, base: u64, series: u64, turn: u64) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let progress: Arc<Progress> = Arc::default();
        let writer = |(at, protocol): (usize, Protocol)| {
            let (stop, progress) = (stop.clone(), progress.clone());
            let requests = (turn..).map(move |turn| Request::new(base, turn, series));
            let stored = move |request: &Request| {
                let began = Instant::now();
                let stored = !stop.load(Ordering::Relaxed) && request.send(protocol, &ports);
                progress.note(at, stored.then_some(began));
                stored
            };
            (protocol, std::thread::spawn(move || requests.take_while(stored).collect()))
        };
        let writers = PROTOCOLS.into_iter().enumerate().map(writer).collect();
        let resp =
            move |row| format!("+forgotten life={turn}\r\n:{}000000000\r\n+{row}\r\n", base + row);
        let put = move |row| format!("put put {} {row} life={turn}\n", base + row);
        let streams = [
            forgetting(ports.resp, resp, &stop),
            forgetting(ports.opentsdb, put, &stop),
            datagrams(ports, base, turn, &stop),
        ];
        Self { stop, progress, writers, streams }
    }

    /// Returns the number of requests acknowledged so far, by protocol.
    pub(crate) fn acknowledged(&self) -> Vec<u64> {
        self.progress.requests.iter().map(|n| n.load(Ordering::Relaxed)).collect()
    }

    /// Waits until every protocol has had N acknowledgements.
    pub(crate) fn wait(&self, requests: u64) {
        eventually("every protocol is acknowledged", || {
            let counts = self.acknowledged();
            if counts.iter().all(|n| *n >= requests) { Ok(()) } else { Err(format!("{counts:?}")) }
        });
    }

    /// Stops the writers and returns the result.
    pub(crate) fn end(self) -> Ended {
        self.stop.store(true, Ordering::Relaxed);
        let told = self.writers.into_iter().map(|(p, w)| (p, w.join().unwrap())).collect();
        let sent = self.streams.map(|stream| stream.join().unwrap());
        let began = self.progress.began.iter().map(|began| *began.lock().unwrap());
        let alive = began.collect::<Option<Vec<Instant>>>().and_then(|all| all.into_iter().min());
        Ended { told, sent, alive }
    }
}

/// Starts a writer that sends rows over one connection without waiting for answers.
fn forgetting(
    to: SocketAddr,
    text: impl Fn(u64) -> String + Send + 'static,
    stop: &Arc<AtomicBool>,
) -> JoinHandle<Sent> {
    let stop = stop.clone();
    std::thread::spawn(move || {
        let mut sent = Sent::new();
        let Ok(mut stream) = TcpStream::connect(to) else { return sent };
        for row in 0.. {
            let text = text(row);
            if stop.load(Ordering::Relaxed) || stream.write_all(text.as_bytes()).is_err() {
                break;
            }
            sent.push(Instant::now());
            // Limit the rate to about a thousand rows per second.
            std::thread::sleep(Duration::from_millis(1));
        }
        sent
    })
}

/// Starts a writer that sends datagrams.
fn datagrams(ports: Ports, base: u64, turn: u64, stop: &Arc<AtomicBool>) -> JoinHandle<Sent> {
    let stop = stop.clone();
    std::thread::spawn(move || {
        let mut sent = Sent::new();
        for row in 0.. {
            if stop.load(Ordering::Relaxed) {
                break;
            }
            let seconds = base + row;
            let text = format!("+datagram life={turn}\r\n:{seconds}000000000\r\n+{row}\r\n");
            datagram(ports.udp, text.as_bytes());
            sent.push(Instant::now());
            std::thread::sleep(Duration::from_millis(2));
        }
        sent
    })
}
