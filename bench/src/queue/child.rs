//! One subject in a process of its own: insert, coalesce, lease and acknowledge. Its input is
//! generated before the time starts. Closing, with the last checkpoint, is part of every case,
//! except that the time of lease and acknowledge ends before it; the bytes include it in all cases.

use std::fs;
use std::path::Path;
use std::time::Instant;

use anyhow::{Context as _, ensure};
use model::document::NoNames;
use model::{Dataset, FileWriter};
use queue::Queue;
use serde_json::{Map, json};

use crate::subject::{Design, Ours, Store, sink};
use crate::syncs;
use crate::workload;

/// The resources that this process has used so far.
pub struct Usage {
    at: Instant,
    cpu_us: f64,
    switches: i64,
    written: u64,
    syncs: u64,
}

/// The resources used by a piece of work.
pub struct Cost {
    pub seconds: f64,
    pub cpu_us: f64,
    pub switches: f64,
    pub written: f64,
    /// Number of requested flushes.
    pub syncs: f64,
}

impl Cost {
    /// Returns the time that this thread did not compute. On a quiet machine it waited for the
    /// disk.
    pub fn wait_us(&self) -> f64 {
        (self.seconds * 1e6 - self.cpu_us).max(0.0)
    }
}

impl Usage {
    pub fn now() -> anyhow::Result<Self> {
        // SAFETY: the pointer is valid for the call, and rusage is plain numbers.
        let usage = unsafe {
            let mut usage: libc::rusage = std::mem::zeroed();
            ensure!(libc::getrusage(libc::RUSAGE_SELF, &mut usage) == 0, "getrusage");
            usage
        };
        let us = |t: libc::timeval| t.tv_sec as f64 * 1e6 + t.tv_usec as f64;
        Ok(Self {
            cpu_us: us(usage.ru_utime) + us(usage.ru_stime),
            switches: usage.ru_nvcsw + usage.ru_nivcsw,
            written: written()?,
            syncs: syncs::count(),
            at: Instant::now(),
        })
    }

    pub fn since(&self) -> anyhow::Result<Cost> {
        let seconds = self.at.elapsed().as_secs_f64();
        let now = Self::now()?;
        Ok(Cost {
            seconds,
            cpu_us: now.cpu_us - self.cpu_us,
            switches: (now.switches - self.switches) as f64,
            written: (now.written - self.written) as f64,
            syncs: (now.syncs - self.syncs) as f64,
        })
    }
}

/// Returns the bytes that this process caused to be written to the block layer.
fn written() -> anyhow::Result<u64> {
    let text = fs::read_to_string("/proc/self/io")?;
    let line = text.lines().find_map(|line| line.strip_prefix("write_bytes: "));
    Ok(line.context("no write_bytes in /proc/self/io")?.parse()?)
}

/// Measures work after the pages of the case before are written, because a page that is already
/// dirty would not count again.
fn measured(db: &Path, work: impl FnOnce() -> anyhow::Result<()>) -> anyhow::Result<Cost> {
    for file in fs::read_dir(db.parent().context("a database without a folder")?)? {
        fs::File::open(file?.path())?.sync_all()?;
    }
    let start = Usage::now()?;
    work()?;
    start.since()
}

/// Returns the result of one case in the form that the parent reads.
fn row(case: &str, count: u64, cost: &Cost) -> Map<String, serde_json::Value> {
    let n = count as f64;
    let mut row = Map::new();
    row.insert("case".into(), case.into());
    row.insert("events_per_second".into(), (n / cost.seconds).into());
    row.insert("cpu_us".into(), (cost.cpu_us / n).into());
    row.insert("bytes_written".into(), (cost.written / n).into());
    row.insert("context_switches".into(), (cost.switches / n).into());
    row.insert("syncs".into(), (cost.syncs / n).into());
    row.insert("wait_us".into(), (cost.wait_us() / n).into());
    row.insert("seconds".into(), cost.seconds.into());
    row
}

/// Runs all cases of a subject and prints them as JSON.
pub fn run(design: Design, count: u64, order: &str, db: &Path) -> anyhow::Result<()> {
    let ordered = workload::order(count, false)?;
    let mut rows = Vec::new();
    let mut insert = row(&format!("insert {count}"), count, &write(design, &ordered, 0, db)?);
    let bytes = fs::metadata(db)?.len();
    insert.insert("db_bytes_per_item".into(), (bytes as f64 / count as f64).into());
    rows.push(insert);
    if order == "insert" {
        println!("{}", json!(rows));
        return Ok(());
    }
    let cost = write(design, &ordered, 1, db)?;
    rows.push(row(&format!("coalesce {count}"), count, &cost));
    if order == "random" {
        let shuffled = workload::order(count, true)?;
        let cost = write(design, &shuffled, 2, db)?;
        rows.push(row(&format!("coalesce {count} random"), count, &cost));
    }
    rows.push(measure_acknowledging(design, count, db)?);
    println!("{}", json!(rows));
    Ok(())
}

