//! `holdfast scan`: prints what is on the disk, without a server or a database; or what differs
//! from an agent's baseline, which stays as it is.

mod baseline;
mod compare;

use std::io::{self, BufWriter, IsTerminal as _, Write};
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use anyhow::Context as _;
use detect::{Cancel, Gap, GapKind, Progress, RootState, Rules, ScanOptions, Scanner, SystemNames};
use env::clock::SystemClock;
use model::traits::PortError;
use model::{ChangeBatch, FileBody, Op, Sink, SinkOutcome};
use run::{print_scan, show_progress};
use service::Console;

pub use crate::compare::compare;

use crate::baseline::Baselines;

/// Paths to scan, and the form of the output.
#[derive(Debug, Clone)]
pub struct ScanRequest {
    pub paths: Vec<PathBuf>,
    /// One JSON object for each entry, and for the summary.
    pub json: bool,
    /// Only the summary.
    pub quiet: bool,
    /// Threads that read and hash.
    pub threads: u8,
}

impl ScanRequest {
    fn scanner(&self, rules: Rules, excluded: Vec<Vec<u8>>) -> anyhow::Result<Scanner> {
        let readers = usize::from(self.threads);
        let options = ScanOptions { readers, excluded, ..ScanOptions::default() };
        Ok(Scanner::new(rules, options, Arc::new(SystemClock::new()))?)
    }
}

/// Scans and prints everything found. Returns false if something could not be read.
///
/// # Errors
/// Returns an error if a path does not exist, or if stdout fails.
pub fn run(request: &ScanRequest) -> anyhow::Result<bool> {
    let mut paths = Vec::new();
    for path in &request.paths {
        std::fs::symlink_metadata(path).with_context(|| path.display().to_string())?;
        paths.push(absolute_path(path)?);
    }
    let scanner = request.scanner(Rules::of_paths(paths), Vec::new())?;
    let mut printer = Printer::new(request);
    let (progress, cancel) = (Progress::new(), Cancel::new());
    // Items that scroll over the terminal are progress enough.
    let quiet = request.quiet || !io::stdout().is_terminal();
    let shown = quiet.then(|| show_progress(&progress));
    let report = scanner.scan(&mut Baselines::default(), &mut printer, &progress, &cancel);
    drop(shown);
    printer.check()?;
    let report = report?;
    // Gaps of whole roots are already in the report.
    let of_root = |path: &str| {
        report.roots.iter().any(|root| {
            matches!(root.state, RootState::Gap { .. })
                && [&*root.path, &*root.real_path].contains(&path)
        })
    };
    let gaps =
        scanner.gaps().into_iter().filter(|gap| gap.kind != GapKind::Absent).collect::<Vec<_>>();
    let whole = gaps.is_empty() && !report.counts.has_unread();
    printer.print_gaps(&gaps, of_root)?;
    if request.json {
        printer.line(&serde_json::json!({ "summary": report }).to_string())?;
    }
    printer.out.flush().context("stdout")?;
    if !request.json {
        drop(printer);
        print_scan(&Console::new(), &report);
    }
    Ok(whole)
}

/// Returns the path as rules need it: absolute and without `..`. A symbolic link as its last
/// component is not followed.
///
/// # Errors
/// Returns an error if `..` follows something that does not exist.
pub fn absolute_path(path: &Path) -> anyhow::Result<PathBuf> {
    let what = || path.display().to_string();
    let absolute = std::path::absolute(path).with_context(what)?;
    if !absolute.components().any(|part| part == Component::ParentDir) {
        return Ok(absolute);
    }
    match (absolute.parent(), absolute.file_name()) {
        (Some(parent), Some(name)) => Ok(parent.canonicalize().with_context(what)?.join(name)),
        _ => absolute.canonicalize().with_context(what),
    }
}

/// A sink that prints each item.
struct Printer<W: Write> {
    out: BufWriter<W>,
    names: SystemNames,
    json: bool,
    quiet: bool,
    /// The error that stopped the output.
    failed: Option<io::Error>,
}

impl Printer<io::StdoutLock<'static>> {
    fn new(request: &ScanRequest) -> Self {
        Self {
            out: BufWriter::new(io::stdout().lock()),
            names: SystemNames::new(),
            json: request.json,
            quiet: request.quiet,
            failed: None,
        }
    }
}

impl<W: Write> Sink for Printer<W> {
    fn apply(&mut self, batch: &mut ChangeBatch) -> Result<SinkOutcome, PortError> {
        let mut outcome = SinkOutcome::default();
        for op in batch.drain(..) {
            let Op::Put { key, observation, .. } = op else { continue };
            outcome.items += 1;
            let file = FileBody::new(&key, &observation, &self.names);
            if let Err(e) = self.print(&file) {
                self.failed = Some(e);
                return Err(PortError("stdout".into()));
            }
        }
        Ok(outcome)
    }
}

impl<W: Write> Printer<W> {
    /// Returns the error that stopped the output.
    fn check(&mut self) -> anyhow::Result<()> {
        self.failed.take().map_or(Ok(()), |e| Err(e).context("stdout"))
    }

    fn line(&mut self, line: &str) -> anyhow::Result<()> {
        writeln!(self.out, "{}", service::safe_line(line)).context("stdout")
    }

    /// Prints the gaps, except those of these paths.
    fn print_gaps(&mut self, gaps: &[Gap], except: impl Fn(&str) -> bool) -> anyhow::Result<()> {
        for gap in gaps {
            let (path, detail) = (model::path::show_terminal(&gap.path), &gap.detail);
            if except(&path) {
                continue;
            }
            let line = if self.json {
                serde_json::json!({ "gap": { "path": path, "detail": detail } }).to_string()
            } else {
                format!("gap: {path}: {detail}")
            };
            self.line(&line)?;
        }
        Ok(())
    }

    fn print(&mut self, file: &FileBody) -> io::Result<()> {
        if self.quiet {
            return Ok(());
        }
        if self.json {
            let line = serde_json::json!({ "file": file }).to_string();
            return writeln!(self.out, "{}", service::safe_line(&line));
        }
        let hash = file.hash.as_ref().and_then(|h| h.sha256.as_deref());
        let owner = format!(
            "{}:{}",
            file.owner.as_deref().unwrap_or(&file.uid),
            file.group.as_deref().unwrap_or(&file.gid)
        );
        writeln!(
            self.out,
            "{:<12} {} {:<15} {:>12} {} {}{}",
            file.kind,
            file.mode,
            owner,
            file.size.map(|s| s.to_string()).unwrap_or_default(),
            hash.unwrap_or("-"),
            model::path::show_terminal(file.path.as_bytes()),
            file.error.as_ref().map(|e| format!("  ({e})")).unwrap_or_default(),
        )
    }
}
