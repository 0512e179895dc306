//! The product's journal, and the limits of the device itself.

use std::fs::{self, File};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::ensure;
use journal::{Durability, IoPath, Journal, Layout, Options};

use crate::subject::Log;

/// Size of a segment while comparing, bytes.
pub const SEGMENT_BYTES: u64 = 16 << 20;
/// Bytes of the records that fill segments so that they can be recycled.
const FILLER_BYTES: usize = 1 << 20;
const DEADLINE: Duration = Duration::from_secs(60);

pub struct Ours {
    journal: Journal,
    durability: Durability,
    recycled: bool,
}

impl Ours {
    pub fn open(
        folder: &Path,
        layout: Layout,
        durability: Durability,
        recycled: bool,
    ) -> anyhow::Result<Self> {
        let (journal, _) = Journal::open(&folder.join("journal"), options(layout, IoPath::Auto))?;
        Ok(Self { journal, durability, recycled })
    }

    pub fn journal(&self) -> &Journal {
        &self.journal
    }
}

/// Returns the options with which the journal is opened in all cases.
pub fn options(layout: Layout, io: IoPath) -> Options {
    Options { layout, io, segment_bytes: SEGMENT_BYTES, ..Options::default() }
}

impl Log for Ours {
    fn append_record(&self, _: usize, record: &[u8]) -> anyhow::Result<()> {
        self.journal.append(record, self.durability)?;
        Ok(())
    }

    /// Fills and trims segments until a recycled one is in use.
    fn settle(&self) -> anyhow::Result<()> {
        if !self.recycled {
            return Ok(());
        }
        let filler = vec![0x5A; FILLER_BYTES];
        let until = Instant::now() + DEADLINE;
        while self.journal.stats().segments_recycled < 2 {
            ensure!(Instant::now() < until, "no segment was recycled");
            let position = self.journal.append(&filler, Durability::Persist)?.position;
            self.journal.trim(position)?;
        }
        // If there is a ring, it has been overwritten many times by now.
        Ok(())
    }

    fn close(self: Box<Self>) -> anyhow::Result<()> {
        Ok(self.journal.close()?)
    }
}

/// The least that a durable write can cost.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Limit {
    Fdatasync,
    Direct,
}

/// Blocks of the file that is written to, over and over.
const BLOCKS: u64 = 4096;

struct Aligned([u8; 8192]);

pub struct Raw {
    file: File,
    limit: Limit,
    next: AtomicU64,
}

impl Limit {
    pub fn open(self, folder: &Path, _writers: usize) -> anyhow::Result<Raw> {
        let path = folder.join("limit");
        fs::write(&path, vec![0; BLOCKS as usize * 4096])?;
        File::open(&path)?.sync_all()?;
        let mut how = File::options();
        how.write(true);
        if self == Self::Direct {
            how.custom_flags(libc::O_DIRECT | libc::O_DSYNC);
        }
        Ok(Raw { file: how.open(&path)?, limit: self, next: AtomicU64::new(0) })
    }
}

impl Log for Raw {
    fn append_record(&self, _: usize, record: &[u8]) -> anyhow::Result<()> {
        let mut room = Aligned([0; 8192]);
        let skip = room.0.as_ptr().align_offset(4096);
        let block = &mut room.0[skip..skip + 4096];
        let n = record.len().min(4096);
        block[..n].copy_from_slice(&record[..n]);
        let at = self.next.fetch_add(1, Ordering::Relaxed) % BLOCKS * 4096;
        self.file.write_all_at(block, at)?;
        if self.limit == Limit::Fdatasync {
            self.file.sync_data()?;
        }
        Ok(())
    }

    fn close(self: Box<Self>) -> anyhow::Result<()> {
        Ok(())
    }
}
