//! The promises of a control store, kept by [`SqliteRegistry`].

use std::ops::Deref;

use tempfile::TempDir;

use crate::SqliteRegistry;

/// A store in a folder that goes with it.
struct Stored {
    store: SqliteRegistry,
    _folder: TempDir,
}

impl Deref for Stored {
    type Target = SqliteRegistry;

    fn deref(&self) -> &SqliteRegistry {
        &self.store
    }
}

fn make() -> Stored {
    let folder = TempDir::new().unwrap();
    let store = SqliteRegistry::open(&folder.path().join("registry.db")).unwrap();
    Stored { store, _folder: folder }
}

crate::control_conformance!(make);
