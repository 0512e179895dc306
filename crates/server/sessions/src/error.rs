//! Errors of starting the sessions side.

use std::net::SocketAddr;
use std::path::PathBuf;

use thiserror::Error;

/// Failure of [`crate::Sessions::start`].
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum SessionsError {
    /// The address could not be bound.
    #[error("{address}: cannot listen: {cause}: {}", env::listen::bind_remedy(cause))]
    Bind {
        address: SocketAddr,
        #[source]
        cause: std::io::Error,
    },
    /// The unix socket could not be created.
    #[error("{}: cannot listen: {cause}", path.display())]
    Socket {
        path: PathBuf,
        #[source]
        cause: std::io::Error,
    },
    /// Another process answers on the unix socket.
    #[error("{}: another process answers there: stop it, or configure another path", path.display())]
    SocketInUse { path: PathBuf },
    /// The path exists and is not a socket.
    #[error("{}: there is something else than a socket: remove it, or configure another path",
        path.display())]
    NotASocket { path: PathBuf },
    /// The server's certificate could not be issued.
    #[error("server certificate: {0}")]
    Certificate(#[from] registry::RegistryError),
    /// The certificates are not valid for a TLS configuration.
    #[error("tls: {0}")]
    Tls(String),
    /// The open gaps of agents could not be read.
    #[error("open gaps of agents: {0}")]
    State(#[from] state::StateError),
    /// Neither HTTPS nor unix socket is configured.
    #[error("no listener: configure an address or a unix socket for agents")]
    NoListener,
}
