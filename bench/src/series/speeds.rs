//! Rows over sockets by each protocol: over one connection and several, with the log on and off in
//! turn, next to the peers that speak the protocol. Every run sends for the same time.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use holdfast_bench::{Results, quick};
use rustix::process::Signal;

use crate::bare::Bare;
use crate::client::written_of;
use crate::generate::{COLUMNS, Kind as Data};
use crate::payload::{Feed, Protocol, REQUEST_ROWS, dictionaries};
use crate::sockets::peers;
use crate::subject::{Kind, Subject};
use crate::{Fresh, ROWS};

/// Points generated in advance for each second of a run, for protocols that need it.
const POINTS_A_SECOND: f64 = 16e6;

/// The cost of one run, from the first byte to the last acknowledgement.
#[derive(Default, Clone)]
pub struct Run {
    pub wall: f64,
    pub cpu: f64,
    pub points: f64,
    /// Bytes that the server caused to be written to the disk.
    pub written: f64,
}

impl Run {
    /// Measures `send`, which returns the number of points it sent.
    pub fn of(
        subject: &mut Subject,
        send: impl FnOnce(&mut Subject) -> anyhow::Result<f64>,
    ) -> anyhow::Result<Self> {
        let (pid, cpu, began) = (subject.pid(), subject.cpu()?, Instant::now());
        let before = written_of(pid)?;
        let points = send(subject)?;
        let wall = began.elapsed().as_secs_f64();
        Ok(Self { wall, cpu: subject.cpu()? - cpu, points, written: written_of(pid)? - before })
    }

    /// Adds another run.
    pub fn add(&mut self, more: Self) {
        self.wall += more.wall;
        self.cpu += more.cpu;
        self.points += more.points;
        self.written += more.written;
    }

    pub fn speed(&self) -> f64 {
        self.points / self.wall
    }

    /// Returns the server's CPU seconds per point.
    pub fn cpu_each(&self) -> f64 {
        self.cpu / self.points
    }

    pub fn note(&self, results: &mut Results, case: &str, subject: &str) {
        let mut add = |metric, unit, value| results.add(case, subject, metric, unit, value);
        add("cpu_us_per_point", "us", self.cpu_each() * 1e6);
        add("points_per_second", "1/s", self.speed());
        add("seconds", "s", self.wall);
        add("written_bytes_per_point", "B", self.written / self.points);
    }

    /// Adds the ratios of speed and of CPU to those of a peer. Above 1, this one is better.
    pub fn compare(&self, results: &mut Results, case: &str, subject: &str, beside: &Self) {
        let cpu = beside.cpu_each() / self.cpu_each();
        results.add(case, subject, "speed_ratio", "ratio", self.speed() / beside.speed());
        results.add(case, subject, "cpu_ratio", "ratio", cpu);
    }
}

/// The payload, and the way in which it is sent.
struct Case {
    protocol: Protocol,
    data: Data,
    connections: usize,
    /// Rows per request.
    request: usize,
    /// Cores that the server is pinned to, and the suffix of the case's name.
    cores: Option<(&'static str, &'static str)>,
    feeds: Vec<Feed>,
}

/// A server that is stopped (`SIGSTOP`) except during its turns.
struct Side {
    kind: Kind,
    subject: Subject,
    /// Number of pieces that this process has received over each connection.
    had: Vec<usize>,
    /// Number of points in these pieces.
    points: f64,
    /// Turns of this process and of the processes before it.
    turns: Vec<Run>,
    logged: Logged,
}

/// Bytes that the processes logged, and the number of points.
#[derive(Default)]
struct Logged {
    payload: f64,
    written: f64,
    points: f64,
}

impl Side {
    /// Adds the log bytes of the present process.
    fn count_log(&mut self) -> anyhow::Result<()> {
        if matches!(self.wal(), "" | "off") {
            return Ok(());
        }
        self.subject.signal(Signal::CONT)?;
        self.logged.payload += self.subject.figure("log_payload")?;
        self.logged.written += self.subject.figure("log_written")?;
        self.logged.points += self.points;
        Ok(())
    }

    /// Returns the log setting of our own server; empty for a peer.
    fn wal(&self) -> &'static str {
        match self.kind {
            Kind::Ours(wal) => wal,
            _ => "",
        }
    }
}

impl Case {
    fn new(protocol: Protocol, data: Data, connections: usize) -> Self {
        Self::of_requests(protocol, data, connections, REQUEST_ROWS)
    }

    fn of_requests(protocol: Protocol, data: Data, connections: usize, request: usize) -> Self {
        let each = ROWS / connections;
        let all = turn(protocol).as_secs_f64() * (turns_of_a_process(protocol) + 1) as f64;
        let points = (POINTS_A_SECOND * all) as u64 / connections as u64;
        let feed = |i| Feed::new(protocol, data, i * each..(i + 1) * each, points, request);
        let feeds = (0..connections).map(feed).collect();
        Self { protocol, data, connections, request, cores: None, feeds }
    }

