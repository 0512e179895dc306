//! The cases, their figures and the table.

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use holdfast_bench::{Results, quick};
use journal::{Durability, Journal};
use serde_json::Value;
use tokio::sync::Semaphore;

use crate::load::Fleet;

const HOLDFAST: &str = "holdfast";
const ECHO: &str = "tls echo";
const JOURNAL: &str = "journal only";
/// Maximum number of connections, which more agents share.
const CONNECTIONS_MAX: usize = 256;
/// Sessions per second of 50,000 agents that each send one every five minutes.
const STEADY_PER_SECOND: f64 = 50_000.0 / 300.0;
const STEADY_DOCUMENTS: u64 = 10;
const FIRST_DOCUMENTS: u64 = 5_000;
/// Documents in a session of a first sync: a few MB.
const FIRST_SESSION: u64 = 2_500;

/// Number of agents, and documents per session.
const CASES: [(usize, u64); 5] = [(1, 10), (1, 100), (100, 10), (100, 100), (10_000, 10)];

struct Sizes {
    enrolled: usize,
    seconds: f64,
    rounds: usize,
    first: usize,
    steady: usize,
    steady_s: f64,
}

fn sizes() -> Sizes {
    let full = std::env::var("FULL").is_ok_and(|f| f != "0" && !f.is_empty());
    match (quick(), full) {
        (true, _) => {
            Sizes { enrolled: 300, seconds: 2.0, rounds: 1, first: 5, steady: 300, steady_s: 6.0 }
        }
        (_, true) => Sizes {
            enrolled: 50_000,
            seconds: 6.0,
            rounds: 3,
            first: 1_000,
            steady: 50_000,
            steady_s: 300.0,
        },
        _ => Sizes {
            enrolled: 10_000,
            seconds: 5.0,
            rounds: 3,
            first: 50,
            steady: 2_000,
            steady_s: 30.0,
        },
    }
}

/// A child process that serves.
struct Served {
    child: Child,
    stdin: Option<ChildStdin>,
    stdout: BufReader<ChildStdout>,
    address: SocketAddr,
}

impl Served {
    fn start(words: &[&str], folder: &Path) -> anyhow::Result<Self> {
        let mut child = Command::new(std::env::current_exe()?)
            .arg(words.first().context("no words")?)
            .arg(folder)
            .args(words.get(1..).unwrap_or_default())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let stdin = child.stdin.take();
        let mut stdout = BufReader::new(child.stdout.take().context("no stdout")?);
        let mut line = String::new();
        stdout.read_line(&mut line)?;
        let address = line.trim().parse().with_context(|| format!("no address: {line}"))?;
        Ok(Self { child, stdin, stdout, address })
    }

    fn query_server(&mut self, what: &str) -> anyhow::Result<Value> {
        writeln!(self.stdin.as_mut().context("no stdin")?, "{what}")?;
        let mut line = String::new();
        self.stdout.read_line(&mut line)?;
        Ok(serde_json::from_str(&line)?)
    }

    fn stop(mut self) -> anyhow::Result<()> {
        drop(self.stdin.take());
        ensure!(self.child.wait()?.success(), "the server failed");
        Ok(())
    }
}

/// The result of a load.
struct Load {
    seconds: f64,
    sessions: u64,
    documents: u64,
    took: Vec<f64>,
    /// Requests that the server shed.
    shed: u64,
    before: Value,
    after: Value,
}

impl Load {
    fn grown(&self, name: &str) -> f64 {
        self.after[name].as_f64().unwrap_or(0.0) - self.before[name].as_f64().unwrap_or(0.0)
    }

    fn percentile(&self, share: f64) -> f64 {
        let mut took = self.took.clone();
        took.sort_by(f64::total_cmp);
        let place = ((took.len() as f64 - 1.0) * share).round() as usize;
        took.get(place).copied().unwrap_or(f64::NAN)
    }

    fn report(&self, results: &mut Results, case: &str, subject: &str) {
        let (sessions, documents) = (self.sessions as f64, self.documents as f64);
        let mut add = |metric, unit, value| results.add(case, subject, metric, unit, value);
        add("sessions_per_second", "1/s", sessions / self.seconds);
        add("documents_per_second", "1/s", documents / self.seconds);
        add("cpu_us_per_document", "us", self.grown("cpu_s") * 1e6 / documents);
        add("cpu_us_per_session", "us", self.grown("cpu_s") * 1e6 / sessions);
        add("p50_ms", "ms", self.percentile(0.5));
        add("p99_ms", "ms", self.percentile(0.99));
        add("shed_per_session", "1", self.shed as f64 / sessions);
        if self.grown("records") > 0.0 {
            add("sessions_per_flush", "1", sessions / self.grown("flushes").max(1.0));
            add("flushes_per_session", "1", self.grown("flushes") / sessions);
            add("sessions_per_transaction", "1", sessions / self.grown("batches").max(1.0));
            add("written_per_document", "B", self.grown("written") / documents);
        }
    }
}

