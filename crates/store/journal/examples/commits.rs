//! Measures commits per second of one journal in a folder, and the rate of recovery.
//!
//! ```text
//! commits LAYOUT BYTES WRITERS threads|tasks SECONDS persist|flush [DIR]
//! commits append LAYOUT BYTES RECORDS SECONDS [DIR]
//! commits recover LAYOUT MEBIBYTES [DIR]
//! ```
//! `LAYOUT` is packed, sparse or ring. One line is printed: commits per second, p50 and p99 in
//! microseconds, CPU microseconds per commit, records per group. With `append`, one thread appends
//! that many records at a time without a flush, and CPU per record is what counts. With `recover`,
//! a journal of that size is written and opened again.

#![allow(clippy::print_stdout, reason = "a program")]

use std::error::Error;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use journal::{Durability, Journal, Layout, Options, Stats};

type Failure = Box<dyn Error + Send + Sync>;
/// Maximum number of latencies kept per writer.
const SAMPLES_MAX: usize = 1 << 20;

struct Plan {
    bytes: usize,
    writers: usize,
    tasks: bool,
    seconds: f64,
    durability: Durability,
}

fn layout(name: &str) -> Result<Options, Failure> {
    let layout = match name {
        "packed" => Layout::Packed,
        "sparse" => Layout::Sparse,
        "ring" => Layout::Ring,
        other => return Err(format!("{other}: not a layout; use packed, sparse or ring").into()),
    };
    Ok(Options { layout, segment_bytes: 256 << 20, spares: 4, ..Options::default() })
}

fn cpu() -> Duration {
    let t = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(t.tv_sec.unsigned_abs(), t.tv_nsec as u32)
}

fn record(bytes: usize, writer: usize) -> Vec<u8> {
    let mut x = 0x9e37_79b9_7f4a_7c15_u64.wrapping_mul(writer as u64 + 1);
    let mut next = || {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        x as u8
    };
    (0..bytes).map(|_| next()).collect()
}

/// Trims records that are not needed, so that segments are recycled as in production.
fn trim(journal: &Journal, position: u64) {
    if position.is_multiple_of(1 << 16) {
        let _ = journal.trim(position);
    }
}

/// Appends as one writer until stopped. Returns the time of each append, in ns.
fn write_until(
    journal: &Journal,
    plan: &Plan,
    writer: usize,
    stop: &AtomicBool,
    all: &Mutex<Vec<u32>>,
) -> Result<(), Failure> {
    let record = record(plan.bytes, writer);
    let mut taken = Vec::with_capacity(SAMPLES_MAX / plan.writers);
    while !stop.load(Ordering::Relaxed) {
        let began = Instant::now();
        let outcome = journal.append(&record, plan.durability)?;
        taken.push(began.elapsed().as_nanos() as u32);
        trim(journal, outcome.position);
    }
    all.lock().map_err(|_| "a writer panicked")?.append(&mut taken);
    Ok(())
}

fn by_threads(journal: &Journal, plan: &Plan) -> Result<Vec<u32>, Failure> {
    let stop = AtomicBool::new(false);
    let all = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        let mut threads = Vec::new();
        for writer in 0..plan.writers {
            let (stop, all) = (&stop, &all);
            threads.push(scope.spawn(move || write_until(journal, plan, writer, stop, all)));
        }
        std::thread::sleep(Duration::from_secs_f64(plan.seconds));
        stop.store(true, Ordering::Relaxed);
        for thread in threads {
            thread.join().map_err(|_| "a writer panicked")??;
        }
        Ok::<(), Failure>(())
    })?;
    Ok(all.into_inner()?)
}

/// Appends as one task until `until`. Returns the time of each append, in ns.
async fn append_until(
    journal: Journal,
    record: Vec<u8>,
    durability: Durability,
    until: Instant,
) -> Result<Vec<u32>, Failure> {
    let mut taken = Vec::new();
    let mut began = Instant::now();
    while began < until {
        let outcome = journal.append_async(vec![record.clone()], durability).await?;
        let now = Instant::now();
        taken.push((now - began).as_nanos() as u32);
        began = now;
        trim(&journal, outcome.position);
    }
    Ok(taken)
}

fn by_tasks(journal: &Journal, plan: &Plan) -> Result<Vec<u32>, Failure> {
    let workers = std::thread::available_parallelism().map_or(2, usize::from);
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    let runtime = builder.worker_threads(workers).enable_time().build()?;
    let until = Instant::now() + Duration::from_secs_f64(plan.seconds);
    runtime.block_on(async {
        let mut tasks = Vec::new();
        for writer in 0..plan.writers {
            let (journal, durability) = (journal.clone(), plan.durability);
            let record = record(plan.bytes, writer);
            tasks.push(tokio::spawn(append_until(journal, record, durability, until)));
        }
        let mut all = Vec::new();
        for task in tasks {
            all.append(&mut task.await??);
        }
        Ok(all)
    })
}

