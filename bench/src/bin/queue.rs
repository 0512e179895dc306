//! The agent's queue next to the published transaction-per-event design (reimplemented from its
//! table and statements). All have the same ids, documents and order, and every subject runs in a
//! process of its own, interleaved.
//!
//! Insert and coalesce take finished documents and observations. Lease and acknowledge include
//! building our documents from the observations, because the other design stores whole documents.

#[path = "../queue/child.rs"]
mod child;
#[path = "../queue/peer.rs"]
mod peer;
#[path = "../queue/report.rs"]
mod report;
#[path = "../queue/scan.rs"]
mod scan;
#[path = "../queue/subject.rs"]
mod subject;
#[path = "../queue/syncs.rs"]
mod syncs;
#[path = "../queue/volume.rs"]
mod volume;
#[path = "../queue/workload.rs"]
mod workload;

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use holdfast_bench::{Results, quick};
use serde_json::Value;

use subject::{LATER, OURS_PER_EVENT, SUBJECTS, YARDSTICK};
use volume::Volume;

const EVENTS: u64 = 100_000;
/// Number of events and files for subjects that flush each one, because a flush may take
/// milliseconds.
const EVENTS_FLUSHED: u64 = 1000;
const FILES: u64 = 20_000;
const FILES_FLUSHED: u64 = 1000;
/// Number of events for each page size.
const EVENTS_PAGES: u64 = 20_000;
const ROUNDS: usize = 3;
/// Number of events of each subject on each file system, and of those that flush each one.
const EVENTS_VOLUME: u64 = 20_000;
const EVENTS_VOLUME_FLUSHED: u64 = 500;
/// Number of runs with and without the queue, as published.
const RUNS: usize = 5;
/// Items held and items changed, for a small lease.
const HELD: u64 = 2_000_000;
const FEW: u64 = 20;
/// Time after which a part repeats no case that it has measured once.
const PART_TIME: Duration = Duration::from_secs(80);
/// Number of scans in a short run, for subjects that differ only by percents.
const CLOSE_SCANS_QUICK: usize = 2;

/// Every figure that a child may report, with its unit.
const METRICS: [(&str, &str); 10] = [
    ("events_per_second", "1/s"),
    ("cpu_us", "us"),
    ("bytes_written", "B"),
    ("seconds", "s"),
    ("context_switches", "1"),
    ("syncs", "1"),
    ("wait_us", "us"),
    ("db_bytes_per_item", "B"),
    ("queue_seconds", "s"),
    ("queue_share", "ratio"),
];

fn main() -> anyhow::Result<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["events", subject, count, order, db] => {
            child::run(subject::by_name(subject)?, count.parse()?, order, db.as_ref())
        }
        ["few", held, changed, place, db] => {
            child::few(held.parse()?, changed.parse()?, *place == "flat", db.as_ref())
        }
        ["scan", subject, tree, db] => scan::run(subject, tree.as_ref(), db.as_ref()),
        parts => compare(parts),
    }
}

/// The child processes, their folder and their results.
struct Bench {
    base: PathBuf,
    results: Results,
    /// Start of the current part.
    begun: Instant,
}

const PARTS: [&str; 6] = ["events", "flushed", "pages", "scans", "few", "volumes"];

/// Runs the named parts or all of them. The other parts keep their figures; the figures of each
/// part are saved when it ends.
fn compare(parts: &[&str]) -> anyhow::Result<()> {
    if let Some(part) = parts.iter().find(|p| !PARTS.contains(p)) {
        anyhow::bail!("no part {part}: {}", PARTS.join(", "));
    }
    let wanted = |part: &&str| parts.is_empty() || parts.contains(part);
    let base = std::env::temp_dir().join(format!("holdfast-bench-queue-{}", std::process::id()));
    let results = if parts.is_empty() {
        Results::default()
    } else {
        Results::load("queue", |case, _| parts.contains(&part_of(case)))?
    };
    let mut bench = Bench { base: base.clone(), results, begun: Instant::now() };
    let done = if quick() {
        bench.short()
    } else {
        PARTS.into_iter().filter(wanted).try_for_each(|part| {
            bench.begun = Instant::now();
            bench.part(part)?;
            eprintln!("{part}: {:.0} s", bench.begun.elapsed().as_secs_f64());
            bench.results.save("queue")
        })
    };
    fs::remove_dir_all(&base)?;
    done?;
    let sizes = workload::sizes()?;
    println!("document {} B, as an observation {} B", sizes.document, sizes.stored);
    report::print(&bench.results, wanted(&"scans"));
    bench.results.save("queue")
}

