//! Rows over sockets by each protocol: over one connection and several, the log on and off in turn,
//! beside the peers that speak the protocol. Every run sends for the same time.

use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::ensure;
use holdfast_bench::{Results, quick};

use crate::client::written_of;
use crate::generate::{COLUMNS, Kind as Data};
use crate::payload::{Feed, Protocol, dictionaries};
use crate::sockets::peers;
use crate::subject::{Kind, Subject};
use crate::{Fresh, ROWS};

/// Points of what must be made before it is sent, for each second of a run.
const POINTS_A_SECOND: f64 = 5e6;

/// What one run took, from the first byte to the last acknowledgement.
#[derive(Default)]
pub struct Run {
    pub wall: f64,
    pub cpu: f64,
    pub points: f64,
    /// Bytes that the server caused to be written to the disk.
    pub written: f64,
}

impl Run {
    /// Measure `send`, which says how many points it sent.
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

    /// Go on with another run.
    pub fn add(&mut self, more: Self) {
        self.wall += more.wall;
        self.cpu += more.cpu;
        self.points += more.points;
        self.written += more.written;
    }

    pub fn speed(&self) -> f64 {
        self.points / self.wall
    }

    /// Seconds of the server for a point.
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

    /// Speed of this one by that of one beside it, and CPU of that one by that of this one: above 1,
    /// this one is the better.
    pub fn compare(&self, results: &mut Results, case: &str, subject: &str, beside: &Self) {
        let cpu = beside.cpu_each() / self.cpu_each();
        results.add(case, subject, "speed_ratio", "ratio", self.speed() / beside.speed());
        results.add(case, subject, "cpu_ratio", "ratio", cpu);
    }
}

/// What is sent, and how.
struct Case {
    protocol: Protocol,
    data: Data,
    connections: usize,
    /// Cores that the server is held to.
    cores: Option<(&'static str, &'static str)>,
    feeds: Vec<Feed>,
}

impl Case {
    fn new(protocol: Protocol, data: Data, connections: usize) -> Self {
        let each = ROWS / connections;
        let points = (POINTS_A_SECOND * time().as_secs_f64()) as u64 / connections as u64;
        let feed = |i| Feed::new(protocol, data, i * each..(i + 1) * each, points);
        let feeds = (0..connections).map(feed).collect();
        Self { protocol, data, connections, cores: None, feeds }
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
        format!("{}{data}{connections}", self.protocol.name())
    }

    fn run(&mut self, subject: &mut Subject) -> anyhow::Result<Run> {
        self.feeds.iter_mut().for_each(Feed::restart);
        self.go_on(subject, 0.0)
    }

    /// Send on where it stopped, to a server that has so many points already.
    fn go_on(&mut self, subject: &mut Subject, before: f64) -> anyhow::Result<Run> {
        let until = Instant::now() + time();
        Run::of(subject, |subject| {
            let sent = self.send(subject, until)?;
            if self.protocol == Protocol::Udp {
                return arrived(subject);
            }
            subject.until_visible((before + sent) / COLUMNS as f64)?;
            Ok(sent)
        })
    }

    /// Send over all connections until then; the points.
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

