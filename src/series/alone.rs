//! `holdfast series serve`, `init` and `create`: the series store without a server.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, bail};
use client::DataArg;
use ingest::CertificateFiles;
use rustls::server::ResolvesServerCert;
use series::{Store, StoreOptions};
use service::Console;
use service::Stop;

use super::{Ports, Secrets, print_ports};
use crate::cli::SeriesServeArgs;
use crate::config::{self, DEFAULT_SERIES, SeriesConfig};
use folder::FolderClock;
use folder::{DataFolder, is_there};

/// Interval between comparisons of the clock.
const TICK_EVERY: Duration = Duration::from_secs(1);

/// Runs until SIGINT or SIGTERM.
pub(super) async fn serve(args: SeriesServeArgs) -> anyhow::Result<()> {
    let mut stop = Stop::listen()?;
    let console = Console::new();
    let folder = DataFolder::new(args.data.folder()?);
    let config = crate::open_files::fit_series(&configuration(&args, &folder)?)?;
    folder.make()?;
    let secrets = secrets(&config, &folder)?;
    let clock = FolderClock::open(&folder, &config.ages());
    let dir = folder.series();
    let options = StoreOptions { clock: clock.clock.clone(), ..config.store_options() };
    // The process before, which was killed or is stopping, may have the store open for a moment more.
    let open = move || series_tools::when_unlocked(|| Store::open(&dir, options.clone()));
    let opened = tokio::select! {
        opened = tokio::task::spawn_blocking(open) => opened?,
        () = stop.wait() => return Ok(()),
    };
    let (store, report) = opened.context("series")?;
    if report.replayed_batches > 0 {
        console.line(&format!(
            "replayed: {} samples of {} batches in {:.3} s",
            report.replayed_samples,
            report.replayed_batches,
            report.elapsed.as_secs_f64()
        ));
    }
    if report.passed_over_batches > 0 {
        console.line(&format!(
            "skipped: {} batches whose write had failed",
            report.passed_over_batches
        ));
    }
    let ports = Ports::open(Some(&store), &config, &secrets, config.query_memory()).await?;
    print_ports(&console, &ports.open);
    let scheme = if secrets.certificate.is_some() { "https" } else { "http" };
    let http = ports.open.iter().find(|(name, _)| *name == "http");
    let url = http.map_or_else(|| "no query port".into(), |(_, a)| format!("{scheme}://{a}/"));
    console.line(&format!("ready: {url}"));
    loop {
        tokio::select! {
            () = stop.wait() => break,
            () = tokio::time::sleep(TICK_EVERY) => drop(clock.tick()),
        }
    }
    console.line("stopping");
    ports.close().await;
    tokio::task::spawn_blocking(move || store.close()).await?.context("series")?;
    clock.persist();
    console.line("stopped");
    Ok(())
}

/// Returns the configuration of the file, overridden by the command line.
fn configuration(args: &SeriesServeArgs, folder: &DataFolder) -> anyhow::Result<SeriesConfig> {
    let own = folder.series_toml();
    let file = args.config.clone().or_else(|| own.exists().then_some(own));
    if file.is_none() && is_there(&folder.registry_db())? {
        bail!(
            "{}: a server's data folder, and its retention is configured in that server's \
             configuration: start the server, or name a file with --config",
            folder.path().display()
        );
    }
    let mut config: SeriesConfig =
        file.as_deref().map(config::load).transpose()?.unwrap_or_default();
    config.wal = args.wal.unwrap_or(config.wal);
    config.size_max = args.size_max.unwrap_or(config.size_max);
    config.age_max = args.age_max.unwrap_or(config.age_max);
    // The ports are all that it serves, so they are not closed by default.
    let config = config.with_ports(&args.ports).with_all_ports();
    config.validate("")?;
    Ok(config)
}

fn secrets(config: &SeriesConfig, folder: &DataFolder) -> anyhow::Result<Secrets> {
    if !Ports::need_token(config) {
        return Ok(Secrets::default());
    }
    let named = Ports::need_certificate(config) && !config.tls_cert.as_os_str().is_empty();
    let certificate =
        if named { Some(certificate_files(&config.tls_cert, &config.tls_key)?) } else { None };
    folder.make_keys()?;
    Ok(Secrets { certificate, token: Some(folder.series_token()?) })
}

/// Opens a certificate and its key. They are reloaded when they change.
pub(crate) fn certificate_files(
    cert: &Path,
    key: &Path,
) -> anyhow::Result<Arc<dyn ResolvesServerCert>> {
    let files = CertificateFiles::open(cert.to_owned(), key.to_owned());
    Ok(Arc::new(files.map_err(|e| anyhow::anyhow!("certificate: {e}"))?))
}

/// Writes the commented configuration.
pub(super) fn init(data: &DataArg) -> anyhow::Result<()> {
    let folder = DataFolder::new(data.folder()?);
    folder.make()?;
    let path = folder.series_toml();
    let file = fs::File::create_new(&path);
    let mut file = file.with_context(|| format!("{}: it is left as it is", path.display()))?;
    std::io::Write::write_all(&mut file, DEFAULT_SERIES.as_bytes())?;
    Console::new().line(&format!("written: {}", path.display()));
    Ok(())
}

/// Creates an empty store.
pub(super) fn create(data: &DataArg) -> anyhow::Result<()> {
    let folder = DataFolder::new(data.folder()?);
    let dir = folder.series();
    if dir.exists() {
        bail!(
            "{}: there is a store already; `holdfast series delete --all` removes it",
            dir.display()
        );
    }
    folder.make()?;
    let (store, _) = Store::open(&dir, StoreOptions::default()).context("series")?;
    store.close().context("series")?;
    Console::new().line(&format!("created: {}", dir.display()));
    Ok(())
}
