//! Tables by case, the goals, and the two published figures.

use holdfast_bench::Results;

use crate::scan::{NOTHING, NOTHING_BUILT};
use crate::subject::{LATER, OURS_PER_EVENT, SUBJECTS, YARDSTICK};
use crate::{
    EVENTS, EVENTS_FLUSHED, EVENTS_PAGES, EVENTS_VOLUME, EVENTS_VOLUME_FLUSHED, FEW, FILES,
    FILES_FLUSHED, HELD, volume,
};

const WAL_FULL: &str = "per event, WAL FULL";
const DELETE_FULL: &str = "per event, DELETE FULL";

/// Prints all tables. Single runs are printed only for cases measured now; earlier runs are stored
/// as medians.
pub fn print(results: &Results, scanned: bool) {
    for count in [EVENTS, EVENTS_FLUSHED, EVENTS_PAGES] {
        for case in [
            format!("insert {count}"),
            format!("coalesce {count}"),
            format!("coalesce {count} random"),
            format!("lease+ack {count}"),
        ] {
            events(results, &case);
        }
    }
    for (kind, _) in volume::KINDS {
        for count in [EVENTS_VOLUME, EVENTS_VOLUME_FLUSHED] {
            for what in ["insert", "coalesce"] {
                events(results, &format!("{what} {count} on {kind}"));
            }
        }
    }
    for case in [few_case(), flat_case()] {
        if let Some(seconds) = results.get(&case, "holdfast", "seconds") {
            println!("\n{case}: {:.1} ms for the whole cycle", seconds * 1e3);
        }
    }
    for files in [FILES, FILES_FLUSHED] {
        scans(results, &format!("scan {files} files"));
        if scanned {
            five_runs(results, &format!("scan {files} files"));
        }
    }
    goals(results);
    published(results);
}

fn few_case() -> String {
    format!("lease {FEW} of {HELD}")
}

fn flat_case() -> String {
    format!("{}, one directory", few_case())
}

/// Prints the runs with and without the queue one by one, and WAL next to DELETE.
fn five_runs(results: &Results, case: &str) {
    let runs = |subject: &str| results.runs(case, subject, "seconds");
    let subjects = [NOTHING_BUILT, YARDSTICK, OURS_PER_EVENT, "holdfast", DELETE_FULL];
    let columns: Vec<Vec<f64>> = subjects.iter().map(|subject| runs(subject)).collect();
    let count = runs(YARDSTICK).len();
    if count == 0 {
        return;
    }
    println!("\n{case}, run by run, seconds");
    println!(
        "| run | without queue | with queue (WAL NORMAL) | more | holdfast per event | holdfast | DELETE FULL | DELETE to WAL |"
    );
    println!("|---|---|---|---|---|---|---|---|");
    let line = |name: &str, values: &[Option<f64>]| {
        let show = |at: usize| {
            values.get(at).copied().flatten().map_or(String::new(), |v| format!("{v:.2}"))
        };
        let ratio = |a: usize, b: usize| {
            let (a, b) = (values.get(a).copied().flatten(), values.get(b).copied().flatten());
            a.zip(b).map(|(a, b)| a / b)
        };
        println!(
            "| {name} | {} | {} | {} | {} | {} | {} | {} |",
            show(0),
            show(1),
            ratio(1, 0).map_or(String::new(), |r| format!("{:+.1} %", (r - 1.0) * 100.0)),
            show(2),
            show(3),
            show(4),
            ratio(4, 1).map_or(String::new(), |r| format!("{r:.2}x")),
        );
    };
    for run in 0..count {
        let values: Vec<_> = columns.iter().map(|column| column.get(run).copied()).collect();
        line(&(run + 1).to_string(), &values);
    }
    let mean = |column: &Vec<f64>| {
        (!column.is_empty()).then(|| column.iter().sum::<f64>() / column.len() as f64)
    };
    line("mean", &columns.iter().map(mean).collect::<Vec<_>>());
}

/// Formats a figure, and its ratio to the yardstick's.
fn cell(results: &Results, at: (&str, &str, &str), scale: f64, digits: usize) -> String {
    let (case, subject, metric) = at;
    let Some(value) = results.get(case, subject, metric) else { return String::new() };
    let ratio = results
        .get(case, YARDSTICK, metric)
        .filter(|other| subject != YARDSTICK && *other > 0.0)
        .map_or(String::new(), |other| format!(" ({:.3}x)", value / other));
    format!("{:.digits$}{ratio}", value * scale)
}

fn events(results: &Results, case: &str) {
    if SUBJECTS.iter().all(|(subject, _)| results.get(case, subject, "seconds").is_none()) {
        return;
    }
    println!("\n{case} (in brackets: to {YARDSTICK})");
    println!(
        "| subject | events/s | CPU us/event | kB written/event | seconds | B of database/item | \
         fsyncs/event | context switches/event | waiting us/event |"
    );
    println!("|---|---|---|---|---|---|---|---|---|");
    for (subject, _) in SUBJECTS {
        if results.get(case, subject, "seconds").is_none() {
            continue;
        }
        let cell = |metric, scale, digits| cell(results, (case, subject, metric), scale, digits);
        let alone = results.get(case, subject, "queue_seconds");
        let alone = alone.filter(|_| subject.starts_with("holdfast"));
        println!(
            "| {subject} | {} | {} | {} | {}{} | {} | {} | {} | {} |",
            cell("events_per_second", 1.0, 0),
            cell("cpu_us", 1.0, 2),
            cell("bytes_written", 1e-3, 3),
            cell("seconds", 1.0, 3),
            alone.map_or(String::new(), |s| format!("; without making documents {s:.3}")),
            cell("db_bytes_per_item", 1.0, 0),
            cell("syncs", 1.0, 4),
            cell("context_switches", 1.0, 4),
            cell("wait_us", 1.0, 2),
        );
    }
}

