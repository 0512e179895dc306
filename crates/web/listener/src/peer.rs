//! The peer of a connection: the origin of a request, and the owner of the quota that it uses.

use std::net::{IpAddr, SocketAddr};

/// The origin of a request; attached to every request of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// A TCP connection.
    Tcp(SocketAddr),
    /// An address reported by a trusted proxy; never treated as this machine.
    Proxied(IpAddr),
    /// The unix socket, with the peer's user id as reported by the kernel; already admitted.
    Unix {
        /// User id of the peer.
        uid: u32,
    },
}

impl Source {
    /// Returns true if the request comes from this machine.
    pub fn is_local(self) -> bool {
        match self {
            Self::Tcp(address) => address.ip().to_canonical().is_loopback(),
            Self::Proxied(_) => false,
            Self::Unix { .. } => true,
        }
    }

    /// Returns the peer's address; `None` for the unix socket.
    pub fn ip(self) -> Option<IpAddr> {
        match self {
            Self::Tcp(address) => Some(address.ip().to_canonical()),
            Self::Proxied(ip) => Some(ip.to_canonical()),
            Self::Unix { .. } => None,
        }
    }
}

/// The user, or network, to which a share of a resource is charged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Owner {
    /// Name of the user or network.
    pub name: String,
    /// True for callers on this machine, which have a quota of their own.
    pub is_local: bool,
}

impl Owner {
    /// Returns the owner for an address: its network. Loopback has a quota of its own.
    pub fn from_network(ip: IpAddr) -> Self {
        let ip = ip.to_canonical();
        Self { name: env::sources::network(ip).to_string(), is_local: ip.is_loopback() }
    }

    /// Returns the owner for a user of this machine.
    pub fn from_uid(uid: u32) -> Self {
        Self { name: format!("uid:{uid}"), is_local: true }
    }
}
