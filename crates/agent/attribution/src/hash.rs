//! Hashes of executables.

use std::collections::HashMap;
use std::fs::File;
use std::io::Read as _;
use std::os::unix::ffi::OsStrExt as _;
use std::{ffi::OsStr, fmt::Write as _, path::Path};

use parking_lot::Mutex;
use ring::digest::{Context, SHA256};

use crate::image::{FileId, Program};
use crate::limits;
use crate::read;

/// A cache of hashes by the identity of the file. **Locking:** the lock is not held while a file
/// is read; two callers may hash the same file at once.
#[derive(Debug, Default)]
pub(crate) struct Hashes {
    known: Mutex<HashMap<FileId, String>>,
}

impl Hashes {
    /// Returns the SHA-256 of a program as lower-case hex, read through the process's own link or,
    /// if the process is gone, by path. `None` if neither is the same file any more.
    pub(crate) fn of(&self, pid: u32, program: &Program) -> Option<String> {
        if let Some(known) = self.cached(program) {
            return Some(known);
        }
        let link = format!("/proc/{pid}/exe");
        let path = Path::new(OsStr::from_bytes(&program.path));
        let hash = [Path::new(&link), path].iter().find_map(|p| sha256(p, program.file))?;
        let mut known = self.known.lock();
        if known.len() >= limits::HASHES_MAX {
            known.clear();
        }
        known.insert(program.file, hash.clone());
        Some(hash)
    }

    /// Returns the hash if it was computed before.
    pub(crate) fn cached(&self, program: &Program) -> Option<String> {
        self.known.lock().get(&program.file).cloned()
    }
}

fn sha256(path: &Path, file_id: FileId) -> Option<String> {
    // A path may have become a fifo, which must not block the open.
    let flags = rustix::fs::OFlags::RDONLY
        | rustix::fs::OFlags::CLOEXEC
        | rustix::fs::OFlags::NONBLOCK
        | rustix::fs::OFlags::NOCTTY;
    let file = rustix::fs::open(path, flags, rustix::fs::Mode::empty()).ok()?;
    let same = |file: &File| {
        let stat = rustix::fs::fstat(file).ok()?;
        let small = u64::try_from(stat.st_size).is_ok_and(|size| size <= limits::HASH_BYTES_MAX);
        (read::file_id(&stat) == file_id && small).then_some(())
    };
    let mut file = File::from(file);
    same(&file)?;
    let mut context = Context::new(&SHA256);
    let mut buffer = vec![0; 64 * 1024];
    loop {
        let length = file.read(&mut buffer).ok()?;
        let Some(bytes) = buffer.get(..length).filter(|bytes| !bytes.is_empty()) else { break };
        context.update(bytes);
    }
    // The file may have been written while it was read.
    same(&file)?;
    Some(hex(context.finish().as_ref()))
}

/// Returns bytes as lower-case hex.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn program(path: &Path) -> Program {
        let stat = rustix::fs::stat(path).unwrap();
        let path = path.as_os_str().as_bytes().to_vec();
        Program { path, deleted: false, file: read::file_id(&stat) }
    }

    #[test]
    fn same_file_is_hashed_and_another_at_its_path_is_not() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("abc");
        std::fs::write(&path, "abc").unwrap();
        let abc = program(&path);
        let expected = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        let hashes = Hashes::default();
        assert_eq!(hashes.of(u32::MAX, &abc).as_deref(), Some(expected));
        std::fs::remove_file(&path).unwrap();
        assert_eq!(hashes.of(u32::MAX, &abc).as_deref(), Some(expected), "from the cache");
        std::fs::write(&path, "other").unwrap();
        assert_eq!(Hashes::default().of(u32::MAX, &abc), None);
    }
}
