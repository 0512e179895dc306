//! Runs targeted checks in the middle of a scan: one thread writes all observations, so that no
//! event is reported twice and none has a wrong state before.

use std::collections::HashSet;
use std::sync::Arc;

use model::ItemKey;
use model::path::join;
use observe::{ReadPool, ReaderContext, open};
use rustix::io::Errno;

use crate::check;
use crate::limits;
use crate::ports::{DueChecks, NoChecks};
use crate::report::{Counts, Progress, ScanError};
use crate::walk::{Context, Targeted, Walk};
use crate::writer::Writer;

impl Walk<'_, '_> {
    /// Returns true if a check has written the item since the scan looked at it.
    pub(crate) fn is_overtaken(&self, directory: &[u8], name: &[u8]) -> bool {
        let overtaken = self.overtaken.as_ref().filter(|overtaken| !overtaken.is_empty());
        overtaken.is_some_and(|overtaken| overtaken.contains(&ItemKey::new(directory, name)))
    }

    /// Returns true if the scan looked at an item without a baseline, and the item is no longer at
    /// its path. A check that ran since found neither file nor baseline, so it wrote nothing: the
    /// scan must not store what it saw.
    pub(crate) fn has_vanished(&self, directory: &[u8], name: &[u8]) -> bool {
        // Not relative to the descriptor: the directory may have another path now.
        let stat = || open::stat_at(rustix::fs::CWD, join(directory, name), false);
        self.overtaken.is_some() && matches!(stat(), Err(Errno::NOENT | Errno::NOTDIR))
    }

    /// Forgets the checks that ran, unless files wait to be read. Call it between two directories.
    pub(crate) fn forget_overtaken(&mut self) {
        if self.overtaken.is_some() && self.chunk.is_empty() && self.cx.pool.is_idle() {
            self.overtaken = None;
        }
    }

    /// Runs the checks that are due, with readers of their own: a scan with a limited budget does
    /// not delay them. What they write is not written again by this scan.
    pub(crate) fn run_due_checks(&mut self) -> Result<(), ScanError> {
        if self.first {
            return Ok(());
        }
        let DueChecks { checks, interruptible } = self.cx.interrupt.due();
        if checks.is_empty() {
            return Ok(());
        }
        // The baseline must show what this scan has found so far.
        self.cx.writer.flush()?;
        let progress = Progress::new();
        let readers = Arc::new(ReaderContext {
            bucket: None,
            cancel: self.cx.cancel.clone(),
            bytes_read: progress.bytes_hashed(),
            clock: self.cx.readers.clock.clone(),
        });
        let mut none = NoChecks;
        let mut inner = Context {
            baseline: &mut *self.cx.baseline,
            writer: Writer::once(self.cx.writer.sink(), check::operations_together(&checks)),
            pool: ReadPool::new(self.cx.reader_count, false, Arc::clone(&readers)),
            readers,
            handles: &mut *self.cx.handles,
            interrupt: if interruptible { &mut *self.cx.interrupt } else { &mut none },
            targeted: Some(Targeted::new(&checks, limits::LARGE_BYTES)),
            gaps: &mut *self.cx.gaps,
            clock: self.cx.clock,
            cancel: self.cx.cancel,
            progress: &progress,
            totals: Counts::default(),
            started_us: self.cx.clock.now_us(),
            roots: self.cx.roots,
            reader_count: self.cx.reader_count,
            excluded: self.cx.excluded,
            written_within: HashSet::new(),
        };
        let report = check::run(&mut inner, &checks)?;
        let mut written = inner.writer.into_written();
        written.extend(inner.written_within);
        if self.cx.targeted.is_some() {
            // This check may itself run in the middle of another one.
            self.cx.written_within.extend(written.iter().cloned());
        }
        self.overtaken.get_or_insert_default().extend(written);
        self.cx.interrupt.checked(report);
        Ok(())
    }
}