    /// Each setting of the log once, in turn from the front and from the back; then the peers once.
    fn round(
        &mut self,
        results: &mut Results,
        fresh: Fresh<'_>,
        wals: &[&'static str],
        (round, peers): (usize, &[Kind]),
    ) -> anyhow::Result<()> {
        let suffix = self.cores.map_or("", |c| c.1);
        let mut runs: Vec<(&str, Run)> = Vec::new();
        let mut order = wals.to_vec();
        if round % 2 == 1 {
            order.reverse();
        }
        for wal in order {
            let mut subject = Subject::start(Kind::Ours(wal), &fresh()?, self.cores.map(|c| c.0))?;
            let run = self.run(&mut subject)?;
            let case = format!("{}, wal {wal}{suffix}", self.name());
            run.note(results, &case, "holdfast");
            if wal == "off" && self.cores.is_none() {
                run.note(results, &self.name(), "holdfast");
            }
            let stored = subject.figure("samples")?;
            ensure!((stored - run.points).abs() < 0.5, "{case}: {stored} of {} points", run.points);
            let logged =
                [("log_bytes_per_point", "log_payload"), ("log_written_per_point", "log_written")];
            for (metric, name) in logged.into_iter().filter(|_| wal != "off") {
                let bytes = subject.figure(name)? / run.points;
                results.add(&case, "holdfast", metric, "B", bytes);
            }
            runs.push((wal, run));
        }
        let of = |wal: &str| runs.iter().find(|(w, _)| *w == wal).map(|(_, run)| run);
        let (Some(off), Some(always)) = (of("off"), of("always")) else { return Ok(()) };
        for (wal, shown) in [("always", "on/off"), ("interval", "interval/off")] {
            let Some(on) = of(wal) else { continue };
            let case = format!("{}, wal {shown}{suffix}", self.name());
            on.compare(results, &case, "holdfast", off);
        }
        let protocol = self.protocol;
        for peer in peers.iter().filter(|peer| takes(peer, protocol)) {
            let mut subject = Subject::start(peer.clone(), &fresh()?, None)?;
            let mut run = self.run(&mut subject)?;
            if matches!(peer, Kind::QuestDb(_)) {
                // What is compiled while it runs is compiled by then.
                run = self.go_on(&mut subject, run.points)?;
            }
            let case = self.name();
            run.note(results, &case, subject.name());
            let case = format!("{case}, wal always beside");
            always.compare(results, &case, subject.name(), &run);
        }
        Ok(())
    }
}

/// How long a run sends.
fn time() -> Duration {
    Duration::from_millis(if quick() { 600 } else { 2000 })
}

/// Points of datagrams that arrived, once no more come.
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

/// The settings of the log that a case runs with: all of them over one connection and two.
fn wals(connections: usize) -> &'static [&'static str] {
    if connections <= 2 { &WALS } else { &OFF_AND_ON }
}

/// Rounds of a case of which the median is told.
fn rounds(wanted: usize) -> usize {
    if quick() { 1 } else { wanted }
}

/// Rows of a dictionary: connections, kinds of values, cores.
pub fn rows(results: &mut Results, fresh: Fresh<'_>) -> anyhow::Result<()> {
    let taskset = || Command::new("taskset").arg("--version").output().is_ok();
    for connections in [1, 2, 8] {
        let mut case = Case::new(Protocol::Rows, Data::Gauges, connections);
        for round in 0..rounds(5) {
            case.round(results, fresh, wals(connections), (round, &[]))?;
        }
    }
    let mut case = Case::new(Protocol::Rows, Data::Gauges, 1);
    let cores = [("0", ", 1 core"), ("0,1", ", 2 cores")];
    for cores in cores.into_iter().filter(|_| !quick() && taskset()) {
        case.cores = Some(cores);
        for round in 0..rounds(4) {
            case.round(results, fresh, &OFF_AND_ON, (round, &[]))?;
        }
    }
    for data in [Data::Counters, Data::Floats] {
        let mut case = Case::new(Protocol::Rows, data, 1);
        for round in 0..rounds(3) {
            case.round(results, fresh, &OFF_AND_ON, (round, &[]))?;
        }
    }
    Ok(())
}

/// What carries each point's name: `OpenTSDB`'s lines, single points; and datagrams. Datagrams that the server has no room for are lost: what counts is what arrived.
pub fn lines(results: &mut Results, fresh: Fresh<'_>) -> anyhow::Result<()> {
    let peers = peers();
    for protocol in [Protocol::OpenTsdb, Protocol::Points, Protocol::Udp] {
        for connections in [1, 2] {
            let mut case = Case::new(protocol, Data::Gauges, connections);
            for round in 0..rounds(3) {
                case.round(results, fresh, wals(connections), (round, &peers))?;
            }
        }
    }
    Ok(())
}

/// A protocol over HTTP: one request in flight on each of one, two and eight connections.
pub fn requests(results: &mut Results, fresh: Fresh<'_>, protocol: Protocol) -> anyhow::Result<()> {
    let peers = peers();
    for connections in [1, 2, 8] {
        let mut case = Case::new(protocol, Data::Gauges, connections);
        for round in 0..rounds(3) {
            let peers = if connections <= 2 || round == 0 { &*peers } else { &[] };
            case.round(results, fresh, wals(connections), (round, peers))?;
        }
    }
    Ok(())
}

fn takes(peer: &Kind, protocol: Protocol) -> bool {
    match protocol {
        Protocol::Rows | Protocol::Points | Protocol::Udp => false,
        Protocol::OpenTsdb => matches!(peer, Kind::VictoriaMetrics(_)),
        Protocol::Influx => matches!(peer, Kind::VictoriaMetrics(_) | Kind::QuestDb(_)),
        Protocol::Remote => !matches!(peer, Kind::QuestDb(_)),
    }
}
