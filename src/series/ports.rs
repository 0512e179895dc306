//! The ports of a series store: metric protocols and queries.

use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::{Context as _, bail};
use ingest::{Guard, HttpOptions, Protocol, Token};
use rustls::server::ResolvesServerCert;
use series::Store;
use tokio::net::{TcpListener, UdpSocket};
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::agent::Console;
use crate::config::{Listen, SeriesConfig};

/// What ports on other than loopback addresses need.
#[derive(Default)]
pub(crate) struct Secrets {
    /// What gives certificate and key at each handshake: they are renewed while ports are open.
    pub(crate) certificate: Option<Arc<dyn ResolvesServerCert>>,
    /// What callers must show.
    pub(crate) token: Option<Token>,
}

/// Open ports.
pub(crate) struct Ports {
    /// Name and address of each.
    pub(crate) open: Vec<(&'static str, SocketAddr)>,
    stop: watch::Sender<bool>,
    tasks: JoinSet<()>,
    http: Option<api::Server>,
}

/// Say where a store listens.
pub(crate) fn tell_ports(console: &Console, open: &[(&'static str, SocketAddr)]) {
    for (name, address) in open {
        console.line(&format!("listening: {name} {address}"));
    }
}

impl Ports {
    /// Whether any port of a configuration is on other than a loopback address.
    pub(crate) fn need_secrets(config: &SeriesConfig) -> bool {
        let far = |port| matches!(port, Some(Listen::At(a)) if !SocketAddr::ip(&a).is_loopback());
        [config.resp, config.opentsdb, config.http].into_iter().any(far)
    }

    /// Open what the configuration says, and where it says nothing of a port, the usual one on
    /// loopback. Loopback addresses take everybody of this machine, in clear; all others take TLS and
    /// the token. Without a store there is none. Everything else of a server listens before, so that
    /// a port which nobody named gives way to it.
    ///
    /// # Errors
    /// When a port that is named cannot be had. One that is not is left out, and that is logged.
    pub(crate) async fn open(
        store: Option<&Store>,
        config: &SeriesConfig,
        secrets: &Secrets,
    ) -> anyhow::Result<Self> {
        let (stop, _) = watch::channel(false);
        let mut ports = Self { open: Vec::new(), stop, tasks: JoinSet::new(), http: None };
        let Some(store) = store else { return Ok(ports) };
        let all = config.clone().with_all_ports();
        let lines = [
            ("resp", config.resp, all.resp, Protocol::Resp),
            ("opentsdb", config.opentsdb, all.opentsdb, Protocol::OpenTsdb),
        ];
        for (name, named, port, protocol) in lines {
            let Some(Listen::At(address)) = port else { continue };
            let opened = ports.open_lines(store, (name, address), protocol, secrets).await;
            allow(name, address, named.is_some(), opened)?;
        }
        if let Some(Listen::At(address)) = all.udp {
            let opened = ports.open_udp(store, address).await;
            allow("udp", address, config.udp.is_some(), opened)?;
        }
        if let Some(Listen::At(address)) = all.http {
            let opened = ports.open_http(store, config, address, secrets).await;
            allow("http", address, config.http.is_some(), opened)?;
        }
        Ok(ports)
    }

    async fn open_lines(
        &mut self,
        store: &Store,
        (name, address): (&'static str, SocketAddr),
        protocol: Protocol,
        secrets: &Secrets,
    ) -> anyhow::Result<()> {
        let guard = guard(name, address, secrets)?;
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
        secrets: &Secrets,
    ) -> anyhow::Result<()> {
        let guard = guard("http", address, secrets)?;
        let options =
            HttpOptions { token: guard.token.clone(), cors_origins: config.cors_origins.clone() };
        let router = ingest::router(store.clone(), options);
        let mut serve = api::ServeOptions::new(address, None);
        serve.resolver = secrets.certificate.clone().filter(|_| guard.tls.is_some());
        let server = api::serve(serve, router).await;
        let server = server.context("series http")?;
        self.open.push(("http", server.local_addr().unwrap_or(address)));
        self.http = Some(server);
        Ok(())
    }

    /// Take no more; returns when everything that was brought is persisted.
    pub(crate) async fn close(mut self) {
        self.stop.send_replace(true);
        if let Some(http) = self.http.take() {
            http.shutdown().await;
        }
        while self.tasks.join_next().await.is_some() {}
    }
}

/// A port that nobody named may be in use by another program: the rest goes on without it.
fn allow(
    name: &str,
    address: SocketAddr,
    named: bool,
    opened: anyhow::Result<()>,
) -> anyhow::Result<()> {
    match opened {
        Err(e) if !named => {
            tracing::warn!(
                "series {name}: nothing listens on {address}, the rest goes on: {e:#}; end what has \
                 it, or set series.{name} in server.toml (of `up`: --{name}) to another HOST:PORT or \
                 to off"
            );
            Ok(())
        }
        other => other,
    }
}

async fn udp(socket: UdpSocket, store: Store, stopped: watch::Receiver<bool>) {
    if let Err(e) = ingest::serve_udp(socket, store, stopped).await {
        tracing::error!("series udp: {e}");
    }
}

fn guard(name: &str, address: SocketAddr, secrets: &Secrets) -> anyhow::Result<Guard> {
    if address.ip().is_loopback() {
        return Ok(Guard::default());
    }
    let (Some(certificate), Some(token)) = (&secrets.certificate, &secrets.token) else {
        bail!(
            "series {name} {address}: not a loopback address, so it takes TLS and a token: name \
             tls_cert and tls_key in the configuration"
        );
    };
    let tls = ingest::tls(Arc::clone(certificate));
    let tls = tls.map_err(|e| anyhow::anyhow!("series {name}: certificate: {e}"))?;
    Ok(Guard { tls: Some(tls), token: Some(token.clone()) })
}
