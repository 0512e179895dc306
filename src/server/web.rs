//! The API of a server: its options, its router and its listener.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anyhow::{Context as _, bail};
use axum::middleware::from_fn;
use commit::Commit;
use registry::Registry;
use sigma::RuleFolder;
use state::StateStore;

use crate::config::{ApiConfig, ServerConfig, ServerFile, names_of};
use crate::series::certificate_files;
use folder::FolderClock;

/// Returns access to the configuration file for the API; `None` for a server without a file.
fn config_file(config: &ServerConfig) -> anyhow::Result<Option<Arc<dyn api::ConfigFile>>> {
    let Some(path) = &config.file else { return Ok(None) };
    Ok(Some(Arc::new(ServerFile::new(path)?)))
}

pub(super) fn api_router(
    config: &ServerConfig,
    (registry, rules): (&Registry, Arc<RuleFolder>),
    (state, commit, series): (&Arc<StateStore>, &Arc<Commit>, Option<&series::Store>),
    query_memory: ingest::Memory,
    clock: &Arc<FolderClock>,
    ready: &Arc<AtomicBool>,
) -> anyhow::Result<axum::Router> {
    let options = api::ApiOptions {
        page: Some(page::router()),
        hostname: host::system::hostname(),
        folder: std::path::absolute(&config.data)?.display().to_string(),
        requests_per_minute_max: config.api.max_request_per_minute,
        requests_per_minute_all_max: config.api.max_request_per_minute_all,
        request_timeout_ms: config.api.request_timeout.as_millis() as u64,
        cors_origins: config.api.cors_origins.clone(),
        trusted_proxies: config.api.trusted_proxies.clone(),
        log: crate::logging::ring(),
        config: config_file(config)?,
        rules: Some(rules),
        series: series.cloned(),
        query_memory,
        ready: ready.clone(),
        server_clock: Some(clock.clone()),
        ..api::ApiOptions::new(clock.clock.clone())
    };
    api::router(options, registry.clone(), state.clone(), commit.clone()).context("api")
}

pub(super) async fn serve_api(
    config: &ServerConfig,
    registry: &Registry,
    router: axum::Router,
) -> anyhow::Result<listener::Server> {
    if config.api.plain_http && !config.api.listen.ip().is_loopback() {
        bail!("api: plain HTTP is only served on a loopback address, not on {}", config.api.listen);
    }
    let mut options = listener::ServeOptions::new(config.api.listen, None);
    config.api.set_connection_limits(&mut options);
    if !config.api.plain_http {
        let ApiConfig { listen, names, tls_cert, tls_key, .. } = &config.api;
        options.resolver = Some(if tls_cert.as_os_str().is_empty() {
            Arc::new(registry.server_certificate(&names_of(*listen, names))?)
        } else {
            certificate_files(tls_cert, tls_key).context("api")?
        });
    }
    let router = router.layer(from_fn(gzip::compress_small));
    listener::serve(options, router).await.context("api")
}

/// Returns a listener's address as a browser can open it: this machine's name in place of `0.0.0.0`
/// and `[::]`.
pub(crate) fn shown_address(listen: SocketAddr) -> String {
    if listen.ip().is_unspecified() {
        format!("{}:{}", host::system::hostname(), listen.port())
    } else {
        listen.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unspecified_address_is_shown_as_the_host_name() {
        let shown = |text: &str| shown_address(text.parse().unwrap());
        let name = format!("{}:55000", host::system::hostname());
        assert_eq!(shown("0.0.0.0:55000"), name);
        assert_eq!(shown("[::]:55000"), name);
        assert_eq!(shown("127.0.0.1:55000"), "127.0.0.1:55000");
        assert_eq!(shown("[::1]:55000"), "[::1]:55000");
    }
}
