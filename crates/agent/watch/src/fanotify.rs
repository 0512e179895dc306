//! The kernel interface: a notification group, its marks, and handles of open directories.

use std::ffi::{CStr, CString};
use std::fs::File;
use std::io::{self, BufRead as _, BufReader};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use dirty::decode::{HANDLE_BYTES_MAX, HANDLE_HEAD_BYTES};

/// Bytes that FIONREAD counts for each pending notification.
const PENDING_BYTES: usize = 24;
/// Asks for a handle that identifies, even on file systems that cannot open files by handle.
const AT_HANDLE_FID: libc::c_int = 0x200;

/// Changes of entries, attributes and the end of writing, of files and directories.
const CHANGES: u64 = libc::FAN_CREATE
    | libc::FAN_DELETE
    | libc::FAN_RENAME
    | libc::FAN_ATTRIB
    | libc::FAN_CLOSE_WRITE
    | libc::FAN_ONDIR;
/// Writes to the files of one directory.
const WRITES: u64 = libc::FAN_MODIFY | libc::FAN_EVENT_ON_CHILD;
/// Entries that appear, disappear or move in a directory above a root.
const NAMES: u64 = libc::FAN_CREATE | libc::FAN_DELETE | libc::FAN_RENAME | libc::FAN_ONDIR;

/// The notifications that a mark requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Request {
    /// All changes in a whole file system, except writes.
    FileSystem,
    /// Writes in a directory of a file system that has its own mark.
    Writes,
    /// All changes in a directory.
    Directory,
    /// Changes of names in a directory above a root.
    Names,
    /// Ends of writing in the canary's folder.
    Closes,
}

impl Request {
    fn mask(self) -> u64 {
        match self {
            Self::FileSystem => CHANGES,
            Self::Writes => WRITES,
            Self::Directory => CHANGES | WRITES,
            Self::Names => NAMES,
            Self::Closes => libc::FAN_CLOSE_WRITE | libc::FAN_EVENT_ON_CHILD,
        }
    }
}

/// A notification group. Closing it removes its marks and drops its queue.
#[derive(Debug)]
pub(crate) struct Group {
    fd: OwnedFd,
    /// True if the queue is unlimited, so that only the queue guard limits it.
    pub(crate) privileged: bool,
}

impl Group {
    /// Opens a group. Without `CAP_SYS_ADMIN` its queue is limited and processes are not reported.
    pub(crate) fn open() -> io::Result<Self> {
        let flags = libc::FAN_CLASS_NOTIF
            | libc::FAN_REPORT_DFID_NAME_TARGET
            | libc::FAN_NONBLOCK
            | libc::FAN_CLOEXEC;
        let unlimited = libc::FAN_UNLIMITED_QUEUE | libc::FAN_UNLIMITED_MARKS;
        match init(flags | unlimited) {
            Ok(fd) => Ok(Self { fd, privileged: true }),
            Err(e) if e.kind() == io::ErrorKind::PermissionDenied => {
                Ok(Self { fd: init(flags)?, privileged: false })
            }
            Err(e) => Err(e),
        }
    }

    /// Adds a mark to an open directory or its file system.
    pub(crate) fn mark(&self, directory: BorrowedFd<'_>, request: Request) -> io::Result<()> {
        let what = match request {
            Request::FileSystem => libc::FAN_MARK_FILESYSTEM,
            _ => libc::FAN_MARK_ONLYDIR,
        };
        #[expect(unsafe_code, reason = "no safe binding exists for fanotify_mark")]
        // SAFETY: both descriptors are open, and a null path refers to `directory` itself.
        let result = unsafe {
            libc::fanotify_mark(
                self.fd.as_raw_fd(),
                libc::FAN_MARK_ADD | what,
                request.mask(),
                directory.as_raw_fd(),
                std::ptr::null(),
            )
        };
        if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }

    /// Reads notifications; zero bytes if none is pending.
    pub(crate) fn read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            match rustix::io::read(&self.fd, &mut *buffer) {
                Ok(bytes) => return Ok(bytes),
                Err(rustix::io::Errno::AGAIN) => return Ok(0),
                Err(rustix::io::Errno::INTR) => {}
                Err(e) => return Err(e.into()),
            }
        }
    }

    /// Returns the number of pending notifications.
    pub(crate) fn pending(&self) -> io::Result<usize> {
        let bytes = rustix::io::ioctl_fionread(&self.fd)?;
        Ok(bytes as usize / PENDING_BYTES)
    }

    /// Returns the device numbers of the file systems that this group has a mark on, as the kernel
    /// shows them in `/proc/self/fdinfo`.
    pub(crate) fn marked_devices(&self) -> io::Result<Vec<u64>> {
        let path = format!("/proc/self/fdinfo/{}", self.fd.as_raw_fd());
        let lines = BufReader::new(File::open(path)?).lines();
        let devices = lines.filter_map(|line| line.map(|line| marked_device(&line)).transpose());
        devices.collect()
    }
}

