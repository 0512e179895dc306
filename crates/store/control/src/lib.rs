//! Agents, groups, certificates, enrolment tokens, users, roles, policies, commands and the audit
//! log, kept durably in `registry.db` (`docs/format/registry-db.md`). [`SqliteControl`] implements
//! the trait [`ControlStore`]; another engine implements the same trait and passes the same
//! conformance suite.
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
//! callers use `spawn_blocking`. Limits: the constants of [`limits`].

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
mod watched;

pub use audit::{AuditEntry, AuditOutcome, PendingAudit, WriteContext};
pub use command::{
    Command, CommandCounts, CommandKind, CommandOutcome, CommandRow, NewCommand, OpenCommand,
    OutcomeFilter, OutcomeRow, OutcomeState,
};
pub use db::SqliteControl;
pub use error::{ControlError, ControlResult};
pub use glance::{FleetSummary, GroupConfig, GroupCount, LastScan, Overview, StatusSummary};
pub use query::{
    AgentColumn, AgentCondition, AgentPage, AgentQuery, CompareOp, DistinctPage, Sort,
};
pub use security::{
    AccessRows, LinkKind, PolicyRow, RoleRow, RuleRow, SecurityChange, SecurityImage,
    SecurityStore, SecurityWrite,
};
pub use types::{
    AgentRow, CertificateRow, ConfigRow, ConfigState, ControlImage, EnrolledAgent, EnrolmentRow,
    EnrolmentTokenRow, InfoRow, LivenessRow, NewAgent, NewCertificate, NewEnrolmentToken, Policy,
    Revocation, RevocationTarget, RoleRef, Sign, StatusCode, UserRow,
};
pub use watched::{WatchPage, WatchQuery, WatchRow};

use model::AgentId;
pub use model::Permitted;
pub use sqlite::Reader;

/// The registry's durable side. See the module head for what survives what.
///
/// Every method returns [`ControlError`] when the database fails; only further errors are
/// named.
pub trait ControlStore: SecurityStore {
    /// Returns everything that the registry keeps in memory, from one snapshot.
    fn load(&self) -> ControlResult<ControlImage>;

    /// Writes agent 000, the server's own entry. Returns its date of registration, seconds since
    /// the epoch: that of the first call.
    fn save_server(&self, server: &model::AgentRecord) -> ControlResult<i64>;

    /// Stores a new enrolment token (its digest only). Groups that do not exist are refused.
    ///
    /// # Errors
    /// `NotFound` for a group; `Limit` at [`limits::ENROLMENT_TOKENS_MAX`].
    fn add_enrolment_token(
        &self,
        context: &WriteContext,
        token: &NewEnrolmentToken,
    ) -> ControlResult<()>;

    /// Returns the enrolment tokens that are neither used up nor expired at `now_s`, with their
    /// digests.
    fn enrolment_tokens(
        &self,
        reader: &Reader,
        now_s: i64,
    ) -> ControlResult<Vec<EnrolmentTokenRow>>;

    /// Deletes an enrolment token; returns true if it existed.
    fn revoke_enrolment_token(
        &self,
        context: &WriteContext,
        digest: &[u8; 32],
    ) -> ControlResult<bool>;

    /// Uses the token once and registers an agent with groups and the certificate that `sign`
    /// issues, in one transaction.
    ///
    /// # Errors
    /// `Token`, `DuplicateName`, `NotFound` (group), `Certificate`; then nothing was changed and
    /// the token was not used.
    fn enroll(
        &self,
        digest: &[u8; 32],
        agent: &NewAgent,
        sign: Sign<'_>,
    ) -> ControlResult<EnrolledAgent>;

    /// Returns the enrolment of the agent with this name, if it has not connected since and the
    /// token permits a further certificate: it is the token of that enrolment, used up or not, or
    /// another one that has uses left. No use is counted.
    fn unused_enrolment(
        &self,
        digest: &[u8; 32],
        name: &str,
        now_s: i64,
    ) -> ControlResult<Option<EnrolmentRow>>;

    /// Registers agents that are added or imported (no token, no certificate yet), all or none.
    ///
    /// # Errors
    /// `DuplicateName`, `NotFound` (group), `NumberUsed`.
    fn add_agents(
        &self,
        context: &WriteContext,
        agents: &[NewAgent],
    ) -> ControlResult<Vec<AgentRow>>;

