//! Files that count what reaches them: at each flush, every 4 KiB block written since the last one.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::sync::Arc;

use env::files::{Access, File, FileOver, Files, FilesOver, RealFiles};
use journal::BLOCK_BYTES;
use parking_lot::Mutex;

#[derive(Debug, Clone, Copy, Default)]
pub struct Flushed {
    pub flushes: u64,
    /// Blocks other than blocks of zeros.
    pub blocks: u64,
    pub zlib_bytes: u64,
    pub lz4_bytes: u64,
    /// Blocks of zeros: written ahead of the commits.
    pub zero_blocks: u64,
}

#[derive(Default)]
struct State {
    flushed: Flushed,
    /// Flushed blocks that are compressed later, when no commit waits for them.
    later: Vec<Box<[u8]>>,
}

/// Counts over all files of one [`Metered`].
#[derive(Clone, Default)]
pub struct Meter(Arc<Mutex<State>>);

impl Meter {
    /// Discards the counts so far.
    pub fn restart(&self) {
        *self.0.lock() = State::default();
    }

    /// Returns the bytes flushed since the last restart.
    pub fn flushed(&self) -> Flushed {
        let mut state = self.0.lock();
        for block in std::mem::take(&mut state.later) {
            let (zlib, lz4) = device::block_sizes(&block);
            state.flushed.zlib_bytes += zlib;
            state.flushed.lz4_bytes += lz4;
        }
        state.flushed
    }

    fn flush(&self, dirty: BTreeMap<u64, Box<[u8]>>) {
        let mut state = self.0.lock();
        let mut data = false;
        for block in dirty.into_values() {
            if block.iter().all(|byte| *byte == 0) {
                state.flushed.zero_blocks += 1;
            } else {
                data = true;
                state.flushed.blocks += 1;
                state.later.push(block);
            }
        }
        // A flush of zeros alone belongs to no commit.
        state.flushed.flushes += u64::from(data);
    }
}

/// The operating system's files, counted.
#[derive(Default)]
pub struct Metered {
    files: RealFiles,
    meter: Meter,
}

impl Metered {
    pub fn new(meter: &Meter) -> Self {
        Self { files: RealFiles, meter: meter.clone() }
    }
}

struct MeteredFile {
    file: Arc<dyn File>,
    meter: Meter,
    dsync: bool,
    dirty: Mutex<BTreeMap<u64, Box<[u8]>>>,
}

impl FileOver for MeteredFile {
    fn under(&self) -> &dyn File {
        &*self.file
    }

    fn write_at(&self, from: &[u8], offset: u64) -> io::Result<usize> {
        let written = self.file.write_at(from, offset)?;
        let mut dirty = self.dirty.lock();
        // The journal writes whole blocks only.
        let blocks = from.get(..written).unwrap_or_default().chunks(BLOCK_BYTES);
        for (number, block) in (offset / BLOCK_BYTES as u64..).zip(blocks) {
            dirty.insert(number, block.into());
        }
        if self.dsync {
            self.meter.flush(std::mem::take(&mut *dirty));
        }
        Ok(written)
    }

    fn persist(&self) -> io::Result<()> {
        let dirty = std::mem::take(&mut *self.dirty.lock());
        self.file.persist()?;
        self.meter.flush(dirty);
        Ok(())
    }
}

impl FilesOver for Metered {
    fn under(&self) -> &dyn Files {
        &self.files
    }

    fn open(&self, path: &Path, access: Access) -> io::Result<Arc<dyn File>> {
        Ok(Arc::new(MeteredFile {
            file: self.files.open(path, access)?,
            meter: self.meter.clone(),
            dsync: access.dsync,
            dirty: Mutex::default(),
        }))
    }
}
