//! Bulk commands to their outcomes, and agents that come and go.

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use holdfast_bench::{Results, quick};
use serde_json::Value;

use crate::client::Client;
use crate::load::{heartbeats, one_by_one, quantile};
use crate::server::Server;
use crate::{AGENTS, SUBJECT};

/// Restart everybody, deliver it to every agent, and count what became of it.
pub fn restart(server: &Server, results: &mut Results) -> anyhow::Result<()> {
    let case = format!("{AGENTS} PUT /agents/restart");
    let mut client = server.client(&server.login()?)?;
    for _ in 0..if quick() { 1 } else { 3 } {
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
        ensure!(agents.len() == AGENTS as usize, "{} agents are active", agents.len());
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
        let mut add = |metric, unit, value| results.add(&case, SUBJECT, metric, unit, value);
        add("wall_ms", "ms", answer.took.as_secs_f64() * 1e3);
        add("cpu_ms", "ms", cpu_ms);
        add("agents", "", agents.len() as f64);
        add("delivered_s", "s", given.wall_s);
        add("answered_s", "s", answered.wall_s);
    }
    results.add(&case, "goal", "wall_ms", "ms", 100.0);
    results.add(&case, "goal", "delivered_s", "s", 10.0);
    Ok(())
}

/// The same where nobody is active.
pub fn nobody(server: &Server, results: &mut Results) -> anyhow::Result<()> {
    let mut client = server.client(&server.login()?)?;
    let each = one_by_one(server, &mut client, "PUT", "/agents/restart", 10)?;
    let case = format!("{AGENTS} PUT /agents/restart, all inactive");
    results.add(&case, SUBJECT, "cpu_ms", "ms", each.cpu_ms);
    results.add(&case, SUBJECT, "wall_ms", "ms", each.p50_ms);
    results.add(&case, SUBJECT, "queries", "", each.queries);
    results.add(&case, "goal", "wall_ms", "ms", 30.0);
    Ok(())
}

/// The counters as the API gives them: by status, group and platform, and those of the overview.
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
    Ok(all)
}

/// Agents that are there at once while others come and go.
const STOCK: u32 = 250;
/// How often in the paced minute one comes and another goes: a little more than the goal.
const ROUNDS: u32 = 1_030;

/// A thousand agents a minute registered, heard from and dropped: in each round of the paced minute
/// one comes and says that it is there, and the one that came [`STOCK`] rounds before it goes. Every
/// counter must say the same as before, and at the minute's end exactly the stock more.
pub fn churn(server: &Server, token: &str, results: &mut Results) -> anyhow::Result<()> {
    let mut client = server.client(token)?;
    let mut agents = Client::unix(&server.socket)?;
    let before = counters(&mut client)?;
    let (rounds, stock) = if quick() { (50, 25) } else { (ROUNDS, STOCK) };
    let pace_s = if quick() { 0.0 } else { 60.0 / f64::from(rounds) };
    let (mut ids, mut took) = (VecDeque::new(), Vec::new());
    for number in 0..stock {
        ids.push_back(come(&mut client, &mut agents, number, &mut took)?);
    }
    took.clear();
    let (cpu, started) = (server.cpu_s(), Instant::now());
    for round in 0..rounds {
        let at = Duration::from_secs_f64(f64::from(round) * pace_s);
        std::thread::sleep(at.saturating_sub(started.elapsed()));
        ids.push_back(come(&mut client, &mut agents, stock + round, &mut took)?);
        drop_one(&mut client, &ids.pop_front().context("nobody is there")?, &mut took)?;
    }
    let (seconds, cpu_ms) = (started.elapsed().as_secs_f64(), (server.cpu_s() - cpu) * 1e3);
    let there = counters(&mut client)?;
    for name in ["connection total", "connection active"] {
        let of = |counts: &BTreeMap<String, u64>| counts.get(name).copied().unwrap_or(0);
        let expected = of(&before) + ids.len() as u64;
        ensure!(of(&there) == expected, "{name}: {} in place of {expected}", of(&there));
    }
    for id in ids {
        drop_one(&mut client, &id, &mut Vec::new())?;
    }
    ensure!(counters(&mut client)? == before, "the counters differ after the churn");
    let case = format!("{AGENTS} churn");
    let mut add = |metric, unit, value| results.add(&case, SUBJECT, metric, unit, value);
    add("agents_per_minute", "/min", f64::from(rounds) * 60.0 / seconds);
    add("cpu_ms", "ms", cpu_ms / f64::from(rounds));
    add("p50_ms", "ms", quantile(&mut took, 0.5));
    add("counters_wrong", "", 0.0);
    results.add(&case, "goal", "agents_per_minute", "/min", 1_000.0);
    Ok(())
}

/// One is registered and says that it is there: active from then on. Its number.
fn come(
    client: &mut Client,
    agents: &mut Client,
    number: u32,
    took: &mut Vec<f64>,
) -> anyhow::Result<String> {
    let path = format!("/agents/insert/quick?agent_name=churn-{number}");
    let answer = client.send("POST", &path, "", b"")?;
    ensure!(answer.status == 200, "churn: {}", String::from_utf8_lossy(&answer.body));
    took.push(answer.took.as_secs_f64() * 1e3);
    let body: Value = serde_json::from_slice(&answer.body)?;
    let id = body["data"]["id"].as_str().context("no id")?.to_owned();
    let lines = format!("X-Wazuh-Agent-Id: {id}\r\nContent-Type: application/json\r\n");
    let heard = agents.send("POST", "/control", &lines, br#"{"action":"notify"}"#)?;
    ensure!(heard.status == 200, "churn: heartbeat of {id}: {}", heard.status);
    Ok(id)
}

fn drop_one(client: &mut Client, id: &str, took: &mut Vec<f64>) -> anyhow::Result<()> {
    let path = format!("/agents?agents_list={id}&status=all&older_than=0s&purge=true");
    let answer = client.send("DELETE", &path, "", b"")?;
    let body: Value = serde_json::from_slice(&answer.body)?;
    ensure!(body["data"]["total_affected_items"] == 1, "churn: {body}");
    took.push(answer.took.as_secs_f64() * 1e3);
    Ok(())
}
