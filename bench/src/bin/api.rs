//! The REST API at 50,000 agents: the real release binary, asked over HTTP on loopback.
//!
//! CPU is the server process's own (its CPU clock before and after), queries are what the answer's
//! `Server-Timing` says, p99 is under 200 clients at once. The peers' columns are figures that were
//! published or measured elsewhere (`PEERS` below): their databases cannot run here, so they are
//! quoted, not measured, and no ratio is made of them.
//!
//! `QUICK=1`: fewer repetitions, no logins by worker. `FULL=1`: also 1,000 to 200,000 agents.

#[path = "../api/client.rs"]
mod client;
#[path = "../api/load.rs"]
mod load;
#[path = "../api/logins.rs"]
mod logins;
#[path = "../api/plot.rs"]
mod plot;
#[path = "../api/seed.rs"]
mod seed;
#[path = "../api/server.rs"]
mod server;

use std::env::var_os;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, ensure};
use holdfast_bench::{Results, quick};
use serde_json::Value;

use client::Client;
use load::{crowd, heartbeats, one_by_one};
use seed::{Mix, seed};
use server::Server;

const AGENTS: u32 = 50_000;
const SUBJECT: &str = "holdfast";
const CROWD: usize = 200;
/// Sizes of the fleets that show how cost grows.
const SIZES: [u32; 6] = [1_000, 5_000, 20_000, 50_000, 100_000, 200_000];

/// What is asked, with the goal for its CPU in milliseconds.
const READS: [(&str, &str, f64); 9] = [
    ("GET /agents/summary/status", "/agents/summary/status", 1.0),
    ("GET /agents?limit=500", "/agents?limit=500", 5.0),
    ("GET /agents?limit=1", "/agents?limit=1", 1.0),
    ("GET /agents/summary", "/agents/summary", 2.0),
    ("GET /overview/agents", "/overview/agents", 3.0),
    ("GET /agents?status=active&limit=500", "/agents?status=active&limit=500", 5.0),
    ("GET /agents?select=id&limit=100000", "/agents?select=id&limit=100000", 30.0),
    ("GET /agents?q=os.platform=debian", "/agents?q=os.platform=debian&limit=500", 10.0),
    ("GET /agents?search=agent-0419", "/agents?search=agent-0419", 100.0),
];

/// Quoted figures: case, subject, metric, unit, value. "real Python API": the published program
/// over a stand-in for its database, one client; "its document": what its makers published.
const PEERS: [(&str, &str, &str, &str, f64); 22] = [
    ("GET /agents/summary/status", "wazuh 4.12 (quoted)", "wall_ms", "ms", 2216.0),
    ("GET /agents/summary/status", "wazuh 4.12 (quoted)", "queries", "", 83.0),
    ("GET /agents/summary/status", "wazuh 4.13.1 (quoted)", "wall_ms", "ms", 243.0),
    ("GET /agents/summary/status", "wazuh 4.13.1 (quoted)", "queries", "", 6.0),
    ("GET /agents/summary/status", "its document, before", "queries", "", 102.0),
    ("GET /agents/summary/status", "its document, after", "queries", "", 6.0),
    ("GET /agents?limit=500", "wazuh 4.12 (quoted)", "wall_ms", "ms", 1325.0),
    ("GET /agents?limit=500", "wazuh 4.13.1 (quoted)", "wall_ms", "ms", 262.0),
    ("GET /agents?limit=1", "wazuh 4.12 (quoted)", "wall_ms", "ms", 1307.0),
    ("GET /agents?limit=1", "wazuh 4.13.1 (quoted)", "wall_ms", "ms", 166.0),
    ("GET /agents/summary", "wazuh 4.13.1 (quoted)", "wall_ms", "ms", 480.0),
    ("GET /overview/agents", "wazuh 4.12 (quoted)", "wall_ms", "ms", 3216.0),
    ("GET /overview/agents", "wazuh 4.13.1 (quoted)", "wall_ms", "ms", 942.0),
    ("PUT /agents/restart", "wazuh 4.13.1 (quoted, unconfirmed datagrams)", "wall_ms", "ms", 1156.0),
    ("PUT /agents/restart, all inactive", "wazuh 4.12 (quoted)", "wall_ms", "ms", 100_900.0),
    ("PUT /agents/restart, all inactive", "wazuh 4.13.1 (quoted)", "wall_ms", "ms", 429.0),
    ("PUT /agents/restart, all inactive", "its document, before", "wall_ms", "ms", 27_300.0),
    ("PUT /agents/restart, all inactive", "its document, after", "wall_ms", "ms", 600.0),
    ("login", "wazuh 4.12 (quoted)", "wall_ms", "ms", 215.0),
    ("login", "wazuh 4.13.1 (quoted)", "wall_ms", "ms", 200.0),
    ("agent ids over the socket", "wazuh 4.13.1 (quoted)", "wall_ms", "ms", 47.0),
    ("agent ids over the socket", "wazuh 4.12 (quoted)", "queries", "", 20.0),
];

