//! Checks that are made before a write.

use crate::batch::Batch;
use crate::error::WriteError;
use crate::options::Ack;
use crate::store::Store;

impl Store {
    /// Checks that a delete would be accepted now, for callers that must not begin work they cannot
    /// finish. Writing an empty batch goes through the log and is persisted, which proves more than
    /// any check.
    ///
    /// # Errors
    /// See [`Store::delete`].
    pub fn can_delete(&self) -> Result<(), WriteError> {
        self.core().check_tombstones()?;
        if let Some(why) = self.stats().trouble {
            return Err(WriteError::Failed(why));
        }
        self.write(Batch::new(), Ack::Persisted).map(drop)
    }
}
