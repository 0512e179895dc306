//! The registry store on SQLite: one writer, a few readers, WAL. See the parent module for what
//! survives what. One file per family of calls; the connections are in `connections.rs`.

mod agents;
mod certificates;
mod columns;
mod commands;
mod connections;
mod counters;
mod distinct;
mod groups;
mod list;
#[cfg(test)]
mod prepared_tests;
mod rows;
mod security;
mod users;

use std::fs::{File, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use model::{AgentId, AgentRecord};
use rusqlite::{OpenFlags, Transaction};

use super::audit::{self, Pending};
use super::{
    AgentColumn, AgentPage, AgentQuery, AgentRow, AuditEntry, AuditOutcome, CertificateRow,
    CommandRow, ConfigRow, DistinctPage, Enrolled, EnrolmentTokenRow, GroupConfig, GroupCount,
    LastScan, LivenessRow, NewAgent, NewCertificate, NewCommand, NewEnrolmentToken, OutcomeFilter,
    OutcomeRow, OutcomeState, Overview, Permitted, Policy, RegistryImage, RegistryStore,
    RegistryStoreError, Revocation, Sign, StatusSummary, StoreResult, Summary, UserRow,
};

pub use connections::SqliteRegistry;
use connections::connect;

/// Remove agents; the rows as they were.
fn remove(tx: &Transaction<'_>, ids: &[AgentId], now_s: i64) -> StoreResult<Vec<AgentRow>> {
    let mut rows = Vec::with_capacity(ids.len());
    let names = groups::names(tx)?;
    for id in ids {
        if let Some(row) = agents::remove(tx, *id, &names)? {
            certificates::revoke(tx, *id, now_s)?;
            rows.push(row);
        }
    }
    let gone: Vec<AgentId> = rows.iter().map(|row| row.record.id).collect();
    commands::agents_gone(tx, &gone, now_s)?;
    Ok(rows)
}

/// Remove agents and register one in their place, or give the one of them that it is another key.
fn replace(
    tx: &Transaction<'_>,
    gone: &[AgentId],
    freed: &[AgentId],
    new: &NewAgent,
) -> StoreResult<(Vec<AgentRow>, AgentRow)> {
    let known = new.id.filter(|id| gone.contains(id));
    if known.is_none() || !agents::is_known(tx, new)? {
        let rows = remove(tx, gone, new.now_s)?;
        return Ok((rows, agents::add(tx, new, freed)?));
    }
    let others: Vec<AgentId> = gone.iter().copied().filter(|id| Some(*id) != known).collect();
    Ok((remove(tx, &others, new.now_s)?, agents::key_anew(tx, new)?))
}

impl RegistryStore for SqliteRegistry {
    fn load(&self) -> StoreResult<RegistryImage> {
        self.read(|tx| {
            Ok(RegistryImage {
                agents: agents::all(tx)?,
                certificates: certificates::all(tx)?,
                outstanding: commands::outstanding(tx)?,
                revocations: users::revocations(tx)?,
                configs: groups::configs(tx)?,
            })
        })
    }

    fn save_server(&self, server: &AgentRecord) -> StoreResult<()> {
        self.write(|tx| agents::save_server(tx, server))
    }

    fn add_enrolment_token(&self, token: &NewEnrolmentToken) -> StoreResult<()> {
        self.write(|tx| certificates::add_token(tx, token))
    }

    fn enrolment_tokens(&self, now_s: i64) -> StoreResult<Vec<EnrolmentTokenRow>> {
        self.read(|tx| certificates::tokens(tx, now_s))
    }

    fn revoke_enrolment_token(&self, digest: &[u8; 32]) -> StoreResult<bool> {
        self.write(|tx| certificates::revoke_token(tx, digest))
    }

    fn enroll(&self, digest: &[u8; 32], agent: &NewAgent, sign: Sign<'_>) -> StoreResult<Enrolled> {
        self.write(|tx| {
            let groups = certificates::use_token(tx, digest, agent.now_s)?;
            let mut agent = agent.clone();
            agent.groups.splice(0..0, groups);
            let row = agents::add(tx, &agent, &[])?;
            let certificate = sign(row.record.id).map_err(RegistryStoreError::Certificate)?;
            certificates::insert(tx, row.record.id, row.record.incarnation, &certificate)?;
            Ok(Enrolled { row, certificate })
        })
    }

    fn add_agents(&self, new: &[NewAgent]) -> StoreResult<Vec<AgentRow>> {
        self.write(|tx| new.iter().map(|agent| agents::add(tx, agent, &[])).collect())
    }

    fn replace_agents(
        &self,
        gone: &[AgentId],
        freed: &[AgentId],
        new: &NewAgent,
    ) -> StoreResult<(Vec<AgentRow>, AgentRow)> {
        self.write(|tx| replace(tx, gone, freed, new))
    }

    fn try_replace_agents(&self, gone: &[AgentId], new: &NewAgent) -> StoreResult<()> {
        self.try_out(|tx| replace(tx, gone, gone, new).map(drop))
    }

    fn rivals(
        &self,
        name: &str,
        id: Option<AgentId>,
        register_ip: Option<&str>,
    ) -> StoreResult<Vec<AgentId>> {
        // By the writer, whom a decision needs anyway: not behind long lists.
        self.write_soft(|tx| agents::rivals(tx, name, id, register_ip))
    }

    fn add_certificate(&self, agent: AgentId, certificate: &NewCertificate) -> StoreResult<()> {
        self.write(|tx| certificates::add(tx, agent, certificate))
    }

    fn save_certificate_uses(&self, rows: &[CertificateRow]) -> StoreResult<()> {
        self.write_soft(|tx| certificates::save_uses(tx, rows))
    }

    fn revoke_certificates(&self, agents: &[AgentId], now_s: i64) -> StoreResult<u64> {
        self.write(|tx| agents.iter().map(|agent| certificates::revoke(tx, *agent, now_s)).sum())
    }

    fn forget_expired(&self, now_s: i64) -> StoreResult<u64> {
        self.write(|tx| certificates::forget_expired(tx, now_s))
    }

    fn remove_agent(&self, agent: AgentId, now_s: i64) -> StoreResult<Option<AgentRow>> {
        Ok(self.write(|tx| remove(tx, &[agent], now_s))?.pop())
    }

    fn remove_agents(&self, agents: &[AgentId], now_s: i64) -> StoreResult<Vec<AgentRow>> {
        self.write(|tx| remove(tx, agents, now_s))
    }

    fn free_numbers(&self, ids: &[AgentId]) -> StoreResult<()> {
        self.write(|tx| ids.iter().try_for_each(|id| agents::free_number(tx, *id)))
    }

    fn client_key(&self, agent: AgentId) -> StoreResult<Option<String>> {
        self.read(|tx| agents::client_key(tx, agent))
    }

    fn save_last_scans(&self, scans: &[(AgentId, LastScan)]) -> StoreResult<()> {
        self.write_soft(|tx| agents::save_last_scans(tx, scans))
    }

    fn last_scan(&self, agent: AgentId) -> StoreResult<LastScan> {
        self.read(|tx| agents::last_scan(tx, agent))
    }

    fn set_groups_of(
        &self,
        agents: &[(AgentId, Vec<String>)],
    ) -> StoreResult<Vec<(AgentId, Vec<String>)>> {
        self.write(|tx| {
            agents
                .iter()
                .map(|(agent, groups)| {
                    agents::require(tx, *agent)?;
                    Ok((*agent, groups::assign(tx, *agent, groups)?))
                })
                .collect()
        })
    }

    fn group_config(&self, name: &str) -> StoreResult<Option<GroupConfig>> {
        self.read(|tx| groups::config(tx, name))
    }

    fn set_group_config(&self, name: &str, config: &GroupConfig) -> StoreResult<()> {
        self.write(|tx| groups::set_config(tx, name, config))
    }

    fn set_agent_groups(&self, agent: AgentId, groups: &[String]) -> StoreResult<Vec<String>> {
        self.write(|tx| {
            agents::require(tx, agent)?;
            groups::assign(tx, agent, groups)
        })
    }

    fn create_group(&self, name: &str, now_s: i64) -> StoreResult<()> {
        self.write(|tx| groups::create(tx, name, now_s))
    }

    fn delete_group(&self, name: &str) -> StoreResult<Vec<(AgentId, Vec<String>)>> {
        self.write(|tx| groups::delete(tx, name))
    }

    fn groups(&self) -> StoreResult<Vec<GroupCount>> {
        self.read(groups::all)
    }

    fn save_liveness(&self, rows: &[LivenessRow]) -> StoreResult<()> {
        self.write_soft(|tx| agents::save_liveness(tx, rows))
    }

    fn save_configs(&self, rows: &[ConfigRow]) -> StoreResult<()> {
        self.write_soft(|tx| agents::save_configs(tx, rows))
    }

    fn agents(&self, query: &AgentQuery, now_s: i64) -> StoreResult<AgentPage> {
        self.read(|tx| list::page(tx, query, now_s))
    }

    fn agent_ids(&self, query: &AgentQuery, now_s: i64) -> StoreResult<Vec<AgentId>> {
        self.read(|tx| list::ids(tx, query, now_s))
    }

    fn distinct(
        &self,
        query: &AgentQuery,
        columns: &[AgentColumn],
        now_s: i64,
    ) -> StoreResult<DistinctPage> {
        self.read(|tx| distinct::distinct(tx, query, columns, now_s))
    }

    fn overview(&self) -> StoreResult<Overview> {
        self.read(counters::overview)
    }

    fn status_summary(&self) -> StoreResult<StatusSummary> {
        self.read(counters::status_summary)
    }

    fn summary(&self) -> StoreResult<Summary> {
        self.read(counters::summary)
    }

    fn create_command(&self, command: &NewCommand) -> StoreResult<u64> {
        self.write(|tx| commands::create(tx, command))
    }

    fn trim_commands(&self) -> StoreResult<bool> {
        self.write_soft(commands::trim)
    }

    fn save_outcomes(&self, rows: &[OutcomeRow]) -> StoreResult<()> {
        self.write_soft(|tx| commands::save_outcomes(tx, rows))
    }

    fn finish_command(&self, id: u64, state: OutcomeState, now_s: i64) -> StoreResult<u64> {
        self.write(|tx| commands::finish(tx, id, state, now_s))
    }

    fn command(
        &self,
        id: u64,
        scope: &Permitted,
        outcomes: OutcomeFilter,
    ) -> StoreResult<Option<(CommandRow, Vec<OutcomeRow>)>> {
        self.read(|tx| commands::one(tx, id, scope, outcomes))
    }

    fn commands(&self, limit: u64, scope: &Permitted) -> StoreResult<Vec<CommandRow>> {
        self.read(|tx| commands::newest(tx, limit, scope))
    }

    fn user(&self, name: &str) -> StoreResult<Option<UserRow>> {
        self.read_keyed(|tx| users::one(tx, name))
    }

    fn users(&self) -> StoreResult<Vec<UserRow>> {
        self.read(users::all)
    }

    fn create_user(
        &self,
        name: &str,
        password_hash: &str,
        allow_run_as: bool,
        roles: &[u32],
    ) -> StoreResult<u32> {
        self.write(|tx| users::create(tx, name, password_hash, allow_run_as, roles))
    }

    fn set_password_hash(&self, name: &str, hash: &str, revoked: &Revocation) -> StoreResult<()> {
        self.write(|tx| {
            users::set_password_hash(tx, name, hash)?;
            users::revoke_tokens(tx, revoked)
        })
    }

    fn delete_user(&self, name: &str, revoked: &Revocation) -> StoreResult<bool> {
        self.write(|tx| {
            let there = users::delete(tx, name)?;
            if there {
                users::revoke_tokens(tx, revoked)?;
            }
            Ok(there)
        })
    }

    fn roles(&self) -> StoreResult<Vec<super::RoleRef>> {
        self.read_keyed(users::roles)
    }

    fn policies(&self, roles: &[u32]) -> StoreResult<Vec<Policy>> {
        self.read_keyed(|tx| users::policies(tx, roles))
    }

    fn revoke_tokens(&self, revocation: &Revocation) -> StoreResult<()> {
        self.write(|tx| users::revoke_tokens(tx, revocation))
    }

    fn revocations(&self) -> StoreResult<Vec<Revocation>> {
        self.read_keyed(users::revocations)
    }

    fn clear_revocations(&self) -> StoreResult<()> {
        self.write(|tx| Ok(rows::run(tx, "DELETE FROM token_revocation", []).map(drop)?))
    }

    fn setting(&self, name: &str) -> StoreResult<Option<String>> {
        self.read_keyed(|tx| users::setting(tx, name))
    }

    fn revoke_and_set(
        &self,
        revocation: &Revocation,
        settings: &[(&str, String)],
    ) -> StoreResult<()> {
        self.write(|tx| {
            users::revoke_tokens(tx, revocation)?;
            settings.iter().try_for_each(|(name, value)| users::set_setting(tx, name, value))
        })
    }

    fn set_setting(&self, name: &str, value: &str) -> StoreResult<()> {
        self.write(|tx| users::set_setting(tx, name, value))
    }

    fn setting_or(&self, name: &str, value: &str) -> StoreResult<String> {
        self.write(|tx| users::setting_or(tx, name, value))
    }

    fn audit(&self, entry: &AuditEntry) -> StoreResult<u64> {
        self.write(|tx| users::audit(tx, entry))
    }

    fn audit_log(&self, before: Option<u64>, limit: u64) -> StoreResult<Vec<AuditEntry>> {
        self.read(|tx| users::audit_log(tx, before, limit))
    }

    fn backup_to(&self, file: &Path) -> StoreResult<()> {
        let name = file.display().to_string();
        if file.exists() {
            return Err(RegistryStoreError::Exists { what: "file", name });
        }
        // Of its own, so that no reader waits for the copy.
        let conn = connect(self.path(), OpenFlags::SQLITE_OPEN_READ_WRITE)?;
        conn.execute("VACUUM INTO ?1", [&name])?;
        File::open(file)
            .and_then(|f| {
                f.set_permissions(Permissions::from_mode(0o600)).and_then(|()| f.sync_all())
            })
            .map_err(|e| RegistryStoreError::Corrupt(format!("{name}: {e}")))
    }

    fn begin_audit(&self, entry: AuditEntry) {
        audit::set(Pending::Waiting(entry));
    }

    fn amend_audit(&self, more: &str) {
        audit::amend(more);
    }

    fn write_audit(&self) -> StoreResult<()> {
        // It is in what goes along with every durable write.
        self.write(|_| Ok(()))
    }

    fn end_audit(&self, outcome: AuditOutcome) -> StoreResult<()> {
        match audit::take() {
            Pending::None => Ok(()),
            Pending::Waiting(entry) => {
                let entry = AuditEntry { outcome, ..entry };
                self.write_soft(|tx| users::audit(tx, &entry).map(drop))
            }
            Pending::Written(id) => self.finish_audit(id, outcome),
        }
    }

    fn leave_out_audit(&self, outcome: AuditOutcome) -> StoreResult<()> {
        match audit::take() {
            Pending::None | Pending::Waiting(_) => Ok(()),
            Pending::Written(id) if outcome == AuditOutcome::Unchanged => self.drop_audit(id),
            Pending::Written(id) => self.finish_audit(id, outcome),
        }
    }

    fn drop_audit(&self, id: u64) -> StoreResult<()> {
        let sql = "DELETE FROM audit WHERE id = ?1";
        self.write_soft(|tx| Ok(rows::run(tx, sql, [rows::signed(id)]).map(drop)?))
    }

    fn finish_audit(&self, id: u64, outcome: AuditOutcome) -> StoreResult<()> {
        self.write_soft(|tx| users::finish_audit(tx, id, outcome))
    }

    fn checkpoint(&self) -> StoreResult<()> {
        self.copy_log()
    }
}