    /// Removes agents and registers one in their place, in one transaction. The new agent may take
    /// a number of `freed`, without the commands of the former agent. If one of `gone` has its
    /// number and name, it is the same agent: only key, address, date and (if named) groups change,
    /// and its certificates are revoked. Returns the removed agents and the new one.
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

    /// Returns the error that [`ControlStore::replace_agents`] would return now. Changes nothing.
    ///
    /// # Errors
    /// As there.
    fn try_replace_agents(
        &self,
        reader: &Reader,
        gone: &[AgentId],
        new: &NewAgent,
    ) -> ControlResult<()>;

    /// Returns the agents that have this name, this number or this registration address (`None`:
    /// the address may be shared), ascending.
    fn rivals(
        &self,
        reader: &Reader,
        name: &str,
        id: Option<AgentId>,
        register_ip: Option<&str>,
    ) -> ControlResult<Vec<AgentId>>;

    /// Stores a further certificate of an agent. Superseded certificates that were never used are
    /// deleted.
    ///
    /// # Errors
    /// `NotFound` when the agent is gone.
    fn add_certificate(&self, agent: AgentId, certificate: &NewCertificate) -> ControlResult<()>;

    /// Writes the times at which certificates were first used and superseded, in one transaction;
    /// survives a killed process.
    fn save_certificate_uses(&self, rows: &[CertificateRow]) -> ControlResult<()>;

    /// Revokes every certificate of these agents in one transaction; returns the number that were
    /// in force.
    fn revoke_certificates(
        &self,
        context: &WriteContext,
        agents: &[AgentId],
        now_s: i64,
    ) -> ControlResult<u64>;

    /// Deletes expired certificates, enrolment tokens and revocations of tokens; returns their
    /// number.
    fn forget_expired(&self, now_s: i64) -> ControlResult<u64>;

    /// Removes the agent with its groups and pending outcomes and revokes its certificates. Returns
    /// the former row, or `None` if it does not exist.
    ///
    /// # Errors
    /// `Refused` for 000.
    fn remove_agent(
        &self,
        context: &WriteContext,
        agent: AgentId,
        now_s: i64,
    ) -> ControlResult<Option<AgentRow>> {
        Ok(self.remove_agents(context, &[agent], now_s)?.pop())
    }

    /// Removes agents in one transaction, as [`ControlStore::remove_agent`] does; returns the
    /// former rows. Numbers that are not registered are skipped.
    ///
    /// # Errors
    /// `Refused` for 000; then none is removed.
    fn remove_agents(
        &self,
        context: &WriteContext,
        agents: &[AgentId],
        now_s: i64,
    ) -> ControlResult<Vec<AgentRow>>;

    /// Frees numbers of removed agents: an agent that asks for one of them may get it.
    fn free_numbers(&self, context: &WriteContext, ids: &[AgentId]) -> ControlResult<()>;

    /// Returns the key of the agent for 4.x clients, or `None` if it has none.
    ///
    /// # Errors
    /// `NotFound` (agent).
    fn client_key(&self, reader: &Reader, agent: AgentId) -> ControlResult<Option<String>>;

    /// Writes the last scans of agents in one transaction; survives a killed process.
    fn save_last_scans(&self, scans: &[(AgentId, LastScan)]) -> ControlResult<()>;

    /// Returns the last scan as the agent reported it.
    ///
    /// # Errors
    /// `NotFound` (agent).
    fn last_scan(&self, reader: &Reader, agent: AgentId) -> ControlResult<LastScan>;

    /// Writes how agents watch their roots, in one transaction; survives a killed process. Reports of
    /// removed agents are skipped.
    fn save_watch_reports(&self, reports: &[(AgentId, WatchRow)]) -> ControlResult<()>;

    /// Returns how agents watch their roots, by number; agents that never reported are left out.
    fn watch_reports(&self, reader: &Reader, query: &WatchQuery) -> ControlResult<WatchPage>;

    /// Replaces the groups of several agents in one transaction, all or none. Returns the groups
    /// that each has now.
    ///
    /// # Errors
    /// See [`ControlStore::set_agent_groups`].
    fn set_groups_of(
        &self,
        context: &WriteContext,
        agents: &[(AgentId, Vec<String>)],
    ) -> ControlResult<Vec<(AgentId, Vec<String>)>>;

