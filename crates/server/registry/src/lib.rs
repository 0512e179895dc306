//! Agents, groups, enrolment, certificates, liveness, users and commands.
//!
//! The durable side is a [`RegistryStore`] (`registry.db`); this crate adds what must be fast or
//! secret: the certificate authority, the fleet in memory (who is it, is it alive), password
//! hashing and login limits.
//!
//! Invariants
//! - What people decide (enrolment, removal, revocation, groups, users, commands) is durable
//!   before the call returns. What agents say (keepalives, outcomes) is in memory at once and in
//!   the database with the next flush; a crash loses at most one flush interval of it, and the
//!   next heartbeat brings it back.
//! - [`Registry::identify`], [`Registry::overlay`], [`Registry::keepalive`] and
//!   [`Registry::pending_commands`] touch memory only.
//! - A certificate is refused the moment its revocation returns.
//! - Lists and counters reflect every status change made before the call.
//!
//! All calls block except [`Registry::login`]; those that write wait for the disk, so an async
//! caller goes through `spawn_blocking` for everything but the four named above.

mod error;
pub mod limits;
mod options;
mod types;

use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;

use env::clock::Clock;
use env::random::Random;
use model::{AgentId, AgentRecord, Incarnation, Overlay};

pub use error::{EnrollError, IdentityError, LoginError, PasswordError, RegistryError};
pub use options::{HashCost, RegistryOptions};
pub use state::registry::{
    AgentColumn, AgentPage, AgentQuery, AuditEntry, Command, CommandCounts, CommandKind,
    CommandRow, CompareOp, Condition, GroupCount, Outcome, OutcomeRow, OutcomeState, Policy,
    RegistryStore, RegistryStoreError, RevocationTarget, RoleRef, Sort, SqliteRegistry, StatusCode,
    StatusSummary, Summary,
};
pub use types::{
    AgentInfo, EnrollRequest, Enrolled, Identity, IssuedKeyPair, TickReport, TokenKeys, User,
};

/// The registry. Clones share one state.
#[derive(Clone)]
pub struct Registry {
    _inner: Arc<()>,
}

#[expect(clippy::missing_errors_doc, clippy::todo, unused_variables)]
impl Registry {
    /// Open: loads the fleet into memory, makes the certificate authority and the token keys in
    /// `folder` at first start, writes agent 000.
    pub fn open(
        store: Arc<dyn RegistryStore>,
        folder: &Path,
        clock: Arc<dyn Clock>,
        random: Arc<dyn Random>,
        options: RegistryOptions,
    ) -> Result<Self, RegistryError> {
        todo!()
    }
    /// Write everything that is still only in memory.
    pub fn close(&self) -> Result<(), RegistryError> {
        todo!()
    }
    /// As opened.
    pub fn options(&self) -> &RegistryOptions {
        todo!()
    }

    /// Sweep silent agents, write what agents said if the flush interval has passed, expire
    /// commands. The binary calls it every second.
    pub fn tick(&self) -> Result<TickReport, RegistryError> {
        todo!()
    }
    /// Write what agents said now.
    pub fn flush(&self) -> Result<u64, RegistryError> {
        todo!()
    }

    /// The certificate authority's certificate.
    pub fn ca_pem(&self) -> String {
        todo!()
    }
    /// SHA-256 of the certificate authority's DER bytes, lower-case hex.
    pub fn ca_fingerprint(&self) -> String {
        todo!()
    }
    /// A server certificate for `names` (DNS names and IP addresses) and localhost, 127.0.0.1,
    /// `::1`, the host's name.
    pub fn issue_server_certificate(
        &self,
        names: &[String],
    ) -> Result<IssuedKeyPair, RegistryError> {
        todo!()
    }
    /// Whose certificate it is. Memory only.
    pub fn identify(&self, peer_cert_der: &[u8]) -> Result<Identity, IdentityError> {
        todo!()
    }

