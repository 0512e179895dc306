//! The promises of the state store, a module for each family of calls.

mod causes;
mod changes;
mod documents;
mod gaps;
mod lives;
mod records;

use std::ops::Deref;

use model::{AgentId, Applied, Dataset, FileDocument, Position, Record};
use state::{
    DocumentQuery, Reader, Retained, Retention, StateError, StateOptions, StateStore,
    StoredDocument, limits,
};
use tempfile::TempDir;

/// An empty store in a temporary folder.
struct Stored {
    store: StateStore,
    _folder: TempDir,
}

impl Deref for Stored {
    type Target = StateStore;

    fn deref(&self) -> &StateStore {
        &self.store
    }
}

fn open() -> Stored {
    let folder = TempDir::new().unwrap();
    let options = StateOptions { readers: 2, ..StateOptions::default() };
    let store = StateStore::open(&folder.path().join("state.db"), options).unwrap();
    Stored { store, _folder: folder }
}

/// Applies one record at the next position.
pub(crate) fn apply(store: &StateStore, record: Record) -> Applied {
    let next = Position(store.applied().unwrap().0 + 1);
    let mut applied = store.apply(&[(next, record)]).unwrap();
    assert_eq!(applied.len(), 1);
    assert_eq!(store.applied().unwrap(), next);
    applied.remove(0)
}

/// Runs a retention at a time, microseconds since the epoch.
pub(crate) fn retain(store: &StateStore, policy: Retention, now_us: u64) -> Retained {
    let submit = |part| Ok::<_, StateError>(apply(store, part));
    store.retain(&policy, now_us, submit).unwrap()
}

/// Returns the paths of an agent's documents, in the order of a query without conditions.
pub(crate) fn paths(store: &StateStore, agent: u32) -> Vec<String> {
    let mut query = DocumentQuery::new(AgentId(agent), Dataset::fim_files());
    query.limit = limits::PAGE_ITEMS_MAX;
    let page = store.documents(&Reader::server(), &query).unwrap();
    assert_eq!(page.total, page.items.len() as u64);
    page.items.iter().map(path_of).collect()
}

/// Returns the path in a document's body.
pub(crate) fn path_of(document: &StoredDocument) -> String {
    serde_json::from_slice::<FileDocument>(&document.body).unwrap().file.path
}
