//! Simulated agents: real sessions in real HTTP over real mutual TLS.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use link::{Mode, Operation, SessionBuilder, Start};
use model::document::NoNames;
use model::{Dataset, FileDocument, ItemKey, Kind, Observation};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use tokio::io::{
    AsyncBufReadExt as _, AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, BufReader,
};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

/// Maximum number of attempts to send a session.
const TRIES_MAX: u32 = 100;

fn provider() -> Arc<rustls::crypto::CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

/// The fleet's certificates.
pub struct Fleet {
    roots: Arc<RootCertStore>,
    key: PrivateKeyDer<'static>,
    certificates: Vec<(u32, CertificateDer<'static>)>,
    cluster: String,
}

impl Fleet {
    pub fn open(folder: &Path) -> anyhow::Result<Self> {
        let all: serde_json::Value =
            serde_json::from_slice(&std::fs::read(folder.join("agents.json"))?)?;
        let text = |v: &serde_json::Value| v.as_str().unwrap_or_default().to_owned();
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(text(&all["ca"]).as_bytes())?)?;
        let certificate = |v: &serde_json::Value| {
            let pem = text(&v[1]);
            Ok((v[0].as_u64().unwrap_or(0) as u32, CertificateDer::from_pem_slice(pem.as_bytes())?))
        };
        let listed = all["certificates"].as_array().context("no certificates")?;
        Ok(Self {
            roots: Arc::new(roots),
            key: PrivateKeyDer::from_pem_slice(text(&all["key"]).as_bytes())?,
            certificates: listed.iter().map(certificate).collect::<anyhow::Result<_>>()?,
            cluster: text(&all["cluster"]),
        })
    }

    /// Returns the agent at this index.
    pub fn agent(&self, n: usize) -> anyhow::Result<Agent> {
        let (id, certificate) = self.certificates.get(n).context("too few agents enrolled")?;
        let config = ClientConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()?
            .with_root_certificates(Arc::clone(&self.roots))
            .with_client_auth_cert(vec![certificate.clone()], self.key.clone_key())?;
        let cluster = self.cluster.clone();
        Ok(Agent { id: *id, cluster, tls: Arc::new(config), line: None, sessions: 0 })
    }
}

/// A session that was answered with 200.
pub struct Answered {
    /// Duration, including the connection if there was none.
    pub elapsed: Duration,
    /// Number of failed attempts to send the session.
    pub vain: u32,
}

/// The outcome of one session that was sent.
enum Sent {
    Durable,
    /// The server sheds load; retry after this number of seconds. The text is its answer.
    Shed(f64, String),
}

/// One agent, connected or not.
pub struct Agent {
    id: u32,
    cluster: String,
    tls: Arc<ClientConfig>,
    line: Option<BufReader<TlsStream<TcpStream>>>,
    sessions: u64,
}

impl Agent {
    /// Returns a session of documents numbered from `first`; `round` determines their content and
    /// version.
    pub fn session(&self, first: u64, documents: u64, round: u64) -> Vec<u8> {
        let index = Dataset::fim_files().wire();
        let mut builder = SessionBuilder::new();
        for n in first..first + documents {
            let path = format!("/usr/share/doc/package-{:04}/file-{n:06}.txt", n / 20);
            let key = ItemKey::of_path(path.as_bytes());
            let mut observation = Observation::empty(Kind::File);
            observation.size = n * 37 + round;
            observation.mode = 0o100_644;
            observation.mtime_ns = 1_700_000_000_000_000_000 + round as i64;
            let mut hash = [round as u8; 32];
            hash[..8].copy_from_slice(&(n + u64::from(self.id) * 1_000_003).to_le_bytes());
            observation.hashes.sha256 = Some(hash);
            let version = 1_700_000_000_000_000 + round;
            let document = FileDocument::new(&key, &observation, version, &NoNames);
            let json = serde_json::to_vec(&document).unwrap_or_default();
            builder.push(Operation::Upsert, &key.document_id(), &index, version, &json);
        }
        builder.finish(&Start {
            module: "fim".into(),
            mode: Mode::ModuleDelta,
            index: vec![index],
            agentid: self.id.to_string(),
            cluster_name: self.cluster.clone(),
            ..Start::default()
        })
    }

    pub fn hang_up(&mut self) {
        self.line = None;
    }

