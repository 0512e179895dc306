//! The API with 50,000 agents: the real release binary, queried over HTTP on loopback.
//!
//! CPU is the server process's own (its CPU clock before and after), queries are taken from the
//! answer's `Server-Timing`, and p99 is measured with 200 clients at once. The published design's
//! access to its database (`peer.rs`) runs next to it; figures of its whole program are quoted
//! (`quoted.rs`).
//!
//! Arguments name parts: `reads orders config churn login beats linear`; the others keep their
//! figures. `QUICK=1` means fewer repetitions and smaller fleets, `FULL=1` the durations that the
//! goals name. A part that exceeds its time limit ends the program; earlier measurements are saved.

#[path = "../api/beats.rs"]
mod beats;
#[path = "../api/churn.rs"]
mod churn;
#[path = "../api/client.rs"]
mod client;
#[path = "../api/config.rs"]
mod config;
#[path = "../api/load.rs"]
mod load;
#[path = "../api/logins.rs"]
mod logins;
#[path = "../api/orders.rs"]
mod orders;
#[path = "../api/peer.rs"]
mod peer;
#[path = "../api/plot.rs"]
mod plot;
#[path = "../api/quoted.rs"]
mod quoted;
#[path = "../api/reads.rs"]
mod reads;
#[path = "../api/seed.rs"]
mod seed;
#[path = "../api/server.rs"]
mod server;

use std::env::{args, var_os};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use holdfast_bench::{Results, quick, wanted};

use seed::{Mix, seed};
use server::Server;

const AGENTS: u32 = 50_000;
const SUBJECT: &str = "holdfast";
const PARTS: [&str; 7] = ["reads", "orders", "config", "churn", "login", "beats", "linear"];

/// Returns the part that measures a case.
fn part_of(case: &str) -> &'static str {
    let word = |text: &str| case.contains(text);
    match case {
        _ if case.starts_with("linear") => "linear",
        _ if case.contains("login") => "login",
        _ if word("heartbeats") => "beats",
        _ if word("churn") => "churn",
        _ if word("configuration") => "config",
        _ if word("PUT") => "orders",
        _ => "reads",
    }
}

fn main() -> anyhow::Result<()> {
    let words: Vec<String> = args().skip(1).collect();
    if let [word, socket, file] = &words[..]
        && word == peer::CHILD
    {
        return peer::serve(Path::new(socket), Path::new(file));
    }
    for word in &words {
        ensure!(PARTS.contains(&&**word), "no part {word}: {}", PARTS.join(", "));
    }
    let asked = |part: &str| words.is_empty() || words.iter().any(|w| w == part);
    let binary = binary()?;
    let scratch = scratch()?;
    let mut results = if words.is_empty() {
        Results::default()
    } else {
        Results::load("api", |case, _| asked(part_of(case)))?
    };
    let done = run(&binary, &scratch, &asked, &mut results);
    let _ = fs::remove_dir_all(&scratch);
    done?;
    for (case, subject, metric, unit, value) in quoted::PEERS {
        let case = format!("{AGENTS} {case}");
        if results.get(&case, subject, metric).is_none() {
            results.add(&case, subject, metric, unit, value);
        }
    }
    results.print(SUBJECT);
    results.save("api")
}

fn run(
    binary: &Path,
    scratch: &Path,
    asked: &dyn Fn(&str) -> bool,
    results: &mut Results,
) -> anyhow::Result<()> {
    let mixed = scratch.join("mixed");
    for part in PARTS.into_iter().filter(|part| asked(part)) {
        let (started, limit) = (Instant::now(), Limit::of(part, scratch));
        if ["reads", "churn", "login"].contains(&part) && !mixed.exists() {
            seed(&mixed, AGENTS, Mix::Mixed)?;
        }
        match part {
            "orders" => orders(binary, scratch, results)?,
            "config" => {
                let active = scratch.join("configured");
                seed(&active, AGENTS, Mix::Active)?;
                config::run(&Server::start(binary, &active, "")?, results)?;
                fs::remove_dir_all(&active)?;
            }
            "login" => logins::run(binary, &mixed, results)?,
            "beats" => beats::run(binary, &scratch.join("beats"), results)?,
            "linear" => reads::linearity(binary, scratch, results)?,
            _ => one_server(part, binary, scratch, &mixed, results)?,
        }
        drop(limit);
        eprintln!("{part}: {:.0} s", started.elapsed().as_secs_f64());
        results.save("api")?;
    }
    Ok(())
}

/// Ends the program if a part exceeds its time limit.
struct Limit(#[expect(dead_code, reason = "its end is the sign")] Sender<()>);

impl Limit {
    fn of(part: &'static str, scratch: &Path) -> Self {
        let scratch = scratch.to_owned();
        let seconds = match (quick(), wanted("FULL")) {
            (true, _) => 120,
            // Logins by rate and by workers take seven minutes.
            (false, false) if part == "login" => 600,
            (false, false) => 300,
            (false, true) => 3_600,
        };
        let (ends, ended) = channel::<()>();
        std::thread::spawn(move || {
            if ended.recv_timeout(Duration::from_secs(seconds)) == Err(RecvTimeoutError::Timeout) {
                eprintln!("{part}: not done within {seconds} s; what was done before is saved");
                let _ = fs::remove_dir_all(&scratch);
                std::process::exit(1);
            }
        });
        Self(ends)
    }
}

fn orders(binary: &Path, scratch: &Path, results: &mut Results) -> anyhow::Result<()> {
    let active = scratch.join("active");
    seed(&active, AGENTS, Mix::Active)?;
    orders::restart(&Server::start(binary, &active, "")?, results)?;
    fs::remove_dir_all(&active)?;
    let silent = scratch.join("silent");
    seed(&silent, AGENTS, Mix::Silent)?;
    orders::nobody(&Server::start(binary, &silent, "")?, results)?;
    Ok(fs::remove_dir_all(&silent)?)
}

/// Measures the requests to one server with the fleet of mixed statuses.
fn one_server(
    part: &str,
    binary: &Path,
    scratch: &Path,
    data: &Path,
    results: &mut Results,
) -> anyhow::Result<()> {
    if part == "reads" {
        let times = if quick() { 5 } else { 20 };
        peer::run(scratch, &data.join("registry.db"), AGENTS, times, results)?;
    }
    let server = Server::start(binary, data, "")?;
    let token = server.login()?;
    if part == "churn" {
        return churn::run(&server, data, &token, results);
    }
    reads::each(&server, &token, AGENTS, if quick() { 20 } else { 200 }, results)?;
    reads::socket(&server, AGENTS, results)?;
    reads::crowds(&server, &token, results)
}

/// Returns the release binary: the one named, or the one in the product's build folder.
fn binary() -> anyhow::Result<PathBuf> {
    let path = match var_os("HOLDFAST_BIN") {
        Some(path) => PathBuf::from(path),
        None => Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/release/holdfast"),
    };
    path.canonicalize().with_context(|| format!("{}: build it with make build", path.display()))
}

fn scratch() -> anyhow::Result<PathBuf> {
    let base = var_os("HOLDFAST_BENCH_DIR").map_or_else(std::env::temp_dir, PathBuf::from);
    let path = base.join(format!("holdfast-bench-api-{}", std::process::id()));
    fs::create_dir_all(&path)?;
    Ok(path)
}

/// Writes a file next to the results.
fn results_file(name: &str, text: &str) -> anyhow::Result<()> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("results");
    fs::create_dir_all(&folder)?;
    Ok(fs::write(folder.join(name), text)?)
}
