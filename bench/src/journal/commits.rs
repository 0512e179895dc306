//! Durable commits per second on an ordinary disk, from threads and from tasks.

use std::path::Path;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use journal::{Durability, Journal};
use serde_json::{Value, json};

use crate::amplify::case;
use crate::ours;
use crate::subject::{Kind, Log, Noise};

/// Time before the measurement.
const WARM_UP: Duration = Duration::from_millis(100);

/// The result of one case.
struct Measured {
    /// Latencies of commits, ns.
    latencies: Vec<u64>,
    seconds: f64,
    cpu_seconds: f64,
}

/// Runs all cases of a subject and prints its rows.
pub fn run(
    kind: Kind,
    record: usize,
    writers: &[usize],
    time: Duration,
    base: &Path,
) -> anyhow::Result<()> {
    let mut rows = Vec::new();
    for writers in writers {
        let folder = base.join(format!("{record}-{writers}"));
        let log = kind.open(&folder, *writers)?;
        log.settle()?;
        let measured = threads(&*log, *writers, record, time)?;
        log.close()?;
        std::fs::remove_dir_all(&folder)?;
        add(&mut rows, &case(record, *writers), measured);
    }
    println!("{}", Value::Array(rows));
    Ok(())
}

/// Runs the same cases with tasks of a runtime that has one thread per core.
pub fn run_tasks(
    kind: Kind,
    record: usize,
    writers: &[usize],
    time: Duration,
    base: &Path,
) -> anyhow::Result<()> {
    let Kind::Holdfast { layout, .. } = kind else {
        anyhow::bail!("only ours appends from tasks");
    };
    let mut rows = Vec::new();
    for writers in writers {
        let folder = base.join(format!("tasks-{record}-{writers}"));
        let ours = ours::Ours::open(&folder, layout, Durability::Persist, true)?;
        ours.settle()?;
        let measured = tasks(ours.journal(), *writers, record, time)?;
        Box::new(ours).close()?;
        std::fs::remove_dir_all(&folder)?;
        add(&mut rows, &case(record, *writers), measured);
    }
    println!("{}", Value::Array(rows));
    Ok(())
}

fn add(rows: &mut Vec<Value>, case: &str, mut measured: Measured) {
    measured.latencies.sort_unstable();
    let count = measured.latencies.len();
    let at = |share: f64| {
        let index = ((count as f64 * share) as usize).min(count.saturating_sub(1));
        measured.latencies.get(index).map_or(f64::NAN, |ns| *ns as f64 / 1e3)
    };
    for (metric, value, unit) in [
        ("commits_per_second", count as f64 / measured.seconds, "1/s"),
        ("p50_us", at(0.5), "us"),
        ("p99_us", at(0.99), "us"),
        ("cpu_us", measured.cpu_seconds * 1e6 / count as f64, "us"),
    ] {
        rows.push(json!({"case": case, "metric": metric, "value": value, "unit": unit}));
    }
}

/// Returns the user and system time of this process so far, seconds.
pub fn cpu_seconds() -> f64 {
    // SAFETY: the pointer is valid for the call, and rusage is plain numbers.
    let usage = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_SELF, &mut usage);
        usage
    };
    let seconds = |t: libc::timeval| t.tv_sec as f64 + t.tv_usec as f64 / 1e6;
    seconds(usage.ru_utime) + seconds(usage.ru_stime)
}

fn threads(
    log: &dyn Log,
    writers: usize,
    record: usize,
    time: Duration,
) -> anyhow::Result<Measured> {
    let (counting, stop) = (AtomicBool::new(false), AtomicBool::new(false));
    let ready = Barrier::new(writers + 1);
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..writers)
            .map(|writer| {
                let (counting, stop, ready) = (&counting, &stop, &ready);
                scope.spawn(move || -> anyhow::Result<Vec<u64>> {
                    let mut noise = Noise::new(writer as u64 + 1);
                    let mut bytes = vec![0; record];
                    let mut latencies = Vec::with_capacity(1 << 16);
                    ready.wait();
                    while !stop.load(Ordering::Relaxed) {
                        noise.fill_record(&mut bytes);
                        let counts = counting.load(Ordering::Relaxed);
                        let began = Instant::now();
                        log.append_record(writer, &bytes)?;
                        if counts {
                            latencies.push(began.elapsed().as_nanos() as u64);
                        }
                    }
                    Ok(latencies)
                })
            })
            .collect();
        ready.wait();
        std::thread::sleep(WARM_UP);
        counting.store(true, Ordering::Relaxed);
        let (began, cpu) = (Instant::now(), cpu_seconds());
        std::thread::sleep(time);
        let (seconds, cpu_seconds) = (began.elapsed().as_secs_f64(), cpu_seconds() - cpu);
        stop.store(true, Ordering::Relaxed);
        let mut latencies = Vec::new();
        for thread in threads {
            latencies.extend(thread.join().expect("a writer does not panic")?);
        }
        Ok(Measured { latencies, seconds, cpu_seconds })
    })
}

fn tasks(
    journal: &Journal,
    writers: usize,
    record: usize,
    time: Duration,
) -> anyhow::Result<Measured> {
    let runtime = tokio::runtime::Builder::new_multi_thread().build().context("a runtime")?;
    let began = Instant::now();
    let (from, to) = (began + WARM_UP, began + WARM_UP + time);
    runtime.block_on(async {
        let tasks: Vec<_> = (0..writers)
            .map(|writer| {
                let journal = journal.clone();
                tokio::spawn(async move {
                    let mut noise = Noise::new(writer as u64 + 1);
                    let mut latencies = Vec::with_capacity(1 << 16);
                    loop {
                        let mut bytes = vec![0; record];
                        noise.fill_record(&mut bytes);
                        let began = Instant::now();
                        journal.append_async(vec![bytes], Durability::Persist).await?;
                        let now = Instant::now();
                        if now >= to {
                            return anyhow::Ok(latencies);
                        }
                        if began >= from {
                            latencies.push((now - began).as_nanos() as u64);
                        }
                    }
                })
            })
            .collect();
        std::thread::sleep(from.saturating_duration_since(Instant::now()));
        let cpu = cpu_seconds();
        std::thread::sleep(to.saturating_duration_since(Instant::now()));
        let cpu_seconds = cpu_seconds() - cpu;
        let mut latencies = Vec::new();
        for task in tasks {
            latencies.extend(task.await??);
        }
        Ok(Measured { latencies, seconds: time.as_secs_f64(), cpu_seconds })
    })
}
