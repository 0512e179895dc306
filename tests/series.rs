//! The series store as a real process, killed with SIGKILL while every protocol writes, and stopped
//! cleanly with the log on and off: what was acknowledged is there, what a query has shown stays, and
//! no query fails because of another series.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stdout,
    clippy::missing_panics_doc,
    clippy::unnecessary_debug_formatting,
    missing_docs,
    reason = "a test that cannot go on fails"
)]

#[path = "common/series.rs"]
mod alone;
mod common;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::io::Write as _;
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use alone::{Alone, datagram, post, tell};
use common::{eventually, folder, run};
use env::random::{Random as _, SeededRandom, SystemRandom};
use ingest::remote::{Label, Sample, TimeSeries, WriteRequest};
use prost::Message as _;

/// Kills of one run; `HOLDFAST_KILLS` says another number, `HOLDFAST_SOAK` multiplies it.
const KILLS: u64 = 16;
/// Clean stops of one run; `HOLDFAST_STOPS` says another number.
const STOPS: u64 = 8;
/// Kills of one pair of folders; the next ones get new folders.
const ERA: usize = 8;
/// Rows of one request.
const ROWS: u64 = 100;
/// Series of each protocol, by turns.
const SERIES: [u64; 8] = [100, 1_000, 100, 10_000, 100, 1_000, 300, 5_000];
/// Series of each protocol once in a run.
const SERIES_MANY: u64 = 25_000;
const SECOND: i64 = 1_000_000_000;
/// Width of a partition, seconds.
const PARTITION: u64 = 7_200;

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |n| n.parse().unwrap())
}

/// The protocols that can acknowledge.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Protocol {
    Resp,
    OpenTsdb,
    Influx,
    Remote,
}

const PROTOCOLS: [Protocol; 4] =
    [Protocol::Resp, Protocol::OpenTsdb, Protocol::Influx, Protocol::Remote];

impl Protocol {
    fn metric(self) -> &'static str {
        match self {
            Self::Resp => "resp",
            Self::OpenTsdb => "opentsdb",
            Self::Influx => "influx_v",
            Self::Remote => "remote",
        }
    }
}

/// The rows of one request: hosts `first..first + ROWS`, one time, one value.
#[derive(Debug, Clone, Copy)]
struct Request {
    first: u64,
    seconds: u64,
    value: u64,
}

impl Request {
    /// The `turn`-th request over so many series. Times go back and forth over five partitions.
    fn new(base: u64, turn: u64, series: u64) -> Self {
        let first = turn * ROWS % series;
        Self { first, seconds: base + turn - turn % 5 * PARTITION, value: turn }
    }

    fn hosts(self) -> std::ops::Range<u64> {
        self.first..self.first + ROWS
    }

