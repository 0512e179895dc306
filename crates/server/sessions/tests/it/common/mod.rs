//! A real server in a temporary folder, and agents that talk to it over real TLS and over the real
//! unix socket.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use commit::{Commit, CommitOptions};
use env::random::SystemRandom;
use journal::Journal;
use link::{Mode, Operation, Payload, Session, SessionValue, Start, encode};
use model::{AgentId, Coverage, CoverageKind, Dataset, EventBody, Incarnation, ReportKind};
use registry::{Reader, Registry, RegistryOptions, TokenTerms, WriteContext};
use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use serde::de::DeserializeOwned;
use serde_json::Value as Json;
use sessions::{Sessions, SessionsHandle, SessionsOptions};
use state::{DocumentQuery, StateOptions, StateStore, StoredDocument};
use tempfile::TempDir;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpStream, UnixStream};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

pub(crate) const FILES: &str = "wazuh-states-fim-files";
pub(crate) const EVENTS: &str = "holdfast-events";
/// Longest time that an expected event may take on a busy machine.
const PATIENCE: Duration = Duration::from_mins(10);

pub(crate) struct Server {
    pub(crate) handle: SessionsHandle,
    pub(crate) commit: Arc<Commit>,
    pub(crate) state: Arc<StateStore>,
    pub(crate) registry: Registry,
    pub(crate) folder: TempDir,
}

impl Server {
    pub(crate) fn start() -> Self {
        Self::with(|_| {})
    }

    /// Starts a server with changed options.
    pub(crate) fn with(edit: impl FnOnce(&mut SessionsOptions)) -> Self {
        Self::open(tempfile::tempdir().unwrap(), edit)
    }

    pub(crate) fn open(folder: TempDir, edit: impl FnOnce(&mut SessionsOptions)) -> Self {
        let path = folder.path();
        let state: Arc<StateStore> =
            Arc::new(StateStore::open(&path.join("state.db"), StateOptions::default()).unwrap());
        let options = journal::Options { segment_bytes: 1024 * 1024, ..Default::default() };
        let (journal, _) = Journal::open(&path.join("journal"), options).unwrap();
        let (commit, _) =
            Commit::open(journal, Arc::clone(&state), CommitOptions::default()).unwrap();
        let mut options = SessionsOptions {
            https: Some("127.0.0.1:0".parse().unwrap()),
            unix: Some(path.join("holdfast.sock")),
            ..SessionsOptions::default()
        };
        edit(&mut options);
        let registry = Registry::open(
            Arc::new(mirror::open(&path.join("registry.db")).unwrap()),
            path,
            options.clock.clone(),
            Arc::new(SystemRandom),
            RegistryOptions::default(),
        )
        .unwrap();
        let handle =
            Sessions::start(options, Arc::clone(&commit), Arc::clone(&state), registry.clone())
                .unwrap();
        Self { handle, commit, state, registry, folder }
    }

    /// Restarts in the same folder.
    pub(crate) async fn again(self) -> Self {
        self.again_with(|_| {}).await
    }

    /// Restarts in the same folder with changed options.
    pub(crate) async fn again_with(self, edit: impl FnOnce(&mut SessionsOptions)) -> Self {
        let Self { handle, commit, state, registry, folder } = self;
        handle.shutdown().await;
        commit.close().await.unwrap();
        registry.close().unwrap();
        drop((commit, state, registry));
        Self::open(folder, edit)
    }

    /// Returns the last report of the agent that is registered now, or of the unregistered one.
    pub(crate) fn report(&self, agent: AgentId, kind: ReportKind) -> Option<Vec<u8>> {
        let life = self.registry.agent(agent).map_or(Incarnation(0), |a| a.incarnation);
        let found = self.state.report(&Reader::server(), agent, life, kind).unwrap();
        found.map(|report| report.body)
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.handle.unix_path().unwrap().to_owned()
    }

    pub(crate) fn url(&self, route: &str) -> String {
        format!("https://localhost:{}{route}", self.handle.local_addr().unwrap().port())
    }