/// Returns the part that measures a case.
fn part_of(case: &str) -> &'static str {
    let ends = |count: u64| {
        let case = case.strip_suffix(" random").unwrap_or(case);
        case.ends_with(&format!(" {count}"))
    };
    match case {
        c if c.contains(" on ") => "volumes",
        c if c.starts_with("scan ") => "scans",
        c if c.starts_with("lease ") => "few",
        _ if ends(EVENTS_PAGES) => "pages",
        _ if ends(EVENTS_FLUSHED) => "flushed",
        _ => "events",
    }
}

impl Bench {
    /// Runs one part, which takes up to eight minutes if a flush takes 3 ms.
    fn part(&mut self, part: &str) -> anyhow::Result<()> {
        match part {
            "events" => self.all_events(),
            "flushed" => self.flushed(),
            "pages" => self.pages(),
            "scans" => self.all_scans(),
            "few" => {
                let [held, few] = [HELD.to_string(), FEW.to_string()];
                for place in ["spread", "flat"] {
                    let words = ["few", &held, &few, place];
                    let rows = self.child(&words.map(OsStr::new))?;
                    self.add_all("holdfast", &rows, "")?;
                }
                Ok(())
            }
            _ => self.volumes(),
        }
    }

    /// Measures subjects with small differences three times, the others once.
    fn all_events(&mut self) -> anyhow::Result<()> {
        let close =
            ["holdfast", YARDSTICK, LATER, "holdfast power", "holdfast power, groups of 100"];
        for round in 0..ROUNDS {
            for (subject, design) in SUBJECTS {
                let often = close.contains(subject);
                let again = round > 0 && (!often || self.begun.elapsed() > PART_TIME);
                if design.is_slow() || subject.contains("page") || again {
                    continue;
                }
                let random = subject.starts_with("holdfast") || round == 0;
                self.events(subject, EVENTS, random)?;
            }
        }
        Ok(())
    }

    /// Measures subjects that flush or journal every event, next to the yardstick. With `FULL=1`
    /// they get as many events as the others.
    fn flushed(&mut self) -> anyhow::Result<()> {
        let full = holdfast_bench::wanted("FULL");
        let count = if full { EVENTS } else { EVENTS_FLUSHED };
        if !full {
            self.events(YARDSTICK, count, false)?;
            self.events(OURS_PER_EVENT, count, false)?;
        }
        for (subject, design) in SUBJECTS {
            if design.is_slow() {
                self.events(subject, count, false)?;
            }
        }
        Ok(())
    }

    fn pages(&mut self) -> anyhow::Result<()> {
        for (subject, _) in SUBJECTS {
            let usual = ["holdfast", OURS_PER_EVENT].contains(subject);
            if usual || subject.contains("page") {
                self.events(subject, EVENTS_PAGES, true)?;
            }
        }
        Ok(())
    }

    fn all_scans(&mut self) -> anyhow::Result<()> {
        let flushed = ["per event, WAL FULL", "per event, DELETE FULL"];
        let tree = self.tree(FILES)?;
        for run in 1..=RUNS {
            eprintln!("scans: run {run} of {RUNS}");
            self.scans(&tree, FILES, &["holdfast", "holdfast power"])?;
            self.scans(&tree, FILES, &[YARDSTICK, LATER, OURS_PER_EVENT])?;
            if holdfast_bench::wanted("FULL") {
                self.scans(&tree, FILES, &flushed)?;
            }
        }
        let tree = self.tree(FILES_FLUSHED)?;
        let [wal, delete] = flushed;
        self.scans(&tree, FILES_FLUSHED, &["holdfast", "holdfast power"])?;
        self.scans(&tree, FILES_FLUSHED, &[YARDSTICK, "per event, DELETE NORMAL", wal, delete])
    }

    /// Measures the three designs on each file system that can be mounted.
    fn volumes(&mut self) -> anyhow::Result<()> {
        for (kind, make) in volume::KINDS {
            let volume = match Volume::new(&self.base, kind, make) {
                Ok(volume) => volume,
                Err(error) => {
                    println!("{kind}: left out: {error:#}");
                    continue;
                }
            };
            let home = std::mem::replace(&mut self.base, volume.folder.clone());
            let subjects = [
                "holdfast",
                OURS_PER_EVENT,
                "holdfast per event power",
                YARDSTICK,
                "per event, WAL FULL",
            ];
            let done = subjects.iter().try_for_each(|subject| {
                let flushes = subject::by_name(subject)?.flushes_each();
                let count = if flushes { EVENTS_VOLUME_FLUSHED } else { EVENTS_VOLUME };
                let count = count.to_string();
                let rows = self.child(&[
                    "events".as_ref(),
                    subject.as_ref(),
                    count.as_ref(),
                    "same".as_ref(),
                ])?;
                self.add_all(subject, &rows, &format!(" on {kind}"))
            });
            self.base = home;
            done?;
        }
        Ok(())
    }

