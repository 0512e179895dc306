//! Logins: their duration by the number of hashing threads, and the delay of other requests.

use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::ensure;
use holdfast_bench::{Results, quick, wanted};

use crate::client::Client;
use crate::load::quantile;
use crate::plot;
use crate::server::{LOGIN, Server, basic};
use crate::{SUBJECT, results_file};

/// Numbers of hashing threads that are measured.
const WORKERS: [u32; 4] = [1, 2, 5, 10];
/// Logins per second of the plot.
const PLOT_RATE: f64 = 15.0;
/// The requests that another client sends in turn during the logins.
const OTHERS: [&str; 4] =
    ["/agents/summary/status", "/agents?limit=500", "/agents/summary", "/overview/agents"];

/// Duration of each of [`OTHERS`], milliseconds.
type Others = [Vec<f64>; OTHERS.len()];

/// The results of logins at a steady rate.
pub struct Logins {
    /// Start of each login, seconds after the start of the case, and its duration, milliseconds.
    took: Vec<(f64, f64)>,
    /// Logins that were rejected with a time to retry.
    pub refused: usize,
    /// Durations of the other requests in the same period.
    others: Others,
}

impl Logins {
    /// Returns the p-quantile of the logins that started within `part` (0 to 1) of the time.
    fn quantile(&self, p: f64, time: Duration, part: std::ops::Range<f64>) -> f64 {
        let seconds = time.as_secs_f64();
        let within = |at: f64| part.contains(&(at / seconds));
        let mut took: Vec<f64> =
            self.took.iter().filter(|(at, _)| within(*at)).map(|(_, ms)| *ms).collect();
        quantile(&mut took, p)
    }
}

/// Measures logins alone, at 5 and 15 a second with other requests, and by number of hashing
/// threads.
pub fn run(binary: &Path, data: &Path, results: &mut Results) -> anyhow::Result<()> {
    beside_others(&Server::start(binary, data, "")?, results)?;
    by_workers(binary, data, results)
}

fn beside_others(server: &Server, results: &mut Results) -> anyhow::Result<()> {
    let token = &server.login()?;
    let each = alone(server, if quick() { 10 } else { 50 })?;
    results.add("login", SUBJECT, "p50_ms", "ms", each.p50_ms);
    results.add("login", SUBJECT, "cpu_ms", "ms", each.cpu_ms);
    for (rate, seconds) in [(5.0, 30), (15.0, 60)] {
        let time = Duration::from_secs(if quick() { 3 } else { seconds });
        let case = format!("login, {rate}/s");
        // Half of the samples of the idle server are taken before the logins and half after.
        let mut quiet = idle(server, token, time / 2)?;
        let logins = steadily(server, token, rate, time)?;
        let later = idle(server, token, time / 2)?;
        quiet.iter_mut().zip(later).for_each(|(quiet, later)| quiet.extend(later));
        let mut add = |metric, unit, value| results.add(&case, SUBJECT, metric, unit, value);
        add("p50_ms", "ms", logins.quantile(0.5, time, 0.0..1.0));
        add("p99_ms", "ms", logins.quantile(0.99, time, 0.0..1.0));
        add("refused", "", logins.refused as f64);
        add("p99_to_hash", "ratio", logins.quantile(0.99, time, 0.0..1.0) / each.cpu_ms);
        eprintln!("{case}: {} logins", logins.took.len());
        compared(&case, logins.others, quiet, results);
    }
    // The hash takes nearly all of a login's CPU time.
    results.add("login", "goal", "cpu_ms", "ms", 50.0);
    results.add("login, 5/s", "goal", "p99_to_hash", "ratio", 2.5);
    results.add("login, 15/s", "goal", "other_p99_to_idle", "ratio", 2.0);
    Ok(())
}

/// Compares other requests with and without logins: each kind, and for the case itself the kind
/// that slows down most.
fn compared(case: &str, beside: Others, quiet: Others, results: &mut Results) {
    let mut worst = [0.0; 5];
    for ((path, mut beside), mut quiet) in OTHERS.into_iter().zip(beside).zip(quiet) {
        let (other, idle) = (quantile(&mut beside, 0.99), quantile(&mut quiet, 0.99));
        let figures = [other / idle, other, idle, beside.len() as f64, quiet.len() as f64];
        results.add(&format!("{case}: {path}"), SUBJECT, "other_p99_ms", "ms", other);
        results.add(&format!("{case}: {path}"), SUBJECT, "other_idle_p99_ms", "ms", idle);
        if figures[0] > worst[0] {
            worst = figures;
        }
    }
    let [ratio, other, idle, samples, idle_samples] = worst;
    let mut add = |metric, unit, value| results.add(case, SUBJECT, metric, unit, value);
    add("other_p99_ms", "ms", other);
    add("other_idle_p99_ms", "ms", idle);
    add("other_samples", "", samples);
    add("other_idle_samples", "", idle_samples);
    add("other_p99_to_idle", "ratio", ratio);
}

