//! The store and its peers over real sockets: the same rows, each server in a process of its own.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use holdfast_bench::{Results, median, quick};

use crate::{Fresh, ROWS};
use crate::client::{Http, disk_of, rss_of};
use crate::generate::{BEGIN_NS, COLUMNS, Kind as Data, STEP_S, Walks};
use crate::payload::{Protocol, Stream, dictionary, payload, resp};
use crate::questions::{Question, escaped, questions};
use crate::subject::{Kind, Subject};

const WALS: [&str; 3] = ["off", "always", "interval"];

/// Where peers are, as `run.sh` built or installed them; who is missing is said.
fn peers() -> Vec<Kind> {
    let found = |path: &str| std::path::absolute(path).ok().filter(|p| p.exists());
    let victoria = found("target/peers/victoriametrics/victoria-metrics");
    let prometheus = Command::new("prometheus").arg("--version").output().is_ok();
    let questdb = found("target/peers/questdb/questdb.jar");
    let all = [
        ("victoriametrics", victoria.map(Kind::VictoriaMetrics)),
        ("prometheus", prometheus.then_some(Kind::Prometheus)),
        ("questdb", questdb.map(Kind::QuestDb)),
    ];
    let here = all.into_iter().filter_map(|(name, kind)| {
        if kind.is_none() {
            eprintln!("{name}: not here; compared without it");
        }
        kind
    });
    here.collect()
}

/// One run: what it took from the first byte to the last acknowledgement.
struct Run {
    wall: f64,
    cpu: f64,
    points: f64,
}

fn send(
    subject: &Subject,
    protocol: Protocol,
    pieces: &[Vec<u8>],
    points: f64,
) -> anyhow::Result<Run> {
    let (before, began) = (subject.cpu()?, Instant::now());
    subject.send(protocol, pieces)?;
    subject.until_visible(points / COLUMNS as f64)?;
    let wall = began.elapsed().as_secs_f64();
    Ok(Run { wall, cpu: subject.cpu()? - before, points })
}

fn note(results: &mut Results, case: &str, subject: &str, run: &Run) {
    results.add(case, subject, "cpu_us_per_point", "us", run.cpu * 1e6 / run.points);
    results.add(case, subject, "points_per_second", "1/s", run.points / run.wall);
    results.add(case, subject, "seconds", "s", run.wall);
}

/// Half of the row series over each of two connections.
fn two_connections(
    results: &mut Results,
    protocol: Protocol,
    times: i64,
    kind: Kind,
    dir: &Path,
) -> anyhow::Result<()> {
    let halves = [0..ROWS / 2, ROWS / 2..ROWS]
        .map(|rows| Stream::new(protocol, Data::Gauges, rows).next(times));
    let points = (ROWS * COLUMNS) as f64 * times as f64;
    let subject = Subject::start(kind, dir, None)?;
    let (before, began) = (subject.cpu()?, Instant::now());
    std::thread::scope(|scope| {
        let sending = halves.each_ref().map(|half| scope.spawn(|| subject.send(protocol, half)));
        sending.into_iter().try_for_each(|sent| {
            sent.join().map_err(|_| anyhow::anyhow!("a sending thread died"))?
        })
    })?;
    subject.until_visible(points / COLUMNS as f64)?;
    let wall = began.elapsed().as_secs_f64();
    let run = Run { wall, cpu: subject.cpu()? - before, points };
    let wal = match subject.kind {
        Kind::Ours(wal) => format!(", wal {wal}"),
        _ => String::new(),
    };
    let case = format!("{}, two connections{wal}", protocol.name());
    note(results, &case, subject.name(), &run);
    Ok(())
}

/// 350,000 series, fifty points each: what is new all the time.
pub fn wide(results: &mut Results, fresh: Fresh<'_>) -> anyhow::Result<()> {
    let (rows, times) = if quick() { (3500, 20) } else { (35_000, 50) };
    let points = (rows * COLUMNS) as f64 * times as f64;
    let victoria = peers().into_iter().find(|kind| matches!(kind, Kind::VictoriaMetrics(_)));
    let mut subjects = vec![
        (Kind::Ours("off"), Protocol::Rows),
        (Kind::Ours("always"), Protocol::Rows),
        (Kind::Ours("always"), Protocol::Remote),
        (Kind::Ours("always"), Protocol::Influx),
    ];
    let both = [Protocol::Remote, Protocol::Influx];
    subjects.extend(victoria.into_iter().flat_map(|v| both.map(|p| (v.clone(), p))));
    for (kind, protocol) in subjects {
        let wal = match kind {
            Kind::Ours("off") => ", wal off",
            _ => "",
        };
        let subject = Subject::start(kind, &fresh()?, None)?;
        let idle = rss_of(subject.pid());
        let mut stream = Stream::new(protocol, Data::Gauges, 0..rows);
        let mut run = Run { wall: 0.0, cpu: 0.0, points };
        // In pieces: all of it at once would not fit into memory as remote write.
        for from in (0..times).step_by(5) {
            let pieces = stream.next((from + 5).min(times) - from);
            let sent = send(&subject, protocol, &pieces, 0.0)?;
            (run.wall, run.cpu) = (run.wall + sent.wall, run.cpu + sent.cpu);
        }
        let case = format!("wide, {} series x {times}, {}{wal}", rows * COLUMNS, protocol.name());
        note(results, &case, subject.name(), &run);
        let bytes = (rss_of(subject.pid()) - idle) / (rows * COLUMNS) as f64;
        results.add(&case, subject.name(), "memory_bytes_per_series", "B", bytes);
    }
    Ok(())
}

