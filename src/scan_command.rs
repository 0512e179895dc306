//! `holdfast scan`, and the folder of an agent that a configuration names.

use std::path::{Path, PathBuf};

use scan::ScanRequest;

use crate::cli::ScanArgs;
use crate::config::{self, AgentConfig};

/// Returns the folder of the agent with this configuration.
pub(crate) fn agent_folder(file: &Path) -> anyhow::Result<PathBuf> {
    let config: AgentConfig = config::load(file)?;
    Ok(config.data)
}

/// Runs `holdfast scan`. Returns false if something could not be read.
pub(crate) fn run(args: &ScanArgs) -> anyhow::Result<bool> {
    let ScanArgs { path, below, of, json, quiet, threads } = args;
    let request =
        ScanRequest { paths: path.clone(), json: *json, quiet: *quiet, threads: *threads };
    if !below {
        return scan::run(&request);
    }
    let database = inspect::database(of, &agent_folder)?;
    let config = if let Some(file) = &of.config {
        config::load(file)?
    } else {
        let data = database.parent().map(Path::to_owned).unwrap_or_default();
        AgentConfig { data, ..AgentConfig::default() }
    };
    let mut own = config.into_settings();
    if of.config.is_none() {
        // That of `up` has the server's data too.
        own.excluded = vec![of.folder()?];
    }
    scan::compare(&request, &database, &own.with_groups()?)
}
