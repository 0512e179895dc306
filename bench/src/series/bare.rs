//! The upper bound that the disk sets on a speed: a program that only computes, writes and flushes.

use std::fs::File;
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Condvar, Mutex};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use rustix::fs::OFlags;
use rustix::time::{ClockId, clock_gettime};

/// Size of the file for the records. It is written in advance, as the log prepares its segments.
const FILE_BYTES: u64 = 64 << 20;
const BLOCK_BYTES: usize = 4096;
/// Duration of one measurement.
const TURN: Duration = Duration::from_millis(150);

/// The way in which a record is persisted before its batch is answered.
#[derive(Clone, Copy, PartialEq, Eq)]
enum How {
    Not,
    /// Through the page cache; one thread flushes for all waiting writers, as in a group commit.
    Grouped,
    /// By a direct write that returns once the data is on the disk, concurrent with other writes.
    Direct,
}

/// Number of batches written, and of those flushed.
#[derive(Default)]
struct Group {
    written: u64,
    flushed: u64,
    flushing: bool,
}

/// A file next to the servers' folders, and the threads that write to it.
pub struct Bare {
    plain: File,
    /// `None` on a file system without direct writes.
    direct: Option<File>,
    at: AtomicU64,
    group: Mutex<Group>,
    more: Condvar,
}

impl Bare {
    pub fn new(dir: &Path) -> anyhow::Result<Self> {
        let path = dir.join("bare");
        let plain = File::options().create(true).truncate(true).write(true).open(&path)?;
        plain.write_all_at(&vec![0; FILE_BYTES as usize], 0)?;
        plain.sync_all()?;
        let flags = (OFlags::DIRECT | OFlags::DSYNC).bits() as i32;
        let direct = File::options().write(true).custom_flags(flags).open(&path).ok();
        let (at, group, more) = (AtomicU64::new(0), Mutex::default(), Condvar::new());
        Ok(Self { plain, direct, at, group, more })
    }

    /// Returns the ratio of two speeds of N threads, with and without a log. Each thread computes
    /// for `work` of a core's time per batch; with the log it then persists `bytes`. Of the two
    /// ways to persist, the faster one counts.
    pub fn speed_ratio(&self, threads: usize, work: Duration, bytes: usize) -> anyhow::Result<f64> {
        let without = self.turn(threads, work, bytes, How::Not)?;
        let grouped = self.turn(threads, work, bytes, How::Grouped)?;
        let direct = match &self.direct {
            Some(_) => self.turn(threads, work, bytes, How::Direct)?,
            None => 0.0,
        };
        Ok(grouped.max(direct) / without)
    }

    fn turn(&self, threads: usize, work: Duration, bytes: usize, how: How) -> anyhow::Result<f64> {
        // Data that others left in the page cache must not be written during the measurement.
        rustix::fs::sync();
        let began = Instant::now();
        let batches = || {
            // Direct writes need whole blocks at block-aligned addresses.
            let room = vec![7; bytes.next_multiple_of(BLOCK_BYTES) + BLOCK_BYTES];
            let record = room.get(room.as_ptr().align_offset(BLOCK_BYTES)..).unwrap_or_default();
            let mut batches = 0;
            while began.elapsed() < TURN {
                compute(work);
                self.persist(record, bytes, how)?;
                batches += 1;
            }
            anyhow::Ok(batches)
        };
        let batches = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..threads).map(|_| scope.spawn(batches)).collect();
            let joined = threads.into_iter().map(|t| t.join().ok().context("a thread died")?);
            joined.sum::<anyhow::Result<u64>>()
        })?;
        Ok(batches as f64 / began.elapsed().as_secs_f64())
    }

    /// Persists the blocks of the first `bytes` of a record.
    fn persist(&self, record: &[u8], bytes: usize, how: How) -> anyhow::Result<()> {
        if how == How::Not {
            return Ok(());
        }
        // Whole blocks, as the log writes them.
        let blocks = bytes.next_multiple_of(BLOCK_BYTES);
        let record = record.get(..blocks).context("no record")?;
        let at = self.at.fetch_add(blocks as u64, Ordering::Relaxed);
        let at = at % (FILE_BYTES - blocks as u64) / BLOCK_BYTES as u64 * BLOCK_BYTES as u64;
        if let (How::Direct, Some(file)) = (how, &self.direct) {
            return Ok(file.write_all_at(record, at)?);
        }
        self.plain.write_all_at(record, at)?;
        self.flush()
    }

    /// Waits until everything written so far is flushed, by this thread or another one.
    fn flush(&self) -> anyhow::Result<()> {
        let poisoned = || anyhow::anyhow!("a thread died");
        let mut group = self.group.lock().map_err(|_| poisoned())?;
        group.written += 1;
        let mine = group.written;
        while group.flushed < mine {
            if group.flushing {
                group = self.more.wait(group).map_err(|_| poisoned())?;
                continue;
            }
            group.flushing = true;
            let covered = group.written;
            drop(group);
            let flushed = self.plain.sync_data();
            group = self.group.lock().map_err(|_| poisoned())?;
            group.flushing = false;
            group.flushed = group.flushed.max(covered);
            self.more.notify_all();
            flushed?;
        }
        Ok(())
    }
}

/// Uses this much CPU time of one core.
fn compute(work: Duration) {
    let taken = || {
        let time = clock_gettime(ClockId::ThreadCPUTime);
        Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
    };
    let began = taken();
    while taken() - began < work {
        std::hint::spin_loop();
    }
}