    /// Returns the configuration of a group, or `None` if it has none.
    ///
    /// # Errors
    /// `NotFound` (group).
    fn group_config(&self, reader: &Reader, name: &str) -> ControlResult<Option<GroupConfig>>;

    /// Stores the configuration of a group.
    ///
    /// # Errors
    /// `NotFound` (group).
    fn set_group_config(
        &self,
        context: &WriteContext,
        name: &str,
        config: &GroupConfig,
    ) -> ControlResult<()>;

    /// Replaces the agent's groups, in order of priority; an empty list becomes `default`. Returns
    /// the groups that it has now.
    ///
    /// # Errors
    /// `NotFound` (agent or group), `Limit` at [`limits::GROUPS_PER_AGENT_MAX`].
    fn set_agent_groups(
        &self,
        context: &WriteContext,
        agent: AgentId,
        groups: &[String],
    ) -> ControlResult<Vec<String>> {
        let changed = self.set_groups_of(context, &[(agent, groups.to_vec())])?;
        Ok(changed.into_iter().next().map(|(_, groups)| groups).unwrap_or_default())
    }

    /// Creates a group.
    ///
    /// # Errors
    /// `Exists`, `Refused` (name).
    fn create_group(&self, context: &WriteContext, name: &str, now_s: i64) -> ControlResult<()>;

    /// Deletes a group. Its agents leave it, and those left without a group get `default`. Returns
    /// the changed agents with their remaining groups.
    ///
    /// # Errors
    /// `NotFound`; `Refused` for `default`.
    fn delete_group(
        &self,
        context: &WriteContext,
        name: &str,
    ) -> ControlResult<Vec<(AgentId, Vec<String>)>>;

    /// Returns every group with the number of its agents, by name.
    fn groups(&self, reader: &Reader) -> ControlResult<Vec<GroupCount>>;

    /// Writes status and system of agents in one transaction; survives a killed process. Rows of
    /// removed agents are skipped.
    fn save_liveness(&self, rows: &[LivenessRow]) -> ControlResult<()>;

    /// Writes which configuration agents run, in one transaction; survives a killed process. Rows
    /// of removed agents are skipped.
    fn save_configs(&self, rows: &[ConfigRow]) -> ControlResult<()>;

    /// Returns one page of agents and the number of all that match.
    fn agents(&self, reader: &Reader, query: &AgentQuery, now_s: i64) -> ControlResult<AgentPage>;

    /// Returns the numbers of all agents that match, ascending, without paging.
    fn agent_ids(
        &self,
        reader: &Reader,
        query: &AgentQuery,
        now_s: i64,
    ) -> ControlResult<Vec<AgentId>>;

    /// Returns the number of agents by status from stored counters.
    fn status_summary(&self, reader: &Reader) -> ControlResult<StatusSummary>;

    /// Returns the number of agents by status, platform, group and version, from stored counters in
    /// one snapshot.
    fn summary(&self, reader: &Reader) -> ControlResult<FleetSummary>;

    /// Returns the distinct values of columns over the agents that match, each with the number of
    /// agents. Sort steps by other columns are ignored.
    fn distinct(
        &self,
        reader: &Reader,
        query: &AgentQuery,
        columns: &[AgentColumn],
        now_s: i64,
    ) -> ControlResult<DistinctPage>;

    /// Returns the overview of the fleet, from stored counters in one snapshot.
    fn overview(&self, reader: &Reader) -> ControlResult<Overview>;

    /// Creates a command for registered agents, as one row for any number of them; returns its
    /// number.
    ///
    /// # Errors
    /// `Limit` at [`limits::COMMANDS_MAX`] unfinished ones.
    fn create_command(&self, context: &WriteContext, command: &NewCommand) -> ControlResult<u64>;

    /// Deletes some of the oldest finished commands beyond [`limits::COMMANDS_MAX`]; survives a
    /// killed process. Returns true if there is more to delete.
    fn trim_commands(&self) -> ControlResult<bool>;

    /// Records outcomes and adjusts the counts in one transaction; survives a killed process. An
    /// outcome only moves forward (acknowledged stays acknowledged).
    fn save_outcomes(&self, rows: &[OutcomeRow]) -> ControlResult<()>;

    /// Sets outcomes that are not final to `state` (expired or cancelled); returns their number.
    fn finish_command(
        &self,
        context: &WriteContext,
        id: u64,
        state: OutcomeState,
        now_s: i64,
    ) -> ControlResult<u64>;