    /// Send it; whether it was acknowledged. A refusal fails the test.
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
                tell(to.resp, text.as_bytes()).is_some_and(|said| fine(&said, "+OK\r\n"))
            }
            Protocol::OpenTsdb => {
                for host in self.hosts() {
                    let _ = writeln!(text, "put opentsdb {seconds} {value} host={host}");
                }
                text.push_str("sync\n");
                tell(to.opentsdb, text.as_bytes()).is_some_and(|said| fine(&said, "ok\n"))
            }
            Protocol::Influx => {
                for host in self.hosts() {
                    let _ = writeln!(text, "influx,host={host} v={value} {seconds}");
                }
                stored(post(to.http, "/write?precision=s", &[], text.as_bytes()))
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

/// Whether the server answered `sync` before it went away; it says nothing else of good rows.
fn fine(said: &str, answer: &str) -> bool {
    assert!(said.is_empty() || said == answer, "good rows were refused: {said}");
    !said.is_empty()
}

fn stored(answer: Option<(u16, String)>) -> bool {
    let Some((status, body)) = answer else { return false };
    assert_eq!(status, 204, "good rows were refused: {body}");
    true
}

/// Where a store listens.
#[derive(Debug, Clone, Copy)]
struct Ports {
    resp: std::net::SocketAddr,
    udp: std::net::SocketAddr,
    opentsdb: std::net::SocketAddr,
    http: std::net::SocketAddr,
}

impl Ports {
    fn of(store: &Alone) -> Self {
        let Alone { resp, udp, opentsdb, http, .. } = *store;
        Self { resp, udp, opentsdb, http }
    }
}

/// What was acknowledged, by protocol.
type Told = BTreeMap<Protocol, Vec<Request>>;

/// Writers over all protocols, one each, until the store goes away or they are told to stop.
struct Load {
    stop: Arc<AtomicBool>,
    acknowledged: Arc<[AtomicU64; 4]>,
    writers: Vec<(Protocol, JoinHandle<Vec<Request>>)>,
    streams: Vec<JoinHandle<u64>>,
}

impl Load {
    fn start(ports: Ports, base: u64, series: u64, turn: u64) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let acknowledged: Arc<[AtomicU64; 4]> = Arc::default();
        let writer = |(at, protocol): (usize, Protocol)| {
            let (stop, acknowledged) = (stop.clone(), acknowledged.clone());
            let requests = (turn..).map(move |turn| Request::new(base, turn, series));
            let stored = move |request: &Request| {
                let stored = !stop.load(Ordering::Relaxed) && request.send(protocol, &ports);
                acknowledged[at].fetch_add(u64::from(stored), Ordering::Relaxed);
                stored
            };
            (protocol, std::thread::spawn(move || requests.take_while(stored).collect()))
        };
        let writers = PROTOCOLS.into_iter().enumerate().map(writer).collect();
        let streams =
            vec![forgetting(ports, base, turn, &stop), datagrams(ports, base, turn, &stop)];
        Self { stop, acknowledged, writers, streams }
    }

    /// Wait until every protocol has had so many acknowledgements.
    fn wait(&self, requests: u64) {
        eventually("every protocol is acknowledged", || {
            let counts: Vec<u64> =
                self.acknowledged.iter().map(|n| n.load(Ordering::Relaxed)).collect();
            if counts.iter().all(|n| *n >= requests) { Ok(()) } else { Err(format!("{counts:?}")) }
        });
    }

    /// What was acknowledged, and how many rows of the stream without acknowledgements were sent.
    fn end(self) -> (Told, u64) {
        self.stop.store(true, Ordering::Relaxed);
        let told = self.writers.into_iter().map(|(p, w)| (p, w.join().unwrap())).collect();
        let sent: Vec<u64> = self.streams.into_iter().map(|s| s.join().unwrap()).collect();
        (told, sent[0])
    }
}

/// One connection that never ends and is never answered; rows sent.
fn forgetting(ports: Ports, base: u64, turn: u64, stop: &Arc<AtomicBool>) -> JoinHandle<u64> {
    let stop = stop.clone();
    std::thread::spawn(move || {
        let Ok(mut stream) = TcpStream::connect(ports.resp) else { return 0 };
        for row in 0.. {
            let seconds = base + row;
            let text = format!("+forgotten life={turn}\r\n:{seconds}000000000\r\n+{row}\r\n");
            if stop.load(Ordering::Relaxed) || stream.write_all(text.as_bytes()).is_err() {
                return row;
            }
            // A steady stream, not a flood.
            std::thread::sleep(Duration::from_millis(1));
        }
        0
    })
}

/// Datagrams; rows sent.
fn datagrams(ports: Ports, base: u64, turn: u64, stop: &Arc<AtomicBool>) -> JoinHandle<u64> {
    let stop = stop.clone();
    std::thread::spawn(move || {
        for row in 0.. {
            if stop.load(Ordering::Relaxed) {
                return row;
            }
            let seconds = base + row;
            let text = format!("+datagram life={turn}\r\n:{seconds}000000000\r\n+{row}\r\n");
            datagram(ports.udp, text.as_bytes());
            std::thread::sleep(Duration::from_millis(2));
        }
        0
    })
}

