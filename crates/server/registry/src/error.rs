//! Errors of the registry, one enum per family of operations.

use std::path::PathBuf;

use control::ControlError;
use model::AgentId;

/// Failure of opening, certificates, groups, commands or settings.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RegistryError {
    /// The registry's database.
    #[error(transparent)]
    Store(#[from] ControlError),
    /// A key or certificate file.
    #[error("{}: {cause}", path.display())]
    File {
        path: PathBuf,
        /// The cause.
        cause: String,
    },
    /// The certificate authority's key is missing although agents rely on it.
    #[error(
        "{}: missing, but the registry holds agents that trust it: restore it from a backup \
         (a new one would lock every agent out)", path.display()
    )]
    CaLost {
        /// The missing file.
        path: PathBuf,
    },
    /// A certificate or key could not be made.
    #[error("certificate: {0}")]
    Certificate(String),
    /// The operating system gave no random bytes.
    #[error("no randomness: {0}")]
    Random(#[from] std::io::Error),
    /// A password that breaks the rule.
    #[error(transparent)]
    Password(#[from] PasswordError),
    #[error("password hash: {0}")]
    Hash(String),
    /// The request breaks a rule.
    #[error("{0}")]
    Refused(String),
    /// A group's configuration is not valid.
    #[error("configuration: {0}")]
    Settings(#[from] settings::SettingsError),
}

impl RegistryError {
    /// Returns true if the same call may succeed later without a change (503).
    pub fn is_transient(&self) -> bool {
        matches!(self, Self::Store(e) if e.is_transient())
    }
}

/// A password that breaks the rule (codes 5007 and 5009 of the API).
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "the password needs {min} to {max} characters with at least one lower-case letter, one \
     upper-case letter, one digit and one symbol",
    min = crate::limits::PASSWORD_CHARS_MIN,
    max = crate::limits::PASSWORD_CHARS_MAX
)]
pub struct PasswordError;

/// The reason why a peer's certificate is not accepted. All but `Store` are final for that
/// certificate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum IdentityError {
    /// The certificate is not registered.
    #[error("the certificate is not registered here: enrol the agent again")]
    Unknown,
    /// The certificate or its agent was revoked or removed.
    #[error("the certificate is revoked: enrol the agent again")]
    Revoked,
    /// A later certificate of the same agent is in use, so this one comes from a copy or an old
    /// image.
    #[error(
        "the certificate is superseded by a later one of the same agent: \
         this may be a copied image, enrol it as an agent of its own"
    )]
    Superseded,
    /// The certificate has expired.
    #[error("the certificate has expired: enrol the agent again")]
    Expired,
}

/// The reason why an enrolment or a renewal was refused. Nothing was changed, the token was not
/// used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EnrollError {
    /// The token is not of this server, unknown, used up or expired.
    #[error("the enrolment token is {0}: ask for a new one")]
    Token(&'static str),
    /// The name breaks the rule.
    #[error("agent name: {0}")]
    Name(String),
    /// The address is not an IP address.
    #[error("agent address {0}: neither an IP address nor `any`")]
    Ip(String),
    /// The name belongs to another agent.
    #[error("an agent named {name} is already registered as {id}: {}", name_remedy(*id))]
    DuplicateName { name: String, id: AgentId },
    /// The number belongs to another agent.
    #[error("agent {0} is already registered: remove it first, or leave the number out")]
    DuplicateId(AgentId),
    /// The address belongs to another agent.
    #[error("agent {id} is already registered with {ip}: remove it first, or register with any")]
    DuplicateIp { ip: String, id: AgentId },
    #[error("no such group: {0}")]
    Group(String),
    /// A line of an import is refused.
    #[error("line {line}: {cause}")]
    Line {
        line: usize,
        /// The reason.
        cause: Box<Self>,
    },
    /// The signing request is invalid, or its signature is wrong.
    #[error("certificate request: {0}")]
    Request(String),
    /// There is no such agent (renewal).
    #[error("no such agent: {0}")]
    NoSuchAgent(AgentId),
    /// Its certificates were revoked (renewal).
    #[error("the certificates of agent {0} are revoked: remove it and enrol it again")]
    Revoked(AgentId),
    /// The certificate that was presented for a renewal is no longer valid.
    #[error(transparent)]
    Presented(#[from] IdentityError),
    /// The registry failed; try again.
    #[error(transparent)]
    Registry(#[from] RegistryError),
}

/// The reason why a login was refused.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LoginError {
    /// The user is unknown or the password is wrong; deliberately not distinguished (401).
    #[error("invalid credentials")]
    Invalid,
    /// Too many failures from this source (403, code 6000).
    #[error("too many failed logins from this address: blocked for {retry_after_s} s")]
    Blocked {
        /// Seconds until the block ends.
        retry_after_s: u64,
    },
    /// All hashing threads are busy and their queue is full (429).
    #[error("too many logins at once: try again in {retry_after_s} s")]
    Busy {
        /// Seconds to wait.
        retry_after_s: u64,
    },
    /// The registry failed.
    #[error(transparent)]
    Registry(#[from] RegistryError),
}

impl From<ControlError> for LoginError {
    fn from(error: ControlError) -> Self {
        Self::Registry(error.into())
    }
}

fn name_remedy(id: AgentId) -> &'static str {
    match id {
        AgentId::SERVER => "that is the server itself; choose another name",
        _ => "remove it first, or choose another name",
    }
}

impl From<ControlError> for EnrollError {
    fn from(error: ControlError) -> Self {
        match error {
            ControlError::Token(why) => Self::Token(why),
            ControlError::DuplicateName { name, id } => Self::DuplicateName { name, id },
            ControlError::NotFound { what: "group", name } => Self::Group(name),
            other => Self::Registry(other.into()),
        }
    }
}
