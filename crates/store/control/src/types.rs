//! Rows and requests of the control store.

use model::{AgentId, AgentOs, AgentRecord, AgentStatus, Incarnation};
use serde::{Deserialize, Serialize};

use super::command::OpenCommand;

/// Reason for the status of an agent (`docs/reference/wire.md`, "API: status of agents").
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum StatusCode {
    /// No particular reason.
    #[default]
    Ok,
    /// Its version is not accepted.
    InvalidVersion,
    /// Its version could not be read.
    UnreadableVersion,
    /// The agent shut down.
    Shutdown,
    /// The agent stopped sending keepalives.
    NoKeepalive,
    /// The server reset it.
    Reset,
    /// The agent left the fleet for good (`holdfast agent leave`).
    Left,
}

impl StatusCode {
    /// All codes, in the order of their numbers.
    pub const ALL: [Self; 7] = [
        Self::Ok,
        Self::InvalidVersion,
        Self::UnreadableVersion,
        Self::Shutdown,
        Self::NoKeepalive,
        Self::Reset,
        Self::Left,
    ];

    /// Returns the number in the API and in the database.
    pub fn number(self) -> u8 {
        self as u8
    }

    /// Returns the code with a number; [`StatusCode::Ok`] for an unknown one.
    pub fn from_number(number: u8) -> Self {
        Self::ALL.get(usize::from(number)).copied().unwrap_or_default()
    }
}

/// An agent, with what the model's record does not contain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AgentRow {
    pub record: AgentRecord,
    /// Reason for its status.
    pub status_code: StatusCode,
    /// State of its groups' configuration.
    pub config: ConfigState,
    /// Silence after which it is removed, seconds; `None` for an agent that stays.
    pub ephemeral_s: Option<u64>,
}

/// The configuration that an agent runs.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ConfigState {
    /// MD5 in hex of the configuration that the agent reported; empty when it runs none, `None`
    /// until its first report.
    pub sum: Option<String>,
    /// True if it is the configuration of its groups.
    pub synced: bool,
}

/// The configuration that an agent runs, to be written in a batch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigRow {
    pub id: AgentId,
    /// Its incarnation; a row of another incarnation is skipped.
    pub incarnation: Incarnation,
    /// The configuration that it runs.
    pub config: ConfigState,
}

/// A certificate of an agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CertificateRow {
    /// SHA-256 of its DER bytes.
    pub fingerprint: [u8; 32],
    pub agent: AgentId,
    /// Incarnation of that agent.
    pub incarnation: Incarnation,
    /// Start of validity, seconds since the epoch.
    pub not_before_s: i64,
    /// End of validity, seconds since the epoch.
    pub not_after_s: i64,
    /// Time of its first use, seconds since the epoch.
    pub used_at_s: Option<i64>,
    /// Time at which a later certificate of the agent was first used, seconds since the epoch.
    pub superseded_at_s: Option<i64>,
    /// Time of its revocation, seconds since the epoch.
    pub revoked_at_s: Option<i64>,
}

/// A certificate that was just issued.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewCertificate {
    /// SHA-256 of its DER bytes.
    pub fingerprint: [u8; 32],
    /// SHA-256 of its public key (`SubjectPublicKeyInfo`).
    pub key_digest: [u8; 32],
    /// Start of validity, seconds since the epoch.
    pub not_before_s: i64,
    /// End of validity, seconds since the epoch.
    pub not_after_s: i64,
    /// The certificate as PEM; not stored.
    pub pem: String,
}

/// An agent to register.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewAgent {
    /// Number that the agent requests; `None` for the next one.
    pub id: Option<AgentId>,
    pub name: String,
    /// Address to register, or `any`.
    pub register_ip: String,
    /// Groups in order of priority, after those of the token; an empty list means `default`.
    pub groups: Vec<String>,
    /// Random number, drawn for this registration.
    pub incarnation: Incarnation,
    /// Key for 4.x clients, 64 characters.
    pub client_key: Option<String>,
    /// Silence after which it is removed, seconds; `None` for an agent that stays.
    pub ephemeral_s: Option<u64>,
    /// Current time, seconds since the epoch.
    pub now_s: i64,
}

/// Result of an enrolment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EnrolledAgent {
    /// The new agent.
    pub row: AgentRow,
    pub certificate: NewCertificate,
}

