//! The registry's part of the log of decisions.

use control::{KEYS_SETTING, Reader, RegistryFailure};

use crate::{Registry, RegistryError, ca, files, tokens};

impl Registry {
    /// Writes everything that is still only in memory and makes it survive a power cut.
    ///
    /// # Errors
    /// Returns an error if the store fails; what was not written is still in memory.
    pub fn close(&self) -> Result<(), RegistryError> {
        self.flush()?;
        if self.failure().is_none() {
            self.inner.store.log_reports()?;
        }
        Ok(self.inner.store.checkpoint()?)
    }

    /// Makes every decision durable in the database, up to the end of the log, and stores that position:
    /// a copy of the database has every record up to there.
    ///
    /// # Errors
    /// Returns an error if the store fails.
    pub fn settle(&self) -> Result<(), RegistryError> {
        Ok(self.inner.store.floor().map(drop)?)
    }

    /// Returns the failure because of which the registry accepts no decision until the server is
    /// started again.
    pub fn failure(&self) -> Option<RegistryFailure> {
        self.inner.store.failure()
    }

    /// Stores a digest of the key files if it has changed, so that followers fetch them again.
    pub(crate) fn note_keys(&self) -> Result<(), RegistryError> {
        let Some(folder) = self.inner.tokens.path.parent() else { return Ok(()) };
        let digest = files::digest(folder, &[ca::KEY_FILE, ca::CERT_FILE, tokens::KEY_FILE])?;
        let store = &self.inner.store;
        if store.setting(&Reader::server(), KEYS_SETTING)?.as_ref() != Some(&digest) {
            store.set_setting(KEYS_SETTING, &digest)?;
        }
        Ok(())
    }
}
