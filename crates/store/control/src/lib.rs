//! Agents, groups, certificates, enrolment tokens, users, roles, policies, commands and the audit
//! log, kept durably in `registry.db` (`docs/format/registry-db.md`) by the [`ControlStore`].
//!
//! # Invariants
//! - Every write is durable (survives power loss) before its method returns, with these exceptions:
//!   [`ControlStore::save_liveness`], [`ControlStore::save_configs`],
//!   [`ControlStore::save_last_scans`], [`ControlStore::save_certificate_uses`],
//!   [`ControlStore::save_outcomes`] and the end of an audit row survive a killed process, and a
//!   power cut once a later durable write or checkpoint followed. Their content is reported again
//!   or can be derived again.
//! - Counters (status, group, operating system, version) are kept in the transaction that changes
//!   what they count. Agent 000, the server itself, is in no counter.
//! - An agent's number is given to another agent only when it is purged or replaced, with a new
//!   incarnation, so that no late document of the former agent is taken for its successor's.
//!
//! Queries name their [`Reader`], and changes their [`WriteContext`]. All calls block; async
//! callers use `spawn_blocking`. Every method returns a [`ControlError`] when the database fails;
//! its documentation names only further errors. Limits: the constants of [`limits`].

mod audit;
mod command;
mod db;
mod defaults;
mod error;
pub mod limits;
pub mod log;
mod query;
mod schema;
mod security;
mod summary;
mod types;
mod watched;

pub use audit::{AuditEntry, AuditOutcome, PendingAudit, WriteContext};
pub use command::{
    Command, CommandCounts, CommandKind, CommandOutcome, CommandRow, NewCommand, OpenCommand,
    OutcomeFilter, OutcomeRow, OutcomeState,
};
pub use db::{ControlStore, KEYS_SETTING, RegistryFailure};
pub use error::{ControlError, ControlResult};
pub use query::{
    AgentColumn, AgentCondition, AgentPage, AgentQuery, CompareOp, DistinctPage, Sort,
};
pub use security::{
    AccessRows, LinkKind, PolicyRow, RoleRow, RuleRow, SecurityChange, SecurityImage, SecurityWrite,
};
pub use summary::{FleetSummary, GroupConfig, GroupCount, LastScan, Overview, StatusSummary};
pub use types::{
    AgentRow, CertificateRow, ConfigRow, ConfigState, ControlImage, EnrolledAgent, EnrolmentRow,
    EnrolmentTokenRow, InfoRow, LivenessRow, NewAgent, NewCertificate, NewEnrolmentToken, Policy,
    Revocation, RevocationTarget, RoleRef, Sign, StatusCode, UserRow,
};
pub use watched::{WatchPage, WatchQuery, WatchRow};

pub use model::Permitted;
pub use sqlite::Reader;
