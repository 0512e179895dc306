//! Minutes of rows with the log off and on, on one core and on two: through many seals, merges and
//! trims of the log, sampled once a second, then killed and reopened. Both servers run during the
//! whole case and are loaded in turns (off, on, on, off), so that drift affects both. The server
//! that is not in its turn is stopped (`SIGSTOP`) once it has acknowledged everything sent, so that
//! its seals and merges take CPU and disk in its own turns alone. The head is small (32 MiB instead
//! of 256) and is sealed about once a second.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::ensure;
use holdfast_bench::{Results, median, quick, wanted};
use rustix::process::Signal;
use rustix::thread::{CpuSet, sched_setaffinity};

use crate::client::{disk_of, written_of};
use crate::generate::Kind as Data;
use crate::payload::{Loop, Protocol, REQUEST_ROWS, dictionaries};
use crate::plot;
use crate::speeds::Run;
use crate::subject::{Kind, Subject};
use crate::{Fresh, ROWS};

/// Minimum number of seals, merges and trims of each side.
const EVENTS: u64 = 10;
/// Polls per second, so that no seal is missed. One poll per second is recorded.
const LOOKS: u32 = 5;

/// Measures the log off and on in turns: 65 s each, with `FULL=1` ten minutes each, with `QUICK=1`
/// a few seconds.
pub fn long(
    results: &mut Results,
    fresh: Fresh<'_>,
    folder: &Path,
    cores: &'static str,
    shown: &str,
) -> anyhow::Result<()> {
    let (seconds, pairs) = match (quick(), wanted("FULL")) {
        (true, _) => (1, 4),
        (_, true) => (25, 24),
        _ => (5, 13),
    };
    let turn = Duration::from_secs(seconds);
    let mut plots = Plots::default();
    let dir = fresh()?;
    let mut sides = [Side::start(&dir, "off", cores)?, Side::start(&dir, "always", cores)?];
    let mut ratios = [Vec::new(), Vec::new()];
    for pair in 0..pairs {
        let order = if pair % 2 == 0 { [0, 1] } else { [1, 0] };
        let mut runs = [Run::default(), Run::default()];
        for at in order {
            runs[at] = sides[at].turn(turn)?;
        }
        let [off, on] = &runs;
        ratios[0].push(on.speed() / off.speed());
        ratios[1].push(off.cpu_each() / on.cpu_each());
        for (side, run) in sides.iter_mut().zip(runs) {
            side.all.add(run);
        }
    }
    for side in &sides {
        report(results, shown, pairs, side)?;
        plots.take(shown, side);
    }
    let case = format!("rows for long, wal on/off, {shown}");
    let [speed, cpu] = &ratios;
    spread(results, &case, QUARTILES_OF_SPEED, speed);
    spread(results, &case, QUARTILES_OF_CPU, cpu);
    // Both are killed before one of them is reopened.
    let dead = sides.map(Side::kill);
    for side in dead {
        let case = format!("rows for long, wal {}, {shown}", side.wal);
        reopen(results, &case, &side, cores)?;
    }
    plots.save(folder, shown)
}

const QUARTILES_OF_SPEED: [&str; 3] =
    ["speed_ratio", "speed_ratio_lower_quartile", "speed_ratio_upper_quartile"];
const QUARTILES_OF_CPU: [&str; 3] =
    ["cpu_ratio", "cpu_ratio_lower_quartile", "cpu_ratio_upper_quartile"];

