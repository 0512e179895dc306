//! The series store: ingest with its log always, by interval and off; bytes, memory, recovery,
//! queries and codec. Every case runs in a process of its own, interleaved.

#[path = "../series/bare.rs"]
mod bare;
#[path = "../series/cases.rs"]
mod cases;
#[path = "../series/client.rs"]
mod client;
#[path = "../series/generate.rs"]
mod generate;
#[path = "../series/long.rs"]
mod long;
#[path = "../series/payload.rs"]
mod payload;
#[path = "../api/plot.rs"]
mod plot;
#[path = "../series/questions.rs"]
mod questions;
#[path = "../series/sockets.rs"]
mod sockets;
#[path = "../series/speeds.rs"]
mod speeds;
#[path = "../series/subject.rs"]
mod subject;
#[path = "../series/tables.rs"]
mod tables;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, ensure};
use holdfast_bench::{Results, quick, wanted};
use payload::Protocol;

const SUBJECT: &str = "holdfast";
/// Row series of 10 metrics: 10,000 series.
const ROWS: usize = 1000;
const ROWS_MANY: usize = 35_000;
/// Rows of each of [`ROWS`] row series, so that all have a billion points together.
const TIMES_OF_A_BILLION: &str = "100000";

fn main() -> anyhow::Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["--child", dir, "ingest", wal, kind, rows, times] => {
            cases::ingest(Path::new(dir), wal, kind, rows.parse()?, times.parse()?)
        }
        ["--child", dir, "backfill", rows] => cases::backfill(Path::new(dir), rows.parse()?),
        ["--child", dir, "memory", rows, times] => {
            cases::memory(Path::new(dir), rows.parse()?, times.parse()?)
        }
        ["--child", dir, "abandon", rows, times] => {
            cases::abandon(Path::new(dir), rows.parse()?, times.parse()?)
        }
        ["--child", dir, "serve", wal] => subject::serve(Path::new(dir), cases::options(wal)),
        ["--child", dir, "replay"] => cases::replay(Path::new(dir)),
        ["--child", dir, "reopen"] => cases::reopen(Path::new(dir)),
        ["--child", dir, "query"] => cases::query(Path::new(dir)),
        ["--child", dir, "codec"] => cases::codec(Path::new(dir)),
        ["table"] => tables::publish(&Results::load("series", |_, _| false)?),
        parts => compare(parts),
    }
}

/// Runs a child and returns its figures.
fn child(dir: &Path, words: &[&str]) -> anyhow::Result<Vec<(String, f64)>> {
    let me = std::env::current_exe()?;
    let out = Command::new(me).arg("--child").arg(dir).args(words).output()?;
    ensure!(out.status.success(), "{words:?}: {}", String::from_utf8_lossy(&out.stderr));
    let text = String::from_utf8(out.stdout)?;
    let lines = text.lines().filter_map(|l| l.rsplit_once(' '));
    lines.map(|(name, value)| Ok((name.to_owned(), value.parse()?))).collect()
}