/// The distribution of a load.
#[derive(Clone, Copy)]
struct Plan {
    agents: usize,
    documents: u64,
    /// Sessions of each agent; `None` for as many as fit into `seconds`.
    sessions: Option<u64>,
    seconds: f64,
    /// Sessions per second of all agents together, if limited.
    rate: Option<f64>,
    /// Close the connection after each session.
    hang_up: bool,
    /// Send other documents in each session.
    fresh: bool,
}

async fn load(fleet: &Arc<Fleet>, server: &mut Served, plan: Plan) -> anyhow::Result<Load> {
    let to = server.address;
    let lines = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    let before = server.query_server("")?;
    let begun = Instant::now();
    let end = begun + Duration::from_secs_f64(plan.seconds);
    let mut tasks = tokio::task::JoinSet::new();
    for n in 0..plan.agents {
        let (fleet, lines) = (Arc::clone(fleet), Arc::clone(&lines));
        tasks.spawn(async move {
            let mut agent = fleet.agent(n)?;
            let (mut took, mut shed) = (Vec::new(), 0);
            let mut round = 0;
            while plan.sessions.map_or_else(|| Instant::now() < end, |max| round < max) {
                if let Some(rate) = plan.rate {
                    let at = (round as f64 * plan.agents as f64 + n as f64) / rate;
                    if at > plan.seconds {
                        break;
                    }
                    tokio::time::sleep_until((begun + Duration::from_secs_f64(at)).into()).await;
                }
                let first = if plan.fresh { round * plan.documents } else { 0 };
                let line = if plan.hang_up { Some(lines.acquire().await?) } else { None };
                let body = agent.session(first, plan.documents, round + 1);
                let crate::load::Answered { elapsed, vain } = agent.send(to, &body).await?;
                took.push(elapsed.as_secs_f64() * 1e3);
                shed += u64::from(vain);
                if line.is_some() {
                    agent.hang_up();
                }
                round += 1;
            }
            anyhow::Ok((took, shed))
        });
    }
    let (mut took, mut shed) = (Vec::new(), 0);
    while let Some(done) = tasks.join_next().await {
        let (times, vain) = done??;
        took.extend(times);
        shed += vain;
    }
    let seconds = begun.elapsed().as_secs_f64();
    let after = server.query_server("")?;
    let sessions = took.len() as u64;
    Ok(Load { seconds, sessions, documents: sessions * plan.documents, took, shed, before, after })
}

/// Runs all cases.
pub fn compare() -> anyhow::Result<()> {
    let base = std::env::temp_dir().join(format!("holdfast-bench-sync-{}", std::process::id()));
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let mut results = Results::default();
    let done = runtime.block_on(all(&base, &mut results));
    fs::remove_dir_all(&base).ok();
    done?;
    print(&results);
    results.save("sync")
}

async fn all(base: &Path, results: &mut Results) -> anyhow::Result<()> {
    let sizes = sizes();
    fs::create_dir_all(base)?;
    let image = enrolled(base, sizes.enrolled)?;
    let fleet = Arc::new(Fleet::open(&image)?);
    for round in 0..sizes.rounds {
        for (agents, documents) in CASES {
            let agents = agents.min(sizes.enrolled);
            let case = format!("{agents} agents x {documents}");
            let many = agents > CONNECTIONS_MAX;
            let plan = Plan {
                agents,
                documents,
                sessions: many.then_some(1),
                seconds: sizes.seconds,
                rate: None,
                hang_up: many,
                fresh: false,
            };
            for subject in [HOLDFAST, ECHO] {
                let folder = copy(&image, &base.join(format!("run-{round}")))?;
                let word = if subject == HOLDFAST { "serve" } else { "echo" };
                let mut server = Served::start(&[word], &folder)?;
                let done = load(&fleet, &mut server, plan).await?;
                done.report(results, &case, subject);
                server.stop()?;
                fs::remove_dir_all(&folder)?;
            }
            journal_only(base, &fleet, &case, documents, results)?;
        }
    }
    first_sync(base, &image, &fleet, &sizes, results).await?;
    steady(base, &image, &fleet, &sizes, results).await
}

/// Returns a folder with enrolled agents, created where flushes cost nothing if there is such a
/// place.
fn enrolled(base: &Path, agents: usize) -> anyhow::Result<PathBuf> {
    let memory = Path::new("/dev/shm").join(base.file_name().context("no name")?);
    let folder = if fs::create_dir_all(&memory).is_ok() { memory } else { base.join("enrol") };
    fs::create_dir_all(&folder)?;
    let status = Command::new(std::env::current_exe()?)
        .arg("enrol")
        .arg(&folder)
        .arg(agents.to_string())
        .status()?;
    ensure!(status.success(), "the agents could not be enrolled");
    let image = copy(&folder, &base.join("image"))?;
    fs::remove_dir_all(&folder)?;
    Ok(image)
}

