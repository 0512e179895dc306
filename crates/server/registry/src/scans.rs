//! The last scan of each agent.

use std::collections::HashMap;

use control::Reader;
use control::{ControlError, LastScan};
use model::AgentId;

use crate::{Registry, RegistryError};

impl Registry {
    /// Records that the agent began or ended a scan; written with the next flush. Memory only.
    pub fn scanned(&self, id: AgentId, scan: LastScan) {
        let mut scans = self.inner.scans.lock();
        let known = scans.entry(id).or_default();
        known.started_at_s = scan.started_at_s.or(known.started_at_s);
        known.ended_at_s = scan.ended_at_s.or(known.ended_at_s);
    }

    /// Returns the start and end of the agent's last scan.
    ///
    /// # Errors
    /// `Store(NotFound)`.
    pub fn last_scan(&self, reader: &Reader, id: AgentId) -> Result<LastScan, RegistryError> {
        self.flush_scans()?;
        Ok(self.inner.store.last_scan(reader, id)?)
    }

    pub(crate) fn flush_scans(&self) -> Result<(), ControlError> {
        let scans: HashMap<AgentId, LastScan> = std::mem::take(&mut *self.inner.scans.lock());
        if scans.is_empty() {
            return Ok(());
        }
        let rows: Vec<(AgentId, LastScan)> = scans.into_iter().collect();
        let written = self.inner.store.save_last_scans(&rows);
        if written.is_err() {
            let mut waiting = self.inner.scans.lock();
            for (id, scan) in rows {
                waiting.entry(id).or_insert(scan);
            }
        }
        written
    }
}
