//! The scanner: scans all roots of a set of rules and reports the result.

use std::collections::HashSet;
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt as _;
use std::path::PathBuf;
use std::sync::Arc;

use env::clock::Clock;
use model::{Baseline, Check, Coverage, NoHandles, Op, Sink};
use observe::{Cancel, ReadPool, ReaderContext, TokenBucket};
use parking_lot::Mutex;
use rules::{Rules, RulesError};

use crate::check;
use crate::gaps::Gaps;
use crate::ports::{NoChecks, ScanPorts};
use crate::report::{CheckReport, Counts, Gap, Progress, ScanError, ScanReport};
use crate::root::{self, Rule};
use crate::visit::visit;
use crate::walk::{Context, Targeted};
use crate::writer::Writer;
use crate::{forget, limits};

/// Resources that a scan may use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ScanBudget {
    /// Most bytes of content read per second; `None` is unlimited.
    pub max_bytes_per_second: Option<u64>,
    /// True if reader threads run at the lowest priority for CPU and disk.
    pub background: bool,
}

impl ScanBudget {
    /// No limit, for a scan that a user waits for.
    pub const UNLIMITED: Self = Self { max_bytes_per_second: None, background: false };
}

/// Settings of scans that do not depend on the rules.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScanOptions {
    /// Number of threads that read content, 1 to [`observe::limits::READERS_MAX`].
    pub readers: usize,
    /// Number of operations committed together, 1 to [`limits::BATCH_OPS`].
    pub batch_ops: usize,
    /// Resources that the scan may use; can be changed between scans by [`Scanner::set_budget`].
    pub budget: ScanBudget,
    /// Absolute paths that are not watched, with everything below them: the program's own data,
    /// which would otherwise change with each change that it reports.
    pub excluded: Vec<Vec<u8>>,
}

impl Default for ScanOptions {
    fn default() -> Self {
        Self {
            readers: limits::READERS_DEFAULT,
            batch_ops: limits::BATCH_OPS,
            budget: ScanBudget::UNLIMITED,
            excluded: Vec::new(),
        }
    }
}

/// A scanner for one set of rules. Between scans it keeps only the gaps that it has reported. One
/// scan runs at a time; a second call waits for the first.
pub struct Scanner {
    rules: Rules,
    compiled: Vec<Arc<Rule>>,
    options: ScanOptions,
    clock: Arc<dyn Clock>,
    budget: Mutex<ScanBudget>,
    gaps: Mutex<Gaps>,
    scanning: Mutex<()>,
}

