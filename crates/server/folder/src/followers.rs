//! The server's own files, copied to its followers.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use anyhow::Context as _;
use registry::Registry;
use replication::follow::{FollowerFolder, Marker};
use replication::{Part, SeedSource};
use state::StateStore;

use crate::backup;
use crate::layout::DataFolder;

/// Returns the paths of a data folder that follows a server.
pub fn follower_folder(folder: &DataFolder) -> FollowerFolder {
    FollowerFolder {
        path: folder.path().to_owned(),
        journal: folder.journal(),
        state_db: folder.state_db(),
        registry_db: folder.registry_db(),
        keys: folder.keys(),
        restored_marker: folder.restored_marker(),
    }
}

impl DataFolder {
    /// Returns true if the folder follows a server.
    ///
    /// # Errors
    /// Returns an error if its marker cannot be read.
    pub fn follows(&self) -> anyhow::Result<bool> {
        Ok(Marker::load(self.path())?.is_some())
    }
}

/// Copies of a server's own files.
pub struct ServerFiles {
    pub folder: DataFolder,
    pub state: Arc<StateStore>,
    pub registry: Registry,
}

impl SeedSource for ServerFiles {
    fn copy(&self, part: Part, to: &Path) -> Result<Vec<String>, String> {
        self.copy_to(part, &DataFolder::new(to)).map_err(|e| format!("{e:#}"))
    }
}

impl ServerFiles {
    fn copy_to(&self, part: Part, to: &DataFolder) -> anyhow::Result<Vec<String>> {
        let mut names = Vec::new();
        if part == Part::All {
            self.state.backup_to(&to.state_db()).context("state")?;
            names.push("state.db".to_owned());
            // After the state, and with its own position raised to the state's or above: the follower's
            // records begin after the state's.
            self.registry.settle().context("registry")?;
            backup::copy_database(&self.folder.registry_db(), &to.registry_db())?;
            names.push("registry.db".to_owned());
        }
        backup::copy_folder(&self.folder.keys(), &to.keys())?;
        for entry in fs::read_dir(to.keys())? {
            names.push(format!("keys/{}", entry?.file_name().to_string_lossy()));
        }
        Ok(names)
    }
}
