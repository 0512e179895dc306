//! What people decide, durably: agents, groups, certificates, enrolment tokens, users, roles,
//! policies, commands and the audit log, in `registry.db` (`docs/format/registry-db.md`).
//!
//! Invariants
//! - Every write is durable (survives power loss) before its method returns. Exceptions that lose
//!   nothing anyone was promised survive a killed process, and with the next durable write or
//!   checkpoint a power cut: [`RegistryStore::save_liveness`], [`RegistryStore::save_configs`],
//!   [`RegistryStore::save_certificate_uses`] and [`RegistryStore::save_outcomes`].
//! - Counters (status, group, operating system, version) are kept in the transaction that changes
//!   what they count. Agent 000, the server itself, is in no counter.
//! - An agent's number is given to another only when purged or replaced, with an incarnation of its
//!   own: no late document of the former one can be taken for its successor's.
//!
//! All calls block; async callers go through `spawn_blocking`. Limits: the constants of [`limits`].

mod audit;
mod command;
mod defaults;
mod error;
mod glance;
pub mod limits;
mod query;
mod schema;
mod scope;
mod security;
mod sqlite;
mod types;

pub use audit::{AuditEntry, AuditOutcome};
pub use command::{
    Command, CommandCounts, CommandKind, CommandRow, NewCommand, OpenCommand, Outcome,
    OutcomeFilter, OutcomeRow, OutcomeState,
};
pub use error::{RegistryStoreError, StoreResult};
pub use glance::{GroupConfig, GroupCount, LastScan, Overview, StatusSummary, Summary};
pub use query::{AgentColumn, AgentPage, AgentQuery, CompareOp, Condition, DistinctPage, Sort};
pub use scope::Permitted;
pub use security::{
    AccessRows, LinkKind, PolicyRow, RoleRow, RuleRow, SecurityChange, SecurityImage,
    SecurityStore, SecurityWrite,
};
pub use sqlite::SqliteRegistry;
pub use types::{
    AgentRow, CertificateRow, ConfigRow, ConfigState, Enrolled, EnrolmentTokenRow, InfoRow,
    LivenessRow, NewAgent, NewCertificate, NewEnrolmentToken, Policy, RegistryImage, Revocation,
    RevocationTarget, RoleRef, Sign, StatusCode, UserRow,
};

use model::AgentId;

/// The registry's durable side. See the module head for what survives what.
///
/// Every method returns [`RegistryStoreError`] when the database fails; only further errors are
/// named.
pub trait RegistryStore: SecurityStore {
    /// Everything that the registry keeps in memory, from one snapshot.
    ///
    /// # Errors
    /// See [`RegistryStore`].
    fn load(&self) -> StoreResult<RegistryImage>;

    /// Write agent 000, the server's own entry, as it is now.
    ///
    /// # Errors
    /// See [`RegistryStore`].
    fn save_server(&self, server: &model::AgentRecord) -> StoreResult<()>;

    /// Keep a new enrolment token (its digest only). Groups that do not exist are refused.
    ///
    /// # Errors
    /// `NotFound` for a group; `Limit` at [`limits::ENROLMENT_TOKENS_MAX`].
    fn add_enrolment_token(&self, token: &NewEnrolmentToken) -> StoreResult<()>;

    /// The enrolment tokens that are neither used up nor expired at `now_s`, digests included.
    ///
    /// # Errors
    /// See [`RegistryStore`].
    fn enrolment_tokens(&self, now_s: i64) -> StoreResult<Vec<EnrolmentTokenRow>>;

    /// Forget an enrolment token; whether it was there.
    ///
    /// # Errors
    /// See [`RegistryStore`].
    fn revoke_enrolment_token(&self, digest: &[u8; 32]) -> StoreResult<bool>;

