//! Listening: HTTPS, plain HTTP on loopback only, and a unix socket for local callers.
//!
//! Every request carries its [`Source`]. Limits: number of connections, in total and per network
//! (above it the longest idle one is closed); time for the TLS handshake, for the head of a
//! request, and without any request. A connection is closed gracefully (HTTP/2 GOAWAY), and
//! stopping lets requests in flight finish, both within a bounded time.

mod connections;
mod idle;
mod peer;
mod tls;
mod unix;

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use env::listen::AcceptFailures;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use rustls::server::ResolvesServerCert;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;
use tower::ServiceExt as _;

use connections::{ConnectionPermit, ConnectionPermits};
use idle::{Quiet, TrackedBody, Watched};

pub use peer::{Owner, Source};
pub use tls::TlsPem;
pub use unix::{UnixOptions, serve_unix};

/// Connections at once, by default.
const CONNECTIONS_MAX: usize = 1_024;
/// Time limit of a TLS handshake.
const HANDSHAKE_TIME_MAX: Duration = Duration::from_secs(10);
/// Time limit for the head of a request, including the wait on an idle connection.
const HEAD_TIME_MAX: Duration = Duration::from_mins(1);
/// Time that requests in flight have to finish when the server stops.
const STOP_TIME_MAX: Duration = Duration::from_secs(10);
/// Time limit without progress of a request in flight; longer than any operation takes.
const STALLED_TIME_MAX: Duration = Duration::from_mins(15);
/// Time limit for closing a connection whose permit was given to another one.
const MAKE_ROOM_TIME_MAX: Duration = Duration::from_secs(1);
/// Time limit for closing an idle connection after its GOAWAY.
const GOODBYE_TIME_MAX: Duration = Duration::from_secs(5);
/// Pause after a failed accept, which is mostly caused by a lack of file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Reason why the API cannot listen.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServeError {
    /// Plain HTTP would expose passwords on the network.
    #[error("{0}: plain HTTP is served on loopback only: configure TLS, or listen on 127.0.0.1")]
    PlainHttp(SocketAddr),
    /// The address cannot be used.
    #[error("{address}: cannot listen: {source}: {}", env::listen::bind_remedy(source))]
    Bind {
        address: String,
        #[source]
        source: io::Error,
    },
    /// The certificate or its key is not valid.
    #[error("certificate: {0}")]
    Tls(String),
}

/// Options of a listener.
#[derive(Clone)]
pub struct ServeOptions {
    /// Address; port 0 selects a free one.
    pub addr: SocketAddr,
    /// Certificate and key; without them plain HTTP, on loopback only.
    pub tls: Option<TlsPem>,
    /// Resolver that returns certificate and key at each handshake; replaces `tls`.
    pub resolver: Option<Arc<dyn ResolvesServerCert>>,
    /// Maximum number of connections, and separately of those from this machine.
    pub connections_max: usize,
    /// Maximum number from one network (an IPv4 address, 64 bits of an IPv6 one) other than this
    /// machine; 0: no limit apart from `connections_max`.
    pub network_connections_max: usize,
    /// Time after which a connection without a request is closed.
    pub idle_time: Duration,
}

impl ServeOptions {
    /// Returns the options with the default limits.
    pub fn new(addr: SocketAddr, tls: Option<TlsPem>) -> Self {
        Self {
            addr,
            tls,
            resolver: None,
            connections_max: CONNECTIONS_MAX,
            network_connections_max: 0,
            idle_time: HEAD_TIME_MAX,
        }
    }
}

/// A running listener. Stops on `shutdown`, or when dropped (then without waiting).
pub struct Server {
    local: Local,
    stop: watch::Sender<bool>,
    task: JoinHandle<()>,
}

enum Local {
    Tcp(SocketAddr),
    Unix(PathBuf),
}

impl Server {
    /// Returns the address it listens on; `None` for a unix socket.
    pub fn local_addr(&self) -> Option<SocketAddr> {
        match &self.local {
            Local::Tcp(address) => Some(*address),
            Local::Unix(_) => None,
        }
    }

    /// Stops accepting connections, waits a bounded time for requests in flight, and returns.
    pub async fn shutdown(self) {
        // An error means that the listener has already stopped.
        let _ = self.stop.send(true);
        if let Err(cause) = self.task.await {
            tracing::error!("api: the listener failed: {cause}");
        }
        if let Local::Unix(path) = &self.local {
            // If the socket's file cannot be removed, the next start replaces it.
            let _ = std::fs::remove_file(path);
        }
    }
}

