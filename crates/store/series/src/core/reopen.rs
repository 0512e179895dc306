//! Opens the log again after an I/O error, while the store stays open.
//!
//! After an error it is unknown what the log holds, so nothing of it is used. Everything acknowledged is
//! in the heads: they are sealed into parts first, and the records that are found in the log are skipped.
//! They include those of refused batches. Row handles stay valid, because the catalogue stays in memory;
//! rows that are not in the catalogue's file are defined in the log again.

use std::sync::Arc;
use std::time::Duration;

use super::{Core, LogState};
use crate::error::WriteError;
use crate::head::HeadCell;
use crate::manifest::Manifest;

/// Most attempts to open the log again within [`REOPEN_WINDOW`].
pub(crate) const REOPENINGS_MAX: usize = 3;
const REOPEN_WINDOW: Duration = Duration::from_hours(1);

impl Core {
    /// Opens the log again if it failed and another attempt is allowed now. Returns true if it was
    /// opened.
    pub(crate) fn reopen_log(&self) -> Result<bool, WriteError> {
        if self.upkeep.log_failure.lock().is_none() || !self.may_reopen() {
            return Ok(false);
        }
        self.seal()?;
        let mut manifest = self.manifest.lock();
        let mut log = self.commit.lock();
        let Some(failed) = self.journal.read().clone() else { return Ok(false) };
        // Its error is the failure that is known. Closing it unlocks the folder.
        let _ = failed.close();
        let log_dir = self.dir.join("log");
        let path = || log_dir.display().to_string();
        let failed = |e: &dyn std::error::Error| {
            let (what, cause) = ("cannot open the log again", e.to_string());
            WriteError::Io { path: path(), what, cause }
        };
        let (journal, recovery) = self.open_journal(&mut manifest, true).map_err(|e| failed(&e))?;
        let mut next = manifest.clone();
        // The records found are skipped: positions continue after them, or after those of the heads.
        next.sealed = next.sealed.max(next.log_base + recovery.last_position);
        next.log_base = next.sealed - recovery.last_position;
        next.log_expected = journal.persisted_position();
        next.store(&*self.options.files, &self.dir)?;
        *manifest = next;
        self.skip_to(&manifest);
        *log = LogState { rows_logged: manifest.catalog_rows, base: manifest.log_base };
        *self.journal.write() = Some(journal);
        self.upkeep.log_failure.lock().take();
        drop(log);
        self.trim(&manifest);
        drop(manifest);
        tracing::warn!("{}: the log was opened again after its failure: rows are accepted", path());
        Ok(true)
    }

    /// Sets the position of the next batch. The active head is empty: since the failure no batch was
    /// applied, and what was applied before is sealed.
    fn skip_to(&self, manifest: &Manifest) {
        let mut live = self.live.write();
        live.position = manifest.sealed;
        if let Some(active) = live.heads.last_mut() {
            *active = Arc::new(HeadCell::new(manifest.sealed + 1));
        }
    }

    /// Counts an attempt and returns true if one is allowed now. Records and logs it when the attempts
    /// of an hour are used up.
    fn may_reopen(&self) -> bool {
        let used_up = {
            let now = self.options.clock.monotonic();
            let mut attempts = self.upkeep.reopenings.lock();
            attempts.retain(|at| now.saturating_sub(*at) < REOPEN_WINDOW);
            let used_up = attempts.len() >= REOPENINGS_MAX;
            let pause = self.options.log_reopen_pause;
            let rested = attempts.last().is_none_or(|at| now.saturating_sub(*at) >= pause);
            if !used_up && rested {
                attempts.push(now);
                return true;
            }
            used_up
        };
        if used_up
            && let Some(failure) = &mut *self.upkeep.log_failure.lock()
            && !std::mem::replace(&mut failure.gave_up, true)
        {
            tracing::error!(
                "{}: the log failed again after {REOPENINGS_MAX} attempts to open it within an hour: no \
                 rows are accepted until the hour has passed; check the disk, then restart",
                self.dir.display()
            );
        }
        false
    }
}
