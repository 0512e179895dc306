//! Parameters and results of the registry.

use control::RoleRef;
use model::{AgentId, AgentOs, Incarnation};

/// The owner of a certificate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CertificateOwner {
    pub agent: AgentId,
    /// The life of that number.
    pub incarnation: Incarnation,
    /// Time from which the agent should renew (2/3 of the certificate's life), seconds since the
    /// epoch.
    pub renew_at_s: i64,
}

/// A certificate with its key.
#[derive(Clone)]
pub struct IssuedKeyPair {
    /// Leaf, then the certificate authority.
    pub cert_chain_pem: String,
    /// PKCS#8.
    pub key_pem: String,
}

/// The key pair that signs the API's tokens (ES256).
#[derive(Clone)]
pub struct TokenKeys {
    /// PKCS#8.
    pub private_pem: String,
    /// `SubjectPublicKeyInfo`.
    pub public_pem: String,
}

/// The terms of an enrolment token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TokenTerms {
    /// Groups of the agents that register with it.
    pub groups: Vec<String>,
    /// Number of agents that may register with it.
    pub uses: u32,
    /// Time until it expires, seconds.
    pub ttl_s: u64,
    /// Silence after which such an agent is removed, seconds; `None`: never.
    pub ephemeral_s: Option<u64>,
}

impl TokenTerms {
    /// Returns the terms of a token for agents that stay, without groups.
    pub fn new(uses: u32, ttl_s: u64) -> Self {
        Self { groups: Vec::new(), uses, ttl_s, ephemeral_s: None }
    }
}

/// The silent agents of a scope.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SilentAgents {
    pub count: u64,
    /// Time since when the first of them is silent, microseconds since the epoch.
    pub oldest_us: Option<u64>,
    /// Names of up to three of them, the longest silence first.
    pub names: Vec<String>,
}

/// An agent's request to enrol.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct AgentEnrolment {
    /// Its name: 2 to 128 of `A-Z a-z 0-9 . _ -`.
    pub name: String,
    /// Address to register: an IP address or `any`; empty means `any`.
    pub ip: String,
    /// Groups, after those of the token.
    pub groups: Vec<String>,
    /// True for an agent on the server's own host. Only that one may have the host's name.
    pub on_server: bool,
}

/// The result of an enrolment or a renewal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IssuedIdentity {
    /// The agent's number.
    pub agent: AgentId,
    /// The life of that number.
    pub incarnation: Incarnation,
    /// True if the agent was enrolled before and only its certificate is new.
    pub again: bool,
    pub certificate_pem: String,
    /// The certificate authority to trust.
    pub ca_pem: String,
    pub cluster_name: String,
}

/// An agent's description of itself at startup and with each keepalive. A field that is `None`
/// leaves the stored value unchanged.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct AgentInfo {
    /// Version of its program, e.g. `Holdfast v0.1.0`.
    pub version: Option<String>,
    /// Its host name.
    pub hostname: Option<String>,
    /// Its operating system.
    pub os: Option<AgentOs>,
    /// Address from which it connects.
    pub ip: Option<String>,
}

/// An agent's report on its groups' configuration.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ReportedConfig {
    /// Digest of the configuration it runs; empty when it runs none.
    pub sum: String,
    /// The configuration that it refused since, if any.
    pub problem: Option<ConfigProblem>,
}

/// A configuration that an agent refused; the agent keeps the previous one.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ConfigProblem {
    /// Digest of the refused one.
    pub sum: String,
    pub detail: String,
}

/// A user as the rest of the program sees it: without the password's hash.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct User {
    pub id: u32,
    pub name: String,
    /// True if it may log in with an authorization context.
    pub allow_run_as: bool,
    /// Roles in their order.
    pub roles: Vec<RoleRef>,
}

impl User {
    pub fn has_role(&self, name: &str) -> bool {
        self.roles.iter().any(|r| r.name == name)
    }

    /// Ids of its roles in their order, as a token carries them.
    pub fn role_ids(&self) -> Vec<u32> {
        self.roles.iter().map(|r| r.id).collect()
    }
}

/// The result of one [`crate::Registry::tick`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TickReport {
    /// Agents that became silent.
    pub disconnected: u64,
    /// Agents whose row was written.
    pub written: u64,
    /// Command outcomes that were written.
    pub outcomes: u64,
    /// Command outcomes that expired.
    pub expired: u64,
}
