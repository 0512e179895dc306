//! Which server a command addresses.

use std::path::PathBuf;

use clap::Args;

use crate::client::Client;

/// Data folder of a server that is started by hand.
pub const DEFAULT_DATA: &str = "./data";
/// Data folder of the installed server's unit.
const UNITS_DATA: &str = "/var/lib/holdfast-server/data";
/// Environment variable with the token for `--url`.
pub(crate) const TOKEN: &str = "HOLDFAST_API_TOKEN";

/// Returns the default data folder of commands that need an existing one: `./data`, or else that of
/// the installed unit.
pub fn existing_data(unit: &str) -> PathBuf {
    let [own, unit] = [DEFAULT_DATA, unit].map(PathBuf::from);
    // A folder that this user may not look into exists.
    let exists = unit.try_exists().unwrap_or(true);
    if !own.exists() && exists { unit } else { own }
}

/// A data folder.
#[derive(Debug, Args)]
pub struct DataArg {
    /// Data folder. Default: ./data if it exists, else that of the installed server.
    #[arg(long, value_name = "DIR", env = "HOLDFAST_DATA", hide_env_values = true)]
    #[arg(default_value_os_t = existing_data(UNITS_DATA), hide_default_value = true)]
    pub data: PathBuf,
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
    pub fn data(&self) -> PathBuf {
        let default = || variable("HOLDFAST_DATA").map(PathBuf::from);
        self.data.clone().or_else(default).unwrap_or_else(|| existing_data(UNITS_DATA))
    }

    /// Returns a client without connecting.
    pub(crate) fn client(&self) -> anyhow::Result<Client> {
        match self.url() {
            Some(url) => Client::remote(&url, self.ca.as_deref(), variable(TOKEN)),
            None => Client::local(&self.data().join("holdfast.sock")),
        }
    }
}

/// Returns an environment variable that is set and not empty.
fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}