/// The enrolment of an agent that has not connected since.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EnrolmentRow {
    pub agent: AgentId,
    /// SHA-256 of the public key that it enrolled with.
    pub key_digest: [u8; 32],
}

/// An enrolment token to store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewEnrolmentToken {
    /// SHA-256 of the token's secret.
    pub digest: [u8; 32],
    /// Groups of the agents that register with it.
    pub groups: Vec<String>,
    /// Number of agents that may register with it.
    pub uses: u32,
    /// End of validity, seconds since the epoch.
    pub expires_at_s: i64,
    /// Silence after which an agent that registers with it is removed, seconds; `None`: never.
    pub ephemeral_s: Option<u64>,
    /// Current time, seconds since the epoch.
    pub now_s: i64,
}

/// An enrolment token in force.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EnrolmentTokenRow {
    /// SHA-256 of the token's secret.
    pub digest: [u8; 32],
    /// Groups of the agents that register with it.
    pub groups: Vec<String>,
    /// Number of agents that may still register with it.
    pub uses_left: u32,
    /// End of validity, seconds since the epoch.
    pub expires_at_s: i64,
    /// Silence after which an agent that registers with it is removed, seconds; `None`: never.
    pub ephemeral_s: Option<u64>,
}

/// Status of an agent and, if changed, its system, to be written in a batch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LivenessRow {
    pub id: AgentId,
    /// Its incarnation; a row of another incarnation is skipped.
    pub incarnation: Incarnation,
    /// Its status.
    pub status: AgentStatus,
    pub status_code: StatusCode,
    /// Time at which it was last heard from, seconds since the epoch.
    pub keepalive_at_s: Option<i64>,
    /// Time at which it was found disconnected, seconds since the epoch.
    pub disconnected_at_s: Option<i64>,
    /// Its version, name, address and system; `None` leaves them unchanged.
    pub info: Option<InfoRow>,
}

/// Version, name, address and system that an agent reports.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InfoRow {
    /// Version of its program.
    pub version: Option<String>,
    /// Its host name.
    pub hostname: Option<String>,
    /// Address it was heard from.
    pub ip: Option<String>,
    /// Its operating system.
    pub os: Option<AgentOs>,
}

/// A role by number and name.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct RoleRef {
    pub id: u32,
    pub name: String,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UserRow {
    pub id: u32,
    pub name: String,
    /// Argon2id hash in PHC form.
    pub password_hash: String,
    /// True if it may log in with an authorization context.
    pub allow_run_as: bool,
    /// Roles in their order.
    pub roles: Vec<RoleRef>,
}

/// Actions on resources that a role allows or denies.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Policy {
    pub id: u32,
    pub name: String,
    /// Actions, e.g. `agent:read`.
    pub actions: Vec<String>,
    /// Resources, e.g. `agent:id:*`; pairs joined with `&`.
    pub resources: Vec<String>,
    /// True if the policy allows, false if it denies.
    pub allow: bool,
}

/// The tokens that a revocation refuses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum RevocationTarget {
    User(u32),
    /// Tokens that carry a role.
    Role(u32),
    /// Tokens issued for an authorization context.
    RunAs,
    Everyone,
}

/// Tokens of a target issued up to an instant are refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Revocation {
    pub target: RevocationTarget,
    /// Tokens with `nbf` at or before it are refused, seconds since the epoch.
    pub issued_until_s: i64,
    /// Time from which the row may be deleted because every such token has expired, seconds since
    /// the epoch.
    pub expires_at_s: i64,
}

/// The rows that the registry keeps in memory.
#[derive(Debug, Clone, Default)]
pub struct ControlImage {
    /// Every agent but 000.
    pub agents: Vec<AgentRow>,
    /// Every certificate that is kept.
    pub certificates: Vec<CertificateRow>,
    /// Unfinished commands.
    pub outstanding: Vec<OpenCommand>,
    /// Token revocations in force.
    pub revocations: Vec<Revocation>,
    /// Groups that have a configuration, with its text as it was stored.
    pub configs: Vec<(String, Vec<u8>)>,
}

/// Issues a certificate for the number that the store has just assigned.
pub type Sign<'a> = &'a mut dyn FnMut(AgentId) -> Result<NewCertificate, String>;
