//! Ports of the series store on other addresses than loopback: TLS, the token, and a certificate
//! that is replaced while they are open. The program does not treat `::ffff:127.0.0.1` as loopback,
//! but only this host can reach it.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::common::mounted::folder_to_watch;
use crate::common::{PATIENCE, Running, folder, run};
use env::clock::ManualClock;
use env::random::SystemRandom;
use ingest::{Guard, Protocol};
use registry::limits::SERVER_CERTIFICATE_SECONDS;
use registry::{ControlStore, HashCost, Registry, RegistryOptions};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

/// An address that is not loopback for IPv6.
const BEYOND: &str = "[::ffff:127.0.0.1]:0";

/// Writes a new certificate and key. Returns the certificate.
fn renew(base: &Path) -> CertificateDer<'static> {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    fs::write(base.join("key.pem"), made.signing_key.serialize_pem()).unwrap();
    fs::write(base.join("cert.pem"), made.cert.pem()).unwrap();
    made.cert.der().clone()
}

type Tls = StreamOwned<ClientConnection, TcpStream>;

/// Returns the certificate that the server presented on a connection.
fn presented_certificate(stream: &Tls) -> CertificateDer<'static> {
    stream.conn.peer_certificates().unwrap()[0].clone().into_owned()
}

/// Requests an acknowledgement and waits for it.
fn sync(stream: &mut Tls) {
    stream.write_all(b"+sync\r\n").unwrap();
    let mut said = [0; 5];
    stream.read_exact(&mut said).unwrap();
    assert_eq!(&said, b"+OK\r\n");
}

/// A client that trusts only one certificate.
struct Client(Arc<ClientConfig>);