/// Median duration and CPU time of one login, milliseconds.
struct LoginCost {
    p50_ms: f64,
    cpu_ms: f64,
}

/// Measures one login after the other.
fn alone(server: &Server, times: usize) -> anyhow::Result<LoginCost> {
    let mut client = Client::tcp(server.address)?;
    let (mut took, before) = (Vec::new(), server.cpu_s());
    for _ in 0..times {
        let answer = client.send("POST", LOGIN, &basic(), b"")?;
        ensure!(answer.status == 200, "login: {}", answer.status);
        took.push(answer.took.as_secs_f64() * 1e3);
    }
    let cpu_ms = (server.cpu_s() - before) * 1e3 / times as f64;
    Ok(LoginCost { p50_ms: quantile(&mut took, 0.5), cpu_ms })
}

/// Starts a server for each number of threads, and compares its first logins with its later ones.
fn by_workers(binary: &Path, data: &Path, results: &mut Results) -> anyhow::Result<()> {
    let time = Duration::from_secs(match (quick(), wanted("FULL")) {
        (true, _) => 2,
        (false, false) => 60,
        (false, true) => 300,
    });
    let names = ["p50, first fifth", "p99, first fifth", "p50, last fifth", "p99, last fifth"];
    let mut lines: Vec<plot::Line> = names.map(|name| (name.to_owned(), Vec::new())).into();
    for workers in WORKERS {
        let more = format!("[auth]\nworkers = {workers}\n[db]\nreaders = {workers}\n");
        let server = Server::start(binary, data, &more)?;
        let token = server.login()?;
        let mut logins = steadily(&server, &token, PLOT_RATE, time)?;
        let case = format!("login, {PLOT_RATE}/s, {workers} workers");
        let figures = [
            ("first_p50_ms", 0.5, 0.0..0.2),
            ("first_p99_ms", 0.99, 0.0..0.2),
            ("last_p50_ms", 0.5, 0.8..1.0),
            ("last_p99_ms", 0.99, 0.8..1.0),
        ];
        for ((metric, p, part), (_, points)) in figures.into_iter().zip(&mut lines) {
            let value = logins.quantile(p, time, part);
            results.add(&case, SUBJECT, metric, "ms", value);
            points.push((f64::from(workers), value));
        }
        results.add(&case, SUBJECT, "refused", "", logins.refused as f64);
        let [counters, ..] = &mut logins.others;
        results.add(&case, SUBJECT, "other_p99_ms", "ms", quantile(counters, 0.99));
        results.add(&case, SUBJECT, "logins", "", logins.took.len() as f64);
    }
    let title = format!("Login at {PLOT_RATE}/s by hashing threads");
    results_file("api-login.svg", &plot::svg(&title, "auth.workers", "ms", &lines))
}

/// Starts `rate` logins a second, each at its time however long the ones before it take. At the
/// same time one client sends [`OTHERS`].
fn steadily(server: &Server, token: &str, rate: f64, time: Duration) -> anyhow::Result<Logins> {
    let took = Mutex::new(Vec::new());
    let refused = Mutex::new(0);
    let stop = AtomicBool::new(false);
    let lost = || anyhow::anyhow!("a client panicked");
    let others = std::thread::scope(|scope| -> anyhow::Result<Others> {
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
                let entry = (at.as_secs_f64(), answer.took.as_secs_f64() * 1e3);
                match answer.status {
                    200 => took.lock().map_err(|_| lost())?.push(entry),
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
    Ok(Logins {
        took: took.into_inner().map_err(|_| lost())?,
        refused: refused.into_inner().map_err(|_| lost())?,
        others,
    })
}

/// Sends fifty requests a second, each of [`OTHERS`] in turn.
fn quiet(server: &Server, token: &str, stop: &AtomicBool) -> anyhow::Result<Others> {
    let mut client = server.client(token)?;
    let mut others = Others::default();
    loop {
        for (path, took) in OTHERS.into_iter().zip(&mut others) {
            let answer = client.get(path)?;
            ensure!(answer.status == 200, "{path}: {}", answer.status);
            took.push(answer.took.as_secs_f64() * 1e3);
            std::thread::sleep(Duration::from_millis(20));
        }
        if stop.load(Ordering::Relaxed) {
            return Ok(others);
        }
    }
}

/// Measures the durations of the other requests without logins.
fn idle(server: &Server, token: &str, time: Duration) -> anyhow::Result<Others> {
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let other = scope.spawn(|| quiet(server, token, &stop));
        std::thread::sleep(time);
        stop.store(true, Ordering::Relaxed);
        other.join().map_err(|_| anyhow::anyhow!("a client panicked"))?
    })
}
