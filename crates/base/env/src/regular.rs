//! Reads small files that an administrator names, such as keys and certificates.

use std::fs::File;
use std::io::{self, Read as _};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::Path;

/// Largest file, in bytes.
pub const BYTES_MAX: u64 = 1 << 20;

/// A regular file that was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RegularFile {
    pub bytes: Vec<u8>,
    /// Permission bits.
    pub mode: u32,
}

impl RegularFile {
    /// Returns true if every user of the machine may read it.
    pub fn is_readable_by_all(&self) -> bool {
        self.mode & 0o004 != 0
    }
}

/// Reads a whole file. Never waits: a pipe or a device is refused, and so is a file above
/// [`BYTES_MAX`].
///
/// # Errors
/// See [`File::open`]; `InvalidInput` for what is not a regular file or too large.
pub fn read(path: &Path) -> io::Result<RegularFile> {
    let flags = libc::O_NONBLOCK | libc::O_CLOEXEC | libc::O_NOCTTY;
    let file = File::options().read(true).custom_flags(flags).open(path)?;
    let found = file.metadata()?;
    if !found.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file"));
    }
    let mut bytes = Vec::new();
    file.take(BYTES_MAX + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > BYTES_MAX {
        let error = format!("larger than {BYTES_MAX} bytes");
        return Err(io::Error::new(io::ErrorKind::InvalidInput, error));
    }
    Ok(RegularFile { bytes, mode: found.permissions().mode() & 0o7777 })
}

/// Does the same as [`read`] for a text.
///
/// # Errors
/// See [`read`]; `InvalidData` for what is not UTF-8.
pub fn read_text(path: &Path) -> io::Result<String> {
    String::from_utf8(read(path)?.bytes)
        .map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "not UTF-8"))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn pipes_devices_folders_and_large_files_are_refused_at_once() {
        let folder = tempfile::tempdir().unwrap();
        let pipe = folder.path().join("pipe");
        let fifo = rustix::fs::FileType::Fifo;
        let mode = rustix::fs::Mode::from_raw_mode(0o600);
        rustix::fs::mknodat(rustix::fs::CWD, &pipe, fifo, mode, 0).unwrap();
        let large = folder.path().join("large");
        fs::write(&large, vec![0; BYTES_MAX as usize + 1]).unwrap();
        for path in [&*pipe, folder.path(), Path::new("/dev/zero"), &large] {
            assert_eq!(read(path).unwrap_err().kind(), io::ErrorKind::InvalidInput, "{path:?}");
        }
        let file = folder.path().join("key");
        fs::write(&file, "text").unwrap();
        for (mode, by_all) in [(0o600, false), (0o640, false), (0o644, true)] {
            fs::set_permissions(&file, fs::Permissions::from_mode(mode)).unwrap();
            let found = read(&file).unwrap();
            assert_eq!((found.is_readable_by_all(), &*found.bytes), (by_all, &b"text"[..]));
        }
    }
}
