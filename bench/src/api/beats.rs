//! A fleet's heartbeats. As many agents as the open-file limit allows keep a connection of their
//! own over mutual TLS; the others use the unix socket.

use std::fs;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use control::{ControlStore, NewAgent};
use env::clock::SystemClock;
use env::random::SystemRandom;
use holdfast_bench::{Results, quick, wanted};
use model::Incarnation;
use registry::{AgentEnrolment, Registry, RegistryOptions, TokenTerms, WriteContext};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpSocket, TcpStream};
use tokio::sync::Semaphore;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::load::{heartbeats, quantile};
use crate::seed::BATCH;
use crate::server::Server;
use crate::{AGENTS, SUBJECT};

/// Open files of this process and of the server, other than those connections.
const OTHER_FILES: u64 = 1_500;
/// Number of connections that are opened at the same time.
const CONNECTING: usize = 64;
/// Number of uses of one enrolment token.
const TOKEN_USES: usize = 1_000;
/// Maximum time for enrolments, each of which costs a flush of the disk.
const ENROLLING_MAX: Duration = Duration::from_secs(40);
/// Time between two heartbeats of an agent.
const INTERVAL: Duration = Duration::from_secs(10);

/// The credentials of an agent.
struct Credentials {
    roots: Arc<RootCertStore>,
    key: PrivateKeyDer<'static>,
    certificates: Vec<CertificateDer<'static>>,
}

/// One agent's connection.
struct AgentConnection {
    stream: BufReader<TlsStream<TcpStream>>,
    request: String,
}

/// Returns the number of agents with a connection: up to the open-file limit, at most 20,000.
fn connections() -> usize {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the pointer is valid for both calls.
    unsafe {
        libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit);
        limit.rlim_cur = limit.rlim_max;
        libc::setrlimit(libc::RLIMIT_NOFILE, &limit);
    }
    let files = limit.rlim_cur.saturating_sub(OTHER_FILES).min(20_000) as usize;
    if quick() { files.min(500) } else { files }
}

/// Enrols some agents with certificates and registers the others without.
fn enrol(folder: &Path, connected: usize, agents: usize) -> anyhow::Result<Credentials> {
    let keys = folder.join("keys");
    fs::create_dir_all(&keys)?;
    fs::set_permissions(&keys, fs::Permissions::from_mode(0o700))?;
    let store = Arc::new(ControlStore::open(&folder.join("registry.db"))?);
    let clock = Arc::new(SystemClock::new());
    let options = RegistryOptions::default();
    let registry = Registry::open(store.clone(), &keys, clock, Arc::new(SystemRandom), options)?;
    // All agents share one key, because only the server is measured.
    let key = rcgen::KeyPair::generate()?;
    let csr = rcgen::CertificateParams::default().serialize_request(&key)?.pem()?;
    let mut certificates = Vec::with_capacity(connected);
    let mut token = String::new();
    let begun = Instant::now();
    for n in 0..connected {
        if !wanted("FULL") && begun.elapsed() > ENROLLING_MAX {
            break;
        }
        if n % TOKEN_USES == 0 {
            let terms = TokenTerms::new(TOKEN_USES as u32, 3_600);
            token = registry.create_enrolment_token(&WriteContext::server(), &terms)?;
        }
        let request = AgentEnrolment { name: format!("agent-{n}"), ..AgentEnrolment::default() };
        let enrolled = registry.enroll(&token, &csr, &request)?;
        certificates.push(CertificateDer::from_pem_slice(enrolled.certificate_pem.as_bytes())?);
    }
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(registry.ca_pem().as_bytes())?)?;
    registry.close()?;
    let connected = certificates.len();
    let now_s = std::time::UNIX_EPOCH.elapsed()?.as_secs() as i64;
    for start in (connected..agents).step_by(BATCH as usize) {
        let end = agents.min(start + BATCH as usize);
        let new: Vec<NewAgent> = (start..end)
            .map(|n| NewAgent {
                id: None,
                name: format!("agent-{n}"),
                register_ip: "any".into(),
                groups: vec!["default".into()],
                incarnation: Incarnation(n as u64 + 1),
                client_key: None,
                ephemeral_s: None,
                now_s,
            })
            .collect();
        store.add_agents(&WriteContext::server(), &new)?;
    }
    store.checkpoint()?;
    let key = PrivateKeyDer::from_pem_slice(key.serialize_pem().as_bytes())?;
    Ok(Credentials { roots: Arc::new(roots), key, certificates })
}