    fn name(&self) -> String {
        let data = match self.data {
            Data::Gauges => "",
            Data::Counters => " of counters",
            Data::Floats => " of floats",
        };
        let connections = match self.connections {
            1 => String::new(),
            2 => ", two connections".into(),
            n => format!(", {n} connections"),
        };
        let points = self.request * COLUMNS;
        let request = match self.request {
            REQUEST_ROWS => String::new(),
            _ => format!(", {points} points a request"),
        };
        format!("{}{data}{request}{connections}", self.protocol.name())
    }

    /// Sends for one turn, from where this server stopped.
    fn turn(&mut self, side: &mut Side) -> anyhow::Result<Run> {
        let Side { subject, had, points: before, .. } = side;
        self.feeds.iter_mut().zip(&*had).for_each(|(feed, had)| feed.seek(*had));
        // Data that others left in the page cache must not be written during this turn.
        rustix::fs::sync();
        let until = Instant::now() + turn(self.protocol);
        let run = Run::of(subject, |subject| {
            let sent = self.send(subject, until)?;
            if self.protocol == Protocol::Udp {
                return Ok(arrived(subject)? - *before);
            }
            subject.until_visible((*before + sent) / COLUMNS as f64)?;
            Ok(sent)
        })?;
        self.feeds.iter().zip(had).for_each(|(feed, had)| *had = feed.at());
        ensure!(run.points > 0.0, "{}: nothing was left to be sent", self.name());
        Ok(run)
    }

    /// Sends over all connections until `until`. Returns the number of points.
    fn send(&mut self, subject: &Subject, until: Instant) -> anyhow::Result<f64> {
        let (protocol, each) = (self.protocol, ROWS / self.connections);
        let named = protocol == Protocol::Rows;
        std::thread::scope(|scope| {
            let threads = self.feeds.iter_mut().enumerate().map(|(i, feed)| {
                let begin = dictionaries(i * each..(i + 1) * each).filter(move |_| named);
                scope.spawn(move || subject.feed(protocol, begin, feed, until))
            });
            let threads: Vec<_> = threads.collect();
            let died = || anyhow::anyhow!("a sending thread died");
            let joined = threads.into_iter().map(|thread| thread.join().map_err(|_| died())?);
            Ok(joined.sum::<anyhow::Result<u64>>()? as f64)
        })
    }

    /// Starts a server in a new folder below `base`, sends to it for an uncounted turn, in which
    /// series are named and `QuestDB` compiles, and stops it.
    fn start(&mut self, base: &Path, kind: Kind) -> anyhow::Result<Side> {
        let dir = base.join(format!("{kind:?}").replace(|c: char| !c.is_alphanumeric(), ""));
        if dir.exists() {
            std::fs::remove_dir_all(&dir).context("the folder of the process before")?;
        }
        std::fs::create_dir_all(&dir)?;
        let subject = Subject::start(kind.clone(), &dir, self.cores.map(|c| c.0))?;
        let had = vec![0; self.connections];
        let (turns, logged) = (Vec::new(), Logged::default());
        let mut side = Side { kind, subject, had, points: 0.0, turns, logged };
        side.points = self.turn(&mut side)?.points;
        side.subject.signal(Signal::STOP)?;
        Ok(side)
    }

    /// Runs one turn of a server that is stopped before and after it.
    fn serve(&mut self, side: &mut Side) -> anyhow::Result<()> {
        side.subject.signal(Signal::CONT)?;
        let run = self.turn(side)?;
        side.points += run.points;
        side.turns.push(run);
        if matches!(side.kind, Kind::Ours(_)) {
            let (stored, sent) = (side.subject.figure("samples")?, side.points);
            let case = format!("{}, wal {}", self.name(), side.wal());
            ensure!((stored - sent).abs() < 0.5, "{case}: {stored} of {sent} points");
        }
        side.subject.signal(Signal::STOP)?;
        Ok(())
    }

