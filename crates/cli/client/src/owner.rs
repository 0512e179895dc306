//! The owner of the data folder and of the socket that a command trusts.
//!
//! A folder that a command finds by default, `./data`, may have been put there by another user: a
//! command of root would send a new password to the process that listens on its socket. So it must
//! belong to root, to the caller, or to the user of the installed server, and no other user may write
//! in it. A folder that the caller names is taken; if it belongs to another user, one line says to
//! which.

use std::fs::{File, Metadata};
use std::io::Write as _;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Once;

use anyhow::{Context as _, bail};
use rustix::fs::{Mode, OFlags};

use crate::connect::UNITS_DATA;

/// Permissions to write for the group and for others.
const OTHERS_WRITE: u32 = 0o022;

/// Returns an error unless a folder that was found by default belongs to root, the caller or the
/// installed server's user, and no other user may write in it.
///
/// # Errors
/// Names the owner or the mode, and the remedy.
pub(crate) fn expect_own(folder: &Path) -> anyhow::Result<()> {
    let Ok(found) = folder.metadata() else { return Ok(()) };
    let shown = folder.display();
    if !is_trusted(found.uid()) {
        bail!(
            "{shown}: belongs to {}, and was found by default; if you trust it, name it with --data",
            user(found.uid())
        );
    }
    if found.mode() & OTHERS_WRITE != 0 {
        bail!(
            "{shown}: others may write in it (mode {:04o}), and it was found by default; run chmod \
             go-w on it, or name it with --data",
            found.mode() & 0o7777
        );
    }
    Ok(())
}

/// Says on stderr, once, to which other user a folder belongs that the caller named.
pub fn mention(folder: &Path) {
    static SAID: Once = Once::new();
    let Ok(found) = folder.metadata() else { return };
    if !is_trusted(found.uid()) {
        SAID.call_once(|| {
            let (folder, user) = (folder.display(), user(found.uid()));
            let _ = writeln!(std::io::stderr(), "note: {folder} belongs to {user}");
        });
    }
}

/// Returns true for root, the caller and the owner of the installed server's data folder.
fn is_trusted(uid: u32) -> bool {
    let installed = || Path::new(UNITS_DATA).metadata().is_ok_and(|found| found.uid() == uid);
    uid == 0 || uid == rustix::process::geteuid().as_raw() || installed()
}

/// Returns a user's name with its number, for a message.
fn user(uid: u32) -> String {
    let users = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
    let name = users.lines().find_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        (fields.nth(1)?.parse() == Ok(uid)).then_some(name)
    });
    name.map_or_else(|| format!("user {uid}"), |name| format!("user {name} ({uid})"))
}

/// A socket in a folder that is held open, so that no other folder can be put in its place between the
/// check and a request.
pub(crate) struct HeldSocket {
    folder: File,
    name: PathBuf,
}

impl HeldSocket {
    /// Opens the folder of a socket.
    ///
    /// # Errors
    /// If the folder cannot be opened.
    pub(crate) fn open(socket: &Path) -> anyhow::Result<Self> {
        let folder =
            socket.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let held = rustix::fs::open(folder, flags, Mode::empty())
            .with_context(|| folder.display().to_string())?;
        let name = socket.file_name().map(PathBuf::from).unwrap_or_default();
        Ok(Self { folder: File::from(held), name })
    }

    /// Returns a path of the socket through the open folder.
    pub(crate) fn path(&self) -> PathBuf {
        Path::new(&format!("/proc/self/fd/{}", self.folder.as_raw_fd())).join(&self.name)
    }

    /// Connects once. Returns an error unless the process that listens runs as root, as the caller,
    /// or as the owner of both the folder and the socket.
    ///
    /// # Errors
    /// The inner error is that of the connection.
    pub(crate) fn expect_peer(&self, shown: &Path) -> anyhow::Result<std::io::Result<()>> {
        let stream = match UnixStream::connect(self.path()) {
            Ok(stream) => stream,
            Err(e) => return Ok(Err(e)),
        };
        let peer = rustix::net::sockopt::socket_peercred(&stream)?.uid.as_raw();
        let owns = |found: &Metadata| found.uid() == peer;
        let socket = self.path().symlink_metadata()?;
        let owner = self.folder.metadata()?;
        let is_owner = owns(&owner) && owns(&socket) && socket.file_type().is_socket();
        if !is_owner && peer != 0 && peer != rustix::process::geteuid().as_raw() {
            bail!(
                "{}: {} listens on it, but the folder belongs to {}: not asked",
                shown.display(),
                user(peer),
                user(owner.uid())
            );
        }
        Ok(Ok(()))
    }
}
