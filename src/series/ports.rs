//! The ports of a series store: metric protocols and queries.

use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::{Context as _, bail};
use axum::extract::Request;
use axum::middleware::map_request;
use ingest::{Guard, HttpOptions, Memory, Protocol, Token};
use rustls::server::ResolvesServerCert;
use series::Store;
use service::Console;
use tokio::net::{TcpListener, UdpSocket};
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::config::{Listen, SeriesConfig};

/// Secrets required by ports on addresses other than loopback, and for deletions by every query
/// port.
#[derive(Default)]
pub(crate) struct Secrets {
    /// Returns certificate and key at each handshake, because they are renewed while ports are
    /// open.
    pub(crate) certificate: Option<Arc<dyn ResolvesServerCert>>,
    /// The token that callers must present.
    pub(crate) token: Option<Token>,
}

pub(crate) struct Ports {
    /// Name and address of each open port.
    pub(crate) open: Vec<(&'static str, SocketAddr)>,
    stop: watch::Sender<bool>,
    tasks: JoinSet<()>,
    http: Option<listener::Server>,
}

/// Prints the addresses on which a store listens.
pub(crate) fn print_ports(console: &Console, open: &[(&'static str, SocketAddr)]) {
    for (name, address) in open {
        console.line(&format!("listening: {name} {address}"));
    }
}

impl Ports {
    /// Returns true if any configured port needs the token.
    pub(crate) fn need_token(config: &SeriesConfig) -> bool {
        Self::need_certificate(config) || matches!(config.http, Some(Listen::At(_)))
    }

    /// Returns true if any configured port is on an address other than loopback.
    pub(crate) fn need_certificate(config: &SeriesConfig) -> bool {
        let far = |port| matches!(port, Some(Listen::At(a)) if !SocketAddr::ip(&a).is_loopback());
        [config.resp, config.opentsdb, config.http].into_iter().any(far)
    }

    /// Opens the configured ports; the others stay closed. Ports on loopback accept every local user
    /// in clear text; all others require TLS and the token. Without a store, no port is opened.
    /// Queries take their memory from `memory`.
    ///
    /// # Errors
    /// Fails if a port cannot be opened; ports that were already open are closed again.
    pub(crate) async fn open(
        store: Option<&Store>,
        config: &SeriesConfig,
        secrets: &Secrets,
        memory: Memory,
    ) -> anyhow::Result<Self> {
        let (stop, _) = watch::channel(false);
        let mut ports = Self { open: Vec::new(), stop, tasks: JoinSet::new(), http: None };
        let Some(store) = store else { return Ok(ports) };
        let lines = [
            ("resp", config.resp, Protocol::Resp),
            ("opentsdb", config.opentsdb, Protocol::OpenTsdb),
        ];
        for (name, port, protocol) in lines {
            let Some(Listen::At(address)) = port else { continue };
            let guard = guard(name, address, config, secrets)?;
            ports.open_lines(store, (name, address), protocol, guard).await?;
        }
        if let Some(Listen::At(address)) = config.udp {
            ports.open_udp(store, address).await?;
        }
        if let Some(Listen::At(address)) = config.http {
            ports.open_http(store, config, address, (secrets, memory)).await?;
        }
        Ok(ports)
    }

    async fn open_lines(
        &mut self,
        store: &Store,
        (name, address): (&'static str, SocketAddr),
        protocol: Protocol,
        guard: Guard,
    ) -> anyhow::Result<()> {
        let listener = TcpListener::bind(address).await;
        let listener = listener.with_context(|| format!("series {name} {address}"))?;
        self.open.push((name, listener.local_addr()?));
        let stopped = self.stop.subscribe();
        self.tasks.spawn(ingest::serve_tcp(listener, protocol, store.clone(), guard, stopped));
        Ok(())
    }

    async fn open_udp(&mut self, store: &Store, address: SocketAddr) -> anyhow::Result<()> {
        let socket = UdpSocket::bind(address).await;
        let socket = socket.with_context(|| format!("series udp {address}"))?;
        self.open.push(("udp", socket.local_addr()?));
        self.tasks.spawn(udp(socket, store.clone(), self.stop.subscribe()));
        Ok(())
    }

    async fn open_http(
        &mut self,
        store: &Store,
        config: &SeriesConfig,
        address: SocketAddr,
        (secrets, memory): (&Secrets, Memory),
    ) -> anyhow::Result<()> {
        let guard = guard("http", address, config, secrets)?;
        let options = HttpOptions {
            token: guard.token.clone(),
            delete_token: secrets.token.clone(),
            cors_origins: config.cors_origins.clone(),
            memory,
        };
        let router = ingest::router(store.clone(), options).layer(map_request(with_sender));
        let mut serve = http_options(address, config);
        serve.resolver = secrets.certificate.clone().filter(|_| guard.tls.is_some());
        let server = listener::serve(serve, router).await;
        let server = server.context("series http")?;
        self.open.push(("http", server.local_addr().unwrap_or(address)));
        self.http = Some(server);
        Ok(())
    }

    /// Stops accepting connections and waits until everything received is persisted.
    pub(crate) async fn close(mut self) {
        self.stop.send_replace(true);
        if let Some(http) = self.http.take() {
            http.shutdown().await;
        }
        while self.tasks.join_next().await.is_some() {}
    }
}

async fn udp(socket: UdpSocket, store: Store, stopped: watch::Receiver<bool>) {
    if let Err(e) = ingest::serve_udp(socket, store, stopped).await {
        tracing::error!("series udp: {e}");
    }
}

/// Returns the options of the query port, in clear text.
fn http_options(address: SocketAddr, config: &SeriesConfig) -> listener::ServeOptions {
    let connections_max = config.connections_max;
    listener::ServeOptions { connections_max, ..listener::ServeOptions::new(address, None) }
}

/// Returns the guard of a port on loopback.
fn open_guard(config: &SeriesConfig) -> Guard {
    Guard { connections_max: config.connections_max, ..Guard::default() }
}

fn guard(
    name: &str,
    address: SocketAddr,
    config: &SeriesConfig,
    secrets: &Secrets,
) -> anyhow::Result<Guard> {
    if address.ip().is_loopback() {
        return Ok(open_guard(config));
    }
    let (Some(certificate), Some(token)) = (&secrets.certificate, &secrets.token) else {
        bail!(
            "series {name} {address}: not a loopback address, so it takes TLS and a token: name \
             tls_cert and tls_key in the configuration"
        );
    };
    let tls = ingest::tls(Arc::clone(certificate));
    let tls = tls.map_err(|e| anyhow::anyhow!("series {name}: certificate: {e}"))?;
    Ok(Guard { tls: Some(tls), token: Some(token.clone()), ..open_guard(config) })
}

/// Attaches the sender's address, by which wrong tokens are counted.
async fn with_sender(mut request: Request) -> Request {
    let source = request.extensions().get::<listener::Source>().copied();
    if let Some(ip) = source.and_then(listener::Source::ip) {
        request.extensions_mut().insert(ingest::SenderAddress(ip));
    }
    request
}