impl AsFd for Group {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

fn init(flags: libc::c_uint) -> io::Result<OwnedFd> {
    #[expect(unsafe_code, reason = "no safe binding exists for fanotify_init")]
    // SAFETY: the call takes no pointers, and the descriptor it returns belongs to the caller.
    unsafe {
        let fd = libc::fanotify_init(flags, libc::O_RDONLY as libc::c_uint);
        if fd < 0 { Err(io::Error::last_os_error()) } else { Ok(OwnedFd::from_raw_fd(fd)) }
    }
}

/// Returns the device in a line such as `fanotify sdev:fe00000 mflags:0 mask:5800030c ...`.
fn marked_device(line: &str) -> Option<u64> {
    let device = line.strip_prefix("fanotify sdev:")?.split(' ').next()?;
    u64::from_str_radix(device, 16).ok()
}

/// Returns the handle of an open directory in the form of [`Handle`](dirty::decode::Handle).
pub(crate) fn handle_of(directory: BorrowedFd<'_>) -> io::Result<Vec<u8>> {
    handle_at(directory, c"")
}

/// Returns the handle of an entry of an open directory, without following a link.
pub(crate) fn handle_of_entry(directory: BorrowedFd<'_>, name: &[u8]) -> io::Result<Vec<u8>> {
    let name = CString::new(name).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?;
    handle_at(directory, &name)
}

fn handle_at(directory: BorrowedFd<'_>, name: &CStr) -> io::Result<Vec<u8>> {
    let mut handle = match name_to_handle(directory, name, AT_HANDLE_FID) {
        // Before about Linux 6.6.
        Err(e) if e.raw_os_error() == Some(libc::EINVAL) => name_to_handle(directory, name, 0)?,
        other => other?,
    };
    let fsid = file_system_id(directory)?;
    handle.get_mut(..fsid.len()).ok_or(io::ErrorKind::InvalidData)?.copy_from_slice(&fsid);
    Ok(handle)
}

/// Returns the identifier of an open directory's file system, as notifications contain it.
pub(crate) fn file_system_id(directory: BorrowedFd<'_>) -> io::Result<[u8; 8]> {
    let stat = rustix::fs::fstatfs(directory)?;
    #[expect(unsafe_code, reason = "the fields of fsid_t are private")]
    // SAFETY: fsid_t is two 32-bit integers without padding, and any bytes are valid.
    Ok(unsafe { std::mem::transmute_copy(&stat.f_fsid) })
}

/// Returns a handle behind eight zero bytes for the file system's identifier.
fn name_to_handle(
    directory: BorrowedFd<'_>,
    name: &CStr,
    flags: libc::c_int,
) -> io::Result<Vec<u8>> {
    const FSID_BYTES: usize = 8;
    // Aligned for the kernel's `struct file_handle`, which begins with two 32-bit integers.
    let mut words = [0_u32; (HANDLE_HEAD_BYTES - FSID_BYTES + HANDLE_BYTES_MAX) / 4];
    words[0] = HANDLE_BYTES_MAX as u32;
    let mut mount_id: libc::c_int = 0;
    #[expect(unsafe_code, reason = "no safe binding exists for name_to_handle_at")]
    // SAFETY: the name ends with a zero byte, and the first word states the buffer's capacity.
    let result = unsafe {
        libc::syscall(
            libc::SYS_name_to_handle_at,
            directory.as_raw_fd(),
            name.as_ptr(),
            words.as_mut_ptr(),
            &raw mut mount_id,
            if name.is_empty() { flags | libc::AT_EMPTY_PATH } else { flags },
        )
    };
    if result != 0 {
        return Err(io::Error::last_os_error());
    }
    let bytes = words.iter().flat_map(|word| word.to_ne_bytes());
    let used = HANDLE_HEAD_BYTES - FSID_BYTES + (words[0] as usize).min(HANDLE_BYTES_MAX);
    Ok([0; FSID_BYTES].into_iter().chain(bytes.take(used)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_system_marks_are_read_from_fdinfo() {
        let text = "pos:\t0\nfanotify flags:1e33 event-flags:8000\n\
                    fanotify ino:4f969 sdev:fe00000 mflags:0 mask:8000002 ignored_mask:0\n\
                    fanotify sdev:fe00001 mflags:0 mask:5800030c ignored_mask:0\n";
        let devices: Vec<u64> = text.lines().filter_map(marked_device).collect();
        assert_eq!(devices, [0xfe0_0001]);
    }
}
