//! Distribution of a changed group configuration to every agent of the fleet.

use std::fmt::Write as _;
use std::path::Path;
use std::time::Instant;

use anyhow::{Context as _, ensure};
use holdfast_bench::{Results, quick};
use serde_json::Value;

use crate::client::Client;
use crate::server::Server;
use crate::{AGENTS, SUBJECT};

/// Number of connections that the agents share.
const CONNECTIONS: usize = 8;
/// Number of watched paths in the configuration.
const PATHS: usize = 20;

/// Stores a configuration for all agents and waits until each runs it: a heartbeat whose answer
/// names it, the fetch, and the heartbeat that confirms it.
pub fn run(server: &Server, results: &mut Results) -> anyhow::Result<()> {
    let case = format!("{AGENTS} agents take a group's configuration");
    let mut client = server.client(&server.login()?)?;
    let agents: Vec<u32> = (1..=AGENTS).collect();
    for round in 0..if quick() { 1 } else { 2 } {
        let mut text = String::new();
        for path in 0..PATHS {
            writeln!(text, "[[watch]]\npath = \"/srv/{round}/{path}\"\nignore = [\"*.tmp\"]")?;
        }
        let before = server.cpu_s();
        let lines = "Content-Type: application/toml\r\n";
        let put = "/groups/default/configuration";
        let answer = client.send("PUT", put, lines, text.as_bytes())?;
        ensure!(answer.status == 200, "{put}: {}", String::from_utf8_lossy(&answer.body));
        let put_cpu_ms = (server.cpu_s() - before) * 1e3;
        let (before, begun) = (server.cpu_s(), Instant::now());
        all_take(&server.socket, &agents)?;
        let (taken_s, cpu_s) = (begun.elapsed().as_secs_f64(), server.cpu_s() - before);
        let counts = client.get("/agents/summary/status")?;
        let counts: Value = serde_json::from_slice(&counts.body)?;
        let synced = &counts["data"]["configuration"]["synced"];
        ensure!(synced.as_u64() == Some(u64::from(AGENTS)), "{synced} agents run it");
        let mut add = |metric, unit, value| results.add(&case, SUBJECT, metric, unit, value);
        add("put_ms", "ms", answer.took.as_secs_f64() * 1e3);
        add("put_cpu_ms", "ms", put_cpu_ms);
        add("taken_s", "s", taken_s);
        // One agent costs two heartbeats and a fetch.
        add("cpu_us", "us", cpu_s * 1e6 / f64::from(AGENTS));
    }
    results.add(&case, "goal", "taken_s", "s", 10.0);
    Ok(())
}

fn all_take(socket: &Path, agents: &[u32]) -> anyhow::Result<()> {
    std::thread::scope(|scope| -> anyhow::Result<()> {
        let mut workers = Vec::new();
        for agents in agents.chunks(agents.len().div_ceil(CONNECTIONS).max(1)) {
            let mut client = Client::unix(socket)?;
            workers.push(scope.spawn(move || -> anyhow::Result<()> {
                agents.iter().try_for_each(|id| take(&mut client, *id))
            }));
        }
        for worker in workers {
            worker.join().map_err(|_| anyhow::anyhow!("an agent panicked"))??;
        }
        Ok(())
    })
}

/// Lets one agent fetch and confirm the configuration.
fn take(client: &mut Client, id: u32) -> anyhow::Result<()> {
    let wanted = beat(client, id, "")?;
    let answer = client.send("GET", "/configuration", &agent(id), b"")?;
    ensure!(answer.status == 200, "{id}: {}", String::from_utf8_lossy(&answer.body));
    let answer: Value = serde_json::from_slice(&answer.body)?;
    ensure!(answer["sum"] == *wanted, "{id} fetched another one: {answer}");
    beat(client, id, &wanted).map(drop)
}

/// Sends a heartbeat of an agent that runs `runs`. Returns the digest that it should run.
fn beat(client: &mut Client, id: u32, runs: &str) -> anyhow::Result<String> {
    let lines = format!("{}Content-Type: application/json\r\n", agent(id));
    let body = format!(r#"{{"action":"notify","config":{{"sum":"{runs}"}}}}"#);
    let answer = client.send("POST", "/control", &lines, body.as_bytes())?;
    ensure!(answer.status == 200, "heartbeat of {id}: {}", answer.status);
    let answer: Value = serde_json::from_slice(&answer.body)?;
    Ok(answer["config"].as_str().context("no configuration is named")?.to_owned())
}

fn agent(id: u32) -> String {
    format!("X-Wazuh-Agent-Id: {id:03}\r\n")
}
