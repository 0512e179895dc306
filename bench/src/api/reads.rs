//! Requests to a fleet of 50,000, by one client and by many, and how cost grows with the fleet.

use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use holdfast_bench::{Results, quick};

use crate::client::Client;
use crate::load::{crowd, one_by_one};
use crate::seed::{Mix, seed};
use crate::server::Server;
use crate::{AGENTS, SUBJECT, plot, results_file};

const CROWD: usize = 200;
/// Fleet sizes for the growth of cost.
const SIZES: [u32; 6] = [1_000, 5_000, 20_000, 50_000, 100_000, 200_000];

/// The requests, with the goal for CPU in milliseconds where there is one.
pub const READS: [(&str, &str, Option<f64>); 12] = [
    ("GET /agents/summary/status", "/agents/summary/status", Some(1.0)),
    ("GET /agents?limit=500", "/agents?limit=500", Some(5.0)),
    ("GET /agents?limit=1", "/agents?limit=1", Some(1.0)),
    ("GET /agents/summary", "/agents/summary", Some(2.0)),
    ("GET /overview/agents", "/overview/agents", Some(3.0)),
    ("GET /agents?status=active&limit=500", "/agents?status=active&limit=500", Some(5.0)),
    ("GET /agents?offset=40000&limit=500", "/agents?offset=40000&limit=500", None),
    ("GET /agents?q=os.platform=debian", "/agents?q=os.platform=debian&limit=500", None),
    ("GET /agents?select=id&limit=100000", "/agents?select=id&limit=100000", None),
    ("GET /agents?search=agent-0419", "/agents?search=agent-0419", None),
    // The search covers sums and dates too, which change for every agent.
    ("GET /agents?search=fade", "/agents?search=fade", None),
    ("GET /agents?search=1999-", "/agents?search=1999-", None),
];

/// Sends one request after the other.
pub fn each(
    server: &Server,
    token: &str,
    agents: u32,
    times: usize,
    results: &mut Results,
) -> anyhow::Result<()> {
    let mut client = server.client(token)?;
    for (case, path, goal_ms) in READS {
        // Requests that read every agent are repeated less often.
        let times = if goal_ms.is_some() { times } else { (times / 10).max(3) };
        let each = one_by_one(server, &mut client, "GET", path, times)?;
        let case = format!("{agents} {case}");
        results.add(&case, SUBJECT, "cpu_ms", "ms", each.cpu_ms);
        results.add(&case, SUBJECT, "p50_ms", "ms", each.p50_ms);
        results.add(&case, SUBJECT, "queries", "", each.queries);
        if let Some(goal_ms) = goal_ms {
            results.add(&case, "goal", "cpu_ms", "ms", goal_ms);
        }
    }
    Ok(())
}

/// Measures all numbers in one answer, next to pages of 500.
pub fn socket(server: &Server, agents: u32, results: &mut Results) -> anyhow::Result<()> {
    let mut client = Client::unix(&server.socket)?;
    let times = if quick() { 10 } else { 50 };
    let each = one_by_one(server, &mut client, "GET", "/v1/agents/ids", times)?;
    let case = format!("{agents} agent ids over the socket");
    results.add(&case, SUBJECT, "cpu_ms", "ms", each.cpu_ms);
    results.add(&case, SUBJECT, "p50_ms", "ms", each.p50_ms);
    results.add(&case, SUBJECT, "queries", "", each.queries);
    results.add(&case, "goal", "cpu_ms", "ms", 5.0);
    let answer = client.get("/v1/agents/ids")?;
    let ids: Vec<u32> = serde_json::from_slice(&answer.body)?;
    ensure!(ids.len() == agents as usize, "{} ids", ids.len());
    let before = server.cpu_s();
    for offset in (0..=agents).step_by(500) {
        client.get(&format!("/agents?select=id&limit=500&offset={offset}"))?;
    }
    let paged = (server.cpu_s() - before) * 1e3;
    results.add(&case, "holdfast, pages of 500", "cpu_ms", "ms", paged);
    Ok(())
}

/// Measures two hundred clients at once.
pub fn crowds(server: &Server, token: &str, results: &mut Results) -> anyhow::Result<()> {
    let time = Duration::from_millis(if quick() { 1_000 } else { 5_000 });
    let ids = ("GET /agents?select=id&limit=100000", "/agents?select=id&limit=100000", None);
    for (case, path, _) in READS.into_iter().take(5).chain([ids]) {
        let before = server.cpu_s();
        let crowd = crowd(server, token, path, CROWD, time)?;
        let case = format!("{AGENTS} {case}");
        results.add(&case, SUBJECT, "p99_ms", "ms", crowd.p99_ms);
        results.add(&case, SUBJECT, "crowd_p50_ms", "ms", crowd.p50_ms);
        results.add(&case, SUBJECT, "requests_per_second", "/s", crowd.requests_per_second);
        let cpu_ms = (server.cpu_s() - before) * 1e3 / crowd.requests;
        results.add(&case, SUBJECT, "crowd_cpu_ms", "ms", cpu_ms);
    }
    Ok(())
}

/// Measures the growth of cost with the fleet: adds rows and draws a plot.
pub fn linearity(binary: &Path, scratch: &Path, results: &mut Results) -> anyhow::Result<()> {
    let mut lines: Vec<plot::Line> =
        READS.iter().map(|(case, ..)| ((*case).to_owned(), Vec::new())).collect();
    lines.push(("PUT /agents/restart".into(), Vec::new()));
    let sizes = if quick() { &SIZES[..3] } else { &SIZES[..] };
    for agents in sizes.iter().copied() {
        let data = scratch.join(format!("fleet-{agents}"));
        seed(&data, agents, Mix::Mixed)?;
        let server = Server::start(binary, &data, "")?;
        let token = server.login()?;
        let mut own = Results::default();
        each(&server, &token, agents, 30, &mut own)?;
        let cpu_ms = restarts(&server, &token)?;
        own.add(&format!("{agents} PUT /agents/restart"), SUBJECT, "cpu_ms", "ms", cpu_ms);
        for (name, points) in &mut lines {
            if let Some(cpu) = own.get(&format!("{agents} {name}"), SUBJECT, "cpu_ms") {
                points.push((f64::from(agents), cpu));
                results.add(&format!("linear, {agents} {name}"), SUBJECT, "cpu_ms", "ms", cpu);
            }
        }
        drop(server);
        fs::remove_dir_all(&data)?;
    }
    let svg = plot::svg("Server CPU per request", "agents", "ms", &lines);
    results_file("api-linearity.svg", &svg)
}

/// Returns the server's CPU for a restart of all agents. Each restart is cancelled before the next
/// one, because an equal command would be the same command.
fn restarts(server: &Server, token: &str) -> anyhow::Result<f64> {
    const TIMES: u32 = 4;
    let mut client = server.client(token)?;
    let mut cpu_ms = 0.0;
    for round in 0..TIMES {
        let before = server.cpu_s();
        let answer = client.send("PUT", "/agents/restart", "", b"")?;
        // The first request prepares its statements.
        cpu_ms += if round > 0 { (server.cpu_s() - before) * 1e3 } else { 0.0 };
        let told: serde_json::Value = serde_json::from_slice(&answer.body)?;
        let command = told["data"]["command"].as_u64().context("no command")?;
        let answer = client.send("DELETE", &format!("/commands/{command}"), "", b"")?;
        ensure!(answer.status == 200, "cancel: {}", String::from_utf8_lossy(&answer.body));
    }
    Ok(cpu_ms / f64::from(TIMES - 1))
}
