//! Tables, goals and plots.

use std::path::Path;

use holdfast_bench::Results;

use crate::amplify::case;
use crate::plot::{Line, Panel, Point, svg};
use crate::subject::{AMPLIFIED, FIRST_USE, TIMED, YARDSTICK};

/// Sizes of records, bytes.
pub const RECORDS: [usize; 3] = [16, 32, 128];
/// Writers whose amplification is measured.
pub const WRITERS: [usize; 6] = [1, 2, 4, 8, 16, 32];
/// Sizes of the records whose commits are timed, bytes.
pub const TIMED_RECORDS: [usize; 3] = [16, 128, 1024];
/// Writers whose commits are timed.
pub const TIMED_WRITERS: [usize; 4] = [1, 4, 16, 64];
/// The suffix of the names of ours when tasks append.
pub const TASKS: &str = ", tasks";

fn names() -> impl Iterator<Item = String> {
    let threads = AMPLIFIED.iter().chain(FIRST_USE).chain(TIMED).map(|s| s.0.to_owned());
    let tasks = AMPLIFIED.iter().filter(|s| s.0.starts_with("holdfast"));
    threads.chain(tasks.map(|s| format!("{}{TASKS}", s.0)))
}

/// Prints all tables and goals.
pub fn print(results: &Results) {
    for record in RECORDS {
        for writers in WRITERS {
            amplification(results, &case(record, writers));
        }
    }
    for record in TIMED_RECORDS {
        for writers in TIMED_WRITERS {
            commits(results, &case(record, writers));
        }
    }
    others(results);
    goals(results);
}

fn cell(results: &Results, case: &str, subject: &str, metric: &str, digits: usize) -> String {
    let value = results.get(case, subject, metric);
    value.map_or_else(String::new, |v| format!("{v:.digits$}"))
}

fn amplification(results: &Results, case: &str) {
    let metric = "write_amplification_zlib";
    if !names().any(|name| results.get(case, &name, metric).is_some()) {
        return;
    }
    println!("\n{case}: bytes on the medium for each byte of payload, each 4 KiB compressed");
    println!(
        "| subject | zlib | lz4 | log file alone, zlib | lz4 | file system's journal, blocks a \
         commit | 4 KiB blocks, uncompressed | flushes a commit | zero filling, zlib | reduction \
         to {YARDSTICK}, zlib | lz4 |"
    );
    println!("|---|---|---|---|---|---|---|---|---|---|---|");
    for name in names() {
        if results.get(case, &name, metric).is_none() {
            continue;
        }
        let cell = |metric, digits| cell(results, case, &name, metric, digits);
        let reduction = |metric| {
            let (theirs, ours) =
                (results.get(case, YARDSTICK, metric), results.get(case, &name, metric));
            match (theirs, ours) {
                (Some(theirs), Some(ours)) if name != YARDSTICK => {
                    format!("{:.1}x", theirs / ours)
                }
                _ => String::new(),
            }
        };
        println!(
            "| {name} | {} | {} | {} | {} | {} | {} | {} | {} | {} | {} |",
            cell(metric, 2),
            cell("write_amplification_lz4", 2),
            cell("log_file_zlib", 2),
            cell("log_file_lz4", 2),
            cell("file_system_journal_blocks_per_commit", 3),
            cell("blocks_4k_per_payload", 1),
            cell("flushes_per_commit", 3),
            cell("zero_filling_zlib", 2),
            reduction(metric),
            reduction("write_amplification_lz4"),
        );
    }
}

fn commits(results: &Results, case: &str) {
    let metric = "commits_per_second";
    if !names().any(|name| results.get(case, &name, metric).is_some()) {
        return;
    }
    println!("\n{case}: durable commits (in brackets: to {YARDSTICK})");
    println!("| subject | commits/s | p50 us | p99 us | CPU us/commit |");
    println!("|---|---|---|---|---|");
    for name in names() {
        let Some(value) = results.get(case, &name, metric) else { continue };
        let ratio = results
            .get(case, YARDSTICK, metric)
            .map_or_else(String::new, |other| format!(" ({:.2}x)", value / other));
        let cell = |metric, digits| cell(results, case, &name, metric, digits);
        println!(
            "| {name} | {value:.0}{ratio} | {} | {} | {} |",
            cell("p50_us", 0),
            cell("p99_us", 0),
            cell("cpu_us", 1)
        );
    }
}

/// Prints the text next to the two tables.
fn others(results: &Results) {
    let rows = results.rows_where(|case| !case.contains("writer"));
    if rows.is_empty() {
        return;
    }
    println!("\n| case | subject | metric | median |");
    println!("|---|---|---|---|");
    for row in rows {
        let unit = if row.unit == "1" || row.unit == "ratio" { "" } else { row.unit };
        println!("| {} | {} | {} | {:.3} {unit} |", row.case, row.subject, row.metric, row.median);
    }
}

/// A goal: its description, the measured value, the limit, and whether more is better.
type Goal = (String, Option<f64>, f64, bool);

