//! The identity of a sender: its certificate over TLS, its header on the unix socket.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use axum::http::{HeaderMap, StatusCode};
use link::{HEADER_AGENT, HEADER_SESSION, is_session_id};
use model::{AgentId, Incarnation};
use registry::Registry;

use crate::answer::Refusal;

/// The origin of a connection; an extension of each of its requests.
#[derive(Debug, Clone)]
pub(crate) struct Peer {
    pub(crate) origin: Origin,
    /// The server is full: every request gets 503 with Retry-After.
    pub(crate) turned_away: bool,
}

#[derive(Debug, Clone)]
pub(crate) enum Origin {
    Tls {
        address: SocketAddr,
        /// The peer's own certificate, DER, signed by our certificate authority.
        certificate: Option<Arc<[u8]>>,
        /// Number of the connection; connections are numbered from 1.
        number: u64,
    },
    /// A connection on the unix socket.
    Unix {
        uid: u32,
        /// True if that user is allowed.
        allowed: bool,
    },
}

impl Peer {
    pub(crate) fn name(&self) -> String {
        match &self.origin {
            Origin::Tls { address, .. } => address.to_string(),
            Origin::Unix { uid, .. } => format!("uid {uid}"),
        }
    }

    /// Returns the address with which agents are listed.
    pub(crate) fn ip(&self) -> Option<IpAddr> {
        match &self.origin {
            Origin::Tls { address, .. } => Some(address.ip().to_canonical()),
            Origin::Unix { .. } => None,
        }
    }

    /// Returns the certificate that the peer has shown.
    pub(crate) fn certificate(&self) -> Option<&Arc<[u8]>> {
        match &self.origin {
            Origin::Tls { certificate, .. } => certificate.as_ref(),
            Origin::Unix { .. } => None,
        }
    }

    /// Refuses a caller that is not local.
    pub(crate) fn local_only(&self) -> Result<(), Refusal> {
        match self.origin {
            Origin::Unix { .. } => Ok(()),
            Origin::Tls { .. } => {
                Err(Refusal::forbidden("local_only", "to be asked on the unix socket only")
                    .closing())
            }
        }
    }
}

/// The sender of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Caller {
    pub(crate) agent: AgentId,
    /// `Incarnation(0)` for an agent that is not registered and whose requests a local caller sends.
    pub(crate) incarnation: Incarnation,
    /// Time from which its certificate should be renewed, seconds since the epoch.
    pub(crate) renew_at_s: Option<i64>,
}

/// Identifies the caller. Reads memory only, so it is cheap to repeat once the agent's lock is held.
pub(crate) fn identify(
    peer: &Peer,
    headers: &HeaderMap,
    registry: &Registry,
) -> Result<Caller, Refusal> {
    match &peer.origin {
        Origin::Tls { certificate: Some(der), .. } => {
            let identity = registry.identify(der).map_err(|e| Refusal::from(e).closing())?;
            Ok(Caller {
                agent: identity.agent,
                incarnation: identity.incarnation,
                renew_at_s: Some(identity.renew_at_s),
            })
        }
        Origin::Tls { certificate: None, .. } => Err(Refusal::new(
            StatusCode::UNAUTHORIZED,
            "certificate_required",
            "an agent's certificate is needed: enrol the agent",
        )
        .closing()),
        Origin::Unix { .. } => {
            let agent = local_agent(headers)?;
            let incarnation = registry.agent(agent).map_or(Incarnation(0), |a| a.incarnation);
            Ok(Caller { agent, incarnation, renew_at_s: None })
        }
    }
}

fn local_agent(headers: &HeaderMap) -> Result<AgentId, Refusal> {
    let text = headers
        .get(HEADER_AGENT)
        .ok_or_else(|| Refusal::invalid(format!("header {HEADER_AGENT} is missing")).closing())?;
    parse_agent(text.to_str().unwrap_or_default())
        .ok_or_else(|| Refusal::invalid(format!("header {HEADER_AGENT} is not a number")).closing())
}

/// Parses a number in decimal digits; leading zeros are allowed.
pub(crate) fn parse_agent(text: &str) -> Option<AgentId> {
    (!text.is_empty() && text.bytes().all(|b| b.is_ascii_digit()))
        .then(|| text.parse().ok())
        .flatten()
}

/// Returns the agent's session id; empty when the header is missing.
pub(crate) fn session_id(headers: &HeaderMap) -> Result<String, Refusal> {
    match headers.get(HEADER_SESSION).map(|v| v.to_str().unwrap_or_default()) {
        None => Ok(String::new()),
        Some(text) if is_session_id(text) => Ok(text.to_owned()),
        Some(_) => Err(Refusal::invalid(format!("header {HEADER_SESSION} is malformed")).closing()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn agent_numbers_are_digits_only() {
        assert_eq!(parse_agent("007"), Some(AgentId(7)));
        for bad in ["", "+7", "-7", " 7", "7 ", "x", "99999999999"] {
            assert_eq!(parse_agent(bad), None, "{bad:?}");
        }
    }
}
