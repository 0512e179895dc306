//! `holdfast series`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};

use crate::config::{Bytes, Listen, WalMode};
use client::DataArg;
use series_tools::{
    SeriesDeleteArgs, SeriesExportArgs, SeriesImportArgs, SeriesLookArgs, SeriesStatArgs,
};

#[derive(Debug, Subcommand)]
pub(crate) enum SeriesCommand {
    /// Run the series store alone: it accepts metric protocols and answers queries.
    #[command(after_help = "Examples:\n  holdfast series serve --data ./data\n  holdfast series \
serve --data ./data --wal off --http 127.0.0.1:8181\n\nPrints `listening: PROTOCOL ADDRESS` for each \
port and then `ready: URL`. Ports are 8282 (RESP over TCP), 8383 (RESP over UDP), 4242 (OpenTSDB) and \
8181 (queries, Influx lines, remote write) on 127.0.0.1, unless set otherwise here or in \
DIR/series.toml.")]
    Serve(SeriesServeArgs),
    /// Write a commented configuration, DIR/series.toml, with every key at its default.
    #[command(after_help = "Example:\n  holdfast series init --data ./data")]
    Init(DataArg),
    /// Create an empty store.
    #[command(after_help = "Example:\n  holdfast series create --data ./data")]
    Create(DataArg),
    /// Delete samples of a metric, or the whole store with --all. The store must not be open.
    #[command(
        after_help = "Examples:\n  holdfast series delete --data ./data --metric cpu.user --tag \
host=web1\n  holdfast series delete --data ./data --metric cpu.user --from 2026-01-01T00:00:00Z --to \
2026-01-02T00:00:00Z\n  holdfast series delete --data ./data --all"
    )]
    Delete(SeriesDeleteArgs),
    /// Print the number of rows, samples, parts and bytes; the store may be running.
    #[command(
        after_help = "Examples:\n  holdfast series stat --data ./data --json\n  holdfast series \
stat --url http://127.0.0.1:8181"
    )]
    Stat(SeriesStatArgs),
    /// Read every file and report damage. Exit code 1 if there is any. The store must not be open.
    #[command(after_help = "Example:\n  holdfast series verify --data ./data")]
    Verify(SeriesLookArgs),
    /// Print samples and events as RESP, series by series, as `import` and port 8282 accept them.
    #[command(
        after_help = "Example:\n  holdfast series export --data ./data --metric cpu.user | gzip \
> cpu.resp.gz"
    )]
    Export(SeriesExportArgs),
    /// Read samples and events from files or from stdin. Exit code 1 if some were refused.
    #[command(
        after_help = "Examples:\n  zcat cpu.resp.gz | holdfast series import --data ./data\n  \
holdfast series import --data ./data --format influx lines.txt"
    )]
    Import(SeriesImportArgs),
    /// Measure the cost of the log on this machine: points per second, CPU and bytes per point, for
    /// each setting of --wal.
    #[command(after_help = "Example:\n  holdfast series bench --series 1000 --rows 1000 --wal \
always,off --json")]
    Bench(SeriesBenchArgs),
}

#[derive(Debug, Args)]
pub(crate) struct SeriesServeArgs {
    #[command(flatten)]
    pub(crate) data: DataArg,
    /// Configuration file (TOML); default: DIR/series.toml if it exists.
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// When the log is persisted: before each answer, every 100 ms, or never.
    #[arg(long, value_enum)]
    pub(crate) wal: Option<WalMode>,
    /// Most bytes of parts on disk, for example 20GiB; the oldest are deleted first.
    #[arg(long, value_name = "BYTES")]
    pub(crate) size_max: Option<Bytes>,
    /// Age above which samples are deleted, for example 90days.
    #[arg(long, value_name = "TIME", value_parser = client::duration)]
    pub(crate) age_max: Option<Duration>,
    #[command(flatten)]
    pub(crate) ports: SeriesPortArgs,
}

/// Listen addresses of a series store.
#[derive(Debug, Args)]
pub(crate) struct SeriesPortArgs {
    /// RESP over TCP.
    #[arg(long, value_name = "HOST:PORT|off")]
    pub(crate) resp: Option<Listen>,
    /// RESP over UDP; only on a loopback address.
    #[arg(long, value_name = "HOST:PORT|off")]
    pub(crate) udp: Option<Listen>,
    #[arg(long, value_name = "HOST:PORT|off", help = "OpenTSDB: lines of `put`")]
    pub(crate) opentsdb: Option<Listen>,
    /// Queries, Influx lines, remote write.
    #[arg(long, value_name = "HOST:PORT|off")]
    pub(crate) http: Option<Listen>,
}

#[derive(Debug, Args)]
pub(crate) struct SeriesBenchArgs {
    /// Folder for the stores, which are removed afterwards; default: the folder for temporary files.
    #[arg(long, value_name = "DIR")]
    pub(crate) dir: Option<PathBuf>,
    /// Number of row series.
    #[arg(long, default_value_t = 1000, value_parser = client::whole::<1, 1_000_000>)]
    pub(crate) series: u32,
    /// Number of metrics of each row series.
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u16).range(1..=256))]
    pub(crate) metrics: u16,
    /// Number of rows of each row series.
    #[arg(long, default_value_t = 1000, value_parser = client::whole::<1, 1_000_000>)]
    pub(crate) rows: u32,
    /// When the log is persisted.
    #[arg(long, value_enum, value_delimiter = ',', default_value = "always,interval,off")]
    pub(crate) wal: Vec<WalMode>,
    /// Print one JSON object per case.
    #[arg(long)]
    pub(crate) json: bool,
}
