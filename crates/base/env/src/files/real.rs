//! The operating system's files.

use std::fs;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use rustix::fs::{FallocateFlags, FlockOperation, Mode, OFlags, SeekFrom};
use rustix::io::Errno;

use super::traits::{Access, File, Files, Lock};

/// `O_DSYNC` alone. rustix's flag of that name is `O_SYNC`, with which a write also persists the
/// file's times. On ext4 that commits the file system's journal every few milliseconds.
const DSYNC: OFlags = OFlags::from_bits_retain(libc::O_DSYNC as u32);

/// The file system of the operating system.
#[derive(Debug, Clone, Copy, Default)]
pub struct RealFiles;

struct RealFile(fs::File);

/// Value of `f_type` in `statfs` for btrfs.
const BTRFS: i64 = 0x9123_683e;

struct RealLock {
    _held: fs::File,
}

impl Lock for RealLock {}

impl File for RealFile {
    fn read_at(&self, into: &mut [u8], offset: u64) -> io::Result<usize> {
        let mut done = 0;
        while let Some(rest) = into.get_mut(done..).filter(|r| !r.is_empty()) {
            match self.0.read_at(rest, offset + done as u64) {
                Ok(0) => break,
                Ok(n) => done += n,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
        Ok(done)
    }

    fn write_at(&self, from: &[u8], offset: u64) -> io::Result<usize> {
        loop {
            match self.0.write_at(from, offset) {
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                other => return other,
            }
        }
    }

    fn persist(&self) -> io::Result<()> {
        self.0.sync_data()
    }

    fn size(&self) -> io::Result<u64> {
        Ok(self.0.metadata()?.len())
    }

    fn set_size(&self, bytes: u64) -> io::Result<()> {
        self.0.set_len(bytes)
    }

    fn allocate(&self, bytes: u64) -> io::Result<bool> {
        // btrfs never compresses preallocated extents.
        if rustix::fs::fstatfs(&self.0)?.f_type as i64 != BTRFS {
            match rustix::fs::fallocate(&self.0, FallocateFlags::empty(), 0, bytes) {
                Ok(()) => return Ok(true),
                Err(Errno::OPNOTSUPP) => {}
                Err(e) => return Err(e.into()),
            }
        }
        self.set_size(bytes.max(self.size()?)).map(|()| false)
    }

    fn filled(&self) -> io::Result<u64> {
        match rustix::fs::seek(&self.0, SeekFrom::Hole(0)) {
            Ok(at) => Ok(at),
            Err(Errno::NXIO | Errno::INVAL) => self.size(),
            Err(e) => Err(e.into()),
        }
    }
}

fn access_flags(access: Access) -> OFlags {
    // A pipe is opened at once, instead of when it has a writer, and then refused. Regular files do not
    // know this flag.
    let mut flags = OFlags::CLOEXEC | OFlags::NONBLOCK;
    flags |= if access.write { OFlags::RDWR } else { OFlags::RDONLY };
    for (wanted, flag) in
        [(access.create, OFlags::CREATE), (access.direct, OFlags::DIRECT), (access.dsync, DSYNC)]
    {
        if wanted {
            flags |= flag;
        }
    }
    flags
}

impl Files for RealFiles {
    fn open(&self, path: &Path, access: Access) -> io::Result<Arc<dyn File>> {
        let mode = Mode::from_raw_mode(access.mode);
        let file = fs::File::from(rustix::fs::open(path, access_flags(access), mode)?);
        if !file.metadata()?.is_file() {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file"));
        }
        Ok(Arc::new(RealFile(file)))
    }

    fn compressing(&self, dir: &Path) -> Option<&'static str> {
        let found = rustix::fs::statfs(dir).ok()?;
        (found.f_type as i64 == BTRFS).then_some("btrfs")
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in fs::read_dir(dir)? {
            names.push(entry?.file_name().to_string_lossy().into_owned());
        }
        names.sort_unstable();
        Ok(names)
    }

    fn create_dir(&self, dir: &Path) -> io::Result<()> {
        if dir.is_dir() {
            return Ok(());
        }
        if let Some(above) = dir.parent().filter(|p| !p.as_os_str().is_empty()) {
            self.create_dir(above)?;
        }
        match fs::create_dir(dir) {
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
            other => other?,
        }
        match dir.parent() {
            Some(above) if above.as_os_str().is_empty() => self.persist_dir(Path::new(".")),
            Some(above) => self.persist_dir(above),
            None => Ok(()),
        }
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        fs::remove_file(path)
    }

    fn persist_dir(&self, dir: &Path) -> io::Result<()> {
        fs::File::open(dir)?.sync_all()
    }

    fn lock(&self, path: &Path) -> io::Result<Option<Box<dyn Lock>>> {
        let flags = OFlags::CLOEXEC | OFlags::RDWR | OFlags::CREATE;
        let file = match rustix::fs::open(path, flags, Mode::RUSR | Mode::WUSR) {
            // An existing lock file can be locked even where it cannot be written.
            Err(e @ (Errno::ROFS | Errno::ACCESS)) => {
                let flags = OFlags::CLOEXEC | OFlags::RDONLY;
                rustix::fs::open(path, flags, Mode::empty()).map_err(|_| e)
            }
            opened => opened,
        };
        let file = fs::File::from(file?);
        match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Some(Box::new(RealLock { _held: file }))),
            Err(Errno::WOULDBLOCK) => Ok(None),
            Err(e) => Err(e.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pipe_is_refused_at_once() {
        let dir = tempfile::tempdir().unwrap();
        let pipe = dir.path().join("key.pem");
        let mode = Mode::from_raw_mode(0o600);
        let fifo = rustix::fs::FileType::Fifo;
        rustix::fs::mknodat(rustix::fs::CWD, &pipe, fifo, mode, 0).unwrap();
        for access in [Access::READ, Access::WRITE, Access::CREATE] {
            let refused = RealFiles.open(&pipe, access).map(|_| ()).unwrap_err();
            assert_eq!(refused.kind(), io::ErrorKind::InvalidInput, "{access:?}");
        }
    }

    #[test]
    fn real_files_implement_the_files_contract() {
        let dir = tempfile::tempdir().unwrap();
        let inner = dir.path().join("a/b");
        RealFiles.create_dir(&inner).unwrap();
        RealFiles.create_dir(&inner).unwrap();
        let path = inner.join("file");
        assert!(RealFiles.open(&path, Access::WRITE).is_err());
        let file = RealFiles.open(&path, Access::CREATE).unwrap();
        let reserved = file.allocate(8192).unwrap();
        assert_eq!(file.allocate(4096).unwrap(), reserved);
        assert_eq!(file.size().unwrap(), 8192);
        assert_eq!(file.filled().unwrap(), 0, "reserved is not written");
        file.write_all_at(&[0; 4096], 0).unwrap();
        assert_eq!(file.filled().unwrap(), 4096);
        file.write_all_at(b"hello", 8190).unwrap();
        file.persist().unwrap();
        let access = Access { dsync: true, ..Access::WRITE };
        let flags = rustix::fs::open(&path, access_flags(access), Mode::empty()).unwrap();
        let flags = rustix::fs::fcntl_getfl(flags).unwrap().bits().cast_signed();
        assert_eq!(flags & libc::O_SYNC, libc::O_DSYNC, "times are persisted with each write");
        let mut bytes = [9; 10];
        assert_eq!(file.read_at(&mut bytes, 8188).unwrap(), 7);
        assert_eq!(&bytes, b"\0\0hello\x09\x09\x09");
        file.set_size(8191).unwrap();
        assert_eq!(file.read_at(&mut bytes, 8190).unwrap(), 1);
        RealFiles.rename(&path, &inner.join("other")).unwrap();
        RealFiles.persist_dir(&inner).unwrap();
        assert_eq!(RealFiles.list(&inner).unwrap(), ["other"]);
        RealFiles.remove(&inner.join("other")).unwrap();
        assert!(RealFiles.list(&inner).unwrap().is_empty());
        let lock = RealFiles.lock(&inner.join("lock")).unwrap();
        assert!(lock.is_some() && RealFiles.lock(&inner.join("lock")).unwrap().is_none());
        drop(lock);
        assert!(RealFiles.lock(&inner.join("lock")).unwrap().is_some());
    }
}
