//! Minutes of rows with the log off and on, the server held to one core and to two: through many
//! seals, merges and trims of the log, sampled once a second, then killed and opened again. The head
//! is a small one (32 MiB, of the default's 256), off and on: it is sealed every few seconds.

use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use holdfast_bench::{Results, quick, wanted};

use crate::client::{disk_of, written_of};
use crate::generate::Kind as Data;
use crate::payload::{Loop, Protocol, dictionaries};
use crate::plot;
use crate::subject::{Kind, Subject};
use crate::{Fresh, ROWS};

/// Seals, merges and trims that a run is to go through.
const TURNS: u64 = 10;

/// What was seen, second by second.
#[derive(Default)]
struct Course {
    /// Seconds since the start; CPU seconds of the server, bytes it wrote, bytes of parts and of log.
    samples: Vec<[f64; 5]>,
    seals: u64,
    merges: u64,
    trims: u64,
    points: f64,
    /// Bytes of the log's records.
    logged: f64,
}

/// The log off and on, then on and off, so that what drifts shows: a minute each, `QUICK=1` a few
/// seconds. `FULL=1`: off and on once, ten minutes each.
pub fn long(results: &mut Results, fresh: Fresh<'_>, folder: &Path) -> anyhow::Result<()> {
    const PAIRS: [[&str; 2]; 2] = [["off", "always"], ["always", "off"]];
    let (seconds, pairs) = match (quick(), wanted("FULL")) {
        (true, _) => (3, &PAIRS[..]),
        (_, true) => (600, &PAIRS[..1]),
        _ => (65, &PAIRS[..]),
    };
    let mut plots = Plots::default();
    for (cores, shown) in [("0", "1 core"), ("0,1", "2 cores")] {
        for pair in pairs {
            let mut speeds = Vec::new();
            for wal in *pair {
                let case = format!("rows for long, wal {wal}, {shown}");
                let dir = fresh()?;
                let kind = Kind::Ours(if wal == "off" { "off small" } else { "always small" });
                let course = run(&dir, &kind, cores, Duration::from_secs(seconds))?;
                report(results, &case, &course)?;
                reopen(results, &case, (&kind, &dir, cores))?;
                speeds.push((wal, course.speed()?, course.cpu()?));
                plots.take(wal, shown, &course);
                results.save("series")?;
            }
            let of =
                |wal: &str| speeds.iter().find(|s| s.0 == wal).map_or((0.0, 0.0), |s| (s.1, s.2));
            let (off, on) = (of("off"), of("always"));
            let case = format!("rows for long, wal on/off, {shown}");
            results.add(&case, "holdfast", "speed_ratio", "ratio", on.0 / off.0);
            results.add(&case, "holdfast", "cpu_ratio", "ratio", off.1 / on.1);
        }
    }
    plots.save(folder)
}

/// Time to open what was killed, and what was closed.
fn reopen(
    results: &mut Results,
    case: &str,
    (kind, dir, cores): (&Kind, &Path, &str),
) -> anyhow::Result<()> {
    let began = Instant::now();
    let again = Subject::start(kind.clone(), dir, Some(cores))?;
    results.add(case, "holdfast", "open_after_kill_s", "s", began.elapsed().as_secs_f64());
    again.close()?;
    let began = Instant::now();
    drop(Subject::start(kind.clone(), dir, Some(cores))?);
    results.add(case, "holdfast", "open_clean_s", "s", began.elapsed().as_secs_f64());
    Ok(())
}

/// A line of a drawing: its name and its points.
type Drawn = Vec<(String, Vec<(f64, f64)>)>;

#[derive(Default)]
struct Plots {
    cpu: Drawn,
    disk: Drawn,
}

impl Plots {
    /// Draw the first run of each case.
    fn take(&mut self, wal: &str, shown: &str, course: &Course) {
        let name = format!("wal {wal}, {shown}");
        if self.cpu.iter().any(|line| line.0 == name) {
            return;
        }
        self.cpu.push((name, rate(&course.samples, 1)));
        for (what, at) in [("written", 2), ("parts", 3), ("log", 4)] {
            if shown == "2 cores" && (wal != "off" || what != "log") {
                let line = course.samples.iter().map(|s| (s[0], s[at] / 1e9)).collect();
                self.disk.push((format!("{what}, wal {wal}"), line));
            }
        }
    }

    fn save(&self, folder: &Path) -> anyhow::Result<()> {
        fs::create_dir_all(folder)?;
        let cpu = plot::linear("CPU of the server over time", "s", "cores in use", &self.cpu);
        fs::write(folder.join("series-cpu.svg"), cpu)?;
        let disk = plot::linear("Bytes over time, two cores", "s", "GB", &self.disk);
        Ok(fs::write(folder.join("series-disk.svg"), disk)?)
    }
}

