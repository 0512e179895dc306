//! Write amplification of the journal alone: the bytes that reach the medium for each byte of log,
//! at the journal's files or at a block device.

#[path = "../amplification/measure.rs"]
mod measure;
#[path = "../amplification/meter.rs"]
mod meter;
#[path = "../journal/plot.rs"]
mod plot;

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use clap::{Parser, ValueEnum};
use journal::Layout;
use serde_json::{Value, json};

use measure::{Case, Figure, device};
use plot::{Line, Panel, Point, svg};

/// One column of the table.
struct Column {
    metric: &'static str,
    heading: &'static str,
    digits: usize,
}

const fn column(metric: &'static str, heading: &'static str, digits: usize) -> Column {
    Column { metric, heading, digits }
}

const COLUMNS: [Column; 9] = [
    column("write_amplification_zlib", "device, zlib", 2),
    column("write_amplification_lz4", "lz4", 2),
    column("blocks_4k_per_payload", "4 KiB blocks", 1),
    column("log_file_zlib", "log file, zlib", 2),
    column("log_file_lz4", "lz4", 2),
    column("log_file_blocks_per_payload", "4 KiB blocks", 1),
    column("file_system_journal_blocks_per_commit", "file system's journal, blocks a commit", 3),
    column("flushes_per_commit", "flushes a commit", 3),
    column("zero_filling_blocks_per_payload", "zero filling, 4 KiB blocks", 1),
];

/// Measure how many bytes reach the medium for each byte of log, by layout, record size and
/// writers.
#[derive(Debug, Parser)]
struct Arguments {
    /// Layouts to measure.
    #[arg(long, value_enum, value_delimiter = ',', default_value = "packed,sparse,ring")]
    layout: Vec<LayoutName>,
    /// Sizes of records, bytes.
    #[arg(long, value_name = "BYTES", value_delimiter = ',', default_value = "128,32,16",
        value_parser = clap::value_parser!(u32).range(1..=65536))]
    record: Vec<u32>,
    /// Writers that append at the same time.
    #[arg(long, value_name = "N", value_delimiter = ',', default_value = "1,2,4,8,16,32",
        value_parser = clap::value_parser!(u16).range(1..=256))]
    writers: Vec<u16>,
    /// Commits of each case, at least; the ring's take as many as write it twice.
    #[arg(long, default_value_t = 1024, value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    commits: u64,
    /// Measure at a block device under ext4, in recycled segments, with the file system's journal
    /// counted apart. Needs root and /dev/fuse.
    #[arg(long)]
    device: bool,
    /// Write the journals into this folder instead of the one for temporary files; not with
    /// --device.
    #[arg(long, value_name = "DIR", conflicts_with = "device")]
    dir: Option<PathBuf>,
    /// Also show the figures of other logs, from the results of a comparison (JSON).
    #[arg(long, value_name = "FILE")]
    beside: Option<PathBuf>,
    /// Draw the figures into this file.
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
    /// One JSON object.
    #[arg(long)]
    json: bool,
}

/// The layout of groups on blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum LayoutName {
    /// One after the other; the last block is written again.
    Packed,
    /// Each in blocks of its own.
    Sparse,
    /// Sparse in a small ring, packed in an archive.
    Ring,
}

/// One figure of a case and a subject.
struct Row {
    case: String,
    subject: String,
    metric: String,
    value: f64,
}

fn main() -> anyhow::Result<()> {
    let args = Arguments::parse();
    let base = args.dir.clone().unwrap_or_else(std::env::temp_dir);
    if !base.is_dir() {
        bail!("--dir {}: no such folder", base.display());
    }
    let base = base.join(format!("holdfast-amplification-{}", std::process::id()));
    let measured = measure(&args, &base);
    if base.exists() {
        fs::remove_dir_all(&base).with_context(|| base.display().to_string())?;
    }
    let mut rows = measured?;
    if let Some(file) = &args.beside {
        rows.extend(beside(file, &rows)?);
    }
    if args.json {
        let rows: Vec<Value> = rows
            .iter()
            .map(|r| {
                json!({"case": r.case, "subject": r.subject, "metric": r.metric,
                    "value": r.value, "unit": "ratio", "n": 1})
            })
            .collect();
        println!("{}", json!({ "rows": rows }));
    } else {
        println!("{}", table(&rows).trim_end());
    }
    if let Some(file) = &args.svg {
        fs::write(file, drawing(&args, &rows)).with_context(|| file.display().to_string())?;
    }
    Ok(())
}

fn measure(args: &Arguments, base: &Path) -> anyhow::Result<Vec<Row>> {
    let mut rows = Vec::new();
    let device = args.device.then(device).transpose()?;
    let cases = args.record.iter().flat_map(|record| {
        let of_writers = |writers| args.layout.iter().map(move |layout| (writers, *layout));
        args.writers.iter().flat_map(of_writers).map(move |(w, layout)| (*record, *w, layout))
    });
    for (record_bytes, writers, layout) in cases {
        let case = Case {
            layout: layout_of(layout),
            record_bytes: record_bytes as usize,
            writers: u64::from(writers),
            commits: args.commits.max(u64::from(writers)),
        };
        let name = format!("{}-{record_bytes}-{writers}", layout_name(layout));
        let figures: Vec<Figure> = if let Some(device) = &device {
            let dir: PathBuf = device.folder().join(name);
            let figures = case.at_device(device, &dir)?;
            fs::remove_dir_all(&dir)?;
            figures
        } else {
            case.at_files(&base.join(name))?
        };
        rows.extend(figures.into_iter().map(|figure| Row {
            case: case_name(record_bytes, writers),
            subject: format!("holdfast {}", layout_name(layout)),
            metric: figure.metric.to_owned(),
            value: figure.value,
        }));
    }
    Ok(rows)
}

