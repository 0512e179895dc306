//! The work of a child process, one case per process. Prints `metric value` lines.

use std::path::Path;
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};
use series::{Ack, Batch, Direction, Selector, Store, StoreOptions, TimeRange, Wal};

use crate::generate::{BEGIN_NS, COLUMNS, Generator, Kind, STEP_S};

/// Rows of a batch.
const BATCH_ROWS: usize = 1000;

fn cpu(clock: ClockId) -> f64 {
    let t = clock_gettime(clock);
    t.tv_sec as f64 + t.tv_nsec as f64 / 1e9
}

fn print_metric(metric: &str, value: f64) {
    println!("{metric} {value}");
}

fn rss() -> f64 {
    let text = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = text.lines().find(|l| l.starts_with("VmRSS:"));
    line.and_then(|l| l.split_whitespace().nth(1)?.parse::<f64>().ok()).unwrap_or(0.0) * 1024.0
}

/// Retention limit of a store with a small head, bytes: two such stores fit on a small disk,
/// however long they are written.
const SMALL_BYTES_MAX: u64 = 4 << 30;

/// Returns the store options for a setting of the log: `always`, `interval` or `off`. `always
/// small` has a small head and keeps at most [`SMALL_BYTES_MAX`].
pub fn options(wal: &str) -> StoreOptions {
    let small = wal.ends_with(" small");
    let wal = match wal.trim_end_matches(" small") {
        "off" => Wal::Off,
        "interval" => Wal::Interval(Duration::from_millis(100)),
        _ => Wal::Always,
    };
    let mut options = StoreOptions { wal, ..StoreOptions::default() };
    if small {
        options.head_bytes_max = 32 << 20;
        options.retention.bytes_max = Some(SMALL_BYTES_MAX);
    }
    options
}

/// The points written, and the CPU seconds spent generating them.
struct Wrote {
    samples: f64,
    generating: f64,
}

/// Writes `times` rows to each of `rows` row series.
fn write(
    store: &Store,
    generator: &mut Generator,
    rows: usize,
    times: i64,
) -> anyhow::Result<Wrote> {
    let (mut generating, mut samples) = (0.0, 0.0);
    let mut tickets = std::collections::VecDeque::new();
    for time in 0..times {
        for from in (0..rows).step_by(BATCH_ROWS) {
            let began = cpu(ClockId::ThreadCPUTime);
            let mut batch = Batch::new();
            generator.fill_batch(&mut batch, time, from, (from + BATCH_ROWS).min(rows))?;
            generating += cpu(ClockId::ThreadCPUTime) - began;
            samples += batch.samples() as f64;
            tickets.push_back(store.submit(batch, Ack::Persisted)?);
            while tickets.len() > 64 {
                tickets.pop_front().map(series::QueuedBatch::wait).transpose()?;
            }
        }
    }
    for ticket in tickets {
        ticket.wait()?;
    }
    Ok(Wrote { samples, generating })
}

/// Ingests, seals and merges; then prints what is on the disk.
pub fn ingest(dir: &Path, wal: &str, kind: &str, rows: usize, times: i64) -> anyhow::Result<()> {
    let (store, _) = Store::open(dir, options(wal))?;
    let mut generator = Generator::new(&store, Kind::named(kind), rows)?;
    let (began, cpu_before) = (Instant::now(), cpu(ClockId::ProcessCPUTime));
    let Wrote { samples, generating } = write(&store, &mut generator, rows, times)?;
    let wall = began.elapsed().as_secs_f64();
    let ingest = cpu(ClockId::ProcessCPUTime) - cpu_before - generating;
    let log = store.stats();
    store.seal()?;
    let sealed = cpu(ClockId::ProcessCPUTime) - cpu_before - generating;
    let wall_sealed = began.elapsed().as_secs_f64();
    while store.merge()?.parts_before > 0 {}
    let stats = store.stats();
    print_metric("points_per_second", samples / wall);
    print_metric("points_per_second_sealed", samples / wall_sealed);
    print_metric("cpu_us_per_point", ingest * 1e6 / samples);
    print_metric("cpu_us_per_point_sealed", sealed * 1e6 / samples);
    print_metric("log_bytes_per_point", log.log_payload_bytes as f64 / samples);
    if let Some(log) = log.log {
        print_metric("log_written_per_point", log.bytes_written as f64 / samples);
        print_metric("samples_per_flush", samples / log.flushes.max(1) as f64);
    }
    print_metric("bytes_per_point", stats.part_bytes as f64 / samples);
    print_metric("rollup_bytes_per_point", stats.rollup_bytes as f64 / samples);
    let entries = (stats.series * stats.partitions) as f64;
    print_metric("index_bytes_per_series", stats.index_bytes as f64 / entries);
    store.close()?;
    Ok(())
}

