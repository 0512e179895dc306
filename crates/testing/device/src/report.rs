//! The writes that reached the device, by location, and their size on a drive that compresses.

use std::io::Write as _;

use flate2::Compression;
use flate2::write::ZlibEncoder;

use crate::options::BLOCK_BYTES;

/// Bytes that a drive keeps of a block: by zlib at its fastest level, and by lz4; never more than
/// the block itself.
pub fn block_sizes(block: &[u8]) -> (u64, u64) {
    let mut zlib = ZlibEncoder::new(Vec::with_capacity(BLOCK_BYTES), Compression::fast());
    let packed = zlib.write_all(block).and_then(|()| zlib.finish());
    let zlib = packed.map_or(block.len(), |out| out.len().min(block.len()));
    let lz4 = lz4_flex::block::compress(block).len().min(block.len());
    (zlib as u64, lz4 as u64)
}

/// The writes to one block, or to several.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Tally {
    /// Block writes as they came.
    pub written: u64,
    /// Block writes that a flush made durable: a block written twice between two flushes counts
    /// once. Blocks of zeros are not among them.
    pub blocks: u64,
    /// Bytes of those, each block compressed by zlib at its fastest level.
    pub zlib_bytes: u64,
    /// Bytes of those, each block compressed by lz4.
    pub lz4_bytes: u64,
    /// Blocks of zeros that a flush made durable.
    pub zero_blocks: u64,
}

impl Tally {
    pub(crate) fn flushed(&mut self, content: Option<&[u8; BLOCK_BYTES]>) {
        let Some(block) = content else {
            self.zero_blocks += 1;
            return;
        };
        let (zlib, lz4) = block_sizes(block);
        self.blocks += 1;
        self.zlib_bytes += zlib;
        self.lz4_bytes += lz4;
    }

    pub fn add(&mut self, other: &Self) {
        self.written += other.written;
        self.blocks += other.blocks;
        self.zlib_bytes += other.zlib_bytes;
        self.lz4_bytes += other.lz4_bytes;
        self.zero_blocks += other.zero_blocks;
    }
}

/// The location of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Class {
    /// In the files that were named.
    Files,
    /// In the file system's journal.
    Journal,
    /// Anywhere else: inodes, bitmaps, other files.
    Other,
}

/// The writes that reached the device since measuring began.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Report {
    /// Blocks of the files that were named.
    pub files: Tally,
    /// Blocks of the file system's journal (ext4 only; elsewhere they are among the others).
    pub journal: Tally,
    /// All other blocks.
    pub other: Tally,
    pub writes: u64,
    pub flushes: u64,
}

impl Report {
    pub fn of(&self, class: Class) -> &Tally {
        match class {
            Class::Files => &self.files,
            Class::Journal => &self.journal,
            Class::Other => &self.other,
        }
    }

    /// Returns the total of all classes.
    pub fn total(&self) -> Tally {
        let mut total = self.files;
        total.add(&self.journal);
        total.add(&self.other);
        total
    }
}
