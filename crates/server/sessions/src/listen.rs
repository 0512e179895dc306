//! Accepts connections and serves HTTP/1.1 on them.

use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::Poll;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use env::listen::AcceptFailures;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use rustls::ServerConfig;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream, UnixStream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use tower::ServiceExt as _;
use tracing::{debug, warn};

use crate::app::App;
use crate::error::SessionsError;
use crate::header::{AnswerTimeouts, Header, Watched};
use crate::identity::{Origin, Peer};
use crate::meter::add;
use crate::options::{HEADERS_PARSED_MAX, LINGER_BYTES_MAX, Timeouts, refused_max};
use crate::unix::Socket;

/// Answer to a request in plain HTTP.
const PLAIN_HTTP: &[u8] = b"HTTP/1.1 400 Bad Request\r\n\
    Content-Type: text/plain; charset=utf-8\r\nConnection: close\r\n\r\n\
    this port speaks HTTPS to enrolled agents: use an address that begins with https://\n";

/// Connections that the kernel queues until they are accepted.
const BACKLOG: u32 = 1024;
/// Read buffer of a connection, bytes; a header that does not fit is answered 431.
const BUFFER_BYTES: usize = 64 * 1024;
/// Time that a rejected sender may still send.
const LINGER: Duration = Duration::from_secs(1);
/// Pause after an accept that failed, for example because no file descriptors are left.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Binds the address for TLS.
pub(crate) fn bind(address: SocketAddr) -> Result<TcpListener, SessionsError> {
    let failed = |cause| SessionsError::Bind { address, cause };
    let socket = match address {
        SocketAddr::V4(_) => tokio::net::TcpSocket::new_v4(),
        SocketAddr::V6(_) => tokio::net::TcpSocket::new_v6(),
    }
    .map_err(failed)?;
    socket.set_reuseaddr(true).map_err(failed)?;
    socket.bind(address).map_err(failed)?;
    socket.listen(BACKLOG).map_err(failed)
}

/// Counts one connection over TLS until it is dropped.
struct ConnectionCount {
    app: Arc<App>,
    /// Number of open connections when this one was accepted, itself included.
    open: usize,
}

impl ConnectionCount {
    fn new(app: &Arc<App>) -> Self {
        let open = app.connections.fetch_add(1, Ordering::AcqRel) + 1;
        Self { app: Arc::clone(app), open }
    }
}

impl Drop for ConnectionCount {
    fn drop(&mut self) {
        self.app.connections.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Accepts agents until stopped, then waits for their connections to end.
pub(crate) async fn tls(
    app: Arc<App>,
    listener: TcpListener,
    config: Arc<ServerConfig>,
    routes: Router,
    mut stop: watch::Receiver<bool>,
) {
    let acceptor = TlsAcceptor::from(config);
    let mut tasks = JoinSet::new();
    let mut failures = AcceptFailures::new();
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            Some(_) = tasks.join_next() => continue,
            _ = stop.changed() => break,
        };
        let Some((stream, address)) = accepted_connection(accepted, &mut failures).await else {
            continue;
        };
        let counted = ConnectionCount::new(&app);
        let max = app.options.limits.connections_max;
        if counted.open > max + refused_max(max) {
            debug!(peer = %address, "connection closed: too many connections");
            add(&app.meter.shed, 1);
            continue;
        }
        let (acceptor, routes, stop) = (acceptor.clone(), routes.clone(), stop.clone());
        let accepted = AcceptedConnection { stream, address, turned_away: counted.open > max };
        tasks.spawn(async move {
            serve_agent(&counted.app, acceptor, accepted, routes, stop).await;
        });
    }
    drop(listener);
    finish(tasks, app.options.timeouts.shutdown).await;
}

/// A connection before its handshake.
struct AcceptedConnection {
    stream: TcpStream,
    address: SocketAddr,
    /// Too many connections are open: every request gets 503 with Retry-After.
    turned_away: bool,
}

async fn serve_agent(
    app: &Arc<App>,
    acceptor: TlsAcceptor,
    accepted: AcceptedConnection,
    routes: Router,
    stop: watch::Receiver<bool>,
) {
    let AcceptedConnection { stream, address, turned_away } = accepted;
    let _ = stream.set_nodelay(true);
    let handshake = tokio::time::timeout(app.options.timeouts.handshake, accept(&acceptor, stream));
    let stream = match handshake.await {
        Ok(Ok(stream)) => stream,
        failed => {
            add(&app.meter.handshakes_failed, 1);
            let cause = failed.map_or_else(
                |_| "timed out".into(),
                |r| r.err().map_or_else(String::new, |e| e.to_string()),
            );
            debug!(peer = %address, "tls handshake: {cause}");
            return;
        }
    };
    let certificate = stream
        .get_ref()
        .1
        .peer_certificates()
        .and_then(|chain| chain.first())
        .map(|leaf| Arc::from(leaf.as_ref()));
    let number = app.connections_seen.fetch_add(1, Ordering::AcqRel) + 1;
    let peer = Peer { origin: Origin::Tls { address, certificate, number }, turned_away };
    let mut stream = serve(app, stream, peer, routes, stop).await;
    if shut_down(&mut stream).await {
        // The rest of the request is drained without decrypting it.
        linger(stream.into_inner().0).await;
    }
}

/// Performs the handshake. A request in plain HTTP gets an answer in words.
async fn accept(tls: &TlsAcceptor, mut stream: TcpStream) -> io::Result<TlsStream<TcpStream>> {
    let mut first = [0];
    // A handshake begins with the byte 22, a request with the first letter of its method.
    let read = stream.peek(&mut first).await?;
    if read == 0 || !first.iter().all(u8::is_ascii_uppercase) {
        return tls.accept(stream).await;
    }
    // If the request were left unread, closing the connection could discard the answer.
    let _ = stream.read(&mut [0; 4096]).await?;
    stream.write_all(PLAIN_HTTP).await?;
    stream.shutdown().await?;
    Err(io::Error::other("a request in plain HTTP"))
}

