//! The store and its peers over real sockets: the same rows, each server in a process of its own.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use holdfast_bench::{Results, median, quick, wanted};

use crate::client::{Http, disk_of, rss_of};
use crate::generate::{BEGIN_NS, COLUMNS, Kind as Data, STEP_S, Walks};
use crate::payload::{Protocol, Stream, dictionaries, piece};
use crate::questions::{Question, escaped, questions};
use crate::speeds::{Run, WALS};
use crate::subject::{Kind, Subject};
use crate::{Fresh, ROWS};

/// Returns the peers that `run.sh` built or installed, and reports the missing ones.
pub fn peers() -> Vec<Kind> {
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

/// Measures 350,000 series with fifty points each, so that new series appear all the time. `FULL=1`
/// adds lines and Prometheus.
pub fn wide(results: &mut Results, fresh: Fresh<'_>) -> anyhow::Result<()> {
    for round in 0..if quick() { 1 } else { 3 } {
        let mut order = ["off", "always"];
        if round % 2 == 1 {
            order.reverse();
        }
        let [first, second] =
            order.map(|wal| wide_once(results, fresh, Kind::Ours(wal), Protocol::Rows));
        let (first, second) = (first?, second?);
        let (off, on) = if round % 2 == 1 { (second, first) } else { (first, second) };
        let case = format!("{}, wal on/off", wide_name(Protocol::Rows));
        on.compare(results, &case, "holdfast", &off);
    }
    let mut others = ["off", "always"].map(|wal| (Kind::Ours(wal), Protocol::Remote)).to_vec();
    for peer in peers() {
        match peer {
            Kind::VictoriaMetrics(_) => others.push((peer, Protocol::Remote)),
            Kind::Prometheus if wanted("FULL") => others.push((peer, Protocol::Remote)),
            _ => {}
        }
    }
    if wanted("FULL") {
        let lines = |kind: &Kind| matches!(kind, Kind::VictoriaMetrics(_) | Kind::QuestDb(_));
        let all = peers().into_iter().filter(lines).chain([Kind::Ours("always")]);
        others.extend(all.map(|kind| (kind, Protocol::Influx)));
    }
    for (kind, protocol) in others {
        wide_once(results, fresh, kind, protocol)?;
    }
    Ok(())
}

/// Number of row series of the wide case, and rows of each.
struct WideSize {
    rows: usize,
    times: i64,
}

fn wide_size() -> WideSize {
    if quick() { WideSize { rows: 3500, times: 20 } } else { WideSize { rows: 35_000, times: 50 } }
}

fn wide_name(protocol: Protocol) -> String {
    let WideSize { rows, times } = wide_size();
    format!("wide, {} series x {times}, {}", rows * COLUMNS, protocol.name())
}

/// Sends all wide rows to one server.
fn wide_once(
    results: &mut Results,
    fresh: Fresh<'_>,
    kind: Kind,
    protocol: Protocol,
) -> anyhow::Result<Run> {
    let WideSize { rows, times } = wide_size();
    let wal = match kind {
        Kind::Ours(wal) => Some(wal),
        _ => None,
    };
    let mut subject = Subject::start(kind, &fresh()?, None)?;
    let idle = rss_of(subject.pid());
    let mut stream = Stream::new(protocol, Data::Gauges, 0..rows);
    let mut all = Run::default();
    // The rows are sent in pieces: as one remote write they would not fit into memory.
    for from in (0..times).step_by(5) {
        let some = (from + 5).min(times) - from;
        let pieces = stream.next(some);
        all.add(Run::of(&mut subject, |subject| {
            subject.send(protocol, &pieces)?;
            Ok((rows * COLUMNS) as f64 * some as f64)
        })?);
    }
    let bytes = (rss_of(subject.pid()) - idle) / (rows * COLUMNS) as f64;
    let name = wide_name(protocol);
    // The row next to the peers is the one with the log on.
    let cases = match wal {
        Some("off") => vec![format!("{name}, wal off")],
        Some(wal) => vec![name.clone(), format!("{name}, wal {wal}")],
        None => vec![name.clone()],
    };
    for case in cases {
        all.note(results, &case, subject.name());
        results.add(&case, subject.name(), "memory_bytes_per_series", "B", bytes);
    }
    if wal == Some("always") {
        let bytes = subject.figure("log_payload")? / all.points;
        let case = format!("{name}, wal always");
        results.add(&case, "holdfast", "log_bytes_per_point", "B", bytes);
    }
    Ok(all)
}

/// Number of files streamed at the same time.
const FILES: usize = 2;

/// Streams several gzip files at once, each through `gunzip` into a connection of its own. The time
/// ends when the last point of each can be queried.
pub fn stream_files(results: &mut Results, fresh: Fresh<'_>) -> anyhow::Result<()> {
    let times = if quick() { 200 } else { 3000 };
    let files = (0..FILES).map(|i| make_file(i, times)).collect::<anyhow::Result<Vec<_>>>()?;
    for round in 0..if quick() { 1 } else { 9 } {
        let mut runs = [const { None }; WALS.len()];
        for turn in (round..round + WALS.len()).map(|turn| turn % WALS.len()) {
            let wal = WALS[turn];
            let mut subject = Subject::start(Kind::Ours(wal), &fresh()?, None)?;
            let run = Run::of(&mut subject, |subject| stream(&files, times, subject))?;
            let case = format!("gzip files in parallel, wal {wal}");
            run.note(results, &case, "holdfast");
            if wal != "off" {
                let bytes = subject.figure("log_payload")? / run.points;
                results.add(&case, "holdfast", "log_bytes_per_point", "B", bytes);
            }
            runs[turn] = Some(run);
        }
        let [Some(off), Some(always), Some(interval)] = &runs else { continue };
        for (shown, on) in [("on/off", always), ("interval/off", interval)] {
            let case = format!("gzip files in parallel, wal {shown}");
            on.compare(results, &case, "holdfast", off);
        }
    }
    for path in files {
        std::fs::remove_file(path)?;
    }
    Ok(())
}

/// Writes the rows of one file.
fn make_file(i: usize, times: i64) -> anyhow::Result<PathBuf> {
    let path = std::env::temp_dir().join(format!("holdfast-series-{}-{i}.gz", std::process::id()));
    let mut gzip = Command::new("gzip")
        .arg("-1")
        .stdin(Stdio::piped())
        .stdout(std::fs::File::create(&path)?)
        .spawn()?;
    let mut into = gzip.stdin.take().context("gzip does not listen")?;
    let rows = i * (ROWS / FILES)..(i + 1) * (ROWS / FILES);
    dictionaries(rows.clone()).try_for_each(|piece| into.write_all(&piece))?;
    let mut walks = Walks::new(Data::Gauges, ROWS);
    for time in 0..times {
        into.write_all(&piece(Protocol::Rows, &mut walks, time..time + 1, rows.clone()))?;
    }
    drop(into);
    ensure!(gzip.wait()?.success(), "gzip failed");
    Ok(path)
}

/// Streams all files and polls until the last point of each is visible. Returns the number of
/// points.
fn stream(files: &[PathBuf], times: i64, subject: &Subject) -> anyhow::Result<f64> {
    let mut streams = Vec::new();
    for path in files {
        let line = format!("gunzip -c {} > /dev/tcp/127.0.0.1/{}", path.display(), subject.resp);
        streams.push(Command::new("bash").args(["-c", &line]).spawn()?);
    }
    for stream in &mut streams {
        ensure!(stream.wait()?.success(), "gunzip failed");
    }
    let last_ns = BEGIN_NS + (times - 1) * STEP_S * 1_000_000_000;
    let mut http = Http::connect(subject.http)?;
    for i in 0..FILES {
        let host = (i + 1) * (ROWS / FILES) - 1;
        let query = format!(
            "{{\"select\":\"cpu_m9\",\"where\":{{\"host\":\"host_{host}\"}},\"range\":{{\"from\":{last_ns},\"to\":{}}}}}",
            last_ns + 1
        );
        let until = Instant::now();
        while http.send("POST", "/api/query", "", query.as_bytes())?.is_empty() {
            let late = until.elapsed() > Duration::from_secs(60);
            ensure!(!late, "the last point of a file did not come");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
    Ok((ROWS * COLUMNS) as f64 * times as f64)
}

/// Measures bytes on disk after all merges, memory, and the queries.
pub fn sizes_and_queries(results: &mut Results, fresh: Fresh<'_>) -> anyhow::Result<()> {
    let times = if quick() { 120 } else { 2000 };
    let points = (ROWS * COLUMNS) as f64 * times as f64;
    let base = fresh()?;
    let mut subjects = Vec::new();
    for (i, kind) in std::iter::once(Kind::Ours("always")).chain(peers()).enumerate() {
        let dir = base.join(i.to_string());
        std::fs::create_dir_all(&dir)?;
        subjects.push(Subject::start(kind, &dir, None)?);
    }
    load(&subjects, times)?;
    for subject in &mut subjects {
        subject.until_visible(points / COLUMNS as f64)?;
        subject.settle()?;
    }
    std::thread::sleep(Duration::from_secs(2));
    for subject in &mut subjects {
        sizes(results, subject, points)?;
    }
    let questions = questions(times);
    for _ in 0..if quick() { 1 } else { 3 } {
        for question in &questions {
            subjects.iter().try_for_each(|subject| measure_query(results, subject, question))?;
        }
    }
    Ok(())
}

/// Returns the protocol that loads rows for queries.
fn loaded_by(subject: &Subject) -> Protocol {
    match subject.kind {
        Kind::Ours(_) => Protocol::Rows,
        Kind::QuestDb(_) => Protocol::Influx,
        _ => Protocol::Remote,
    }
}

/// Sends the same rows to all servers at once, each over two connections. The slowest server takes
/// most of the time.
fn load(subjects: &[Subject], times: i64) -> anyhow::Result<()> {
    let some = 50;
    let bring = |protocol: Protocol| -> anyhow::Result<()> {
        let halves = [0..ROWS / 2, ROWS / 2..ROWS];
        let mut streams = halves.map(|rows| Stream::new(protocol, Data::Gauges, rows));
        for from in (0..times).step_by(some) {
            // The rows are sent in pieces: as one remote write they would not fit into memory.
            let count = (from + some as i64).min(times) - from;
            let pieces = streams.each_mut().map(|stream| stream.next(count));
            std::thread::scope(|scope| {
                let takes = subjects.iter().filter(|s| loaded_by(s) == protocol);
                let sends = takes.flat_map(|s| pieces.iter().map(move |half| (s, half)));
                let threads: Vec<_> = sends
                    .map(|(subject, half)| scope.spawn(move || subject.send(protocol, half)))
                    .collect();
                threads.into_iter().try_for_each(joined)
            })?;
        }
        Ok(())
    };
    let bring = &bring;
    std::thread::scope(|scope| {
        let all = [Protocol::Rows, Protocol::Influx, Protocol::Remote];
        let threads = all.map(|protocol| scope.spawn(move || bring(protocol)));
        threads.into_iter().try_for_each(joined)
    })
}

fn joined(thread: std::thread::ScopedJoinHandle<'_, anyhow::Result<()>>) -> anyhow::Result<()> {
    thread.join().map_err(|_| anyhow::anyhow!("a sending thread died"))?
}

fn sizes(results: &mut Results, subject: &mut Subject, points: f64) -> anyhow::Result<()> {
    let (case, name) = ("gauges after merge, on disk", subject.name());
    let bytes = disk_of(&data_of(subject)) / points;
    results.add(case, name, "bytes_per_point", "B", bytes);
    if matches!(subject.kind, Kind::Ours(_)) {
        let (parts, rollups) = (subject.figure("parts")?, subject.figure("rollups")?);
        results.add(case, name, "samples_bytes_per_point", "B", parts / points);
        results.add(case, name, "rollup_bytes_per_point", "B", rollups / points);
    }
    let memory = rss_of(subject.pid()) / (ROWS * COLUMNS) as f64;
    results.add("10000 series", name, "memory_bytes_per_series", "B", memory);
    Ok(())
}

/// Returns the folder with the points, without the log.
fn data_of(subject: &Subject) -> PathBuf {
    match subject.kind {
        Kind::Ours(_) => subject.dir.join("parts"),
        Kind::VictoriaMetrics(_) => subject.dir.join("data"),
        Kind::Prometheus => subject.dir.clone(),
        Kind::QuestDb(_) => subject.dir.join("db"),
    }
}

/// Measures the server's CPU for one answer, from many of them.
fn measure_query(
    results: &mut Results,
    subject: &Subject,
    question: &Question,
) -> anyhow::Result<()> {
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
        let plain = subject.kind == Kind::Prometheus && !question.plain.is_empty();
        let paths = if plain { &question.plain } else { &question.prom };
        paths.iter().map(|path| Ok(http.send("GET", path, "", b"")?.len())).sum()
    };
    if let Err(e) = once() {
        eprintln!("{}: {}: {e:#}", subject.name(), question.name);
        return Ok(());
    }
    let mut walls = Vec::new();
    let (before, began, mut asked) = (subject.cpu()?, Instant::now(), 0);
    let enough = Duration::from_millis(if quick() { 200 } else { 400 });
    while began.elapsed() < enough || asked < 2 {
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

/// Measures throughput and memory by number of series.
pub fn scale(results: &mut Results, fresh: Fresh<'_>, folder: &Path) -> anyhow::Result<()> {
    let counts: &[usize] =
        if quick() { &[100, 1000, 10_000] } else { &[100, 1000, 10_000, 100_000] };
    let (mut speed, mut memory) = (Vec::new(), Vec::new());
    for rows in counts {
        let mut subject = Subject::start(Kind::Ours("always"), &fresh()?, None)?;
        let idle = rss_of(subject.pid());
        let times = (2_000_000 / (rows * COLUMNS)).max(2) as i64;
        let pieces = Stream::new(Protocol::Rows, Data::Gauges, 0..*rows).next(times);
        let run = Run::of(&mut subject, |subject| {
            subject.send(Protocol::Rows, &pieces)?;
            Ok((rows * COLUMNS) as f64 * times as f64)
        })?;
        let series = (rows * COLUMNS) as f64;
        let case = format!("{series} series over a socket");
        run.note(results, &case, "holdfast");
        let bytes = (rss_of(subject.pid()) - idle) / series;
        results.add(&case, "holdfast", "memory_bytes_per_series", "B", bytes);
        speed.push((series, run.speed()));
        memory.push((series, bytes.max(1.0)));
    }
    let lines = [("points/s".to_owned(), speed), ("memory, B a series".to_owned(), memory)];
    let drawn = crate::plot::svg("rows over a socket, WAL always", "series", "", &lines);
    std::fs::create_dir_all(folder)?;
    Ok(std::fs::write(folder.join("series-scale.svg"), drawn)?)
}
