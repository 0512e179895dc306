//! Verifies a session and plans its writes, without I/O. The checks run in the order of
//! `docs/reference/wire.md`, "Sessions: order of checks". An error in the session refuses it; an
//! error in one value skips that value.

use link::{Limits, Mode, Operation, PayloadView, SessionView, SyncOption, ValueView, verify};
use model::limits::{DOCUMENT_BYTES_MAX, DOCUMENT_ID_BYTES_MAX};
use model::{AgentId, AgentSubject, Dataset, EventBody, Overlay, SkipReason, Skipped, Write};
use state::limits::{DATASET_NAME_BYTES_MAX, EVENT_ID_BYTES_MAX};

use crate::answer::Refusal;
use crate::identity::parse_agent;
use crate::strict;

/// An index that may be emptied but not written.
const CLEAN_ONLY: &str = "wazuh-states-vulnerabilities";

/// Longest text of a session's description of its agent, characters. Longer ones are cut.
const SAID_CHARS_MAX: usize = 256;
/// Maximum number of groups in that description.
const SAID_GROUPS_MAX: usize = 128;

/// The action to take for a session.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Plan {
    pub(crate) task: Task,
    /// The sender's description of itself, used where the server has no data of its own.
    pub(crate) said: Overlay,
    /// True if the session also requested a scan.
    pub(crate) scan: bool,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Task {
    Commit(PlannedWrites),
    /// Compare this checksum with the store's.
    Check {
        dataset: Dataset,
        checksum: String,
    },
    /// Store the description of the agent, if it is not registered: for a registered agent the
    /// registry is authoritative.
    Describe {
        subject: AgentSubject,
        version: u64,
        check: bool,
        /// Datasets whose documents show at least this version from now on.
        datasets: Vec<Dataset>,
    },
}

/// The writes of a session, and the values that were skipped.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct PlannedWrites {
    pub(crate) list: Vec<Write>,
    /// For each write, the index of its value in the session.
    pub(crate) places: Vec<u32>,
    pub(crate) skipped: Vec<Skipped>,
}

impl PlannedWrites {
    fn write(&mut self, place: usize, write: Write) {
        self.places.push(place as u32);
        self.list.push(write);
    }

    fn skip(&mut self, place: usize, id: &str, reason: SkipReason) {
        let id = id.chars().take(DOCUMENT_ID_BYTES_MAX).collect();
        self.skipped.push(Skipped { index: place as u32, id, reason, version: 0 });
    }

    /// Makes deletes unversioned, so that the store keeps no tombstones of them. A sender that counts
    /// the changes of each document begins at 1 again when it recreates one.
    pub(crate) fn clear_versions_of_deletes(&mut self) {
        for write in &mut self.list {
            if let Write::Delete { version, .. } = write {
                *version = 0;
            }
        }
    }

    /// Converts the indexes of values that the store skipped: from indexes of writes to indexes of
    /// the session's values.
    pub(crate) fn at_values(places: &[u32], stale: Vec<Skipped>) -> impl Iterator<Item = Skipped> {
        stale.into_iter().map(|mut s| {
            let place = usize::try_from(s.index).ok().and_then(|n| places.get(n));
            s.index = place.copied().unwrap_or(s.index);
            s
        })
    }
}

/// Verifies a session and returns the action to take for it.
///
/// # Errors
/// Returns the refusal for a session that is malformed, too large, or names another agent.
pub(crate) fn plan(
    bytes: &[u8],
    limits: &Limits,
    agent: AgentId,
    cluster: &str,
) -> Result<Plan, Refusal> {
    let session = verify(bytes, limits).map_err(|e| {
        let detail = e.to_string();
        if e.is_size() { Refusal::too_large(detail) } else { Refusal::invalid(detail) }
    })?;
    identity(&session, agent, cluster)?;
    let task = match (session.start.mode(), &session.payload) {
        (Mode::ModuleDelta, PayloadView::Sync(sync)) => {
            if sync.is_empty() {
                return Err(Refusal::invalid("session holds no values"));
            }
            Task::Commit(values(sync.values()))
        }
        (Mode::ModuleDelta, PayloadView::Cleans(items)) => {
            if items.is_empty() {
                return Err(Refusal::invalid("session names no index to empty"));
            }
            Task::Commit(cleans(items))
        }
        (Mode::ModuleCheck, PayloadView::Checksum { index, checksum }) => check(index, checksum)?,
        (
            Mode::MetadataDelta | Mode::MetadataCheck | Mode::GroupDelta | Mode::GroupCheck,
            PayloadView::None,
        ) => describe(&session),
        (mode, _) => {
            return Err(Refusal::invalid(format!("payload does not belong to the mode {mode:?}")));
        }
    };
    let scan = session.start.option() != SyncOption::Sync;
    Ok(Plan { task, said: agent_overlay(&session), scan })
}