    /// Returns one command with its counts over the agents of `scope`, and a page of their outcomes
    /// by agent number, from one snapshot.
    fn command(
        &self,
        reader: &Reader,
        id: u64,
        scope: &Permitted,
        outcomes: OutcomeFilter,
    ) -> ControlResult<Option<(CommandRow, Vec<OutcomeRow>)>>;

    /// Returns the newest commands, newest first, each with its counts over the agents of `scope`,
    /// from one snapshot.
    fn commands(
        &self,
        reader: &Reader,
        limit: u64,
        scope: &Permitted,
    ) -> ControlResult<Vec<CommandRow>>;

    /// Returns a user by name.
    fn user(&self, reader: &Reader, name: &str) -> ControlResult<Option<UserRow>>;

    /// Returns all users by id.
    fn users(&self, reader: &Reader) -> ControlResult<Vec<UserRow>>;

    /// Creates a user with roles in the given order; returns its id.
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

    /// Replaces a user's password hash and stores the revocation of its tokens.
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

    /// Deletes a user and stores the revocation of its tokens; returns true if the user existed.
    ///
    /// # Errors
    /// `Refused` for a reserved user (ids up to 99).
    fn delete_user(
        &self,
        context: &WriteContext,
        name: &str,
        revoked: &Revocation,
    ) -> ControlResult<bool>;

    /// Returns all roles by id.
    fn roles(&self, reader: &Reader) -> ControlResult<Vec<RoleRef>>;

    /// Returns the policies of a set of roles in the order in which a later one overrides an
    /// earlier one.
    fn policies(&self, reader: &Reader, roles: &[u32]) -> ControlResult<Vec<Policy>>;

    /// Refuses tokens issued at or before the revocation's instant.
    fn revoke_tokens(&self, context: &WriteContext, revocation: &Revocation) -> ControlResult<()>;

    /// Returns the token revocations in force.
    fn revocations(&self) -> ControlResult<Vec<Revocation>>;

    /// Deletes all revocations (the keys were replaced, so every token is invalid).
    fn clear_revocations(&self, context: &WriteContext) -> ControlResult<()>;

    /// Returns a setting by name.
    fn setting(&self, reader: &Reader, name: &str) -> ControlResult<Option<String>>;

    /// Refuses tokens and writes settings in one transaction.
    fn revoke_and_set(
        &self,
        context: &WriteContext,
        revocation: &Revocation,
        settings: &[(&str, String)],
    ) -> ControlResult<()>;

    /// Writes a setting.
    fn set_setting(&self, name: &str, value: &str) -> ControlResult<()>;

    /// Writes a setting unless it exists; returns its present value.
    fn setting_or(&self, name: &str, value: &str) -> ControlResult<String>;

    /// Appends to the audit log. The oldest rows beyond [`limits::AUDIT_ROWS_MAX`] are deleted, and
    /// those of actions that changed nothing beyond [`limits::AUDIT_IDLE_ROWS_MAX`].
    fn audit(&self, entry: &AuditEntry) -> ControlResult<()>;

    /// Returns rows of the audit log, newest first, with numbers below `before` if given.
    fn audit_log(
        &self,
        reader: &Reader,
        before: Option<u64>,
        limit: u64,
    ) -> ControlResult<Vec<AuditEntry>>;

    /// Copies the whole database to a new file while it is in use; the copy is consistent.
    ///
    /// # Errors
    /// `Exists` if the file exists.
    fn backup_to(&self, file: &std::path::Path) -> ControlResult<()>;

    /// Appends the context's row with the outcome `begun`, durably, unless a change has already
    /// written it. Call this before something outside the store is changed.
    fn write_audit(&self, context: &WriteContext) -> ControlResult<()>;

    /// Sets the outcome of the context's row, and appends the row if no change has written it.
    /// Survives a killed process; a power cut right after it may leave the row as begun.
    fn end_audit(&self, context: &WriteContext, outcome: AuditOutcome) -> ControlResult<()>;

    /// Drops the row of a context if nothing was changed under the context: an unwritten row is not
    /// written, and a written one is deleted. Otherwise sets the outcome.
    fn leave_out_audit(&self, context: &WriteContext, outcome: AuditOutcome) -> ControlResult<()>;

    /// Makes everything written so far survive a power cut, and checkpoints the write-ahead log.
    /// Does not block writers.
    fn checkpoint(&self) -> ControlResult<()>;
}
