//! Agents, groups, certificates, enrolment tokens, users, roles, policies, commands and the audit log,
//! kept durably in `registry.db` (`docs/format/registry-db.md`). [`SqliteControl`] implements the trait
//! [`ControlStore`]; another engine implements the same trait and passes the same conformance suite.
//!
//! # Invariants
//! - Every write is durable (survives power loss) before its method returns, with these exceptions:
//!   [`ControlStore::save_liveness`], [`ControlStore::save_configs`], [`ControlStore::save_last_scans`],
//!   [`ControlStore::save_certificate_uses`], [`ControlStore::save_outcomes`] and the end of an audit
//!   row survive a killed process, and a power cut once a later durable write or checkpoint followed.
//!   Their content is reported again or can be derived again.
//! - Counters (status, group, operating system, version) are kept in the transaction that changes
//!   what they count. Agent 000, the server itself, is in no counter.
//! - An agent's number is given to another agent only when it is purged or replaced, with a new
//!   incarnation, so that no late document of the former agent is taken for its successor's.
//!
//! Queries name their [`Reader`], and changes their [`WriteContext`]. All calls block; async callers
//! use `spawn_blocking`. Limits: the constants of [`limits`].

mod audit;
mod command;
#[cfg(any(test, feature = "conformance"))]
pub mod conformance;
mod db;
mod defaults;
mod error;
mod glance;
pub mod limits;
mod query;
mod schema;
mod security;
mod types;

pub use audit::{AuditEntry, AuditOutcome, PendingAudit, WriteContext};
pub use command::{
    Command, CommandCounts, CommandKind, CommandRow, NewCommand, OpenCommand, Outcome,
    OutcomeFilter, OutcomeRow, OutcomeState,
};
pub use db::SqliteControl;
pub use error::{ControlError, ControlResult};
pub use glance::{GroupConfig, GroupCount, LastScan, Overview, StatusSummary, Summary};
pub use query::{AgentColumn, AgentPage, AgentQuery, CompareOp, Condition, DistinctPage, Sort};
pub use security::{
    AccessRows, LinkKind, PolicyRow, RoleRow, RuleRow, SecurityChange, SecurityImage,
    SecurityStore, SecurityWrite,
};
pub use types::{
    AgentRow, CertificateRow, ConfigRow, ConfigState, ControlImage, Enrolled, EnrolmentTokenRow,
    InfoRow, LivenessRow, NewAgent, NewCertificate, NewEnrolmentToken, Policy, Revocation,
    RevocationTarget, RoleRef, Sign, StatusCode, UserRow,
};

use model::AgentId;
pub use model::Permitted;
pub use sqlite::Reader;

/// The registry's durable side. See the module head for what survives what.
///
/// Every method returns [`ControlError`] when the database fails; only further errors are
/// named.
pub trait ControlStore: SecurityStore {
    /// Everything that the registry keeps in memory, from one snapshot.
    fn load(&self) -> ControlResult<ControlImage>;

    /// Write agent 000, the server's own entry, as it is now.
    fn save_server(&self, server: &model::AgentRecord) -> ControlResult<()>;

    /// Keep a new enrolment token (its digest only). Groups that do not exist are refused.
    ///
    /// # Errors
    /// `NotFound` for a group; `Limit` at [`limits::ENROLMENT_TOKENS_MAX`].
    fn add_enrolment_token(
        &self,
        context: &WriteContext,
        token: &NewEnrolmentToken,
    ) -> ControlResult<()>;

    /// The enrolment tokens that are neither used up nor expired at `now_s`, digests included.
    fn enrolment_tokens(
        &self,
        reader: &Reader,
        now_s: i64,
    ) -> ControlResult<Vec<EnrolmentTokenRow>>;

    /// Forget an enrolment token; whether it was there.
    fn revoke_enrolment_token(
        &self,
        context: &WriteContext,
        digest: &[u8; 32],
    ) -> ControlResult<bool>;

    /// Use the token once and register an agent with groups and what `sign` gives, in one transaction.
    ///
    /// # Errors
    /// `Token`, `DuplicateName`, `NotFound` (group), `Certificate`; then nothing was changed and
    /// the token was not used.
    fn enroll(
        &self,
        digest: &[u8; 32],
        agent: &NewAgent,
        sign: Sign<'_>,
    ) -> ControlResult<Enrolled>;

