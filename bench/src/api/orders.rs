//! Bulk commands and their outcomes.

use anyhow::{Context as _, ensure};
use holdfast_bench::{Results, quick};
use serde_json::Value;

use crate::load::{heartbeats, one_by_one};
use crate::server::Server;
use crate::{AGENTS, SUBJECT};

/// Restarts all agents, delivers the command to each, and counts the outcomes.
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
        ensure!(counts["acknowledged"].as_u64() == Some(agents.len() as u64), "outcomes: {counts}");
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

/// Measures the same command when no agent is active.
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