/// Writes a year of some row series, one series after the other, into 4,380 partitions each, and
/// seals and merges them.
pub fn backfill(dir: &Path, rows: usize) -> anyhow::Result<()> {
    const EACH_NS: i64 = 300 * 1_000_000_000;
    const SAMPLES: i64 = 365 * 288;
    let (store, _) = Store::open(dir, options("always"))?;
    let generator = Generator::new(&store, Kind::Gauges, rows)?;
    let (began, cpu_before) = (Instant::now(), cpu(ClockId::ProcessCPUTime));
    let mut samples = 0.0;
    for row in &generator.rows {
        let mut batch = Batch::new();
        for i in 0..SAMPLES {
            let values: [f64; COLUMNS] =
                std::array::from_fn(|c| ((i * 7 + c as i64) % 1000) as f64 / 100.0);
            batch.push(*row, BEGIN_NS - i * EACH_NS, &values)?;
            if batch.len() >= BATCH_ROWS || i + 1 == SAMPLES {
                samples += batch.samples() as f64;
                store.submit(std::mem::take(&mut batch), Ack::Flushed)?;
            }
        }
    }
    store.seal()?;
    let sealed = (began.elapsed().as_secs_f64(), cpu(ClockId::ProcessCPUTime) - cpu_before);
    while store.merge()?.parts_before > 0 {}
    let merged = cpu(ClockId::ProcessCPUTime) - cpu_before;
    let stats = store.stats();
    print_metric("points_per_second", samples / sealed.0);
    print_metric("cpu_us_per_point_sealed", sealed.1 * 1e6 / samples);
    print_metric("cpu_us_per_point_merged", merged * 1e6 / samples);
    print_metric("bytes_per_point", stats.part_bytes as f64 / samples);
    print_metric("partitions", stats.partitions as f64);
    store.close()?;
    Ok(())
}

/// Measures the memory of series that are being written.
pub fn memory(dir: &Path, rows: usize, times: i64) -> anyhow::Result<()> {
    let (store, _) =
        Store::open(dir, StoreOptions { head_bytes_max: 4 << 30, ..options("always") })?;
    let before = rss();
    let mut generator = Generator::new(&store, Kind::Gauges, rows)?;
    write(&store, &mut generator, rows, times)?;
    let own = (rows * COLUMNS * 16) as f64;
    print_metric("memory_bytes_per_series", (rss() - before - own) / (rows * COLUMNS) as f64);
    print_metric(
        "head_bytes_per_series",
        store.stats().head_bytes as f64 / (rows * COLUMNS) as f64,
    );
    // Nothing after this point is measured.
    std::process::exit(0);
}

/// Writes without ever sealing, and exits without closing.
pub fn abandon(dir: &Path, rows: usize, times: i64) -> anyhow::Result<()> {
    let options = StoreOptions { head_bytes_max: 4 << 30, ..options("always") };
    let (store, _) = Store::open(dir, options)?;
    let mut generator = Generator::new(&store, Kind::Gauges, rows)?;
    write(&store, &mut generator, rows, times)?;
    std::process::exit(0);
}

/// Opens the store that was not closed.
pub fn replay(dir: &Path) -> anyhow::Result<()> {
    let options = StoreOptions { head_bytes_max: 4 << 30, ..options("always") };
    let before = cpu(ClockId::ProcessCPUTime);
    let (store, report) = Store::open(dir, options)?;
    let seconds = report.elapsed.as_secs_f64();
    let used = cpu(ClockId::ProcessCPUTime) - before;
    print_metric("replay_points_per_cpu_second", report.replayed_samples as f64 / used);
    print_metric("replay_points_per_second", report.replayed_samples as f64 / seconds);
    print_metric("open_after_kill_s", seconds);
    store.close()?;
    Ok(())
}

/// Opens the closed store several times.
pub fn reopen(dir: &Path) -> anyhow::Result<()> {
    let mut seconds = Vec::new();
    for _ in 0..5 {
        let (store, report) = Store::open(dir, options("always"))?;
        anyhow::ensure!(
            report.clean && report.replayed_samples == 0,
            "it was not closed: {report:?}"
        );
        seconds.push(report.elapsed.as_secs_f64());
        let stats = store.stats();
        anyhow::ensure!(stats.part_samples >= 1_000_000_000, "{} points", stats.part_samples);
        store.close()?;
    }
    print_metric("open_clean_s", holdfast_bench::median(seconds));
    Ok(())
}

