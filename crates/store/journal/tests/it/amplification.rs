//! Bytes that reach the medium per byte of payload, measured by compressing every written block as
//! a compressing drive would, and the cost of a commit.

use std::io::{self, Write};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::common::{DIR, Noise};
use env::files::{Access, File, FileOver, Files, FilesOver, SimDisk};
use journal::{Durability, Journal, Layout, Options};

const BLOCK: usize = 4096;

#[derive(Default)]
struct Meter {
    zlib: AtomicU64,
    lz4: AtomicU64,
    blocks: AtomicU64,
    flushes: AtomicU64,
    names: AtomicU64,
}

/// A disk that compresses each written block and counts the bytes.
struct Metered {
    disk: SimDisk,
    meter: Arc<Meter>,
    latency: Duration,
}

struct MeteredFile {
    file: Arc<dyn File>,
    meter: Arc<Meter>,
    dsync: bool,
    latency: Duration,
}

impl FileOver for MeteredFile {
    fn under(&self) -> &dyn File {
        &*self.file
    }

    fn write_at(&self, from: &[u8], offset: u64) -> io::Result<usize> {
        for block in from.chunks(BLOCK) {
            // Fast zlib models a drive that compresses.
            let level = flate2::Compression::fast();
            let mut zlib = flate2::write::ZlibEncoder::new(Vec::new(), level);
            zlib.write_all(block)?;
            let zlib = zlib.finish()?.len().min(BLOCK) as u64;
            let lz4 = lz4_flex::compress(block).len().min(BLOCK) as u64;
            // Blocks of zeros were written ahead of the commits, and are counted separately.
            if block.iter().any(|b| *b != 0) {
                self.meter.zlib.fetch_add(zlib, Ordering::Relaxed);
                self.meter.lz4.fetch_add(lz4, Ordering::Relaxed);
                self.meter.blocks.fetch_add(1, Ordering::Relaxed);
                self.meter.flushes.fetch_add(u64::from(self.dsync), Ordering::Relaxed);
            }
        }
        if self.dsync && !self.latency.is_zero() {
            // This models the device: groups form while it flushes.
            std::thread::sleep(self.latency);
        }
        self.file.write_at(from, offset)
    }
}

impl FilesOver for Metered {
    fn under(&self) -> &dyn Files {
        &self.disk
    }

    fn open(&self, path: &Path, access: Access) -> io::Result<Arc<dyn File>> {
        let file = self.disk.open(path, access)?;
        let (meter, latency) = (Arc::clone(&self.meter), self.latency);
        Ok(Arc::new(MeteredFile { file, meter, dsync: access.dsync, latency }))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.meter.names.fetch_add(1, Ordering::Relaxed);
        self.disk.rename(from, to)
    }
}

/// Returns the amplification by zlib and by lz4, and the file bytes per byte of payload.
fn amplification(layout: Layout, record_bytes: usize, count: u64) -> (f64, f64, f64) {
    let meter = Arc::new(Meter::default());
    let disk = SimDisk::new(1);
    let files = Metered { disk: disk.clone(), meter: Arc::clone(&meter), latency: Duration::ZERO };
    let options = Options {
        layout,
        segment_bytes: 16 << 20,
        background: false,
        files: Arc::new(files),
        ..Options::default()
    };
    let (journal, _) = Journal::open(Path::new(DIR), options).unwrap();
    let mut noise = Noise(5);
    journal.append(&noise.bytes(record_bytes), Durability::Persist).unwrap();
    let before = [&meter.zlib, &meter.lz4, &meter.names].map(|n| n.load(Ordering::Relaxed));
    let began = journal.stats();
    for _ in 0..count {
        journal.append(&noise.bytes(record_bytes), Durability::Persist).unwrap();
    }
    let after = [&meter.zlib, &meter.lz4, &meter.names].map(|n| n.load(Ordering::Relaxed));
    let stats = journal.stats();
    assert_eq!(after[2], before[2], "a commit changed a name");
    let archived = (stats.archive_bytes - began.archive_bytes).div_ceil(4096);
    assert!(stats.flushes - began.flushes <= count + archived, "more than one flush a commit");
    let payload = (count * record_bytes as u64) as f64;
    let bytes = |i: usize| (after[i] - before[i]) as f64 / payload;
    let estimated = (stats.compressed_bytes - began.compressed_bytes) as f64 / payload;
    assert!((estimated / bytes(1)) > 0.7 && (estimated / bytes(1)) < 1.5, "estimate {estimated}");
    let kept = (stats.archive_bytes - began.archive_bytes) as f64 / payload;
    (bytes(0), bytes(1), kept)
}

#[test]
fn sparse_and_ring_meet_the_amplification_limit_at_16_bytes() {
    let (zlib, lz4, _) = amplification(Layout::Packed, 16, 2000);
    assert!(zlib > 90.0 && lz4 > 90.0, "packed: zlib={zlib:.2} lz4={lz4:.2}");
    let (zlib, lz4, _) = amplification(Layout::Sparse, 16, 2000);
    assert!(zlib <= 4.5 && lz4 <= 3.2, "sparse: zlib={zlib:.2} lz4={lz4:.2}");
    let (zlib, lz4, kept) = amplification(Layout::Ring, 16, 4000);
    assert!(zlib <= 6.0 && lz4 <= 4.7, "ring: zlib={zlib:.2} lz4={lz4:.2}");
    assert!(kept <= 1.6, "the archive takes {kept:.2} of the payload");
}

#[test]
fn sparse_amplification_is_near_one_at_128_bytes() {
    let (zlib, lz4, _) = amplification(Layout::Sparse, 128, 1000);
    assert!(zlib <= 1.6 && lz4 <= 1.35, "sparse: zlib={zlib:.2} lz4={lz4:.2}");
}

#[test]
fn sparse_amplification_is_near_one_with_32_writers() {
    const WRITERS: u64 = 32;
    const EACH: u64 = 60;
    let meter = Arc::new(Meter::default());
    let latency = Duration::from_micros(400);
    let files = Metered { disk: SimDisk::new(1), meter: Arc::clone(&meter), latency };
    let options = Options {
        layout: Layout::Sparse,
        segment_bytes: 16 << 20,
        files: Arc::new(files),
        // Other tests may slow down this machine: the default wait for group members is too short.
        group_wait: Duration::from_millis(200),
        ..Options::default()
    };
    let (journal, _) = Journal::open(Path::new(DIR), options).unwrap();
    journal.append(b"first", Durability::Persist).unwrap();
    let before = meter.zlib.load(Ordering::Relaxed);
    std::thread::scope(|scope| {
        for writer in 0..WRITERS {
            let journal = &journal;
            scope.spawn(move || {
                let mut noise = Noise(writer);
                for _ in 0..EACH {
                    journal.append(&noise.bytes(16), Durability::Persist).unwrap();
                }
            });
        }
    });
    let zlib = (meter.zlib.load(Ordering::Relaxed) - before) as f64;
    let (zlib, stats) = (zlib / (WRITERS * EACH * 16) as f64, journal.stats());
    assert!(zlib <= 1.3, "sparse, 32 writers: zlib={zlib:.2} in {} groups", stats.groups);
}
