//! The keeper thread: makes checkpoints when they are due, watches the free disk space and
//! publishes the journal's counters.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::Sender;
use std::time::Instant;

use env::files::FileIdentity;
use model::{Coverage, CoverageKind, EventBody, Record};

use crate::applier::Message;
use crate::disk::{DiskState, disk_state};
use crate::options::{DISK_CHECK_INTERVAL, LOW_DISK_LOG_BYTES};
use crate::shared::Shared;

/// Runs the keeper until the commit is closed. `sender` is used to submit the server's own events.
pub(crate) fn run(shared: &Arc<Shared>, sender: Sender<Message>) {
    let mut low_since = None;
    let mut checkpointed_at = Instant::now();
    let mut sender = Some(sender);
    loop {
        if watch_folders(shared) {
            watch_disk(shared, &mut low_since, sender.as_ref());
            if low_since.is_some() && shared.state.log_bytes() > LOW_DISK_LOG_BYTES {
                shrink(shared);
            }
        }
        wait(shared, checkpointed_at);
        if shared.is_closed() {
            break;
        }
        let due = {
            let due = shared.due.lock();
            let late = checkpointed_at.elapsed() >= shared.options.checkpoint_interval;
            shared.is_due(&due) || (due.records > 0 && late)
        };
        if due {
            checkpointed_at = Instant::now();
            if let Err(error) = shared.checkpoint() {
                tracing::error!(%error, "checkpoint failed");
                metrics::counter!("holdfast_commit_checkpoint_failures_total").increment(1);
                pause(shared);
            }
        }
        publish(shared);
    }
    // The applier stops when the last sender is dropped.
    sender.take();
}

/// Waits before a checkpoint that failed is tried again.
fn pause(shared: &Shared) {
    let mut due = shared.due.lock();
    let end = Instant::now() + DISK_CHECK_INTERVAL;
    // Each applied batch wakes the keeper while a checkpoint is due.
    while !shared.is_closed() && !shared.wake.wait_until(&mut due, end).timed_out() {}
}

/// Folds the state's own log into the database while there is still space for that.
fn shrink(shared: &Shared) {
    if let Err(error) = shared.checkpoint().and_then(|_| shared.shrink()) {
        tracing::warn!(%error, "the state's log cannot be made smaller");
    }
}

/// Waits until a checkpoint or a disk check is due, or the commit is closed.
fn wait(shared: &Shared, checkpointed_at: Instant) {
    let mut due = shared.due.lock();
    if !shared.is_closed() && !shared.is_due(&due) {
        let left = shared.options.checkpoint_interval.saturating_sub(checkpointed_at.elapsed());
        let pause =
            if due.records > 0 { left.min(DISK_CHECK_INTERVAL) } else { DISK_CHECK_INTERVAL };
        shared.wake.wait_for(&mut due, pause);
    }
}

/// Returns true if the watched folders are still the same as at the start. Files written to a
/// folder that was removed or unmounted are lost when the process ends, so submits fail until it is
/// back.
pub(crate) fn watch_folders(shared: &Shared) -> bool {
    let mut folders = shared.options.folders.iter().zip(&shared.folders_found);
    let lost =
        folders.find(|(folder, found)| found.is_some() && FileIdentity::of(folder) != **found);
    let before = shared.folder_lost.swap(lost.is_some(), Ordering::Relaxed);
    match lost {
        Some((folder, _)) if !before => tracing::error!(folder = %folder.display(),
            "the folder is gone, or another one is in its place: no records are accepted; put it back, or \
             stop the server and restore its backup"),
        None if before => tracing::warn!("the data folder is back: records are accepted"),
        _ => {}
    }
    lost.is_none()
}

/// A watched folder and the state of its disk.
pub(crate) struct WatchedDisk<'a> {
    pub(crate) folder: &'a Path,
    pub(crate) state: DiskState,
}