    /// Register agents that are added or imported (no token, no certificate yet), all or none.
    ///
    /// # Errors
    /// `DuplicateName`, `NotFound` (group), `NumberUsed`.
    fn add_agents(
        &self,
        context: &WriteContext,
        agents: &[NewAgent],
    ) -> ControlResult<Vec<AgentRow>>;

    /// Remove agents and register one in their place, in one transaction; it may have a number of
    /// `freed`, without its orders. One of its number and name is the agent itself: only key,
    /// address, date and (if named) groups change, its certificates are revoked. Who went, who came.
    ///
    /// # Errors
    /// As [`ControlStore::add_agents`]; then nothing was changed.
    fn replace_agents(
        &self,
        context: &WriteContext,
        gone: &[AgentId],
        freed: &[AgentId],
        new: &NewAgent,
    ) -> ControlResult<(Vec<AgentRow>, AgentRow)>;

    /// Whether [`ControlStore::replace_agents`] would be done now: its errors. Changes nothing.
    ///
    /// # Errors
    /// As there.
    fn try_replace_agents(
        &self,
        reader: &Reader,
        gone: &[AgentId],
        new: &NewAgent,
    ) -> ControlResult<()>;

    /// The agents that bear this name, this number, or register with this address (`None`: it may
    /// be shared), ascending.
    fn rivals(
        &self,
        reader: &Reader,
        name: &str,
        id: Option<AgentId>,
        register_ip: Option<&str>,
    ) -> ControlResult<Vec<AgentId>>;

    /// Store a further certificate of an agent; those that are superseded and never were used go.
    ///
    /// # Errors
    /// `NotFound` when the agent is gone.
    fn add_certificate(&self, agent: AgentId, certificate: &NewCertificate) -> ControlResult<()>;

    /// Write when certificates were first used and superseded. One transaction; survives a
    /// killed process.
    fn save_certificate_uses(&self, rows: &[CertificateRow]) -> ControlResult<()>;

    /// Revoke every certificate of these agents in one transaction; how many were in force.
    fn revoke_certificates(
        &self,
        context: &WriteContext,
        agents: &[AgentId],
        now_s: i64,
    ) -> ControlResult<u64>;

    /// Forget certificates, enrolment tokens and revocations of tokens whose time is over.
    fn forget_expired(&self, now_s: i64) -> ControlResult<u64>;

    /// Remove the agent with its groups and pending outcomes, revoke its certificates. The row
    /// as it was; `None` when there is none. 000 is refused.
    ///
    /// # Errors
    /// `Refused` for 000.
    fn remove_agent(
        &self,
        context: &WriteContext,
        agent: AgentId,
        now_s: i64,
    ) -> ControlResult<Option<AgentRow>>;

    /// Remove agents in one transaction, as [`ControlStore::remove_agent`] does; the rows as they
    /// were. Numbers that are not registered are passed over.
    ///
    /// # Errors
    /// `Refused` for 000; then none is removed.
    fn remove_agents(
        &self,
        context: &WriteContext,
        agents: &[AgentId],
        now_s: i64,
    ) -> ControlResult<Vec<AgentRow>>;

    /// Let numbers of removed agents be given again to whoever asks for one of them.
    fn free_numbers(&self, context: &WriteContext, ids: &[AgentId]) -> ControlResult<()>;

    /// The key that 4.x clients are given of the agent; `None` when it has none.
    ///
    /// # Errors
    /// `NotFound` (agent).
    fn client_key(&self, reader: &Reader, agent: AgentId) -> ControlResult<Option<String>>;

    /// Write what agents told of their scans, in one transaction; survives a killed process.
    fn save_last_scans(&self, scans: &[(AgentId, LastScan)]) -> ControlResult<()>;

    /// What the agent told of its last scan.
    ///
    /// # Errors
    /// `NotFound` (agent).
    fn last_scan(&self, reader: &Reader, agent: AgentId) -> ControlResult<LastScan>;

    /// Replace the groups of several agents in one transaction, all or none. The groups each has
    /// now.
    ///
    /// # Errors
    /// As [`ControlStore::set_agent_groups`].
    fn set_groups_of(
        &self,
        context: &WriteContext,
        agents: &[(AgentId, Vec<String>)],
    ) -> ControlResult<Vec<(AgentId, Vec<String>)>>;

    /// The configuration of a group; `None` when it has none.
    ///
    /// # Errors
    /// `NotFound` (group).
    fn group_config(&self, reader: &Reader, name: &str) -> ControlResult<Option<GroupConfig>>;

