//! The registry of a folder: for a command without a server, and next to a state that is newer.

use std::sync::Arc;

use anyhow::bail;
use commit::JournalLog;
use control::log::RowLog;
use env::random::SystemRandom;
use folder::clock::read_guarded;
use folder::{DataFolder, is_there};
use model::AgentId;
use registry::{AuditOutcome, ControlError, ControlStore, Reader, Registry};
use replication::follow::Marker;
use state::StateStore;
use tracing::warn;

use super::{open_registry, rows_log};
use crate::config::ServerConfig;

/// Opens the registry for a command on the server's machine. The caller has claimed the folder.
pub(crate) fn registry_for_command(folder: &DataFolder) -> anyhow::Result<Registry> {
    expect_own(folder)?;
    registry_alone(folder)
}

/// Opens the registry as [`registry_for_command`] does, even if the journal cannot be used: then the rows
/// of the command are logged once it can.
pub(crate) fn registry_despite_journal(folder: &DataFolder) -> anyhow::Result<Registry> {
    expect_own(folder)?;
    registry_alone(folder).or_else(|error| {
        warn!("{error:#}: the change is logged once the journal can be used again");
        open(folder, None)
    })
}

/// Opens the registry. If no server has run in the folder yet, creates it. The caller has claimed the
/// folder.
pub(crate) fn registry_alone(folder: &DataFolder) -> anyhow::Result<Registry> {
    folder.expect_registry()?;
    open(folder, rows_log::open(folder)?)
}

fn open(folder: &DataFolder, log: Option<JournalLog>) -> anyhow::Result<Registry> {
    let log = log.map(|log| Arc::new(log) as Arc<dyn RowLog>);
    let config = ServerConfig { data: folder.path().to_owned(), ..ServerConfig::default() };
    let clock = Arc::new(read_guarded(folder));
    let store = rows_log::open_control(&config, folder, log)?;
    open_registry(&config, folder, store, clock, Arc::new(SystemRandom))
}

/// Returns an error unless a server has run in the folder, and it follows no other one.
pub(crate) fn expect_own(folder: &DataFolder) -> anyhow::Result<()> {
    folder.expect_server()?;
    if let Some(following) = Marker::load(folder.path())? {
        let (folder, server) = (folder.path().display(), following.from);
        bail!("{folder}: follows {server}, whose registry takes its place: do this at that server");
    }
    Ok(())
}

/// Returns the error for a registry that lacks records which the journal no longer has.
pub(super) fn older(folder: &DataFolder, behind: &ControlError) -> anyhow::Error {
    let (database, data) = (folder.registry_db(), folder.path());
    anyhow::anyhow!(
        "{}: {behind}. Put back the registry.db that belongs to it, with its registry.db-wal, or restore \
         a backup. If there is none, `holdfast registry accept --data {}` goes on with this one: what \
         was decided in between is lost, and every token is revoked",
        database.display(),
        data.display()
    )
}

/// Returns an error if the registry would give the number of an agent that the state knows to a new
/// one, so that two histories would mix: it is older than the state.
pub(super) fn expect_registry_of_state(
    folder: &DataFolder,
    registry: &Registry,
) -> anyhow::Result<()> {
    let used = StateStore::peek_highest_agent(&folder.state_db())?;
    let next = registry.next_agent(&Reader::server())?;
    if used < next {
        return Ok(());
    }
    let (database, data) = (folder.registry_db(), folder.path());
    bail!(
        "{}: older than the state next to it, which knows agent {used}; the next new agent would be \
         {next}. Put back the registry.db that belongs to it, with its registry.db-wal, or restore a \
         backup. If there is none, `holdfast registry accept --data {}` goes on with this one: \
         numbers up to {used} are not given again, and every token is revoked",
        database.display(),
        data.display()
    )
}

/// Makes the registry of a folder safe that may be older than its state. Returns the number that the
/// next new agent gets. The caller has claimed the folder.
pub(crate) fn accept_registry(folder: &DataFolder) -> anyhow::Result<AgentId> {
    let mut used = AgentId::SERVER;
    if is_there(&folder.state_db())? {
        used = StateStore::peek_highest_agent(&folder.state_db())?;
    }
    if let Some(behind) = rows_log::unusable_records(folder)? {
        warn!("{behind}");
        ControlStore::forget_position(&folder.registry_db())?;
    }
    let registry = registry_alone(folder)?;
    let detail = format!("accept the registry; the state knows agents up to {used}");
    let context = registry.audited(Reader::server(), "local", "security:revoke", &detail);
    let accepted = registry.accept_older(&context, used);
    let outcome = if accepted.is_ok() { AuditOutcome::Done } else { AuditOutcome::Refused };
    registry.end_audit(&context, outcome)?;
    registry.close()?;
    Ok(accepted?)
}
