//! The promises of the control store, a module for each family of calls.

mod agents;
mod audit;
mod commands;
mod enrolment;
mod groups;
mod lists;
mod users;

use std::ops::Deref;
use std::sync::Arc;

use control::{AgentQuery, ControlStore, NewAgent, Reader, WriteContext};
use model::{AgentId, Incarnation, Permitted};
use tempfile::TempDir;

/// An empty store in a temporary folder.
struct Stored {
    store: ControlStore,
    _folder: TempDir,
}

impl Deref for Stored {
    type Target = ControlStore;

    fn deref(&self) -> &ControlStore {
        &self.store
    }
}

fn open() -> Stored {
    let folder = TempDir::new().unwrap();
    let store = mirror::open(&folder.path().join("registry.db")).unwrap();
    Stored { store, _folder: folder }
}

/// Returns a context for changes that write no row of the audit log.
fn by() -> WriteContext {
    WriteContext::server()
}

fn reader() -> Reader {
    Reader::server()
}

/// Returns an agent to register, without a number, groups or a key.
fn new_agent(name: &str) -> NewAgent {
    NewAgent {
        id: None,
        name: name.into(),
        register_ip: "any".into(),
        groups: Vec::new(),
        incarnation: Incarnation(1),
        client_key: None,
        ephemeral_s: None,
        now_s: 100,
    }
}

/// Registers agents with these names; returns their numbers.
fn add(store: &ControlStore, names: &[&str]) -> Vec<AgentId> {
    let new: Vec<NewAgent> = names.iter().map(|name| new_agent(name)).collect();
    let rows = store.add_agents(&by(), &new).unwrap();
    rows.into_iter().map(|row| row.record.id).collect()
}

/// Returns the numbers of the matching agents, including the server's.
fn ids(store: &ControlStore, query: &AgentQuery) -> Vec<u32> {
    let page = store.agents(&reader(), query, 1_000).unwrap();
    assert_eq!(page.total, page.items.len() as u64);
    let numbers = store.agent_ids(&reader(), query, 1_000).unwrap();
    let mut sorted: Vec<AgentId> = page.items.iter().map(|item| item.record.id).collect();
    sorted.sort();
    assert_eq!(sorted, numbers);
    page.items.iter().map(|item| item.record.id.0).collect()
}

fn only(ids: &[AgentId]) -> Permitted {
    Permitted::Only(Arc::new(ids.to_vec()))
}

fn except(ids: &[AgentId]) -> Permitted {
    Permitted::Except(Arc::new(ids.to_vec()))
}
