//! The suite of every state store, run on SQLite.

use state::{SqliteState, StateOptions};
use tempfile::TempDir;

struct Fresh {
    state: SqliteState,
    _dir: TempDir,
}

impl std::ops::Deref for Fresh {
    type Target = SqliteState;
    fn deref(&self) -> &SqliteState {
        &self.state
    }
}

fn fresh() -> Fresh {
    let dir = tempfile::tempdir().unwrap();
    let options = StateOptions { readers: 2, ..StateOptions::default() };
    Fresh { state: SqliteState::open(&dir.path().join("state.db"), options).unwrap(), _dir: dir }
}

conformance::state_conformance!(fresh);
