//! The journal next to other logs: write amplification at a block device, durable commits per
//! second, and recovery. Every subject runs in a process of its own, interleaved.

#[path = "../journal/amplify.rs"]
mod amplify;
#[path = "../journal/commits.rs"]
mod commits;
#[path = "../journal/ours.rs"]
mod ours;
#[path = "../journal/peers.rs"]
mod peers;
#[path = "../journal/plot.rs"]
mod plot;
#[path = "../journal/recover.rs"]
mod recover;
#[path = "../journal/report.rs"]
mod report;
#[path = "../journal/sqlite.rs"]
mod sqlite;
#[path = "../journal/subject.rs"]
mod subject;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use holdfast_bench::{Results, quick};
use journal::{IoPath, Layout};
use serde_json::Value;

use report::{RECORDS, TASKS, TIMED_RECORDS, TIMED_WRITERS, WRITERS};
use subject::{AMPLIFIED, FIRST_USE, Subject, TIMED, by_name};

const COMMITS: usize = 1024;
const COMMITS_QUICK: usize = 256;
const ROUNDS: usize = 3;
const TIMED_MS: u64 = 600;
const TIMED_MS_QUICK: u64 = 150;

/// Every figure that a child may report, with its unit.
const METRICS: [(&str, &str); 25] = [
    ("write_amplification_zlib", "ratio"),
    ("write_amplification_lz4", "ratio"),
    ("log_file_zlib", "ratio"),
    ("log_file_lz4", "ratio"),
    ("file_system_journal_zlib", "ratio"),
    ("file_system_journal_blocks_per_commit", "ratio"),
    ("blocks_4k_per_payload", "ratio"),
    ("log_file_blocks_per_payload", "ratio"),
    ("flushes_per_commit", "ratio"),
    ("zero_filling_zlib", "ratio"),
    ("zero_filling_blocks_per_payload", "ratio"),
    ("log_space", "ratio"),
    ("records_written", "1"),
    ("records_lost", "1"),
    ("flushes", "1"),
    ("io_direct", "1"),
    ("commits_per_second", "1/s"),
    ("p50_us", "us"),
    ("p99_us", "us"),
    ("cpu_us", "us"),
    ("recovered_gb_per_second", "GB/s"),
    ("cpu_s_per_gb", "s"),
    ("bytes_read", "B"),
    ("rss_mb", "MB"),
    ("cpu_ns_per_record", "ns"),
];

fn main() -> anyhow::Result<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["child", child @ ..] => child_process(child),
        parts => compare(parts),
    }
}

/// Runs one subject in this process and prints its rows.
fn child_process(words: &[&str]) -> anyhow::Result<()> {
    match words {
        ["amplify", subject, records, writers, commits] => amplify::run(
            by_name(subject)?,
            &numbers(records)?,
            &numbers(writers)?,
            commits.parse()?,
        ),
        ["space", records] => amplify::space(records.parse()?),
        ["paced", layout, every_ms, run_ms] => amplify::paced(
            layout_of(layout)?,
            Duration::from_millis(every_ms.parse()?),
            Duration::from_millis(run_ms.parse()?),
        ),
        ["btrfs", io, commits, record] => {
            let io = match *io {
                "direct" => IoPath::Direct,
                "buffered" => IoPath::Fdatasync,
                _ => IoPath::Auto,
            };
            amplify::btrfs(io, commits.parse()?, record.parse()?)
        }
        ["commits", subject, record, writers, ms, base] => {
            let time = Duration::from_millis(ms.parse()?);
            let run = if subject.ends_with(TASKS) { commits::run_tasks } else { commits::run };
            let kind = by_name(subject.trim_end_matches(TASKS))?;
            run(kind, record.parse()?, &numbers(writers)?, time, Path::new(base))
        }
        ["recover-write", folder, bytes] => recover::write(folder.as_ref(), bytes.parse()?),
        ["recover-open", folder] => recover::open(folder.as_ref()),
        ["append", "bare", folder] => recover::bare_writes(folder.as_ref()),
        ["append", together, folder] => recover::append(folder.as_ref(), together.parse()?),
        _ => anyhow::bail!("no child {words:?}"),
    }
}

fn numbers(list: &str) -> anyhow::Result<Vec<usize>> {
    list.split(',').map(|n| Ok(n.parse()?)).collect()
}

fn list(numbers: &[usize]) -> String {
    numbers.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")
}

fn layout_of(name: &str) -> anyhow::Result<Layout> {
    Ok(match name {
        "sparse" => Layout::Sparse,
        "ring" => Layout::Ring,
        "packed" => Layout::Packed,
        other => anyhow::bail!("no layout {other}"),
    })
}