    /// Put the configuration of a group.
    ///
    /// # Errors
    /// `NotFound` (group).
    fn set_group_config(
        &self,
        context: &WriteContext,
        name: &str,
        config: &GroupConfig,
    ) -> ControlResult<()>;

    /// Replace the agent's groups, in order of priority. An empty list becomes `default`.
    ///
    /// # Errors
    /// `NotFound` (agent or group), `Limit` at [`limits::GROUPS_PER_AGENT_MAX`].
    fn set_agent_groups(
        &self,
        context: &WriteContext,
        agent: AgentId,
        groups: &[String],
    ) -> ControlResult<Vec<String>>;

    /// Create a group.
    ///
    /// # Errors
    /// `Exists`, `Refused` (name).
    fn create_group(&self, context: &WriteContext, name: &str, now_s: i64) -> ControlResult<()>;

    /// Delete a group; its agents lose it, and those left with none get `default`. Who changed,
    /// with the groups that remain.
    ///
    /// # Errors
    /// `NotFound`; `Refused` for `default`.
    fn delete_group(
        &self,
        context: &WriteContext,
        name: &str,
    ) -> ControlResult<Vec<(AgentId, Vec<String>)>>;

    /// Every group with the number of its agents, by name.
    fn groups(&self, reader: &Reader) -> ControlResult<Vec<GroupCount>>;

    /// Write what agents said of themselves. One transaction; survives a killed process.
    /// Rows of agents that are gone are passed over.
    fn save_liveness(&self, rows: &[LivenessRow]) -> ControlResult<()>;

    /// Write how agents stand to their groups' configuration. One transaction; survives a killed
    /// process. Rows of agents that are gone are passed over.
    fn save_configs(&self, rows: &[ConfigRow]) -> ControlResult<()>;

    /// One page of agents and the number of all that match.
    fn agents(&self, reader: &Reader, query: &AgentQuery, now_s: i64) -> ControlResult<AgentPage>;

    /// The numbers of all agents that match, ascending, without paging.
    fn agent_ids(
        &self,
        reader: &Reader,
        query: &AgentQuery,
        now_s: i64,
    ) -> ControlResult<Vec<AgentId>>;

    /// Agents by status; kept, not counted.
    fn status_summary(&self, reader: &Reader) -> ControlResult<StatusSummary>;

    /// Agents by status, platform, group and version from one snapshot; kept, not counted.
    fn summary(&self, reader: &Reader) -> ControlResult<Summary>;

    /// The different values of columns over the agents that match, with how many have them. Sort
    /// steps by other columns are passed over.
    fn distinct(
        &self,
        reader: &Reader,
        query: &AgentQuery,
        columns: &[AgentColumn],
        now_s: i64,
    ) -> ControlResult<DistinctPage>;

    /// The fleet at a glance from one snapshot; kept, not counted.
    fn overview(&self, reader: &Reader) -> ControlResult<Overview>;

    /// Create a command for registered agents, as one row whatever their number. Its number.
    ///
    /// # Errors
    /// `Limit` at [`limits::COMMANDS_MAX`] unfinished ones.
    fn create_command(&self, context: &WriteContext, command: &NewCommand) -> ControlResult<u64>;

    /// Drop some of the oldest finished commands beyond [`limits::COMMANDS_MAX`]; survives a killed
    /// process. Whether there is more to drop.
    fn trim_commands(&self) -> ControlResult<bool>;

    /// Record outcomes and adjust the counts, in one transaction; survives a killed process.
    /// An outcome never goes back (acknowledged stays acknowledged).
    fn save_outcomes(&self, rows: &[OutcomeRow]) -> ControlResult<()>;

    /// Outcomes that are not final become `state` (expired or cancelled). How many.
    fn finish_command(
        &self,
        context: &WriteContext,
        id: u64,
        state: OutcomeState,
        now_s: i64,
    ) -> ControlResult<u64>;

    /// One command with its counts as far as the agents of `scope` go, and a page of their
    /// outcomes by agent number, from one snapshot.
    fn command(
        &self,
        reader: &Reader,
        id: u64,
        scope: &Permitted,
        outcomes: OutcomeFilter,
    ) -> ControlResult<Option<(CommandRow, Vec<OutcomeRow>)>>;

