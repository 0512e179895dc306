//! One case: N writers, records of one size and one layout. Measures the bytes that reach the file
//! or the block device.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use device::{Device, Fs};
use journal::{Durability, Journal, Layout, Options};

use crate::meter::{Meter, Metered};

/// Size of a segment while measuring, bytes.
const SEGMENT_BYTES: u64 = 16 << 20;
/// Commits before the counted ones.
const WARM_UP: u64 = 100;
/// Size of the device, bytes.
const DEVICE_BYTES: u64 = 2 << 30;
/// Duration of a flush of the device, so that groups form as on a fast drive.
const FLUSH_TIME: Duration = Duration::from_micros(100);
/// Size of the records that fill segments, so that recycled segments are measured, bytes.
const FILLER_BYTES: usize = 1 << 20;
/// Longest time to wait for a recycled segment.
const RECYCLE_TIME_MAX: Duration = Duration::from_secs(60);

/// The measured case.
#[derive(Debug, Clone, Copy)]
pub struct Case {
    pub layout: Layout,
    pub record_bytes: usize,
    pub writers: u64,
    pub commits: u64,
}

/// One measured figure.
pub struct Figure {
    pub metric: &'static str,
    pub value: f64,
}

fn figures<const N: usize>(figures: [(&'static str, f64); N]) -> Vec<Figure> {
    figures.map(|(metric, value)| Figure { metric, value }).into()
}

impl Case {
    /// Returns the number of counted commits: the same for each writer, and enough that the ring is
    /// written twice, so that its archive is included.
    fn commits(&self) -> u64 {
        let ring_blocks = journal::RING_BYTES_DEFAULT / journal::BLOCK_BYTES as u64;
        let rounds = if self.layout == Layout::Ring { 2 * ring_blocks } else { 0 };
        self.writers * rounds.max(self.commits / self.writers)
    }

    fn payload(&self) -> f64 {
        (self.commits() * self.record_bytes as u64) as f64
    }

    fn per_payload(&self, blocks: u64) -> f64 {
        (blocks * journal::BLOCK_BYTES as u64) as f64 / self.payload()
    }

    fn options(&self) -> Options {
        Options { layout: self.layout, segment_bytes: SEGMENT_BYTES, ..Options::default() }
    }

    /// Measures the bytes that reach the log's files.
    pub fn at_files(&self, dir: &Path) -> anyhow::Result<Vec<Figure>> {
        let meter = Meter::default();
        let options = Options { files: Arc::new(Metered::new(&meter)), ..self.options() };
        let (journal, _) = Journal::open(dir, options)?;
        self.append(&journal, WARM_UP, 1)?;
        meter.restart();
        self.append(&journal, self.commits(), 2)?;
        let flushed = meter.flushed();
        journal.close()?;
        Ok(figures([
            ("log_file_zlib", flushed.zlib_bytes as f64 / self.payload()),
            ("log_file_lz4", flushed.lz4_bytes as f64 / self.payload()),
            ("log_file_blocks_per_payload", self.per_payload(flushed.blocks)),
            ("flushes_per_commit", flushed.flushes as f64 / self.commits() as f64),
            ("zero_filling_blocks_per_payload", self.per_payload(flushed.zero_blocks)),
        ]))
    }

    /// Measures the bytes that reach the block device, including the file system's. Only recycled
    /// segments are used.
    pub fn at_device(&self, device: &Device, dir: &Path) -> anyhow::Result<Vec<Figure>> {
        let (journal, _) = Journal::open(dir, self.options())?;
        recycle(&journal)?;
        self.append(&journal, WARM_UP, 1)?;
        let folder = std::fs::File::open(device.folder())?;
        rustix::fs::syncfs(folder)?;
        device.start_measuring();
        self.append(&journal, self.commits(), 2)?;
        let mut files = Vec::new();
        for entry in std::fs::read_dir(dir)? {
            files.push(entry?.path());
        }
        let report = device.report(&files)?;
        journal.close()?;
        let (files, total) = (report.files, report.total());
        let commits = self.commits() as f64;
        Ok(figures([
            ("write_amplification_zlib", total.zlib_bytes as f64 / self.payload()),
            ("write_amplification_lz4", total.lz4_bytes as f64 / self.payload()),
            ("blocks_4k_per_payload", self.per_payload(total.blocks)),
            ("log_file_zlib", files.zlib_bytes as f64 / self.payload()),
            ("log_file_lz4", files.lz4_bytes as f64 / self.payload()),
            ("log_file_blocks_per_payload", self.per_payload(files.blocks)),
            ("file_system_journal_blocks_per_commit", report.journal.blocks as f64 / commits),
            ("flushes_per_commit", report.flushes as f64 / commits),
            ("zero_filling_blocks_per_payload", self.per_payload(total.zero_blocks)),
        ]))
    }

    /// Appends N records of noise, divided among the writers.
    fn append(&self, journal: &Journal, count: u64, seed: u64) -> anyhow::Result<()> {
        let writer = |writer| {
            let mut noise = Noise(seed << 32 | writer);
            let mut record = vec![0; self.record_bytes];
            (0..count.div_ceil(self.writers)).try_for_each(|_| {
                noise.fill_record(&mut record);
                journal.append(&record, Durability::Persist).map(|_| ())
            })
        };
        std::thread::scope(|scope| {
            let threads: Vec<_> =
                (0..self.writers).map(|n| scope.spawn(move || writer(n))).collect();
            for thread in threads {
                match thread.join() {
                    Ok(done) => done?,
                    Err(_) => bail!("a writer panicked"),
                }
            }
            Ok(())
        })
    }
}

/// Returns a device with ext4.
pub fn device() -> anyhow::Result<Device> {
    let options =
        device::DeviceOptions { bytes: DEVICE_BYTES, flush_time: FLUSH_TIME, measure: true };
    let mut device = Device::with(options).context("--device")?;
    device.mount(Fs::Ext4)?;
    Ok(device)
}

/// Fills and trims segments until a recycled one is in use.
fn recycle(journal: &Journal) -> anyhow::Result<()> {
    let filler = vec![0x5A; FILLER_BYTES];
    let until = Instant::now() + RECYCLE_TIME_MAX;
    while journal.stats().segments_recycled == 0 {
        if Instant::now() > until {
            bail!("no segment was recycled within {RECYCLE_TIME_MAX:?}");
        }
        let position = journal.append(&filler, Durability::Persist)?.position;
        journal.trim(position)?;
    }
    Ok(())
}

/// SplitMix64: incompressible data.
struct Noise(u64);

impl Noise {
    fn fill_record(&mut self, record: &mut [u8]) {
        for piece in record.chunks_mut(8) {
            self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
            let mut z = self.0;
            z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
            z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
            let bytes = (z ^ (z >> 31)).to_le_bytes();
            piece.iter_mut().zip(bytes).for_each(|(into, from)| *into = from);
        }
    }
}
