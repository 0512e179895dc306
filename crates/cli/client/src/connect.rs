//! Which server a command addresses.

use std::path::{Path, PathBuf};

use clap::Args;

use crate::client::Client;
use crate::owner;

/// Data folder of a server that is started by hand.
const DEFAULT_DATA: &str = "./data";
/// Data folder of the installed server's unit.
pub(crate) const UNITS_DATA: &str = "/var/lib/holdfast-server/data";
/// Environment variable with the token for `--url`.
pub(crate) const TOKEN: &str = "HOLDFAST_API_TOKEN";

/// Returns the data folder of a command that needs an existing one: the named one, or else `./data`,
/// or else that of the installed unit.
///
/// # Errors
/// If `./data` is found by default and belongs to another user; see `owner.rs`.
pub fn existing_data(named: Option<&Path>, unit: &str) -> anyhow::Result<PathBuf> {
    if let Some(named) = named {
        owner::mention(named);
        return Ok(named.to_owned());
    }
    let [own, unit] = [DEFAULT_DATA, unit].map(PathBuf::from);
    // A folder that this user may not look into exists.
    if !own.exists() && unit.try_exists().unwrap_or(true) {
        return Ok(unit);
    }
    owner::expect_own(&own)?;
    Ok(own)
}

/// Returns the data folder of a command that may create it: the named one, or else `./data`.
///
/// # Errors
/// As for [`existing_data`].
pub fn own_data(named: Option<&Path>) -> anyhow::Result<PathBuf> {
    let own = Path::new(DEFAULT_DATA);
    match named {
        Some(named) => owner::mention(named),
        None => owner::expect_own(own)?,
    }
    Ok(named.unwrap_or(own).to_owned())
}

/// A data folder.
#[derive(Debug, Args)]
pub struct DataArg {
    /// Data folder. Default: ./data if it exists, else that of the installed server.
    #[arg(long, value_name = "DIR", env = "HOLDFAST_DATA", hide_env_values = true)]
    data: Option<PathBuf>,
}

impl DataArg {
    /// Returns the folder.
    ///
    /// # Errors
    /// As for [`existing_data`].
    pub fn folder(&self) -> anyhow::Result<PathBuf> {
        existing_data(self.data.as_deref(), UNITS_DATA)
    }
}

/// The server that a command addresses.
#[derive(Debug, Args)]
#[command(next_help_heading = "Server")]
pub struct ConnectArgs {
    /// Data folder of a server on this machine. Default: `HOLDFAST_DATA`, ./data if it exists, else that
    /// of the installed server.
    #[arg(long, value_name = "DIR", conflicts_with = "url")]
    data: Option<PathBuf>,
    /// Address of the page and API of a server, `https://HOST:PORT`; default without --data:
    /// `HOLDFAST_URL`. The token is read from `HOLDFAST_API_TOKEN`; `holdfast login` prints one.
    #[arg(long, value_name = "URL")]
    url: Option<String>,
    /// Certificate that signed the server's, with --url: keys/ca.pem of its data folder. Default: the
    /// authorities that this system trusts.
    #[arg(long, value_name = "FILE", env = "HOLDFAST_CA", hide_env_values = true)]
    ca: Option<PathBuf>,
}

impl ConnectArgs {
    /// Returns the address of the server, unless it is named by its data folder.
    pub fn url(&self) -> Option<String> {
        let default = || variable("HOLDFAST_URL").filter(|_| self.data.is_none());
        self.url.clone().or_else(default)
    }

    /// Returns the data folder of a server that is not named by its address.
    ///
    /// # Errors
    /// As for [`existing_data`].
    pub fn data(&self) -> anyhow::Result<PathBuf> {
        let default = || variable("HOLDFAST_DATA").map(PathBuf::from);
        existing_data(self.data.clone().or_else(default).as_deref(), UNITS_DATA)
    }

    /// Returns a client without connecting.
    pub(crate) fn client(&self) -> anyhow::Result<Client> {
        match self.url() {
            Some(url) => Client::remote(&url, self.ca.as_deref(), variable(TOKEN)),
            None => Client::local(&self.data()?.join("holdfast.sock")),
        }
    }
}

/// Returns an environment variable that is set and not empty.
fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}