impl Client {
    fn trusting(certificate: &CertificateDer<'static>) -> Self {
        let mut roots = RootCertStore::empty();
        roots.add(certificate.clone()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        Self(Arc::new(config))
    }

    fn connect(&self, to: SocketAddr) -> std::io::Result<Tls> {
        let session = ClientConnection::new(self.0.clone(), "localhost".try_into().unwrap());
        let stream = TcpStream::connect(to)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        Ok(StreamOwned::new(session.unwrap(), stream))
    }

    /// Sends bytes and returns the whole answer. Fails if the server presents another certificate.
    fn talk(&self, to: SocketAddr, bytes: &[u8]) -> std::io::Result<String> {
        let mut stream = self.connect(to)?;
        stream.write_all(bytes)?;
        // Do not close the stream after an HTTP request: the server could drop the answer.
        if !bytes.starts_with(b"GET ") {
            stream.conn.send_close_notify();
        }
        stream.flush()?;
        let mut said = String::new();
        match stream.read_to_string(&mut said) {
            // A server that drops a client without permission need not send a close_notify.
            Ok(_) => Ok(said),
            Err(_) if !said.is_empty() => Ok(said),
            Err(e) => Err(e),
        }
    }
}

fn http(to: SocketAddr, client: &Client, authorization: &str) -> std::io::Result<String> {
    let head = format!("GET /api/stats HTTP/1.0\r\nhost: localhost\r\n{authorization}\r\n");
    client.talk(to, head.as_bytes())
}

/// Writes a server's configuration in `base`, with further lines.
fn configured(base: &Path, api: &str, more: &str) -> String {
    let config = base.join("server.toml");
    let text = format!(
        "data = {:?}\n[api]\nlisten = {api:?}\nplain_http = true\n\
         [agents]\nlisten = \"127.0.0.1:0\"\n{more}",
        base.join("data").to_str().unwrap()
    );
    fs::write(&config, text).unwrap();
    config.to_str().unwrap().to_owned()
}

#[test]
fn ports_of_a_server_are_closed_unless_configured() {
    let base = folder("series-closed");
    let config = configured(&base, "127.0.0.1:0", "");
    let server = Running::start(&["server", "--config", &config], &base.join("log"));
    assert!(server.line("log in: user admin, password in ").contains("admin-password"));
    server.line("ready: ");
    let printed = server.printed();
    assert!(!printed.iter().any(|line| line.starts_with("listening: ")), "{printed:?}");
    assert_eq!(server.stop(), 0);
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap();
    let more = format!("[series]\nresp = \"{address}\"\n");
    let config = configured(&base, "127.0.0.1:0", &more);
    let (code, _, error) = run(&["server", "--config", &config]);
    assert_eq!((code, error.contains(&format!("series resp {address}"))), (2, true), "{error}");
}

#[test]
fn each_port_of_up_is_configurable_or_off() {
    let base = folder("series-up-ports");
    let (data, tree) = (base.join("data"), folder_to_watch(base.join("tree")));
    let (data, tree) = (data.to_str().unwrap(), tree.to_str().unwrap());
    let words = ["up", "--data", data, "--watch", tree, "--api", "127.0.0.1:0", "--plain-http"];
    let ports = ["--udp", "127.0.0.1:0", "--http", "off"];
    let up = Running::start(&[&words[..], &ports].concat(), &base.join("log"));
    up.line("ready: ");
    let listening = up.printed().into_iter().filter(|line| line.starts_with("listening: "));
    let listening: Vec<String> = listening.collect();
    assert!(listening.len() == 1 && listening[0].contains("udp 127.0.0.1:"), "{listening:?}");
    assert_eq!(up.stop(), 0);
    let far = [&words[..], &["--udp", "0.0.0.0:0"]].concat();
    let (code, _, error) = run(&far);
    assert_eq!((code, error.contains("series.udp")), (2, true), "{error}");
}

/// Asserts that an address which guesses tokens is refused after a while, with the right one, too.
fn assert_guesses_are_refused(query: SocketAddr, client: &Client, bearer: &str) {
    let is_refused =
        |authorization: &str| http(query, client, authorization).unwrap().contains(" 429 ");
    assert!((0..60).any(|n| is_refused(&format!("authorization: Bearer guess-{n}\r\n"))));
    assert!(is_refused(bearer));
}

#[test]
fn non_loopback_ports_use_tls_token_and_reloaded_certificate() {
    if TcpListener::bind(BEYOND).is_err() {
        return needs::skip("this machine has no IPv6 sockets");
    }
    let base = folder("series-tls");
    let (data, log) = (base.join("data"), base.join("log"));
    let first = renew(&base);
    let config = base.join("series.toml");
    let text = format!(
        "resp = {BEYOND:?}\nopentsdb = {BEYOND:?}\nhttp = {BEYOND:?}\nudp = \"off\"\n\
         tls_cert = {:?}\ntls_key = {:?}\n",
        base.join("cert.pem"),
        base.join("key.pem")
    );
    fs::write(&config, text).unwrap();
    let words = ["series", "serve", "--data", data.to_str().unwrap()];
    let words = [&words[..], &["--config", config.to_str().unwrap()]].concat();
    let process = Running::start(&words, &log);
    process.line("ready: https://");
    let port = |name: &str| process.line(&format!("listening: {name} ")).parse().unwrap();
    let (resp, opentsdb, query): (SocketAddr, SocketAddr, SocketAddr) =
        (port("resp"), port("opentsdb"), port("http"));
    let token = fs::read_to_string(data.join("keys/series")).unwrap();
    let token = token.trim();
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();

    let client = Client::trusting(&first);
    let rows = format!("+cpu host=a\r\n:{now}000000000\r\n+1\r\n+sync\r\n");
    let said = client.talk(resp, format!("+auth {token}\r\n{rows}").as_bytes()).unwrap();
    assert_eq!(said, "+OK\r\n");
    let put = format!("auth {token}\nput cpu {now} 2 host=b\nsync\n");
    assert_eq!(client.talk(opentsdb, put.as_bytes()).unwrap(), "ok\n");
    for wrong in ["", "+auth nonsense\r\n"] {
        let said = client.talk(resp, format!("{wrong}{rows}").as_bytes()).unwrap();
        assert!(said.starts_with("-ERR") && !said.contains("+OK"), "{wrong}: {said}");
    }
    let bearer = format!("authorization: Bearer {token}\r\n");
    let known = http(query, &client, &bearer).unwrap();
    assert!(known.starts_with("HTTP/1.0 200") && known.contains("\"series\":2"), "{known}");
    assert!(http(query, &client, "").unwrap().contains(" 401 "));
    let url = format!("https://localhost:{}", query.port());
    let stat = ["series", "stat", "--url", &url, "--token", token, "--json"];
    let cert = base.join("cert.pem");
    let (code, out, error) = run(&[&stat[..], &["--ca", cert.to_str().unwrap()]].concat());
    assert!(code == 0 && out.contains("\"series\":2"), "{out}{error}");
    assert_eq!(run(&stat).0, 2, "nobody else signed it");
    // Send a row without TLS: it must not be stored, whatever the answer is.
    let mut clear = TcpStream::connect(resp).unwrap();
    clear.set_read_timeout(Some(PATIENCE)).unwrap();
    clear.write_all(format!("+auth {token}\r\n{rows}").as_bytes()).unwrap();
    let mut said = Vec::new();
    let _ = clear.read_to_end(&mut said);
    assert!(!String::from_utf8_lossy(&said).contains("+OK"));

    let second = Client::trusting(&renew(&base));
    for (port, shown) in [(resp, "+OK"), (opentsdb, "ok"), (query, "HTTP/1.0 200")] {
        let text = match shown {
            "ok" => format!("auth {token}\nsync\n"),
            "+OK" => format!("+auth {token}\r\n+sync\r\n"),
            _ => format!("GET /api/stats HTTP/1.0\r\nhost: localhost\r\n{bearer}\r\n"),
        };
        let said = second.talk(port, text.as_bytes()).unwrap();
        assert!(said.starts_with(shown), "{said}");
        // A new session: a resumed session shows none.
        let old = Client::trusting(&first).talk(port, text.as_bytes());
        assert!(old.is_err(), "the old certificate is shown: {old:?}");
    }
    // Invalid files are ignored, and the previous certificate stays in use.
    fs::write(base.join("cert.pem"), "nonsense").unwrap();
    assert!(http(query, &second, &bearer).unwrap().starts_with("HTTP/1.0 200"));
    assert!(fs::read_to_string(&log).unwrap().contains("the certificate from before is shown"));

    assert_guesses_are_refused(query, &second, &bearer);
    let lines = fs::read_to_string(&log).unwrap().matches("the token is missing or wrong").count();
    assert!((1..=20).contains(&lines), "{lines} lines");
    assert_eq!(process.stop(), 0);
}

#[test]
fn server_certificate_is_renewed_while_connections_continue() {
    let base = folder("series-renewed");
    let renewed_after = Duration::from_secs(SERVER_CERTIFICATE_SECONDS as u64 / 3 * 2);
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    let begin = now.checked_sub(renewed_after).unwrap();
    // Both certificates are valid by the client's clock, which is this machine's.
    let clock = ManualClock::at(begin.as_micros() as u64);
    let hash_cost = HashCost { memory_kib: 8, passes: 1, lanes: 1 };
    let registry = Registry::open(
        Arc::new(ControlStore::open(&base.join("registry.db")).unwrap()),
        &base,
        Arc::new(clock.clone()),
        Arc::new(SystemRandom),
        RegistryOptions { hash_cost, ..RegistryOptions::default() },
    )
    .unwrap();
    let authority = CertificateDer::from_pem_slice(registry.ca_pem().as_bytes()).unwrap();
    let own = Arc::new(registry.server_certificate(&[]).unwrap());
    let (store, _) = series::Store::open(&base.join("s"), series::StoreOptions::default()).unwrap();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let listener = runtime.block_on(tokio::net::TcpListener::bind("127.0.0.1:0")).unwrap();
    let port = listener.local_addr().unwrap();
    let (stop, stopped) = tokio::sync::watch::channel(false);
    let guard = Guard { tls: Some(ingest::tls(own).unwrap()), ..Guard::default() };
    let serving = runtime.spawn(ingest::serve_tcp(listener, Protocol::Resp, store, guard, stopped));

    let mut before = Client::trusting(&authority).connect(port).unwrap();
    sync(&mut before);
    clock.advance(renewed_after);
    // A new session: a resumed session shows none.
    let mut after = Client::trusting(&authority).connect(port).unwrap();
    sync(&mut after);
    assert_ne!(presented_certificate(&before), presented_certificate(&after));
    sync(&mut before);
    stop.send(true).unwrap();
    runtime.block_on(serving).unwrap();
}

#[test]
fn page_presents_its_own_certificate_and_reloads_it() {
    let base = folder("api-certificate");
    let first = renew(&base);
    let config = base.join("server.toml");
    let at = |name: &str| base.join(name).to_str().unwrap().to_owned();
    let text = format!(
        "data = {:?}\n[api]\nlisten = \"127.0.0.1:0\"\ntls_cert = {:?}\ntls_key = {:?}\n\
         [agents]\nlisten = \"127.0.0.1:0\"\n",
        at("data"),
        at("cert.pem"),
        at("key.pem")
    );
    fs::write(&config, text).unwrap();
    let words = ["server", "--config", config.to_str().unwrap()];
    let server = Running::start(&words, &base.join("log"));
    let url = server.line("ready: ");
    let page = url.trim_start_matches("https://").trim_end_matches('/').parse().unwrap();
    let ask = b"GET /readyz HTTP/1.0\r\nhost: localhost\r\n\r\n";
    assert!(Client::trusting(&first).talk(page, ask).unwrap().contains(" 200 "));
    let second = Client::trusting(&renew(&base));
    assert!(second.talk(page, ask).unwrap().contains(" 200 "));
    // A new client: the one from before may resume its session, which shows no certificate.
    assert!(Client::trusting(&first).talk(page, ask).is_err());
    assert_eq!(server.stop(), 0);
    fs::write(base.join("key.pem"), "no key").unwrap();
    let (code, _, error) = run(&words);
    assert_eq!((code, error.contains("api: certificate: ")), (2, true), "{error}");
}
