//! Loads on the server: sequential requests, many clients at once, a fleet's heartbeats.

use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};

use crate::client::Client;
use crate::server::Server;

/// The cost of single requests in sequence.
pub struct Each {
    pub cpu_ms: f64,
    pub p50_ms: f64,
    pub queries: f64,
}

/// Returns the p-quantile of the values.
pub fn quantile(values: &mut [f64], p: f64) -> f64 {
    values.sort_by(f64::total_cmp);
    let at = ((values.len() as f64 - 1.0) * p).round() as usize;
    values.get(at).copied().unwrap_or(f64::NAN)
}

/// Sends the same request repeatedly on one connection.
pub fn one_by_one(
    server: &Server,
    client: &mut Client,
    method: &str,
    path: &str,
    times: usize,
) -> anyhow::Result<Each> {
    let mut took = Vec::with_capacity(times);
    let mut queries = 0.0;
    // Statements are prepared and pages cached once, not for each caller.
    client.send(method, path, "", b"")?;
    let before = server.cpu_s();
    for _ in 0..times {
        let answer = client.send(method, path, "", b"")?;
        ensure!(
            answer.status == 200,
            "{path}: {}: {}",
            answer.status,
            String::from_utf8_lossy(&answer.body)
        );
        took.push(answer.took.as_secs_f64() * 1e3);
        queries = answer.queries.unwrap_or(f64::NAN);
    }
    let cpu_ms = (server.cpu_s() - before) * 1e3 / times as f64;
    Ok(Each { cpu_ms, p50_ms: quantile(&mut took, 0.5), queries })
}

/// The latency of many clients at once.
pub struct Crowd {
    pub p50_ms: f64,
    pub p99_ms: f64,
    pub requests_per_second: f64,
    /// Number of answers.
    pub requests: f64,
}

/// Opens `clients` connections that request `path` for a while, each as fast as it is answered.
pub fn crowd(
    server: &Server,
    token: &str,
    path: &str,
    clients: usize,
    time: Duration,
) -> anyhow::Result<Crowd> {
    let stop = AtomicBool::new(false);
    let all = Mutex::new(Vec::new());
    let started = Instant::now();
    std::thread::scope(|scope| -> anyhow::Result<()> {
        let mut workers = Vec::new();
        for _ in 0..clients {
            let mut client = server.client(token)?;
            let (stop, all) = (&stop, &all);
            workers.push(scope.spawn(move || -> anyhow::Result<()> {
                let mut took = Vec::new();
                while !stop.load(Ordering::Relaxed) {
                    let answer = client.get(path)?;
                    ensure!(answer.status == 200, "{path}: {}", answer.status);
                    took.push(answer.took.as_secs_f64() * 1e3);
                }
                all.lock().map_err(|_| anyhow::anyhow!("a client panicked"))?.extend(took);
                Ok(())
            }));
        }
        std::thread::sleep(time);
        stop.store(true, Ordering::Relaxed);
        for worker in workers {
            worker.join().map_err(|_| anyhow::anyhow!("a client panicked"))??;
        }
        Ok(())
    })?;
    let seconds = started.elapsed().as_secs_f64();
    let mut took = all.into_inner().map_err(|_| anyhow::anyhow!("a client panicked"))?;
    let requests = took.len() as f64;
    let requests_per_second = requests / seconds;
    let (p50_ms, p99_ms) = (quantile(&mut took, 0.5), quantile(&mut took, 0.99));
    Ok(Crowd { p50_ms, p99_ms, requests_per_second, requests })
}

/// The result of a round of heartbeats.
pub struct Round {
    pub wall_s: f64,
    /// Server CPU per heartbeat.
    pub cpu_us: f64,
    /// Number of commands that were delivered.
    pub commands: usize,
}

/// Sends one heartbeat of each agent through the unix socket, over a few connections. With `done`,
/// each acknowledges that command.
pub fn heartbeats(
    server: &Server,
    socket: &Path,
    agents: &[u32],
    done: Option<u64>,
) -> anyhow::Result<Round> {
    const CONNECTIONS: usize = 8;
    let commands = AtomicUsize::new(0);
    let before = server.cpu_s();
    let started = Instant::now();
    std::thread::scope(|scope| -> anyhow::Result<()> {
        let part = agents.len().div_ceil(CONNECTIONS).max(1);
        let mut workers = Vec::new();
        for agents in agents.chunks(part) {
            let mut client = Client::unix(socket)?;
            let commands = &commands;
            workers.push(scope.spawn(move || -> anyhow::Result<()> {
                let body = match done {
                    Some(id) => format!(
                        r#"{{"action":"notify","outcomes":[{{"id":{id},"outcome":"done","detail":"restarting"}}]}}"#
                    ),
                    None => r#"{"action":"notify"}"#.to_owned(),
                };
                for id in agents {
                    let lines = format!(
                        "X-Wazuh-Agent-Id: {id:03}\r\nContent-Type: application/json\r\n"
                    );
                    let answer = client.send("POST", "/control", &lines, body.as_bytes())?;
                    ensure!(answer.status == 200, "heartbeat of {id}: {}: {}", answer.status, String::from_utf8_lossy(&answer.body));
                    let text = String::from_utf8(answer.body).context("not a text")?;
                    if text.contains(r#""kind":"restart""#) {
                        commands.fetch_add(1, Ordering::Relaxed);
                    }
                }
                Ok(())
            }));
        }
        for worker in workers {
            worker.join().map_err(|_| anyhow::anyhow!("an agent panicked"))??;
        }
        Ok(())
    })?;
    let wall_s = started.elapsed().as_secs_f64();
    let cpu_us = (server.cpu_s() - before) * 1e6 / agents.len() as f64;
    Ok(Round { wall_s, cpu_us, commands: commands.into_inner() })
}