    /// Returns a client configuration that trusts this server and presents a certificate or none.
    pub(crate) fn tls(&self, identity: Option<(&str, &str)>) -> ClientConfig {
        let mut roots = RootCertStore::empty();
        roots
            .add(CertificateDer::from_pem_slice(self.registry.ca_pem().as_bytes()).unwrap())
            .unwrap();
        let builder =
            ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
                .with_safe_default_protocol_versions()
                .unwrap()
                .with_root_certificates(roots);
        match identity {
            None => builder.with_no_client_auth(),
            Some((certificate, key)) => {
                let chain = CertificateDer::pem_slice_iter(certificate.as_bytes())
                    .collect::<Result<Vec<_>, _>>()
                    .unwrap();
                let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap();
                builder.with_client_auth_cert(chain, key).unwrap()
            }
        }
    }

    /// Enrols an agent over the network.
    pub(crate) async fn enroll(&self, name: &str) -> Agent {
        self.enroll_under(name, &TokenTerms::new(1, 600)).await
    }

    /// Enrols an agent with a token of these terms.
    pub(crate) async fn enroll_under(&self, name: &str, terms: &TokenTerms) -> Agent {
        let token = self.registry.create_enrolment_token(&WriteContext::server(), terms).unwrap();
        let (csr, key) = request();
        let body =
            link::EnrollRequest { token, name: name.into(), csr, ..link::EnrollRequest::default() };
        let anonymous = client(self.tls(None));
        let answer = anonymous.post(self.url("/enroll")).json(&body).send().await.unwrap();
        assert_eq!(answer.status(), 200);
        let answer: link::EnrollAnswer = answer.json().await.unwrap();
        assert_eq!(answer.ca, self.registry.ca_pem());
        self.agent(answer.agent.parse().unwrap(), answer.certificate, key)
    }

    pub(crate) fn agent(&self, id: AgentId, certificate: String, key: String) -> Agent {
        let http = client(self.tls(Some((&certificate, &key))));
        Agent { id, certificate, key, http, base: self.url(""), instance: "" }
    }

    pub(crate) fn documents(&self, agent: AgentId) -> Vec<StoredDocument> {
        self.state
            .documents(&Reader::server(), &DocumentQuery::new(agent, Dataset::fim_files()))
            .unwrap()
            .items
    }

    /// Returns one of this side's own counters.
    pub(crate) fn counter(&self, name: &str) -> u64 {
        let all = self.handle.counters();
        let found = all["metrics"].as_array().unwrap().iter().find(|m| m["name"] == name);
        found.unwrap_or_else(|| panic!("no counter {name}"))["value"].as_u64().unwrap()
    }

