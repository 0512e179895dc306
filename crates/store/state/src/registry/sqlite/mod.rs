//! The registry store on SQLite: one writer, a few readers, WAL. See the parent module for what
//! survives what. One file per family of calls; this one holds the connections.

mod agents;
mod certificates;
mod commands;
mod counters;
mod distinct;
mod groups;
mod list;
mod rows;
mod security;
mod users;

use std::fs::{File, OpenOptions, Permissions};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use model::{AgentId, AgentRecord};
use parking_lot::{Mutex, MutexGuard};
use rusqlite::{Connection, OpenFlags, Transaction, TransactionBehavior};

use super::{
    AgentColumn, AgentPage, AgentQuery, AgentRow, AuditEntry, CertificateRow, CommandCounts,
    CommandRow, DistinctPage, Enrolled, EnrolmentTokenRow, GroupConfig, GroupCount, LastScan,
    LivenessRow, NewAgent, NewCertificate, NewCommand, NewEnrolmentToken, OutcomeRow, OutcomeState,
    Overview, Policy, Record, RegistryImage, RegistryStore, RegistryStoreError, Revocation, Sign,
    StatusSummary, StoreResult, Summary, UserRow, schema,
};
use crate::meter;

/// Connections for readers unless told otherwise; each holds its own page cache.
const READERS: usize = 3;
/// How long a connection waits for another process that holds the database.
const BUSY_TIMEOUT: Duration = Duration::from_secs(5);
/// Prepared statements kept per connection.
const STATEMENTS_MAX: usize = 128;
/// Page cache of one connection, KiB.
const CACHE_KIB: i64 = 8 * 1024;

/// `registry.db`.
pub struct SqliteRegistry {
    path: PathBuf,
    writer: Mutex<Connection>,
    readers: Vec<Mutex<Connection>>,
    turn: AtomicUsize,
}

impl SqliteRegistry {
    /// Open or create the database at `path` (mode 0600: it holds password hashes) and bring it
    /// to this program's version.
    ///
    /// # Errors
    /// `Newer` when a later program wrote it; `Corrupt` when it is no registry.
    pub fn open(path: &Path) -> StoreResult<Self> {
        Self::open_with(path, READERS)
    }

