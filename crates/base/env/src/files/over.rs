//! Files layered over other files: every call is forwarded to the layer below, except those that a
//! type overrides.

use std::io;
use std::path::Path;
use std::sync::Arc;

use super::traits::{Access, File, Files, Lock};

/// An open file over another one. It is a [`File`].
pub trait FileOver: Send + Sync {
    /// Returns the file below.
    fn under(&self) -> &dyn File;

    /// As [`File::read_at`].
    ///
    /// # Errors
    /// As there.
    fn read_at(&self, into: &mut [u8], offset: u64) -> io::Result<usize> {
        self.under().read_at(into, offset)
    }

    /// As [`File::write_at`].
    ///
    /// # Errors
    /// As there.
    fn write_at(&self, from: &[u8], offset: u64) -> io::Result<usize> {
        self.under().write_at(from, offset)
    }

    /// As [`File::persist`].
    ///
    /// # Errors
    /// As there.
    fn persist(&self) -> io::Result<()> {
        self.under().persist()
    }
}

impl<T: FileOver> File for T {
    fn read_at(&self, into: &mut [u8], offset: u64) -> io::Result<usize> {
        FileOver::read_at(self, into, offset)
    }

    fn write_at(&self, from: &[u8], offset: u64) -> io::Result<usize> {
        FileOver::write_at(self, from, offset)
    }

    fn persist(&self) -> io::Result<()> {
        FileOver::persist(self)
    }

    fn size(&self) -> io::Result<u64> {
        self.under().size()
    }

    fn set_size(&self, bytes: u64) -> io::Result<()> {
        self.under().set_size(bytes)
    }

    fn allocate(&self, bytes: u64) -> io::Result<bool> {
        self.under().allocate(bytes)
    }

    fn filled(&self) -> io::Result<u64> {
        self.under().filled()
    }
}

/// A file system over another one. It is [`Files`].
pub trait FilesOver: Send + Sync {
    /// Returns the file system below.
    fn under(&self) -> &dyn Files;

    /// As [`Files::open`].
    ///
    /// # Errors
    /// As there.
    fn open(&self, path: &Path, access: Access) -> io::Result<Arc<dyn File>>;

    /// As [`Files::rename`].
    ///
    /// # Errors
    /// As there.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.under().rename(from, to)
    }
}

impl<T: FilesOver> Files for T {
    fn open(&self, path: &Path, access: Access) -> io::Result<Arc<dyn File>> {
        FilesOver::open(self, path, access)
    }

    fn compressing(&self, dir: &Path) -> Option<&'static str> {
        self.under().compressing(dir)
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        self.under().list(dir)
    }

    fn create_dir(&self, dir: &Path) -> io::Result<()> {
        self.under().create_dir(dir)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        FilesOver::rename(self, from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.under().remove(path)
    }

    fn persist_dir(&self, dir: &Path) -> io::Result<()> {
        self.under().persist_dir(dir)
    }

    fn lock(&self, path: &Path) -> io::Result<Option<Box<dyn Lock>>> {
        self.under().lock(path)
    }
}