    /// Use the token once and register an agent with groups and what `sign` gives, in one transaction.
    ///
    /// # Errors
    /// `Token`, `DuplicateName`, `NotFound` (group), `Certificate`; then nothing was changed and
    /// the token was not used.
    fn enroll(&self, digest: &[u8; 32], agent: &NewAgent, sign: Sign<'_>) -> StoreResult<Enrolled>;

    /// Register agents that are added or imported (no token, no certificate yet), all or none.
    ///
    /// # Errors
    /// `DuplicateName`, `NotFound` (group), `NumberUsed`.
    fn add_agents(&self, agents: &[NewAgent]) -> StoreResult<Vec<AgentRow>>;

    /// Remove agents and register one in their place, in one transaction; it may have a number of
    /// `freed`, without its orders. One of its number and name is the agent itself: only key,
    /// address, date and (if named) groups change, its certificates are revoked. Who went, who came.
    ///
    /// # Errors
    /// As [`RegistryStore::add_agents`]; then nothing was changed.
    fn replace_agents(
        &self,
        gone: &[AgentId],
        freed: &[AgentId],
        new: &NewAgent,
    ) -> StoreResult<(Vec<AgentRow>, AgentRow)>;

    /// Whether [`RegistryStore::replace_agents`] would be done now: its errors. Changes nothing.
    ///
    /// # Errors
    /// As there.
    fn try_replace_agents(&self, gone: &[AgentId], new: &NewAgent) -> StoreResult<()>;

    /// The agents that bear this name, this number, or register with this address (`None`: it may
    /// be shared), ascending.
    ///
    /// # Errors
    /// See [`RegistryStore`].
    fn rivals(
        &self,
        name: &str,
        id: Option<AgentId>,
        register_ip: Option<&str>,
    ) -> StoreResult<Vec<AgentId>>;

    /// Store a further certificate of an agent; those that are superseded and never were used go.
    ///
    /// # Errors
    /// `NotFound` when the agent is gone.
    fn add_certificate(&self, agent: AgentId, certificate: &NewCertificate) -> StoreResult<()>;

    /// Write when certificates were first used and superseded. One transaction; survives a
    /// killed process.
    ///
    /// # Errors
    /// See [`RegistryStore`].
    fn save_certificate_uses(&self, rows: &[CertificateRow]) -> StoreResult<()>;

    /// Revoke every certificate of these agents in one transaction; how many were in force.
    ///
    /// # Errors
    /// See [`RegistryStore`].
    fn revoke_certificates(&self, agents: &[AgentId], now_s: i64) -> StoreResult<u64>;

    /// Forget certificates, enrolment tokens and revocations of tokens whose time is over.
    ///
    /// # Errors
    /// See [`RegistryStore`].
    fn forget_expired(&self, now_s: i64) -> StoreResult<u64>;

    /// Remove the agent with its groups and pending outcomes, revoke its certificates. The row
    /// as it was; `None` when there is none. 000 is refused.
    ///
    /// # Errors
    /// `Refused` for 000.
    fn remove_agent(&self, agent: AgentId, now_s: i64) -> StoreResult<Option<AgentRow>>;

    /// Remove agents in one transaction, as [`RegistryStore::remove_agent`] does; the rows as they
    /// were. Numbers that are not registered are passed over.
    ///
    /// # Errors
    /// `Refused` for 000; then none is removed.
    fn remove_agents(&self, agents: &[AgentId], now_s: i64) -> StoreResult<Vec<AgentRow>>;

    /// Let numbers of removed agents be given again to whoever asks for one of them.
    ///
    /// # Errors
    /// See [`RegistryStore`].
    fn free_numbers(&self, ids: &[AgentId]) -> StoreResult<()>;

    /// The key that 4.x clients are given of the agent; `None` when it has none.
    ///
    /// # Errors
    /// `NotFound` (agent).
    fn client_key(&self, agent: AgentId) -> StoreResult<Option<String>>;

    /// Write what agents told of their scans, in one transaction; survives a killed process.
    ///
    /// # Errors
    /// See [`RegistryStore`].
    fn save_last_scans(&self, scans: &[(AgentId, LastScan)]) -> StoreResult<()>;

    /// What the agent told of its last scan.
    ///
    /// # Errors
    /// `NotFound` (agent).
    fn last_scan(&self, agent: AgentId) -> StoreResult<LastScan>;

    /// Replace the groups of several agents in one transaction, all or none. The groups each has
    /// now.
    ///
    /// # Errors
    /// As [`RegistryStore::set_agent_groups`].
    fn set_groups_of(
        &self,
        agents: &[(AgentId, Vec<String>)],
    ) -> StoreResult<Vec<(AgentId, Vec<String>)>>;

    /// The configuration of a group; `None` when it has none.
    ///
    /// # Errors
    /// `NotFound` (group).
    fn group_config(&self, name: &str) -> StoreResult<Option<GroupConfig>>;

    /// Put the configuration of a group.
    ///
    /// # Errors
    /// `NotFound` (group).
    fn set_group_config(&self, name: &str, config: &GroupConfig) -> StoreResult<()>;

    /// Replace the agent's groups, in order of priority. An empty list becomes `default`.
    ///
    /// # Errors
    /// `NotFound` (agent or group), `Limit` at [`limits::GROUPS_PER_AGENT_MAX`].
    fn set_agent_groups(&self, agent: AgentId, groups: &[String]) -> StoreResult<Vec<String>>;

    /// Create a group.
    ///
    /// # Errors
    /// `Exists`, `Refused` (name).
    fn create_group(&self, name: &str, now_s: i64) -> StoreResult<()>;

    /// Delete a group; its agents lose it, and those left with none get `default`. Who changed,
    /// with the groups that remain.
    ///
    /// # Errors
    /// `NotFound`; `Refused` for `default`.
    fn delete_group(&self, name: &str) -> StoreResult<Vec<(AgentId, Vec<String>)>>;

    /// Every group with the number of its agents, by name.
    ///
    /// # Errors
    /// See [`RegistryStore`].
    fn groups(&self) -> StoreResult<Vec<GroupCount>>;

    /// Write what agents said of themselves. One transaction; survives a killed process.
    /// Rows of agents that are gone are passed over.
    ///
    /// # Errors
    /// See [`RegistryStore`].
    fn save_liveness(&self, rows: &[LivenessRow]) -> StoreResult<()>;

    /// Write how agents stand to their groups' configuration. One transaction; survives a killed
    /// process. Rows of agents that are gone are passed over.
    ///
    /// # Errors
    /// See [`RegistryStore`].
    fn save_configs(&self, rows: &[ConfigRow]) -> StoreResult<()>;

    /// One page of agents and the number of all that match.
    ///
    /// # Errors
    /// See [`RegistryStore`].
    fn agents(&self, query: &AgentQuery, now_s: i64) -> StoreResult<AgentPage>;

    /// The numbers of all agents that match, ascending, without paging.
    ///
    /// # Errors
    /// See [`RegistryStore`].
    fn agent_ids(&self, query: &AgentQuery, now_s: i64) -> StoreResult<Vec<AgentId>>;

    /// Agents by status; kept, not counted.
    ///
    /// # Errors
    /// See [`RegistryStore`].
    fn status_summary(&self) -> StoreResult<StatusSummary>;

    /// Agents by status, platform, group and version from one snapshot; kept, not counted.
    ///
    /// # Errors
    /// See [`RegistryStore`].
    fn summary(&self) -> StoreResult<Summary>;

    /// The different values of columns over the agents that match, with how many have them. Sort
    /// steps by other columns are passed over.
    ///
    /// # Errors
    /// See [`RegistryStore`].
    fn distinct(
        &self,
        query: &AgentQuery,
        columns: &[AgentColumn],
        now_s: i64,
    ) -> StoreResult<DistinctPage>;

    /// The fleet at a glance from one snapshot; kept, not counted.
    ///
    /// # Errors
    /// See [`RegistryStore`].
    fn overview(&self) -> StoreResult<Overview>;

    /// Create a command for registered agents, as one row whatever their number. Its number.
    ///
    /// # Errors
    /// `Limit` at [`limits::COMMANDS_MAX`] unfinished ones.
    fn create_command(&self, command: &NewCommand) -> StoreResult<u64>;

    /// Drop some of the oldest finished commands beyond [`limits::COMMANDS_MAX`]; survives a killed
    /// process. Whether there is more to drop.
    ///
    /// # Errors
    /// See [`RegistryStore`].
    fn trim_commands(&self) -> StoreResult<bool>;

    /// Record outcomes and adjust the counts, in one transaction; survives a killed process.
    /// An outcome never goes back (acknowledged stays acknowledged).
    ///
    /// # Errors
    /// See [`RegistryStore`].
    fn save_outcomes(&self, rows: &[OutcomeRow]) -> StoreResult<()>;

    /// Outcomes that are not final become `state` (expired or cancelled). How many.
    ///
    /// # Errors
    /// See [`RegistryStore`].
    fn finish_command(&self, id: u64, state: OutcomeState, now_s: i64) -> StoreResult<u64>;

    /// One command with its counts as far as the agents of `scope` go, and a page of their
    /// outcomes by agent number, from one snapshot.
    ///
    /// # Errors
    /// See [`RegistryStore`].
    fn command(
        &self,
        id: u64,
        scope: &Permitted,
        outcomes: OutcomeFilter,
    ) -> StoreResult<Option<(CommandRow, Vec<OutcomeRow>)>>;

    /// The newest commands, newest first, each with its counts as far as the agents of `scope` go,
    /// from one snapshot.
    ///
    /// # Errors
    /// See [`RegistryStore`].
    fn commands(&self, limit: u64, scope: &Permitted) -> StoreResult<Vec<CommandRow>>;

    /// A user by name.
    ///
    /// # Errors
    /// See [`RegistryStore`].
    fn user(&self, name: &str) -> StoreResult<Option<UserRow>>;

    /// All users by id.
    ///
    /// # Errors
    /// See [`RegistryStore`].
    fn users(&self) -> StoreResult<Vec<UserRow>>;

    /// Create a user with roles in the given order; its id.
    ///
    /// # Errors
    /// `Exists`, `NotFound` (role).
    fn create_user(
        &self,
        name: &str,
        password_hash: &str,
        allow_run_as: bool,
        roles: &[u32],
    ) -> StoreResult<u32>;

    /// Replace a user's password hash and store the revocation of its tokens.
    ///
    /// # Errors
    /// `NotFound`.
    fn set_password_hash(&self, name: &str, hash: &str, revoked: &Revocation) -> StoreResult<()>;

    /// Delete a user and store the revocation of its tokens; whether it was there.
    ///
    /// # Errors
    /// `Refused` for a reserved user (ids up to 99).
    fn delete_user(&self, name: &str, revoked: &Revocation) -> StoreResult<bool>;

    /// All roles by id.
    ///
    /// # Errors
    /// See [`RegistryStore`].
    fn roles(&self) -> StoreResult<Vec<RoleRef>>;

    /// The policies of a role set, flattened in the order in which a later one overrides an
    /// earlier one.
    ///
    /// # Errors
    /// See [`RegistryStore`].
    fn policies(&self, roles: &[u32]) -> StoreResult<Vec<Policy>>;

    /// Refuse tokens issued at or before the revocation's instant.
    ///
    /// # Errors
    /// See [`RegistryStore`].
    fn revoke_tokens(&self, revocation: &Revocation) -> StoreResult<()>;

    /// The token revocations in force.
    ///
    /// # Errors
    /// See [`RegistryStore`].
    fn revocations(&self) -> StoreResult<Vec<Revocation>>;

    /// Forget all revocations (the keys were replaced, so every token is dead anyway).
    ///
    /// # Errors
    /// See [`RegistryStore`].
    fn clear_revocations(&self) -> StoreResult<()>;

    /// A setting by name.
    ///
    /// # Errors
    /// See [`RegistryStore`].
    fn setting(&self, name: &str) -> StoreResult<Option<String>>;

    /// Refuse tokens and write settings, all in one transaction.
    ///
    /// # Errors
    /// See [`RegistryStore`].
    fn revoke_and_set(
        &self,
        revocation: &Revocation,
        settings: &[(&str, String)],
    ) -> StoreResult<()>;

    /// Write a setting.
    ///
    /// # Errors
    /// See [`RegistryStore`].
    fn set_setting(&self, name: &str, value: &str) -> StoreResult<()>;

    /// Write a setting unless it is there, whoever wrote it; what it is now.
    ///
    /// # Errors
    /// See [`RegistryStore`].
    fn setting_or(&self, name: &str, value: &str) -> StoreResult<String>;

    /// Append to the audit log; the oldest rows beyond [`limits::AUDIT_ROWS_MAX`] go, of what
    /// changed nothing those beyond [`limits::AUDIT_IDLE_ROWS_MAX`].
    ///
    /// # Errors
    /// See [`RegistryStore`].
    fn audit(&self, entry: &AuditEntry) -> StoreResult<u64>;

    /// The audit log, newest first, below `before` where given.
    ///
    /// # Errors
    /// See [`RegistryStore`].
    fn audit_log(&self, before: Option<u64>, limit: u64) -> StoreResult<Vec<AuditEntry>>;

    /// Copy the whole database to a new file while it is in use; the copy is consistent.
    ///
    /// # Errors
    /// `Exists` when the file is there already.
    fn backup_to(&self, file: &std::path::Path) -> StoreResult<()>;

    /// Until [`RegistryStore::end_audit`], the first durable write of this thread appends `entry`
    /// in its own transaction, as begun.
    fn begin_audit(&self, entry: AuditEntry);

    /// Say more of what [`RegistryStore::begin_audit`] left waiting, also from within the write that
    /// takes it along.
    fn amend_audit(&self, more: &str);

    /// Append what [`RegistryStore::begin_audit`] left waiting, durable when it returns.
    ///
    /// # Errors
    /// See [`RegistryStore`].
    fn write_audit(&self) -> StoreResult<()>;

    /// What was begun has come to its end: its row says so, and is there if no write took it
    /// along. Survives a killed process; a power cut right after it may leave the row as begun.
    ///
    /// # Errors
    /// See [`RegistryStore`].
    fn end_audit(&self, outcome: AuditOutcome) -> StoreResult<()>;

    /// Say nothing of what this thread has begun; a row that is written goes if `Unchanged`, else says so.
    ///
    /// # Errors
    /// See [`RegistryStore`].
    fn leave_out_audit(&self, outcome: AuditOutcome) -> StoreResult<()>;

    /// Take the row of this number out again.
    ///
    /// # Errors
    /// See [`RegistryStore`].
    fn drop_audit(&self, id: u64) -> StoreResult<()>;

    /// As [`RegistryStore::end_audit`], of the row of this number.
    ///
    /// # Errors
    /// See [`RegistryStore`].
    fn finish_audit(&self, id: u64, outcome: AuditOutcome) -> StoreResult<()>;

    /// Make everything written so far survive a power cut, and keep the write-ahead log short.
    /// Holds up no write.
    ///
    /// # Errors
    /// See [`RegistryStore`].
    fn checkpoint(&self) -> StoreResult<()>;
}
