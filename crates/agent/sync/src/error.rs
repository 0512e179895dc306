//! The errors between an agent and its server.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Error word of the server when all rows of metrics are more than a day ahead of its clock.
const ROWS_TOO_NEW: &str = "rows_too_new";
/// Prefix of a TLS failure that the other side reported.
const ALERT: &str = "received fatal alert";

/// Failure of enrolment, a session, a check or a heartbeat.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SyncError {
    /// A file of the agent's folder cannot be used.
    #[error("{}: {cause}", path.display())]
    File {
        path: PathBuf,
        /// Error of the operating system.
        cause: io::Error,
    },
    /// The agent has no usable identity.
    #[error(
        "identity: {0}; restore it, or remove this agent at the server and agent.json here and enrol \
         again with `holdfast enroll` (what waits in agent.db is kept)"
    )]
    Identity(String),
    /// The enrolment token is invalid.
    #[error("enrolment token: {0}; make a new one with `holdfast token` on the server")]
    Token(String),
    /// The agent's folder is a copy of one that another process uses.
    #[error(
        "this folder is a copy of the one that the running process {pid} uses: stop that one, or \
         take another folder and enrol it with `holdfast enroll`"
    )]
    InUse { pid: u32 },
    /// The server cannot be reached; the queue keeps everything.
    #[error("{url}: no answer: {cause}")]
    Unreachable {
        /// URL of the request.
        url: String,
        /// Reason why there was no answer.
        cause: String,
    },
    /// The connection was established, but broke during the request, or the request took too long.
    #[error("{url}: the request did not get through: {cause}")]
    Interrupted {
        /// URL of the request.
        url: String,
        cause: String,
    },
    /// The server asks to retry later.
    #[error("{url}: busy (status {status}){}{detail}", if detail.is_empty() { "" } else { ": " })]
    Busy {
        /// URL of the request.
        url: String,
        /// 429 or 503, or another 5xx.
        status: u16,
        /// The error's name; empty if the server gave none.
        word: String,
        /// The server's explanation; empty if it gave none.
        detail: String,
        retry_after: Option<Duration>,
    },
    /// The server refuses this agent.
    #[error("{url}: refused (status {status}): {detail}")]
    Refused {
        /// URL of the request.
        url: String,
        status: u16,
        /// The error's name, such as `identity_cloned`; empty if the server gave none.
        word: String,
        /// The server's explanation.
        detail: String,
    },
    /// The answer violates the protocol.
    #[error("{url}: unexpected answer: {detail}")]
    Protocol {
        /// URL of the request.
        url: String,
        /// The violation.
        detail: String,
    },
    /// TLS could not be set up.
    #[error("tls: {0}")]
    Tls(#[from] rustls::Error),
    /// A key or a certificate request could not be created.
    #[error("certificate request: {0}")]
    Certificate(#[from] rcgen::Error),
    #[error("queue: {0}")]
    Queue(#[from] queue::QueueError),
    /// A task ended before it had an answer.
    #[error("the agent is stopping")]
    Stopping,
}

impl SyncError {
    /// Returns true if the server found all rows of metrics more than a day ahead of its clock.
    pub fn is_too_new(&self) -> bool {
        matches!(self, Self::Busy { word, .. } if word == ROWS_TOO_NEW)
    }

    /// Returns true if the server refuses this agent, whatever it sends.
    pub fn refuses_agent(&self) -> bool {
        matches!(self, Self::Refused { status: 401 | 403, .. })
    }

    /// Returns the text without the URL, if any request of the agent would have failed for the same
    /// reason.
    pub fn reason(&self) -> String {
        match self {
            Self::Unreachable { cause, .. } => cause.clone(),
            Self::Refused { word, detail, .. } if self.refuses_agent() => {
                format!("{word}: {detail}")
            }
            other => other.to_string(),
        }
    }

    /// Returns true if the server refused the certificate of this request.
    pub(crate) fn refuses_certificate(&self) -> bool {
        match self {
            Self::Identity(_) => true,
            Self::Refused { status, .. } => *status == 401,
            Self::Unreachable { cause, .. } | Self::Interrupted { cause, .. } => {
                cause.contains(ALERT)
            }
            _ => false,
        }
    }

    pub(crate) fn file(path: &Path, cause: io::Error) -> Self {
        Self::File { path: path.to_owned(), cause }
    }

    /// Returns true if a later retry of the same call can succeed.
    pub fn is_transient(&self) -> bool {
        matches!(self, Self::Unreachable { .. } | Self::Busy { .. }) || self.is_slow()
    }

    /// Returns true if the request may have been too large for the connection's speed and the
    /// timeout.
    pub(crate) fn is_slow(&self) -> bool {
        matches!(self, Self::Interrupted { .. } | Self::Refused { status: 408, .. })
    }

    /// Returns true if the connection broke, or there was no answer in time.
    pub(crate) fn is_broken(&self) -> bool {
        matches!(self, Self::Interrupted { .. })
    }

    /// Returns true if the server refused the size of the body.
    pub(crate) fn is_too_large(&self) -> bool {
        matches!(self, Self::Refused { status: 413, .. })
    }

    /// Returns true if this identity is in use on another machine, so that a new enrolment is
    /// required.
    pub fn is_copied(&self) -> bool {
        matches!(self, Self::Refused { word, .. } if word == "identity_cloned")
    }

    /// Returns the delay that the server asked for.
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Busy { retry_after, .. } => *retry_after,
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusal_of_the_agent_has_one_reason_at_every_route() {
        let refused = |url: &str, status| SyncError::Refused {
            url: url.to_owned(),
            status,
            word: "identity_cloned".into(),
            detail: "in use elsewhere".into(),
        };
        assert_eq!(refused("/control", 403).reason(), refused("/stateful", 403).reason());
        assert_ne!(refused("/control", 400).reason(), refused("/stateful", 400).reason());
    }
}
