//! The unix socket: mode 0660, one owner, peers identified by kernel credentials (`SO_PEERCRED`).

use std::fs;
use std::io;
use std::os::unix::fs::{FileTypeExt as _, PermissionsExt as _};
use std::os::unix::net::UnixStream as Probe;
use std::path::{Path, PathBuf};

use tokio::net::UnixListener;

use crate::error::SessionsError;

/// Mode of the socket's file.
const MODE: u32 = 0o660;

/// A bound socket; its file is removed when it is dropped.
pub(crate) struct Socket {
    path: PathBuf,
    pub(crate) listener: UnixListener,
}

impl Socket {
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}

/// Binds the socket. A socket that does not accept connections is left over from a killed process and is
/// replaced; any other file at the path is an error.
pub(crate) fn bind(path: &Path) -> Result<Socket, SessionsError> {
    let failed = |cause| SessionsError::Socket { path: path.to_owned(), cause };
    match fs::symlink_metadata(path) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => {}
        Err(e) => return Err(failed(e)),
        Ok(found) if !found.file_type().is_socket() => {
            return Err(SessionsError::NotASocket { path: path.to_owned() });
        }
        Ok(_) => match Probe::connect(path) {
            Ok(_) => return Err(SessionsError::SocketInUse { path: path.to_owned() }),
            Err(e) if e.kind() == io::ErrorKind::ConnectionRefused => {
                fs::remove_file(path).map_err(failed)?;
            }
            Err(e) => return Err(failed(e)),
        },
    }
    let listener = UnixListener::bind(path).map_err(failed)?;
    let socket = Socket { path: path.to_owned(), listener };
    // A peer that connects before this line is still checked by its user id.
    fs::set_permissions(path, fs::Permissions::from_mode(MODE)).map_err(failed)?;
    Ok(socket)
}