/// Accepts local callers until stopped, then waits for their connections to end.
pub(crate) async fn local(
    app: Arc<App>,
    socket: Socket,
    routes: Router,
    mut stop: watch::Receiver<bool>,
) {
    let mut tasks = JoinSet::new();
    let mut failures = AcceptFailures::new();
    loop {
        let accepted = tokio::select! {
            accepted = socket.listener.accept() => accepted,
            Some(_) = tasks.join_next() => continue,
            _ = stop.changed() => break,
        };
        let Some((stream, _)) = accepted_connection(accepted, &mut failures).await else {
            continue;
        };
        let max = app.options.limits.local_connections_max;
        if tasks.len() >= max + refused_max(max) {
            add(&app.meter.shed, 1);
            continue;
        }
        let turned_away = tasks.len() >= max;
        let Some(peer) = local_peer(&app, &stream, turned_away) else { continue };
        let (app, routes, stop) = (Arc::clone(&app), routes.clone(), stop.clone());
        tasks.spawn(async move {
            let mut stream = serve(&app, stream, peer, routes, stop).await;
            if shut_down(&mut stream).await {
                linger(stream).await;
            }
        });
    }
    drop(socket);
    finish(tasks, app.options.timeouts.shutdown).await;
}

/// Identifies a local peer by its kernel credentials; a disallowed one is logged here and gets 403
/// later.
fn local_peer(app: &App, stream: &UnixStream, turned_away: bool) -> Option<Peer> {
    let uid = match stream.peer_cred() {
        Ok(credentials) => credentials.uid(),
        Err(e) => {
            warn!("local caller closed: its user is not known: {e}");
            return None;
        }
    };
    let allowed = app.options.allowed_uids.contains(&uid);
    if !allowed {
        add(&app.meter.refused_uids, 1);
        if let Some(suppressed) = app.refusal_line(None) {
            warn!(
                uid,
                not_logged_before = suppressed,
                "local caller refused: its user is not in allowed_uids"
            );
        }
    }
    Some(Peer { origin: Origin::Unix { uid, allowed }, turned_away })
}

/// Returns an accepted connection. Logs an error and pauses if the accept failed.
async fn accepted_connection<T>(
    accepted: io::Result<T>,
    failures: &mut AcceptFailures,
) -> Option<T> {
    match accepted {
        Ok(connection) => Some(connection),
        Err(e) => {
            if let Some(line) = failures.line(&e) {
                warn!("agents: {line}");
            }
            tokio::time::sleep(ACCEPT_PAUSE).await;
            None
        }
    }
}

/// Serves one connection to its end; the stream is not closed yet.
async fn serve<S>(
    app: &Arc<App>,
    stream: S,
    peer: Peer,
    routes: Router,
    mut stop: watch::Receiver<bool>,
) -> S
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let name = peer.name();
    let mut header = Header::new(app.options.timeouts.header);
    let stage = header.stage();
    let Timeouts { unread: stalled, response: whole, .. } = app.options.timeouts;
    let stream = Watched::new(stream, header.stage(), AnswerTimeouts { stalled, whole });
    let service = service_fn(move |mut request: hyper::Request<Incoming>| {
        request.extensions_mut().insert(peer.clone());
        stage.answering(routes.clone().oneshot(request.map(Body::new)))
    });
    let mut connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(app.options.timeouts.idle)
        .half_close(true)
        .max_headers(HEADERS_PARSED_MAX)
        .max_buf_size(BUFFER_BYTES)
        .serve_connection(TokioIo::new(stream), service);
    let mut stopping = false;
    let ended = loop {
        let ended = tokio::select! {
            ended = poll_fn(|cx| match connection.poll_without_shutdown(cx) {
                Poll::Pending => header.poll_late(cx).map(|()| Err("header did not arrive".into())),
                Poll::Ready(ended) => Poll::Ready(ended.map_err(|e| e.to_string())),
            }) => Some(ended),
            _ = stop.changed(), if !stopping => None,
        };
        if let Some(ended) = ended {
            break ended;
        }
        stopping = true;
        Pin::new(&mut connection).graceful_shutdown();
    };
    if let Err(e) = ended {
        debug!(peer = %name, "connection: {e}");
    }
    connection.into_parts().io.into_inner().into_inner()
}

/// Shuts down the sending side, unless the peer does not accept even that.
async fn shut_down<S: AsyncWrite + Unpin>(stream: &mut S) -> bool {
    matches!(tokio::time::timeout(LINGER, stream.shutdown()).await, Ok(Ok(())))
}

/// Closes so that a sender in the middle of a refused body still gets the answer: closing with
/// unread bytes would reset the connection and discard the answer.
async fn linger<S: AsyncRead + Unpin>(mut stream: S) {
    let draining = async {
        let mut buffer = vec![0; 64 * 1024];
        let mut left = LINGER_BYTES_MAX;
        while left > 0 {
            match stream.read(&mut buffer).await {
                Ok(n) if n > 0 => left = left.saturating_sub(n),
                _ => break,
            }
        }
    };
    let _ = tokio::time::timeout(LINGER, draining).await;
}

/// Waits for the connections to end, and aborts those that do not end in time.
async fn finish(mut tasks: JoinSet<()>, within: Duration) {
    let all = async { while tasks.join_next().await.is_some() {} };
    if tokio::time::timeout(within, all).await.is_err() {
        warn!(connections = tasks.len(), "closing connections that did not finish in time");
        tasks.shutdown().await;
    }
}
