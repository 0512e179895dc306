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

/// Returns the default data folder of commands on what exists: `./data`, or else that of the
/// installed unit.
pub fn existing_data(unit: &str) -> PathBuf {
    let [own, unit] = [DEFAULT_DATA, unit].map(PathBuf::from);
    if !own.exists() && unit.exists() { unit } else { own }
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
    #[command(flatten)]
    pub data: DataArg,
    /// Address of the server's page and API, `https://HOST:PORT`, instead of a data folder. The token is read from `HOLDFAST_API_TOKEN`; `holdfast login` prints one.
    #[arg(long, value_name = "URL", env = "HOLDFAST_URL", hide_env_values = true)]
    pub url: Option<String>,
    /// Certificate that signed the server's, with --url: keys/ca.pem of its data folder. Default: the
    /// authorities that this system trusts.
    #[arg(long, value_name = "FILE", env = "HOLDFAST_CA", hide_env_values = true)]
    pub ca: Option<PathBuf>,
}

impl ConnectArgs {
    /// Returns a client without connecting.
    pub(crate) fn client(&self) -> anyhow::Result<Client> {
        match &self.url {
            Some(url) => {
                let token = std::env::var(TOKEN).ok().filter(|token| !token.is_empty());
                Client::remote(url, self.ca.as_deref(), token)
            }
            None => Client::local(&self.data.data.join("holdfast.sock")),
        }
    }
}
