//! The series store: ingest with its log always, by interval and off, bytes, memory, recovery,
//! queries, codec. Every case in a process of its own, interleaved.

#[path = "../series/cases.rs"]
mod cases;
#[path = "../series/client.rs"]
mod client;
#[path = "../series/generate.rs"]
mod generate;
#[path = "../series/payload.rs"]
mod payload;
#[path = "../api/plot.rs"]
mod plot;
#[path = "../series/sockets.rs"]
mod sockets;
#[path = "../series/subject.rs"]
mod subject;

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, ensure};
use holdfast_bench::{Results, quick};

const SUBJECT: &str = "holdfast";
/// Row series of 10 metrics: 10,000 series.
const ROWS: usize = 1000;
const ROWS_MANY: usize = 35_000;

fn main() -> anyhow::Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["--child", dir, "ingest", wal, kind, rows, times] => {
            cases::ingest(Path::new(dir), wal, kind, rows.parse()?, times.parse()?)
        }
        ["--child", dir, "memory", rows, times] => {
            cases::memory(Path::new(dir), rows.parse()?, times.parse()?)
        }
        ["--child", dir, "abandon", rows, times] => {
            cases::abandon(Path::new(dir), rows.parse()?, times.parse()?)
        }
        ["--child", dir, "serve", wal] => subject::serve(Path::new(dir), cases::options(wal)),
        ["--child", dir, "replay"] => cases::replay(Path::new(dir)),
        ["--child", dir, "query"] => cases::query(Path::new(dir)),
        ["--child", _, "codec"] => {
            cases::codec();
            Ok(())
        }
        _ => compare(),
    }
}

/// Run a child; its figures.
fn child(dir: &Path, words: &[&str]) -> anyhow::Result<Vec<(String, f64)>> {
    let me = std::env::current_exe()?;
    let out = Command::new(me).arg("--child").arg(dir).args(words).output()?;
    ensure!(out.status.success(), "{words:?}: {}", String::from_utf8_lossy(&out.stderr));
    let text = String::from_utf8(out.stdout)?;
    let lines = text.lines().filter_map(|l| l.rsplit_once(' '));
    lines.map(|(name, value)| Ok((name.to_owned(), value.parse()?))).collect()
}

fn unit(metric: &str) -> (&'static str, &'static str) {
    const UNITS: [(&str, &str); 16] = [
        ("replay_points_per_cpu_second", "1/s"),
        ("points_per_second", "1/s"),
        ("cpu_us_per_point", "us"),
        ("cpu_us_per_point_sealed", "us"),
        ("log_bytes_per_point", "B"),
        ("log_written_per_point", "B"),
        ("samples_per_flush", "1"),
        ("bytes_per_point", "B"),
        ("rollup_bytes_per_point", "B"),
        ("index_bytes_per_series", "B"),
        ("memory_bytes_per_series", "B"),
        ("head_bytes_per_series", "B"),
        ("replay_points_per_second", "1/s"),
        ("open_after_kill_s", "s"),
        ("open_clean_s", "s"),
        ("cpu_ms", "ms"),
    ];
    UNITS.iter().find(|(name, _)| *name == metric).copied().unwrap_or(("value", "1"))
}

fn add(results: &mut Results, case: &str, figures: Vec<(String, f64)>) {
    for (name, value) in figures {
        if name.starts_with("query ") {
            results.add(&name, SUBJECT, "cpu_ms", "ms", value);
        } else if let Some(codec) = name.strip_prefix("codec ") {
            let (kind, what) = codec.split_once(' ').unwrap_or((codec, ""));
            let case = format!("codec, {kind}");
            match what {
                "bytes" => results.add(&case, SUBJECT, "bytes_per_point", "B", value),
                "encode" => results.add(&case, SUBJECT, "encoded_per_second", "1/s", value),
                _ => results.add(&case, SUBJECT, "decoded_per_second", "1/s", value),
            }
        } else {
            let (metric, unit) = unit(&name);
            results.add(case, SUBJECT, metric, unit, value);
        }
    }
}

fn compare() -> anyhow::Result<()> {
    let folder = std::env::var_os("TMPDIR").map_or_else(|| "target/series".into(), PathBuf::from);
    let dir = std::path::absolute(folder)?.join("holdfast-bench-series");
    let fresh = || -> anyhow::Result<&Path> {
        if dir.exists() {
            std::fs::remove_dir_all(&dir).context("the folder of the run before")?;
        }
        std::fs::create_dir_all(&dir)?;
        Ok(&dir)
    };
    let (rounds, times) = if quick() { (2, "300") } else { (5, "1000") };
    let rows = ROWS.to_string();
    let mut results = Results::default();
    add(&mut results, "codec", child(fresh()?, &["codec"])?);
    for _ in 0..rounds {
        let mut speeds = Vec::new();
        for wal in ["off", "always", "interval"] {
            let figures = child(fresh()?, &["ingest", wal, "gauges", &rows, times])?;
            speeds.extend(figures.iter().find(|(n, _)| n == "points_per_second").map(|f| f.1));
            add(&mut results, &format!("in-process rows, wal {wal}"), figures);
        }
        if let [off, always, interval] = speeds.as_slice() {
            let case = "in-process rows, wal on/off";
            results.add(case, SUBJECT, "speed_ratio", "ratio", always / off);
            results.add(
                "in-process rows, wal interval/off",
                SUBJECT,
                "speed_ratio",
                "ratio",
                interval / off,
            );
        }
    }
    let times = if quick() { "400" } else { "2000" };
    for kind in ["counters", "floats", "gauges"] {
        let figures = child(fresh()?, &["ingest", "always", kind, &rows, times])?;
        add(&mut results, &format!("{kind} after merge"), figures);
    }
    add(&mut results, "open", child(&dir, &["query"])?);
    child(fresh()?, &["abandon", &rows, times])?;
    add(&mut results, "open after kill", child(&dir, &["replay"])?);
    let times = if quick() { "20" } else { "50" };
    let many = ROWS_MANY.to_string();
    add(&mut results, "350000 series", child(fresh()?, &["memory", &many, times])?);
    let fresh_path = || fresh().map(Path::to_path_buf);
    sockets::compare(&mut results, &fresh_path)?;
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("results");
    sockets::scale(&mut results, &fresh_path, &folder)?;
    fresh()?;
    results.print(SUBJECT);
    results.save("series")
}
