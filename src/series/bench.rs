//! `holdfast series bench`: the cost of the log on this machine. One writer appends rows of a
//! random walk with two decimals in batches of a thousand rows. Each case has its own folder.

use std::path::Path;
use std::time::Instant;

use anyhow::{Context as _, bail};
use rustix::time::{ClockId, clock_gettime};
use serde_json::{Value as Json, json};
use series::{Ack, Batch, Row, Store};
use service::Console;

use crate::cli::SeriesBenchArgs;
use crate::config::{SeriesConfig, WalMode};

const BATCH_ROWS: usize = 1000;
/// Time between two rows of a series, in nanoseconds.
const STEP_NS: i64 = 10_000_000_000;
/// Time of the first row, in nanoseconds since the epoch.
const BEGIN_NS: i64 = 1_700_000_000_000_000_000;

/// Measures and prints each case.
pub(super) fn run(args: &SeriesBenchArgs) -> anyhow::Result<()> {
    let console = Console::new();
    let base = args.dir.clone().unwrap_or_else(std::env::temp_dir);
    if !base.is_dir() {
        bail!("--dir {}: no such folder", base.display());
    }
    for wal in &args.wal {
        let dir = base.join(format!("holdfast-series-bench-{}", std::process::id()));
        let measured = measure(&dir, *wal, args);
        let removed = std::fs::remove_dir_all(&dir);
        let report = measured.with_context(|| dir.display().to_string())?;
        removed.with_context(|| dir.display().to_string())?;
        if args.json {
            console.line(&report.to_string());
        } else {
            console.line(&line(&report));
        }
    }
    Ok(())
}

fn line(report: &Json) -> String {
    let number = |name: &str| report.get(name).and_then(Json::as_f64).unwrap_or_default();
    format!(
        "wal {}: {:.2} million points/s, {:.3} us CPU a point; {:.2} bytes of log, {:.2} bytes of \
         parts a point; closed in {:.2} s",
        report.get("wal").and_then(Json::as_str).unwrap_or_default(),
        number("points_per_second") / 1e6,
        number("cpu_us_per_point"),
        number("log_bytes_per_point"),
        number("part_bytes_per_point"),
        number("close_s"),
    )
}

/// CPU time of this process, in seconds.
fn cpu_s() -> f64 {
    let now = clock_gettime(ClockId::ProcessCPUTime);
    now.tv_sec as f64 + now.tv_nsec as f64 / 1e9
}

fn measure(dir: &Path, wal: WalMode, args: &SeriesBenchArgs) -> anyhow::Result<Json> {
    let config = SeriesConfig { wal, segment_mib: 64, ..SeriesConfig::default() };
    let options = series::StoreOptions {
        retention: series::SeriesRetention::default(),
        ..config.store_options()
    };
    let (store, _) = Store::open(dir, options)?;
    let rows = rows(&store, args)?;
    let mut walk = Walk { state: 1, values: vec![0; rows.len() * usize::from(args.metrics)] };
    let (began, cpu) = (Instant::now(), cpu_s());
    let mut generating = 0.0;
    let mut tickets = Vec::new();
    for time in 0..i64::from(args.rows) {
        for (number, some) in rows.chunks(BATCH_ROWS).enumerate() {
            let before = cpu_s();
            let time_ns = BEGIN_NS + time * STEP_NS;
            let batch = walk.batch(some, number * BATCH_ROWS, time_ns, args.metrics)?;
            generating += cpu_s() - before;
            tickets.push(store.submit(batch, Ack::Persisted)?);
        }
        for ticket in tickets.drain(..) {
            ticket.wait()?;
        }
    }
    let (wall, cpu) = (began.elapsed().as_secs_f64(), cpu_s() - cpu - generating);
    let log_bytes = store.stats().log_payload_bytes;
    let closing = Instant::now();
    store.seal()?;
    let stats = store.stats();
    store.close()?;
    let points = f64::from(args.series) * f64::from(args.metrics) * f64::from(args.rows);
    Ok(json!({
        "wal": match wal {
            WalMode::Always => "always",
            WalMode::Interval => "interval",
            WalMode::Off => "off",
        },
        "points": points,
        "seconds": wall,
        "points_per_second": points / wall,
        "cpu_us_per_point": cpu * 1e6 / points,
        "log_bytes_per_point": log_bytes as f64 / points,
        "part_bytes_per_point": stats.part_bytes as f64 / points,
        "close_s": closing.elapsed().as_secs_f64(),
    }))
}

fn rows(store: &Store, args: &SeriesBenchArgs) -> anyhow::Result<Vec<Row>> {
    let metrics: Vec<String> = (0..args.metrics).map(|m| format!("metric{m}")).collect();
    let metrics = metrics.join("|");
    let row = |n: u32| store.row(format!("{metrics} host=host{n} region=r{}", n % 10).as_bytes());
    Ok((0..args.series).map(row).collect::<Result<_, _>>()?)
}

/// A random walk, in hundredths, for each metric of each row series.
struct Walk {
    state: u64,
    values: Vec<i64>,
}

impl Walk {
    /// Returns the next number of Marsaglia's xorshift (Journal of Statistical Software 8/14,
    /// 2003).
    fn next(&mut self) -> u64 {
        self.state ^= self.state << 13;
        self.state ^= self.state >> 7;
        self.state ^= self.state << 17;
        self.state
    }

    fn batch(
        &mut self,
        rows: &[Row],
        first: usize,
        time_ns: i64,
        metrics: u16,
    ) -> anyhow::Result<Batch> {
        let metrics = usize::from(metrics);
        let mut batch = Batch::new();
        let mut values = vec![0.0; metrics];
        for (at, row) in (first..).zip(rows) {
            for (metric, value) in values.iter_mut().enumerate() {
                let step = (self.next() % 201) as i64 - 100;
                let place = self.values.get_mut(at * metrics + metric);
                *value = place.map_or(0, |place| std::mem::replace(place, *place + step)) as f64;
                *value /= 100.0;
            }
            batch.push(*row, time_ns, &values)?;
        }
        Ok(batch)
    }
}