/// Ingest by each protocol, beside the peers that speak it.
pub fn ingest(results: &mut Results, fresh: Fresh<'_>) -> anyhow::Result<()> {
    let peers = peers();
    let (rounds, times) = if quick() { (2, 100) } else { (3, 400) };
    for protocol in [Protocol::Rows, Protocol::Remote, Protocol::Influx] {
        let pieces = payload(protocol, ROWS, times);
        let points = (ROWS * COLUMNS) as f64 * times as f64;
        for _ in 0..rounds {
            round(results, fresh, protocol, &pieces, points, None)?;
            for peer in peers.iter().filter(|p| takes(p, protocol)) {
                let subject = Subject::start(peer.clone(), &fresh()?, None)?;
                let run = send(&subject, protocol, &pieces, points)?;
                note(results, protocol.name(), subject.name(), &run);
            }
            for wal in ["off", "always"] {
                two_connections(results, protocol, times, Kind::Ours(wal), &fresh()?)?;
            }
        }
        for peer in peers.iter().filter(|p| takes(p, protocol)) {
            two_connections(results, protocol, times, peer.clone(), &fresh()?)?;
        }
        if protocol == Protocol::Rows
            && !quick()
            && Command::new("taskset").arg("--version").output().is_ok()
        {
            for (cores, shown) in [("0", ", 1 core"), ("0,1", ", 2 cores")] {
                round(results, fresh, protocol, &pieces, points, Some((cores, shown)))?;
            }
        }
    }
    Ok(())
}

fn takes(peer: &Kind, protocol: Protocol) -> bool {
    match protocol {
        Protocol::Rows => false,
        Protocol::Influx => matches!(peer, Kind::VictoriaMetrics(_) | Kind::QuestDb(_)),
        Protocol::Remote => !matches!(peer, Kind::QuestDb(_)),
    }
}

/// Log off, always and by interval, one after the other.
fn round(
    results: &mut Results,
    fresh: Fresh<'_>,
    protocol: Protocol,
    pieces: &[Vec<u8>],
    points: f64,
    cores: Option<(&str, &str)>,
) -> anyhow::Result<()> {
    let suffix = cores.map_or("", |c| c.1);
    let mut speeds = Vec::new();
    for wal in WALS {
        let mut subject = Subject::start(Kind::Ours(wal), &fresh()?, cores.map(|c| c.0))?;
        let run = send(&subject, protocol, pieces, points)?;
        speeds.push(points / run.wall);
        let case = format!("{}, wal {wal}{suffix}", protocol.name());
        note(results, &case, "holdfast", &run);
        if wal == "off" && protocol != Protocol::Rows {
            note(results, protocol.name(), "holdfast", &run);
        }
        let stats = subject.ask("stats")?;
        let of = |name: &str| stats.iter().find(|(n, _)| n == name).map_or(0.0, |s| s.1);
        ensure!(
            (of("samples") - points).abs() < 0.5,
            "{case}: {} of {points} points",
            of("samples")
        );
        if wal != "off" {
            results.add(&case, "holdfast", "log_bytes_per_point", "B", of("log_payload") / points);
            results.add(
                &case,
                "holdfast",
                "log_written_per_point",
                "B",
                of("log_written") / points,
            );
        }
    }
    for (wal, speed) in [("on/off", speeds[1]), ("interval/off", speeds[2])] {
        let case = format!("{}, wal {wal}{suffix}", protocol.name());
        results.add(&case, "holdfast", "speed_ratio", "ratio", speed / speeds[0]);
    }
    Ok(())
}

