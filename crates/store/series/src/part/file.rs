//! The file of one or several parts. It is removed when all of them were replaced and are no longer
//! read.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use env::files::{Access, File, Files};

use crate::error::{SeriesDamage, SeriesReadError, unread};

/// See the module.
pub(crate) struct PartFile {
    path: PathBuf,
    files: Arc<dyn Files>,
    /// Number of parts in the file that were not replaced.
    parts: AtomicU32,
}

impl Drop for PartFile {
    fn drop(&mut self) {
        if self.parts.load(Ordering::Acquire) == 0 {
            // A file that cannot be removed now is removed at the next open.
            let _ = self.files.remove(&self.path);
        }
    }
}

impl PartFile {
    pub(crate) fn new(files: &Arc<dyn Files>, path: PathBuf) -> Arc<Self> {
        Arc::new(Self { path, files: Arc::clone(files), parts: AtomicU32::new(0) })
    }

    /// Counts one more part.
    pub(crate) fn join(&self) {
        self.parts.fetch_add(1, Ordering::AcqRel);
    }

    /// Counts one part less, because it was replaced.
    pub(crate) fn leave(&self) {
        self.parts.fetch_sub(1, Ordering::AcqRel);
    }

    pub(crate) fn open(&self) -> Result<Arc<dyn File>, SeriesReadError> {
        self.files.open(&self.path, Access::READ).map_err(unread(&self.path, "cannot open"))
    }

    pub(crate) fn damage(&self, offset: u64, what: &str) -> SeriesReadError {
        SeriesDamage { file: self.path.clone(), offset, what: what.into() }.into()
    }

    pub(crate) fn read(
        &self,
        file: &dyn File,
        offset: u64,
        bytes: usize,
    ) -> Result<Vec<u8>, SeriesReadError> {
        let mut buffer = Vec::new();
        self.read_into(file, offset, bytes, &mut buffer)?;
        Ok(buffer)
    }

    /// Replaces a buffer by bytes of the file.
    pub(crate) fn read_into(
        &self,
        file: &dyn File,
        offset: u64,
        bytes: usize,
        buffer: &mut Vec<u8>,
    ) -> Result<(), SeriesReadError> {
        buffer.resize(bytes, 0);
        let read = file.read_at(buffer, offset);
        if read.map_err(unread(&self.path, "cannot read"))? < bytes {
            return Err(self.damage(offset, "the file is too short"));
        }
        Ok(())
    }
}