    /// A token that registers `uses` agents within `ttl_s` seconds:
    /// `hf1.<base64url secret>.<ca fingerprint hex>`.
    pub fn create_enrolment_token(
        &self,
        groups: &[String],
        uses: u32,
        ttl_s: u64,
    ) -> Result<String, RegistryError> {
        todo!()
    }
    /// Register an agent with a token and issue its certificate.
    pub fn enroll(
        &self,
        token: &str,
        csr_pem: &str,
        request: &EnrollRequest,
    ) -> Result<Enrolled, EnrollError> {
        todo!()
    }
    /// Issue a further certificate; the present one stays valid until the new one is used.
    pub fn renew(&self, agent: AgentId, csr_pem: &str) -> Result<Enrolled, EnrollError> {
        todo!()
    }
    /// Remove the agent; its certificates are revoked, its number is never used again. What the
    /// journal's removal record needs; `None` when there is no such agent.
    pub fn remove_agent(
        &self,
        id: AgentId,
    ) -> Result<Option<(AgentId, Incarnation)>, RegistryError> {
        todo!()
    }
    /// Refuse every certificate of the agent from now on; how many were in force.
    pub fn revoke(&self, id: AgentId) -> Result<u64, RegistryError> {
        todo!()
    }
    /// Replace the agent's groups; `default` when empty. The groups it has now.
    pub fn set_agent_groups(
        &self,
        id: AgentId,
        groups: &[String],
    ) -> Result<Vec<String>, RegistryError> {
        todo!()
    }
    /// Create a group.
    pub fn create_group(&self, name: &str) -> Result<(), RegistryError> {
        todo!()
    }
    /// Delete a group; its agents that are left with none get `default`.
    pub fn delete_group(&self, name: &str) -> Result<u64, RegistryError> {
        todo!()
    }
    /// Every group with its number of agents.
    pub fn groups(&self) -> Result<Vec<GroupCount>, RegistryError> {
        todo!()
    }

    /// The agent's program started: pending. `false` when there is no such agent.
    pub fn startup(&self, id: AgentId, info: &AgentInfo) -> bool {
        todo!()
    }
    /// The agent is alive: active. `false` when there is no such agent. Memory only.
    pub fn keepalive(&self, id: AgentId, info: &AgentInfo) -> bool {
        todo!()
    }
    /// The agent's program stopped: disconnected. `false` when there is no such agent.
    pub fn goodbye(&self, id: AgentId) -> bool {
        todo!()
    }
    /// What the server knows of the agent, for a session's record. Memory only.
    pub fn overlay(&self, id: AgentId) -> Option<Overlay> {
        todo!()
    }
    /// The agent as it is now, 000 included. Memory only.
    pub fn agent(&self, id: AgentId) -> Option<AgentRecord> {
        todo!()
    }
    /// One page of agents, 000 included.
    pub fn agents(&self, query: &AgentQuery) -> Result<AgentPage, RegistryError> {
        todo!()
    }
    /// The numbers of all agents that match, ascending; offset, limit and order are ignored.
    pub fn agent_ids(&self, query: &AgentQuery) -> Result<Vec<AgentId>, RegistryError> {
        todo!()
    }
    /// Agents by status, without 000; kept, not counted.
    pub fn status_summary(&self) -> Result<StatusSummary, RegistryError> {
        todo!()
    }
    /// Agents by status, platform, group and version, without 000; kept, not counted.
    pub fn summary(&self) -> Result<Summary, RegistryError> {
        todo!()
    }

