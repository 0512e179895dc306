//! The interfaces that a scan or a check uses.

use model::{Baseline, Check, DirectoryHandles, Sink};

use crate::report::CheckReport;

/// Everything that a scan or a check reads from and writes to.
pub struct ScanPorts<'a> {
    pub baseline: &'a mut dyn Baseline,
    pub sink: &'a mut dyn Sink,
    /// Learns the directories that are entered.
    pub handles: &'a mut dyn DirectoryHandles,
    /// Checks to be run in the middle of the scan.
    pub interrupt: &'a mut dyn Interrupt,
}

/// Checks that are due.
#[derive(Debug, Clone, Default)]
pub struct DueChecks {
    pub checks: Vec<Check>,
    /// True if other checks may run in their middle. Then no move is recognized among them.
    pub interruptible: bool,
}

impl From<Vec<Check>> for DueChecks {
    fn from(checks: Vec<Check>) -> Self {
        Self { checks, interruptible: false }
    }
}

/// A source of checks that a scan runs when they are due. A first scan of a root runs none.
pub trait Interrupt {
    /// Returns the checks that are due now. Called between two directories and while the scan waits
    /// for its readers, so it must be cheap. If they can be interrupted it is called again within
    /// them.
    fn due(&mut self) -> DueChecks;

    /// Takes the result of the checks that [`Interrupt::due`] returned.
    fn checked(&mut self, report: CheckReport);
}

/// No checks, for scans without a watcher.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoChecks;

impl Interrupt for NoChecks {
    fn due(&mut self) -> DueChecks {
        DueChecks::default()
    }

    fn checked(&mut self, _report: CheckReport) {}
}