    fn short(&mut self) -> anyhow::Result<()> {
        let slow = ["per event, WAL FULL", "per event, DELETE FULL"];
        for subject in ["holdfast", YARDSTICK, LATER] {
            self.events(subject, EVENTS, subject.starts_with("holdfast"))?;
        }
        for subject in ["holdfast power, groups of 100", OURS_PER_EVENT] {
            self.events(subject, EVENTS, false)?;
        }
        for subject in [YARDSTICK].iter().chain(&slow) {
            self.events(subject, EVENTS_FLUSHED, false)?;
        }
        let tree = self.tree(FILES)?;
        for _ in 0..CLOSE_SCANS_QUICK {
            self.scans(&tree, FILES, &["holdfast", "holdfast power"])?;
        }
        self.scans(&tree, FILES, &[YARDSTICK])?;
        let tree = self.tree(FILES_FLUSHED)?;
        self.scans(&tree, FILES_FLUSHED, &["holdfast", YARDSTICK, slow[0], slow[1]])
    }

    fn tree(&self, files: u64) -> anyhow::Result<PathBuf> {
        let tree = self.base.join(format!("tree-{files}"));
        let bytes = workload::tree(&tree, files)?;
        rustix::fs::sync();
        println!("{files} files, {:.0} MB", bytes as f64 / 1e6);
        Ok(tree)
    }

    /// Measures insert, coalesce, lease and acknowledge of one subject.
    fn events(&mut self, subject: &'static str, count: u64, random: bool) -> anyhow::Result<()> {
        let order = if random { "random" } else { "same" };
        let count = count.to_string();
        let start = Instant::now();
        let rows =
            self.child(&["events".as_ref(), subject.as_ref(), count.as_ref(), order.as_ref()])?;
        eprintln!("{subject}, {count} events: {:.1} s", start.elapsed().as_secs_f64());
        self.add_all(subject, &rows, "")
    }

    fn add_all(&mut self, subject: &str, rows: &[Value], place: &str) -> anyhow::Result<()> {
        for row in rows {
            let case = row.get("case").and_then(Value::as_str).context("a row without a case")?;
            self.add(&format!("{case}{place}"), subject, row);
        }
        Ok(())
    }

    /// Measures a scan that stores nothing, then one by each subject. Ratios use the scans of this
    /// call only.
    fn scans(&mut self, tree: &Path, files: u64, subjects: &[&str]) -> anyhow::Result<()> {
        // The first scan must not write what the subjects before it left in the page cache.
        ensure!(Command::new("sync").status()?.success(), "sync");
        self.child(&["scan".as_ref(), scan::NOTHING.as_ref(), tree.as_os_str()])?;
        let case = format!("scan {files} files");
        let ours = subjects.iter().all(|subject| subject.starts_with("holdfast"));
        let nothing: &[&str] =
            if ours { &[scan::NOTHING] } else { &[scan::NOTHING, scan::NOTHING_BUILT] };
        let mut limits = Vec::new();
        for subject in nothing.iter().chain(subjects) {
            let rows = self.child(&["scan".as_ref(), subject.as_ref(), tree.as_os_str()])?;
            let row = rows.first().context("a scan without figures")?;
            self.add(&case, subject, row);
            let figure = |name| row.get(name).and_then(Value::as_f64).context("a missing figure");
            let (wall, cpu) = (figure("seconds")?, figure("cpu_us")?);
            if nothing.contains(subject) {
                limits.push((wall, cpu));
                continue;
            }
            // The published design builds documents during the scan, so it is compared with a scan
            // that does too.
            let limit =
                if subject.starts_with("holdfast") { limits.first() } else { limits.last() };
            let limit = limit.context("nothing to compare with")?;
            self.results.add(&case, subject, "wall_ratio", "ratio", wall / limit.0);
            self.results.add(&case, subject, "cpu_ratio", "ratio", cpu / limit.1);
        }
        Ok(())
    }

    /// Runs this program again with these arguments and a database of its own. Returns the rows
    /// that it prints.
    fn child(&self, words: &[&OsStr]) -> anyhow::Result<Vec<Value>> {
        let folder = self.base.join("db");
        fs::create_dir_all(&folder)?;
        let child = Command::new(std::env::current_exe()?)
            .args(words)
            .arg(folder.join("queue.db"))
            .stderr(std::process::Stdio::inherit())
            .output()?;
        ensure!(child.status.success(), "{words:?}: {}", child.status);
        fs::remove_dir_all(&folder)?;
        Ok(serde_json::from_slice(&child.stdout)?)
    }

    fn add(&mut self, case: &str, subject: &str, row: &Value) {
        for (metric, unit) in METRICS {
            if let Some(value) = row.get(metric).and_then(Value::as_f64) {
                self.results.add(case, subject, metric, unit, value);
            }
        }
    }
}