    /// Waits until a condition holds.
    pub(crate) async fn until(&self, what: &str, holds: impl Fn(&Self) -> bool) {
        let waiting = async {
            while !holds(self) {
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        };
        tokio::time::timeout(PATIENCE, waiting).await.expect(what);
    }

    /// Opens a separate connection over TLS.
    pub(crate) async fn connect(&self, identity: Option<(&str, &str)>) -> TlsStream<TcpStream> {
        let tcp = TcpStream::connect(self.handle.local_addr().unwrap()).await.unwrap();
        let name = ServerName::try_from("localhost").unwrap();
        let connector = TlsConnector::from(Arc::new(self.tls(identity)));
        connector.connect(name, tcp).await.unwrap()
    }

    /// Announces a body and sends its beginning.
    pub(crate) async fn begin_body(
        &self,
        route: &str,
        agent: &Agent,
        length: usize,
        begin: &[u8],
    ) -> TlsStream<TcpStream> {
        let mut stream = self.connect(Some(agent.identity())).await;
        let mut head =
            format!("POST {route} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {length}\r\n");
        if !agent.instance.is_empty() {
            head = format!("{head}{}: {}\r\n", link::HEADER_INSTANCE, agent.instance);
        }
        head += "\r\n";
        stream.write_all(&[head.as_bytes(), begin].concat()).await.unwrap();
        stream.flush().await.unwrap();
        stream
    }

    /// Waits until this many bytes of bodies have arrived and nothing else is in flight.
    pub(crate) async fn until_arrived(&self, bytes: usize) {
        // An odd number of bytes in one read is charged with half a byte less.
        let (cost, rounding) = (bytes as u64 * 5 / 2, bytes as u64 / 512 + 32);
        let holds = |s: &Self| {
            (cost.saturating_sub(rounding)..=cost).contains(&s.counter("sync.inflight.bytes"))
        };
        self.until("the bytes are in", holds).await;
    }

    /// Sends one request on the unix socket.
    pub(crate) async fn local(&self, head: &str, body: &[u8]) -> Raw {
        let stream = UnixStream::connect(self.socket()).await.unwrap();
        exchange(stream, head, body).await
    }

    /// Sends one session on the unix socket.
    pub(crate) async fn local_session(&self, agent: AgentId, session: &Session) -> Raw {
        let body = encode(session);
        let head = format!(
            "POST /stateful HTTP/1.1\r\nX-Wazuh-Agent-Id: {agent}\r\nContent-Length: {}\r\n",
            body.len()
        );
        self.local(&head, &body).await
    }

    pub(crate) async fn stop(self) {
        self.handle.shutdown().await;
        self.commit.close().await.unwrap();
    }
}

/// Returns a key and a certificate signing request.
pub(crate) fn request() -> (String, String) {
    let key = rcgen::KeyPair::generate().unwrap();
    let params = rcgen::CertificateParams::new(Vec::<String>::new()).unwrap();
    (params.serialize_request(&key).unwrap().pem().unwrap(), key.serialize_pem())
}

pub(crate) fn client(config: ClientConfig) -> reqwest::Client {
    reqwest::Client::builder()
        .tls_backend_preconfigured(config)
        .no_proxy()
        .timeout(PATIENCE)
        .build()
        .unwrap()
}

/// An enrolled agent.
pub(crate) struct Agent {
    pub(crate) id: AgentId,
    pub(crate) certificate: String,
    pub(crate) key: String,
    pub(crate) http: reqwest::Client,
    base: String,
    /// Value of the header that names the instance; empty for senders that name none.
    instance: &'static str,
}

impl Agent {
    pub(crate) fn base(&self) -> &str {
        &self.base
    }

    /// Returns the agent as a sender that names its instance.
    pub(crate) fn with_instance(self) -> Self {
        Self { instance: "aa.bb.cc.10000", ..self }
    }

    pub(crate) fn identity(&self) -> (&str, &str) {
        (&self.certificate, &self.key)
    }

    pub(crate) async fn post(&self, route: &str, body: Vec<u8>) -> Answered {
        self.named(route, "", body).await
    }

    pub(crate) async fn named(&self, route: &str, session: &str, body: Vec<u8>) -> Answered {
        let mut request = self.http.post(format!("{}{route}", self.base)).body(body);
        if !session.is_empty() {
            request = request.header(link::HEADER_SESSION, session);
        }
        if !self.instance.is_empty() {
            request = request.header(link::HEADER_INSTANCE, self.instance);
        }
        let answer = request.send().await.unwrap();
        let status = answer.status().as_u16();
        let retry_after = answer.headers().contains_key("retry-after");
        Answered { status, retry_after, body: answer.bytes().await.unwrap().to_vec() }
    }

    pub(crate) async fn send(&self, session: &Session) -> Answered {
        self.post("/stateful", encode(session)).await
    }

    pub(crate) async fn json<A: DeserializeOwned>(
        &self,
        route: &str,
        request: &impl serde::Serialize,
    ) -> A {
        let answered = self.post(route, serde_json::to_vec(request).unwrap()).await;
        assert_eq!(answered.status, 200, "{}", answered.text());
        serde_json::from_slice(&answered.body).unwrap()
    }

    pub(crate) fn delta(&self, values: Vec<SessionValue>) -> Session {
        delta(self.id, values)
    }