/// Several gzip files at once, each through `gunzip` into a connection of its own; the clock stops
/// when the last point of each can be queried.
pub fn stream_files(results: &mut Results, fresh: Fresh<'_>) -> anyhow::Result<()> {
    let times = if quick() { 100 } else { 1000 };
    const FILES: usize = 2;
    let each = ROWS / FILES;
    let files: Vec<PathBuf> = (0..FILES)
        .map(|i| {
            std::env::temp_dir().join(format!("holdfast-series-{}-{i}.gz", std::process::id()))
        })
        .collect();
    for (i, path) in files.iter().enumerate() {
        let mut gzip = Command::new("gzip")
            .arg("-1")
            .stdin(Stdio::piped())
            .stdout(std::fs::File::create(path)?)
            .spawn()?;
        let mut into = gzip.stdin.take().context("gzip does not listen")?;
        let (from, to) = (i * each, (i + 1) * each);
        into.write_all(&dictionary(from, to))?;
        let mut walks = Walks::new(Data::Gauges, ROWS);
        for time in 0..times {
            into.write_all(&resp(&mut walks, time, from, to))?;
        }
        drop(into);
        ensure!(gzip.wait()?.success(), "gzip failed");
    }
    let points = (ROWS * COLUMNS) as f64 * times as f64;
    let last_ns = BEGIN_NS + (times - 1) * STEP_S * 1_000_000_000;
    for _ in 0..if quick() { 1 } else { 2 } {
        let mut speeds = Vec::new();
        for wal in ["off", "always"] {
            let subject = Subject::start(Kind::Ours(wal), &fresh()?, None)?;
            let (before, began) = (subject.cpu()?, Instant::now());
            let mut streams = Vec::new();
            for path in &files {
                let line =
                    format!("gunzip -c {} > /dev/tcp/127.0.0.1/{}", path.display(), subject.resp);
                streams.push(Command::new("bash").args(["-c", &line]).spawn()?);
            }
            for stream in &mut streams {
                ensure!(stream.wait()?.success(), "gunzip failed");
            }
            let mut http = Http::connect(subject.http)?;
            for i in 0..FILES {
                let host = (i + 1) * each - 1;
                let query = format!(
                    "{{\"select\":\"cpu_m9\",\"where\":{{\"host\":\"host_{host}\"}},\"range\":{{\"from\":{last_ns},\"to\":{}}}}}",
                    last_ns + 1
                );
                let until = Instant::now();
                while http.send("POST", "/api/query", "", query.as_bytes())?.is_empty() {
                    ensure!(
                        until.elapsed() < Duration::from_secs(60),
                        "the last point of a file did not come"
                    );
                    std::thread::sleep(Duration::from_millis(5));
                }
            }
            let wall = began.elapsed().as_secs_f64();
            let run = Run { wall, cpu: subject.cpu()? - before, points };
            note(results, &format!("gzip files in parallel, wal {wal}"), "holdfast", &run);
            speeds.push(1.0 / wall);
        }
        results.add(
            "gzip files in parallel, wal on/off",
            "holdfast",
            "speed_ratio",
            "ratio",
            speeds[1] / speeds[0],
        );
    }
    for path in files {
        std::fs::remove_file(path)?;
    }
    table(results);
    Ok(())
}

/// Bytes on disk after everything was merged, memory, and the queries.
pub fn sizes_and_queries(results: &mut Results, fresh: Fresh<'_>) -> anyhow::Result<()> {
    let times = if quick() { 400 } else { 2000 };
    let points = (ROWS * COLUMNS) as f64 * times as f64;
    for kind in std::iter::once(Kind::Ours("always")).chain(peers()) {
        let dir = fresh()?;
        let mut subject = Subject::start(kind, &dir, None)?;
        let protocol = match subject.kind {
            Kind::Ours(_) => Protocol::Rows,
            Kind::QuestDb(_) => Protocol::Influx,
            _ => Protocol::Remote,
        };
        // In pieces: all of it at once would not fit into memory as remote write.
        let mut walks = Stream::new(protocol, Data::Gauges, 0..ROWS);
        for from in (0..times).step_by(100) {
            subject.send(protocol, &walks.next((from + 100).min(times) - from))?;
        }
        subject.until_visible(points / COLUMNS as f64)?;
        subject.settle()?;
        std::thread::sleep(Duration::from_secs(2));
        let case = "gauges after merge, on disk";
        results.add(
            case,
            subject.name(),
            "bytes_per_point",
            "B",
            disk_of(&data_of(&subject)) / points,
        );
        if matches!(subject.kind, Kind::Ours(_)) {
            let stats = subject.ask("stats")?;
            let of = |name: &str| stats.iter().find(|(n, _)| n == name).map_or(0.0, |s| s.1);
            results.add(case, "holdfast", "samples_bytes_per_point", "B", of("parts") / points);
            results.add(case, "holdfast", "rollup_bytes_per_point", "B", of("rollups") / points);
        }
        results.add(
            "10000 series",
            subject.name(),
            "memory_bytes_per_series",
            "B",
            rss_of(subject.pid()) / (ROWS * COLUMNS) as f64,
        );
        for question in questions(times) {
            ask(results, &subject, &question)?;
        }
    }
    Ok(())
}

