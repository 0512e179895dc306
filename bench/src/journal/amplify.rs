//! Bytes at the block device for each byte of payload. A child process has a device of its own with
//! ext4, on which one subject runs all cases.

use std::path::Path;
use std::time::Duration;

use anyhow::Context as _;
use device::{Device, DeviceOptions, Fs, PowerCut, Report, block_sizes};
use journal::{Durability, IoPath, Journal, Layout};
use serde_json::{Value, json};

use crate::ours;
use crate::subject::{Kind, Log, Noise, files};

/// Size of the device, bytes.
const DEVICE_BYTES: u64 = 4 << 30;
/// Duration of a flush, so that groups form as on a fast drive.
const FLUSH_TIME: Duration = Duration::from_micros(100);
/// Commits before the counted ones.
const WARM_UP: usize = 200;
const BLOCK: f64 = 4096.0;

/// Returns the name of a case.
pub fn case(record: usize, writers: usize) -> String {
    format!("{record} B, {writers} writer{}", if writers == 1 { "" } else { "s" })
}

/// Runs all cases of a subject and prints its rows.
pub fn run(kind: Kind, records: &[usize], writers: &[usize], commits: usize) -> anyhow::Result<()> {
    let options = DeviceOptions { bytes: DEVICE_BYTES, flush_time: FLUSH_TIME, measure: true };
    let mut device = Device::with(options)?;
    let base = device.mount(Fs::Ext4)?;
    let mut rows = Vec::new();
    for record in records {
        for writers in writers {
            let folder = base.join(format!("{record}-{writers}"));
            let log = kind.open(&folder, *writers)?;
            log.settle()?;
            write(&*log, *writers, *record, WARM_UP, 1)?;
            sync(&base)?;
            device.start_measuring();
            let commits = kind.commits(commits, *writers);
            write(&*log, *writers, *record, commits, 2)?;
            let named: Vec<_> = files(&folder)?.into_iter().filter(|f| kind.is_log(f)).collect();
            let report = device.report(&named)?;
            let commits = commits / writers * writers;
            add(&mut rows, &case(*record, *writers), &report, commits, *record);
            log.close()?;
            std::fs::remove_dir_all(&folder)?;
        }
    }
    println!("{}", Value::Array(rows));
    Ok(())
}

fn add(rows: &mut Vec<Value>, case: &str, report: &Report, commits: usize, record: usize) {
    let payload = (commits * record) as f64;
    let zeros = block_sizes(&[0; 4096]).0 as f64;
    let (files, total) = (report.files, report.total());
    for (metric, value) in [
        ("write_amplification_zlib", total.zlib_bytes as f64 / payload),
        ("write_amplification_lz4", total.lz4_bytes as f64 / payload),
        ("log_file_zlib", files.zlib_bytes as f64 / payload),
        ("log_file_lz4", files.lz4_bytes as f64 / payload),
        ("file_system_journal_zlib", report.journal.zlib_bytes as f64 / payload),
        ("file_system_journal_blocks_per_commit", report.journal.blocks as f64 / commits as f64),
        ("blocks_4k_per_payload", total.blocks as f64 * BLOCK / payload),
        ("flushes_per_commit", report.flushes as f64 / commits as f64),
        ("zero_filling_zlib", total.zero_blocks as f64 * zeros / payload),
        ("zero_filling_blocks_per_payload", total.zero_blocks as f64 * BLOCK / payload),
    ] {
        rows.push(json!({"case": case, "metric": metric, "value": value, "unit": "ratio"}));
    }
}

/// Writes `count` records by N threads in equal shares.
fn write(
    log: &dyn Log,
    writers: usize,
    record: usize,
    count: usize,
    seed: u64,
) -> anyhow::Result<()> {
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..writers)
            .map(|writer| {
                scope.spawn(move || {
                    let mut noise = Noise::new(seed * 1000 + writer as u64);
                    let mut bytes = vec![0; record];
                    (0..count / writers).try_for_each(|_| {
                        noise.fill_record(&mut bytes);
                        log.append_record(writer, &bytes)
                    })
                })
            })
            .collect();
        threads.into_iter().try_for_each(|t| t.join().expect("a writer does not panic"))
    })
}

fn sync(folder: &Path) -> anyhow::Result<()> {
    let folder = std::fs::File::open(folder)?;
    Ok(rustix::fs::syncfs(folder)?)
}

/// Records per second in runs that flush by time.
const PACED_PER_SECOND: u64 = 2000;
/// Records between two checks of the time.
const PACED_STEP: u64 = 10;
const PACED_RECORD: usize = 16;