    pub(crate) fn check(&self, checksum: &str) -> Session {
        let mut session = delta(self.id, Vec::new());
        session.start.mode = Mode::ModuleCheck;
        session.payload = Payload::Checksum { index: FILES.into(), checksum: checksum.into() };
        session
    }
}

/// An answer.
#[derive(Debug)]
pub(crate) struct Answered {
    pub(crate) status: u16,
    pub(crate) retry_after: bool,
    pub(crate) body: Vec<u8>,
}

impl Answered {
    pub(crate) fn json(&self) -> Json {
        serde_json::from_slice(&self.body).unwrap()
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// Returns the error word of a refusal.
    pub(crate) fn error(&self) -> String {
        self.json()["error"].as_str().unwrap_or_default().to_owned()
    }
}

pub(crate) fn delta(agent: AgentId, values: Vec<SessionValue>) -> Session {
    Session {
        start: Start {
            module: "fim".into(),
            mode: Mode::ModuleDelta,
            index: vec![FILES.into()],
            agentid: agent.to_string(),
            agentname: "said".into(),
            cluster_name: "holdfast".into(),
            ..Start::default()
        },
        payload: Payload::Sync { values, contexts: Vec::new() },
    }
}

/// Returns a document whose checksum is 40 times `digit`.
pub(crate) fn document(id: &str, version: u64, digit: char) -> SessionValue {
    let sha1: String = std::iter::repeat_n(digit, 40).collect();
    let data = serde_json::json!({
        "file": {"path": format!("/etc/{id}"), "name": id, "directory": "/etc", "type": "file",
            "mode": "0644", "uid": "0", "gid": "0", "inode": "1", "device": "1"},
        "checksum": {"hash": {"sha1": sha1}},
        "state": {"document_version": version, "modified_at": model::timestamp::micros(version)},
    });
    SessionValue {
        operation: Operation::Upsert,
        id: id.into(),
        index: FILES.into(),
        version,
        data: data.to_string().into_bytes(),
    }
}

pub(crate) fn removal(id: &str, version: u64) -> SessionValue {
    SessionValue {
        operation: Operation::Delete,
        data: b"{}".to_vec(),
        ..document(id, version, 'a')
    }
}

pub(crate) fn event(id: &str) -> SessionValue {
    let body = EventBody::of_coverage(Coverage {
        kind: CoverageKind::Baseline,
        path: "/etc".into(),
        from_us: 1,
        to_us: 2,
        found: None,
        lasting: None,
        detail: String::new(),
    });
    SessionValue {
        operation: Operation::Upsert,
        id: id.into(),
        index: EVENTS.into(),
        version: 0,
        data: body.to_json(),
    }
}

/// An answer as received on the connection.
#[derive(Debug)]
pub(crate) struct Raw {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: Vec<u8>,
}

impl Raw {
    pub(crate) fn json(&self) -> Json {
        serde_json::from_slice(&self.body)
            .unwrap_or_else(|e| panic!("{e}: {}", String::from_utf8_lossy(&self.body)))
    }

    pub(crate) fn has(&self, header: &str) -> bool {
        self.head.to_ascii_lowercase().contains(&header.to_ascii_lowercase())
    }

    fn parse(bytes: &[u8]) -> Self {
        let end = bytes.windows(4).position(|w| w == b"\r\n\r\n").unwrap_or_else(|| {
            panic!("no answer: {:?}", String::from_utf8_lossy(bytes));
        });
        let head = String::from_utf8_lossy(&bytes[..end]).into_owned();
        let status = head.split(' ').nth(1).and_then(|s| s.parse().ok()).unwrap();
        Self { status, head, body: bytes[end + 4..].to_vec() }
    }
}

/// Sends a request (header without its last empty line) and reads until the server closes.
pub(crate) async fn exchange<S>(mut stream: S, head: &str, body: &[u8]) -> Raw
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let head = format!("{head}Host: localhost\r\nConnection: close\r\n\r\n");
    stream.write_all(head.as_bytes()).await.unwrap();
    // A server that refuses may close before it has read everything.
    let _ = stream.write_all(body).await;
    read_answer(stream).await
}

pub(crate) async fn read_answer<S: AsyncRead + Unpin>(mut stream: S) -> Raw {
    let mut bytes = Vec::new();
    let reading = async {
        let _ = stream.read_to_end(&mut bytes).await;
    };
    tokio::time::timeout(PATIENCE, reading).await.expect("no answer in time");
    Raw::parse(&bytes)
}
