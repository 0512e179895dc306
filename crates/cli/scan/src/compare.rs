//! Compares a path and everything below it with an agent's baseline, as the agent does when the
//! kernel reports a change there. The baseline stays as it is.

use std::ffi::OsString;
use std::io::Write;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use detect::{Cancel, CheckReport, GapKind, NoChecks, Rules, ScanPorts};
use model::path::show_terminal;
use model::traits::PortError;
use model::{
    Change, ChangeBatch, Check, Depth, EventBody, ItemKey, NoHandles, Op, Sink, SinkOutcome,
};
use run::AgentSettings;

use crate::baseline::Baselines;
use crate::{Printer, ScanRequest, absolute_path};

/// Prints what differs from the baseline in an agent's database, under the agent's rules. A path that
/// they do not cover is compared under those of a plain watch, as of `holdfast up --watch`. Returns false
/// if something could not be read.
///
/// # Errors
/// Returns an error if a path is not watched, the database cannot be read, or stdout fails.
pub fn compare(
    request: &ScanRequest,
    database: &Path,
    own: &AgentSettings,
) -> anyhow::Result<bool> {
    let mut differences = Differences { printer: Printer::new(request), changes: 0, unsettled: 0 };
    let mut whole = true;
    for path in &request.paths {
        whole &= differences.compare(&real(path)?, request, database, own)?;
    }
    differences.summarise()?;
    Ok(whole)
}

/// Returns the path with the links above it resolved, as the baseline has it. The path itself may
/// be gone.
fn real(path: &Path) -> anyhow::Result<PathBuf> {
    let path = absolute_path(path)?;
    let parent = path.parent().and_then(|parent| parent.canonicalize().ok());
    Ok(parent.zip(path.file_name()).map_or(path.clone(), |(parent, name)| parent.join(name)))
}

/// A sink that prints each change.
struct Differences<W: Write> {
    printer: Printer<W>,
    changes: u64,
    /// Files that changed while they were read.
    unsettled: usize,
}

impl<W: Write> Differences<W> {
    fn compare(
        &mut self,
        path: &Path,
        request: &ScanRequest,
        database: &Path,
        own: &AgentSettings,
    ) -> anyhow::Result<bool> {
        let shown = || path.display().to_string();
        let bytes = path.as_os_str().as_bytes();
        let mut baseline = Baselines::read(database, bytes)?;
        let Some(top) = baseline.top_of(bytes) else {
            bail!(
                "{}: nothing there or above it is in the baseline: this agent does not watch it, \
                 or has not scanned it yet",
                shown()
            );
        };
        let mut roots = own.rules.0.iter().filter_map(|watch| watch.path.canonicalize().ok());
        let rules = if roots.any(|root| path.starts_with(root)) {
            own.rules.clone()
        } else {
            Rules::of_paths([PathBuf::from(OsString::from_vec(top))])
        };
        let real = |folder: &PathBuf| Some(folder.canonicalize().ok()?.into_os_string().into_vec());
        let excluded = own.excluded.iter().filter_map(real).collect();
        let scanner = request.scanner(rules, excluded)?;
        let is_directory = path.symlink_metadata().is_ok_and(|found| found.is_dir());
        let key = ItemKey::of_path(bytes);
        let mut checks = vec![Check { key: key.clone(), depth: Depth::Name, seen: None }];
        if is_directory {
            checks.push(Check { key, depth: Depth::Below, seen: None });
        }
        let cancel = Cancel::new();
        let mut ports = ScanPorts {
            baseline: &mut baseline,
            sink: self,
            handles: &mut NoHandles,
            interrupt: &mut NoChecks,
        };
        let checked = scanner.check(&checks, &mut ports, &cancel);
        let found = checked.and_then(|found| {
            let large = scanner.check_large(&found.large, &mut ports, &cancel)?;
            Ok([found, large])
        });
        self.printer.check()?;
        let found: [CheckReport; 2] = found.with_context(shown)?;
        self.unsettled += found.iter().map(|report| report.unsettled.len()).sum::<usize>();
        let gaps = scanner
            .gaps()
            .into_iter()
            .filter(|gap| gap.kind != GapKind::Absent)
            .collect::<Vec<_>>();
        self.printer.print_gaps(&gaps, |_| false)?;
        Ok(gaps.is_empty() && !found.iter().any(|report| report.counts.has_unread()))
    }

    fn print(&mut self, change: &Change) -> anyhow::Result<()> {
        self.changes += 1;
        if self.printer.quiet {
            return Ok(());
        }
        let line = if self.printer.json {
            let event = EventBody::of_change(change, &self.printer.names);
            serde_json::json!({ "change": event }).to_string()
        } else {
            let from = change.from.as_ref();
            let from = from.map(|from| format!("  from {}", show_terminal(&from.path())));
            let fields: Vec<_> = change.fields.iter().map(model::Field::name).collect();
            let fields = if fields.is_empty() { String::new() } else { "  ".to_owned() }
                + &fields.join(", ");
            let path = show_terminal(&change.key.path());
            format!("{:<8}  {path}{fields}{}", change.kind.name(), from.unwrap_or_default())
        };
        self.printer.line(&line)
    }

    fn summarise(mut self) -> anyhow::Result<()> {
        let (changes, unsettled) = (self.changes, self.unsettled);
        let line = if self.printer.json {
            serde_json::json!({ "summary": { "changes": changes, "unstable": unsettled } })
                .to_string()
        } else {
            let unstable = match unsettled {
                0 => String::new(),
                count => format!("; {count} files changed while they were read"),
            };
            format!("{changes} differences from the baseline{unstable}")
        };
        self.printer.line(&line)?;
        self.printer.out.flush().context("stdout")
    }
}

impl<W: Write> Sink for Differences<W> {
    fn apply(&mut self, batch: &mut ChangeBatch) -> Result<SinkOutcome, PortError> {
        for op in batch.drain(..) {
            let (Op::Put { change: Some(change), .. } | Op::Delete { change: Some(change), .. }) =
                op
            else {
                continue;
            };
            if let Err(e) = self.print(&change) {
                self.printer.failed = e.downcast().ok();
                return Err(PortError("stdout".into()));
            }
        }
        Ok(SinkOutcome::default())
    }
}