/// Listens with a router.
///
/// # Errors
/// Fails if the address cannot be used, the certificate is not valid, or plain HTTP is requested on
/// an address other than loopback.
pub async fn serve(options: ServeOptions, router: Router) -> Result<Server, ServeError> {
    let plain = options.tls.is_none() && options.resolver.is_none();
    if plain && !options.addr.ip().is_loopback() {
        return Err(ServeError::PlainHttp(options.addr));
    }
    let acceptor = match (options.resolver, &options.tls) {
        (Some(resolver), _) => Some(tls::resolved(resolver)?),
        (None, pem) => pem.as_ref().map(tls::acceptor).transpose()?,
    };
    let bind = |source| ServeError::Bind { address: options.addr.to_string(), source };
    let listener = TcpListener::bind(options.addr).await.map_err(bind)?;
    let local = listener.local_addr().map_err(bind)?;
    let listener = Listener::Tcp(listener, acceptor);
    let each_max = match options.network_connections_max {
        0 => options.connections_max,
        each_max => each_max,
    };
    let most = (options.connections_max, each_max);
    Ok(start(Local::Tcp(local), listener, router, most, options.idle_time))
}

/// A listening socket.
enum Listener {
    Tcp(TcpListener, Option<TlsAcceptor>),
    Unix(UnixListener, Vec<u32>),
}

/// An accepted connection.
enum Accepted {
    Tcp(TcpStream, SocketAddr, Option<TlsAcceptor>),
    Unix(UnixStream, u32),
}

impl Accepted {
    /// Returns the owner charged for the connection; callers on this machine may use all permits.
    fn owner(&self) -> Owner {
        match self {
            Self::Tcp(_, address, _) => Owner::from_network(address.ip()),
            Self::Unix(_, uid) => Owner::from_uid(*uid),
        }
    }
}

impl Listener {
    async fn accept(&self) -> io::Result<Accepted> {
        match self {
            Self::Tcp(listener, acceptor) => {
                let (stream, address) = listener.accept().await?;
                Ok(Accepted::Tcp(stream, address, acceptor.clone()))
            }
            Self::Unix(listener, admitted) => loop {
                let (stream, _) = listener.accept().await?;
                let uid = stream.peer_cred()?.uid();
                if admitted.contains(&uid) {
                    return Ok(Accepted::Unix(stream, uid));
                }
                tracing::warn!(uid, "api: unix socket: refused: the user id is not admitted");
            },
        }
    }
}

fn start(
    local: Local,
    listener: Listener,
    router: Router,
    most: (usize, usize),
    idle: Duration,
) -> Server {
    let (stop, stopping) = watch::channel(false);
    let quiet = Quiet { idle, stalled: STALLED_TIME_MAX, stopping: STOP_TIME_MAX };
    let task = tokio::spawn(listen(listener, router, most, quiet, stopping));
    Server { local, stop, task }
}

