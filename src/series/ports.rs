//! The ports of a series store: metric protocols and queries.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, bail};
use axum::extract::Request;
use axum::middleware::map_request;
use console::Console;
use ingest::{Guard, HttpOptions, Protocol, Token};
use rustls::server::ResolvesServerCert;
use series::Store;
use tokio::net::{TcpListener, UdpSocket};
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::config::{Listen, SeriesConfig};

/// Interval between attempts to open a port that another program uses.
const TRY_EVERY: Duration = Duration::from_mins(1);

/// Secrets required by ports on addresses other than loopback.
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
    http: Option<api::Server>,
}

/// Prints the addresses on which a store listens.
pub(crate) fn tell_ports(console: &Console, open: &[(&'static str, SocketAddr)]) {
    for (name, address) in open {
        console.line(&format!("listening: {name} {address}"));
    }
}

impl Ports {
    /// Returns true if any configured port is on an address other than loopback.
    pub(crate) fn need_secrets(config: &SeriesConfig) -> bool {
        let far = |port| matches!(port, Some(Listen::At(a)) if !SocketAddr::ip(&a).is_loopback());
        [config.resp, config.opentsdb, config.http].into_iter().any(far)
    }

    /// Opens the configured ports. A port that is not configured is opened on its default address,
    /// which is on loopback. Ports on loopback accept every local user in clear text; all others
    /// require TLS and the token. Without a store, no port is opened. Call this after all other
    /// listeners of the server are open, so that a default port does not take an address that they
    /// need.
    ///
    /// # Errors
    /// Fails if a configured port cannot be opened; ports that were already open are closed again.
    /// A default port that cannot be opened is skipped, logged, and retried every minute.
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
            let guard = guard(name, address, config, secrets)?;
            let opened = ports.open_lines(store, (name, address), protocol, guard).await;
            if !skip_default_port(name, address, named.is_some(), opened)? {
                ports.lines_later(store, (name, address), protocol, open_guard(config));
            }
        }
        if let Some(Listen::At(address)) = all.udp {
            let opened = ports.open_udp(store, address).await;
            if !skip_default_port("udp", address, config.udp.is_some(), opened)? {
                ports.udp_later(store, address);
            }
        }
        if let Some(Listen::At(address)) = all.http {
            let opened = ports.open_http(store, config, address, secrets).await;
            if !skip_default_port("http", address, config.http.is_some(), opened)? {
                ports.http_later(store, config, address);
            }
        }
        Ok(ports)
    }

    // The functions `*_later` retry default ports. These are on loopback and need no secrets.

    fn lines_later(
        &mut self,
        store: &Store,
        (name, address): (&'static str, SocketAddr),
        protocol: Protocol,
        guard: Guard,
    ) {
        let (store, stop) = (store.clone(), self.stop.subscribe());
        self.tasks.spawn(async move {
            let bind = || TcpListener::bind(address);
            if let Some(listener) = retry_open(name, TRY_EVERY, stop.clone(), bind).await {
                ingest::serve_tcp(listener, protocol, store, guard, stop).await;
            }
        });
    }

    fn udp_later(&mut self, store: &Store, address: SocketAddr) {
        let (store, stop) = (store.clone(), self.stop.subscribe());
        self.tasks.spawn(async move {
            let bind = || UdpSocket::bind(address);
            if let Some(socket) = retry_open("udp", TRY_EVERY, stop.clone(), bind).await {
                udp(socket, store, stop).await;
            }
        });
    }

    fn http_later(&mut self, store: &Store, config: &SeriesConfig, address: SocketAddr) {
        let options = HttpOptions { token: None, cors_origins: config.cors_origins.clone() };
        let router = ingest::router(store.clone(), options);
        let mut stop = self.stop.subscribe();
        let options = http_options(address, config);
        self.tasks.spawn(async move {
            let serve = || api::serve(options.clone(), router.clone());
            if let Some(server) = retry_open("http", TRY_EVERY, stop.clone(), serve).await {
                let _ = stop.wait_for(|stop| *stop).await;
                server.shutdown().await;
            }
        });
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
        secrets: &Secrets,
    ) -> anyhow::Result<()> {
        let guard = guard("http", address, config, secrets)?;
        let options =
            HttpOptions { token: guard.token.clone(), cors_origins: config.cors_origins.clone() };
        let router = ingest::router(store.clone(), options).layer(map_request(with_sender));
        let mut serve = http_options(address, config);
        serve.resolver = secrets.certificate.clone().filter(|_| guard.tls.is_some());
        let server = api::serve(serve, router).await;
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

/// Retries `open` at each interval until it succeeds. Returns `None` if stopped first.
async fn retry_open<T, E, F: Future<Output = Result<T, E>>>(
    name: &'static str,
    every: Duration,
    mut stop: watch::Receiver<bool>,
    open: impl Fn() -> F,
) -> Option<T> {
    loop {
        tokio::select! {
            _ = stop.wait_for(|stop| *stop) => return None,
            () = tokio::time::sleep(every) => {}
        }
        if let Ok(opened) = open().await {
            tracing::info!("series {name}: the port is open now");
            is_open(name, true);
            return Some(opened);
        }
    }
}

/// Reports to `/metrics` whether a port is open.
fn is_open(name: &'static str, open: bool) {
    metrics::gauge!("holdfast_series_port_open", "name" => name).set(f64::from(u8::from(open)));
}

/// Returns true if the port is open. For a default port that cannot be opened, logs a warning and
/// returns false; for a configured one (`named`), returns the error.
fn skip_default_port(
    name: &'static str,
    address: SocketAddr,
    named: bool,
    opened: anyhow::Result<()>,
) -> anyhow::Result<bool> {
    is_open(name, opened.is_ok());
    match opened {
        Err(e) if !named => {
            tracing::warn!(
                "series {name}: cannot listen on {address} until it is free: {e:#}; the other ports work; \
                 end the program that uses it, or set series.{name} in server.toml (for `up`: --{name}) to another \
                 HOST:PORT or to off"
            );
            Ok(false)
        }
        other => other.map(|()| true),
    }
}

async fn udp(socket: UdpSocket, store: Store, stopped: watch::Receiver<bool>) {
    if let Err(e) = ingest::serve_udp(socket, store, stopped).await {
        tracing::error!("series udp: {e}");
    }
}

/// Returns the options of the query port, in clear text.
fn http_options(address: SocketAddr, config: &SeriesConfig) -> api::ServeOptions {
    let connections_max = config.connections_max;
    api::ServeOptions { connections_max, ..api::ServeOptions::new(address, None) }
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
    let source = request.extensions().get::<api::Source>().copied();
    if let Some(ip) = source.and_then(api::Source::ip) {
        request.extensions_mut().insert(ingest::SenderAddress(ip));
    }
    request
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    #[tokio::test]
    async fn port_in_use_is_opened_once_it_is_free() {
        let (stop, stopped) = watch::channel(false);
        let short = Duration::from_millis(1);
        let taken = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (address, tries) = (taken.local_addr().unwrap(), AtomicU32::new(0));
        let taken = std::sync::Mutex::new(Some(taken));
        let open = || async {
            let free = tries.fetch_add(1, Ordering::Relaxed) == 3;
            drop(free.then(|| taken.lock().unwrap().take()));
            TcpListener::bind(address).await
        };
        let opened = retry_open("test", short, stopped.clone(), open).await.unwrap();
        assert_eq!(opened.local_addr().unwrap(), address);
        assert_eq!(tries.load(Ordering::Relaxed), 4);
        stop.send_replace(true);
        let bind = || TcpListener::bind(address);
        assert!(retry_open("test", TRY_EVERY, stopped, bind).await.is_none());
    }
}
