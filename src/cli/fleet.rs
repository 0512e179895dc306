//! Servers and agents: up, agent, enroll, token.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};
use client::DataArg;
use settings::bounds::within;
use settings::limits::{INTERVAL_MAX, INTERVAL_MIN};

use super::{FailureArg, SeriesPortArgs};

fn address(text: &str) -> Result<SocketAddr, String> {
    text.parse().map_err(|_| "not an IP address with a port, such as 127.0.0.1:55000".into())
}

fn scan_interval(text: &str) -> Result<Duration, String> {
    let interval = client::duration(text)?;
    within("--scan-interval", &interval, &INTERVAL_MIN, &INTERVAL_MAX)
        .map_err(|e| e.to_string())?;
    Ok(interval)
}

#[derive(Debug, Args)]
pub(crate) struct UpArgs {
    /// Data folder; created at first start. Default: ./data.
    #[arg(long, value_name = "DIR", env = "HOLDFAST_DATA", hide_env_values = true)]
    pub(crate) data: Option<PathBuf>,
    /// Folder or file to watch; may be given more than once. Default: the usual system
    /// paths, such as /etc, /usr/bin, /root/.ssh and /var/spool/cron.
    #[arg(long, value_name = "PATH")]
    pub(crate) watch: Vec<PathBuf>,
    /// Listen address of page and API.
    #[arg(long, value_name = "IP:PORT", default_value = "127.0.0.1:55000", value_parser = address)]
    pub(crate) api: SocketAddr,
    /// Listen address for agents; port 0 takes any free port.
    #[arg(long, value_name = "IP:PORT", default_value = "127.0.0.1:0", value_parser = address)]
    pub(crate) agents: SocketAddr,
    /// Time between two scans.
    #[arg(long, value_name = "TIME", value_parser = scan_interval)]
    pub(crate) scan_interval: Option<Duration>,
    /// Serve page and API over plain HTTP; only on a loopback address.
    #[arg(long)]
    pub(crate) plain_http: bool,
    /// Root of the system whose packages are reported: var/lib/dpkg/status below this folder.
    #[arg(long, value_name = "DIR", default_value = "/", hide = true)]
    pub(crate) system: PathBuf,
    #[command(flatten)]
    pub(crate) failure: FailureArg,
    #[command(flatten, next_help_heading = "Ports of the series store")]
    pub(crate) series: SeriesPortArgs,
}

#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct AgentArgs {
    #[command(subcommand)]
    pub(crate) command: Option<AgentCommand>,
    /// The configuration (TOML); `holdfast config default agent` prints one.
    #[arg(long, value_name = "FILE", required = true)]
    pub(crate) config: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum AgentCommand {
    /// Print the agent's number, name, server, connection, groups, last answer and end of its
    /// certificate, and what it stores, what is pending and when it last scanned. Exit code 1 unless
    /// the last answer was 200.
    Status(AgentStatusArgs),
    /// Tell the server that this machine's agent leaves the fleet for good: it counts as left, not as
    /// silent, and its history stays. Stop the agent first. If it is started again, it is back.
    #[command(
        after_help = "Example:\n  systemctl disable --now holdfast-agent && holdfast agent leave"
    )]
    Leave(AgentLeaveArgs),
}

#[derive(Debug, Args)]
pub(crate) struct AgentLeaveArgs {
    /// Configuration of the agent. Default: agent.toml in /etc/holdfast if that folder exists, else in
    /// this folder.
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct AgentStatusArgs {
    /// Configuration of the agent. Default: agent.toml in /etc/holdfast if that folder exists, else in
    /// this folder.
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Print one JSON object.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct EnrollArgs {
    /// Configuration of the agent; it is written if there is none. Default: agent.toml in
    /// /etc/holdfast if that folder exists, else in this folder.
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Data folder for a configuration that is written. Default: the unit's for /etc/holdfast, else
    /// `agent` in the folder of the configuration.
    #[arg(long, value_name = "DIR")]
    pub(crate) data: Option<PathBuf>,
    /// End with exit code 0 if this machine's agent is enrolled already.
    #[arg(long)]
    pub(crate) if_needed: bool,
    /// URL of the server's port for agents; default: `server` of the configuration.
    #[arg(long, value_name = "URL")]
    pub(crate) server: Option<String>,
    /// The token that `holdfast token` printed on the server.
    #[arg(long, env = "HOLDFAST_TOKEN", hide_env_values = true)]
    #[arg(required_unless_present = "if_needed")]
    pub(crate) token: Option<String>,
    /// Name to enrol under; default: this machine's host name.
    #[arg(long)]
    pub(crate) name: Option<String>,
    /// Group to join; may be given more than once.
    #[arg(long, value_name = "GROUP")]
    pub(crate) group: Vec<String>,
}

#[derive(Debug, Args)]
pub(crate) struct TokenArgs {
    #[command(flatten)]
    pub(crate) data: DataArg,
    /// Number of agents that may enrol with it.
    #[arg(long, default_value_t = 1, value_parser = client::whole::<1, { u32::MAX }>)]
    pub(crate) uses: u32,
    /// Time until it expires.
    #[arg(long, value_name = "TIME", default_value = "1h", value_parser = client::duration)]
    pub(crate) ttl: Duration,
    /// Remove agents that enrolled with it once they are silent for this long, without an alert: for
    /// machines that a cloud makes and ends. What they reported stays.
    #[arg(long, value_name = "TIME", value_parser = client::duration)]
    pub(crate) ephemeral: Option<Duration>,
    /// Group that these agents join; may be given more than once.
    #[arg(long, value_name = "GROUP")]
    pub(crate) group: Vec<String>,
    /// Print one JSON object.
    #[arg(long)]
    pub(crate) json: bool,
}