    /// Measures servers with each log setting in turns, in order and in reverse order, so that
    /// drift affects all of them. Each setting has several processes, one after the other, because
    /// some processes of the same program are faster than others for their whole life. Peers that
    /// speak the protocol take part in the last rounds.
    fn measure(
        &mut self,
        results: &mut Results,
        fresh: Fresh<'_>,
        wals: &[&'static str],
        peers: &[Kind],
    ) -> anyhow::Result<()> {
        let (dir, protocol) = (fresh()?, self.protocol);
        let rounds = turns(protocol);
        let bare = Bare::new(&dir)?;
        let mut left = Vec::new();
        let (mut sides, mut beside) = (Vec::new(), Vec::new());
        for wal in wals {
            sides.push(self.start(&dir, Kind::Ours(wal))?);
        }
        for peer in peers.iter().filter(|peer| accepts_protocol(peer, protocol)) {
            beside.push(self.start(&dir, peer.clone())?);
        }
        for round in 0..rounds {
            if round > 0 {
                sides.reverse();
            }
            if round > 0 && round % turns_of_a_process(protocol) == 0 {
                for mut side in std::mem::take(&mut sides) {
                    side.count_log()?;
                    let Side { kind, subject, turns, logged, .. } = side;
                    drop(subject);
                    sides.push(Side { turns, logged, ..self.start(&dir, kind)? });
                }
            }
            sides.iter_mut().try_for_each(|side| self.serve(side))?;
            let off = sides.iter().find(|side| side.wal() == "off").and_then(|s| s.turns.last());
            if let Some(off) = off.filter(|_| self.is_lone_request()) {
                left.push(self.left_by(&bare, off)?);
            }
            if round + PEER_TURNS >= rounds {
                beside.iter_mut().try_for_each(|peer| self.serve(peer))?;
            }
        }
        for side in sides.iter_mut().chain(&mut beside) {
            side.subject.signal(Signal::CONT)?;
            self.note(results, side)?;
        }
        let of = |wal: &str| sides.iter().find(|side| side.wal() == wal).map(|side| &*side.turns);
        let (Some(off), Some(always)) = (of("off"), of("always")) else { return Ok(()) };
        let suffix = self.cores.map_or("", |c| c.1);
        for (wal, shown) in [("always", "on/off"), ("interval", "interval/off")] {
            let case = format!("{}, wal {shown}{suffix}", self.name());
            for (on, off) in of(wal).unwrap_or_default().iter().zip(off) {
                on.compare(results, &case, "holdfast", off);
            }
        }
        let case = format!("{}, wal on/off{suffix}", self.name());
        for ratio in left {
            results.add(&case, "a bare program", "speed_ratio", "ratio", ratio);
        }
        let case = format!("{}, wal always beside", self.name());
        for peer in &beside {
            let behind = always.iter().skip(always.len().saturating_sub(peer.turns.len()));
            for (ours, theirs) in behind.zip(&peer.turns) {
                ours.compare(results, &case, peer.subject.name(), theirs);
            }
        }
        Ok(())
    }

    /// Returns the upper bound that the disk sets on speed: that of a program that takes as long
    /// per request as ours with the log off, and persists as many bytes as our log before it takes
    /// the next one.
    fn left_by(&self, bare: &Bare, off: &Run) -> anyhow::Result<f64> {
        let points = (self.request * COLUMNS) as f64;
        let cores = std::thread::available_parallelism()?.get().min(self.connections);
        let work = Duration::from_secs_f64(cores as f64 * points / off.speed());
        bare.speed_ratio(self.connections, work, (points * LOG_BYTES_A_POINT) as usize)
    }

    /// Returns true if each core has at most one request, so that it waits during the request's
    /// flush.
    fn is_lone_request(&self) -> bool {
        matches!(self.protocol, Protocol::Influx | Protocol::Remote) && self.connections <= 2
    }

    /// Adds the results of one side's turns.
    fn note(&self, results: &mut Results, side: &mut Side) -> anyhow::Result<()> {
        let suffix = self.cores.map_or("", |c| c.1);
        let (name, wal) = (side.subject.name(), side.wal());
        let case = format!("{}, wal {wal}{suffix}", self.name());
        for run in &side.turns {
            if wal.is_empty() || (wal == "off" && self.cores.is_none()) {
                run.note(results, &self.name(), name);
            }
            if !wal.is_empty() {
                run.note(results, &case, name);
            }
        }
        side.count_log()?;
        let Logged { payload, written, points } = side.logged;
        let logged = [("log_bytes_per_point", payload), ("log_written_per_point", written)];
        for (metric, bytes) in logged.into_iter().filter(|_| points > 0.0) {
            results.add(&case, name, metric, "B", bytes / points);
        }
        Ok(())
    }
}

/// Approximate bytes that the log takes per point.
const LOG_BYTES_A_POINT: f64 = 1.5;
/// Returns the sending time of a turn. The end of datagrams is found by polling until no more
/// arrive.
fn turn(protocol: Protocol) -> Duration {
    match (quick(), protocol) {
        (true, _) => Duration::from_millis(300),
        (_, Protocol::Udp) => Duration::from_secs(2),
        (_, Protocol::Remote) => Duration::from_millis(400),
        _ => Duration::from_millis(500),
    }
}

/// Returns the number of turns of each side.
fn turns(protocol: Protocol) -> usize {
    let wanted = if protocol == Protocol::Udp { 6 } else { 15 };
    if quick() { 2 } else { wanted }
}

/// Returns the number of counted turns of one of our processes, after which another one replaces
/// it. Requests of remote write are generated in advance, as many as one process takes.
fn turns_of_a_process(protocol: Protocol) -> usize {
    if quick() || protocol == Protocol::Udp { 2 } else { 3 }
}

/// Number of rounds at the end in which peers have turns too.
const PEER_TURNS: usize = 5;

/// Returns the points of datagrams that arrived, once no more arrive.
fn arrived(subject: &mut Subject) -> anyhow::Result<f64> {
    loop {
        let before = subject.figure("samples")?;
        std::thread::sleep(Duration::from_millis(50));
        let after = subject.figure("samples")?;
        if before == after {
            return Ok(after);
        }
    }
}

const OFF_AND_ON: [&str; 2] = ["off", "always"];
pub const WALS: [&str; 3] = ["off", "always", "interval"];

/// Returns the log settings of a case: all of them over one and two connections.
fn wals(connections: usize) -> &'static [&'static str] {
    if connections <= 2 { &WALS } else { &OFF_AND_ON }
}

