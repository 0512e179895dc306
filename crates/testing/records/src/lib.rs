//! Records for tests: documents, events and sessions as an agent's session has them.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use model::document::NoNames;
use model::{
    AgentId, Cause, CauseKind, CausePackage, Change, ChangeKind, Dataset, EventBody, Fields,
    FileDocument, Incarnation, ItemKey, Kind, Observation, Overlay, Record, SessionRecord, Write,
};

/// Returns a document of a file.
pub fn document(path: &str, version: u64, edit: impl FnOnce(&mut Observation)) -> Write {
    let key = ItemKey::of_path(path.as_bytes());
    let mut observation = Observation::empty(Kind::File);
    observation.size = path.len() as u64;
    edit(&mut observation);
    let body = FileDocument::new(&key, &observation, version, &NoNames);
    Write::Upsert {
        dataset: Dataset::fim_files(),
        id: key.document_id(),
        version,
        body: serde_json::to_vec(&body).unwrap(),
    }
}

/// Returns the removal of a file's document.
pub fn removal(path: &str, version: u64) -> Write {
    let id = ItemKey::of_path(path.as_bytes()).document_id();
    Write::Delete { dataset: Dataset::fim_files(), id, version }
}

/// Returns an event of a file.
pub fn event(id: &str, path: &str, kind: ChangeKind, found_at_us: u64) -> Write {
    let change = Change {
        key: ItemKey::of_path(path.as_bytes()),
        kind,
        before: Some(Observation::empty(Kind::File)),
        after: Some(Observation::empty(Kind::File)),
        fields: Fields::default(),
        found_at_us,
        from: None,
        seen: None,
        cause: None,
    };
    Write::Event { id: id.into(), body: EventBody::of_change(&change, &NoNames).to_json() }
}

/// Returns a session of an agent's first life.
pub fn session(agent: u32, received_at_us: u64, writes: Vec<Write>) -> Record {
    session_of_life(agent, 1, received_at_us, writes)
}

/// Returns a session of one of an agent's lives.
pub fn session_of_life(agent: u32, life: u64, received_at_us: u64, writes: Vec<Write>) -> Record {
    Record::Session(SessionRecord {
        agent: AgentId(agent),
        incarnation: Incarnation(life),
        received_at_us,
        session: format!("fim-{received_at_us}"),
        overlay: Overlay { agent_name: format!("agent-{agent}"), ..Overlay::default() },
        writes,
    })
}

/// Returns an event of a modified file, with a cause.
pub fn event_with_cause(id: &str, path: &str, cause: Cause, found_at_us: u64) -> Write {
    let change = Change {
        key: ItemKey::of_path(path.as_bytes()),
        kind: ChangeKind::Modified,
        before: Some(Observation::empty(Kind::File)),
        after: Some(Observation::empty(Kind::File)),
        fields: Fields::default(),
        found_at_us,
        from: None,
        seen: None,
        cause: Some(std::sync::Arc::new(cause)),
    };
    Write::Event { id: id.into(), body: EventBody::of_change(&change, &NoNames).to_json() }
}

/// Returns an event of a change that a package explains.
pub fn caused(id: &str, path: &str, cause: &str, package: &str, found_at_us: u64) -> Write {
    let package = CausePackage { name: package.into(), ..CausePackage::default() };
    let cause = Cause {
        kind: CauseKind::Package,
        id: cause.into(),
        tool: "apt".into(),
        package: Some(package),
        ..Cause::default()
    };
    event_with_cause(id, path, cause, found_at_us)
}