fn describe(session: &SessionView<'_>) -> Task {
    let (mode, version) = (session.start.mode(), session.start.global_version());
    let known = |index: &str| documents(index).is_some() || index == CLEAN_ONLY;
    let mut named = session.start.index().peekable();
    if named.peek().is_some() && !named.any(known) {
        // It is about indexes that the server does not have: nothing is written.
        return Task::Commit(PlannedWrites::default());
    }
    let subject = match mode {
        Mode::GroupDelta | Mode::GroupCheck => AgentSubject::Groups,
        _ => AgentSubject::Metadata,
    };
    let check = matches!(mode, Mode::MetadataCheck | Mode::GroupCheck);
    // A check corrects differences and changes no version.
    let raises = !check && version != 0;
    let named = session.start.index().filter(|_| raises);
    let datasets = named.filter_map(documents).collect();
    Task::Describe { subject, version, check, datasets }
}

fn identity(session: &SessionView<'_>, agent: AgentId, cluster: &str) -> Result<(), Refusal> {
    let start = &session.start;
    if start.module().is_empty() {
        return Err(Refusal::invalid("session names no module"));
    }
    let said = parse_agent(start.agentid())
        .ok_or_else(|| Refusal::invalid("the session's agent id is not a number"))?;
    if said != agent {
        let detail = format!("the session names agent {said}, its sender is {agent}");
        return Err(Refusal::forbidden("identity_mismatch", detail));
    }
    match start.cluster_name() {
        "" => Err(Refusal::invalid("session names no cluster")),
        name if name != cluster => {
            let detail = format!("session is for the cluster {name:?}, this is {cluster:?}");
            Err(Refusal::forbidden("cluster_mismatch", detail))
        }
        _ => Ok(()),
    }
}

fn check(index: &str, checksum: &str) -> Result<Task, Refusal> {
    let dataset = documents(index)
        .ok_or_else(|| Refusal::invalid(format!("index {index:?} is not one to be checked")))?;
    if checksum.is_empty() {
        return Err(Refusal::invalid("checksum is empty"));
    }
    Ok(Task::Check { dataset, checksum: checksum.to_owned() })
}

/// Returns the dataset of documents that an index names, if the server accepts writes for it.
pub(crate) fn documents(index: &str) -> Option<Dataset> {
    dataset(index).filter(|d| !d.is_events())
}

fn dataset(index: &str) -> Option<Dataset> {
    Dataset::from_wire(index).filter(|d| d.name().len() <= DATASET_NAME_BYTES_MAX)
}

fn cleans(items: &[&str]) -> PlannedWrites {
    let mut writes = PlannedWrites::default();
    for (place, index) in items.iter().enumerate() {
        match documents(index) {
            Some(dataset) => writes.write(place, Write::Clean { dataset }),
            None if *index == CLEAN_ONLY => {}
            None => writes.skip(place, index, SkipReason::Index),
        }
    }
    writes
}

fn values<'a>(values: impl Iterator<Item = ValueView<'a>>) -> PlannedWrites {
    let mut writes = PlannedWrites::default();
    for (place, value) in values.enumerate() {
        match write(&value) {
            Ok(write) => writes.write(place, write),
            Err(reason) => writes.skip(place, value.id, reason),
        }
    }
    writes
}

fn write(value: &ValueView<'_>) -> Result<Write, SkipReason> {
    let dataset = dataset(value.index).ok_or(SkipReason::Index)?;
    let id_max = if dataset.is_events() { EVENT_ID_BYTES_MAX } else { DOCUMENT_ID_BYTES_MAX };
    if value.id.is_empty() || value.id.len() > id_max {
        return Err(SkipReason::Id);
    }
    let id = value.id.to_owned();
    match value.operation {
        Operation::Delete if dataset.is_events() => Err(SkipReason::Index),
        Operation::Delete => Ok(Write::Delete { dataset, id, version: value.version }),
        Operation::Upsert => {
            if value.data.len() > DOCUMENT_BYTES_MAX {
                return Err(SkipReason::TooLarge);
            }
            if !strict::is_object(value.data) || (dataset.is_events() && !is_event(value.data)) {
                return Err(SkipReason::Json);
            }
            let body = value.data.to_vec();
            Ok(if dataset.is_events() {
                Write::Event { id, body }
            } else {
                Write::Upsert { dataset, id, version: value.version, body }
            })
        }
    }
}

fn is_event(body: &[u8]) -> bool {
    serde_json::from_slice::<EventBody>(body).is_ok_and(|e| e.time_us() != 0)
}

/// Returns the session's description of the agent, cut to the lengths that are kept.
fn agent_overlay(session: &SessionView<'_>) -> Overlay {
    let start = session.start.to_start();
    let cut = |text: String| match text.char_indices().nth(SAID_CHARS_MAX) {
        Some((end, _)) => text.get(..end).unwrap_or_default().to_owned(),
        None => text,
    };
    Overlay {
        agent_name: cut(start.agentname),
        agent_version: cut(start.agentversion),
        groups: start.groups.into_iter().take(SAID_GROUPS_MAX).map(cut).collect(),
        hostname: cut(start.hostname),
        architecture: cut(start.architecture),
        os: [start.osname, start.osplatform, start.ostype, start.osversion].map(cut),
        cluster: start.cluster_name,
    }
}

#[cfg(test)]
mod tests;