/// Measures flushes by time instead of at every commit: amplification, and what a power cut costs.
pub fn paced(layout: Layout, every: Duration, run: Duration) -> anyhow::Result<()> {
    let mut device =
        Device::with(DeviceOptions { bytes: DEVICE_BYTES, flush_time: FLUSH_TIME, measure: true })?;
    let base = device.mount(Fs::Ext4)?;
    let folder = base.join("paced");
    let log = ours::Ours::open(&folder, layout, Durability::Within(every), true)?;
    log.settle()?;
    sync(&base)?;
    let first = log.journal().stats().last_position;
    device.start_measuring();
    let mut noise = Noise::new(3);
    let mut bytes = [0; PACED_RECORD];
    let began = std::time::Instant::now();
    let mut count = 0;
    while began.elapsed() < run {
        for _ in 0..PACED_STEP {
            noise.fill_record(&mut bytes);
            log.append_record(0, &bytes)?;
        }
        count += PACED_STEP;
        let due = Duration::from_millis(count * 1000 / PACED_PER_SECOND);
        std::thread::sleep(due.saturating_sub(began.elapsed()));
    }
    let last = log.journal().stats().last_position;
    let report = device.report(&[] as &[&Path])?;
    device.power_cut(&PowerCut::ALL)?;
    drop(log);
    device.remount()?;
    let (journal, recovery) =
        Journal::open(&folder.join("journal"), ours::options(layout, IoPath::Auto))
            .context("after the cut")?;
    let kept = recovery.last_position.saturating_sub(first);
    drop(journal);
    let payload = (kept.max(1) * PACED_RECORD as u64) as f64;
    let total = report.total();
    let written = if kept == 0 { 0.0 } else { total.zlib_bytes as f64 / payload };
    let lz4 = if kept == 0 { 0.0 } else { total.lz4_bytes as f64 / payload };
    println!(
        "{}",
        json!([
            {"metric": "write_amplification_zlib", "value": written, "unit": "ratio"},
            {"metric": "write_amplification_lz4", "value": lz4, "unit": "ratio"},
            {"metric": "records_written", "value": last - first, "unit": "1"},
            {"metric": "records_lost", "value": last - first - kept.min(last - first), "unit": "1"},
            {"metric": "flushes", "value": report.flushes, "unit": "1"},
        ])
    );
    Ok(())
}

/// Measures the sparse layout on a file system that compresses: device bytes per byte of payload.
pub fn btrfs(io: IoPath, commits: usize, record: usize) -> anyhow::Result<()> {
    let mut device =
        Device::with(DeviceOptions { bytes: DEVICE_BYTES, flush_time: FLUSH_TIME, measure: true })?;
    let base = device.mount(Fs::BtrfsZstd)?;
    let folder = base.join("btrfs");
    let (journal, recovery) = Journal::open(&folder, ours::options(Layout::Sparse, io))?;
    let mut noise = Noise::new(4);
    let mut bytes = vec![0; record];
    let mut append = |count: usize| -> anyhow::Result<()> {
        for _ in 0..count {
            noise.fill_record(&mut bytes);
            journal.append(&bytes, Durability::Persist)?;
        }
        Ok(())
    };
    append(WARM_UP)?;
    sync(&base)?;
    device.start_measuring();
    append(commits)?;
    let named = files(&folder)?;
    let report = device.report(&named)?;
    let payload = (commits * record) as f64;
    let blocks = |n: u64| n as f64 * BLOCK / payload;
    println!(
        "{}",
        json!([
            {"metric": "blocks_4k_per_payload", "value": blocks(report.total().blocks),
                "unit": "ratio"},
            {"metric": "log_file_blocks_per_payload", "value": blocks(report.files.blocks),
                "unit": "ratio"},
            {"metric": "write_amplification_zlib",
                "value": report.total().zlib_bytes as f64 / payload, "unit": "ratio"},
            {"metric": "flushes_per_commit", "value": report.flushes as f64 / commits as f64,
                "unit": "ratio"},
            {"metric": "io_direct", "value": f64::from(u8::from(recovery.io == IoPath::Direct)),
                "unit": "1"},
        ])
    );
    journal.close()?;
    Ok(())
}

/// Measures the space that the ring's archive takes per byte of payload, with one writer. The ring
/// itself does not grow with the log.
pub fn space(count: usize) -> anyhow::Result<()> {
    const RECORD: usize = 16;
    // The kind of disk does not matter here.
    let files = std::sync::Arc::new(env::files::SimDisk::new(1));
    let options = journal::Options { files, ..ours::options(Layout::Ring, IoPath::Fdatasync) };
    let (journal, _) = Journal::open(Path::new("/journal"), options)?;
    let mut noise = Noise::new(6);
    let mut bytes = [0; RECORD];
    for _ in 0..count {
        noise.fill_record(&mut bytes);
        journal.append(&bytes, Durability::Persist)?;
    }
    let kept = journal.stats().archive_bytes as f64 / (count * RECORD) as f64;
    println!("{}", json!([{"metric": "log_space", "value": kept, "unit": "ratio"}]));
    journal.close()?;
    Ok(())
}
