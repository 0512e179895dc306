//! The scan as a whole: roots in, report out.

use std::sync::Arc;

use env::clock::Clock;
use model::{Baseline, Sink};

use crate::limits;
use crate::report::{Cancel, Gap, Progress, ScanError, ScanReport};
use crate::rules::{Rules, RulesError};

/// What a scan may take from the machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Budget {
    /// Bytes of content read per second; `None` reads as fast as the disk gives.
    pub max_bytes_per_second: Option<u64>,
    /// Reader threads run at the lowest priority for CPU and disk.
    pub background: bool,
}

impl Budget {
    /// Everything the machine gives: for a scan that someone waits for.
    pub const UNLIMITED: Self = Self { max_bytes_per_second: None, background: false };
    /// Out of the way: the default for repeated scans.
    pub const BACKGROUND: Self = Self {
        max_bytes_per_second: Some(limits::BYTES_PER_SECOND_DEFAULT),
        background: true,
    };
}

/// How scans run, whatever they watch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScanOptions {
    /// Threads that read content, 1 to [`limits::READERS_MAX`].
    pub readers: usize,
    /// Operations committed together, 1 to [`limits::BATCH_OPS`].
    pub batch_ops: usize,
    /// What the scan may take; can be changed between scans by [`Scanner::set_budget`].
    pub budget: Budget,
}

impl Default for ScanOptions {
    fn default() -> Self {
        Self {
            readers: limits::READERS_DEFAULT,
            batch_ops: limits::BATCH_OPS,
            budget: Budget::UNLIMITED,
        }
    }
}

/// Scans the roots of one set of rules, again and again. Remembers between scans only which gaps
/// it has told.
pub struct Scanner {
    rules: Rules,
}

impl Scanner {
    /// A scanner for these rules.
    ///
    /// # Errors
    /// When a rule cannot be used.
    pub fn new(
        rules: Rules,
        options: ScanOptions,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, RulesError> {
        rules.validate()?;
        let _ = (options, clock);
        Ok(Self { rules })
    }

    /// Its rules.
    pub fn rules(&self) -> &Rules {
        &self.rules
    }

    /// Change the budget of the next scans.
    pub fn set_budget(&self, _budget: Budget) {
        todo!()
    }

    /// The gaps that are open now, so that a caller can keep them over a restart.
    pub fn gaps(&self) -> Vec<Gap> {
        todo!()
    }

    /// Take over gaps that were open (and told) before a restart.
    pub fn restore_gaps(&self, _gaps: Vec<Gap>) {
        todo!()
    }

    /// Scan every root once.
    ///
    /// # Errors
    /// When the baseline cannot be read or a batch not committed. What was committed before stays.
    pub fn scan(
        &self,
        _baseline: &mut dyn Baseline,
        _sink: &mut dyn Sink,
        _progress: &Progress,
        _cancel: &Cancel,
    ) -> Result<ScanReport, ScanError> {
        todo!()
    }

    /// Drop what the baseline holds below `path`, and `path` itself, without changes: for a path
    /// that is no longer watched. Nested roots that are still watched are kept. Answers how many
    /// items went.
    ///
    /// # Errors
    /// As [`Scanner::scan`].
    pub fn forget(
        &self,
        _path: &[u8],
        _baseline: &mut dyn Baseline,
        _sink: &mut dyn Sink,
    ) -> Result<u64, ScanError> {
        todo!()
    }

    /// [`Scanner::forget`] everything in the baseline that no rule covers: call it once when the
    /// rules have changed. Does nothing while a root cannot be resolved. Answers how many items
    /// went.
    ///
    /// # Errors
    /// As [`Scanner::scan`].
    pub fn forget_unwatched(
        &self,
        _baseline: &mut dyn Baseline,
        _sink: &mut dyn Sink,
    ) -> Result<u64, ScanError> {
        todo!()
    }
}