/// What holds the points, without the log.
fn data_of(subject: &Subject) -> PathBuf {
    match subject.kind {
        Kind::Ours(_) => subject.dir.join("parts"),
        Kind::VictoriaMetrics(_) => subject.dir.join("data"),
        Kind::Prometheus => subject.dir.clone(),
        Kind::QuestDb(_) => subject.dir.join("db"),
    }
}

/// The CPU of the server for one answer, from many of them.
fn ask(results: &mut Results, subject: &Subject, question: &Question) -> anyhow::Result<()> {
    if matches!(subject.kind, Kind::QuestDb(_)) && question.sql.is_empty() {
        return Ok(());
    }
    let mut http = Http::connect(subject.http)?;
    let mut once = || -> anyhow::Result<usize> {
        if matches!(subject.kind, Kind::Ours(_)) {
            let (path, text) = &question.ours;
            return Ok(http.send("POST", path, "", text.as_bytes())?.len());
        }
        if matches!(subject.kind, Kind::QuestDb(_)) {
            let path = format!("/exec?query={}", escaped(question.sql));
            return Ok(http.send("GET", &path, "", b"")?.len());
        }
        question.prom.iter().map(|path| Ok(http.send("GET", path, "", b"")?.len())).sum()
    };
    if let Err(e) = once() {
        eprintln!("{}: {}: {e:#}", subject.name(), question.name);
        return Ok(());
    }
    let mut walls = Vec::new();
    let (before, began, mut asked) = (subject.cpu()?, Instant::now(), 0);
    let enough = Duration::from_millis(if quick() { 300 } else { 1000 });
    while began.elapsed() < enough || asked < 3 {
        let at = Instant::now();
        ensure!(once()? > 0, "{}: nothing found", question.name);
        walls.push(at.elapsed().as_secs_f64() * 1e3);
        asked += 1;
    }
    let cpu = (subject.cpu()? - before) * 1e3 / f64::from(asked);
    results.add(question.name, subject.name(), "cpu_ms", "ms", cpu);
    results.add(question.name, subject.name(), "wall_ms", "ms", median(walls));
    Ok(())
}

/// The table in the shape of the published one.
fn table(results: &Results) {
    println!("\n| | duration | write rate | relative speed |\n|---|---|---|---|");
    for wal in ["off", "always"] {
        let case = format!("gzip files in parallel, wal {wal}");
        let of = |metric| results.get(&case, "holdfast", metric).unwrap_or(f64::NAN);
        let ratio = results.get("gzip files in parallel, wal on/off", "holdfast", "speed_ratio");
        let ratio = if wal == "off" { 1.0 } else { ratio.unwrap_or(f64::NAN) };
        println!(
            "| WAL {wal} | {:.1} s | {:.2} M points/s | {ratio:.3} |",
            of("seconds"),
            of("points_per_second") / 1e6
        );
    }
    println!();
}

/// Throughput and memory against the number of series.
pub fn scale(results: &mut Results, fresh: Fresh<'_>, folder: &Path) -> anyhow::Result<()> {
    let counts: &[usize] =
        if quick() { &[100, 1000, 10_000] } else { &[100, 1000, 10_000, 100_000] };
    let (mut speed, mut memory) = (Vec::new(), Vec::new());
    for rows in counts {
        let subject = Subject::start(Kind::Ours("always"), &fresh()?, None)?;
        let idle = rss_of(subject.pid());
        let times = (2_000_000 / (rows * COLUMNS)).max(2) as i64;
        let pieces = payload(Protocol::Rows, *rows, times);
        let points = (rows * COLUMNS) as f64 * times as f64;
        let run = send(&subject, Protocol::Rows, &pieces, points)?;
        let series = (rows * COLUMNS) as f64;
        let case = format!("{series} series over a socket");
        note(results, &case, "holdfast", &run);
        let bytes = (rss_of(subject.pid()) - idle) / series;
        results.add(&case, "holdfast", "memory_bytes_per_series", "B", bytes);
        speed.push((series, points / run.wall));
        memory.push((series, bytes.max(1.0)));
    }
    let lines = [("points/s".to_owned(), speed), ("memory, B a series".to_owned(), memory)];
    let drawn = crate::plot::svg("rows over a socket, WAL always", "series", "", &lines);
    std::fs::create_dir_all(folder)?;
    Ok(std::fs::write(folder.join("series-scale.svg"), drawn)?)
}
