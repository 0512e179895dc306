//! A file that takes groups.

use std::path::PathBuf;
use std::sync::Arc;

use env::files::{Access, File, Files};

use crate::options::IoPath;
use crate::pool::{WriteError, fatal};

/// A file that takes groups, with one handle for durable writes and one for cached writes.
pub(crate) struct Target {
    pub(crate) path: PathBuf,
    pub(crate) sync: Option<Arc<dyn File>>,
    plain: Arc<dyn File>,
    /// True if unpersisted data was written.
    pub(crate) dirty: bool,
    /// Bytes written since the last flush, and between the two flushes before.
    since: u64,
    between: u64,
}

impl Target {
    pub(crate) fn open(files: &dyn Files, path: PathBuf, io: IoPath) -> std::io::Result<Self> {
        let access = Access { direct: true, dsync: true, ..Access::WRITE };
        let sync = match io {
            IoPath::Direct => Some(files.open(&path, access)?),
            _ => None,
        };
        // Writes that need not be durable yet go through the page cache.
        let plain = files.open(&path, Access::WRITE)?;
        Ok(Self { path, sync, plain, dirty: false, since: 0, between: 0 })
    }

    /// Counts `more` bytes. Returns true if at least `ahead` bytes are written between two flushes.
    pub(super) fn streams(&mut self, more: u64, ahead: u64) -> bool {
        self.since += more;
        self.since.max(self.between) >= ahead
    }

    fn flushed(&mut self) {
        (self.since, self.between) = (0, self.since);
    }

    /// Writes whole blocks and returns the number of flushes.
    pub(crate) fn write(
        &mut self,
        bytes: &[u8],
        at: u64,
        persist: bool,
    ) -> Result<u32, WriteError> {
        let failed = |what| fatal(what, self.path.clone());
        if let Some(sync) = self.sync.as_ref().filter(|_| persist && !self.dirty) {
            sync.write_all_at(bytes, at).map_err(failed("a write failed"))?;
            self.flushed();
            return Ok(1);
        }
        self.plain.write_all_at(bytes, at).map_err(failed("a write failed"))?;
        self.dirty = true;
        if persist { self.persist() } else { Ok(0) }
    }

    /// Returns the file for writing the archive while groups are written to the ring.
    pub(crate) fn archive_file(&self) -> Arc<dyn File> {
        Arc::clone(self.sync.as_ref().unwrap_or(&self.plain))
    }

    /// Returns the file to persist if it has unpersisted data. Later writes need another flush.
    pub(super) fn begin_flush(&mut self) -> Option<Arc<dyn File>> {
        if !self.dirty {
            return None;
        }
        self.flushed();
        Some(Arc::clone(&self.plain))
    }

    /// Persists what was written and returns the number of flushes.
    pub(crate) fn persist(&mut self) -> Result<u32, WriteError> {
        if !self.dirty {
            return Ok(0);
        }
        self.plain.persist().map_err(fatal("a flush failed", self.path.clone()))?;
        self.dirty = false;
        self.flushed();
        Ok(1)
    }
}