    /// The newest commands, newest first, each with its counts as far as the agents of `scope` go,
    /// from one snapshot.
    fn commands(
        &self,
        reader: &Reader,
        limit: u64,
        scope: &Permitted,
    ) -> ControlResult<Vec<CommandRow>>;

    /// A user by name.
    fn user(&self, reader: &Reader, name: &str) -> ControlResult<Option<UserRow>>;

    /// All users by id.
    fn users(&self, reader: &Reader) -> ControlResult<Vec<UserRow>>;

    /// Create a user with roles in the given order; its id.
    ///
    /// # Errors
    /// `Exists`, `NotFound` (role).
    fn create_user(
        &self,
        context: &WriteContext,
        name: &str,
        password_hash: &str,
        allow_run_as: bool,
        roles: &[u32],
    ) -> ControlResult<u32>;

    /// Replace a user's password hash and store the revocation of its tokens.
    ///
    /// # Errors
    /// `NotFound`.
    fn set_password_hash(
        &self,
        context: &WriteContext,
        name: &str,
        hash: &str,
        revoked: &Revocation,
    ) -> ControlResult<()>;

    /// Delete a user and store the revocation of its tokens; whether it was there.
    ///
    /// # Errors
    /// `Refused` for a reserved user (ids up to 99).
    fn delete_user(
        &self,
        context: &WriteContext,
        name: &str,
        revoked: &Revocation,
    ) -> ControlResult<bool>;

    /// All roles by id.
    fn roles(&self, reader: &Reader) -> ControlResult<Vec<RoleRef>>;

    /// The policies of a role set, flattened in the order in which a later one overrides an
    /// earlier one.
    fn policies(&self, reader: &Reader, roles: &[u32]) -> ControlResult<Vec<Policy>>;

    /// Refuse tokens issued at or before the revocation's instant.
    fn revoke_tokens(&self, context: &WriteContext, revocation: &Revocation) -> ControlResult<()>;

    /// The token revocations in force.
    fn revocations(&self) -> ControlResult<Vec<Revocation>>;

    /// Forget all revocations (the keys were replaced, so every token is dead anyway).
    fn clear_revocations(&self, context: &WriteContext) -> ControlResult<()>;

    /// A setting by name.
    fn setting(&self, reader: &Reader, name: &str) -> ControlResult<Option<String>>;

    /// Refuse tokens and write settings, all in one transaction.
    fn revoke_and_set(
        &self,
        context: &WriteContext,
        revocation: &Revocation,
        settings: &[(&str, String)],
    ) -> ControlResult<()>;

    /// Write a setting.
    fn set_setting(&self, name: &str, value: &str) -> ControlResult<()>;

    /// Write a setting unless it is there, whoever wrote it; what it is now.
    fn setting_or(&self, name: &str, value: &str) -> ControlResult<String>;

    /// Append to the audit log; the oldest rows beyond [`limits::AUDIT_ROWS_MAX`] go, of what
    /// changed nothing those beyond [`limits::AUDIT_IDLE_ROWS_MAX`].
    fn audit(&self, entry: &AuditEntry) -> ControlResult<()>;

    /// The audit log, newest first, below `before` where given.
    fn audit_log(
        &self,
        reader: &Reader,
        before: Option<u64>,
        limit: u64,
    ) -> ControlResult<Vec<AuditEntry>>;

    /// Copy the whole database to a new file while it is in use; the copy is consistent.
    ///
    /// # Errors
    /// `Exists` when the file is there already.
    fn backup_to(&self, file: &std::path::Path) -> ControlResult<()>;

    /// Appends the row of the context as begun, durable when it returns, if no change has written it
    /// yet. Call this before something is changed outside of the store.
    fn write_audit(&self, context: &WriteContext) -> ControlResult<()>;

    /// Sets the outcome of the context's row, and appends the row if no change has written it. Survives a
    /// killed process; a power cut right after it may leave the row as begun.
    fn end_audit(&self, context: &WriteContext, outcome: AuditOutcome) -> ControlResult<()>;

    /// Leaves the row of a context out: it is not written, and deleted where nothing was changed under
    /// the context. Otherwise it gets the outcome.
    fn leave_out_audit(&self, context: &WriteContext, outcome: AuditOutcome) -> ControlResult<()>;

    /// Make everything written so far survive a power cut, and keep the write-ahead log short.
    /// Holds up no write.
    fn checkpoint(&self) -> ControlResult<()>;
}
