//! The state store on SQLite.

use std::path::Path;

use model::{AgentId, Applied, Dataset, Position, Record};

use crate::StateStore;
use crate::error::StateError;
use crate::query::{
    AgentCounts, ChangePage, ChangeQuery, DocumentPage, DocumentQuery, Retained, Retention,
    StateCounts, StoredDocument,
};

/// How to open the store.
#[derive(Debug, Clone)]
pub struct StateOptions {
    /// Connections for queries.
    pub readers: usize,
}

impl Default for StateOptions {
    fn default() -> Self {
        Self { readers: crate::limits::READERS }
    }
}

/// `state.db`.
pub struct SqliteState {}

impl SqliteState {
    /// Open or create the database file.
    ///
    /// # Errors
    /// When it cannot be read, is not ours, or was written by a newer version.
    pub fn open(_file: &Path, _options: StateOptions) -> Result<Self, StateError> {
        todo!()
    }

    /// Prepare a restored copy for a new, empty journal: positions start again and the store
    /// draws a new id, so that every agent checks what the copy holds.
    ///
    /// # Errors
    /// As [`SqliteState::open`].
    pub fn prepare_restored(_file: &Path) -> Result<(), StateError> {
        todo!()
    }
}

impl StateStore for SqliteState {
    fn apply(&self, _: &[(Position, Record)]) -> Result<Vec<Applied>, StateError> {
        todo!()
    }
    fn quarantine(&self, _: Position, _: &[u8], _: &str) -> Result<(), StateError> {
        todo!()
    }
    fn applied(&self) -> Result<Position, StateError> {
        todo!()
    }
    fn checkpoint(&self) -> Result<Position, StateError> {
        todo!()
    }
    fn store_id(&self) -> String {
        todo!()
    }
    fn last_session(&self, _: AgentId) -> Result<Option<String>, StateError> {
        todo!()
    }
    fn document(
        &self,
        _: AgentId,
        _: &Dataset,
        _: &str,
    ) -> Result<Option<StoredDocument>, StateError> {
        todo!()
    }
    fn documents(&self, _: &DocumentQuery) -> Result<DocumentPage, StateError> {
        todo!()
    }
    fn checksum(&self, _: AgentId, _: &Dataset) -> Result<String, StateError> {
        todo!()
    }
    fn changes(&self, _: &ChangeQuery) -> Result<ChangePage, StateError> {
        todo!()
    }
    fn counts(&self) -> Result<StateCounts, StateError> {
        todo!()
    }
    fn agent_counts(&self, _: AgentId) -> Result<AgentCounts, StateError> {
        todo!()
    }
    fn retain(&self, _: &Retention, _: u64) -> Result<Retained, StateError> {
        todo!()
    }
    fn backup_to(&self, _: &Path) -> Result<(), StateError> {
        todo!()
    }
}
