//! Notes in the queue's database: the state of the agent that survives restarts, except its items.

use std::path::Path;

use env::uptime::Uptime;
use queue::{Queue, QueueError};
use realtime::RealtimeStatus;
use sha2::{Digest as _, Sha256};

use crate::datasets::DatasetKind;

/// Time at which the agent was last known to run, microseconds since the epoch, decimal.
const ALIVE: &str = "agent.alive_us";
/// The same as the machine's uptime ([`Uptime::to_text`]); empty if the system does not provide it.
const ALIVE_UPTIME: &str = "agent.alive_uptime";
/// Digest of the rules of the last scan.
const RULES: &str = "scan.rules";
/// The gaps that were reported and are still open, as JSON.
const GAPS: &str = "scan.gaps";
/// Not empty while the server must be compared before the first file is reported. It is `due`
/// before the first complete scan has ended, and then the time of that end, microseconds since the
/// epoch.
const COMPARE: &str = "agent.compare";
/// As [`COMPARE`], for packages.
const COMPARE_PACKAGES: &str = "agent.compare.packages";
/// End of the last check of all datasets, microseconds since the epoch, decimal.
const CHECKED: &str = "agent.checked_us";
/// The last scan's result, as JSON.
const LAST_SCAN: &str = "scan.last";

/// State of realtime detection, as JSON.
const REALTIME: &str = "realtime";

/// A time at which the agent was known to run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Alive {
    /// By the wall clock, microseconds since the epoch.
    pub(super) wall_us: u64,
    /// By the time since the machine was booted; `None` if the system does not provide it.
    pub(super) uptime: Option<Uptime>,
}

/// Notes the state of realtime detection.
pub(super) fn set_realtime(queue: &Queue, status: &RealtimeStatus) -> Result<(), QueueError> {
    queue.meta_set(REALTIME, &serde_json::to_vec(status).unwrap_or_default())
}

/// Returns the state of realtime detection in an agent's database; `None` if there is none.
///
/// # Errors
/// Returns an error if the database cannot be read.
pub fn realtime_status(path: &Path) -> Result<Option<RealtimeStatus>, QueueError> {
    let note = queue::peek_note(path, REALTIME)?;
    Ok(note.and_then(|json| serde_json::from_slice(&json).ok()))
}

/// Notes that the agent runs.
pub(super) fn set_alive(queue: &Queue, alive: &Alive) -> Result<(), QueueError> {
    let uptime = alive.uptime.as_ref().map(Uptime::to_text).unwrap_or_default();
    queue.meta_set(ALIVE_UPTIME, uptime.as_bytes())?;
    queue.meta_set(ALIVE, alive.wall_us.to_string().as_bytes())
}

/// Returns the time at which the agent was last known to run.
pub(super) fn alive(queue: &Queue) -> Result<Option<Alive>, QueueError> {
    let wall_us = text(queue.meta_get(ALIVE)?).and_then(|t| t.parse().ok());
    let uptime = text(queue.meta_get(ALIVE_UPTIME)?).and_then(|t| Uptime::parse(&t));
    Ok(wall_us.map(|wall_us| Alive { wall_us, uptime }))
}

/// Notes the time at which agent and server were compared.
pub(super) fn set_checked(queue: &Queue, now_us: u64) -> Result<(), QueueError> {
    queue.meta_set(CHECKED, now_us.to_string().as_bytes())
}

/// Returns the time of the last comparison.
pub(super) fn checked(queue: &Queue) -> Result<Option<u64>, QueueError> {
    Ok(text(queue.meta_get(CHECKED)?).and_then(|t| t.parse().ok()))
}

/// Returns true if rules were noted and these differ from them.
pub(super) fn rules_changed(queue: &Queue, rules: &detect::Rules) -> Result<bool, QueueError> {
    let before = queue.meta_get(RULES)?;
    Ok(before.is_some_and(|before| before != digest(rules)))
}

/// Notes the rules.
pub(super) fn set_rules(queue: &Queue, rules: &detect::Rules) -> Result<(), QueueError> {
    queue.meta_set(RULES, &digest(rules))
}

/// Returns the SHA-256 of the rules as JSON, which fits into a note for any number of rules.
fn digest(rules: &detect::Rules) -> Vec<u8> {
    Sha256::digest(serde_json::to_vec(rules).unwrap_or_default()).to_vec()
}

