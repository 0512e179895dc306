//! Checks before a write.

use crate::batch::Batch;
use crate::error::WriteError;
use crate::options::Ack;
use crate::store::Store;

impl Store {
    /// Checks that a delete would be accepted now. Callers use it before they begin work that ends
    /// with a delete. Writes an empty batch, which goes through the log and is persisted, so the
    /// check covers the whole path.
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
