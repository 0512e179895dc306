//! What can be told of a write before it is made.

use crate::batch::Batch;
use crate::error::WriteError;
use crate::options::Ack;
use crate::store::Store;

impl Store {
    /// Whether a delete would be taken now: for whoever must not begin what cannot be brought to its end.
    /// An empty batch goes through the log and is persisted, which tells more than any look.
    ///
    /// # Errors
    /// As [`Store::delete`].
    pub fn can_delete(&self) -> Result<(), WriteError> {
        self.core().check_tombstones()?;
        if let Some(why) = self.stats().trouble {
            return Err(WriteError::Failed(why));
        }
        self.write(Batch::new(), Ack::Persisted).map(drop)
    }
}
