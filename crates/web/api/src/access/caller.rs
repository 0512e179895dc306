//! The sender of a request and the connection that it arrived on.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use model::AgentId;
use registry::{Grants, Permitted, Registry};

use crate::access::token::Claims;

/// The origin of a request; the server attaches it to every request of a connection.
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

#[derive(Debug, Clone)]
pub(crate) enum Caller {
    /// A caller without credentials.
    Anyone,
    /// A caller on the unix socket; acts as administrator.
    Local { uid: u32 },
    /// A logged-in user, with the claims of the token and the permissions of its roles.
    User { id: u32, name: String, claims: Arc<Claims>, grants: Arc<Grants> },
}

impl Caller {
    /// Returns the name for logs and the audit log.
    pub(crate) fn name(&self) -> String {
        match self {
            Self::Anyone => "-".into(),
            Self::Local { uid } => format!("uid:{uid}"),
            Self::User { name, .. } => name.clone(),
        }
    }

    /// Returns true if the caller may perform an action on one resource.
    pub(crate) fn may(&self, registry: &Registry, action: &str, kind: &str, value: &str) -> bool {
        match (self, value.parse::<AgentId>()) {
            (Self::Local { .. }, _) => true,
            (Self::User { grants, .. }, Ok(id)) if kind == "agent:id" => {
                registry.permits_agent(grants, action, id)
            }
            (Self::User { grants, .. }, _) => grants.permit(action, &[(kind, value)]),
            (Self::Anyone, _) => false,
        }
    }

    /// Returns true if the caller may perform an action on a removed agent, of which only the number is
    /// known.
    pub(crate) fn may_gone(&self, action: &str, id: AgentId) -> bool {
        match self {
            Self::Local { .. } => true,
            Self::User { grants, .. } => grants.permit_gone(action, id),
            Self::Anyone => false,
        }
    }

    /// Returns the agents on which the caller may perform an action.
    pub(crate) fn scope(&self, registry: &Registry, action: &str) -> Permitted {
        match self {
            Self::Local { .. } => Permitted::All,
            Self::User { grants, .. } => registry.permitted_agents(grants, action),
            Self::Anyone => Permitted::none(),
        }
    }
}