/// Opens the closed store and queries it.
pub fn query(dir: &Path) -> anyhow::Result<()> {
    let (store, report) = Store::open(dir, options("always"))?;
    print_metric("open_clean_s", report.elapsed.as_secs_f64());
    let one = Selector::metric("cpu.m0").with("host", "host_7");
    let metric = |name: &str| Selector::metric(name);
    let all = TimeRange::ALL;
    timed("all samples of one series", || {
        let snapshot = store.snapshot();
        let series = store.find(&one);
        let runs = series.iter().flat_map(|s| snapshot.scan(s, all, Direction::Forward));
        Ok(runs.flatten().map(|r| r.times.len()).sum())
    })?;
    timed("max over 1000 series", || {
        let snapshot = store.snapshot();
        let mut max = f64::MIN;
        for s in store.find(&metric("cpu.m1")).iter().take(1000) {
            max = snapshot.summary(s, all)?.map_or(max, |s| max.max(s.max));
        }
        Ok(max as usize)
    })?;
    timed("mean and max by minute over 100 series", || {
        let snapshot = store.snapshot();
        let range = TimeRange { from_ns: BEGIN_NS, to_ns: i64::MAX };
        let mut n = 0;
        for s in store.find(&metric("cpu.m2")).iter().take(100) {
            n += snapshot.steps(s, range, 60_000_000_000)?.len();
        }
        Ok(n)
    })?;
    timed("names of 10000 series", || {
        Ok(store.find(&Selector::default()).iter().map(|s| s.name().len()).sum())
    })?;
    timed("last of 1000 series", || {
        let snapshot = store.snapshot();
        let mut n = 0;
        for s in store.find(&metric("cpu.m3")).iter().take(1000) {
            n += usize::from(snapshot.summary(s, all)?.is_some_and(|s| s.last.is_finite()));
        }
        Ok(n)
    })?;
    timed("last of 10000 series", || {
        let snapshot = store.snapshot();
        let mut n = 0;
        for s in &store.find(&Selector::default()) {
            n += usize::from(snapshot.summary(s, all)?.is_some_and(|s| s.last.is_finite()));
        }
        Ok(n)
    })?;
    timed("1-h max by tag over 10000 series", || {
        let snapshot = store.snapshot();
        let range = TimeRange { from_ns: BEGIN_NS, to_ns: i64::MAX };
        let mut groups: std::collections::HashMap<(String, i64), f64> =
            std::collections::HashMap::new();
        for s in &store.find(&Selector::default()) {
            for (step, sum) in snapshot.steps(s, range, 3_600_000_000_000)? {
                let max = groups.entry((s.tag("dc").to_owned(), step)).or_insert(f64::MIN);
                *max = max.max(sum.max);
            }
        }
        Ok(groups.len())
    })?;
    let _ = STEP_S;
    store.close()?;
    Ok(())
}

/// Returns the median CPU time of a few runs, in milliseconds.
fn timed(name: &str, mut run: impl FnMut() -> anyhow::Result<usize>) -> anyhow::Result<()> {
    let mut times = Vec::new();
    for _ in 0..5 {
        let began = cpu(ClockId::ProcessCPUTime);
        anyhow::ensure!(std::hint::black_box(run()?) > 0, "{name}: nothing found");
        times.push((cpu(ClockId::ProcessCPUTime) - began) * 1e3);
    }
    print_metric(&format!("query {name}"), holdfast_bench::median(times));
    Ok(())
}

/// Measures the codec alone, by the CPU time of one thread.
pub fn codec(dir: &Path) -> anyhow::Result<()> {
    const ROUNDS: usize = 600;
    for kind in ["gauges", "counters", "floats"] {
        let walk = crate::generate::walk(Kind::named(kind), 720 * 64);
        let mut probe = series::probe::Probe::new(&walk, 720);
        let values = (walk.len() * ROUNDS) as f64;
        let began = cpu(ClockId::ThreadCPUTime);
        let bytes = (0..ROUNDS).map(|_| std::hint::black_box(probe.encode())).max().unwrap_or(0);
        let encoded = cpu(ClockId::ThreadCPUTime);
        let back: usize = (0..ROUNDS).map(|_| std::hint::black_box(probe.decode())).sum();
        let decoded = cpu(ClockId::ThreadCPUTime);
        assert_eq!(back, walk.len() * ROUNDS);
        print_metric(&format!("codec {kind} encode"), values / (encoded - began));
        print_metric(&format!("codec {kind} decode"), values / (decoded - encoded));
        print_metric(&format!("codec {kind} bytes"), bytes as f64 / walk.len() as f64);
    }
    record(dir)
}

/// Measures the log's records of batches in the form in which rows arrive over a socket: N points
/// are read at once.
fn record(dir: &Path) -> anyhow::Result<()> {
    const ROUNDS: usize = 1000;
    const TIMES: i64 = 3;
    let (store, _) = Store::open(dir, options("off"))?;
    let mut generator = Generator::new(&store, Kind::Gauges, crate::ROWS)?;
    let mut batch = Batch::new();
    // The random walks have diverged by then.
    for time in 0..1000 {
        if time < 1000 - TIMES {
            batch.clear();
        }
        generator.fill_batch(&mut batch, time, 0, crate::ROWS)?;
    }
    let (mut room, points) = (Vec::new(), batch.samples() as f64);
    let began = cpu(ClockId::ThreadCPUTime);
    for _ in 0..ROUNDS {
        series::probe::record(std::hint::black_box(&batch), &mut room);
    }
    let took = cpu(ClockId::ThreadCPUTime) - began;
    print_metric("codec record encode", points * ROUNDS as f64 / took);
    print_metric("codec record bytes", room.len() as f64 / points);
    Ok(store.close()?)
}
