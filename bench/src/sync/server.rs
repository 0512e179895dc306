//! The child: the parts of a real server on a folder, which prints its figures for each line on
//! stdin; and an echo server that measures TLS and HTTP alone.

use std::io::BufRead as _;
use std::path::Path;
use std::sync::Arc;

use anyhow::Context as _;
use commit::{Commit, CommitOptions};
use env::clock::SystemClock;
use env::random::SystemRandom;
use journal::Journal;
use registry::{
    AgentEnrolment, ControlStore, Reader, Registry, RegistryOptions, TokenTerms, WriteContext,
};
use serde_json::json;
use sessions::{Sessions, SessionsOptions};
use state::{StateOptions, StateStore};

/// All certificates use one key, because only the server is measured.
const TOKEN_USES: u32 = 1_000;

/// Enrols agents and writes what their clients need to `agents.json`: the CA, one key, and a
/// certificate for each.
pub fn enrol(folder: &Path, agents: usize) -> anyhow::Result<()> {
    let registry = registry(folder)?;
    let key = rcgen::KeyPair::generate()?;
    let csr = rcgen::CertificateParams::default().serialize_request(&key)?.pem()?;
    let mut certificates = Vec::new();
    let mut token = String::new();
    for n in 0..agents {
        if n % TOKEN_USES as usize == 0 {
            let terms = TokenTerms::new(TOKEN_USES, 3_600);
            token = registry.create_enrolment_token(&WriteContext::server(), &terms)?;
        }
        let request = AgentEnrolment { name: format!("agent-{n}"), ..AgentEnrolment::default() };
        let enrolled = registry.enroll(&token, &csr, &request)?;
        certificates.push((enrolled.agent.0, enrolled.certificate_pem));
    }
    let all = json!({
        "ca": registry.ca_pem(), "key": key.serialize_pem(), "certificates": certificates,
        "cluster": registry.options().cluster_name,
    });
    std::fs::write(folder.join("agents.json"), serde_json::to_vec(&all)?)?;
    Ok(registry.close()?)
}

fn registry(folder: &Path) -> anyhow::Result<Registry> {
    Ok(Registry::open(
        Arc::new(ControlStore::open(&folder.join("registry.db"))?),
        folder,
        Arc::new(SystemClock::new()),
        Arc::new(SystemRandom),
        RegistryOptions::default(),
    )?)
}

/// Serves until stdin ends and answers each line of stdin with the figures so far.
pub fn serve(folder: &Path, core: Option<usize>) -> anyhow::Result<()> {
    if let Some(core) = core {
        pin(core)?;
    }
    let threads = if core.is_some() { 1 } else { 2 };
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(threads).enable_all().build()?;
    let state: Arc<StateStore> =
        Arc::new(StateStore::open(&folder.join("state.db"), StateOptions::default())?);
    let (journal, _) = Journal::open(&folder.join("journal"), journal::Options::default())?;
    let (commit, _) = Commit::open(journal, Arc::clone(&state), CommitOptions::default())?;
    let registry = registry(folder)?;
    let options = SessionsOptions {
        https: Some("127.0.0.1:0".parse()?),
        names: vec!["localhost".into()],
        ..SessionsOptions::default()
    };
    let _entered = runtime.enter();
    let handle =
        Sessions::start(options, Arc::clone(&commit), Arc::clone(&state), registry.clone())?;
    println!("{}", handle.local_addr().context("no address")?);
    for line in std::io::stdin().lock().lines() {
        if line? == "checkpoint" {
            commit.checkpoint()?;
        }
        let stats = commit.stats();
        let documents: u64 =
            state.counts(&Reader::server())?.documents.iter().map(|(_, n, _)| n).sum();
        println!(
            "{}",
            json!({"cpu_s": cpu_s(), "records": stats.records, "flushes": stats.journal_flushes,
                "batches": stats.batches, "journal_bytes": stats.journal_bytes,
                "record_bytes": stats.record_bytes, "documents": documents,
                "written": written(), "state_bytes": bytes(&folder.join("state.db"))})
        );
    }
    runtime.block_on(handle.shutdown());
    runtime.block_on(commit.close())?;
    Ok(registry.close()?)
}

/// Answers every request with 200 and skips its body by its length. Measures TLS, HTTP and the
/// sockets with the same certificates.
pub fn echo(folder: &Path) -> anyhow::Result<()> {
    let registry = registry(folder)?;
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let config = crate::load::server_config(&registry)?;
    let listener = runtime.block_on(tokio::net::TcpListener::bind("127.0.0.1:0"))?;
    println!("{}", listener.local_addr()?);
    runtime.spawn(async move {
        let acceptor = tokio_rustls::TlsAcceptor::from(config);
        while let Ok((stream, _)) = listener.accept().await {
            let acceptor = acceptor.clone();
            tokio::spawn(async move {
                let _ = stream.set_nodelay(true);
                if let Ok(stream) = acceptor.accept(stream).await {
                    let _ = crate::load::answer_all(stream).await;
                }
            });
        }
    });
    for line in std::io::stdin().lock().lines() {
        line?;
        println!(
            "{}",
            json!({"cpu_s": cpu_s(), "records": 0, "flushes": 0, "batches": 0,
            "journal_bytes": 0, "record_bytes": 0, "documents": 0, "written": written(),
            "state_bytes": 0})
        );
    }
    Ok(())
}

/// Returns the CPU time of this process so far, user and system, seconds.
fn cpu_s() -> f64 {
    let mut usage = std::mem::MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: the pointer is valid for the call, and rusage is plain numbers.
    let usage = unsafe {
        libc::getrusage(libc::RUSAGE_SELF, usage.as_mut_ptr());
        usage.assume_init()
    };
    let seconds = |t: libc::timeval| t.tv_sec as f64 + t.tv_usec as f64 / 1e6;
    seconds(usage.ru_utime) + seconds(usage.ru_stime)
}

/// Returns the bytes that this process caused to be written to a disk.
fn written() -> u64 {
    let text = std::fs::read_to_string("/proc/self/io").unwrap_or_default();
    let line = text.lines().find_map(|l| l.strip_prefix("write_bytes: "));
    line.and_then(|n| n.parse().ok()).unwrap_or(0)
}

fn bytes(file: &Path) -> u64 {
    let of = |name: &Path| std::fs::metadata(name).map_or(0, |m| m.len());
    of(file)
}

fn pin(core: usize) -> anyhow::Result<()> {
    let mut set = rustix::thread::CpuSet::new();
    set.set(core);
    Ok(rustix::thread::sched_setaffinity(None, &set)?)
}
