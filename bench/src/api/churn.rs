//! Agents that are added and removed. Every second one enrols with a certificate request over the
//! agents' port and sends heartbeats over mutual TLS; the others are registered by the API and use
//! the unix socket. The API removes them all.

use std::collections::{BTreeMap, VecDeque};
use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, anyhow, ensure};
use holdfast_bench::{Results, quick};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore};
use serde_json::{Value, json};

use crate::client::Client;
use crate::load::quantile;
use crate::server::Server;
use crate::{AGENTS, SUBJECT};

/// Approximate number of agents that exist at the same time.
const STOCK: u32 = 250;
/// Additions and removals in the paced minute, slightly more than the goal.
const ROUNDS: u32 = 1_030;
/// Number of workers that add and remove agents at the same time.
const WORKERS: u32 = 4;

/// An existing agent.
struct Present {
    id: String,
    /// The connection of an agent with a certificate, and the header lines of its requests.
    line: Option<(Client, String)>,
}

/// Adds agents and removes them, one after the other.
struct Worker {
    /// Number of the next agent, which grows by [`WORKERS`].
    next: u32,
    api: Client,
    socket: Client,
    port: SocketAddr,
    roots: Arc<RootCertStore>,
    /// Enrolment token with enough uses for the whole run.
    token: String,
    present: VecDeque<Present>,
    /// Durations of requests to the API, milliseconds.
    api_ms: Vec<f64>,
    /// Durations of enrolments including the handshake, milliseconds.
    enrol_ms: Vec<f64>,
}

/// Enrols a thousand agents a minute, lets them send a heartbeat and removes them. In each round of
/// the paced minute one agent is added, and one that was added about [`STOCK`] rounds earlier is
/// removed. At the end every counter must have its old value, and at the end of the minute exactly
/// the stock more.
pub fn run(server: &Server, data: &Path, token: &str, results: &mut Results) -> anyhow::Result<()> {
    let mut client = server.client(token)?;
    let before = counters(&mut client)?;
    let (rounds, stock) = if quick() { (60, 24) } else { (ROUNDS, STOCK) };
    let pace = Duration::from_secs_f64(if quick() { 0.0 } else { 60.0 / f64::from(rounds) });
    let mut workers = workers(server, data, token, &mut client, rounds + stock)?;
    all(&mut workers, |worker| (0..stock.div_ceil(WORKERS)).try_for_each(|_| worker.add_agent()))?;
    for worker in &mut workers {
        (worker.api_ms.clear(), worker.enrol_ms.clear());
    }
    let (cpu, started) = (server.cpu_s(), Instant::now());
    all(&mut workers, |worker| {
        let first = worker.next % WORKERS;
        for round in (first..rounds).step_by(WORKERS as usize) {
            std::thread::sleep((pace * round).saturating_sub(started.elapsed()));
            worker.add_agent()?;
            worker.go()?;
        }
        Ok(())
    })?;
    let (seconds, cpu_ms) = (started.elapsed().as_secs_f64(), (server.cpu_s() - cpu) * 1e3);
    // The earlier connection was closed after a minute without a request.
    let mut client = server.client(token)?;
    let there = counters(&mut client)?;
    let present: usize = workers.iter().map(|worker| worker.present.len()).sum();
    for name in ["connection total", "connection active", "groups default"] {
        let of = |counts: &BTreeMap<String, u64>| counts.get(name).copied().unwrap_or(0);
        let expected = of(&before) + present as u64;
        ensure!(of(&there) == expected, "{name}: {} in place of {expected}", of(&there));
    }
    let mut api_ms: Vec<f64> =
        workers.iter_mut().flat_map(|w| std::mem::take(&mut w.api_ms)).collect();
    let mut enrol_ms: Vec<f64> =
        workers.iter_mut().flat_map(|w| std::mem::take(&mut w.enrol_ms)).collect();
    all(&mut workers, |worker| {
        while !worker.present.is_empty() {
            worker.go()?;
        }
        Ok(())
    })?;
    ensure!(counters(&mut client)? == before, "the counters differ after the churn");
    let case = format!("{AGENTS} churn");
    let mut add = |metric, unit, value| results.add(&case, SUBJECT, metric, unit, value);
    add("agents_per_minute", "/min", f64::from(rounds) * 60.0 / seconds);
    add("certificates_per_minute", "/min", enrol_ms.len() as f64 * 60.0 / seconds);
    add("cpu_ms", "ms", cpu_ms / f64::from(rounds));
    add("p50_ms", "ms", quantile(&mut api_ms, 0.5));
    add("enrol_p50_ms", "ms", quantile(&mut enrol_ms, 0.5));
    add("counters_wrong", "", 0.0);
    results.add(&case, "goal", "agents_per_minute", "/min", 1_000.0);
    Ok(())
}