fn goals(results: &Results) {
    let (one, many) = (case(16, 1), case(16, 32));
    let get = |case: &str, subject: &str, metric: &str| results.get(case, subject, metric);
    let (zlib, lz4) = ("write_amplification_zlib", "write_amplification_lz4");
    let mut list: Vec<Goal> = vec![
        ("sparse, 16 B, 1 writer, zlib".into(), get(&one, "holdfast sparse", zlib), 4.5, false),
        ("sparse, 16 B, 1 writer, lz4".into(), get(&one, "holdfast sparse", lz4), 3.1, false),
        ("sparse, 16 B, 32 writers, zlib".into(), get(&many, "holdfast sparse", zlib), 1.3, false),
        ("ring, 16 B, 1 writer, zlib".into(), get(&one, "holdfast ring", zlib), 6.0, false),
        (
            "ring, log space to payload".into(),
            get("log space, 16 B", "holdfast ring", "log_space"),
            1.6,
            false,
        ),
    ];
    let rate = "commits_per_second";
    let ours = ["holdfast sparse", "holdfast ring", "holdfast packed"];
    let peers = [
        "rocksdb",
        "wiredtiger",
        "sqlite full",
        "sqlite full, group commit",
        "raft-engine",
        "okaywal",
    ];
    let best =
        |case: &str, of: &[&str]| of.iter().filter_map(|s| get(case, s, rate)).reduce(f64::max);
    let ratio = |a: Option<f64>, b: Option<f64>| Some(a? / b?);
    let (c1, c16, c64) = (case(128, 1), case(128, 16), case(128, 64));
    let tasks: Vec<String> = ours.iter().map(|s| format!("{s}{TASKS}")).collect();
    let tasks: Vec<&str> = tasks.iter().map(String::as_str).collect();
    list.extend([
        (
            "128 B, 1 writer, best of ours to best peer".into(),
            ratio(best(&c1, &ours), best(&c1, &peers)),
            0.95,
            true,
        ),
        (
            "128 B, 16 writers, best of ours to best peer".into(),
            ratio(best(&c16, &ours), best(&c16, &peers)),
            1.0,
            true,
        ),
        (
            "128 B, 64 writers, to rocksdb".into(),
            ratio(best(&c64, &ours), get(&c64, YARDSTICK, rate)),
            3.0,
            true,
        ),
        (
            "128 B, 64 writers, to the best Rust log".into(),
            ratio(best(&c64, &ours), best(&c64, &["raft-engine", "okaywal"])),
            1.25,
            true,
        ),
        (
            "128 B, 64 tasks, to rocksdb with 64 threads".into(),
            ratio(best(&c64, &tasks), get(&c64, YARDSTICK, rate)),
            5.0,
            true,
        ),
        (
            "append without sync, 128 B, CPU ns a record, one by one".into(),
            get("append without sync, 128 B", "holdfast, one by one", "cpu_ns_per_record"),
            300.0,
            false,
        ),
        (
            "append without sync, 128 B, CPU ns a record, 32 together".into(),
            get("append without sync, 128 B", "holdfast, 32 together", "cpu_ns_per_record"),
            300.0,
            false,
        ),
    ]);
    println!("\n| goal for holdfast | measured | limit | |");
    println!("|---|---|---|---|");
    for (words, measured, limit, more) in list {
        let Some(value) = measured else { continue };
        let met = if more { value >= limit } else { value <= limit };
        let sign = if more { ">=" } else { "<=" };
        let met = if met { "met" } else { "missed" };
        println!("| {words} | {value:.3} | {sign} {limit:.3} | {met} |");
    }
}

/// Draws the two plots, as far as their figures exist.
pub fn plot(results: &Results, folder: &Path) -> anyhow::Result<()> {
    let lines = |record: usize, writers: &[usize], metric: &str, subjects: &[String]| {
        let mut lines = Vec::new();
        for name in subjects {
            let points: Vec<Point> = writers
                .iter()
                .filter_map(|w| {
                    let y = results.get(&case(record, *w), name, metric)?;
                    Some(Point { x: *w as f64, y })
                })
                .collect();
            if !points.is_empty() {
                lines.push(Line { name: name.clone(), ours: name.starts_with("holdfast"), points });
            }
        }
        lines
    };
    let subjects: Vec<String> = AMPLIFIED.iter().map(|s| s.0.to_owned()).collect();
    let amplified = [(16, "zlib"), (16, "lz4"), (128, "zlib")].map(|(record, by)| {
        let metric = format!("write_amplification_{by}");
        let title = format!("{record}-byte records, {by}");
        (title, lines(record, &WRITERS, &metric, &subjects))
    });
    let drawn = draw(
        "Write amplification at the block device, the file system included",
        "Bytes on the medium for each byte of log, every 4 KiB block compressed; a flush for every \
         commit; ext4; less is better.",
        "bytes written / bytes of log",
        amplified,
    );
    save(&folder.join("journal-amplification.svg"), &drawn)?;
    let subjects: Vec<String> = names().filter(|n| !n.contains("first use")).collect();
    let timed = TIMED_RECORDS.map(|record| {
        let title = format!("{record}-byte records");
        (title, lines(record, &TIMED_WRITERS, "commits_per_second", &subjects))
    });
    let drawn = draw(
        "Durable commits per second",
        "Acknowledged after the medium has them; one record a commit; more is better.",
        "commits per second",
        timed,
    );
    save(&folder.join("journal-commits.svg"), &drawn)
}

fn draw<const N: usize>(
    title: &str,
    note: &str,
    y: &str,
    panels: [(String, Vec<Line>); N],
) -> String {
    let panels: Vec<Panel> = panels
        .into_iter()
        .filter(|(_, lines)| !lines.is_empty())
        .map(|(title, lines)| Panel { title, x: "writers".into(), y: y.into(), lines })
        .collect();
    if panels.is_empty() { String::new() } else { svg(title, note, &panels) }
}

fn save(path: &Path, drawn: &str) -> anyhow::Result<()> {
    if !drawn.is_empty() {
        std::fs::write(path, drawn)?;
    }
    Ok(())
}
