//! Answers, heartbeats, enrolment and digests: small JSON objects. Both sides ignore unknown fields
//! and use defaults for absent ones, so that either side may be the newer one.

use model::{AgentOs, Skipped, WatchReport};
use serde::{Deserialize, Serialize};

use crate::digest::Sum;

/// `status` of an answer to an accepted session.
pub const STATUS_OK: &str = "ok";
/// `status` of an answer when the checksums differ (409).
pub const STATUS_CHECKSUM_MISMATCH: &str = "checksum_mismatch";

/// The answer to a session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Default)]
#[serde(default)]
pub struct Answer {
    /// [`STATUS_OK`] or [`STATUS_CHECKSUM_MISMATCH`].
    pub status: String,
    /// True if nothing in the session could be applied.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub noop: bool,
    /// Values that were left out; all others were accepted. This and the following fields are sent
    /// only to senders that name their instance.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub skipped: Vec<Skipped>,
    /// Id of the store that answered. An agent that sees a different id checks its datasets.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub store: String,
    /// Id of the last session of this agent that the store has applied.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub session: String,
}

/// The answer to a refused request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Default)]
#[serde(default)]
pub struct ErrorAnswer {
    /// Short word, such as `identity_mismatch`.
    pub error: String,
    /// The reason, and how to correct it.
    pub detail: String,
    /// Status of the answer, for clients that read only bodies.
    pub code: u16,
}

/// The state of an agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Default)]
#[serde(rename_all = "snake_case")]
pub enum ControlAction {
    /// The agent has just started.
    Startup,
    /// The agent is running.
    #[default]
    Notify,
    /// The agent is about to stop.
    Shutdown,
}

/// The outcome of one command.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Default)]
#[serde(default)]
pub struct ControlOutcome {
    /// The command's id.
    pub id: u64,
    /// `done` or `failed`.
    pub outcome: String,
    /// The reason or the result.
    pub detail: String,
}

