//! What can be told of a write before it is made.

use crate::batch::Batch;
use crate::error::WriteError;
use crate::options::{Ack, TOMBSTONES_MAX};
use crate::store::Store;

impl Store {
    /// Whether a delete would be taken now: for whoever must not begin what cannot be brought to its end.
    /// An empty batch goes through the log and is persisted, which tells more than any look.
    ///
    /// # Errors
    /// As [`Store::delete`].
    pub fn can_delete(&self) -> Result<(), WriteError> {
        let stats = self.stats();
        let (what, max) = ("tombstones", TOMBSTONES_MAX);
        if stats.tombstones >= max as u64 {
            return Err(WriteError::TooLarge { what, value: max + 1, max });
        }
        if let Some(why) = stats.trouble {
            return Err(WriteError::Failed(why));
        }
        self.write(Batch::new(), Ack::Persisted).map(drop)
    }
}