fn main() -> anyhow::Result<()> {
    let binary = binary()?;
    let scratch = scratch()?;
    let mut results = Results::default();
    let done = run(&binary, &scratch, &mut results);
    let _ = fs::remove_dir_all(&scratch);
    done?;
    for (case, subject, metric, unit, value) in PEERS {
        results.add(&format!("{AGENTS} {case}"), subject, metric, unit, value);
    }
    results.print(SUBJECT);
    results.save("api")
}

fn run(binary: &Path, scratch: &Path, results: &mut Results) -> anyhow::Result<()> {
    let data = scratch.join("mixed");
    seed(&data, AGENTS, Mix::Mixed)?;
    {
        let server = Server::start(binary, &data, "")?;
        let token = server.login()?;
        reads(&server, &token, AGENTS, results)?;
        socket(&server, results)?;
        crowds(&server, &token, results)?;
        restart(&server, &token, results)?;
        beats(&server, results)?;
        churn(&server, &token, results)?;
        login(&server, &token, results)?;
    }
    let silent = scratch.join("silent");
    seed(&silent, AGENTS, Mix::Silent)?;
    {
        let server = Server::start(binary, &silent, "")?;
        let mut client = server.client(&server.login()?)?;
        let each = one_by_one(&server, &mut client, "PUT", "/agents/restart", 10)?;
        let case = format!("{AGENTS} PUT /agents/restart, all inactive");
        results.add(&case, SUBJECT, "cpu_ms", "ms", each.cpu_ms);
        results.add(&case, SUBJECT, "p50_ms", "ms", each.p50_ms);
        results.add(&case, SUBJECT, "queries", "", each.queries);
    }
    if var_os("FULL").is_some() {
        linearity(binary, scratch, results)?;
    }
    Ok(())
}

/// The release binary: named, or built where the product builds it.
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

fn reads(server: &Server, token: &str, agents: u32, results: &mut Results) -> anyhow::Result<()> {
    let mut client = server.client(token)?;
    for (case, path, goal_ms) in READS {
        let times = if quick() { 20 } else { 200 };
        // The costly ones fewer times.
        let times = if goal_ms > 20.0 { times / 10 } else { times };
        let each = one_by_one(server, &mut client, "GET", path, times)?;
        let case = format!("{agents} {case}");
        results.add(&case, SUBJECT, "cpu_ms", "ms", each.cpu_ms);
        results.add(&case, SUBJECT, "p50_ms", "ms", each.p50_ms);
        results.add(&case, SUBJECT, "queries", "", each.queries);
    }
    Ok(())
}

