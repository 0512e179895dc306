//! The traits of a disk: an open file, a lock, a file system.

use std::io;
use std::path::Path;
use std::sync::Arc;

/// The options with which a file is opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Access {
    /// For writing as well as for reading.
    pub write: bool,
    pub create: bool,
    /// Past the page cache: buffers, offsets and lengths must be multiples of 4 KiB.
    pub direct: bool,
    /// Each write persists before it returns.
    pub dsync: bool,
}

impl Access {
    pub const READ: Self = Self { write: false, create: false, direct: false, dsync: false };
    /// For reading and writing, through the page cache.
    pub const WRITE: Self = Self { write: true, create: false, direct: false, dsync: false };
    /// As [`Access::WRITE`], created if it is not there.
    pub const CREATE: Self = Self { write: true, create: true, direct: false, dsync: false };
}

/// An open file. Positioned reads and writes only, so that it can be shared between threads.
pub trait File: Send + Sync {
    /// Read at `offset`; fewer bytes than asked for only at the end of the file.
    ///
    /// # Errors
    /// As the operating system.
    fn read_at(&self, into: &mut [u8], offset: u64) -> io::Result<usize>;

    /// Write at `offset`; may write fewer bytes than given.
    ///
    /// # Errors
    /// As the operating system.
    fn write_at(&self, from: &[u8], offset: u64) -> io::Result<usize>;

    /// Make every write of this file so far survive power loss.
    ///
    /// # Errors
    /// As the operating system. After one, what was written before is in doubt for good.
    fn persist(&self) -> io::Result<()>;

    /// Length in bytes.
    ///
    /// # Errors
    /// As the operating system.
    fn size(&self) -> io::Result<u64>;

    /// Cut or extend (with zeros) to `bytes`.
    ///
    /// # Errors
    /// As the operating system.
    fn set_size(&self, bytes: u64) -> io::Result<()>;

    /// Extends the file to `bytes`, if it is smaller, and reserves space for them; the new part reads
    /// as zeros. Returns true if the space is reserved, so that no first write finds the disk full;
    /// some file systems cannot reserve.
    ///
    /// # Errors
    /// [`io::ErrorKind::StorageFull`] when there is no room.
    fn allocate(&self, bytes: u64) -> io::Result<bool>;

    /// Returns the offset of the first byte that was never written, if there is one before the end,
    /// else the size; also the size where this cannot be determined. The first write to a range that is
    /// only reserved costs a change of metadata.
    ///
    /// # Errors
    /// As the system gives them.
    fn filled(&self) -> io::Result<u64> {
        self.size()
    }

    /// Write all of `from`, however many calls that takes.
    ///
    /// # Errors
    /// As [`File::write_at`]; [`io::ErrorKind::WriteZero`] when no progress is made.
    fn write_all_at(&self, mut from: &[u8], mut offset: u64) -> io::Result<()> {
        while !from.is_empty() {
            let written = self.write_at(from, offset)?;
            if written == 0 {
                return Err(io::ErrorKind::WriteZero.into());
            }
            from = from.get(written..).unwrap_or_default();
            offset += written as u64;
        }
        Ok(())
    }
}

/// Held as long as it lives; the operating system releases it when the process ends.
pub trait Lock: Send + Sync {}

/// A file system.
pub trait Files: Send + Sync {
    /// Open a file.
    ///
    /// # Errors
    /// As the operating system; [`io::ErrorKind::InvalidInput`] where direct access is refused.
    fn open(&self, path: &Path, access: Access) -> io::Result<Arc<dyn File>>;

    /// The file system of `dir`, by name, if it may compress what goes through the page cache and
    /// would not compress what is written directly; `None` for any other.
    fn compressing(&self, _dir: &Path) -> Option<&'static str> {
        None
    }

    /// Names in a folder, sorted.
    ///
    /// # Errors
    /// As the operating system.
    fn list(&self, dir: &Path) -> io::Result<Vec<String>>;

    /// Create a folder and those above it, and persist their names.
    ///
    /// # Errors
    /// As the operating system.
    fn create_dir(&self, dir: &Path) -> io::Result<()>;

    /// Give a file another name, replacing what had it.
    ///
    /// # Errors
    /// As the operating system.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// Remove a file.
    ///
    /// # Errors
    /// As the operating system.
    fn remove(&self, path: &Path) -> io::Result<()>;

    /// Make the names of a folder survive power loss.
    ///
    /// # Errors
    /// As the operating system.
    fn persist_dir(&self, dir: &Path) -> io::Result<()>;

    /// Takes the lock that a file represents, creating the file; `None` if another holder has it.
    ///
    /// # Errors
    /// As the operating system.
    fn lock(&self, path: &Path) -> io::Result<Option<Box<dyn Lock>>>;
}