/// Everything acknowledged is there, with its value; the first few that are not.
fn check(store: &Alone, told: &Told) {
    for (protocol, requests) in told {
        let metric = protocol.metric();
        let found = store.samples(metric);
        let rows = requests.iter().flat_map(|r| r.hosts().map(move |host| (host, *r)));
        let missing = rows.filter_map(|(host, request)| {
            let time = request.seconds as i64 * SECOND;
            let name = format!("{metric} host={host}");
            let here = found.get(&name).and_then(|times| times.get(&time)).copied();
            (here != Some(request.value as f64)).then_some((name, time, request.value, here))
        });
        let missing: Vec<_> = missing.take(5).collect();
        assert!(missing.is_empty(), "acknowledged and not there, for example {missing:?}");
    }
    let nothing = store.query(r#""select": "no_such_series", "range": {"from": 0, "to": 1}"#);
    assert_eq!(nothing, "");
}

/// Rows of a series that nobody acknowledges, as a query shows them now: without a hole from the
/// first on, how many.
fn shown(store: &Alone, metric: &str, life: u64, base: u64, whole: bool) -> u64 {
    let found = store.samples(metric);
    let Some(times) = found.get(&format!("{metric} life={life}")) else { return 0 };
    for ((time, value), row) in times.iter().zip(0..) {
        if whole {
            assert_eq!(*time, (base + row) as i64 * SECOND, "{metric}: a hole before row {row}");
        }
        assert_eq!(*value as u64 + base, (*time / SECOND) as u64);
    }
    times.len() as u64
}

fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs()
}

/// A folder whose log and head are small or large.
fn data(base: &Path, small: bool) -> PathBuf {
    let data = base.join(if small { "small" } else { "large" });
    fs::create_dir_all(&data).unwrap();
    let text = if small {
        "segment_mib = 1\nhead_mib = 1\nseal_after = \"1s\"\n"
    } else {
        "segment_mib = 64\n"
    };
    fs::write(data.join("series.toml"), text).unwrap();
    data
}

#[test]
fn nothing_acknowledged_is_lost_by_kills_under_load_over_all_protocols() {
    let seed = number("HOLDFAST_SEED", SystemRandom.next_u64().unwrap());
    println!("HOLDFAST_SEED={seed}");
    let random = SeededRandom::new(seed);
    let kills = number("HOLDFAST_KILLS", KILLS) * number("HOLDFAST_SOAK", 1);
    let base = folder("series-kills");
    let (mut rows, mut lost) = (0, 0);
    for (era, first) in (0..kills).step_by(ERA).enumerate() {
        let mut lives = Lives::new(&base.join(format!("era{era}")));
        for kill in first..kills.min(first + ERA as u64) {
            let many = kill == kills / 2;
            let series = if many { SERIES_MANY } else { SERIES[kill as usize % SERIES.len()] };
            let instant = Duration::from_millis(random.next_u64().unwrap() % 150);
            let (stored, gone) = lives.live((kill % 2) as usize, series, instant);
            (rows, lost) = (rows + stored, lost.max(gone));
        }
        lives.end();
    }
    println!(
        "{kills} kills, {rows} rows acknowledged, none lost; of a stream of 1,000 rows a second \
         without acknowledgements at most {lost} rows were lost by one kill"
    );
}

/// Two stores, one of small and one of large logs, that are killed again and again.
struct Lives {
    folders: [PathBuf; 2],
    all: [Told; 2],
    turn: u64,
    begin: u64,
}

impl Lives {
    fn new(base: &Path) -> Self {
        let folders = [data(base, true), data(base, false)];
        Self { folders, all: Default::default(), turn: 0, begin: now() - 3600 }
    }

    /// One life of a store, from its start to its kill, and what the next start finds: rows
    /// acknowledged, and rows lost of the stream that nobody acknowledges.
    fn live(&mut self, place: usize, series: u64, instant: Duration) -> (u64, u64) {
        let (turn, begin) = (self.turn, self.begin);
        let store = Alone::start(&self.folders[place], &[]);
        let load = Load::start(Ports::of(&store), begin, series, turn);
        load.wait(if series == SERIES_MANY { SERIES_MANY / ROWS } else { 2 });
        // Not to wait for anything: the random instant at which it happens.
        std::thread::sleep(instant);
        let streams = ["forgotten", "datagram"];
        let before =
            streams.map(|metric| shown(&store, metric, turn, begin, metric == "forgotten"));
        store.process.kill();
        let (told, sent) = load.end();

        let again = Alone::start(&self.folders[place], &[]);
        check(&again, &told);
        let after = streams.map(|metric| shown(&again, metric, turn, begin, metric == "forgotten"));
        for ((metric, before), after) in streams.iter().zip(before).zip(after) {
            assert!(after >= before, "{metric}: a query had shown {before} rows, {after} are left");
        }
        again.process.kill();
        self.turn += told.values().map(Vec::len).max().unwrap_or_default() as u64 + 1;
        let rows = told.values().map(|t| t.len() as u64 * ROWS).sum::<u64>();
        for (protocol, requests) in told {
            self.all[place].entry(protocol).or_default().extend(requests);
        }
        (rows, sent.saturating_sub(after[0]))
    }