fn unit(metric: &str) -> (&'static str, &'static str) {
    const UNITS: [(&str, &str); 19] = [
        ("replay_points_per_cpu_second", "1/s"),
        ("points_per_second", "1/s"),
        ("points_per_second_sealed", "1/s"),
        ("cpu_us_per_point", "us"),
        ("cpu_us_per_point_sealed", "us"),
        ("cpu_us_per_point_merged", "us"),
        ("partitions", "1"),
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
        if let Some(codec) = name.strip_prefix("codec ") {
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

/// The parts of the comparison. Running one part keeps the figures of the others.
const PARTS: [&str; 13] = [
    "codec", "store", "open", "rows", "lines", "remote", "influx", "files", "wide", "queries",
    "scale", "long1", "long2",
];

/// Returns the part to which a case belongs.
fn part_of(case: &str) -> &'static str {
    match case {
        _ if case.starts_with("codec") => "codec",
        "open" | "350000 series" => "open",
        _ if case.starts_with("open ") => "open",
        _ if case.starts_with("in-process") || case.starts_with("backfill") => "store",
        "counters after merge" | "floats after merge" | "gauges after merge" => "store",
        _ if case.starts_with("gzip files") => "files",
        _ if case.starts_with("wide") => "wide",
        _ if case.starts_with("rows for long") && case.ends_with("1 core") => "long1",
        _ if case.starts_with("rows for long") => "long2",
        _ if case.ends_with("series over a socket") => "scale",
        "gauges after merge, on disk" | "10000 series" => "queries",
        _ if case.starts_with("query") => "queries",
        _ if case.starts_with("remote write") => "remote",
        _ if case.starts_with("influx lines") => "influx",
        _ if ["opentsdb", "single", "rows in datagrams"].iter().any(|n| case.starts_with(n)) => {
            "lines"
        }
        _ => "rows",
    }
}

type Fresh<'a> = &'a dyn Fn() -> anyhow::Result<PathBuf>;

/// Runs the named parts, or all parts but the long ones (with `FULL=1` these too); `long` names
/// both of them.
fn compare(parts: &[&str]) -> anyhow::Result<()> {
    if let Some(part) = parts.iter().find(|p| **p != "long" && !PARTS.contains(p)) {
        anyhow::bail!("no part {part}: {}, long", PARTS.join(", "));
    }
    let chosen = |part: &str| match parts {
        [] => !part.starts_with("long") || wanted("FULL"),
        _ => parts.contains(&part) || (part.starts_with("long") && parts.contains(&"long")),
    };
    let folder = std::env::var_os("TMPDIR").map_or_else(|| "target/series".into(), PathBuf::from);
    let dir = std::path::absolute(folder)?.join("holdfast-bench-series");
    let fresh = || -> anyhow::Result<PathBuf> {
        if dir.exists() {
            fs::remove_dir_all(&dir).context("the folder of the run before")?;
        }
        fs::create_dir_all(&dir)?;
        Ok(dir.clone())
    };
    let mut results = Results::load("series", |case, _| chosen(part_of(case)))?;
    let drawings = Path::new(env!("CARGO_MANIFEST_DIR")).join("results");
    for part in PARTS.into_iter().filter(|p| chosen(p)) {
        eprintln!("{part}");
        match part {
            "codec" => add(&mut results, "codec", child(&fresh()?, &["codec"])?),
            "store" => store(&mut results, &fresh)?,
            "open" => open(&mut results, &fresh)?,
            "rows" => speeds::rows(&mut results, &fresh)?,
            "lines" => speeds::lines(&mut results, &fresh)?,
            "remote" => speeds::requests(&mut results, &fresh, Protocol::Remote)?,
            "influx" => speeds::requests(&mut results, &fresh, Protocol::Influx)?,
            "files" => sockets::stream_files(&mut results, &fresh)?,
            "wide" => sockets::wide(&mut results, &fresh)?,
            "queries" => sockets::sizes_and_queries(&mut results, &fresh)?,
            "scale" => sockets::scale(&mut results, &fresh, &drawings)?,
            "long1" => long::long(&mut results, &fresh, &drawings, "0", "1 core")?,
            _ => long::long(&mut results, &fresh, &drawings, "0,1", "2 cores")?,
        }
        // The figures are saved even if a later part fails.
        results.save("series")?;
    }
    fresh()?;
    tables::publish(&results)?;
    results.print(SUBJECT);
    Ok(())
}

const BACKFILL: &str = "backfill of a year, series by series";

/// Returns one of a child's figures.
fn figure(figures: &[(String, f64)], name: &str) -> anyhow::Result<f64> {
    let found = figures.iter().find(|(n, _)| n == name);
    found.map(|f| f.1).with_context(|| format!("no {name}"))
}

/// Measures the store without sockets: speed with its log always, by interval and off, bytes after
/// a merge, and a backfill during ingest, both until everything is sealed.
fn store(results: &mut Results, fresh: Fresh<'_>) -> anyhow::Result<()> {
    let (rounds, times) = if quick() { (2, "300") } else { (9, "4000") };
    let rows = ROWS.to_string();
    let backfilled = if quick() { "2" } else { "20" };
    for round in 0..rounds {
        let (mut speeds, mut sealed) = (Vec::new(), 0.0);
        let mut wals = [("off", "off"), ("always", "on/off"), ("interval", "interval/off")];
        if round % 2 == 1 {
            wals.reverse();
        }
        for (wal, shown) in wals {
            let figures = child(&fresh()?, &["ingest", wal, "gauges", &rows, times])?;
            speeds.push((shown, figure(&figures, "points_per_second")?));
            if wal == "always" {
                sealed = figure(&figures, "points_per_second_sealed")?;
            }
            add(results, &format!("in-process rows, wal {wal}"), figures);
        }
        let off = speeds.iter().find(|s| s.0 == "off").map_or(f64::NAN, |s| s.1);
        for (shown, speed) in speeds.into_iter().filter(|s| s.0 != "off") {
            let case = format!("in-process rows, wal {shown}");
            results.add(&case, SUBJECT, "speed_ratio", "ratio", speed / off);
        }
        let figures = child(&fresh()?, &["backfill", backfilled])?;
        let ratio = figure(&figures, "points_per_second")? / sealed;
        add(results, BACKFILL, figures);
        results.add(BACKFILL, SUBJECT, "speed_ratio", "ratio", ratio);
    }
    let times = if quick() { "400" } else { "2000" };
    for kind in ["counters", "floats", "gauges"] {
        let figures = child(&fresh()?, &["ingest", "always", kind, &rows, times])?;
        add(results, &format!("{kind} after merge"), figures);
    }
    Ok(())
}

/// Measures opening after a clean end and after a kill, queries without sockets, and the memory of
/// many series.
fn open(results: &mut Results, fresh: Fresh<'_>) -> anyhow::Result<()> {
    let rows = ROWS.to_string();
    let times = if quick() { "400" } else { "2000" };
    let dir = fresh()?;
    child(&dir, &["ingest", "always", "gauges", &rows, times])?;
    let figures = child(&dir, &["query"])?;
    let (asked, opened): (Vec<_>, Vec<_>) =
        figures.into_iter().partition(|(name, _)| name.starts_with("query "));
    add(results, "open", opened);
    let asked = asked.into_iter().map(|(name, ms)| (name.replace("query ", "open store: "), ms));
    for (case, ms) in asked {
        results.add(&case, SUBJECT, "cpu_ms", "ms", ms);
    }
    let dir = fresh()?;
    child(&dir, &["abandon", &rows, times])?;
    add(results, "open after kill", child(&dir, &["replay"])?);
    if !quick() {
        let dir = fresh()?;
        child(&dir, &["ingest", "off", "gauges", &rows, TIMES_OF_A_BILLION])?;
        add(results, "open clean, 1000000000 points", child(&dir, &["reopen"])?);
    }
    let times = if quick() { "20" } else { "50" };
    let many = ROWS_MANY.to_string();
    add(results, "350000 series", child(&fresh()?, &["memory", &many, times])?);
    Ok(())
}