fn scans(results: &Results, case: &str) {
    if results.get(case, NOTHING, "seconds").is_none() {
        return;
    }
    println!("\n{case}: MD5, SHA-1 and SHA-256, one thread");
    println!("| subject | seconds | wall to nothing persisted | CPU | in the queue | kB/file |");
    println!("|---|---|---|---|---|---|");
    for subject in [NOTHING, NOTHING_BUILT].into_iter().chain(SUBJECTS.iter().map(|s| s.0)) {
        let get = |metric| results.get(case, subject, metric);
        let Some(seconds) = get("seconds") else { continue };
        let show = |value: Option<f64>| value.map_or(String::new(), |v| format!("{v:.3}x"));
        println!(
            "| {subject} | {seconds:.3} | {} | {} | {:.1} % | {:.2} |",
            show(get("wall_ratio")),
            show(get("cpu_ratio")),
            get("queue_share").unwrap_or(0.0) * 100.0,
            get("bytes_written").unwrap_or(0.0) / 1e3,
        );
    }
}

/// A goal: its description, the measured value, the limit, and whether more is better.
type Goal = (&'static str, Option<f64>, f64, bool);

fn goals(results: &Results) {
    let insert = format!("insert {EVENTS}");
    let coalesce = format!("coalesce {EVENTS}");
    let random = format!("coalesce {EVENTS} random");
    let lease = format!("lease+ack {EVENTS}");
    let scan = format!("scan {FILES} files");
    let get = |case: &str, subject: &str, metric: &str| results.get(case, subject, metric);
    let ratio = |case: &str, other: &str, metric: &str| {
        Some(get(case, "holdfast", metric)? / get(case, other, metric)?)
    };
    let (rate, cpu, bytes) = ("events_per_second", "cpu_us", "bytes_written");
    let kb = |case: &str, subject: &str| get(case, subject, bytes).map(|b| b / 1e3);
    let per_second = get(&insert, "holdfast power, groups of 100", rate);
    let power = |metric| get(&scan, "holdfast power", metric);
    let list: [Goal; 18] = [
        (
            "lease few of 2 million, ms",
            get(&few_case(), "holdfast", "seconds").map(|s| s * 1e3),
            20.0,
            false,
        ),
        (
            "lease few of 2 million in one directory, ms",
            get(&flat_case(), "holdfast", "seconds").map(|s| s * 1e3),
            20.0,
            false,
        ),
        ("insert, rate to WAL NORMAL", ratio(&insert, YARDSTICK, rate), 30.0, true),
        ("insert, rate to WAL OFF batch 100", ratio(&insert, LATER, rate), 15.0, true),
        ("insert, CPU to WAL NORMAL", ratio(&insert, YARDSTICK, cpu), 1.0 / 20.0, false),
        ("insert, kB written", kb(&insert, "holdfast"), 0.33, false),
        ("coalesce, rate to WAL NORMAL", ratio(&coalesce, YARDSTICK, rate), 12.0, true),
        ("coalesce, rate to WAL OFF batch 100", ratio(&coalesce, LATER, rate), 8.0, true),
        ("coalesce, CPU to WAL NORMAL", ratio(&coalesce, YARDSTICK, cpu), 1.0 / 12.0, false),
        ("coalesce, kB written", kb(&coalesce, "holdfast"), 0.32, false),
        ("coalesce random, kB written", kb(&random, "holdfast"), 0.7, false),
        ("lease + ack, seconds", get(&lease, "holdfast", "seconds"), 0.10, false),
        (
            "lease + ack without making documents, seconds",
            get(&lease, "holdfast", "queue_seconds"),
            0.10,
            false,
        ),
        ("database, B/item", get(&insert, "holdfast", "db_bytes_per_item"), 160.0, false),
        ("power, groups of 100, events/s", per_second, 200_000.0, true),
        ("scan, wall", get(&scan, "holdfast", "wall_ratio"), 1.04, false),
        ("scan, CPU", get(&scan, "holdfast", "cpu_ratio"), 1.04, false),
        ("scan with power, wall", power("wall_ratio"), 1.08, false),
    ];
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

/// Prints the two figures of the published design's own document, next to ours.
fn published(results: &Results) {
    for files in [FILES, FILES_FLUSHED] {
        let case = format!("scan {files} files");
        let get = |subject, metric| results.get(&case, subject, metric);
        if let (Some(delete), Some(wal)) = (get(DELETE_FULL, "seconds"), get(WAL_FULL, "seconds")) {
            let normal = get(YARDSTICK, "seconds").unwrap_or(f64::NAN);
            println!("\nWAL against DELETE, {case} (published on Linux: 2.0x faster):");
            println!("- per event, FULL in both: {:.2}x", delete / wal);
            println!("- per event, WAL NORMAL against DELETE FULL: {:.2}x", delete / normal);
        }
        if let Some(wal) = get(YARDSTICK, "wall_ratio") {
            let more = |subject| {
                get(subject, "wall_ratio").map_or(String::from("not measured"), |r: f64| {
                    format!("{:+.1} %", (r - 1.0) * 100.0)
                })
            };
            println!("\nWhat the queue adds to a scan, {case} (published: 7 % more):");
            println!("- {YARDSTICK}: {:+.1} %", (wal - 1.0) * 100.0);
            for subject in ["holdfast", "holdfast power"] {
                println!("- {subject}: {}", more(subject));
            }
        }
    }
}