impl Course {
    fn last(&self) -> anyhow::Result<&[f64; 5]> {
        self.samples.last().context("too short")
    }

    fn speed(&self) -> anyhow::Result<f64> {
        Ok(self.points / self.last()?[0])
    }

    /// Seconds of the server for a point.
    fn cpu(&self) -> anyhow::Result<f64> {
        Ok(self.last()?[1] / self.points)
    }
}

/// Differences a second, over windows of about a fiftieth of the run.
fn rate(samples: &[[f64; 5]], at: usize) -> Vec<(f64, f64)> {
    let width = (samples.len() / 50).max(1);
    let pairs = samples.iter().zip(samples.iter().skip(width)).step_by(width);
    pairs.map(|(a, b)| (b[0], (b[at] - a[at]) / (b[0] - a[0]))).collect()
}

/// Feed one server until the time is over, then kill it where it stands.
fn run(dir: &Path, kind: &Kind, cores: &str, time: Duration) -> anyhow::Result<Course> {
    let mut subject = Subject::start(kind.clone(), dir, Some(cores))?;
    let mut stream = std::net::TcpStream::connect(("127.0.0.1", subject.resp))?;
    let over = AtomicBool::new(false);
    let began = Instant::now();
    std::thread::scope(|scope| {
        let feed = scope.spawn(|| -> anyhow::Result<()> {
            let fed = feed(&mut stream, &over);
            over.store(true, Ordering::Release);
            fed
        });
        let watched = watch(&mut subject, began, time, &over);
        over.store(true, Ordering::Release);
        feed.join().map_err(|_| anyhow::anyhow!("the feeding thread died"))??;
        watched
    })
}

/// Rows without end: what was made once, with new times.
fn feed(stream: &mut std::net::TcpStream, over: &AtomicBool) -> anyhow::Result<()> {
    let mut rows = Loop::new(Protocol::Rows, Data::Gauges, 0..ROWS, 100);
    dictionaries(0..ROWS).try_for_each(|piece| stream.write_all(&piece))?;
    while !over.load(Ordering::Acquire) {
        stream.write_all(rows.next().0)?;
    }
    Ok(())
}

/// Looks in a second: no seal is to be missed. Each second is kept.
const LOOKS: usize = 5;

/// Look how it goes.
fn watch(
    subject: &mut Subject,
    began: Instant,
    time: Duration,
    over: &AtomicBool,
) -> anyhow::Result<Course> {
    let (parts, log) = (subject.dir.join("parts"), subject.dir.join("log"));
    let (mut course, mut before): (Course, Vec<(String, f64)>) = Default::default();
    for look in 1.. {
        if began.elapsed() >= time || over.load(Ordering::Acquire) {
            break;
        }
        std::thread::sleep(Duration::from_secs(1) / LOOKS as u32);
        let stats = subject.ask("stats")?;
        let of = |from: &[(String, f64)], name: &str| {
            from.iter().find(|(n, _)| n == name).map_or(0.0, |s| s.1)
        };
        let moved = |name: &str| !before.is_empty() && of(&stats, name) > of(&before, name);
        course.seals += u64::from(moved("sealed"));
        course.trims += u64::from(moved("log_first"));
        course.merges += u64::from(of(&stats, "part_count") < of(&before, "part_count"));
        course.points = of(&stats, "samples");
        course.logged = of(&stats, "log_payload");
        before = stats;
        if look % LOOKS != 0 {
            continue;
        }
        let written = written_of(subject.pid())?;
        let at = began.elapsed().as_secs_f64();
        course.samples.push([at, subject.cpu()?, written, disk_of(&parts), disk_of(&log)]);
    }
    Ok(course)
}

fn report(results: &mut Results, case: &str, course: &Course) -> anyhow::Result<()> {
    let [seconds, cpu, written, parts, _] = *course.last()?;
    let mut add = |metric, unit, value| results.add(case, "holdfast", metric, unit, value);
    add("seconds", "s", seconds);
    add("points_per_second", "1/s", course.points / seconds);
    add("cpu_us_per_point", "us", cpu * 1e6 / course.points);
    add("cpu_cores", "1", cpu / seconds);
    add("written_bytes_per_point", "B", written / course.points);
    add("log_bytes_per_point", "B", course.logged / course.points);
    add("disk_bytes_per_point", "B", parts / course.points);
    add("seals", "1", course.seals as f64);
    add("merges", "1", course.merges as f64);
    add("trims", "1", course.trims as f64);
    let turns = [("seals", course.seals), ("merges", course.merges), ("trims", course.trims)];
    for (what, count) in turns {
        if !quick() && count < TURNS && (what != "trims" || !case.contains("wal off")) {
            eprintln!("{case}: only {count} {what}; {TURNS} are wanted");
        }
    }
    Ok(())
}
