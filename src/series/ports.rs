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

impl Ports {
    /// Whether any port of a configuration is on other than a loopback address.
    pub(crate) fn need_secrets(config: &SeriesConfig) -> bool {
        let far = |port| matches!(port, Some(Listen::At(a)) if !SocketAddr::ip(&a).is_loopback());
        [config.resp, config.opentsdb, config.http].into_iter().any(far)
    }

    /// Open what the configuration says. Loopback addresses take everybody of this machine, in
    /// clear; all others take TLS and the token. Without a store there is none.
    pub(crate) async fn open(
        store: Option<&Store>,
        config: &SeriesConfig,
        secrets: &Secrets,
    ) -> anyhow::Result<Self> {
        let (stop, stopped) = watch::channel(false);
        let mut ports = Self { open: Vec::new(), stop, tasks: JoinSet::new(), http: None };
        let Some(store) = store else { return Ok(ports) };
        let lines = [
            ("resp", config.resp, Protocol::Resp),
            ("opentsdb", config.opentsdb, Protocol::OpenTsdb),
        ];
        for (name, port, protocol) in lines {
            let Some(Listen::At(address)) = port else { continue };
            let guard = guard(name, address, secrets)?;
            let listener = TcpListener::bind(address).await;
            let listener = listener.with_context(|| format!("series {name} {address}"))?;
            ports.open.push((name, listener.local_addr()?));
            let (store, stopped) = (store.clone(), stopped.clone());
            ports.tasks.spawn(ingest::serve_tcp(listener, protocol, store, guard, stopped));
        }
        if let Some(Listen::At(address)) = config.udp {
            let socket = UdpSocket::bind(address).await;
            let socket = socket.with_context(|| format!("series udp {address}"))?;
            ports.open.push(("udp", socket.local_addr()?));
            let store = store.clone();
            ports.tasks.spawn(udp(socket, store, stopped));
        }
        if let Some(Listen::At(address)) = config.http {
            ports.open_http(store, config, address, secrets).await?;
        }
        Ok(ports)
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
