//! The database that a command names.

use std::path::{Path, PathBuf};

use anyhow::bail;
use folder::{DataFolder, is_there};

use crate::arguments::QueueOf;

/// Returns the agent's folder that a configuration file names.
pub type FolderOf<'a> = &'a dyn Fn(&Path) -> anyhow::Result<PathBuf>;

/// Returns the path of the database in an agent's own folder; fails if it does not exist.
pub(crate) fn agent_database(folder: &Path) -> anyhow::Result<PathBuf> {
    let path = folder.join("agent.db");
    if is_there(&path)? {
        return Ok(path);
    }
    bail!("{}: this agent has not run yet; start it first", path.display())
}

/// Returns the path of the database that the arguments name.
///
/// # Errors
/// Returns an error if there is none, or the configuration cannot be read.
pub fn database(of: &QueueOf, folder_of: FolderOf<'_>) -> anyhow::Result<PathBuf> {
    if let Some(file) = &of.config {
        return agent_database(&folder_of(file)?);
    }
    let data = of.folder()?;
    let path = DataFolder::new(&data).agent().join("agent.db");
    // The folder of a separate agent holds the database directly.
    let own = data.join("agent.db");
    for path in [&path, &own] {
        if is_there(path)? {
            return Ok(path.clone());
        }
    }
    bail!(
        "{}: no agent has run in this folder; name another one with --data, or an agent's \
         configuration with --config",
        path.display()
    )
}
