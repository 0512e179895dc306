//! Minutes of rows with the log off and on, the server held to one core and to two: through many
//! seals, merges and trims of the log, sampled once a second, then killed and opened again.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use holdfast_bench::{Results, quick, wanted};

use crate::{Fresh, ROWS};
use crate::client::disk_of;
use crate::generate::{COLUMNS, Kind as Data, Walks};
use crate::payload::{Loop, dictionary};
use crate::plot;
use crate::subject::{Kind, Subject};

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
}

/// Two and a half minutes each; `FULL=1` ten, `QUICK=1` a few seconds.
pub fn long(results: &mut Results, fresh: Fresh<'_>, folder: &Path) -> anyhow::Result<()> {
    let seconds = match (quick(), wanted("FULL")) {
        (true, _) => 8,
        (_, true) => 600,
        _ => 150,
    };
    let (mut cpu_lines, mut disk_lines) = (Vec::new(), Vec::new());
    for (cores, shown) in [("0", "1 core"), ("0,1", "2 cores")] {
        let mut speeds = Vec::new();
        for wal in ["off", "always"] {
            let case = format!("rows for long, wal {wal}, {shown}");
            let dir = fresh()?;
            let course = run(&dir, wal, cores, Duration::from_secs(seconds))?;
            report(results, &case, &course)?;
            if !quick() {
                let turns = format!(
                    "{case}: {} seals, {} merges, {} trims",
                    course.seals, course.merges, course.trims
                );
                ensure!(course.seals >= TURNS && course.merges >= TURNS, "{turns}");
                ensure!(wal == "off" || course.trims >= TURNS, "{turns}");
            }
            let began = Instant::now();
            let again = Subject::start(Kind::Ours(wal), &dir, Some(cores))?;
            results.add(&case, "holdfast", "open_after_kill_s", "s", began.elapsed().as_secs_f64());
            again.close()?;
            let began = Instant::now();
            drop(Subject::start(Kind::Ours(wal), &dir, Some(cores))?);
            results.add(&case, "holdfast", "open_clean_s", "s", began.elapsed().as_secs_f64());
            let last = course.samples.last().context("too short")?;
            speeds.push(course.points / last[0]);
            cpu_lines.push((format!("wal {wal}, {shown}"), rate(&course.samples, 1)));
            let gb = |at: usize| move |s: &[f64; 5]| (s[0], s[at] / 1e9);
            let lines = [("written", 2), ("parts", 3), ("log", 4)];
            disk_lines.extend(
                lines
                    .iter()
                    .filter(|(name, _)| shown == "2 cores" && (wal != "off" || *name != "log"))
                    .map(|(name, at)| {
                        (format!("{name}, wal {wal}"), course.samples.iter().map(gb(*at)).collect())
                    }),
            );
        }
        let case = format!("rows for long, wal on/off, {shown}");
        results.add(&case, "holdfast", "speed_ratio", "ratio", speeds[1] / speeds[0]);
    }
    fs::create_dir_all(folder)?;
    let cpu = plot::linear("CPU of the server over time", "s", "cores in use", &cpu_lines);
    fs::write(folder.join("series-cpu.svg"), cpu)?;
    let disk = plot::linear("Bytes over time, two cores", "s", "GB", &disk_lines);
    Ok(fs::write(folder.join("series-disk.svg"), disk)?)
}

/// Differences a second, over windows of about a fiftieth of the run.
fn rate(samples: &[[f64; 5]], at: usize) -> Vec<(f64, f64)> {
    let width = (samples.len() / 50).max(1);
    let pairs = samples.iter().zip(samples.iter().skip(width)).step_by(width);
    pairs.map(|(a, b)| (b[0], (b[at] - a[at]) / (b[0] - a[0]))).collect()
}

/// Feed one server until the time is over, then kill it where it stands.
fn run(dir: &Path, wal: &'static str, cores: &str, time: Duration) -> anyhow::Result<Course> {
    let mut subject = Subject::start(Kind::Ours(wal), dir, Some(cores))?;
    let mut stream = std::net::TcpStream::connect(("127.0.0.1", subject.resp))?;
    let (over, sent) = (AtomicBool::new(false), AtomicU64::new(0));
    let began = Instant::now();
    std::thread::scope(|scope| {
        let feed = scope.spawn(|| -> anyhow::Result<()> {
            let fed = feed(&mut stream, &over, &sent);
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
fn feed(
    stream: &mut std::net::TcpStream,
    over: &AtomicBool,
    sent: &AtomicU64,
) -> anyhow::Result<()> {
    let mut rows = Loop::new(&mut Walks::new(Data::Gauges, ROWS), ROWS, 100);
    stream.write_all(&dictionary(0, ROWS))?;
    while !over.load(Ordering::Acquire) {
        let piece = rows.next();
        stream.write_all(piece)?;
        sent.fetch_add((ROWS * COLUMNS) as u64, Ordering::Relaxed);
    }
    Ok(())
}

/// Look once a second.
fn watch(
    subject: &mut Subject,
    began: Instant,
    time: Duration,
    over: &AtomicBool,
) -> anyhow::Result<Course> {
    let (parts, log) = (subject.dir.join("parts"), subject.dir.join("log"));
    let (mut course, mut before): (Course, Vec<(String, f64)>) = Default::default();
    while began.elapsed() < time && !over.load(Ordering::Acquire) {
        std::thread::sleep(Duration::from_secs(1));
        let stats = subject.ask("stats")?;
        let of = |from: &[(String, f64)], name: &str| {
            from.iter().find(|(n, _)| n == name).map_or(0.0, |s| s.1)
        };
        let moved = |name: &str| !before.is_empty() && of(&stats, name) > of(&before, name);
        course.seals += u64::from(moved("sealed"));
        course.trims += u64::from(moved("log_first"));
        course.merges += u64::from(of(&stats, "part_count") < of(&before, "part_count"));
        course.points = of(&stats, "samples");
        let written = written_by(subject.pid())?;
        let at = began.elapsed().as_secs_f64();
        course.samples.push([at, subject.cpu()?, written, disk_of(&parts), disk_of(&log)]);
        before = stats;
    }
    Ok(course)
}

/// Bytes that a process caused to be written to the disk.
fn written_by(pid: u32) -> anyhow::Result<f64> {
    let text = fs::read_to_string(PathBuf::from(format!("/proc/{pid}/io")))?;
    let line = text.lines().find_map(|l| l.strip_prefix("write_bytes: "));
    Ok(line.context("no count of bytes written")?.parse()?)
}

fn report(results: &mut Results, case: &str, course: &Course) -> anyhow::Result<()> {
    let [seconds, cpu, written, parts, _] = *course.samples.last().context("too short")?;
    let mut add = |metric, unit, value| results.add(case, "holdfast", metric, unit, value);
    add("seconds", "s", seconds);
    add("points_per_second", "1/s", course.points / seconds);
    add("cpu_us_per_point", "us", cpu * 1e6 / course.points);
    add("cpu_cores", "1", cpu / seconds);
    add("written_bytes_per_point", "B", written / course.points);
    add("disk_bytes_per_point", "B", parts / course.points);
    add("seals", "1", course.seals as f64);
    add("merges", "1", course.merges as f64);
    add("trims", "1", course.trims as f64);
    Ok(())
}