fn commits(dir: &Path, name: &str, plan: &Plan) -> Result<(), Failure> {
    let (journal, recovery) = Journal::open(dir, layout(name)?)?;
    // The first segment is created before the measurement starts.
    journal.append(&record(plan.bytes, 0), Durability::Persist)?;
    let (began, cpu_began, stats) = (Instant::now(), cpu(), journal.stats());
    let mut taken =
        if plan.tasks { by_tasks(&journal, plan)? } else { by_threads(&journal, plan)? };
    let (took, used) = (began.elapsed(), cpu().saturating_sub(cpu_began));
    let after = journal.stats();
    taken.sort_unstable();
    let count = taken.len().max(1);
    let percentile =
        |p: usize| f64::from(taken.get(count * p / 100).copied().unwrap_or(0)) / 1000.0;
    let groups = (after.groups - stats.groups).max(1);
    println!(
        "{name} {} B x {} {} {:?} {:?}: {:.0} commits/s, p50 {:.0} us, p99 {:.0} us, \
         {:.2} us CPU/commit, {:.1} records/group, {:.3} flushes/commit",
        plan.bytes,
        plan.writers,
        if plan.tasks { "tasks" } else { "threads" },
        plan.durability,
        recovery.io,
        count as f64 / took.as_secs_f64(),
        percentile(50),
        percentile(99),
        used.as_secs_f64() * 1e6 / count as f64,
        (after.records - stats.records) as f64 / groups as f64,
        (after.flushes - stats.flushes) as f64 / count as f64,
    );
    Ok(journal.close()?)
}

/// Measures the CPU time per record of appends without flushes, `records` at a time.
fn append(dir: &Path, name: &str, bytes: usize, records: usize, secs: f64) -> Result<(), Failure> {
    let (journal, _) = Journal::open(dir, layout(name)?)?;
    let owned: Vec<Vec<u8>> = (0..records).map(|i| record(bytes, i)).collect();
    let batch: Vec<&[u8]> = owned.iter().map(Vec::as_slice).collect();
    journal.append_all(&batch, Durability::Persist)?;
    let (began, cpu_began, mut count) = (Instant::now(), cpu(), 0);
    while began.elapsed().as_secs_f64() < secs {
        trim(&journal, journal.append_all(&batch, Durability::Flush)?.position / 64 * 64);
        count += records;
    }
    let used = cpu().saturating_sub(cpu_began).as_secs_f64();
    println!(
        "{name} {bytes} B, {records} records an append, not flushed: {:.0} records/s, {:.0} ns \
         CPU/record",
        count as f64 / began.elapsed().as_secs_f64(),
        used * 1e9 / count as f64
    );
    Ok(journal.close()?)
}

fn peak_memory() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|l| l.strip_prefix("VmHWM:"));
    line.and_then(|l| l.trim().trim_end_matches(" kB").trim().parse().ok()).unwrap_or(0)
}

fn recover(dir: &Path, name: &str, mebibytes: u64) -> Result<(), Failure> {
    let bytes = mebibytes << 20;
    let (journal, _) = Journal::open(dir, layout(name)?)?;
    let records: Vec<Vec<u8>> = (0..8).map(|i| record(128, i)).collect();
    let records: Vec<&[u8]> = records.iter().map(Vec::as_slice).collect();
    // The tail block of a packed journal is rewritten, but counts once.
    let size =
        |s: &Stats| if s.layout == Layout::Sparse { s.bytes_written } else { s.payload_bytes };
    while size(&journal.stats()) < bytes {
        journal.append_all(&records, Durability::Flush)?;
    }
    journal.close()?;
    let before = peak_memory();
    let began = Instant::now();
    let (_journal, recovery) = Journal::open(dir, layout(name)?)?;
    let took = began.elapsed().as_secs_f64();
    println!(
        "{name}: {} groups, {} MiB read in {took:.2} s, {:.0} MB/s, peak memory {} KiB before, {} \
         KiB after",
        recovery.groups,
        recovery.bytes_read >> 20,
        recovery.bytes_read as f64 / took / 1e6,
        before,
        peak_memory(),
    );
    Ok(())
}

fn main() -> Result<(), Failure> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    let temporary = std::env::temp_dir().join(format!("journal-commits-{}", std::process::id()));
    let place = |dir: Option<&&str>| dir.map_or_else(|| temporary.clone(), |d| PathBuf::from(*d));
    let (dir, done) = match words.as_slice() {
        ["recover", name, mebibytes, rest @ ..] => {
            let dir = place(rest.first());
            let done = recover(&dir, name, mebibytes.parse()?);
            (dir, done)
        }
        ["append", name, bytes, records, seconds, rest @ ..] => {
            let dir = place(rest.first());
            let (bytes, records) = (bytes.parse()?, records.parse()?);
            (dir.clone(), append(&dir, name, bytes, records, seconds.parse()?))
        }
        [name, bytes, writers, kind, seconds, sync, rest @ ..] => {
            let plan = Plan {
                bytes: bytes.parse()?,
                writers: writers.parse()?,
                tasks: *kind == "tasks",
                seconds: seconds.parse()?,
                durability: if *sync == "flush" { Durability::Flush } else { Durability::Persist },
            };
            let dir = place(rest.first());
            let done = commits(&dir, name, &plan);
            (dir, done)
        }
        _ => return Err("see the head of examples/commits.rs for the arguments".into()),
    };
    if dir == temporary {
        std::fs::remove_dir_all(&dir)?;
    }
    done
}