impl Credentials {
    async fn connect(&self, n: usize, to: SocketAddr) -> anyhow::Result<AgentConnection> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let certificate = self.certificates.get(n).context("too few certificates")?.clone();
        let mut config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_root_certificates(Arc::clone(&self.roots))
            .with_client_auth_cert(vec![certificate], self.key.clone_key())?;
        config.resumption = rustls::client::Resumption::disabled();
        // Each few thousand connections use another source address, because the fleet exceeds the
        // port range.
        let socket = TcpSocket::new_v4()?;
        socket.bind(SocketAddr::from(([127, 0, 0, (2 + n / 8_000) as u8], 0)))?;
        let stream = socket.connect(to).await?;
        stream.set_nodelay(true)?;
        let name = ServerName::try_from("localhost")?;
        let stream = TlsConnector::from(Arc::new(config)).connect(name, stream).await?;
        let body = r#"{"action":"notify"}"#;
        let request = format!(
            "POST /control HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n\
             x-holdfast-instance: {n:032x}.b.{n:x}.10000\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        );
        Ok(AgentConnection { stream: BufReader::with_capacity(1_024, stream), request })
    }
}

impl AgentConnection {
    /// Sends one heartbeat and returns its duration.
    async fn beat(&mut self) -> anyhow::Result<Duration> {
        let begun = Instant::now();
        self.stream.write_all(self.request.as_bytes()).await?;
        self.stream.flush().await?;
        let (mut status, mut length, mut line) = (String::new(), 0, String::new());
        loop {
            line.clear();
            if self.stream.read_line(&mut line).await? == 0 {
                bail!("the server hung up");
            }
            if status.is_empty() {
                status.clone_from(&line);
            }
            if let Some(n) = line.to_ascii_lowercase().strip_prefix("content-length:") {
                length = n.trim().parse()?;
            }
            if line == "\r\n" {
                break;
            }
        }
        let mut body = vec![0; length];
        self.stream.read_exact(&mut body).await?;
        ensure!(status.contains(" 200 "), "{}: {}", status.trim(), String::from_utf8_lossy(&body));
        Ok(begun.elapsed())
    }
}

/// Runs all measurements of heartbeats.
pub fn run(binary: &Path, data: &Path, results: &mut Results) -> anyhow::Result<()> {
    let agents = if quick() { 5_000 } else { AGENTS as usize };
    let connected = connections().min(agents);
    let begun = Instant::now();
    let credentials = Arc::new(enrol(data, connected, agents)?);
    let connected = credentials.certificates.len();
    eprintln!("{connected} agents enrolled in {:.1} s", begun.elapsed().as_secs_f64());
    let server = Server::start(binary, data, "")?;
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let case = format!("{agents} heartbeats, {connected} over TLS");
    let before = (server.cpu_s(), server.rss_mb(), Instant::now());
    let mut lines = runtime.block_on(connect(&credentials, connected, server.agents))?;
    // After the first heartbeat of each agent the server holds everything that it keeps per agent.
    runtime.block_on(round(&mut lines))?;
    let per = connected as f64;
    let mut add =
        |subject: &str, metric, unit, value| results.add(&case, subject, metric, unit, value);
    add("mutual TLS", "connect_cpu_us", "us", (server.cpu_s() - before.0) * 1e6 / per);
    add("mutual TLS", "connects_per_second", "/s", per / before.2.elapsed().as_secs_f64());
    add("mutual TLS", "bytes_per_connection", "B", (server.rss_mb() - before.1) * 1e6 / per);
    let rest: Vec<u32> = (connected as u32 + 1..=agents as u32).collect();
    heartbeats(&server, &server.socket, &rest, None)?;
    for _ in 0..if quick() { 1 } else { 3 } {
        let cpu = server.cpu_s();
        let (begun, took) = (Instant::now(), runtime.block_on(round(&mut lines))?);
        ensure!(took.len() == connected, "{} of {connected} answered", took.len());
        add("mutual TLS", "cpu_us", "us", (server.cpu_s() - cpu) * 1e6 / per);
        add("mutual TLS", "wall_s", "s", begun.elapsed().as_secs_f64());
        let local = heartbeats(&server, &server.socket, &rest, None)?;
        add("unix socket", "cpu_us", "us", local.cpu_us);
        add("unix socket", "wall_s", "s", local.wall_s);
    }
    let paced = paced(&runtime, &server, lines, &rest)?;
    add(SUBJECT, "cpu_cores", "cores", paced.cores);
    add(SUBJECT, "late", "", paced.late as f64);
    add("mutual TLS", "p50_ms", "ms", paced.p50_ms);
    add("mutual TLS", "p99_ms", "ms", paced.p99_ms);
    add(SUBJECT, "rss_mb", "MB", server.rss_mb());
    Ok(())
}