fn layout_of(layout: LayoutName) -> Layout {
    match layout {
        LayoutName::Packed => Layout::Packed,
        LayoutName::Sparse => Layout::Sparse,
        LayoutName::Ring => Layout::Ring,
    }
}

fn layout_name(layout: LayoutName) -> &'static str {
    match layout {
        LayoutName::Packed => "packed",
        LayoutName::Sparse => "sparse",
        LayoutName::Ring => "ring",
    }
}

/// Returns the name of a case, as in the results of the comparisons.
fn case_name(record_bytes: u32, writers: u16) -> String {
    format!("{record_bytes} B, {writers} writer{}", if writers == 1 { "" } else { "s" })
}

/// Returns other logs' figures for the cases measured here.
fn beside(file: &Path, ours: &[Row]) -> anyhow::Result<Vec<Row>> {
    let text = fs::read(file).with_context(|| file.display().to_string())?;
    let value: Value = serde_json::from_slice(&text).with_context(|| file.display().to_string())?;
    let Some(rows) = value.get("rows").and_then(Value::as_array) else {
        bail!("{}: no results; name a file that a comparison wrote", file.display());
    };
    let word = |row: &Value, key: &str| {
        row.get(key).and_then(Value::as_str).unwrap_or_default().to_owned()
    };
    let mut found = Vec::new();
    for row in rows {
        let Some(value) = row.get("value").and_then(Value::as_f64) else { continue };
        let row = Row {
            case: word(row, "case"),
            subject: word(row, "subject"),
            metric: word(row, "metric"),
            value,
        };
        // A figure that is measured differently here is not comparable.
        let known = ours.iter().any(|r| r.case == row.case && r.metric == row.metric);
        if known && !row.subject.starts_with("holdfast") {
            found.push(row);
        }
    }
    Ok(found)
}

/// Returns the distinct values of a field, in the order of their first appearance.
fn distinct<'a>(rows: &'a [Row], field: impl Fn(&'a Row) -> &'a str) -> Vec<&'a str> {
    let mut found = Vec::new();
    for row in rows {
        if !found.contains(&field(row)) {
            found.push(field(row));
        }
    }
    found
}

fn value(rows: &[Row], case: &str, subject: &str, metric: &str) -> Option<f64> {
    let row = rows.iter().find(|r| r.case == case && r.subject == subject && r.metric == metric);
    row.map(|r| r.value)
}

/// Returns a table for each case.
fn table(rows: &[Row]) -> String {
    let mut text = String::from(
        "Bytes on the medium for each byte of log, every 4 KiB block compressed; a flush for every \
         commit.\n",
    );
    let columns: Vec<_> =
        COLUMNS.iter().filter(|c| rows.iter().any(|r| r.metric == c.metric)).collect();
    for case in distinct(rows, |r| &r.case) {
        let headings: Vec<_> = columns.iter().map(|c| c.heading).collect();
        let _ = writeln!(text, "\n| {case} | {} |", headings.join(" | "));
        let _ = writeln!(text, "|---|{}", "---|".repeat(columns.len()));
        for subject in distinct(rows, |r| &r.subject) {
            let cells: Vec<String> = columns
                .iter()
                .map(|column| {
                    let digits = column.digits;
                    value(rows, case, subject, column.metric)
                        .map_or_else(String::new, |v| format!("{v:.digits$}"))
                })
                .collect();
            if cells.iter().any(|cell| !cell.is_empty()) {
                let _ = writeln!(text, "| {subject} | {} |", cells.join(" | "));
            }
        }
    }
    text
}

/// Returns a plot with a panel for each record size and each compressor.
fn drawing(args: &Arguments, rows: &[Row]) -> String {
    let (prefix, place) = if args.device {
        ("write_amplification", "at the block device, the file system included")
    } else {
        ("log_file", "of the log's files")
    };
    let subjects = distinct(rows, |r| &r.subject);
    let line = |record: u32, subject: &str, metric: &str| Line {
        name: subject.to_owned(),
        ours: subject.starts_with("holdfast"),
        points: args
            .writers
            .iter()
            .filter_map(|w| {
                let y = value(rows, &case_name(record, *w), subject, metric)?;
                Some(Point { x: f64::from(*w), y })
            })
            .collect(),
    };
    let mut panels = Vec::new();
    for record in &args.record {
        for compressor in ["zlib", "lz4"] {
            let metric = format!("{prefix}_{compressor}");
            let lines = subjects.iter().map(|subject| line(*record, subject, &metric));
            panels.push(Panel {
                title: format!("{record}-byte records, {compressor}"),
                x: "writers".into(),
                y: "bytes written / bytes of log".into(),
                lines: lines.filter(|line| !line.points.is_empty()).collect(),
            });
        }
    }
    svg(
        &format!("Write amplification {place}"),
        "Every 4 KiB block compressed; a flush for every commit; less is better.",
        &panels,
    )
}