/// Adds each pair's ratio, whose median is the figure, and the medians of the lower and the upper
/// half.
fn spread(results: &mut Results, case: &str, metrics: [&'static str; 3], ratios: &[f64]) {
    let [middle, lower, upper] = metrics;
    for ratio in ratios {
        results.add(case, "holdfast", middle, "ratio", *ratio);
    }
    let mut sorted = ratios.to_vec();
    sorted.sort_by(f64::total_cmp);
    let half = sorted.len().div_ceil(2);
    let (low, high) = (&sorted[..half], &sorted[sorted.len() - half..]);
    results.add(case, "holdfast", lower, "ratio", median(low.to_vec()));
    results.add(case, "holdfast", upper, "ratio", median(high.to_vec()));
}

/// Measures the time to open a killed store and a closed one.
fn reopen(results: &mut Results, case: &str, side: &Killed, cores: &str) -> anyhow::Result<()> {
    let Killed { kind, dir, .. } = side;
    let began = Instant::now();
    let again = Subject::start(kind.clone(), dir, Some(cores))?;
    results.add(case, "holdfast", "open_after_kill_s", "s", began.elapsed().as_secs_f64());
    again.close()?;
    let began = Instant::now();
    drop(Subject::start(kind.clone(), dir, Some(cores))?);
    results.add(case, "holdfast", "open_clean_s", "s", began.elapsed().as_secs_f64());
    Ok(())
}

/// The samples, second by second.
#[derive(Default)]
struct Course {
    /// Seconds served, CPU seconds of the server, bytes written, bytes of parts, and bytes of log.
    samples: Vec<[f64; 5]>,
    seals: u64,
    merges: u64,
    trims: u64,
    /// The statistics of the last poll.
    before: Vec<(String, f64)>,
}

impl Course {
    fn of(&self, name: &str) -> f64 {
        self.before.iter().find(|(n, _)| n == name).map_or(0.0, |s| s.1)
    }

    /// Counts the seals, merges and trims since the last poll.
    fn poll_statistics(&mut self, subject: &mut Subject) -> anyhow::Result<()> {
        let before = std::mem::replace(&mut self.before, subject.send_command("stats")?);
        if before.is_empty() {
            return Ok(());
        }
        let then = |name: &str| before.iter().find(|(n, _)| n == name).map_or(0.0, |s| s.1);
        let fell = |name: &str| self.of(name) < then(name);
        // Retention removes parts too, but together with their partitions.
        let merged = fell("part_count") && !fell("partitions");
        let sealed = self.of("sealed") > then("sealed");
        let trimmed = self.of("log_first") > then("log_first");
        self.seals += u64::from(sealed);
        self.merges += u64::from(merged);
        self.trims += u64::from(trimmed);
        Ok(())
    }

    /// Records the figures after N seconds.
    fn sample(&mut self, subject: &Subject, at: f64) -> anyhow::Result<()> {
        let [parts, log] = ["parts", "log"].map(|folder| disk_of(&subject.dir.join(folder)));
        let written = written_of(subject.pid())?;
        self.samples.push([at, subject.cpu()?, written, parts, log]);
        Ok(())
    }
}

/// One side: a server that is stopped except during its turns, and its source of rows.
struct Side {
    wal: &'static str,
    /// Cores that it is pinned to.
    cores: &'static str,
    subject: Subject,
    stream: TcpStream,
    rows: Loop,
    course: Course,
    /// Sum of its turns.
    all: Run,
}

impl Side {
    /// Starts a server in a folder of its own below `base`, sends the names, and stops it.
    fn start(base: &Path, wal: &'static str, cores: &'static str) -> anyhow::Result<Self> {
        let dir = base.join(wal);
        fs::create_dir_all(&dir)?;
        let kind = Kind::Ours(if wal == "off" { "off small" } else { "always small" });
        let subject = Subject::start(kind, &dir, Some(cores))?;
        let mut stream = TcpStream::connect(("127.0.0.1", subject.resp))?;
        stream.set_nodelay(true)?;
        dictionaries(0..ROWS).try_for_each(|piece| stream.write_all(&piece))?;
        acknowledged(&mut stream)?;
        let rows = Loop::new(Protocol::Rows, Data::Gauges, 0..ROWS, 100, REQUEST_ROWS);
        let (course, all) = (Course::default(), Run::default());
        let mut it = Self { wal, cores, subject, stream, rows, course, all };
        it.course.poll_statistics(&mut it.subject)?;
        it.subject.signal(Signal::STOP)?;
        Ok(it)
    }

    /// Sends for some time, and until everything is acknowledged, which includes persisted if the
    /// log is on.
    fn turn(&mut self, time: Duration) -> anyhow::Result<Run> {
        // Data that the other server left in the page cache must not be written during this turn.
        rustix::fs::sync();
        let Self { cores, subject, stream, rows, course, all, .. } = self;
        subject.signal(Signal::CONT)?;
        let turn = Turn { served: all.wall, began: Instant::now(), time };
        let served = turn.served;
        let over = AtomicBool::new(false);
        let feed = || {
            let fed = feed(stream, rows, cores, &over);
            over.store(true, Ordering::Release);
            fed
        };
        let run = Run::of(subject, |subject| {
            std::thread::scope(|scope| {
                let feeding = scope.spawn(feed);
                let watched = watch(subject, course, &turn, &over);
                over.store(true, Ordering::Release);
                let fed = feeding.join().map_err(|_| anyhow::anyhow!("the feeding thread died"))?;
                watched.and(fed)
            })
        })?;
        course.poll_statistics(subject)?;
        course.sample(subject, served + run.wall)?;
        let taken = course.of("samples");
        let sent = all.points + run.points;
        ensure!((taken - sent).abs() < 0.5, "wal {}: {taken} of {sent} points", self.wal);
        subject.signal(Signal::STOP)?;
        Ok(run)
    }

    /// Kills the server.
    fn kill(self) -> Killed {
        let Subject { kind, dir, .. } = &self.subject;
        Killed { wal: self.wal, kind: kind.clone(), dir: dir.clone() }
    }
}

/// A side that was killed, and the folder of its data.
struct Killed {
    wal: &'static str,
    kind: Kind,
    dir: PathBuf,
}

/// Sends generated rows with new times until `time` is over. Returns the number of points once the
/// server has acknowledged them.
fn feed(
    stream: &mut TcpStream,
    rows: &mut Loop,
    cores: &str,
    over: &AtomicBool,
) -> anyhow::Result<f64> {
    if cores == "0" {
        let mut others = CpuSet::new();
        (1..CpuSet::MAX_CPU).for_each(|cpu| others.set(cpu));
        // On a machine with one core they share it.
        let _ = sched_setaffinity(None, &others);
    }
    let mut points = 0;
    while !over.load(Ordering::Acquire) {
        let piece = rows.next();
        stream.write_all(piece.bytes)?;
        points += piece.points;
    }
    acknowledged(stream)?;
    Ok(points as f64)
}

/// Waits until everything sent so far is acknowledged.
fn acknowledged(stream: &mut TcpStream) -> anyhow::Result<()> {
    stream.write_all(b"+sync\r\n")?;
    let mut answer = [0; 5];
    stream.read_exact(&mut answer)?;
    if answer != *b"+OK\r\n" {
        let (mut more, begin) = ([0; 300], String::from_utf8_lossy(&answer));
        let read = stream.read(&mut more)?;
        anyhow::bail!("refused: {begin}{}", String::from_utf8_lossy(&more[..read]));
    }
    Ok(())
}

/// One turn of a side.
struct Turn {
    /// Seconds that the side was served before this turn.
    served: f64,
    began: Instant,
    time: Duration,
}

/// Polls the statistics until the turn is over.
fn watch(
    subject: &mut Subject,
    course: &mut Course,
    turn: &Turn,
    over: &AtomicBool,
) -> anyhow::Result<()> {
    let Turn { served, began, time } = *turn;
    let pause = Duration::from_secs(1) / LOOKS;
    for look in 1.. {
        let left = time.saturating_sub(began.elapsed());
        std::thread::sleep(left.min(pause));
        if left <= pause || over.load(Ordering::Acquire) {
            break;
        }
        course.poll_statistics(subject)?;
        if look % LOOKS == 0 {
            course.sample(subject, served + began.elapsed().as_secs_f64())?;
        }
    }
    Ok(())
}

fn report(results: &mut Results, shown: &str, turns: usize, side: &Side) -> anyhow::Result<()> {
    let case = format!("rows for long, wal {}, {shown}", side.wal);
    let (course, all) = (&side.course, &side.all);
    all.note(results, &case, "holdfast");
    let mut add = |metric, unit, value| results.add(&case, "holdfast", metric, unit, value);
    let cores = side.cores.split(',').count() as f64;
    add("points_per_second_and_core", "1/s", all.speed() / cores);
    add("cpu_cores", "1", all.cpu / all.wall);
    add("log_bytes_per_point", "B", course.of("log_payload") / all.points);
    if course.of("part_samples") > 0.0 {
        add("disk_bytes_per_point", "B", course.of("parts") / course.of("part_samples"));
    }
    add("turns", "1", turns as f64);
    let events = [("seals", course.seals), ("merges", course.merges), ("trims", course.trims)];
    for (what, count) in events {
        add(what, "1", count as f64);
        if !quick() && count < EVENTS && (what != "trims" || side.wal != "off") {
            eprintln!("{case}: only {count} {what}; {EVENTS} are wanted");
        }
    }
    Ok(())
}

/// A line of a plot: its name and its points.
type Drawn = Vec<(String, Vec<(f64, f64)>)>;

#[derive(Default)]
struct Plots {
    cpu: Drawn,
    disk: Drawn,
}

impl Plots {
    fn take(&mut self, shown: &str, side: &Side) {
        let (wal, samples) = (side.wal, &side.course.samples);
        self.cpu.push((format!("wal {wal}, {shown}"), rate(samples, 1)));
        for (what, at) in [("written", 2), ("parts", 3), ("log", 4)] {
            if wal != "off" || what != "log" {
                let line = samples.iter().map(|s| (s[0], s[at] / 1e9)).collect();
                self.disk.push((format!("{what}, wal {wal}"), line));
            }
        }
    }

    /// Draws the CPU of each side, and the bytes of the run on two cores, which has more of them.
    fn save(&self, folder: &Path, shown: &str) -> anyhow::Result<()> {
        fs::create_dir_all(folder)?;
        let time = "s of its own turns";
        let title = format!("CPU of the server over time, {shown}");
        let cpu = plot::linear(&title, time, "cores in use", &self.cpu);
        if shown == "1 core" {
            return Ok(fs::write(folder.join("series-cpu-1-core.svg"), cpu)?);
        }
        fs::write(folder.join("series-cpu.svg"), cpu)?;
        let title = format!("Bytes over time, {shown}");
        let disk = plot::linear(&title, time, "GB", &self.disk);
        Ok(fs::write(folder.join("series-disk.svg"), disk)?)
    }
}

/// Returns the differences per second, over windows of about a fiftieth of the run.
fn rate(samples: &[[f64; 5]], at: usize) -> Vec<(f64, f64)> {
    let width = (samples.len() / 50).max(1);
    let pairs = samples.iter().zip(samples.iter().skip(width)).step_by(width);
    pairs.map(|(a, b)| (b[0], (b[at] - a[at]) / (b[0] - a[0]))).collect()
}