/// Notes the open gaps.
pub(super) fn set_gaps(queue: &Queue, gaps: &[detect::Gap]) -> Result<(), QueueError> {
    queue.meta_set(GAPS, &serde_json::to_vec(gaps).unwrap_or_default())
}

/// Returns the gaps that were open.
pub(super) fn gaps(queue: &Queue) -> Result<Vec<detect::Gap>, QueueError> {
    let note = queue.meta_get(GAPS)?;
    Ok(note.and_then(|bytes| serde_json::from_slice(&bytes).ok()).unwrap_or_default())
}

/// Notes the result of a scan.
pub(super) fn set_last_scan(queue: &Queue, report: &detect::ScanReport) -> Result<(), QueueError> {
    let mut json = serde_json::to_vec(report).unwrap_or_default();
    if json.len() > queue::NOTE_BYTES_MAX {
        // There may be very many roots; a status shows only their sums.
        let sums = detect::ScanReport { roots: Vec::new(), ..report.clone() };
        json = serde_json::to_vec(&sums).unwrap_or_default();
    }
    queue.meta_set(LAST_SCAN, &json)
}

/// Returns true if a scan was completed with this database. Before that it lacks items that are on
/// the disk, and a check would treat them as surplus on the server.
pub(super) fn scanned(queue: &Queue) -> Result<bool, QueueError> {
    Ok(queue.meta_get(LAST_SCAN)?.is_some())
}

/// Returns the last scan's result as JSON, from a database that another process may have open.
pub fn last_scan(database: &Path) -> Result<Option<serde_json::Value>, QueueError> {
    let note = queue::peek_note(database, LAST_SCAN)?;
    Ok(note.and_then(|bytes| serde_json::from_slice(&bytes).ok()))
}

/// Returns a line about the result of a scan that [`last_scan`] returned.
pub fn last_scan_line(scan: &serde_json::Value) -> String {
    let number = |pointer| scan.pointer(pointer).and_then(serde_json::Value::as_u64);
    let ended = number("/ended_at_us").map_or_else(|| "never".into(), model::timestamp::micros);
    let files = number("/counts/files").unwrap_or_default();
    let changes = ["/counts/created", "/counts/modified", "/counts/deleted"];
    let changes: u64 = changes.into_iter().filter_map(number).sum();
    format!("last scan: ended {ended}, {files} files, {changes} changes")
}

/// Notes that a database without a completed scan must be compared with the server before the first
/// document is reported, because it has no record of earlier reports.
pub(super) fn note_comparison_due(queue: &Queue) -> Result<(), QueueError> {
    if scanned(queue)? {
        return Ok(());
    }
    for name in [COMPARE, COMPARE_PACKAGES] {
        if queue.meta_get(name)?.is_none() {
            queue.meta_set(name, b"due")?;
        }
    }
    Ok(())
}

fn compare_note(kind: DatasetKind) -> &'static str {
    match kind {
        DatasetKind::Files => COMPARE,
        DatasetKind::Packages => COMPARE_PACKAGES,
    }
}

/// Notes the end of the first complete scan of a dataset, if the dataset has to be compared.
pub(super) fn set_seen(queue: &Queue, kind: DatasetKind, seen_us: u64) -> Result<(), QueueError> {
    match compare_due(queue, kind)? {
        Some(u64::MAX) => queue.meta_set(compare_note(kind), seen_us.to_string().as_bytes()),
        _ => Ok(()),
    }
}

/// Returns, while the comparison is due, the end of the first complete scan in microseconds since
/// the epoch, or [`u64::MAX`] before that.
pub(super) fn compare_due(queue: &Queue, kind: DatasetKind) -> Result<Option<u64>, QueueError> {
    let note = text(queue.meta_get(compare_note(kind))?).filter(|note| !note.is_empty());
    Ok(note.map(|note| note.parse().unwrap_or(u64::MAX)))
}

/// Notes that the comparison was made.
pub(super) fn set_compared(queue: &Queue, kind: DatasetKind) -> Result<(), QueueError> {
    queue.meta_set(compare_note(kind), b"")
}

fn text(note: Option<Vec<u8>>) -> Option<String> {
    note.and_then(|bytes| String::from_utf8(bytes).ok())
}