/// Creates the workers, which share one enrolment token.
fn workers(
    server: &Server,
    data: &Path,
    token: &str,
    client: &mut Client,
    agents: u32,
) -> anyhow::Result<Vec<Worker>> {
    let body = json!({"uses": agents + WORKERS, "ttl_s": 3_600}).to_string();
    let lines = "Content-Type: application/json\r\n";
    let answer = client.send("POST", "/enrolment/tokens", lines, body.as_bytes())?;
    let text = String::from_utf8_lossy(&answer.body).into_owned();
    ensure!(answer.status == 200, "enrolment token: {text}");
    let made: Value = serde_json::from_slice(&answer.body)?;
    let enrolment = made["data"]["token"].as_str().context("no token")?.to_owned();
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(&fs::read(data.join("keys/ca.pem"))?)?)?;
    let roots = Arc::new(roots);
    (0..WORKERS)
        .map(|next| {
            Ok(Worker {
                next,
                api: server.client(token)?,
                socket: Client::unix(&server.socket)?,
                port: server.agents,
                roots: Arc::clone(&roots),
                token: enrolment.clone(),
                present: VecDeque::new(),
                api_ms: Vec::new(),
                enrol_ms: Vec::new(),
            })
        })
        .collect()
}

/// Runs `work` on all workers at the same time.
fn all(
    workers: &mut [Worker],
    work: impl Fn(&mut Worker) -> anyhow::Result<()> + Sync,
) -> anyhow::Result<()> {
    let work = &work;
    std::thread::scope(|scope| {
        let threads: Vec<_> =
            workers.iter_mut().map(|worker| scope.spawn(move || work(worker))).collect();
        threads
            .into_iter()
            .try_for_each(|thread| thread.join().map_err(|_| anyhow!("a worker panicked"))?)
    })
}

impl Worker {
    /// Adds an agent and sends its first heartbeat, after which it is active.
    fn add_agent(&mut self) -> anyhow::Result<()> {
        let number = self.next;
        self.next += WORKERS;
        let present = if (number / WORKERS).is_multiple_of(2) {
            self.enrolled(number)?
        } else {
            self.registered(number)?
        };
        self.present.push_back(present);
        Ok(())
    }

    /// Enrols an agent with a certificate request over the agents' port and sends a heartbeat over
    /// mutual TLS.
    fn enrolled(&mut self, number: u32) -> anyhow::Result<Present> {
        let key = rcgen::KeyPair::generate()?;
        let csr = rcgen::CertificateParams::default().serialize_request(&key)?.pem()?;
        let name = format!("churn-{number}");
        let body = json!({"token": self.token, "name": name, "groups": [], "csr": csr}).to_string();
        let started = Instant::now();
        let answer = Client::tls(self.port, self.config(None)?)?.send(
            "POST",
            "/enroll",
            "Content-Type: application/json\r\n",
            body.as_bytes(),
        )?;
        let text = String::from_utf8_lossy(&answer.body).into_owned();
        ensure!(answer.status == 200, "churn: enrolment: {}: {text}", answer.status);
        self.enrol_ms.push(started.elapsed().as_secs_f64() * 1e3);
        let enrolled: Value = serde_json::from_slice(&answer.body)?;
        let id = enrolled["agent"].as_str().context("no id")?.to_owned();
        let certificate = enrolled["certificate"].as_str().context("no certificate")?;
        let own = (
            CertificateDer::from_pem_slice(certificate.as_bytes())?,
            PrivateKeyDer::from_pem_slice(key.serialize_pem().as_bytes())?,
        );
        let (mut line, lines) =
            (Client::tls(self.port, self.config(Some(own))?)?, instance(number));
        let heard = line.send("POST", "/control", &lines, HEARTBEAT)?;
        let text = String::from_utf8_lossy(&heard.body).into_owned();
        ensure!(heard.status == 200, "churn: heartbeat of {id}: {}: {text}", heard.status);
        Ok(Present { id, line: Some((line, lines)) })
    }