/// Checks the watched disk with the least free space.
fn watch_disk(shared: &Arc<Shared>, low_since: &mut Option<u64>, sender: Option<&Sender<Message>>) {
    let mut worst: Option<WatchedDisk> = None;
    for folder in &shared.options.folders {
        match disk_state(folder, &shared.options.disk) {
            Ok(state) => {
                let is_worst =
                    worst.as_ref().is_none_or(|w| state.free_bytes() < w.state.free_bytes());
                if is_worst {
                    worst = Some(WatchedDisk { folder, state });
                }
            }
            Err(error) => {
                tracing::warn!(folder = %folder.display(), %error, "free space is unknown");
            }
        }
    }
    if let Some(worst) = worst {
        judge(shared, low_since, sender, &worst);
    }
}

/// Handles the state of the fullest disk: stops or resumes submits, and records an event when the
/// disk gets low and when it has free space again. `low_since` is the time at which it got low.
pub(crate) fn judge(
    shared: &Arc<Shared>,
    low_since: &mut Option<u64>,
    sender: Option<&Sender<Message>>,
    disk: &WatchedDisk<'_>,
) {
    let WatchedDisk { folder, state } = *disk;
    metrics::gauge!("holdfast_disk_free_bytes").set(state.free_bytes() as f64);
    let critical = matches!(state, DiskState::Critical(_));
    let low = !matches!(state, DiskState::Fine(_));
    if critical && shared.disk_full.lock().is_none() {
        tracing::error!(folder = %folder.display(), free_bytes = state.free_bytes(),
            "disk nearly full: sessions are refused until space is free");
    }
    if !critical {
        // This must precede the event, whose submit would fail otherwise.
        *shared.disk_full.lock() = None;
    }
    let now_us = shared.options.clock.guarded_us();
    let free = state.free_bytes();
    match *low_since {
        None if low => {
            tracing::warn!(folder = %folder.display(), free_bytes = free,
                "disk is getting full: free space or lower the retention");
            let detail = format!("{free} bytes are free");
            record_low_disk(shared, sender, low_disk(folder, now_us, now_us, detail));
            *low_since = Some(now_us);
        }
        Some(since_us) if !low => {
            tracing::info!(folder = %folder.display(), free_bytes = free, "the disk has free space again");
            let detail = format!("{free} bytes are free again");
            let to_us = now_us.max(since_us);
            record_low_disk(shared, sender, low_disk(folder, since_us, to_us, detail));
            *low_since = None;
        }
        _ => {}
    }
    if critical {
        *shared.disk_full.lock() = Some(format!("{}, {free} bytes are free", folder.display()));
    }
}

fn low_disk(folder: &Path, from_us: u64, to_us: u64, detail: String) -> Coverage {
    Coverage {
        kind: CoverageKind::DiskLow,
        path: folder.display().to_string(),
        from_us,
        to_us,
        found: None,
        lasting: None,
        detail,
    }
}

/// Submits an event for a low disk: one when it gets low, while submits still succeed, and one with
/// the whole interval when there is free space again. A failure is only logged.
fn record_low_disk(shared: &Arc<Shared>, sender: Option<&Sender<Message>>, coverage: Coverage) {
    let Some(sender) = sender else { return };
    let at_us = coverage.to_us;
    let id = format!("disk-low-{at_us}");
    let body = EventBody::of_coverage(coverage).to_json();
    let record = Record::ServerEvent { id, at_us, body };
    if let Err(error) = crate::submit_blocking(shared, sender, record) {
        tracing::warn!(%error, "a low disk could not be recorded");
    }
}

/// Publishes the journal's counters as metrics.
fn publish(shared: &Shared) {
    let journal = shared.journal.stats();
    metrics::counter!("holdfast_journal_bytes_written_total").absolute(journal.bytes_written);
    metrics::counter!("holdfast_journal_payload_bytes_total").absolute(journal.payload_bytes);
    metrics::counter!("holdfast_journal_blocks_total").absolute(journal.blocks);
    metrics::counter!("holdfast_journal_flushes_total").absolute(journal.flushes);
    metrics::gauge!("holdfast_state_log_bytes").set(shared.state.log_bytes() as f64);
    metrics::gauge!("holdfast_commit_in_flight_bytes").set(shared.stats().in_flight_bytes as f64);
    if journal.payload_bytes > 0 {
        let ratio = journal.bytes_written as f64 / journal.payload_bytes as f64;
        metrics::gauge!("holdfast_journal_write_amplification").set(ratio);
    }
}