/// All numbers in one answer, beside pages of 500.
fn socket(server: &Server, results: &mut Results) -> anyhow::Result<()> {
    let mut client = Client::unix(&server.socket)?;
    let times = if quick() { 10 } else { 50 };
    let each = one_by_one(server, &mut client, "GET", "/v1/agents/ids", times)?;
    let case = format!("{AGENTS} agent ids over the socket");
    results.add(&case, SUBJECT, "cpu_ms", "ms", each.cpu_ms);
    results.add(&case, SUBJECT, "p50_ms", "ms", each.p50_ms);
    results.add(&case, SUBJECT, "queries", "", each.queries);
    let answer = client.get("/v1/agents/ids")?;
    let ids: Vec<u32> = serde_json::from_slice(&answer.body)?;
    ensure!(ids.len() == AGENTS as usize, "{} ids", ids.len());
    let before = server.cpu_s();
    for offset in (0..=AGENTS).step_by(500) {
        client.get(&format!("/agents?select=id&limit=500&offset={offset}"))?;
    }
    let paged = (server.cpu_s() - before) * 1e3;
    results.add(&case, "holdfast, pages of 500", "cpu_ms", "ms", paged);
    Ok(())
}

fn crowds(server: &Server, token: &str, results: &mut Results) -> anyhow::Result<()> {
    let time = Duration::from_millis(if quick() { 1_000 } else { 5_000 });
    for (case, path, _) in READS.into_iter().take(5) {
        let crowd = crowd(server, token, path, CROWD, time)?;
        let case = format!("{AGENTS} {case}");
        results.add(&case, SUBJECT, "p99_ms", "ms", crowd.p99_ms);
        results.add(&case, SUBJECT, "crowd_p50_ms", "ms", crowd.p50_ms);
        results.add(&case, SUBJECT, "requests_per_second", "/s", crowd.requests_per_second);
    }
    Ok(())
}