    /// Everything of all lives is there, and every file is whole.
    fn end(self) {
        for (data, told) in self.folders.iter().zip(&self.all) {
            let store = Alone::start(data, &[]);
            check(&store, told);
            assert_eq!(store.process.stop(), 0);
            let (code, out, error) = run(&["series", "verify", "--data", data.to_str().unwrap()]);
            assert_eq!(code, 0, "{out}{error}");
            fs::remove_dir_all(data).unwrap();
        }
    }
}

#[test]
fn a_backup_under_load_restores_to_a_store_with_everything_acknowledged_before_it() {
    let base = folder("series-backup");
    let data = data(&base, true);
    let store = Alone::start(&data, &[]);
    let begin = now() - 3600;
    let load = Load::start(Ports::of(&store), begin, 1_000, 0);
    let (mut before, mut copies) = (Vec::new(), Vec::new());
    for copy in ["first", "second"] {
        load.wait(before.iter().min().copied().unwrap_or_default() + 20);
        before = load.acknowledged.iter().map(|n| n.load(Ordering::Relaxed)).collect();
        let to = base.join(copy);
        let (from, to) = (data.to_str().unwrap(), to.to_str().unwrap());
        let (code, out, error) = run(&["backup", "--data", from, "--to", to]);
        assert_eq!(code, 0, "{out}{error}");
        copies.push((copy, before.clone()));
    }
    assert_eq!(store.process.stop(), 0);
    let (told, _) = load.end();
    for (copy, before) in copies {
        let (from, restored) = (base.join(copy), base.join(format!("{copy}-restored")));
        let words = ["restore", "--from", from.to_str().unwrap(), "--data"];
        let (code, out, error) = run(&[&words[..], &[restored.to_str().unwrap()]].concat());
        assert_eq!(code, 0, "{out}{error}");
        let again = Alone::start(&restored, &[]);
        let told = told.iter().zip(&before).map(|((protocol, requests), n)| {
            (*protocol, requests.iter().take(*n as usize).copied().collect())
        });
        check(&again, &told.collect());
        assert_eq!(again.process.stop(), 0);
        let (code, out, error) = run(&["series", "verify", "--data", restored.to_str().unwrap()]);
        assert_eq!(code, 0, "{out}{error}");
    }
}

#[test]
fn a_clean_stop_loses_nothing_with_the_log_on_or_off() {
    let stops = number("HOLDFAST_STOPS", STOPS) * number("HOLDFAST_SOAK", 1);
    let base = folder("series-stops");
    let data = data(&base, false);
    let begin = now() - 3600;
    let (mut turn, mut all) = (0, Told::new());
    for stop in 0..stops {
        let wal = ["always", "off", "off", "interval"][stop as usize % 4];
        let store = Alone::start(&data, &["--wal", wal]);
        check(&store, &all);
        let load = Load::start(Ports::of(&store), begin, 300, turn);
        load.wait(3);
        assert_eq!(store.process.stop(), 0, "with the log {wal}");
        let (told, _) = load.end();
        turn += told.values().map(Vec::len).max().unwrap_or_default() as u64 + 1;
        for (protocol, requests) in told {
            all.entry(protocol).or_default().extend(requests);
        }
    }
    let store = Alone::start(&data, &[]);
    let replayed = store.process.printed().iter().any(|line| line.starts_with("replayed: "));
    assert!(!replayed, "something was left to be replayed by a clean stop");
    check(&store, &all);
    assert_eq!(store.process.stop(), 0);
    println!("{stops} stops");
}
