//! The compared logs, and their common operation: making a record durable.

use std::path::{Path, PathBuf};

use anyhow::bail;
use journal::{Durability, Layout};

use crate::ours::{Limit, Ours};
use crate::peers;
use crate::sqlite::{Grouped, OneByOne};

/// A log that several threads write to. Records begin with a key of 8 bytes, for logs that need
/// one.
pub trait Log: Sync {
    /// Returns once the record is on the medium (or as durable as the subject's name says).
    fn append_record(&self, writer: usize, record: &[u8]) -> anyhow::Result<()>;

    /// Brings the log into the state of one that has been in use for long.
    fn settle(&self) -> anyhow::Result<()> {
        Ok(())
    }

    /// Closes in good order.
    fn close(self: Box<Self>) -> anyhow::Result<()>;
}

/// The implementation of a subject.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Kind {
    Holdfast { layout: Layout, durability: Durability, recycled: bool },
    RocksDb,
    WiredTiger,
    Sqlite,
    SqliteGrouped,
    RaftEngine,
    OkayWal,
    Limit(Limit),
}

/// A compared log, by its name in results.
pub type Subject = (&'static str, Kind);

/// Number of blocks in the ring; each holds one group.
const RING_BLOCKS: usize = journal::RING_BYTES_DEFAULT as usize / journal::BLOCK_BYTES;

const fn ours(layout: Layout) -> Kind {
    Kind::Holdfast { layout, durability: Durability::Persist, recycled: true }
}

const fn first_use(layout: Layout) -> Kind {
    Kind::Holdfast { layout, durability: Durability::Persist, recycled: false }
}

/// The subject that ratios refer to.
pub const YARDSTICK: &str = "rocksdb";

/// The subjects whose write amplification is measured.
pub const AMPLIFIED: &[Subject] = &[
    ("holdfast sparse", ours(Layout::Sparse)),
    ("holdfast ring", ours(Layout::Ring)),
    ("holdfast packed", ours(Layout::Packed)),
    ("rocksdb", Kind::RocksDb),
    ("wiredtiger", Kind::WiredTiger),
    ("sqlite full", Kind::Sqlite),
    ("sqlite full, group commit", Kind::SqliteGrouped),
    ("raft-engine", Kind::RaftEngine),
    ("okaywal", Kind::OkayWal),
];

/// Ours while segments are used for the first time, which shows the cost of zero filling.
pub const FIRST_USE: &[Subject] = &[
    ("holdfast sparse, first use", first_use(Layout::Sparse)),
    ("holdfast ring, first use", first_use(Layout::Ring)),
    ("holdfast packed, first use", first_use(Layout::Packed)),
];

/// The subjects whose commits are timed.
pub const TIMED: &[Subject] = &[
    (
        "holdfast packed, no sync",
        Kind::Holdfast { layout: Layout::Packed, durability: Durability::Flush, recycled: true },
    ),
    ("limit: pwrite + fdatasync, zero-filled file", Kind::Limit(Limit::Fdatasync)),
    ("limit: O_DIRECT|O_DSYNC, zero-filled file", Kind::Limit(Limit::Direct)),
];

/// Returns the subject with that name.
pub fn by_name(name: &str) -> anyhow::Result<Kind> {
    let all = AMPLIFIED.iter().chain(FIRST_USE).chain(TIMED);
    match all.into_iter().find(|s| s.0 == name) {
        Some(found) => Ok(found.1),
        None => bail!("no subject {name}"),
    }
}

impl Kind {
    /// Returns the reason why the subject is not available here.
    pub fn missing(self) -> Option<&'static str> {
        match self {
            Self::RocksDb if !cfg!(has_rocksdb) => Some("librocksdb-dev is not installed"),
            Self::WiredTiger if !cfg!(has_wiredtiger) => Some("it was not built"),
            _ => None,
        }
    }

    /// Returns the number of commits: the ring is written at least twice, so that its archive is
    /// included.
    pub fn commits(self, wanted: usize, writers: usize) -> usize {
        let ring = matches!(self, Self::Holdfast { layout: Layout::Ring, .. });
        if ring { wanted.max(RING_BLOCKS * 2 * writers) } else { wanted }
    }

    /// Returns true if it is a limit of the device, which more writers do not raise.
    pub fn is_limit(self) -> bool {
        matches!(self, Self::Limit(_))
    }

    /// Opens the subject in an empty folder, for N writers.
    pub fn open(self, folder: &Path, writers: usize) -> anyhow::Result<Box<dyn Log>> {
        std::fs::create_dir_all(folder)?;
        Ok(match self {
            Self::Holdfast { layout, durability, recycled } => {
                Box::new(Ours::open(folder, layout, durability, recycled)?)
            }
            Self::RocksDb => peers::rocksdb(folder)?,
            Self::WiredTiger => peers::wiredtiger(folder, writers)?,
            Self::Sqlite => Box::new(OneByOne::open(folder)?),
            Self::SqliteGrouped => Box::new(Grouped::open(folder)?),
            Self::RaftEngine => peers::raft_engine(folder)?,
            Self::OkayWal => peers::okaywal(folder)?,
            Self::Limit(limit) => Box::new(limit.open(folder, writers)?),
        })
    }

    /// Returns true if a file of the folder belongs to the log itself.
    pub fn is_log(self, file: &Path) -> bool {
        let name = file.file_name().unwrap_or_default().to_string_lossy();
        match self {
            Self::RocksDb => name.ends_with(".log"),
            Self::WiredTiger => name.starts_with("WiredTigerLog."),
            Self::Sqlite | Self::SqliteGrouped => name.ends_with("-wal"),
            _ => true,
        }
    }
}

/// Returns all files below a folder.
pub fn files(folder: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder)? {
            let entry = entry?;
            match entry.file_type()? {
                kind if kind.is_dir() => folders.push(entry.path()),
                kind if kind.is_file() => found.push(entry.path()),
                _ => {}
            }
        }
    }
    Ok(found)
}

/// Incompressible records, all different.
pub struct Noise(u64);

impl Noise {
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    pub fn fill_record(&mut self, record: &mut [u8]) {
        for piece in record.chunks_mut(8) {
            self.0 ^= self.0 << 13;
            self.0 ^= self.0 >> 7;
            self.0 ^= self.0 << 17;
            let bytes = self.0.wrapping_mul(0x2545_F491_4F6C_DD1D).to_le_bytes();
            piece.copy_from_slice(&bytes[..piece.len()]);
        }
    }
}
