//! The unix socket: callers are identified by the user id that the kernel reports, and act as
//! administrator without a token.

use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use axum::Router;
use tokio::net::{UnixListener, UnixStream};

use super::{CONNECTIONS_MAX, HEAD_TIME_MAX, Listener, Local, ServeError, Server, start};

/// Options of the socket and the users it admits.
#[derive(Debug, Clone)]
pub struct UnixOptions {
    /// Path of the socket; a stale one is replaced, a live one is an error.
    pub path: PathBuf,
    /// Permission bits of the socket, for example `0o660`.
    pub mode: u32,
    /// User ids that are admitted in addition to root and the server's own.
    pub admitted_uids: Vec<u32>,
    /// Maximum number of connections.
    pub connections_max: usize,
}

impl UnixOptions {
    /// Returns options that admit only root and the server's own user.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self {
            path: path.into(),
            mode: 0o660,
            admitted_uids: Vec::new(),
            connections_max: CONNECTIONS_MAX,
        }
    }
}

/// Listens on a unix socket with a router.
///
/// # Errors
/// Fails if the path cannot be used, or another server listens on it.
pub async fn serve_unix(options: UnixOptions, router: Router) -> Result<Server, ServeError> {
    let path = options.path.clone();
    let refused = |source| ServeError::Bind { address: path.display().to_string(), source };
    clear(&path).await.map_err(refused)?;
    let listener = UnixListener::bind(&path).map_err(refused)?;
    let permissions = std::fs::Permissions::from_mode(options.mode);
    std::fs::set_permissions(&path, permissions).map_err(refused)?;
    let mut admitted = options.admitted_uids;
    admitted.extend([0, rustix::process::geteuid().as_raw()]);
    let listener = Listener::Unix(listener, admitted);
    let most = (options.connections_max, options.connections_max);
    Ok(start(Local::Unix(options.path), listener, router, most, HEAD_TIME_MAX))
}

/// Removes a stale socket on which no process listens. Any other file at the path is kept.
async fn clear(path: &Path) -> io::Result<()> {
    use std::os::unix::fs::FileTypeExt as _;
    let kind = match std::fs::symlink_metadata(path) {
        Ok(metadata) => metadata.file_type(),
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(e) => return Err(e),
    };
    if !kind.is_socket() {
        let text = "exists and is not a socket: remove it, or configure another path";
        return Err(io::Error::new(io::ErrorKind::AlreadyExists, text));
    }
    match UnixStream::connect(path).await {
        Ok(_) => Err(io::Error::new(io::ErrorKind::AddrInUse, "another server listens on it")),
        Err(_) => std::fs::remove_file(path),
    }
}