/// Passes one round of events to the subject and closes it.
fn write(design: Design, order: &[u64], round: u64, db: &Path) -> anyhow::Result<Cost> {
    match (design, design.open(db)?) {
        (Design::Holdfast(Ours { batch: size, .. }), Store::Holdfast(queue)) => {
            let batches = workload::batches(order, size, round)?;
            measured(db, move || {
                let mut sink = sink(&queue, size)?;
                for mut batch in batches {
                    sink.apply(&mut batch)?;
                }
                sink.flush()?;
                Ok(queue.close()?)
            })
        }
        (_, Store::PerEvent(mut peer)) => {
            let events = workload::events(order, round)?;
            measured(db, move || {
                events.into_iter().try_for_each(|event| peer.submit(event))?;
                peer.close()
            })
        }
        (Design::PerEvent(_), Store::Holdfast(_)) => unreachable!("a design opens its own store"),
    }
}

/// Leases everything pending, builds the documents with their ids, and acknowledges them.
fn measure_acknowledging(
    design: Design,
    count: u64,
    db: &Path,
) -> anyhow::Result<Map<String, serde_json::Value>> {
    let mut store = design.open(db)?;
    let mut told = Acknowledged::default();
    let before = written()?;
    let mut cost = measured(db, || {
        match &mut store {
            Store::Holdfast(queue) => told = lease_and_ack(queue)?,
            Store::PerEvent(peer) => {
                told.documents = std::hint::black_box(peer.fetch_and_mark()?).len() as u64;
                peer.remove_synced()?;
            }
        }
        Ok(())
    })?;
    store.close()?;
    cost.written = (written()? - before) as f64;
    ensure!(told.documents == count, "{} of {count} told", told.documents);
    let mut row = row(&format!("lease+ack {count}"), count, &cost);
    row.insert("queue_seconds".into(), (cost.seconds - told.building_seconds).into());
    Ok(row)
}

/// The acknowledged items. The published design stores complete documents, so the time to build
/// ours is measured separately.
#[derive(Default)]
struct Acknowledged {
    documents: u64,
    building_seconds: f64,
}

/// Leases, builds and acknowledges, session by session.
fn lease_and_ack(queue: &Queue) -> anyhow::Result<Acknowledged> {
    let files = Dataset::fim_files();
    let mut told = Acknowledged::default();
    queue.begin_cycle(&files)?;
    let (mut writer, mut session) = (FileWriter::default(), Vec::new());
    while let Some(lease) = queue.lease(&files, model::limits::SESSION_BYTES_TARGET)? {
        let start = Instant::now();
        session.clear();
        for item in lease.items() {
            let seen = item.observation()?.context("not an observation")?;
            writer.write(&mut session, item.key, &seen, item.seen, &NoNames);
            std::hint::black_box(writer.document_id(item.key));
        }
        std::hint::black_box(&session);
        told.building_seconds += start.elapsed().as_secs_f64();
        told.documents += lease.items().len() as u64;
        queue.ack(lease, &[])?;
    }
    queue.end_cycle(&files)?;
    Ok(told)
}

/// Measures how long a whole cycle takes to find, lease and acknowledge `changed` items among
/// `held` acknowledged ones. With `flat`, all items are in one directory.
pub fn few(held: u64, changed: u64, flat: bool, db: &Path) -> anyhow::Result<()> {
    let batches = if flat { workload::flat_batches } else { workload::batches };
    let design = crate::subject::by_name("holdfast")?;
    let Store::Holdfast(queue) = design.open(db)? else { anyhow::bail!("not ours") };
    let files = Dataset::fim_files();
    let mut into = sink(&queue, detect::limits::BATCH_OPS)?;
    for start in (0..held).step_by(FEW_STEP) {
        let numbers: Vec<u64> = (start..held.min(start + FEW_STEP as u64)).collect();
        for mut batch in batches(&numbers, detect::limits::BATCH_OPS, 0)? {
            into.apply(&mut batch)?;
        }
    }
    into.flush()?;
    queue.begin_cycle(&files)?;
    while let Some(lease) = queue.lease(&files, model::limits::SESSION_BYTES_MAX)? {
        queue.ack(lease, &[])?;
    }
    queue.end_cycle(&files)?;
    let numbers: Vec<u64> = (0..changed).map(|n| n * (held / changed) + n).collect();
    for mut batch in batches(&numbers, numbers.len(), 1)? {
        into.apply(&mut batch)?;
    }
    into.flush()?;
    let start = Usage::now()?;
    queue.begin_cycle(&files)?;
    let mut told = 0;
    while let Some(lease) = queue.lease(&files, model::limits::SESSION_BYTES_TARGET)? {
        told += lease.items().len() as u64;
        queue.ack(lease, &[])?;
    }
    queue.end_cycle(&files)?;
    let cost = start.since()?;
    ensure!(told == changed, "{told} of {changed} told");
    let place = if flat { ", one directory" } else { "" };
    println!("{}", json!([row(&format!("lease {changed} of {held}{place}"), changed, &cost)]));
    Ok(queue.close()?)
}

/// Number of items generated at a time.
const FEW_STEP: usize = 100_000;