impl Scanner {
    /// Returns a scanner for these rules.
    ///
    /// # Errors
    /// Returns an error if a rule cannot be used.
    pub fn new(
        rules: Rules,
        options: ScanOptions,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, RulesError> {
        rules.validate()?;
        let compiled =
            rules.0.iter().enumerate().map(|(i, w)| Rule::new(i, w)).collect::<Result<_, _>>()?;
        let budget = Mutex::new(options.budget);
        let (gaps, scanning) = (Mutex::default(), Mutex::default());
        Ok(Self { rules, compiled, options, clock, budget, gaps, scanning })
    }

    pub fn rules(&self) -> &Rules {
        &self.rules
    }

    /// Returns the resolved paths of the roots whose changes are to be detected as they happen.
    pub fn realtime_roots(&self) -> Vec<PathBuf> {
        let roots = root::resolve(&self.compiled).into_iter().filter(|r| r.rule.watch.realtime);
        roots.map(|root| OsString::from_vec(root.path).into()).collect()
    }

    /// Changes the budget of the next scans.
    pub fn set_budget(&self, budget: ScanBudget) {
        *self.budget.lock() = budget;
    }

    /// Returns the open gaps, so that a caller can store them across a restart.
    pub fn gaps(&self) -> Vec<Gap> {
        self.gaps.lock().list()
    }

    /// Returns the starts of all open gaps, to be reported again.
    pub fn gap_starts(&self) -> Vec<Coverage> {
        self.gaps.lock().starts()
    }

    /// Restores gaps that were open and reported before a restart.
    pub fn restore_gaps(&self, gaps: Vec<Gap>) {
        self.gaps.lock().restore(gaps);
    }

    /// Scans every root once.
    ///
    /// # Errors
    /// Returns an error if the baseline cannot be read, a batch cannot be committed, or a reader
    /// thread fails. Batches committed before stay committed.
    pub fn scan(
        &self,
        baseline: &mut dyn Baseline,
        sink: &mut dyn Sink,
        progress: &Progress,
        cancel: &Cancel,
    ) -> Result<ScanReport, ScanError> {
        let (handles, interrupt) = (&mut NoHandles, &mut NoChecks);
        self.scan_with(&mut ScanPorts { baseline, sink, handles, interrupt }, progress, cancel)
    }

    /// Scans every root once. Runs checks that become due in between.
    ///
    /// # Errors
    /// See [`Scanner::scan`].
    pub fn scan_with(
        &self,
        ports: &mut ScanPorts<'_>,
        progress: &Progress,
        cancel: &Cancel,
    ) -> Result<ScanReport, ScanError> {
        let _one_at_a_time = self.scanning.lock();
        let began = self.clock.monotonic();
        let started_at_us = self.clock.now_us();
        let budget = *self.budget.lock();
        let readers = self.reader_context(budget.max_bytes_per_second, progress, cancel);
        let roots = root::resolve(&self.compiled);
        let mut gaps = self.gaps.lock().clone();
        gaps.begin_scan();
        let mut cx = Context {
            baseline: &mut *ports.baseline,
            writer: Writer::new(
                &mut *ports.sink,
                self.options.batch_ops.clamp(1, limits::BATCH_OPS),
            ),
            pool: ReadPool::new(self.options.readers, budget.background, Arc::clone(&readers)),
            readers,
            handles: &mut *ports.handles,
            interrupt: &mut *ports.interrupt,
            targeted: None,
            gaps: &mut gaps,
            clock: &*self.clock,
            cancel,
            progress,
            totals: Counts::default(),
            started_us: started_at_us,
            roots: &roots,
            reader_count: self.options.readers,
            excluded: &self.options.excluded,
            written_within: HashSet::new(),
        };
        let reports: Result<Vec<_>, _> = roots.iter().map(|root| visit(&mut cx, root)).collect();
        let reports = reports.and_then(|reports| {
            close_unwatched(&mut cx)?;
            Ok(reports)
        });
        if reports.is_err() {
            // Commit the results before the error. The error itself is returned below.
            let _ = cx.writer.flush();
        }
        let counts = std::mem::take(&mut cx.totals);
        drop(cx);
        let roots = reports?;
        // Not reached after an error: gaps of a failed scan may not be committed, so the next scan
        // reports them again.
        *self.gaps.lock() = gaps;
        Ok(ScanReport {
            started_at_us,
            ended_at_us: self.clock.now_us(),
            seconds: self.clock.monotonic().saturating_sub(began).as_secs_f64(),
            counts,
            roots,
            cancelled: cancel.is_cancelled(),
        })
    }

    /// Runs checks of names and directories. Everything found is committed, in one batch if it is
    /// small. Files above [`limits::LARGE_BYTES`] are left for [`Scanner::check_large`]. A root
    /// that was never scanned is scanned as a whole.
    ///
    /// # Errors
    /// See [`Scanner::scan`].
    pub fn check(
        &self,
        checks: &[Check],
        ports: &mut ScanPorts<'_>,
        cancel: &Cancel,
    ) -> Result<CheckReport, ScanError> {
        self.check_up_to(limits::LARGE_BYTES, checks, ports, cancel)
    }

    /// Runs checks as [`Scanner::check`] does, and reads large files too.
    ///
    /// # Errors
    /// See [`Scanner::scan`].
    pub fn check_large(
        &self,
        checks: &[Check],
        ports: &mut ScanPorts<'_>,
        cancel: &Cancel,
    ) -> Result<CheckReport, ScanError> {
        self.check_up_to(u64::MAX, checks, ports, cancel)
    }

    fn check_up_to(
        &self,
        large_bytes: u64,
        checks: &[Check],
        ports: &mut ScanPorts<'_>,
        cancel: &Cancel,
    ) -> Result<CheckReport, ScanError> {
        let _one_at_a_time = self.scanning.lock();
        let progress = Progress::new();
        let readers = self.reader_context(None, &progress, cancel);
        let roots = root::resolve(&self.compiled);
        let mut gaps = self.gaps.lock().clone();
        gaps.begin_scan();
        let mut cx = Context {
            baseline: &mut *ports.baseline,
            writer: Writer::once(&mut *ports.sink, check::operations_together(checks)),
            pool: ReadPool::new(self.options.readers, false, Arc::clone(&readers)),
            readers,
            handles: &mut *ports.handles,
            interrupt: &mut *ports.interrupt,
            targeted: Some(Targeted::new(checks, large_bytes)),
            gaps: &mut gaps,
            clock: &*self.clock,
            cancel,
            progress: &progress,
            totals: Counts::default(),
            started_us: self.clock.now_us(),
            roots: &roots,
            reader_count: self.options.readers,
            excluded: &self.options.excluded,
            written_within: HashSet::new(),
        };
        let report = check::run(&mut cx, checks);
        drop(cx);
        let report = report?;
        *self.gaps.lock() = gaps;
        Ok(report)
    }

    fn reader_context(
        &self,
        max_bytes_per_second: Option<u64>,
        progress: &Progress,
        cancel: &Cancel,
    ) -> Arc<ReaderContext> {
        Arc::new(ReaderContext {
            bucket: TokenBucket::new(max_bytes_per_second),
            cancel: cancel.clone(),
            bytes_read: progress.bytes_hashed(),
            clock: Arc::clone(&self.clock),
        })
    }

    /// Drops the items at and below `path`, which is no longer watched. No change is reported.
    /// Items that a rule still covers are kept. Returns the number of dropped items.
    ///
    /// # Errors
    /// See [`Scanner::scan`].
    pub fn forget(
        &self,
        path: &[u8],
        baseline: &mut dyn Baseline,
        sink: &mut dyn Sink,
    ) -> Result<u64, ScanError> {
        let _one_at_a_time = self.scanning.lock();
        let roots = root::resolve(&self.compiled);
        forget::forget(Some(path), &roots, baseline, sink, limits::BATCH_OPS)
    }

    /// Drops everything in the baseline that no rule covers, as [`Scanner::forget`] does. Call it
    /// once after the rules have changed. Does nothing and returns `None` while a rule's path is a
    /// broken link, because it is not known what the rule covers; call it again later. Otherwise
    /// returns the number of removed items.
    ///
    /// # Errors
    /// See [`Scanner::scan`].
    pub fn forget_unwatched(
        &self,
        baseline: &mut dyn Baseline,
        sink: &mut dyn Sink,
    ) -> Result<Option<u64>, ScanError> {
        let _one_at_a_time = self.scanning.lock();
        let roots = root::resolve(&self.compiled);
        if roots.iter().any(|r| r.unresolved) {
            return Ok(None);
        }
        forget::forget(None, &roots, baseline, sink, limits::BATCH_OPS).map(Some)
    }
}

/// Ends the gaps that no root contains, because the rules have changed. Which these are is not known
/// while a rule's path is a broken link.
fn close_unwatched(cx: &mut Context<'_>) -> Result<(), ScanError> {
    if cx.cancel.is_cancelled() || cx.roots.iter().any(|root| root.unresolved) {
        return Ok(());
    }
    let roots: Vec<&[u8]> = cx.roots.iter().map(|root| root.path.as_slice()).collect();
    for over in cx.gaps.close_outside(&roots, cx.clock.now_us()) {
        cx.writer.push(Op::Coverage(over))?;
    }
    cx.writer.flush()
}
