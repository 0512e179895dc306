//! `holdfast journal bench`: how many bytes reach the medium for each byte of log.

mod measure;
mod meter;
mod plot;

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use console::Console;
use journal::Layout;
use serde_json::{Value, json};

use crate::cli::{JournalBenchArgs, JournalLayout};
use measure::{Case, Figure, device};
use plot::{Line, Panel, svg};

/// Columns of the table: metric, heading, digits.
const COLUMNS: [(&str, &str, usize); 9] = [
    ("write_amplification_zlib", "device, zlib", 2),
    ("write_amplification_lz4", "lz4", 2),
    ("blocks_4k_per_payload", "4 KiB blocks", 1),
    ("log_file_zlib", "log file, zlib", 2),
    ("log_file_lz4", "lz4", 2),
    ("log_file_blocks_per_payload", "4 KiB blocks", 1),
    ("file_system_journal_blocks_per_commit", "file system's journal, blocks a commit", 3),
    ("flushes_per_commit", "flushes a commit", 3),
    ("zero_filling_blocks_per_payload", "zero filling, 4 KiB blocks", 1),
];

/// One figure of a case and a subject.
struct Row {
    case: String,
    subject: String,
    metric: String,
    value: f64,
}

/// Measure, print, draw.
pub(crate) fn run(args: &JournalBenchArgs) -> anyhow::Result<()> {
    let base = args.dir.clone().unwrap_or_else(std::env::temp_dir);
    if !base.is_dir() {
        bail!("--dir {}: no such folder", base.display());
    }
    let base = base.join(format!("holdfast-journal-bench-{}", std::process::id()));
    let measured = measure(args, &base);
    if base.exists() {
        fs::remove_dir_all(&base).with_context(|| base.display().to_string())?;
    }
    let mut rows = measured?;
    if let Some(file) = &args.beside {
        rows.extend(beside(file, &rows)?);
    }
    let console = Console::new();
    if args.json {
        let rows: Vec<Value> = rows
            .iter()
            .map(|r| {
                json!({"case": r.case, "subject": r.subject, "metric": r.metric,
                    "value": r.value, "unit": "ratio", "n": 1})
            })
            .collect();
        console.line(&json!({ "rows": rows }).to_string());
    } else {
        console.line(table(&rows).trim_end());
    }
    if let Some(file) = &args.svg {
        fs::write(file, drawing(args, &rows)).with_context(|| file.display().to_string())?;
    }
    Ok(())
}

fn measure(args: &JournalBenchArgs, base: &Path) -> anyhow::Result<Vec<Row>> {
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
        rows.extend(figures.into_iter().map(|(metric, value)| Row {
            case: case_name(record_bytes, writers),
            subject: format!("holdfast {}", layout_name(layout)),
            metric: metric.to_owned(),
            value,
        }));
    }
    Ok(rows)
}

fn layout_of(layout: JournalLayout) -> Layout {
    match layout {
        JournalLayout::Packed => Layout::Packed,
        JournalLayout::Sparse => Layout::Sparse,
        JournalLayout::Ring => Layout::Ring,
    }
}

fn layout_name(layout: JournalLayout) -> &'static str {
    match layout {
        JournalLayout::Packed => "packed",
        JournalLayout::Sparse => "sparse",
        JournalLayout::Ring => "ring",
    }
}

/// The name of a case, as in the results of the comparisons.
fn case_name(record_bytes: u32, writers: u16) -> String {
    format!("{record_bytes} B, {writers} writer{}", if writers == 1 { "" } else { "s" })
}

/// Other logs' figures in the cases measured here.
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
        // What was measured here in another way than there stands for nothing beside it.
        let known = ours.iter().any(|r| r.case == row.case && r.metric == row.metric);
        if known && !row.subject.starts_with("holdfast") {
            found.push(row);
        }
    }
    Ok(found)
}

/// Different values of a field, in the order of their first appearance.
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

/// A table for each case.
fn table(rows: &[Row]) -> String {
    let mut text = String::from(
        "Bytes on the medium for each byte of log, every 4 KiB block compressed; a flush for every \
         commit.\n",
    );
    let columns: Vec<_> = COLUMNS.iter().filter(|c| rows.iter().any(|r| r.metric == c.0)).collect();
    for case in distinct(rows, |r| &r.case) {
        let headings: Vec<_> = columns.iter().map(|c| c.1).collect();
        let _ = writeln!(text, "\n| {case} | {} |", headings.join(" | "));
        let _ = writeln!(text, "|---|{}", "---|".repeat(columns.len()));
        for subject in distinct(rows, |r| &r.subject) {
            let cells: Vec<String> = columns
                .iter()
                .map(|(metric, _, digits)| {
                    value(rows, case, subject, metric)
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

/// A panel for each size of records and each compressor.
fn drawing(args: &JournalBenchArgs, rows: &[Row]) -> String {
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
                Some((f64::from(*w), value(rows, &case_name(record, *w), subject, metric)?))
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
