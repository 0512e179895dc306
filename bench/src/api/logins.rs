//! Logins: how long they take with so many hashing threads, and what others wait meanwhile.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::ensure;

use crate::client::Client;
use crate::load::quantile;
use crate::server::{LOGIN, Server, basic};

/// What logins at a steady rate took.
pub struct Logins {
    pub p50_ms: f64,
    pub p99_ms: f64,
    /// Those that were told to come back later.
    pub refused: usize,
    /// p99 of another request asked all the while.
    pub other_p99_ms: f64,
}

/// `rate` logins a second for a while, each begun at its time however long the ones before it take;
/// beside them one client asks for the counters.
pub fn steadily(
    server: &Server,
    token: &str,
    rate: f64,
    time: Duration,
) -> anyhow::Result<Logins> {
    let took = Mutex::new(Vec::new());
    let refused = Mutex::new(0);
    let stop = AtomicBool::new(false);
    let lost = || anyhow::anyhow!("a client panicked");
    let mut others = std::thread::scope(|scope| -> anyhow::Result<Vec<f64>> {
        let other = scope.spawn(|| quiet(server, token, &stop));
        let started = Instant::now();
        let mut workers = Vec::new();
        for number in 0.. {
            let at = Duration::from_secs_f64(f64::from(number) / rate);
            if at >= time {
                break;
            }
            std::thread::sleep(at.saturating_sub(started.elapsed()));
            let (took, refused) = (&took, &refused);
            workers.push(scope.spawn(move || -> anyhow::Result<()> {
                let mut client = Client::tcp(server.address)?;
                let answer = client.send("POST", LOGIN, &basic(), b"")?;
                match answer.status {
                    200 => took.lock().map_err(|_| lost())?.push(answer.took.as_secs_f64() * 1e3),
                    429 | 503 => *refused.lock().map_err(|_| lost())? += 1,
                    status => anyhow::bail!("login: {status}"),
                }
                Ok(())
            }));
        }
        for worker in workers {
            worker.join().map_err(|_| lost())??;
        }
        stop.store(true, Ordering::Relaxed);
        other.join().map_err(|_| lost())?
    })?;
    let mut took = took.into_inner().map_err(|_| lost())?;
    Ok(Logins {
        p50_ms: quantile(&mut took, 0.5),
        p99_ms: quantile(&mut took, 0.99),
        refused: refused.into_inner().map_err(|_| lost())?,
        other_p99_ms: quantile(&mut others, 0.99),
    })
}

/// The counters, fifty times a second.
fn quiet(server: &Server, token: &str, stop: &AtomicBool) -> anyhow::Result<Vec<f64>> {
    let mut client = server.client(token)?;
    let mut took = Vec::new();
    while !stop.load(Ordering::Relaxed) {
        let answer = client.get("/agents/summary/status")?;
        ensure!(answer.status == 200, "counters: {}", answer.status);
        took.push(answer.took.as_secs_f64() * 1e3);
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(took)
}

/// p99 of the counters while nobody logs in.
pub fn idle(server: &Server, token: &str, time: Duration) -> anyhow::Result<f64> {
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let other = scope.spawn(|| quiet(server, token, &stop));
        std::thread::sleep(time);
        stop.store(true, Ordering::Relaxed);
        let mut took = other.join().map_err(|_| anyhow::anyhow!("a client panicked"))??;
        Ok(quantile(&mut took, 0.99))
    })
}
