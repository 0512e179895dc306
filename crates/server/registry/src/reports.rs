//! The agents' reports on themselves: their last scan, and the state in which they watch their
//! roots. A flush writes them together.

use std::collections::HashMap;

use control::{ControlError, LastScan, Reader, WatchPage, WatchQuery, WatchRow};
use model::{AgentId, WatchReport};
use parking_lot::Mutex;

use crate::{Registry, RegistryError};

/// Reports that are not written yet.
#[derive(Debug, Default)]
pub(crate) struct Reports {
    scans: Mutex<HashMap<AgentId, LastScan>>,
    watches: Mutex<HashMap<AgentId, WatchRow>>,
}

impl Reports {
    /// Drops the reports of removed agents (sorted numbers): they do not belong to the next agent
    /// with such a number.
    pub(crate) fn forget(&self, ids: &[AgentId]) {
        self.scans.lock().retain(|id, _| ids.binary_search(id).is_err());
        self.watches.lock().retain(|id, _| ids.binary_search(id).is_err());
    }
}

impl Registry {
    /// Records that the agent began or ended a scan; written with the next flush. Memory only.
    pub fn scanned(&self, id: AgentId, scan: LastScan) {
        let mut scans = self.inner.reports.scans.lock();
        let known = scans.entry(id).or_default();
        known.started_at_s = scan.started_at_s.or(known.started_at_s);
        known.ended_at_s = scan.ended_at_s.or(known.ended_at_s);
    }

    /// Records how the agent watches its roots; written with the next flush. Memory only.
    pub fn watched(&self, id: AgentId, report: WatchReport) {
        let row = WatchRow { reported_s: self.now().s, report: report.cut() };
        self.inner.reports.watches.lock().insert(id, row);
    }

    /// Returns the start and end of the agent's last scan.
    ///
    /// # Errors
    /// `Store(NotFound)`.
    pub fn last_scan(&self, reader: &Reader, id: AgentId) -> Result<LastScan, RegistryError> {
        self.flush_reports()?;
        Ok(self.inner.store.last_scan(reader, id)?)
    }

    /// Returns how agents watch their roots, by number.
    ///
    /// # Errors
    /// Returns an error if the store fails.
    pub fn watch_reports(
        &self,
        reader: &Reader,
        query: &WatchQuery,
    ) -> Result<WatchPage, RegistryError> {
        self.flush_reports()?;
        Ok(self.inner.store.watch_reports(reader, query)?)
    }

    pub(crate) fn flush_reports(&self) -> Result<(), ControlError> {
        let Reports { scans, watches } = &self.inner.reports;
        write(scans, |rows| self.inner.store.save_last_scans(rows))?;
        write(watches, |rows| self.inner.store.save_watch_reports(rows))
    }
}

/// Writes reports. If that fails they wait for the next flush, unless newer ones have arrived.
fn write<T>(
    waiting: &Mutex<HashMap<AgentId, T>>,
    save: impl FnOnce(&[(AgentId, T)]) -> Result<(), ControlError>,
) -> Result<(), ControlError> {
    let rows: Vec<(AgentId, T)> = std::mem::take(&mut *waiting.lock()).into_iter().collect();
    if rows.is_empty() {
        return Ok(());
    }
    let written = save(&rows);
    if written.is_err() {
        let mut waiting = waiting.lock();
        for (id, report) in rows {
            waiting.entry(id).or_insert(report);
        }
    }
    written
}
