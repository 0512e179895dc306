//! The agent's queue beside the published transaction-per-event design (reimplemented from its
//! table and statements): the same ids, documents and order for all, every subject in a process of
//! its own, interleaved.
//!
//! Insert and coalesce take documents and observations ready-made; lease and acknowledge include
//! making ours from the observations, since the other design stores documents whole.

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

use anyhow::{Context as _, ensure};
use holdfast_bench::{Results, quick};
use serde_json::Value;

use subject::{LATER, OURS_PER_EVENT, SUBJECTS, YARDSTICK};
use volume::Volume;

const EVENTS: u64 = 100_000;
/// Events of those that flush each one, in a short run.
const EVENTS_QUICK: u64 = 2000;
const FILES: u64 = 20_000;
const FILES_QUICK: u64 = 1000;
const ROUNDS: usize = 3;
/// Events of each subject on each file system.
const EVENTS_VOLUME: u64 = 20_000;
/// Runs with and without the queue, as published.
const RUNS: usize = 5;
/// Scans of those that take ten times as long.
const SLOW_SCANS: usize = 2;
/// Items held, and those of them that change, for a small lease.
const HELD: u64 = 2_000_000;
const FEW: u64 = 20;
/// Scans of the subjects that differ by percents only, in a short run.
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
        ["few", held, changed, db] => child::few(held.parse()?, changed.parse()?, db.as_ref()),
        ["scan", subject, tree, db] => scan::run(subject, tree.as_ref(), db.as_ref()),
        [] => compare(),
        _ => anyhow::bail!("no arguments, please; QUICK=1 for a short run"),
    }
}

/// Children, their folder and what they reported.
struct Bench {
    base: PathBuf,
    results: Results,
}

fn compare() -> anyhow::Result<()> {
    let base = std::env::temp_dir().join(format!("holdfast-bench-queue-{}", std::process::id()));
    let mut bench = Bench { base: base.clone(), results: Results::default() };
    let done = if quick() { bench.short() } else { bench.whole() };
    fs::remove_dir_all(&base)?;
    done?;
    let (document, stored) = workload::sizes()?;
    println!("document {document} B, as an observation {stored} B");
    report::print(&bench.results);
    bench.results.save("queue")
}

impl Bench {
    /// About eight minutes; `FULL=1` repeats also what takes minutes itself.
    fn whole(&mut self) -> anyhow::Result<()> {
        let full = holdfast_bench::wanted("FULL");
        let tree = self.tree(FILES)?;
        for round in 0..ROUNDS {
            for (subject, _) in SUBJECTS {
                let flushes = subject.ends_with("FULL") || subject.contains("DELETE");
                let once =
                    flushes || subject.contains("page") || subject.ends_with("per event power");
                // Those differ by multiples: once.
                let left_out = subject.contains("DELETE NORMAL") || subject.contains("DELETE OFF");
                if full || (!left_out && (round == 0 || !once)) {
                    self.events(subject, EVENTS, !flushes)?;
                }
            }
        }
        for run in 0..RUNS {
            self.scans(&tree, FILES, &["holdfast", "holdfast power"])?;
            self.scans(&tree, FILES, &[YARDSTICK, "per event, WAL FULL", LATER])?;
            self.scans(&tree, FILES, &[OURS_PER_EVENT])?;
            if full || run < SLOW_SCANS {
                self.scans(&tree, FILES, &["per event, DELETE FULL"])?;
            }
        }
        let words = [HELD.to_string(), FEW.to_string()];
        let rows = self.child(&["few".as_ref(), words[0].as_ref(), words[1].as_ref()])?;
        self.add_all("holdfast", &rows, "")?;
        self.volumes()
    }

    /// The three designs on each file system that can be mounted.
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
                let count = EVENTS_VOLUME.to_string();
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
            self.events(subject, EVENTS_QUICK, false)?;
        }
        let tree = self.tree(FILES)?;
        for _ in 0..CLOSE_SCANS_QUICK {
            self.scans(&tree, FILES, &["holdfast", "holdfast power"])?;
        }
        self.scans(&tree, FILES, &[YARDSTICK])?;
        let tree = self.tree(FILES_QUICK)?;
        self.scans(&tree, FILES_QUICK, &["holdfast", YARDSTICK, slow[0], slow[1]])
    }

    fn tree(&self, files: u64) -> anyhow::Result<PathBuf> {
        let tree = self.base.join(format!("tree-{files}"));
        let bytes = workload::tree(&tree, files)?;
        rustix::fs::sync();
        println!("{files} files, {:.0} MB", bytes as f64 / 1e6);
        Ok(tree)
    }

    /// Insert, coalesce, lease and acknowledge by one subject.
    fn events(&mut self, subject: &'static str, count: u64, random: bool) -> anyhow::Result<()> {
        let order = if random { "random" } else { "same" };
        let count = count.to_string();
        let rows =
            self.child(&["events".as_ref(), subject.as_ref(), count.as_ref(), order.as_ref()])?;
        self.add_all(subject, &rows, "")
    }

    fn add_all(&mut self, subject: &str, rows: &[Value], place: &str) -> anyhow::Result<()> {
        for row in rows {
            let case = row.get("case").and_then(Value::as_str).context("a row without a case")?;
            self.add(&format!("{case}{place}"), subject, row);
        }
        Ok(())
    }

    /// A scan with nothing kept, then one by each subject; ratios are taken within this call.
    fn scans(&mut self, tree: &Path, files: u64, subjects: &[&str]) -> anyhow::Result<()> {
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
            // The published design makes documents while it scans: it is measured against that.
            let limit =
                if subject.starts_with("holdfast") { limits.first() } else { limits.last() };
            let limit = limit.context("nothing to compare with")?;
            self.results.add(&case, subject, "wall_ratio", "ratio", wall / limit.0);
            self.results.add(&case, subject, "cpu_ratio", "ratio", cpu / limit.1);
        }
        Ok(())
    }

    /// Run this program once more with these words and a database of its own; it prints rows.
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