/// Measures rows with a dictionary, by number of connections, kind of values and number of cores.
pub fn rows(results: &mut Results, fresh: Fresh<'_>) -> anyhow::Result<()> {
    let taskset = || Command::new("taskset").arg("--version").output().is_ok();
    for connections in [1, 2, 8] {
        let mut case = Case::new(Protocol::Rows, Data::Gauges, connections);
        case.measure(results, fresh, wals(connections), &[])?;
    }
    let mut case = Case::new(Protocol::Rows, Data::Gauges, 1);
    let cores = [("0", ", 1 core"), ("0,1", ", 2 cores")];
    for cores in cores.into_iter().filter(|_| !quick() && taskset()) {
        case.cores = Some(cores);
        case.measure(results, fresh, &OFF_AND_ON, &[])?;
    }
    for data in [Data::Counters, Data::Floats] {
        let mut case = Case::new(Protocol::Rows, data, 1);
        case.measure(results, fresh, &OFF_AND_ON, &[])?;
    }
    Ok(())
}

/// Measures protocols that name each point: `OpenTSDB`, points, datagrams. Only datagrams that
/// arrive count.
pub fn lines(results: &mut Results, fresh: Fresh<'_>) -> anyhow::Result<()> {
    let peers = peers();
    for protocol in [Protocol::OpenTsdb, Protocol::Points, Protocol::Udp] {
        for connections in [1, 2] {
            let mut case = Case::new(protocol, Data::Gauges, connections);
            case.measure(results, fresh, wals(connections), &peers)?;
        }
    }
    Ok(())
}

/// Measures a protocol over HTTP with one request in flight per connection: normal requests on one,
/// two and eight connections, large ones on one and two, and for remote write small ones on many,
/// as Prometheus sends at high rates.
pub fn requests(results: &mut Results, fresh: Fresh<'_>, protocol: Protocol) -> anyhow::Result<()> {
    let peers = peers();
    for connections in [1, 2, 8] {
        let mut case = Case::new(protocol, Data::Gauges, connections);
        case.measure(results, fresh, wals(connections), &peers)?;
    }
    // The answer waits for a flush, whatever the size of the request.
    for connections in [1, 2] {
        let mut case = Case::of_requests(protocol, Data::Gauges, connections, LARGE_REQUEST_ROWS);
        case.measure(results, fresh, &OFF_AND_ON, &[])?;
    }
    if protocol == Protocol::Remote {
        let mut case =
            Case::of_requests(protocol, Data::Gauges, PROMETHEUS_SHARDS, PROMETHEUS_ROWS);
        case.measure(results, fresh, &OFF_AND_ON, &peers)?;
    }
    Ok(())
}

/// Rows of a large request.
const LARGE_REQUEST_ROWS: usize = 10 * REQUEST_ROWS;
/// Defaults of newer Prometheus: `max_shards`, and `max_samples_per_send` in rows.
const PROMETHEUS_SHARDS: usize = 50;
const PROMETHEUS_ROWS: usize = 2000 / COLUMNS;

fn accepts_protocol(peer: &Kind, protocol: Protocol) -> bool {
    match protocol {
        Protocol::Rows | Protocol::Points | Protocol::Udp => false,
        Protocol::OpenTsdb => matches!(peer, Kind::VictoriaMetrics(_)),
        Protocol::Influx => matches!(peer, Kind::VictoriaMetrics(_) | Kind::QuestDb(_)),
        Protocol::Remote => !matches!(peer, Kind::QuestDb(_)),
    }
}
