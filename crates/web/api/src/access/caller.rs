//! Who sends a request, and from where.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use model::AgentId;
use registry::{Grants, Permitted, Registry};

use crate::access::token::Claims;

/// Where a request comes from; the server puts it on every request of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// A TCP connection.
    Tcp(SocketAddr),
    /// A TCP connection of a proxy that is trusted, which names this address; never this machine.
    Proxied(IpAddr),
    /// The unix socket, with the peer's user id as the kernel names it; already admitted.
    Unix {
        /// User id of the peer.
        uid: u32,
    },
}

impl Source {
    /// Returns true if it is on this machine.
    pub fn is_local(self) -> bool {
        match self {
            Self::Tcp(address) => address.ip().to_canonical().is_loopback(),
            Self::Proxied(_) => false,
            Self::Unix { .. } => true,
        }
    }

    /// The peer's address.
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
    /// Nobody in particular.
    Anyone,
    /// An administrator: whoever has the unix socket.
    Local { uid: u32 },
    /// A logged in user, what the token says, and what the roles may do.
    User { id: u32, name: String, claims: Arc<Claims>, grants: Arc<Grants> },
}

impl Caller {
    /// The name for logs and the audit.
    pub(crate) fn name(&self) -> String {
        match self {
            Self::Anyone => "-".into(),
            Self::Local { uid } => format!("uid:{uid}"),
            Self::User { name, .. } => name.clone(),
        }
    }

    /// Returns true if the caller may do this to one thing.
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

    /// Returns true if the caller may do this to an agent that is gone, of which only the number is known.
    pub(crate) fn may_gone(&self, action: &str, id: AgentId) -> bool {
        match self {
            Self::Local { .. } => true,
            Self::User { grants, .. } => grants.permit_gone(action, id),
            Self::Anyone => false,
        }
    }

    /// The agents to which the caller may do this.
    pub(crate) fn scope(&self, registry: &Registry, action: &str) -> Permitted {
        match self {
            Self::Local { .. } => Permitted::All,
            Self::User { grants, .. } => registry.permitted_agents(grants, action),
            Self::Anyone => Permitted::none(),
        }
    }
}