/// Restart everybody, deliver it to every agent, and count what became of it.
fn restart(server: &Server, token: &str, results: &mut Results) -> anyhow::Result<()> {
    let case = format!("{AGENTS} PUT /agents/restart");
    let mut client = server.client(token)?;
    let rounds = if quick() { 1 } else { 3 };
    for _ in 0..rounds {
        let before = server.cpu_s();
        let answer = client.send("PUT", "/agents/restart", "", b"")?;
        let cpu_ms = (server.cpu_s() - before) * 1e3;
        let told: Value = serde_json::from_slice(&answer.body)?;
        let command = told["data"]["command"].as_u64().context("no command")?;
        let agents: Vec<u32> = told["data"]["affected_items"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(|id| id.as_str()?.parse().ok())
            .collect();
        let given = heartbeats(server, &server.socket, &agents, None)?;
        ensure!(given.commands == agents.len(), "{} of {} got it", given.commands, agents.len());
        let answered = heartbeats(server, &server.socket, &agents, Some(command))?;
        let counts = client.get(&format!("/commands/{command}?limit=1"))?;
        let counts: Value = serde_json::from_slice(&counts.body)?;
        let counts = &counts["data"]["command"]["counts"];
        ensure!(
            counts["acknowledged"].as_u64() == Some(agents.len() as u64),
            "outcomes: {counts}"
        );
        results.add(&case, SUBJECT, "wall_ms", "ms", answer.took.as_secs_f64() * 1e3);
        results.add(&case, SUBJECT, "cpu_ms", "ms", cpu_ms);
        results.add(&case, SUBJECT, "agents", "", agents.len() as f64);
        results.add(&case, SUBJECT, "delivered_s", "s", given.wall_s);
        results.add(&case, SUBJECT, "answered_s", "s", answered.wall_s);
    }
    Ok(())
}

/// A heartbeat of every agent through the unix socket, nothing to tell.
fn beats(server: &Server, results: &mut Results) -> anyhow::Result<()> {
    let agents: Vec<u32> = (1..=AGENTS).collect();
    let case = format!("{AGENTS} heartbeats, unix socket");
    let rounds = if quick() { 1 } else { 3 };
    for _ in 0..rounds {
        let round = heartbeats(server, &server.socket, &agents, None)?;
        results.add(&case, SUBJECT, "cpu_us", "us", round.cpu_us);
        results.add(&case, SUBJECT, "wall_s", "s", round.wall_s);
        results.add(&case, SUBJECT, "rss_mb", "MB", server.rss_mb());
    }
    Ok(())
}

/// Agents added and removed; the counters must say the same as before.
fn churn(server: &Server, token: &str, results: &mut Results) -> anyhow::Result<()> {
    let mut client = server.client(token)?;
    let total = |client: &mut Client| -> anyhow::Result<Option<u64>> {
        let answer: Value = serde_json::from_slice(&client.get("/agents/summary/status")?.body)?;
        Ok(answer["data"]["connection"]["total"].as_u64())
    };
    let before = total(&mut client)?;
    let times = if quick() { 100 } else { 1_000 };
    let (cpu, started) = (server.cpu_s(), std::time::Instant::now());
    for number in 0..times {
        let path = format!("/agents/insert/quick?agent_name=churn-{number}");
        let answer = client.send("POST", &path, "", b"")?;
        ensure!(answer.status == 200, "churn: {}", String::from_utf8_lossy(&answer.body));
        let answer: Value = serde_json::from_slice(&answer.body)?;
        let id = answer["data"]["id"].as_str().context("no id")?.to_owned();
        let path = format!("/agents?agents_list={id}&status=all&older_than=0s");
        let answer = client.send("DELETE", &path, "", b"")?;
        ensure!(answer.status == 200, "churn: {}", String::from_utf8_lossy(&answer.body));
    }
    let seconds = started.elapsed().as_secs_f64();
    ensure!(total(&mut client)? == before, "the counters differ after the churn");
    let case = format!("{AGENTS} churn");
    results.add(&case, SUBJECT, "agents_per_minute", "/min", f64::from(times) * 60.0 / seconds);
    results.add(&case, SUBJECT, "cpu_ms", "ms", (server.cpu_s() - cpu) * 1e3 / f64::from(times));
    Ok(())
}

fn login(server: &Server, token: &str, results: &mut Results) -> anyhow::Result<()> {
    let seconds = |quiet: u64| Duration::from_secs(if quick() { 2 } else { quiet });
    let idle = logins::idle(server, token, seconds(10))?;
    results.add("login", SUBJECT, "other_idle_p99_ms", "ms", idle);
    for (rate, time) in [(5.0, seconds(20)), (15.0, seconds(60))] {
        let case = format!("login, {rate}/s");
        let logins = logins::steadily(server, token, rate, time)?;
        results.add(&case, SUBJECT, "p50_ms", "ms", logins.p50_ms);
        results.add(&case, SUBJECT, "p99_ms", "ms", logins.p99_ms);
        results.add(&case, SUBJECT, "refused", "", logins.refused as f64);
        results.add(&case, SUBJECT, "other_p99_ms", "ms", logins.other_p99_ms);
    }
    Ok(())
}

/// How cost grows with the fleet: a table and a plot.
fn linearity(binary: &Path, scratch: &Path, results: &mut Results) -> anyhow::Result<()> {
    let mut lines: Vec<plot::Line> =
        READS.iter().map(|(case, ..)| ((*case).to_owned(), Vec::new())).collect();
    lines.push(("PUT /agents/restart".into(), Vec::new()));
    for agents in SIZES {
        let data = scratch.join(format!("fleet-{agents}"));
        seed(&data, agents, Mix::Mixed)?;
        let server = Server::start(binary, &data, "")?;
        let token = server.login()?;
        if agents != AGENTS {
            reads(&server, &token, agents, results)?;
        }
        let mut client = server.client(&token)?;
        let each = one_by_one(&server, &mut client, "PUT", "/agents/restart", 3)?;
        let case = format!("{agents} PUT /agents/restart");
        if agents != AGENTS {
            results.add(&case, SUBJECT, "cpu_ms", "ms", each.cpu_ms);
        }
        for (name, points) in &mut lines {
            if let Some(cpu) = results.get(&format!("{agents} {name}"), SUBJECT, "cpu_ms") {
                points.push((f64::from(agents), cpu));
            }
        }
        drop(server);
        fs::remove_dir_all(&data)?;
    }
    let svg = plot::svg("Server CPU per request", "agents", "ms", &lines);
    fs::write(Path::new(env!("CARGO_MANIFEST_DIR")).join("results/api-linearity.svg"), svg)?;
    Ok(())
}