fn copy(from: &Path, to: &Path) -> anyhow::Result<PathBuf> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        if entry.file_type()?.is_file() {
            fs::copy(entry.path(), to.join(entry.file_name()))?;
        }
    }
    Ok(to.to_owned())
}

/// Measures the journal alone: the records of the same sessions, with one flush each.
fn journal_only(
    base: &Path,
    fleet: &Fleet,
    case: &str,
    documents: u64,
    results: &mut Results,
) -> anyhow::Result<()> {
    let folder = base.join("journal-only");
    let (journal, _) = Journal::open(&folder, journal::Options::default())?;
    let body = fleet.agent(0)?.session(0, documents, 1);
    let begun = Instant::now();
    let mut records = 0_u64;
    while begun.elapsed() < Duration::from_secs(1) {
        journal.append(&body, Durability::Persist)?;
        records += 1;
    }
    let seconds = begun.elapsed().as_secs_f64();
    results.add(case, JOURNAL, "sessions_per_second", "1/s", records as f64 / seconds);
    results.add(
        case,
        JOURNAL,
        "documents_per_second",
        "1/s",
        (records * documents) as f64 / seconds,
    );
    drop(journal);
    Ok(fs::remove_dir_all(&folder)?)
}

async fn first_sync(
    base: &Path,
    image: &Path,
    fleet: &Arc<Fleet>,
    sizes: &Sizes,
    results: &mut Results,
) -> anyhow::Result<()> {
    let folder = copy(image, &base.join("first"))?;
    let mut server = Served::start(&["serve"], &folder)?;
    let plan = Plan {
        agents: sizes.first,
        documents: FIRST_SESSION,
        sessions: Some(FIRST_DOCUMENTS / FIRST_SESSION),
        seconds: 0.0,
        rate: None,
        hang_up: true,
        fresh: true,
    };
    let done = load(fleet, &mut server, plan).await?;
    let case = format!("first sync {} x {FIRST_DOCUMENTS}", sizes.first);
    done.report(results, &case, HOLDFAST);
    results.add(&case, HOLDFAST, "seconds", "s", done.seconds);
    let settled = server.query_server("checkpoint")?;
    let documents = settled["documents"].as_f64().unwrap_or(f64::NAN);
    let bytes = settled["state_bytes"].as_f64().unwrap_or(f64::NAN);
    results.add(&case, HOLDFAST, "state_bytes_per_document", "B", bytes / documents);
    server.stop()?;
    Ok(fs::remove_dir_all(&folder)?)
}

async fn steady(
    base: &Path,
    image: &Path,
    fleet: &Arc<Fleet>,
    sizes: &Sizes,
    results: &mut Results,
) -> anyhow::Result<()> {
    let folder = copy(image, &base.join("steady"))?;
    let mut server = Served::start(&["serve", "0"], &folder)?;
    let plan = Plan {
        agents: sizes.steady,
        documents: STEADY_DOCUMENTS,
        sessions: None,
        seconds: sizes.steady_s,
        rate: Some(STEADY_PER_SECOND),
        hang_up: true,
        fresh: false,
    };
    let done = load(fleet, &mut server, plan).await?;
    let case = "steady, 50000 agents' rate, one core";
    done.report(results, case, HOLDFAST);
    let busy = done.grown("cpu_s") / done.seconds;
    results.add(case, HOLDFAST, "core_share", "ratio", busy);
    results.add(case, HOLDFAST, "core_left", "ratio", 1.0 - busy);
    server.stop()?;
    Ok(fs::remove_dir_all(&folder)?)
}

fn print(results: &Results) {
    println!(
        "| case | subject | documents/s | sessions/s | CPU us/document | p50 ms | p99 ms | sessions/flush |"
    );
    println!("|---|---|---|---|---|---|---|---|");
    let mut seen: Vec<(String, String)> = Vec::new();
    for figure in results.rows_where(|_| true) {
        let (case, subject) = (figure.case, figure.subject);
        let row = (case.to_owned(), subject.to_owned());
        if seen.contains(&row) {
            continue;
        }
        let cell = |metric: &str, digits: usize| {
            results.get(case, subject, metric).map_or(String::new(), |v| format!("{v:.digits$}"))
        };
        println!(
            "| {case} | {subject} | {} | {} | {} | {} | {} | {} |",
            cell("documents_per_second", 0),
            cell("sessions_per_second", 0),
            cell("cpu_us_per_document", 1),
            cell("p50_ms", 2),
            cell("p99_ms", 2),
            cell("sessions_per_flush", 2),
        );
        seen.push(row);
    }
    for metric in ["state_bytes_per_document", "core_share", "core_left"] {
        for row in results.rows_where(|_| true).iter().filter(|row| row.metric == metric) {
            println!("{}, {}: {metric} {:.3} {}", row.case, row.subject, row.median, row.unit);
        }
    }
}
