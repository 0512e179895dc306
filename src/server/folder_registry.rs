//! The registry of a folder: for a command without a server, and next to a state that is newer.

use std::sync::Arc;

use anyhow::bail;
use env::random::SystemRandom;
use folder::clock::read_guarded;
use folder::{DataFolder, is_there};
use model::AgentId;
use registry::{AuditOutcome, Reader, Registry};
use replication::follow::Marker;
use state::StateStore;

use super::open_registry;
use crate::config::ServerConfig;

/// Opens the registry for a command on the server's machine; a server may have it open.
pub(crate) fn registry_for_command(folder: &DataFolder) -> anyhow::Result<Registry> {
    folder.expect_server()?;
    if let Some(following) = Marker::load(folder.path())? {
        let (folder, server) = (folder.path().display(), following.from);
        bail!("{folder}: follows {server}, whose registry takes its place: do this at that server");
    }
    registry_alone(folder)
}

/// Opens the registry. If no server has run in the folder yet, creates it; the caller must then
/// have claimed the folder.
pub(crate) fn registry_alone(folder: &DataFolder) -> anyhow::Result<Registry> {
    let config = ServerConfig { data: folder.path().to_owned(), ..ServerConfig::default() };
    let clock = Arc::new(read_guarded(folder));
    open_registry(&config, folder, clock, Arc::new(SystemRandom))
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
/// next new agent gets. No server may run.
pub(crate) fn accept_registry(folder: &DataFolder) -> anyhow::Result<AgentId> {
    let mut used = AgentId::SERVER;
    if is_there(&folder.state_db())? {
        used = StateStore::peek_highest_agent(&folder.state_db())?;
    }
    let registry = registry_for_command(folder)?;
    let detail = format!("accept the registry; the state knows agents up to {used}");
    let context = registry.audited(Reader::server(), "local", "security:revoke", &detail);
    let accepted = registry.accept_older(&context, used);
    let outcome = if accepted.is_ok() { AuditOutcome::Done } else { AuditOutcome::Refused };
    registry.end_audit(&context, outcome)?;
    registry.close()?;
    Ok(accepted?)
}
