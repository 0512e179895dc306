//! A scan by one thread: every file is read once for MD5, SHA-1 and SHA-256, and the result goes to
//! the subject. The same thread reads and writes, so that no second core hides the cost of a queue.

use std::fs::{self, File};
use std::io::Read as _;
use std::os::linux::fs::MetadataExt as _;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::time::{Duration, Instant};

use model::document::NoNames;
use model::traits::PortError;
use model::{ChangeBatch, FileDocument, ItemKey, Kind, Observation, Op, Sink, SinkOutcome};
use serde_json::json;
use sha1::Digest as _;

use crate::child::Usage;
use crate::peer::{Operation, Peer};
use crate::subject::{Design, Store, by_name, sink};
use crate::workload;

/// Stores nothing.
pub const NOTHING: &str = "nothing persisted";
/// Stores nothing but builds each file's document, as the published design does.
pub const NOTHING_BUILT: &str = "nothing persisted, documents built";

/// Bytes of one read.
const READ_BYTES: usize = 256 * 1024;

/// Runs one scan of `tree` and prints it as JSON.
pub fn run(subject: &str, tree: &Path, db: &Path) -> anyhow::Result<()> {
    let (store, batch) = match subject {
        NOTHING | NOTHING_BUILT => (None, 1),
        name => {
            let design = by_name(name)?;
            let batch = if let Design::Holdfast(ours) = design { ours.batch } else { 1 };
            (Some(design.open(db)?), batch)
        }
    };
    let start = Usage::now()?;
    let Scanned { files, mut kept } = match store {
        None if subject == NOTHING => scan(tree, batch, &mut Nothing)?,
        None => scan(tree, batch, &mut Built)?,
        Some(Store::Holdfast(queue)) => {
            let mut scanned = scan(tree, batch, &mut *sink(&queue, batch)?)?;
            let closing = Instant::now();
            queue.close()?;
            scanned.kept += closing.elapsed();
            scanned
        }
        Some(Store::PerEvent(peer)) => {
            let mut into = PerEvent { peer, building: Duration::ZERO };
            let mut scanned = scan(tree, batch, &mut into)?;
            let closing = Instant::now();
            into.peer.close()?;
            // The time to build documents is not part of the time to store.
            scanned.kept = scanned.kept + closing.elapsed() - into.building;
            scanned
        }
    };
    let cost = start.since()?;
    if matches!(subject, NOTHING | NOTHING_BUILT) {
        kept = Duration::ZERO;
    }
    let n = files as f64;
    println!(
        "{}",
        json!([{
            "seconds": cost.seconds,
            "events_per_second": n / cost.seconds,
            "cpu_us": cost.cpu_us / n,
            "context_switches": cost.switches / n,
            "syncs": cost.syncs / n,
            "wait_us": cost.wait_us() / n,
            "bytes_written": cost.written / n,
            "queue_share": kept.as_secs_f64() / cost.seconds,
        }])
    );
    Ok(())
}

/// The files that were scanned, and the time that the sink took.
struct Scanned {
    files: u64,
    kept: Duration,
}

fn scan(tree: &Path, batch_ops: usize, sink: &mut dyn Sink) -> anyhow::Result<Scanned> {
    let (mut files, mut kept) = (0, Duration::ZERO);
    let mut buffer = vec![0; READ_BYTES];
    let mut batch = ChangeBatch::new();
    let mut apply = |batch: &mut ChangeBatch| {
        let start = Instant::now();
        let applied = sink.apply(batch);
        kept += start.elapsed();
        applied
    };
    for directory in sorted(tree)? {
        for file in sorted(&directory)? {
            let observation = observe(&file, &mut buffer)?;
            let key = ItemKey::of_path(file.as_os_str().as_bytes());
            batch.push(Op::Put { key, observation, change: None });
            files += 1;
            if batch.len() >= batch_ops {
                apply(&mut batch)?;
            }
        }
    }
    apply(&mut batch)?;
    let start = Instant::now();
    sink.flush()?;
    Ok(Scanned { files, kept: kept + start.elapsed() })
}

/// Returns the entries of a folder by inode, which is their order on the disk.
fn sorted(folder: &Path) -> anyhow::Result<Vec<std::path::PathBuf>> {
    use std::os::unix::fs::DirEntryExt as _;
    let mut found = fs::read_dir(folder)?
        .map(|entry| entry.map(|e| (e.ino(), e.path())))
        .collect::<std::io::Result<Vec<_>>>()?;
    found.sort_unstable();
    Ok(found.into_iter().map(|(_, path)| path).collect())
}

fn observe(path: &Path, buffer: &mut [u8]) -> anyhow::Result<Observation> {
    let mut file = File::open(path)?;
    let stat = file.metadata()?;
    let mut sha256 = ring::digest::Context::new(&ring::digest::SHA256);
    let (mut sha1, mut md5) = (sha1::Sha1::new(), md5::Md5::new());
    loop {
        let bytes = match file.read(buffer)? {
            0 => break,
            n => &buffer[..n],
        };
        sha256.update(bytes);
        sha1.update(bytes);
        md5.update(bytes);
    }
    let mut seen = Observation::empty(Kind::File);
    seen.device = stat.st_dev();
    seen.inode = stat.st_ino();
    seen.links = stat.st_nlink();
    seen.mode = stat.st_mode() & 0o7777;
    seen.uid = stat.st_uid();
    seen.gid = stat.st_gid();
    seen.size = stat.st_size();
    seen.mtime_ns = stat.st_mtime() * 1_000_000_000 + stat.st_mtime_nsec();
    seen.ctime_ns = stat.st_ctime() * 1_000_000_000 + stat.st_ctime_nsec();
    seen.verified_at_s = 1_795_000_000;
    seen.hashes.sha256 = sha256.finish().as_ref().try_into().ok();
    seen.hashes.sha1 = Some(sha1.finalize().into());
    seen.hashes.md5 = Some(md5.finalize().into());
    Ok(seen)
}

struct Nothing;

impl Sink for Nothing {
    fn apply(&mut self, batch: &mut ChangeBatch) -> Result<SinkOutcome, PortError> {
        std::hint::black_box(&*batch);
        batch.clear();
        Ok(SinkOutcome::default())
    }
}

struct Built;

impl Sink for Built {
    fn apply(&mut self, batch: &mut ChangeBatch) -> Result<SinkOutcome, PortError> {
        for op in batch.drain(..) {
            let Op::Put { key, observation, .. } = op else { continue };
            let document = FileDocument::new(&key, &observation, 1, &NoNames);
            std::hint::black_box((key.document_id(), serde_json::to_string(&document).ok()));
        }
        Ok(SinkOutcome::default())
    }
}

struct PerEvent {
    peer: Peer,
    building: Duration,
}

impl Sink for PerEvent {
    fn apply(&mut self, batch: &mut ChangeBatch) -> Result<SinkOutcome, PortError> {
        for op in batch.drain(..) {
            let Op::Put { key, observation, .. } = op else { continue };
            let start = Instant::now();
            let failed = |e: anyhow::Error| PortError(e.to_string());
            let event =
                workload::event(&key, &observation, Operation::Create, 0).map_err(failed)?;
            self.building += start.elapsed();
            self.peer.submit(event).map_err(failed)?;
        }
        Ok(SinkOutcome::default())
    }
}