async fn connect(
    credentials: &Arc<Credentials>,
    connected: usize,
    to: SocketAddr,
) -> anyhow::Result<Vec<AgentConnection>> {
    let places = Arc::new(Semaphore::new(CONNECTING));
    let mut tasks = Vec::with_capacity(connected);
    for n in 0..connected {
        let place = places.clone().acquire_owned().await?;
        let credentials = Arc::clone(credentials);
        tasks.push(tokio::spawn(async move {
            let line = credentials.connect(n, to).await;
            drop(place);
            line
        }));
    }
    let mut lines = Vec::with_capacity(connected);
    for task in tasks {
        lines.push(task.await??);
    }
    Ok(lines)
}

/// Sends one heartbeat of each agent, sixteen at a time. Returns the durations, milliseconds.
async fn round(lines: &mut Vec<AgentConnection>) -> anyhow::Result<Vec<f64>> {
    let part = lines.len().div_ceil(16).max(1);
    let mut tasks = Vec::new();
    while !lines.is_empty() {
        let mut mine = lines.split_off(lines.len().saturating_sub(part));
        tasks.push(tokio::spawn(async move {
            let mut took = Vec::with_capacity(mine.len());
            for line in &mut mine {
                took.push(line.beat().await?.as_secs_f64() * 1e3);
            }
            anyhow::Ok((mine, took))
        }));
    }
    let mut all = Vec::new();
    for task in tasks {
        let (mine, took) = task.await??;
        lines.extend(mine);
        all.extend(took);
    }
    Ok(all)
}

struct Paced {
    cores: f64,
    late: usize,
    p50_ms: f64,
    p99_ms: f64,
}

/// Sends at the fleet's own pace: each agent every ten seconds, spread over the interval.
fn paced(
    runtime: &tokio::runtime::Runtime,
    server: &Server,
    lines: Vec<AgentConnection>,
    rest: &[u32],
) -> anyhow::Result<Paced> {
    let rounds: u32 = if quick() {
        1
    } else if wanted("FULL") {
        18
    } else {
        2
    };
    let (cpu, begun) = (server.cpu_s(), Instant::now());
    let all = lines.len();
    let tasks: Vec<_> = lines
        .into_iter()
        .enumerate()
        .map(|(n, mut line)| {
            let first = INTERVAL.mul_f64(n as f64 / all as f64);
            runtime.spawn(async move {
                let mut took = Vec::new();
                for round in 0..rounds {
                    let at = begun + first + INTERVAL * round;
                    tokio::time::sleep_until(at.into()).await;
                    line.beat().await?;
                    // Measured from the scheduled time, so that waiting behind others counts.
                    took.push(at.elapsed().as_secs_f64() * 1e3);
                }
                anyhow::Ok(took)
            })
        })
        .collect();
    // The agents on the socket have the same pace, in ten parts of an interval.
    for part in 0..rounds as usize * 10 {
        let size = rest.len().div_ceil(10).max(1);
        if let Some(agents) = rest.chunks(size).nth(part % 10) {
            heartbeats(server, &server.socket, agents, None)?;
        }
        let next = INTERVAL / 10 * (part as u32 + 1);
        std::thread::sleep(next.saturating_sub(begun.elapsed()));
    }
    let mut took = Vec::new();
    for task in tasks {
        took.extend(runtime.block_on(task)??);
    }
    let late = took.iter().filter(|ms| **ms > INTERVAL.as_secs_f64() * 1e3).count();
    let cores = (server.cpu_s() - cpu) / begun.elapsed().as_secs_f64();
    let (p50_ms, p99_ms) = (quantile(&mut took, 0.5), quantile(&mut took, 0.99));
    Ok(Paced { cores, late, p50_ms, p99_ms })
}