    /// As [`SqliteRegistry::open`], with so many connections for readers, at least one.
    ///
    /// # Errors
    /// As [`SqliteRegistry::open`].
    pub fn open_with(path: &Path, readers: usize) -> StoreResult<Self> {
        create_private(path)?;
        let mut writer = connect(path, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
        writer.pragma_update(None, "journal_mode", "WAL")?;
        writer.pragma_update(None, "synchronous", "FULL")?;
        schema::migrate(&mut writer)?;
        let readers = (0..readers.max(1))
            .map(|_| {
                let reader = connect(path, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
                reader.pragma_update(None, "query_only", true)?;
                Ok(Mutex::new(reader))
            })
            .collect::<StoreResult<_>>()?;
        let turn = AtomicUsize::new(0);
        Ok(Self { path: path.to_owned(), writer: Mutex::new(writer), readers, turn })
    }

    /// Have every reader run what lists and counters ask, so that the first requests find their
    /// statements prepared and their pages at hand.
    ///
    /// # Errors
    /// When the database fails.
    pub fn warm(&self) -> StoreResult<()> {
        let page = AgentQuery { limit: 1, ..AgentQuery::default() };
        for reader in &self.readers {
            let mut conn = reader.lock();
            let tx = conn.transaction_with_behavior(TransactionBehavior::Deferred)?;
            counters::summary(&tx)?;
            counters::overview(&tx)?;
            list::page(&tx, &page, 0)?;
            list::ids(&tx, &AgentQuery::default(), 0)?;
        }
        Ok(())
    }

    /// Where the database is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Journal mode and `synchronous` level (1 NORMAL, 2 FULL) of the last transaction.
    ///
    /// # Errors
    /// When the database fails.
    pub fn durability(&self) -> StoreResult<(String, i64)> {
        let conn = self.writer.lock();
        let journal = conn.query_row("PRAGMA journal_mode", [], |r| r.get(0))?;
        Ok((journal, conn.query_row("PRAGMA synchronous", [], |r| r.get(0))?))
    }

    /// One durable transaction.
    fn write<T>(&self, work: impl FnOnce(&Transaction<'_>) -> StoreResult<T>) -> StoreResult<T> {
        self.transact("FULL", work)
    }

    /// One transaction that survives a killed process, and a power cut once a later durable write
    /// or a checkpoint has followed: both persist the whole log up to their own end.
    fn write_soft<T>(
        &self,
        work: impl FnOnce(&Transaction<'_>) -> StoreResult<T>,
    ) -> StoreResult<T> {
        self.transact("NORMAL", work)
    }

    /// The level is set for each transaction anew, so that none inherits another's.
    fn transact<T>(
        &self,
        synchronous: &str,
        work: impl FnOnce(&Transaction<'_>) -> StoreResult<T>,
    ) -> StoreResult<T> {
        let mut conn = self.writer.lock();
        conn.pragma_update(None, "synchronous", synchronous)?;
        let tx = conn.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let out = work(&tx)?;
        tx.commit()?;
        Ok(out)
    }

    /// One snapshot for all that `work` reads.
    fn read<T>(&self, work: impl FnOnce(&Transaction<'_>) -> StoreResult<T>) -> StoreResult<T> {
        let Some(mut conn) = self.reader() else {
            return Err(RegistryStoreError::Corrupt("no reader".into()));
        };
        let tx = conn.transaction_with_behavior(TransactionBehavior::Deferred)?;
        work(&tx)
    }

    /// A free reader, else the next in turn.
    fn reader(&self) -> Option<MutexGuard<'_, Connection>> {
        self.readers.iter().find_map(Mutex::try_lock).or_else(|| {
            let turn = self.turn.fetch_add(1, Ordering::Relaxed) % self.readers.len().max(1);
            self.readers.get(turn).map(Mutex::lock)
        })
    }
}

fn remove(tx: &Transaction<'_>, agent: AgentId, now_s: i64) -> StoreResult<Option<AgentRow>> {
    let row = agents::remove(tx, agent)?;
    if row.is_some() {
        certificates::revoke(tx, agent, now_s)?;
        commands::agent_gone(tx, agent, now_s)?;
    }
    Ok(row)
}

fn connect(path: &Path, flags: OpenFlags) -> StoreResult<Connection> {
    let mut conn = Connection::open_with_flags(path, flags | OpenFlags::SQLITE_OPEN_NO_MUTEX)?;
    conn.busy_timeout(BUSY_TIMEOUT)?;
    conn.set_prepared_statement_cache_capacity(STATEMENTS_MAX);
    conn.pragma_update(None, "cache_size", -CACHE_KIB)?;
    rusqlite::vtab::array::load_module(&conn)?;
    meter::attach(&mut conn)?;
    Ok(conn)
}

fn create_private(path: &Path) -> StoreResult<()> {
    OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(path)
        .map(drop)
        .map_err(|e| RegistryStoreError::Corrupt(format!("{}: {e}", path.display())))
}

impl RegistryStore for SqliteRegistry {
    fn load(&self) -> StoreResult<RegistryImage> {
        self.read(|tx| {
            Ok(RegistryImage {
                agents: agents::all(tx)?,
                certificates: certificates::all(tx)?,
                outstanding: commands::outstanding(tx)?,
                revocations: users::revocations(tx)?,
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
        new: &NewAgent,
        record: Record<'_>,
    ) -> StoreResult<(Vec<AgentRow>, AgentRow)> {
        self.write(|tx| {
            let rows = gone.iter().map(|agent| remove(tx, *agent, new.now_s));
            let rows: Vec<AgentRow> =
                rows.collect::<StoreResult<Vec<_>>>()?.into_iter().flatten().collect();
            let row = agents::add(tx, new, gone)?;
            record(&rows).map_err(RegistryStoreError::Unrecorded)?;
            Ok((rows, row))
        })
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
        self.write(|tx| remove(tx, agent, now_s))
    }

    fn remove_agents(&self, agents: &[AgentId], now_s: i64) -> StoreResult<Vec<AgentRow>> {
        self.write(|tx| {
            let rows = agents.iter().map(|agent| remove(tx, *agent, now_s));
            Ok(rows.collect::<StoreResult<Vec<_>>>()?.into_iter().flatten().collect())
        })
    }

    fn client_key(&self, agent: AgentId) -> StoreResult<Option<String>> {
        self.read(|tx| agents::client_key(tx, agent))
    }

    fn set_client_key(&self, agent: AgentId, key: &str) -> StoreResult<()> {
        self.write(|tx| agents::set_client_key(tx, agent, key))
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

    fn create_command(&self, command: &NewCommand) -> StoreResult<(u64, Vec<AgentId>)> {
        self.write(|tx| commands::create(tx, command))
    }

    fn save_outcomes(&self, rows: &[OutcomeRow]) -> StoreResult<()> {
        self.write_soft(|tx| commands::save_outcomes(tx, rows))
    }

    fn finish_command(&self, id: u64, state: OutcomeState, now_s: i64) -> StoreResult<u64> {
        self.write(|tx| commands::finish(tx, id, state, now_s))
    }

    fn command(&self, id: u64) -> StoreResult<Option<CommandRow>> {
        self.read(|tx| commands::one(tx, id))
    }

    fn commands(&self, limit: u64) -> StoreResult<Vec<CommandRow>> {
        self.read(|tx| commands::newest(tx, limit))
    }

    fn outcomes(
        &self,
        id: u64,
        state: Option<OutcomeState>,
        after: Option<AgentId>,
        limit: u64,
    ) -> StoreResult<Vec<OutcomeRow>> {
        self.read(|tx| commands::outcomes(tx, id, state, after, limit))
    }

    fn outcome_counts(&self, id: u64, agents: &[AgentId]) -> StoreResult<CommandCounts> {
        self.read(|tx| commands::outcome_counts(tx, id, agents))
    }

    fn user(&self, name: &str) -> StoreResult<Option<UserRow>> {
        self.read(|tx| users::one(tx, name))
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
        self.read(users::roles)
    }

    fn policies(&self, roles: &[u32]) -> StoreResult<Vec<Policy>> {
        self.read(|tx| users::policies(tx, roles))
    }

    fn revoke_tokens(&self, revocation: &Revocation) -> StoreResult<()> {
        self.write(|tx| users::revoke_tokens(tx, revocation))
    }

    fn revocations(&self) -> StoreResult<Vec<Revocation>> {
        self.read(users::revocations)
    }

    fn clear_revocations(&self) -> StoreResult<()> {
        self.write(|tx| Ok(tx.execute("DELETE FROM token_revocation", []).map(drop)?))
    }

    fn setting(&self, name: &str) -> StoreResult<Option<String>> {
        self.read(|tx| users::setting(tx, name))
    }

    fn set_setting(&self, name: &str, value: &str) -> StoreResult<()> {
        self.write(|tx| users::set_setting(tx, name, value))
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
        let conn = connect(&self.path, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
        conn.execute("VACUUM INTO ?1", [&name])?;
        File::open(file)
            .and_then(|f| {
                f.set_permissions(Permissions::from_mode(0o600)).and_then(|()| f.sync_all())
            })
            .map_err(|e| RegistryStoreError::Corrupt(format!("{name}: {e}")))
    }

    fn checkpoint(&self) -> StoreResult<()> {
        let conn = self.writer.lock();
        conn.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |_| Ok(()))?;
        Ok(())
    }
}
