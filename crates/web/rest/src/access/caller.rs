//! The sender of a request.

use std::sync::Arc;

use listener::{Owner, Source};
use model::AgentId;
use registry::{Grants, Permitted, Registry};

use crate::access::token::Claims;

#[derive(Debug, Clone)]
pub enum Caller {
    /// A caller without credentials.
    Anyone,
    /// A caller on the unix socket; acts as administrator.
    Local { uid: u32 },
    /// A logged-in user, with the claims of the token and the permissions of its roles.
    User { id: u32, name: String, claims: Arc<Claims>, grants: Arc<Grants> },
}

impl Caller {
    /// Returns the name for logs and the audit log.
    pub fn name(&self) -> String {
        match self {
            Self::Anyone => "-".into(),
            Self::Local { uid } => format!("uid:{uid}"),
            Self::User { name, .. } => name.clone(),
        }
    }

    /// Returns the owner of what a request of this caller takes: the user.
    pub fn owner(&self) -> Owner {
        Owner { name: self.name(), is_local: matches!(self, Self::Local { .. }) }
    }

    /// Returns the owner of what a request takes: the user, or the network if the caller has no
    /// credentials.
    pub fn owner_at(&self, source: Option<Source>) -> Owner {
        let (Self::Anyone, Some(ip)) = (self, source.and_then(Source::ip)) else {
            return self.owner();
        };
        let owner = Owner::from_network(ip);
        if owner.is_local && !source.is_some_and(Source::is_local) {
            // The proxy reports a loopback address; this must not count as this machine.
            return Owner { name: format!("proxied {}", owner.name), is_local: false };
        }
        owner
    }

    /// Returns true if the caller may perform an action on one resource.
    pub fn may(&self, registry: &Registry, action: &str, kind: &str, value: &str) -> bool {
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
    pub fn may_gone(&self, action: &str, id: AgentId) -> bool {
        match self {
            Self::Local { .. } => true,
            Self::User { grants, .. } => grants.permit_gone(action, id),
            Self::Anyone => false,
        }
    }

    /// Returns the agents on which the caller may perform an action.
    pub fn scope(&self, registry: &Registry, action: &str) -> Permitted {
        match self {
            Self::Local { .. } => Permitted::All,
            Self::User { grants, .. } => registry.permitted_agents(grants, action),
            Self::Anyone => Permitted::none(),
        }
    }
}
