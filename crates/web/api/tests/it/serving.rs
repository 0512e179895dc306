//! The listeners: HTTPS, plain HTTP on loopback, the unix socket.

use std::os::unix::fs::PermissionsExt as _;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::common::{ADMIN, World, basic, world, world_of};
use listener::{ServeError, ServeOptions, Server, TlsPem, UnixOptions, serve, serve_unix};
use registry::{HashCost, RegistryOptions};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpStream, UnixStream};

/// Sends one request over a connection; returns the whole answer as text.
async fn send_get(mut stream: impl AsyncRead + AsyncWrite + Unpin, path: &str) -> String {
    let request = format!("GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    // A peer that closes without a TLS close_notify ends the answer too.
    let _ = stream.read_to_end(&mut answer).await;
    String::from_utf8(answer).unwrap()
}

/// Returns the status of a POST over HTTP/2 without TLS.
async fn post_by_http2(server: &Server, token: &str, body: Vec<u8>) -> hyper::StatusCode {
    let stream = TcpStream::connect(server.local_addr().unwrap()).await.unwrap();
    let executor = hyper_util::rt::TokioExecutor::new();
    let io = hyper_util::rt::TokioIo::new(stream);
    let (mut sender, connection) =
        hyper::client::conn::http2::handshake(executor, io).await.unwrap();
    let driver = tokio::spawn(connection);
    let request = hyper::Request::post("http://localhost/security/users")
        .header("authorization", format!("Bearer {token}"))
        .header("content-type", "application/json")
        .body(http_body_util::Full::new(bytes::Bytes::from(body)))
        .unwrap();
    let status = sender.send_request(request).await.unwrap().status();
    driver.abort();
    status
}

#[tokio::test]
async fn oversized_body_gets_an_answer_over_http2() {
    let world = world();
    let server = plain(&world).await;
    let token = world.admin().await;
    let status = post_by_http2(&server, &token, vec![b' '; 11 * 1024 * 1024]).await;
    assert_eq!(status, hyper::StatusCode::PAYLOAD_TOO_LARGE);
    let status = post_by_http2(&server, &token, b"{}".to_vec()).await;
    assert_eq!(status, hyper::StatusCode::BAD_REQUEST, "and the next one as ever");
    server.shutdown().await;
}

async fn plain(world: &World) -> Server {
    let options = ServeOptions::new("127.0.0.1:0".parse().unwrap(), None);
    serve(options, world.router.clone()).await.unwrap()
}

#[tokio::test]
async fn plain_http_is_served_on_loopback_only() {
    let world = world();
    let server = plain(&world).await;
    let address = server.local_addr().unwrap();
    let answer = send_get(TcpStream::connect(address).await.unwrap(), "/healthz").await;
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n") && answer.ends_with("ok\n"), "{answer}");
    // The peer is recognized as this machine.
    let metrics = send_get(TcpStream::connect(address).await.unwrap(), "/metrics").await;
    assert!(metrics.starts_with("HTTP/1.1 200 OK\r\n"), "{metrics}");
    server.shutdown().await;
    let everywhere = ServeOptions::new("0.0.0.0:0".parse().unwrap(), None);
    let refused = serve(everywhere, world.router.clone()).await.err().unwrap();
    assert!(matches!(refused, ServeError::PlainHttp(_)));
    assert!(refused.to_string().contains("configure TLS"));
}

#[tokio::test]
async fn too_long_path_is_refused_and_the_next_request_is_answered() {
    let world = world();
    let server = plain(&world).await;
    let address = server.local_addr().unwrap();
    // The two long lists have 60 and 78 thousand bytes.
    for (numbers, status) in [(10_000, "401"), (13_000, "414"), (1, "401")] {
        let path = format!("/agents?agents_list={}", vec!["12345"; numbers].join(","));
        let answer = send_get(TcpStream::connect(address).await.unwrap(), &path).await;
        let wanted = format!("HTTP/1.1 {status} ");
        assert!(answer.starts_with(&wanted), "{numbers} numbers: {}", &answer[..40]);
    }
    server.shutdown().await;
}

async fn with_tls(world: &World) -> Server {
    let pair = world.registry.issue_server_certificate(&["localhost".to_owned()]).unwrap();
    let tls = TlsPem { cert_chain_pem: pair.cert_chain_pem, key_pem: pair.key_pem };
    let options = ServeOptions::new("127.0.0.1:0".parse().unwrap(), Some(tls));
    serve(options, world.router.clone()).await.unwrap()
}

#[tokio::test]
async fn plain_http_leads_to_https_without_a_token() {
    let world = world();
    let server = with_tls(&world).await;
    let send = async |request: &str| {
        let mut stream = TcpStream::connect(server.local_addr().unwrap()).await.unwrap();
        stream.write_all(request.replace('\n', "\r\n").as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        answer
    };
    let answer = send("GET /?a=1 HTTP/1.1\nHost: fleet:55000\n\n").await;
    assert!(answer.starts_with("HTTP/1.1 307 "), "{answer}");
    assert!(answer.contains("\r\nLocation: https://fleet:55000/?a=1\r\n"), "{answer}");
    for refused in [
        "POST / HTTP/1.1\nHost: fleet\n\n",
        "GET / HTTP/1.1\nHost: fleet\nAuthorization: Bearer token\n\n",
        "GET http://other/ HTTP/1.1\nHost: fleet\n\n",
        "GET / HTTP/1.1\n\n",
    ] {
        let answer = send(refused).await;
        assert!(answer.starts_with("HTTP/1.1 400 "), "{answer}");
        assert!(answer.contains("begins with https://"), "{answer}");
    }
    server.shutdown().await;
}

#[tokio::test]
async fn https_presents_the_certificate_that_the_ca_signed() {
    let world = world();
    let server = with_tls(&world).await;
    let mut roots = rustls::RootCertStore::empty();
    let ca = CertificateDer::from_pem_slice(world.registry.ca_pem().as_bytes()).unwrap();
    roots.add(ca).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let connector = tokio_rustls::TlsConnector::from(Arc::new(config));
    let address = server.local_addr().unwrap();
    let stream = TcpStream::connect(address).await.unwrap();
    let name = ServerName::try_from("localhost").unwrap();
    let answer = send_get(connector.connect(name, stream).await.unwrap(), "/healthz").await;
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
    server.shutdown().await;
}

#[tokio::test]
async fn invalid_or_mismatched_tls_key_fails_the_start() {
    let world = world();
    let (one, other) = (
        world.registry.issue_server_certificate(&[]).unwrap(),
        world.registry.issue_server_certificate(&[]).unwrap(),
    );
    for (chain, key) in [
        (one.cert_chain_pem.clone(), other.key_pem),
        (one.cert_chain_pem, "nothing".to_owned()),
        (String::new(), one.key_pem),
    ] {
        let tls = TlsPem { cert_chain_pem: chain, key_pem: key };
        let options = ServeOptions::new("127.0.0.1:0".parse().unwrap(), Some(tls));
        let refused = serve(options, world.router.clone()).await.err().unwrap();
        assert!(matches!(refused, ServeError::Tls(_)), "{refused}");
    }
}

#[tokio::test]
async fn unix_socket_admits_its_own_user_as_administrator() {
    let world = world();
    let path = world.folder.path().join("holdfast.sock");
    let server = serve_unix(UnixOptions::new(&path), world.router.clone()).await.unwrap();
    let mode = std::fs::metadata(&path).unwrap().permissions().mode();
    assert_eq!(mode & 0o7777, 0o660);
    let answer =
        send_get(UnixStream::connect(&path).await.unwrap(), "/agents/summary/status").await;
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
    let second = serve_unix(UnixOptions::new(&path), world.router.clone()).await.err().unwrap();
    assert!(second.to_string().contains("another server listens"), "{second}");
    server.shutdown().await;
    assert!(!path.exists());
}

#[tokio::test]
async fn stale_socket_is_replaced_but_other_files_are_kept() {
    let world = world();
    let path = world.folder.path().join("stale.sock");
    drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
    let server = serve_unix(UnixOptions::new(&path), world.router.clone()).await.unwrap();
    server.shutdown().await;
    std::fs::write(&path, "precious").unwrap();
    assert!(serve_unix(UnixOptions::new(&path), world.router.clone()).await.is_err());
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "precious");
}

#[tokio::test]
async fn shutdown_waits_for_a_request_in_flight() {
    let world = world();
    let server = plain(&world).await;
    let address = server.local_addr().unwrap();
    let mut stream = TcpStream::connect(address).await.unwrap();
    let token = world.admin().await;
    let head = format!(
        "POST /enrolment/tokens HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {token}\r\n\
         content-type: application/json\r\ncontent-length: 2\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    // The server has read the head once it answers a second connection on the same listener.
    send_get(TcpStream::connect(address).await.unwrap(), "/healthz").await;
    let stopping = tokio::spawn(server.shutdown());
    while TcpStream::connect(address).await.is_ok() {
        tokio::task::yield_now().await;
    }
    stream.write_all(b"{}").await.unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await.unwrap();
    let answer = String::from_utf8(answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
    stopping.await.unwrap();
}

/// Opens as many silent connections as there are permits, and then one that sends a request.
#[tokio::test]
async fn silent_connections_are_closed_longest_first() {
    let world = world();
    let options = ServeOptions::new("127.0.0.1:0".parse().unwrap(), None);
    let options = ServeOptions { connections_max: 2, ..options };
    let server = serve(options, world.router.clone()).await.unwrap();
    let address = server.local_addr().unwrap();
    let connect = async || TcpStream::connect(address).await.unwrap();
    let mut silent = vec![connect().await, connect().await];
    let answer = send_get(connect().await, "/healthz").await;
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
    assert_eq!(silent[0].read(&mut [0]).await.unwrap(), 0, "closed");
    let later = send_get(silent.remove(1), "/healthz").await;
    assert!(later.starts_with("HTTP/1.1 200 OK\r\n"), "{later}");
    server.shutdown().await;
}

#[tokio::test]
async fn connections_without_requests_are_closed_when_idle() {
    let world = world();
    let address = "127.0.0.1:0".parse().unwrap();
    let idle_time = Duration::from_millis(50);
    let options = ServeOptions { idle_time, ..ServeOptions::new(address, None) };
    let server = serve(options, world.router.clone()).await.unwrap();
    let address = server.local_addr().unwrap();
    let connect = async || TcpStream::connect(address).await.unwrap();
    assert_eq!(connect().await.read(&mut [0]).await.unwrap(), 0);
    // Open one connection that answers pings, and one with a request that never ends.
    let io = hyper_util::rt::TokioIo::new(connect().await);
    let executor = hyper_util::rt::TokioExecutor::new();
    let (sender, connection) =
        hyper::client::conn::http2::handshake::<_, _, http_body_util::Empty<bytes::Bytes>>(
            executor, io,
        )
        .await
        .unwrap();
    let driver = tokio::spawn(connection);
    let mut half = connect().await;
    half.write_all(b"GET /healthz HTTP/1.1\r\nhost: ").await.unwrap();
    let _ = half.read_to_end(&mut Vec::new()).await;
    let _ = driver.await.unwrap();
    drop(sender);
    server.shutdown().await;
}

/// Returns the types of the frames that an HTTP/2 client without requests receives until its
/// connection ends.
async fn told_to_silence(address: std::net::SocketAddr) -> Vec<u8> {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let empty_settings = [0, 0, 0, 4, 0, 0, 0, 0, 0];
    let preface = [&b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"[..], &empty_settings].concat();
    stream.write_all(&preface).await.unwrap();
    let mut told = Vec::new();
    let _ = stream.read_to_end(&mut told).await;
    let mut kinds = Vec::new();
    let mut rest = told.as_slice();
    while let Some((head, body)) = rest.split_first_chunk::<9>() {
        let [a, b, c, kind, ..] = *head;
        kinds.push(kind);
        rest = body.split_at(u32::from_be_bytes([0, a, b, c]) as usize).1;
    }
    kinds
}

/// `GOAWAY` (RFC 9113, section 6.8): requests that the server accepted before it are answered,
/// later ones need another connection.
#[tokio::test]
async fn idle_http2_connection_receives_goaway() {
    const GOAWAY: u8 = 7;
    let world = world();
    let options = ServeOptions::new("127.0.0.1:0".parse().unwrap(), None);
    let options = ServeOptions { idle_time: Duration::from_millis(50), ..options };
    let server = serve(options, world.router.clone()).await.unwrap();
    let mut kinds = Vec::new();
    // On a machine that stalled between the connection and its first bytes, the connection may end
    // before it has become an HTTP/2 one.
    for _ in 0..20 {
        kinds = told_to_silence(server.local_addr().unwrap()).await;
        if !kinds.is_empty() {
            break;
        }
    }
    assert!(kinds.contains(&GOAWAY), "{kinds:?}");
    server.shutdown().await;
}

const SLOW_BYTES: usize = 64 * 1024;
const SLOW_IDLE: Duration = Duration::from_secs(2);

/// Reads an answer over three times the idle limit; returns the number of bytes received and the
/// longest time between two pieces.
async fn take_slowly(address: std::net::SocketAddr) -> (usize, Duration) {
    let stream = TcpStream::connect(address).await.unwrap();
    let executor = hyper_util::rt::TokioExecutor::new();
    let (mut sender, connection) = hyper::client::conn::http2::Builder::new(executor)
        .initial_stream_window_size(2_048)
        .handshake(hyper_util::rt::TokioIo::new(stream))
        .await
        .unwrap();
    let driver = tokio::spawn(connection);
    let request = hyper::Request::get("http://localhost/");
    let request = request.body(http_body_util::Empty::<bytes::Bytes>::new()).unwrap();
    let mut body = sender.send_request(request).await.unwrap().into_body();
    let (mut taken, started) = (0, Instant::now());
    let (mut last, mut longest) = (started, Duration::ZERO);
    while let Some(Ok(frame)) = http_body_util::BodyExt::frame(&mut body).await {
        (longest, last) = (longest.max(last.elapsed()), Instant::now());
        taken += frame.into_data().map_or(0, |data| data.len());
        // The reading takes longer than the idle limit and the time of the GOAWAY together.
        let due = SLOW_IDLE * 3 * u32::try_from(taken).unwrap() / SLOW_BYTES as u32;
        tokio::time::sleep(due.saturating_sub(started.elapsed())).await;
    }
    driver.abort();
    (taken, longest.max(last.elapsed()))
}

/// The whole body is produced at once, but its bytes are sent only as fast as the reader takes
/// them.
#[tokio::test]
async fn slow_reader_is_not_cut_off_while_it_reads() {
    let body = "x".repeat(SLOW_BYTES);
    let router = axum::Router::new().route("/", axum::routing::get(async move || body));
    let options = ServeOptions::new("127.0.0.1:0".parse().unwrap(), None);
    let server = serve(ServeOptions { idle_time: SLOW_IDLE, ..options }, router).await.unwrap();
    let (mut taken, mut longest) = (0, Duration::ZERO);
    // If the machine stalled, the reader took nothing for longer than the limit and was rightly cut
    // off.
    for _ in 0..10 {
        (taken, longest) = take_slowly(server.local_addr().unwrap()).await;
        if taken == SLOW_BYTES || longest < SLOW_IDLE {
            break;
        }
    }
    assert_eq!(taken, SLOW_BYTES, "although at most {longest:?} lay between two pieces");
    server.shutdown().await;
}

/// Sends a login over a connection of its own; returns the head of the answer.
async fn try_login(address: std::net::SocketAddr) -> String {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let request = format!(
        "POST /security/user/authenticate HTTP/1.1\r\nhost: localhost\r\nauthorization: {}\r\n\
         content-length: 0\r\nconnection: close\r\n\r\n",
        basic("admin", ADMIN)
    );
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    answer
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn excess_logins_get_a_retry_time_and_block_no_request() {
    // There are one hashing thread and two places in its queue, and one hash takes longer than
    // twenty requests.
    let options = RegistryOptions {
        login_workers: 1,
        login_queue_max: 2,
        hash_cost: HashCost { memory_kib: 64 * 1024, passes: 4, lanes: 1 },
        ..RegistryOptions::default()
    };
    let world = world_of(options, |_| {});
    let server = plain(&world).await;
    let address = server.local_addr().unwrap();
    let logins: Vec<_> = (0..20).map(|_| tokio::spawn(try_login(address))).collect();
    let mut answers = Vec::new();
    for login in logins {
        answers.push(login.await.unwrap());
    }
    let (done, refused): (Vec<_>, Vec<_>) =
        answers.into_iter().partition(|answer| answer.starts_with("HTTP/1.1 200 "));
    assert!(!done.is_empty() && !refused.is_empty(), "{} done", done.len());
    for answer in refused {
        assert!(answer.starts_with("HTTP/1.1 503 "), "{answer}");
        assert!(answer.contains("\r\nretry-after: 1\r\n"), "{answer}");
    }
    // The queue is empty, so the next login is served.
    assert!(try_login(address).await.starts_with("HTTP/1.1 200 "));
    server.shutdown().await;
}