/// An agent's scan of its files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Default)]
#[serde(default)]
pub struct ControlScan {
    /// Start of the scan, seconds since the epoch.
    pub started_at_s: i64,
    /// End of the scan; absent while it runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ended_at_s: Option<i64>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Default)]
#[serde(default)]
pub struct ControlRequest {
    /// State of the agent.
    pub action: ControlAction,
    /// Version of the agent's program.
    pub version: String,
    /// Its host name.
    pub hostname: String,
    /// Its operating system.
    pub os: AgentOs,
    /// Commands that finished since the last acknowledged heartbeat.
    pub outcomes: Vec<ControlOutcome>,
    /// The newest scan, if it began or ended since the last acknowledged heartbeat.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scan: Option<ControlScan>,
    /// State of the watched roots, if it changed since the last acknowledged heartbeat.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub watch: Option<WatchReport>,
    /// State of the groups' configuration; absent from an agent that does not support it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub config: Option<ControlConfig>,
    /// Changes and events that the server has not acknowledged, and 1 for a start whose first scan
    /// has not ended; absent from an agent that does not count them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pending: Option<u64>,
    /// True if the agent leaves the fleet with this shutdown.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub leaves: bool,
}

/// The configuration of its groups that an agent runs or has refused.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Default)]
#[serde(default)]
pub struct ControlConfig {
    /// Digest of the configuration in use; empty if there is none.
    pub sum: String,
    /// Digest of the last configuration that was refused; empty if none was refused since.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub refused: String,
    /// The reason for the refusal.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub detail: String,
}

/// The answer to `GET /configuration`: the merged configuration of the agent's groups.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Default)]
#[serde(default)]
pub struct ConfigAnswer {
    /// Digest of `text`: MD5 in hex, empty for an empty text.
    pub sum: String,
    /// TOML (`docs/reference/groups.md`); empty when the groups set nothing.
    pub text: String,
}

/// The agent as the server knows it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Default)]
#[serde(default)]
pub struct ControlAgent {
    /// Number of the agent, at least three digits.
    pub id: String,
    pub name: String,
    pub groups: Vec<String>,
}

/// Limits that the server sets for one session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Default)]
#[serde(default)]
pub struct ControlLimits {
    /// Longest session, bytes.
    pub session_bytes_max: u64,
    /// Most values in one session.
    pub session_values_max: u64,
    /// Longest document, bytes.
    pub document_bytes_max: u64,
}

/// A command to the agent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Default)]
#[serde(default)]
pub struct ControlCommand {
    /// Id to be returned in [`ControlOutcome::id`].
    pub id: u64,
    /// `rescan`, `restart`, `reconnect` or `configure`; an unknown one is answered with the outcome
    /// `failed`.
    pub kind: String,
}

/// The answer to a heartbeat.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Default)]
#[serde(default)]
pub struct ControlAnswer {
    /// The agent as the server knows it.
    pub agent: ControlAgent,
    /// Name of the cluster, which sessions must carry.
    pub cluster_name: String,
    /// Id of the store that answered.
    pub store: String,
    /// Id of the last session of this agent that the store has applied.
    pub last_session: Option<String>,
    /// Index names or patterns (with a trailing `*`) for which the server accepts writes.
    pub datasets: Vec<String>,
    /// Limits that the server sets for one session.
    pub limits: ControlLimits,
    /// Commands without an outcome so far.
    pub commands: Vec<ControlCommand>,
    /// True if the agent's certificate is due for renewal.
    pub renew: bool,
    /// Digest of the configuration of the agent's groups. An agent that runs another one fetches
    /// it. Absent from a server that does not distribute configurations.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub config: Option<String>,
}

/// The body of `POST /enroll`: a new agent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Default)]
#[serde(default)]
pub struct EnrollRequest {
    /// The enrolment token.
    pub token: String,
    /// Name that the agent asks for.
    pub name: String,
    /// Address that the agent asks to be registered with; `any` when absent.
    pub ip: Option<String>,
    /// Groups that the agent asks for.
    pub groups: Vec<String>,
    /// Certificate request, PEM. The key never leaves the agent.
    pub csr: String,
}

/// The answer to an enrolment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Default)]
#[serde(default)]
pub struct EnrollAnswer {
    /// Number of the agent, at least three digits.
    pub agent: String,
    /// Certificate of the agent, PEM.
    pub certificate: String,
    /// CA of the server, PEM.
    pub ca: String,
    /// Name of the cluster, which sessions must carry.
    pub cluster_name: String,
}

/// The body of `POST /renew`: a further certificate for an agent that still has a valid one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Default)]
#[serde(default)]
pub struct RenewRequest {
    /// Certificate request, PEM.
    pub csr: String,
}

/// The answer to a renewal.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Default)]
#[serde(default)]
pub struct RenewAnswer {
    /// The new certificate, PEM.
    pub certificate: String,
    /// CA of the server, PEM.
    pub ca: String,
}

/// The body of `POST /digest`: a request for the server's copy of some ranges of one dataset of
/// this agent, either as the sums of their parts or as their documents ([`crate::digest`]).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Default)]
#[serde(default)]
pub struct DigestRequest {
    /// Index name on the wire.
    pub index: String,
    /// Names of ranges ([`crate::digest::KeyRange::name`]), each once.
    pub ranges: Vec<String>,
    /// Number of hex digits by which each range is split; 0 asks for the documents themselves.
    pub split: u8,
    /// Asks for the bodies of the documents as well; an older server leaves them out.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub bodies: bool,
}

/// Number of documents and sum of hashes of one part of a range; on the wire `[17,"90ab..."]`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Default)]
pub struct DigestPart(
    pub u64,
    /// Sum of their hashes, 16 hex digits; empty when there are none.
    pub String,
);

impl From<Sum> for DigestPart {
    fn from(sum: Sum) -> Self {
        match sum.documents {
            0 => Self::default(),
            n => Self(n, format!("{:016x}", sum.hashes)),
        }
    }
}

impl DigestPart {
    /// Returns the sum as numbers; `None` if the text is not one.
    pub fn sum(&self) -> Option<Sum> {
        let hashes = match self.1.as_str() {
            "" => 0,
            text => u64::from_str_radix(text, 16).ok()?,
        };
        Some(Sum { documents: self.0, hashes })
    }
}

/// One document in a listing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Default)]
pub struct DigestItem {
    /// Id that the agent gave it.
    pub id: String,
    pub version: u64,
    /// Its `checksum.hash.sha1`.
    pub checksum: String,
    /// The document as JSON, if its body was asked for.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub body: String,
}

/// The answer to [`DigestRequest`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Default)]
#[serde(default)]
pub struct DigestAnswer {
    /// Number of ranges that this answer covers, from the first on. The sender asks for the others
    /// again.
    pub ranges: u32,
    /// The parts of each range, in order.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub parts: Vec<DigestPart>,
    /// The documents of the ranges, if they were asked for.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub items: Vec<DigestItem>,
    /// Id of the store that answered.
    pub store: String,
}
