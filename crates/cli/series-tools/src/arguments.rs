//! Arguments of the commands on a series store.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use client::DataArg;

#[derive(Debug, Args)]
#[command(group(clap::ArgGroup::new("what").required(true).args(["all", "metric"])))]
pub struct SeriesDeleteArgs {
    #[command(flatten)]
    pub data: DataArg,
    /// Delete the whole store.
    #[arg(long, conflicts_with_all = ["tag", "from", "to"])]
    pub all: bool,
    /// Samples of this metric.
    #[arg(long, value_name = "NAME")]
    pub metric: Option<String>,
    /// Only series with this tag; may be given more than once.
    #[arg(long, value_name = "NAME=VALUE")]
    pub tag: Vec<String>,
    /// Only samples at or after this time (RFC 3339, or nanoseconds since the epoch).
    #[arg(long, value_name = "TIME")]
    pub from: Option<String>,
    /// Only samples before this time.
    #[arg(long, value_name = "TIME")]
    pub to: Option<String>,
}

#[derive(Debug, Args)]
pub struct SeriesStatArgs {
    #[command(flatten)]
    pub data: DataArg,
    /// Query port of a running store.
    #[arg(long, value_name = "URL")]
    pub url: Option<String>,
    /// Token of that port, if it requires one.
    #[arg(long, env = "HOLDFAST_SERIES_TOKEN", hide_env_values = true)]
    pub token: Option<String>,
    /// Certificate authority to trust for an https:// URL: `keys/ca.pem` in a server's data folder,
    /// or the one that signed `tls_cert`.
    #[arg(long, value_name = "FILE", requires = "url")]
    pub ca: Option<PathBuf>,
    /// Print one JSON object.
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub struct SeriesLookArgs {
    #[command(flatten)]
    pub data: DataArg,
    /// Print one JSON object.
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub struct SeriesExportArgs {
    #[command(flatten)]
    pub data: DataArg,
    /// Only series of this metric.
    #[arg(long, value_name = "NAME")]
    pub metric: Option<String>,
    /// Only series with this tag; may be given more than once.
    #[arg(long, value_name = "NAME=VALUE")]
    pub tag: Vec<String>,
    /// Only samples at or after this time (RFC 3339, or nanoseconds since the epoch).
    #[arg(long, value_name = "TIME")]
    pub from: Option<String>,
    /// Only samples before this time.
    #[arg(long, value_name = "TIME")]
    pub to: Option<String>,
}

#[derive(Debug, Args)]
pub struct SeriesImportArgs {
    #[command(flatten)]
    pub data: DataArg,
    /// Format of the lines.
    #[arg(long, value_enum, default_value = "resp")]
    pub format: SeriesFormat,
    /// Files to read; `-` or none: stdin.
    #[arg(value_name = "FILE")]
    pub file: Vec<PathBuf>,
}

/// Format of an import.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum SeriesFormat {
    /// RESP, as `export` prints it.
    Resp,
    /// Influx lines with times in nanoseconds.
    Influx,
    /// Lines of `put`, the telnet protocol.
    Opentsdb,
}