/// The child processes, their folder and their results.
struct Bench {
    base: PathBuf,
    results: Results,
}

/// Runs the named parts or all of them: amplification, paced, btrfs, commits, recovery. The other
/// parts keep their figures.
fn compare(parts: &[&str]) -> anyhow::Result<()> {
    const PARTS: [&str; 5] = ["amplification", "paced", "btrfs", "commits", "recovery"];
    if let Some(part) = parts.iter().find(|p| !PARTS.contains(p)) {
        anyhow::bail!("no part {part}: {}", PARTS.join(", "));
    }
    let wanted = |part: &str| parts.is_empty() || parts.contains(&part);
    let base =
        std::env::var_os("HOLDFAST_BENCH_DIR").map_or_else(std::env::temp_dir, PathBuf::from);
    let base = base.join(format!("holdfast-bench-journal-{}", std::process::id()));
    fs::create_dir_all(&base)?;
    let results = if parts.is_empty() { Results::default() } else { load_kept_results(parts)? };
    let mut bench = Bench { base: base.clone(), results };
    let done = PARTS.into_iter().filter(|p| wanted(p)).try_for_each(|part| {
        eprintln!("{part}");
        bench.part(part)
    });
    fs::remove_dir_all(&base)?;
    done?;
    report::print(&bench.results);
    bench.results.save("journal")?;
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("results");
    report::plot(&bench.results, &folder)
}

impl Bench {
    fn part(&mut self, part: &str) -> anyhow::Result<()> {
        let needs_device = ["amplification", "paced", "btrfs"].contains(&part);
        let fs = if part == "btrfs" { device::Fs::BtrfsZstd } else { device::Fs::Ext4 };
        if needs_device && let Err(why) = device::available(fs) {
            eprintln!("{part} skipped: {why}");
            return Ok(());
        }
        let rounds = if quick() { 1 } else { ROUNDS };
        match part {
            "amplification" => self.amplification(),
            "paced" => self.paced(),
            "btrfs" => self.btrfs(),
            "commits" => (0..rounds).try_for_each(|_| self.commits()),
            _ => self.recovery(),
        }
    }

    /// The result is deterministic with one writer, so only a full run has more rounds.
    fn amplification(&mut self) -> anyhow::Result<()> {
        let (records, writers, commits): (&[usize], &[usize], usize) = match quick() {
            true => (&[16], &[1, 32], COMMITS_QUICK),
            false => (&RECORDS, &WRITERS, COMMITS),
        };
        for _ in 0..if full() { ROUNDS } else { 1 } {
            for (subject, _) in present(AMPLIFIED) {
                let words = ["amplify", subject, &list(records), &list(writers)];
                self.cases(subject, &words, &[&commits.to_string()])?;
            }
            for (subject, _) in present(FIRST_USE).filter(|_| !quick()) {
                let words = ["amplify", subject, "16,128", "1,32"];
                self.cases(subject, &words, &[&commits.to_string()])?;
            }
        }
        let rows = self.child(&["space", if quick() { "20000" } else { "100000" }], &[])?;
        self.add("log space, 16 B", "holdfast ring", &rows)
    }

    fn paced(&mut self) -> anyhow::Result<()> {
        // The power cut falls in the middle of a period.
        let mut runs = vec![("second", "1000", if quick() { "1500" } else { "5500" })];
        if full() {
            runs.push(("minute", "60000", "90000"));
        }
        for (name, every, run) in runs {
            for layout in ["packed", "sparse", "ring"] {
                let rows = self.child(&["paced", layout, every, run], &[])?;
                let case = format!("16 B, 2000 records/s, flush every {name}");
                self.add(&case, &format!("holdfast {layout}"), &rows)?;
            }
        }
        Ok(())
    }

    fn btrfs(&mut self) -> anyhow::Result<()> {
        let commits = if quick() { "100" } else { "1000" };
        for record in ["16", "128"] {
            for (name, io) in [("", "auto"), (", direct", "direct"), (", buffered", "buffered")] {
                let rows = self.child(&["btrfs", io, commits, record], &[])?;
                let case = format!("btrfs compress=zstd, {record} B");
                self.add(&case, &format!("holdfast sparse{name}"), &rows)?;
            }
        }
        Ok(())
    }

