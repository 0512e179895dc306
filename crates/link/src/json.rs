//! Answers, heartbeats, enrolment and digests: small JSON objects. Unknown fields are ignored on
//! both sides and absent ones have defaults, so that either side may be the newer one.

use model::{AgentOs, Skipped};
use serde::{Deserialize, Serialize};

use crate::digest::Sum;

/// `status` of an answer when the session was taken.
pub const STATUS_OK: &str = "ok";
/// `status` of an answer when the checksums differ (409).
pub const STATUS_CHECKSUM_MISMATCH: &str = "checksum_mismatch";

/// The answer to a session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Default)]
#[serde(default)]
pub struct Answer {
    /// [`STATUS_OK`] or [`STATUS_CHECKSUM_MISMATCH`].
    pub status: String,
    /// True when the session asked for nothing that could be done.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub noop: bool,
    /// Values that were left out; everything else was taken.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub skipped: Vec<Skipped>,
    /// Which store answered: an agent that finds another one than before checks its datasets.
    pub store: String,
    /// The last session of this agent that the store has applied.
    pub session: String,
}

/// The answer to a request that was not taken.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Default)]
#[serde(default)]
pub struct ErrorAnswer {
    /// Short word, such as `identity_mismatch`.
    pub error: String,
    /// What is wrong and what to do about it.
    pub detail: String,
}

/// What an agent is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Default)]
#[serde(rename_all = "snake_case")]
pub enum ControlAction {
    /// It has just started.
    Startup,
    /// It is alive.
    #[default]
    Notify,
    /// It is about to stop.
    Shutdown,
}

/// What became of one command.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Default)]
#[serde(default)]
pub struct ControlOutcome {
    /// The command's id.
    pub id: u64,
    /// `done` or `failed`.
    pub outcome: String,
    /// Why, or with which result.
    pub detail: String,
}

/// An agent's scan of its files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Default)]
#[serde(default)]
pub struct ControlScan {
    /// When it began, seconds since the epoch.
    pub started_at_s: i64,
    /// When it ended; absent while it runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ended_at_s: Option<i64>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Default)]
#[serde(default)]
pub struct ControlRequest {
    /// What the agent is doing.
    pub action: ControlAction,
    /// Version of its program.
    pub version: String,
    /// Its host name.
    pub hostname: String,
    /// Its operating system.
    pub os: AgentOs,
    /// Commands it has finished since the last heartbeat that was answered.
    pub outcomes: Vec<ControlOutcome>,
    /// The newest scan, when it began or ended since the last heartbeat that was answered.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scan: Option<ControlScan>,
    /// What it runs of its groups' configuration; absent from an agent that knows nothing of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub config: Option<ControlConfig>,
}

/// How an agent stands to the configuration of its groups.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Default)]
#[serde(default)]
pub struct ControlConfig {
    /// Digest of the one it runs; empty when it runs none.
    pub sum: String,
    /// Digest of the one it refused; empty when it refused none since.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub refused: String,
    /// Why it refused.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub detail: String,
}

/// The answer to `GET /configuration`: what the agent's groups configure.
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
    /// Its number, at least three digits.
    pub id: String,
    pub name: String,
    pub groups: Vec<String>,
}

/// What the server takes in one session.
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

/// An order to the agent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Default)]
#[serde(default)]
pub struct ControlCommand {
    /// To be named in [`ControlOutcome::id`].
    pub id: u64,
    /// `rescan`, `restart`, `reconnect` or `configure`; an unknown one is answered with the outcome `failed`.
    pub kind: String,
}

/// The answer to a heartbeat.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Default)]
#[serde(default)]
pub struct ControlAnswer {
    /// The agent as the server knows it.
    pub agent: ControlAgent,
    /// The cluster's name: sessions must carry it.
    pub cluster_name: String,
    /// Which store answers.
    pub store: String,
    /// The last session of this agent that the store has applied.
    pub last_session: Option<String>,
    /// Index names or patterns (a trailing `*`) that the server takes writes for.
    pub datasets: Vec<String>,
    /// What the server takes in one session.
    pub limits: ControlLimits,
    /// Orders not yet answered with an outcome.
    pub commands: Vec<ControlCommand>,
    /// True if the agent's certificate is due for renewal.
    pub renew: bool,
    /// Digest of what the agent's groups configure, to be fetched when the agent runs another one;
    /// absent from a server that hands out none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub config: Option<String>,
}

/// `POST /enroll`: a new agent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Default)]
#[serde(default)]
pub struct EnrollRequest {
    /// The enrolment token.
    pub token: String,
    /// The name it wants.
    pub name: String,
    /// The address it wants to be registered with; `any` when absent.
    pub ip: Option<String>,
    /// The groups it wants.
    pub groups: Vec<String>,
    /// Its certificate request, PEM. The key never leaves the agent.
    pub csr: String,
}

/// The answer to an enrolment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Default)]
#[serde(default)]
pub struct EnrollAnswer {
    /// Its number, at least three digits.
    pub agent: String,
    /// Its certificate, PEM.
    pub certificate: String,
    /// The server's own CA, PEM.
    pub ca: String,
    /// The cluster's name: sessions must carry it.
    pub cluster_name: String,
}

/// `POST /renew`: a further certificate for an agent that still has a valid one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Default)]
#[serde(default)]
pub struct RenewRequest {
    /// Its certificate request, PEM.
    pub csr: String,
}

/// The answer to a renewal.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Default)]
#[serde(default)]
pub struct RenewAnswer {
    /// The new certificate, PEM.
    pub certificate: String,
    /// The server's own CA, PEM.
    pub ca: String,
}

/// `POST /digest`: what the server holds of some ranges of one dataset of this agent: sums of their
/// parts, or their documents ([`crate::digest`]).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Default)]
#[serde(default)]
pub struct DigestRequest {
    /// Index name on the wire.
    pub index: String,
    /// Names of ranges ([`crate::digest::KeyRange::name`]), each once.
    pub ranges: Vec<String>,
    /// By how many hex digits each is split; 0 asks for the documents themselves.
    pub split: u8,
    /// Documents with their bodies; an older server gives them without.
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
    /// As numbers; `None` when the text is none.
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
    /// The document, JSON, if it was asked for.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub body: String,
}

/// The answer to [`DigestRequest`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Default)]
#[serde(default)]
pub struct DigestAnswer {
    /// How many of the ranges this answer speaks of, from the first on; the others are to be asked
    /// for again.
    pub ranges: u32,
    /// The parts of each range, in order.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub parts: Vec<DigestPart>,
    /// The documents of the ranges, when they were asked for.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub items: Vec<DigestItem>,
    /// Which store answered.
    pub store: String,
}
