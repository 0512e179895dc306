//! The gaps that are open: the note of them that survives a restart, and their report to a server
//! that may not know them.

use detect::Gap;
use model::EventBody;
use queue::{QueueError, known_gaps};
use tracing::warn;

use crate::notes;
use crate::scan::Scanning;
use crate::shared::Shared;

/// Restores the gaps that earlier runs left open. A gap that outlasts a restart is reported once,
/// from its beginning to its end.
pub(super) fn restore(
    shared: &Shared,
    scanner: &detect::Scanner,
    new_database: bool,
) -> Result<Vec<Gap>, QueueError> {
    if new_database {
        known_gaps::set_known(&shared.queue)?;
    }
    let gaps = notes::gaps(&shared.queue)?;
    scanner.restore_gaps(gaps.clone());
    Ok(gaps)
}

impl Scanning {
    /// Stores the open gaps if they have changed.
    pub(super) fn note_gaps(&mut self) {
        let gaps = self.scanner.gaps();
        if gaps == self.gaps {
            return;
        }
        match notes::set_gaps(&self.shared.queue, &gaps) {
            Ok(()) => self.gaps = gaps,
            // They are reported again after a restart.
            Err(e) => warn!("the open gaps were not stored: {e}"),
        }
    }

    /// Reports the open gaps again if the server may not know them.
    pub(super) fn report_open_gaps(&self) -> Result<(), QueueError> {
        let queue = &self.shared.queue;
        if known_gaps::are_known(queue)? {
            return Ok(());
        }
        let starts = self.scanner.gap_starts().into_iter();
        let starts: Vec<_> = starts.map(|gap| EventBody::of_coverage(gap).to_json()).collect();
        if !starts.is_empty() {
            queue.append_events(&self.shared.dataset, starts)?;
        }
        self.packages.report_open_gap()?;
        self.shared.report.notify_one();
        // After a kill before this note they are reported once more.
        known_gaps::set_known(queue)
    }
}
