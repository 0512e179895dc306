//! Opening a long log, and appending without waiting for the disk.

use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::time::Instant;

use journal::{Durability, Journal, Layout, Options};
use serde_json::json;

use crate::commits::cpu_seconds;
use crate::subject::Noise;

/// Size of the records in the long log, bytes.
const RECORD_BYTES: usize = 1024;
/// Number of records appended together.
const TOGETHER: usize = 256;
const APPEND_BYTES: usize = 128;
const APPENDS: u64 = 400_000;

fn options() -> Options {
    Options { layout: Layout::Packed, spares: 0, ..Options::default() }
}

/// Writes a log of N bytes and leaves it unclosed, as after a kill.
pub fn write(folder: &Path, bytes: u64) -> anyhow::Result<()> {
    let (journal, _) = Journal::open(folder, options())?;
    let mut noise = Noise::new(9);
    let mut records = vec![vec![0; RECORD_BYTES]; TOGETHER];
    for _ in 0..bytes / (RECORD_BYTES * TOGETHER) as u64 {
        for record in &mut records {
            noise.fill_record(record);
        }
        let records: Vec<&[u8]> = records.iter().map(Vec::as_slice).collect();
        journal.append_all(&records, Durability::Flush)?;
    }
    journal.persist()?;
    std::process::exit(0);
}

/// Opens the log and prints the rows.
pub fn open(folder: &Path) -> anyhow::Result<()> {
    let cpu = cpu_seconds();
    let began = Instant::now();
    let (journal, recovery) = Journal::open(folder, options())?;
    let seconds = began.elapsed().as_secs_f64();
    let cpu = cpu_seconds() - cpu;
    let rss = peak_rss()?;
    anyhow::ensure!(!recovery.clean, "it was closed: nothing had to be recovered");
    // Bytes of the log, however often they are read.
    let records = recovery.last_position - recovery.first_position + 1;
    let gigabytes = (records * RECORD_BYTES as u64) as f64 / 1e9;
    println!(
        "{}",
        json!([
            {"metric": "recovered_gb_per_second", "value": gigabytes / seconds, "unit": "GB/s"},
            {"metric": "cpu_s_per_gb", "value": cpu / gigabytes, "unit": "s"},
            {"metric": "bytes_read", "value": recovery.bytes_read, "unit": "B"},
            {"metric": "rss_mb", "value": rss, "unit": "MB"},
        ])
    );
    drop(journal);
    Ok(())
}

/// Appends without waiting for the disk, one by one and several together, and prints the rows.
pub fn append(folder: &Path, together: usize) -> anyhow::Result<()> {
    let (journal, _) = Journal::open(folder, options())?;
    let mut noise = Noise::new(9);
    let mut records = vec![vec![0; APPEND_BYTES]; together];
    records.iter_mut().for_each(|record| noise.fill_record(record));
    let records: Vec<&[u8]> = records.iter().map(Vec::as_slice).collect();
    journal.append_all(&records, Durability::Flush)?;
    let cpu = cpu_seconds();
    for _ in 0..APPENDS / together as u64 {
        journal.append_all(&records, Durability::Flush)?;
    }
    let cpu = cpu_seconds() - cpu;
    println!(
        "{}",
        json!([{"metric": "cpu_ns_per_record", "value": cpu * 1e9 / APPENDS as f64, "unit": "ns"}])
    );
    drop(journal);
    Ok(())
}

/// Measures the lower bound for one record per call when each is handed to the operating system:
/// one block written repeatedly through the page cache. Prints the row.
pub fn bare_writes(folder: &Path) -> anyhow::Result<()> {
    std::fs::create_dir_all(folder)?;
    let file = std::fs::File::create(folder.join("bare"))?;
    let block = [7; journal::BLOCK_BYTES];
    file.write_all_at(&block, 0)?;
    let cpu = cpu_seconds();
    for _ in 0..APPENDS {
        file.write_all_at(&block, 0)?;
    }
    let cpu = cpu_seconds() - cpu;
    println!(
        "{}",
        json!([{"metric": "cpu_ns_per_record", "value": cpu * 1e9 / APPENDS as f64, "unit": "ns"}])
    );
    Ok(())
}

/// Returns the largest resident set so far, MB (10^6 bytes).
fn peak_rss() -> anyhow::Result<f64> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|l| l.strip_prefix("VmHWM:")).unwrap_or_default();
    let kib: f64 = line.trim().trim_end_matches(" kB").parse().unwrap_or(f64::NAN);
    Ok(kib * 1024.0 / 1e6)
}
