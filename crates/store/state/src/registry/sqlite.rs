//! The registry store on SQLite.

use std::path::Path;

use super::StoreResult;

/// `registry.db`.
pub struct SqliteRegistry {}

#[expect(clippy::missing_errors_doc, clippy::todo, unused_variables)]
impl SqliteRegistry {
    /// Open or create the database at `path`.
    pub fn open(path: &Path) -> StoreResult<Self> {
        todo!()
    }
}
