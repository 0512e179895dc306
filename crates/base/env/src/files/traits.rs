//! The traits of a disk: an open file, a lock, a file system.

use std::io;
use std::path::Path;
use std::sync::Arc;

/// The options with which a file is opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Access {
    /// Allows writing as well as reading.
    pub write: bool,
    pub create: bool,
    /// Bypass the page cache: buffers, offsets and lengths must be multiples of 4 KiB.
    pub direct: bool,
    /// Each write persists before it returns.
    pub dsync: bool,
    /// Permissions of a file that is created, reduced by the process's mask.
    pub mode: u32,
}

/// Permissions of a file that only its owner may use.
const PRIVATE_MODE: u32 = 0o600;

impl Access {
    pub const READ: Self =
        Self { write: false, create: false, direct: false, dsync: false, mode: PRIVATE_MODE };
    /// For reading and writing, through the page cache.
    pub const WRITE: Self = Self { write: true, ..Self::READ };
    /// As [`Access::WRITE`]; creates a missing file.
    pub const CREATE: Self = Self { create: true, ..Self::WRITE };
}

/// An open file. Positioned reads and writes only, so that it can be shared between threads.
pub trait File: Send + Sync {
    /// Reads at `offset`; returns fewer bytes than requested only at the end of the file.
    ///
    /// # Errors
    /// As the operating system.
    fn read_at(&self, into: &mut [u8], offset: u64) -> io::Result<usize>;

    /// Writes at `offset`; may write fewer bytes than given.
    ///
    /// # Errors
    /// As the operating system.
    fn write_at(&self, from: &[u8], offset: u64) -> io::Result<usize>;

    /// Makes every write of this file so far survive power loss.
    ///
    /// # Errors
    /// As the operating system. After an error, the durability of earlier writes is unknown for
    /// good.
    fn persist(&self) -> io::Result<()>;

    /// Returns the length in bytes.
    ///
    /// # Errors
    /// As the operating system.
    fn size(&self) -> io::Result<u64>;

    /// Cuts or extends (with zeros) to `bytes`.
    ///
    /// # Errors
    /// As the operating system.
    fn set_size(&self, bytes: u64) -> io::Result<()>;

    /// Extends the file to `bytes`, if it is smaller, and reserves space for them; the new part
    /// reads as zeros. Returns true if the space is reserved, so that no first write finds the disk
    /// full; some file systems cannot reserve.
    ///
    /// # Errors
    /// [`io::ErrorKind::StorageFull`] when there is no room.
    fn allocate(&self, bytes: u64) -> io::Result<bool>;

    /// Returns the offset of the first byte that was never written, if there is one before the end,
    /// else the size; also the size where this cannot be determined. The first write to a range
    /// that is only reserved costs a change of metadata.
    ///
    /// # Errors
    /// As the operating system.
    fn filled(&self) -> io::Result<u64> {
        self.size()
    }

    /// Writes all of `from`, in as many calls as needed.
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

/// A lock, held until it is dropped. The operating system releases it when the process ends.
pub trait Lock: Send + Sync {}

/// A file system.
pub trait Files: Send + Sync {
    /// Opens a file.
    ///
    /// # Errors
    /// As the operating system; [`io::ErrorKind::InvalidInput`] where direct access is refused.
    fn open(&self, path: &Path, access: Access) -> io::Result<Arc<dyn File>>;

    /// Returns the name of the file system of `dir` if it may compress data written through the
    /// page cache and would not compress data written directly; `None` for any other.
    fn compressing(&self, _dir: &Path) -> Option<&'static str> {
        None
    }

    /// Returns the names in a folder, sorted.
    ///
    /// # Errors
    /// As the operating system.
    fn list(&self, dir: &Path) -> io::Result<Vec<String>>;

    /// Creates a folder and its parents, and persists their names.
    ///
    /// # Errors
    /// As the operating system.
    fn create_dir(&self, dir: &Path) -> io::Result<()>;

    /// Renames a file, replacing the file that had the new name.
    ///
    /// # Errors
    /// As the operating system.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// Removes a file.
    ///
    /// # Errors
    /// As the operating system.
    fn remove(&self, path: &Path) -> io::Result<()>;

    /// Makes the names of a folder survive power loss.
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
