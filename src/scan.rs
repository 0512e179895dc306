//! `holdfast scan`: scans and prints the result, without a server or a database.

use std::io::{self, BufWriter, IsTerminal as _, Write};
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use anyhow::Context as _;
use console::Console;
use detect::{Cancel, Progress, RootState, Rules, ScanOptions, Scanner, SystemNames};
use env::clock::SystemClock;
use model::traits::PortError;
use model::{Baseline, BaselineItem, ChangeBatch, FileBody, Op, Sink, SinkOutcome};
use run::{print_scan, show_progress};

use crate::cli::ScanArgs;

/// Scans and prints. Returns false if something could not be read.
pub(crate) fn run(args: &ScanArgs) -> anyhow::Result<bool> {
    let mut paths = Vec::new();
    for path in &args.path {
        std::fs::symlink_metadata(path).with_context(|| path.display().to_string())?;
        paths.push(absolute_path(path)?);
    }
    let options = ScanOptions { readers: usize::from(args.threads), ..ScanOptions::default() };
    let scanner = Scanner::new(Rules::of_paths(paths), options, Arc::new(SystemClock::new()))?;
    let mut printer = Printer {
        out: BufWriter::new(io::stdout().lock()),
        names: SystemNames::new(),
        json: args.json,
        quiet: args.quiet,
        failed: None,
    };
    let (progress, cancel) = (Progress::new(), Cancel::new());
    // Items that scroll over the terminal are progress enough.
    let quiet = args.quiet || !io::stdout().is_terminal();
    let shown = quiet.then(|| show_progress(&progress));
    let report = scanner.scan(&mut Nothing, &mut printer, &progress, &cancel);
    drop(shown);
    if let Some(e) = printer.failed.take() {
        return Err(e).context("stdout");
    }
    let report = report?;
    // Gaps of whole roots are already in the report.
    let of_root = |path: &str| {
        report.roots.iter().any(|root| {
            matches!(root.state, RootState::Gap { .. })
                && [&*root.path, &*root.real_path].contains(&path)
        })
    };
    let gaps = scanner.gaps();
    let whole = gaps.is_empty() && !report.counts.has_unread();
    for gap in gaps {
        let (path, detail) = (model::path::show_terminal(&gap.path), &gap.detail);
        if of_root(&path) {
            continue;
        }
        let line = if args.json {
            serde_json::json!({ "gap": { "path": path, "detail": detail } }).to_string()
        } else {
            format!("gap: {path}: {detail}")
        };
        writeln!(printer.out, "{line}").context("stdout")?;
    }
    if args.json {
        let line = serde_json::json!({ "summary": report }).to_string();
        writeln!(printer.out, "{line}").and_then(|()| printer.out.flush()).context("stdout")?;
    } else {
        printer.out.flush().context("stdout")?;
        drop(printer);
        print_scan(&Console::new(), &report);
    }
    Ok(whole)
}

/// Returns the path as rules need it: absolute and without `..`. A symbolic link as its last
/// component is not followed.
pub(crate) fn absolute_path(path: &Path) -> anyhow::Result<PathBuf> {
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

/// An empty baseline.
struct Nothing;

impl Baseline for Nothing {
    fn directory(&mut self, _: &[u8], into: &mut Vec<BaselineItem>) -> Result<(), PortError> {
        into.clear();
        Ok(())
    }

    fn directories_below(&mut self, _: &[u8]) -> Result<Vec<Vec<u8>>, PortError> {
        Ok(Vec::new())
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
    fn print(&mut self, file: &FileBody) -> io::Result<()> {
        if self.quiet {
            return Ok(());
        }
        if self.json {
            serde_json::to_writer(&mut self.out, &serde_json::json!({ "file": file }))?;
            return writeln!(self.out);
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