    /// Sends one session until it is answered with 200, as an agent does: after Retry-After if the
    /// server sheds load, and after a second if it closed the connection.
    pub async fn send(
        &mut self,
        to: std::net::SocketAddr,
        body: &[u8],
    ) -> anyhow::Result<Answered> {
        let begun = Instant::now();
        self.sessions += 1;
        let mut last = String::new();
        for vain in 0..TRIES_MAX {
            let pause = match self.once(to, body).await {
                Ok(Sent::Durable) => return Ok(Answered { elapsed: begun.elapsed(), vain }),
                Ok(Sent::Shed(seconds, answer)) => {
                    last = answer;
                    seconds
                }
                Err(problem) if problem.is::<std::io::Error>() => {
                    last = problem.to_string();
                    1.0
                }
                Err(problem) => return Err(problem),
            };
            self.hang_up();
            // Each agent waits up to twice the time, so that the retries do not arrive together.
            let spread = f64::from(self.id.wrapping_mul(0x9e37_79b9) >> 16) / 65_536.0;
            tokio::time::sleep(Duration::from_secs_f64(pause * (1.0 + spread))).await;
        }
        bail!("a session was sent {TRIES_MAX} times in vain: {last}");
    }

    async fn once(&mut self, to: std::net::SocketAddr, body: &[u8]) -> anyhow::Result<Sent> {
        // Each agent is one start of its program on a machine of its own.
        let instance = format!("{0:x}.{0:x}.{0:x}", self.id);
        let head = format!(
            "POST /stateful HTTP/1.1\r\nhost: localhost\r\nx-session-id: fim-{instance}-{}\r\n\
             {}: {instance}.10000\r\ncontent-length: {}\r\n\r\n",
            self.sessions,
            link::HEADER_INSTANCE,
            body.len()
        );
        let line = match &mut self.line {
            Some(line) => line,
            none => {
                let stream = TcpStream::connect(to).await?;
                stream.set_nodelay(true)?;
                let name = ServerName::try_from("localhost")?;
                let stream =
                    TlsConnector::from(Arc::clone(&self.tls)).connect(name, stream).await?;
                none.insert(BufReader::new(stream))
            }
        };
        line.write_all(head.as_bytes()).await?;
        line.write_all(body).await?;
        line.flush().await?;
        let (mut status, mut length, mut later) = (String::new(), 0, 1.0);
        loop {
            let mut text = String::new();
            if line.read_line(&mut text).await? == 0 {
                return Err(std::io::Error::from(std::io::ErrorKind::UnexpectedEof).into());
            }
            let text = text.to_ascii_lowercase();
            if status.is_empty() {
                status.clone_from(&text);
            } else if let Some(n) = text.strip_prefix("content-length:") {
                length = n.trim().parse()?;
            } else if let Some(seconds) = text.strip_prefix("retry-after:") {
                later = seconds.trim().parse()?;
            }
            if text == "\r\n" {
                break;
            }
        }
        let mut answer = vec![0; length];
        line.read_exact(&mut answer).await?;
        match status.split(' ').nth(1) {
            Some("200") => Ok(Sent::Durable),
            Some("429" | "503") => {
                Ok(Sent::Shed(later, String::from_utf8_lossy(&answer).into_owned()))
            }
            _ => bail!("{}: {}", status.trim(), String::from_utf8_lossy(&answer)),
        }
    }
}

/// Returns a TLS configuration like the real server's.
pub fn server_config(registry: &registry::Registry) -> anyhow::Result<Arc<ServerConfig>> {
    let issued = registry.issue_server_certificate(&["localhost".into()])?;
    let chain = CertificateDer::pem_slice_iter(issued.cert_chain_pem.as_bytes())
        .collect::<Result<Vec<_>, _>>()?;
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(registry.ca_pem().as_bytes())?)?;
    let verifier =
        rustls::server::WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider())
            .build()?;
    let config = ServerConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()?
        .with_client_cert_verifier(verifier)
        .with_single_cert(chain, PrivateKeyDer::from_pem_slice(issued.key_pem.as_bytes())?)?;
    Ok(Arc::new(config))
}

/// Reads requests and answers each with 200.
pub async fn answer_all<S: AsyncRead + AsyncWrite + Unpin>(stream: S) -> anyhow::Result<()> {
    const ANSWER: &[u8] =
        b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n{}";
    let mut line = BufReader::new(stream);
    let mut body = Vec::new();
    loop {
        let mut length = 0;
        loop {
            let mut text = String::new();
            if line.read_line(&mut text).await? == 0 {
                return Ok(());
            }
            if let Some(n) = text.strip_prefix("content-length:") {
                length = n.trim().parse()?;
            }
            if text == "\r\n" {
                break;
            }
        }
        body.resize(length, 0);
        line.read_exact(&mut body).await?;
        line.write_all(ANSWER).await?;
        line.flush().await?;
    }
}
