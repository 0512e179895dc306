//! The control store on SQLite: one writer, a few readers and a write-ahead log. The crate's head
//! says what survives what. Each family of calls has a file; the connections are in
//! `connections.rs`.

mod agents;
mod certificates;
mod columns;
mod commands;
#[cfg(test)]
mod conformance_tests;
mod connections;
mod counters;
mod distinct;
mod groups;
mod list;
#[cfg(test)]
mod prepared_tests;
mod removal;
mod rows;
mod security;
mod users;
mod watched;

use std::fs::{File, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use model::{AgentId, AgentRecord};
use rusqlite::OpenFlags;

use super::{
    AgentColumn, AgentPage, AgentQuery, AgentRow, AuditEntry, AuditOutcome, CertificateRow,
    CommandRow, ConfigRow, ControlError, ControlImage, ControlResult, ControlStore, DistinctPage,
    EnrolledAgent, EnrolmentTokenRow, FleetSummary, GroupConfig, GroupCount, LastScan, LivenessRow,
    NewAgent, NewCertificate, NewCommand, NewEnrolmentToken, OutcomeFilter, OutcomeRow,
    OutcomeState, Overview, PendingAudit, Permitted, Policy, Revocation, Sign, StatusSummary,
    UserRow, WatchPage, WatchQuery, WatchRow, WriteContext,
};

use certificates::Unused;
pub use connections::SqliteControl;
use connections::connect;
use sqlite::Reader;

impl ControlStore for SqliteControl {
    fn load(&self) -> ControlResult<ControlImage> {
        self.read(&Reader::server(), |tx| {
            Ok(ControlImage {
                agents: agents::all(tx)?,
                certificates: certificates::all(tx)?,
                outstanding: commands::outstanding(tx)?,
                revocations: users::revocations(tx)?,
                configs: groups::configs(tx)?,
            })
        })
    }

    fn save_server(&self, server: &AgentRecord) -> ControlResult<i64> {
        self.write(&WriteContext::server(), |tx| agents::save_server(tx, server))
    }

    fn add_enrolment_token(
        &self,
        context: &WriteContext,
        token: &NewEnrolmentToken,
    ) -> ControlResult<()> {
        self.write(context, |tx| certificates::add_token(tx, token))
    }

    fn enrolment_tokens(
        &self,
        reader: &Reader,
        now_s: i64,
    ) -> ControlResult<Vec<EnrolmentTokenRow>> {
        self.read(reader, |tx| certificates::tokens(tx, now_s))
    }

    fn revoke_enrolment_token(
        &self,
        context: &WriteContext,
        digest: &[u8; 32],
    ) -> ControlResult<bool> {
        self.write(context, |tx| certificates::revoke_token(tx, digest))
    }

    fn enroll(
        &self,
        digest: &[u8; 32],
        agent: &NewAgent,
        sign: Sign<'_>,
    ) -> ControlResult<EnrolledAgent> {
        self.write(&WriteContext::server(), |tx| {
            let token = certificates::use_token(tx, digest, agent.now_s)?;
            let mut agent = agent.clone();
            agent.groups.splice(0..0, token.groups.iter().cloned());
            let row = agents::add(tx, &agent, &[])?;
            let certificate = sign(row.record.id).map_err(ControlError::Certificate)?;
            certificates::insert_first(tx, &row.record, &certificate, &token)?;
            Ok(EnrolledAgent { row, certificate })
        })
    }

    fn unused_enrolment(&self, token: &[u8; 32], name: &str, now_s: i64) -> Unused {
        self.write_soft(&Reader::server(), |tx| certificates::unused(tx, token, name, now_s))
    }

    fn add_agents(&self, context: &WriteContext, new: &[NewAgent]) -> ControlResult<Vec<AgentRow>> {
        self.write(context, |tx| new.iter().map(|agent| agents::add(tx, agent, &[])).collect())
    }

    fn replace_agents(
        &self,
        context: &WriteContext,
        gone: &[AgentId],
        freed: &[AgentId],
        new: &NewAgent,
    ) -> ControlResult<(Vec<AgentRow>, AgentRow)> {
        self.write(context, |tx| removal::replace(tx, gone, freed, new))
    }

    fn try_replace_agents(
        &self,
        reader: &Reader,
        gone: &[AgentId],
        new: &NewAgent,
    ) -> ControlResult<()> {
        self.try_out(reader, |tx| removal::replace(tx, gone, gone, new).map(drop))
    }

    fn rivals(
        &self,
        reader: &Reader,
        name: &str,
        id: Option<AgentId>,
        register_ip: Option<&str>,
    ) -> ControlResult<Vec<AgentId>> {
        // This uses the writer, which the decision needs anyway, so that it does not wait for long
        // lists.
        self.write_soft(reader, |tx| agents::rivals(tx, name, id, register_ip))
    }

    fn add_certificate(&self, agent: AgentId, certificate: &NewCertificate) -> ControlResult<()> {
        self.write(&WriteContext::server(), |tx| certificates::add(tx, agent, certificate))
    }

    fn save_certificate_uses(&self, rows: &[CertificateRow]) -> ControlResult<()> {
        self.write_soft(&Reader::server(), |tx| certificates::save_uses(tx, rows))
    }

    fn revoke_certificates(
        &self,
        context: &WriteContext,
        agents: &[AgentId],
        now_s: i64,
    ) -> ControlResult<u64> {
        self.write(context, |tx| {
            agents.iter().map(|agent| certificates::revoke(tx, *agent, now_s)).sum()
        })
    }

    fn forget_expired(&self, now_s: i64) -> ControlResult<u64> {
        self.write(&WriteContext::server(), |tx| certificates::forget_expired(tx, now_s))
    }

    fn remove_agents(
        &self,
        context: &WriteContext,
        agents: &[AgentId],
        now_s: i64,
    ) -> ControlResult<Vec<AgentRow>> {
        self.write(context, |tx| removal::remove(tx, agents, now_s))
    }

    fn free_numbers(&self, context: &WriteContext, ids: &[AgentId]) -> ControlResult<()> {
        self.write(context, |tx| ids.iter().try_for_each(|id| agents::free_number(tx, *id)))
    }

    fn client_key(&self, reader: &Reader, agent: AgentId) -> ControlResult<Option<String>> {
        self.read(reader, |tx| agents::client_key(tx, agent))
    }

    fn save_last_scans(&self, scans: &[(AgentId, LastScan)]) -> ControlResult<()> {
        self.write_soft(&Reader::server(), |tx| agents::save_last_scans(tx, scans))
    }

    fn last_scan(&self, reader: &Reader, agent: AgentId) -> ControlResult<LastScan> {
        self.read(reader, |tx| agents::last_scan(tx, agent))
    }

    fn save_watch_reports(&self, reports: &[(AgentId, WatchRow)]) -> ControlResult<()> {
        self.write_soft(&Reader::server(), |tx| watched::save(tx, reports))
    }

    fn watch_reports(&self, reader: &Reader, query: &WatchQuery) -> ControlResult<WatchPage> {
        self.read(reader, |tx| watched::page(tx, query))
    }

    fn set_groups_of(
        &self,
        context: &WriteContext,
        agents: &[(AgentId, Vec<String>)],
    ) -> ControlResult<Vec<(AgentId, Vec<String>)>> {
        self.write(context, |tx| {
            agents
                .iter()
                .map(|(agent, groups)| {
                    agents::require(tx, *agent)?;
                    Ok((*agent, groups::assign(tx, *agent, groups)?))
                })
                .collect()
        })
    }

    fn group_config(&self, reader: &Reader, name: &str) -> ControlResult<Option<GroupConfig>> {
        self.read(reader, |tx| groups::config(tx, name))
    }

    fn set_group_config(
        &self,
        context: &WriteContext,
        name: &str,
        config: &GroupConfig,
    ) -> ControlResult<()> {
        self.write(context, |tx| groups::set_config(tx, name, config))
    }

    fn create_group(&self, context: &WriteContext, name: &str, now_s: i64) -> ControlResult<()> {
        self.write(context, |tx| groups::create(tx, name, now_s))
    }

    fn delete_group(
        &self,
        context: &WriteContext,
        name: &str,
    ) -> ControlResult<Vec<(AgentId, Vec<String>)>> {
        self.write(context, |tx| groups::delete(tx, name))
    }

    fn groups(&self, reader: &Reader) -> ControlResult<Vec<GroupCount>> {
        self.read(reader, groups::all)
    }

    fn save_liveness(&self, rows: &[LivenessRow]) -> ControlResult<()> {
        self.write_soft(&Reader::server(), |tx| agents::save_liveness(tx, rows))
    }

    fn save_configs(&self, rows: &[ConfigRow]) -> ControlResult<()> {
        self.write_soft(&Reader::server(), |tx| agents::save_configs(tx, rows))
    }

    fn agents(&self, reader: &Reader, query: &AgentQuery, now_s: i64) -> ControlResult<AgentPage> {
        self.read(reader, |tx| list::page(tx, query, now_s))
    }

    fn agent_ids(
        &self,
        reader: &Reader,
        query: &AgentQuery,
        now_s: i64,
    ) -> ControlResult<Vec<AgentId>> {
        self.read(reader, |tx| list::ids(tx, query, now_s))
    }

    fn distinct(
        &self,
        reader: &Reader,
        query: &AgentQuery,
        columns: &[AgentColumn],
        now_s: i64,
    ) -> ControlResult<DistinctPage> {
        self.read(reader, |tx| distinct::distinct(tx, query, columns, now_s))
    }

    fn overview(&self, reader: &Reader) -> ControlResult<Overview> {
        self.read(reader, counters::overview)
    }

    fn status_summary(&self, reader: &Reader) -> ControlResult<StatusSummary> {
        self.read(reader, counters::status_summary)
    }

    fn summary(&self, reader: &Reader) -> ControlResult<FleetSummary> {
        self.read(reader, counters::summary)
    }

    fn create_command(&self, context: &WriteContext, command: &NewCommand) -> ControlResult<u64> {
        self.write(context, |tx| commands::create(tx, command))
    }

    fn trim_commands(&self) -> ControlResult<bool> {
        self.write_soft(&Reader::server(), commands::trim)
    }

    fn save_outcomes(&self, rows: &[OutcomeRow]) -> ControlResult<()> {
        self.write_soft(&Reader::server(), |tx| commands::save_outcomes(tx, rows))
    }

    fn finish_command(
        &self,
        context: &WriteContext,
        id: u64,
        state: OutcomeState,
        now_s: i64,
    ) -> ControlResult<u64> {
        self.write(context, |tx| commands::finish(tx, id, state, now_s))
    }

    fn command(
        &self,
        reader: &Reader,
        id: u64,
        scope: &Permitted,
        outcomes: OutcomeFilter,
    ) -> ControlResult<Option<(CommandRow, Vec<OutcomeRow>)>> {
        self.read(reader, |tx| commands::one(tx, id, scope, outcomes))
    }

    fn commands(
        &self,
        reader: &Reader,
        limit: u64,
        scope: &Permitted,
    ) -> ControlResult<Vec<CommandRow>> {
        self.read(reader, |tx| commands::newest(tx, limit, scope))
    }

    fn user(&self, reader: &Reader, name: &str) -> ControlResult<Option<UserRow>> {
        self.read_keyed(reader, |tx| users::one(tx, name))
    }

    fn users(&self, reader: &Reader) -> ControlResult<Vec<UserRow>> {
        self.read(reader, users::all)
    }

    fn create_user(
        &self,
        context: &WriteContext,
        name: &str,
        password_hash: &str,
        allow_run_as: bool,
        roles: &[u32],
    ) -> ControlResult<u32> {
        self.write(context, |tx| users::create(tx, name, password_hash, allow_run_as, roles))
    }

    fn set_password_hash(
        &self,
        context: &WriteContext,
        name: &str,
        hash: &str,
        revoked: &Revocation,
    ) -> ControlResult<()> {
        self.write(context, |tx| {
            users::set_password_hash(tx, name, hash)?;
            users::revoke_tokens(tx, revoked)
        })
    }

    fn delete_user(
        &self,
        context: &WriteContext,
        name: &str,
        revoked: &Revocation,
    ) -> ControlResult<bool> {
        self.write(context, |tx| {
            let there = users::delete(tx, name)?;
            if there {
                users::revoke_tokens(tx, revoked)?;
            }
            Ok(there)
        })
    }

    fn roles(&self, reader: &Reader) -> ControlResult<Vec<super::RoleRef>> {
        self.read_keyed(reader, users::roles)
    }

    fn policies(&self, reader: &Reader, roles: &[u32]) -> ControlResult<Vec<Policy>> {
        self.read_keyed(reader, |tx| users::policies(tx, roles))
    }

    fn revoke_tokens(&self, context: &WriteContext, revocation: &Revocation) -> ControlResult<()> {
        self.write(context, |tx| users::revoke_tokens(tx, revocation))
    }

    fn revocations(&self) -> ControlResult<Vec<Revocation>> {
        self.read_keyed(&Reader::server(), users::revocations)
    }

    fn clear_revocations(&self, context: &WriteContext) -> ControlResult<()> {
        self.write(context, |tx| Ok(rows::run(tx, "DELETE FROM token_revocation", []).map(drop)?))
    }

    fn setting(&self, reader: &Reader, name: &str) -> ControlResult<Option<String>> {
        self.read_keyed(reader, |tx| users::setting(tx, name))
    }

    fn revoke_and_set(
        &self,
        context: &WriteContext,
        revocation: &Revocation,
        settings: &[(&str, String)],
    ) -> ControlResult<()> {
        self.write(context, |tx| {
            users::revoke_tokens(tx, revocation)?;
            settings.iter().try_for_each(|(name, value)| users::set_setting(tx, name, value))
        })
    }

    fn set_setting(&self, name: &str, value: &str) -> ControlResult<()> {
        self.write(&WriteContext::server(), |tx| users::set_setting(tx, name, value))
    }

    fn setting_or(&self, name: &str, value: &str) -> ControlResult<String> {
        self.write(&WriteContext::server(), |tx| users::setting_or(tx, name, value))
    }

    fn audit(&self, entry: &AuditEntry) -> ControlResult<()> {
        self.write(&WriteContext::server(), |tx| users::audit(tx, entry).map(drop))
    }

    fn audit_log(
        &self,
        reader: &Reader,
        before: Option<u64>,
        limit: u64,
    ) -> ControlResult<Vec<AuditEntry>> {
        self.read(reader, |tx| users::audit_log(tx, before, limit))
    }

    fn backup_to(&self, file: &Path) -> ControlResult<()> {
        let name = file.display().to_string();
        if file.exists() {
            return Err(ControlError::Exists { what: "file", name });
        }
        // A separate connection, so that no reader waits for the copy.
        let conn = connect(self.path(), OpenFlags::SQLITE_OPEN_READ_WRITE)?;
        conn.execute("VACUUM INTO ?1", [&name])?;
        File::open(file)
            .and_then(|f| {
                f.set_permissions(Permissions::from_mode(0o600)).and_then(|()| f.sync_all())
            })
            .map_err(|e| ControlError::Corrupt(format!("{name}: {e}")))
    }

    fn write_audit(&self, context: &WriteContext) -> ControlResult<()> {
        // Every durable write appends the waiting row.
        match context.pending() {
            PendingAudit::Waiting(_) => self.append_audit(context),
            PendingAudit::None | PendingAudit::Written { .. } => Ok(()),
        }
    }

    fn end_audit(&self, context: &WriteContext, outcome: AuditOutcome) -> ControlResult<()> {
        let pending = context.pending();
        context.set_pending(PendingAudit::None);
        match pending {
            PendingAudit::None => Ok(()),
            PendingAudit::Waiting(entry) => {
                let entry = AuditEntry { outcome, ..entry };
                self.write_soft(context.reader(), |tx| users::audit(tx, &entry).map(drop))
            }
            PendingAudit::Written { id, .. } => {
                self.write_soft(context.reader(), |tx| users::finish_audit(tx, id, outcome))
            }
        }
    }

    fn leave_out_audit(&self, context: &WriteContext, outcome: AuditOutcome) -> ControlResult<()> {
        match context.pending() {
            PendingAudit::Written { id, changed } => {
                if changed && outcome != AuditOutcome::Unchanged {
                    return self.end_audit(context, outcome);
                }
                context.set_pending(PendingAudit::None);
                self.write_soft(context.reader(), |tx| users::drop_audit(tx, id))
            }
            PendingAudit::None | PendingAudit::Waiting(_) => {
                context.set_pending(PendingAudit::None);
                Ok(())
            }
        }
    }

    fn checkpoint(&self) -> ControlResult<()> {
        self.copy_log()
    }
}