    /// Make the first user (`admin`, role administrator) unless there is one. With a preset that
    /// is its password and nothing is returned; else a random one, returned to be shown once.
    pub fn ensure_admin(&self, preset: Option<&str>) -> Result<Option<String>, RegistryError> {
        todo!()
    }
    /// Check a name and a password; `source` is the peer's address (`None`: a trusted local
    /// caller, never blocked).
    pub async fn login(
        &self,
        name: &str,
        password: &str,
        source: Option<IpAddr>,
    ) -> Result<User, LoginError> {
        todo!()
    }
    /// Replace a password; every token the user has is refused.
    pub fn set_password(&self, name: &str, password: &str) -> Result<(), RegistryError> {
        todo!()
    }
    /// Create a user with roles by name.
    pub fn create_user(
        &self,
        name: &str,
        password: &str,
        allow_run_as: bool,
        roles: &[&str],
    ) -> Result<User, RegistryError> {
        todo!()
    }
    /// Delete a user; its tokens are refused.
    pub fn delete_user(&self, name: &str) -> Result<bool, RegistryError> {
        todo!()
    }
    /// A user by name.
    pub fn user(&self, name: &str) -> Result<Option<User>, RegistryError> {
        todo!()
    }
    /// All users.
    pub fn users(&self) -> Result<Vec<User>, RegistryError> {
        todo!()
    }
    /// Whether the roles allow the action on the resource (`agent:id:001`, `*:*:*`): nothing is
    /// permitted unless allowed; a later policy overrides an earlier one.
    pub fn permits(
        &self,
        roles: &[u32],
        action: &str,
        resource: &str,
    ) -> Result<bool, RegistryError> {
        todo!()
    }
    /// The key pair of the API's tokens, made at first start.
    pub fn token_keys(&self) -> Result<TokenKeys, RegistryError> {
        todo!()
    }
    /// Replace the key pair: every token dies.
    pub fn replace_token_keys(&self) -> Result<TokenKeys, RegistryError> {
        todo!()
    }
    /// Refuse tokens of the target issued up to now.
    pub fn revoke_tokens(&self, target: RevocationTarget) -> Result<(), RegistryError> {
        todo!()
    }
    /// Whether a token with these claims was revoked. Memory only.
    pub fn token_revoked(&self, user: u32, roles: &[u32], run_as: bool, nbf_s: i64) -> bool {
        todo!()
    }

    /// Create a command for agents; durable when it returns. Numbers that are not registered are
    /// passed over. Its number.
    pub fn create_command(
        &self,
        kind: CommandKind,
        agents: &[AgentId],
        user: &str,
    ) -> Result<u64, RegistryError> {
        todo!()
    }
    /// What the agent is to do; handed out again after a minute without an outcome, so the
    /// agent must know the numbers it has done. Memory only.
    pub fn pending_commands(&self, agent: AgentId) -> Vec<Command> {
        todo!()
    }
    /// The agent's report. `false` when it was not asked.
    pub fn command_outcome(&self, agent: AgentId, id: u64, outcome: &Outcome) -> bool {
        todo!()
    }
    /// One command with its counts.
    pub fn command(&self, id: u64) -> Result<Option<CommandRow>, RegistryError> {
        todo!()
    }
    /// The newest commands.
    pub fn commands(&self, limit: u64) -> Result<Vec<CommandRow>, RegistryError> {
        todo!()
    }
    /// The outcomes of a command by agent number above `after`.
    pub fn outcomes(
        &self,
        id: u64,
        state: Option<OutcomeState>,
        after: Option<AgentId>,
        limit: u64,
    ) -> Result<Vec<OutcomeRow>, RegistryError> {
        todo!()
    }
    /// Take back a command where it is not answered yet; for how many agents.
    pub fn cancel_command(&self, id: u64) -> Result<u64, RegistryError> {
        todo!()
    }

    /// Append to the audit log; durable when it returns.
    pub fn audit(&self, user: &str, action: &str, detail: &str) -> Result<(), RegistryError> {
        todo!()
    }
    /// The audit log, newest first.
    pub fn audit_log(
        &self,
        before: Option<u64>,
        limit: u64,
    ) -> Result<Vec<AuditEntry>, RegistryError> {
        todo!()
    }
    /// Copy `registry.db` consistently while in use; keys are the caller's to copy.
    pub fn backup_to(&self, file: &Path) -> Result<(), RegistryError> {
        todo!()
    }
}