    /// Registers an agent by the API and sends a heartbeat through the unix socket.
    fn registered(&mut self, number: u32) -> anyhow::Result<Present> {
        let path = format!("/agents/insert/quick?agent_name=churn-{number}");
        let answer = self.api.send("POST", &path, "", b"")?;
        ensure!(answer.status == 200, "churn: {}", String::from_utf8_lossy(&answer.body));
        self.api_ms.push(answer.took.as_secs_f64() * 1e3);
        let body: Value = serde_json::from_slice(&answer.body)?;
        let id = body["data"]["id"].as_str().context("no id")?.to_owned();
        let lines = format!("X-Wazuh-Agent-Id: {id}\r\nContent-Type: application/json\r\n");
        let heard = self.socket.send("POST", "/control", &lines, HEARTBEAT)?;
        ensure!(heard.status == 200, "churn: heartbeat of {id}: {}", heard.status);
        Ok(Present { id, line: None })
    }

    /// Removes the oldest agent and checks that its certificate is refused.
    fn go(&mut self) -> anyhow::Result<()> {
        let Present { id, line } = self.present.pop_front().context("no agent is there")?;
        let path = format!("/agents?agents_list={id}&status=active&older_than=0s&purge=true");
        let answer = self.api.send("DELETE", &path, "", b"")?;
        let body: Value = serde_json::from_slice(&answer.body)?;
        ensure!(body["data"]["total_affected_items"] == 1, "churn: {body}");
        self.api_ms.push(answer.took.as_secs_f64() * 1e3);
        if let Some((mut line, lines)) = line {
            // The request is refused, or the connection is closed.
            let beat = line.send("POST", "/control", &lines, HEARTBEAT);
            ensure!(!beat.is_ok_and(|heard| heard.status == 200), "{id} is heard still");
        }
        Ok(())
    }

    fn config(
        &self,
        own: Option<(CertificateDer<'static>, PrivateKeyDer<'static>)>,
    ) -> anyhow::Result<Arc<ClientConfig>> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_root_certificates(Arc::clone(&self.roots));
        let mut config = match own {
            Some((certificate, key)) => builder.with_client_auth_cert(vec![certificate], key)?,
            None => builder.with_no_client_auth(),
        };
        config.resumption = rustls::client::Resumption::disabled();
        Ok(Arc::new(config))
    }
}

/// A heartbeat with an operating system, by which the agent is counted.
const HEARTBEAT: &[u8] = br#"{"action":"notify","version":"Holdfast v9.9.9","os":{"name":"Churn",
    "platform":"churn","type":"linux","version":"1","arch":"x86_64","uname":"Linux"}}"#;

/// Returns the instance header of an agent.
fn instance(number: u32) -> String {
    format!(
        "Content-Type: application/json\r\nX-Holdfast-Instance: {number:032x}.b.{number:x}.10000\r\n"
    )
}

/// Returns the counters of the API: by status, group and platform, and those of the overview.
fn counters(client: &mut Client) -> anyhow::Result<BTreeMap<String, u64>> {
    let mut all = BTreeMap::new();
    let status: Value = serde_json::from_slice(&client.get("/agents/summary/status")?.body)?;
    let summary: Value = serde_json::from_slice(&client.get("/agents/summary")?.body)?;
    let tables = [
        ("connection", &status["data"]["connection"]),
        ("groups", &summary["data"]["groups"]),
        ("os", &summary["data"]["os"]),
    ];
    for (table, fields) in tables {
        for (name, count) in fields.as_object().into_iter().flatten() {
            all.insert(format!("{table} {name}"), count.as_u64().unwrap_or(0));
        }
    }
    let overview: Value = serde_json::from_slice(&client.get("/overview/agents")?.body)?;
    for table in ["groups", "agent_os", "agent_version"] {
        for row in overview["data"][table].as_array().into_iter().flatten() {
            let name = [&row["name"], &row["os"], &row["version"]].map(Value::to_string).concat();
            all.insert(format!("{table} {name}"), row["count"].as_u64().unwrap_or(0));
        }
    }
    // An empty class may have the count 0 or be absent.
    all.retain(|_, count| *count > 0);
    Ok(all)
}