/// Accepts connections until the listener is stopped or the [`Server`] is dropped. Their number is
/// limited in total and per network.
async fn listen(
    listener: Listener,
    router: Router,
    (connections_max, each_max): (usize, usize),
    quiet: Quiet,
    mut stopping: watch::Receiver<bool>,
) {
    let mut permits = ConnectionPermits::new(connections_max, each_max);
    let (open, mut all_closed) = mpsc::channel::<()>(1);
    let mut failures = AcceptFailures::new();
    loop {
        let taken = tokio::select! {
            taken = listener.accept() => taken,
            _ = stopping.changed() => break,
        };
        match taken {
            Ok(accepted) => {
                let Some(permit) = permits.acquire(accepted.owner()) else { continue };
                let (router, stopping, open) = (router.clone(), stopping.clone(), open.clone());
                tokio::spawn(async move {
                    attend(accepted, router, stopping, (quiet, &permit)).await;
                    drop((permit, open));
                });
            }
            Err(cause) => {
                if let Some(line) = failures.line(&cause) {
                    tracing::warn!("api: {line}");
                }
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
    drop((listener, open));
    if tokio::time::timeout(quiet.stopping, all_closed.recv()).await.is_err() {
        tracing::warn!("api: stopped with requests still in flight");
    }
}

async fn attend(
    accepted: Accepted,
    router: Router,
    stopping: watch::Receiver<bool>,
    life: (Quiet, &ConnectionPermit),
) {
    match accepted {
        Accepted::Unix(stream, uid) => {
            talk(stream, Source::Unix { uid }, router, stopping, life).await;
        }
        Accepted::Tcp(stream, address, acceptor) => {
            // Answers are small; waiting to fill a packet would only delay them.
            let _ = stream.set_nodelay(true);
            let source = Source::Tcp(address);
            let Some(acceptor) = acceptor else {
                return talk(stream, source, router, stopping, life).await;
            };
            let accepted =
                tokio::time::timeout(HANDSHAKE_TIME_MAX, tls::handshake(&acceptor, stream));
            let accepted = tokio::select! {
                accepted = accepted => accepted,
                () = life.1.is_gone() => return,
            };
            match accepted {
                Ok(Ok(stream)) => talk(stream, source, router, stopping, life).await,
                Ok(Err(cause)) => tracing::debug!("api: {address}: TLS: {cause}"),
                Err(_) => tracing::debug!("api: {address}: TLS: the handshake took too long"),
            }
        }
    }
}

async fn talk<S>(
    stream: S,
    source: Source,
    router: Router,
    mut stopping: watch::Receiver<bool>,
    (quiet, permit): (Quiet, &ConnectionPermit),
) where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let pulse = Arc::clone(&permit.pulse);
    let seen = Arc::clone(&pulse);
    let service = service_fn(move |request: hyper::Request<hyper::body::Incoming>| {
        let under_way = seen.begin_request();
        let mut request: Request = request.map(Body::new);
        request.extensions_mut().insert(source);
        let answer = router.clone().oneshot(request);
        async {
            let answer = answer.await?;
            Ok::<_, Infallible>(answer.map(|body| TrackedBody { body, request: under_way }))
        }
    });
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder.http1().timer(TokioTimer::new()).header_read_timeout(HEAD_TIME_MAX);
    builder.http2().timer(TokioTimer::new()).keep_alive_interval(HEAD_TIME_MAX);
    let stream = Watched { stream, pulse: Arc::clone(&pulse) };
    let mut connection = pin!(builder.serve_connection(TokioIo::new(stream), service));
    let (time, then) = tokio::select! {
        ended = connection.as_mut() => return log_failed_connection(ended.map_err(|cause| cause.to_string())),
        () = stops(&mut stopping, Duration::ZERO) => (quiet.stopping, Duration::ZERO),
        () = permit.is_gone() => (quiet.idle.min(MAKE_ROOM_TIME_MAX), Duration::ZERO),
        () = pulse.stops(quiet) => {
            tracing::debug!("api: nothing came on a connection");
            // A request in flight has stalled; one that arrives while the GOAWAY is sent gets its
            // full time.
            let then = if pulse.is_busy() { Duration::ZERO } else { quiet.stalled };
            (quiet.idle.min(GOODBYE_TIME_MAX), then)
        }
    };
    // Requests that arrived before the GOAWAY are still answered.
    connection.as_mut().graceful_shutdown();
    let last = async {
        tokio::time::sleep(time).await;
        if pulse.is_busy() {
            tokio::time::sleep(then).await;
        }
    };
    let ended = tokio::select! {
        ended = connection => Some(ended),
        () = last => None,
        () = stops(&mut stopping, quiet.stopping) => None,
    };
    if let Some(ended) = ended {
        log_failed_connection(ended.map_err(|cause| cause.to_string()));
    }
}

/// Waits for the stop signal of the listener, and then for `after`.
async fn stops(stopping: &mut watch::Receiver<bool>, after: Duration) {
    // An error means that the sender is gone, which also stops the listener.
    let _ = stopping.wait_for(|stop| *stop).await;
    tokio::time::sleep(after).await;
}

fn log_failed_connection(ended: Result<(), String>) {
    if let Err(cause) = ended {
        tracing::debug!("api: a connection ended badly: {cause}");
    }
}

#[cfg(test)]
mod tests {
    use std::pin::Pin;
    use std::task::{Context, Poll};

    use bytes::Bytes;
    use idle::{ConnectionActivity, InFlight};
    use tokio::io::{AsyncWriteExt as _, DuplexStream, ReadBuf};

    use super::*;

    /// The type of the HTTP/2 frame that closes a connection.
    const GOAWAY: u8 = 7;

    /// A stream that reports a request in flight until the first write. When the GOAWAY is written,
    /// it reports another request in flight and stops the server.
    struct ReportedStream {
        stream: DuplexStream,
        pulse: Arc<ConnectionActivity>,
        stop: watch::Sender<bool>,
        request: Option<InFlight>,
    }

    impl AsyncRead for ReportedStream {
        fn poll_read(
            mut self: Pin<&mut Self>,
            context: &mut Context<'_>,
            into: &mut ReadBuf<'_>,
        ) -> Poll<io::Result<()>> {
            Pin::new(&mut self.stream).poll_read(context, into)
        }
    }

    impl AsyncWrite for ReportedStream {
        fn poll_write(
            mut self: Pin<&mut Self>,
            context: &mut Context<'_>,
            bytes: &[u8],
        ) -> Poll<io::Result<usize>> {
            self.request = None;
            if bytes.get(3) == Some(&GOAWAY) {
                self.request = Some(self.pulse.begin_request());
                self.stop.send_replace(true);
            }
            Pin::new(&mut self.stream).poll_write(context, bytes)
        }

        fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
            Pin::new(&mut self.stream).poll_flush(context)
        }

        fn poll_shutdown(
            mut self: Pin<&mut Self>,
            context: &mut Context<'_>,
        ) -> Poll<io::Result<()>> {
            Pin::new(&mut self.stream).poll_shutdown(context)
        }
    }

    #[tokio::test]
    async fn request_that_crossed_the_goaway_ends_when_the_server_stops() {
        let (mut client, stream) = tokio::io::duplex(64 * 1024);
        let (stop, stopping) = watch::channel(false);
        let permit =
            ConnectionPermits::new(1, 1).acquire(Owner::from_network([192, 0, 2, 1].into()));
        let permit = permit.expect("no other connection is open");
        let short = Duration::from_millis(1);
        let quiet = Quiet { idle: short, stalled: Duration::from_hours(1), stopping: short };
        let pulse = Arc::clone(&permit.pulse);
        let request = Some(pulse.begin_request());
        let stream = ReportedStream { stream, pulse, stop, request };
        let stopped = stopping.clone();
        let no_settings = [0, 0, 0, 4, 0, 0, 0, 0, 0];
        client.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await.expect("room for it");
        client.write_all(&no_settings).await.expect("room for it");
        let talk = talk(stream, Source::Unix { uid: 0 }, Router::new(), stopping, (quiet, &permit));
        let ended = tokio::time::timeout(Duration::from_mins(10), talk).await;
        assert!(ended.is_ok(), "it goes on after the server");
        assert!(*stopped.borrow(), "a goodbye was said");
    }

    /// The bytes of an answer; the channel closes when they are dropped.
    struct CountedBytes {
        bytes: Vec<u8>,
        _held: mpsc::Sender<()>,
    }

    impl AsRef<[u8]> for CountedBytes {
        fn as_ref(&self) -> &[u8] {
            &self.bytes
        }
    }

    #[tokio::test]
    async fn connection_whose_client_takes_no_answer_is_closed() {
        let (held, mut dropped) = mpsc::channel(1);
        // More than the buffers of both sockets hold.
        let body = Bytes::from_owner(CountedBytes { bytes: vec![b'x'; 64 << 20], _held: held });
        let body = Arc::new(parking_lot::Mutex::new(Some(body)));
        let answer = async move || body.lock().take().unwrap_or_default();
        let router = Router::new().route("/", axum::routing::get(answer));
        let options = ServeOptions::new(([127, 0, 0, 1], 0).into(), None);
        let options = ServeOptions { idle_time: Duration::from_millis(50), ..options };
        let server = serve(options, router).await.expect("a free port");
        let address = server.local_addr().expect("an address");
        let mut client = TcpStream::connect(address).await.expect("a connection");
        client.write_all(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n").await.expect("room for it");
        let ended = tokio::time::timeout(Duration::from_mins(10), dropped.recv()).await;
        assert_eq!(ended, Ok(None), "the answer is still in memory");
        server.shutdown().await;
    }
}