    fn commits(&mut self) -> anyhow::Result<()> {
        let (records, writers, ms): (&[usize], &[usize], u64) = match quick() {
            true => (&[128], &[1, 64], TIMED_MS_QUICK),
            false => (&TIMED_RECORDS, &TIMED_WRITERS, TIMED_MS),
        };
        let base = self.base.join("commits").display().to_string();
        for record in records {
            for (subject, kind) in present(AMPLIFIED).chain(present(TIMED)) {
                let one = [1];
                let writers = if kind.is_limit() { &one[..] } else { writers };
                let words = ["commits", subject, &record.to_string(), &list(writers)];
                self.cases(subject, &words, &[&ms.to_string(), &base])?;
            }
            for (subject, _) in AMPLIFIED.iter().filter(|s| s.0.starts_with("holdfast")) {
                let subject = format!("{subject}{TASKS}");
                let tasks: Vec<usize> = if quick() { vec![64] } else { vec![1, 4, 16, 64, 256] };
                let words = ["commits", &subject, &record.to_string(), &list(&tasks)];
                self.cases(&subject, &words, &[&ms.to_string(), &base])?;
            }
        }
        Ok(())
    }

    fn recovery(&mut self) -> anyhow::Result<()> {
        let gigabytes = if full() {
            10
        } else if quick() {
            1
        } else {
            2
        };
        let folder = self.base.join("recover");
        let path = folder.display().to_string();
        let bytes = (gigabytes as u64 * 1_000_000_000).to_string();
        self.run(&["recover-write", &path, &bytes], &[])?;
        let case = format!("recover {gigabytes} GB");
        for _ in 0..if quick() { 1 } else { ROUNDS } {
            // Opening seals the log, so each round opens what the round before left, which is not
            // closed either.
            let rows = self.child(&["recover-open", &path], &[])?;
            self.add(&case, "holdfast packed", &rows)?;
        }
        fs::remove_dir_all(&folder)?;
        let subjects = [
            ("1", "holdfast, one by one"),
            ("32", "holdfast, 32 together"),
            ("bare", "limit: a write of one block"),
        ];
        for _ in 0..if quick() { 1 } else { ROUNDS } {
            for (together, subject) in subjects {
                let rows = self.child(&["append", together, &path], &[])?;
                self.add("append without sync, 128 B", subject, &rows)?;
                fs::remove_dir_all(&folder)?;
            }
        }
        Ok(())
    }

    /// Runs a child whose rows name their cases.
    fn cases(&mut self, subject: &str, words: &[&str], more: &[&str]) -> anyhow::Result<()> {
        for row in self.child(words, more)? {
            let case = row.get("case").and_then(Value::as_str).context("a row without a case")?;
            let case = case.to_owned();
            self.add(&case, subject, &[row])?;
        }
        Ok(())
    }

    fn add(&mut self, case: &str, subject: &str, rows: &[Value]) -> anyhow::Result<()> {
        for row in rows {
            let name =
                row.get("metric").and_then(Value::as_str).context("a row without a metric")?;
            let value = row.get("value").and_then(Value::as_f64).unwrap_or(f64::NAN);
            let known = METRICS.iter().find(|m| m.0 == name).context(name.to_owned())?;
            self.results.add(case, subject, known.0, known.1, value);
        }
        Ok(())
    }

    /// Runs this program with these arguments and returns the rows that it prints.
    fn child(&self, words: &[&str], more: &[&str]) -> anyhow::Result<Vec<Value>> {
        Ok(serde_json::from_slice(&self.run(words, more)?)?)
    }

    fn run(&self, words: &[&str], more: &[&str]) -> anyhow::Result<Vec<u8>> {
        let mut command = Command::new(std::env::current_exe()?);
        let out = command.arg("child").args(words).args(more).output()?;
        let said = String::from_utf8_lossy(&out.stderr);
        ensure!(out.status.success(), "{}: {said}", words.join(" "));
        Ok(out.stdout)
    }
}

/// Returns the figures of an earlier run that none of these parts measures again.
fn load_kept_results(parts: &[&str]) -> anyhow::Result<Results> {
    let part_of = |case: &str, metric: &str| match case {
        c if c.contains("flush every") => "paced",
        c if c.starts_with("btrfs") => "btrfs",
        c if c.starts_with("recover") || c.starts_with("append") => "recovery",
        _ if ["commits_per_second", "p50_us", "p99_us", "cpu_us"].contains(&metric) => "commits",
        _ => "amplification",
    };
    Results::load("journal", |case, metric| parts.contains(&part_of(case, metric)))
}

/// Returns the available subjects and prints why the others are missing.
fn present(subjects: &'static [Subject]) -> impl Iterator<Item = &'static Subject> {
    subjects.iter().filter(|(name, kind)| {
        let missing = kind.missing();
        if let Some(why) = missing {
            eprintln!("{name} skipped: {why}");
        }
        missing.is_none()
    })
}

/// Returns true if a long run was asked for.
fn full() -> bool {
    std::env::var("FULL").is_ok_and(|f| f != "0" && !f.is_empty())
}
