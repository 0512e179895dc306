//! Runs the conformance suite on [`SqliteControl`].

use std::ops::Deref;

use tempfile::TempDir;

use crate::SqliteControl;

/// A store in a temporary folder.
struct Stored {
    store: SqliteControl,
    _folder: TempDir,
}

impl Deref for Stored {
    type Target = SqliteControl;

    fn deref(&self) -> &SqliteControl {
        &self.store
    }
}

fn make() -> Stored {
    let folder = TempDir::new().unwrap();
    let store = SqliteControl::open(&folder.path().join("registry.db")).unwrap();
    Stored { store, _folder: folder }
}

crate::control_conformance!(make);
