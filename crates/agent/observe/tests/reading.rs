//! Reading directories and files.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test that cannot go on fails"
)]

use std::fs;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use env::clock::{Clock, SystemClock};
use model::{Kind, ObserveError};
use observe::{
    Algorithm, Cancel, Chunk, Directory, Listing, PoolError, ReadJob, ReadOptions, ReadOutcome,
    ReadPool, ReadResult, ReaderContext, limits, open,
};
use rustix::io::Errno;

/// Longest wait for a reader before the test asks again.
const PATIENCE: Duration = Duration::from_secs(10);

/// SHA-256 of `abc`, from FIPS 180-2.
const SHA256_ABC: [u8; 32] = [
    0xba, 0x78, 0x16, 0xbf, 0x8f, 0x01, 0xcf, 0xea, 0x41, 0x41, 0x40, 0xde, 0x5d, 0xae, 0x22, 0x23,
    0xb0, 0x03, 0x61, 0xa3, 0x96, 0x17, 0x7a, 0x9c, 0xb4, 0x10, 0xff, 0x61, 0xf2, 0x00, 0x15, 0xad,
];

fn directory(path: &Path) -> Arc<Directory> {
    let path = path.as_os_str().as_bytes().to_vec();
    let fd = open::root(&path).unwrap();
    let fd = open::directory_below(fd.as_fd(), b"").unwrap();
    let device = open::stat_of(fd.as_fd()).unwrap().device;
    Arc::new(Directory { fd, path, device, device_before: None })
}

fn job(directory: &Arc<Directory>, name: &str) -> ReadJob {
    ReadJob {
        directory: Arc::clone(directory),
        name: name.into(),
        stat: open::stat_at(directory.fd.as_fd(), name, false).unwrap(),
        before: None,
        renumbered: false,
        target: None,
    }
}

fn options(hash_bytes_max: u64) -> Arc<ReadOptions> {
    let algorithms = vec![Algorithm::Sha256];
    Arc::new(ReadOptions { algorithms, hash_bytes_max, xattrs: true, racy_from_ns: i64::MAX })
}

fn context(cancel: &Cancel) -> Arc<ReaderContext> {
    Arc::new(ReaderContext {
        bucket: None,
        cancel: cancel.clone(),
        bytes_read: Arc::new(AtomicU64::new(0)),
        clock: Arc::new(SystemClock::new()),
    })
}

/// Reads the files of a chunk, and returns the results in the order of names.
fn read(chunk: Chunk, context: &Arc<ReaderContext>) -> Vec<ReadResult> {
    let mut pool = ReadPool::new(1, false, Arc::clone(context));
    let mut results = Vec::new();
    assert!(pool.submit(chunk, &mut results, PATIENCE).unwrap().is_none(), "the queue is empty");
    while !pool.drain(&mut results, PATIENCE).unwrap() {}
    assert!(pool.is_idle());
    results.sort_by(|a, b| a.job.name.cmp(&b.job.name));
    results
}

#[test]
fn listing_is_sorted_and_does_not_follow_links() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("b"), "abc").unwrap();
    fs::create_dir(folder.path().join("c")).unwrap();
    symlink("b", folder.path().join("a")).unwrap();
    let mut listing = Listing::default();
    listing.read(directory(folder.path()).fd.as_fd()).unwrap();
    let entries = (0..).map_while(|i| listing.get(i));
    let found: Vec<_> = entries.map(|(name, e)| (name.to_vec(), e.stat.unwrap().kind)).collect();
    let named = |name: &str, kind| (name.as_bytes().to_vec(), kind);
    let expected = [named("a", Kind::Symlink), named("b", Kind::File), named("c", Kind::Directory)];
    assert_eq!(found, expected);
}

#[test]
fn links_in_the_path_of_a_directory_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir_all(folder.path().join("real/below")).unwrap();
    symlink("real", folder.path().join("link")).unwrap();
    let directory = directory(folder.path());
    let at = |path: &[u8]| open::directory_below(directory.fd.as_fd(), path).map(drop);
    assert_eq!(at(b"real/below"), Ok(()));
    assert_eq!(at(b"link/below"), Err(Errno::LOOP));
    let link = folder.path().join("link/below");
    assert_eq!(open::root(link.as_os_str().as_bytes()).map(drop), Err(Errno::LOOP));
    assert!(open::directory_behind(directory.fd.as_fd(), b"link").is_ok());
}

#[test]
fn pool_returns_one_outcome_per_file() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["file", "gone", "large", "replaced"] {
        fs::write(folder.path().join(name), "abc").unwrap();
    }
    fs::write(folder.path().join("large"), "abcd").unwrap();
    let directory = directory(folder.path());
    let mut chunk = Chunk::new(options(3));
    for name in ["file", "gone", "large", "replaced"] {
        chunk.push(job(&directory, name));
    }
    fs::remove_file(folder.path().join("gone")).unwrap();
    fs::remove_file(folder.path().join("replaced")).unwrap();
    symlink("file", folder.path().join("replaced")).unwrap();
    let context = context(&Cancel::new());
    let results = read(chunk, &context);
    let [file, gone, large, replaced] = &results[..] else { panic!("{results:?}") };
    let ReadOutcome::Observed(observed) = &file.outcome else { panic!("{file:?}") };
    assert_eq!(observed.hashes.sha256, Some(SHA256_ABC));
    assert_eq!((observed.size, observed.error, file.bytes), (3, None, 3));
    assert!(matches!(gone.outcome, ReadOutcome::Gone), "{gone:?}");
    let ReadOutcome::Observed(observed) = &large.outcome else { panic!("{large:?}") };
    assert_eq!(observed.error, Some(ObserveError::TooLarge));
    assert_eq!(observed.hashes.sha256, None);
    assert!(matches!(replaced.outcome, ReadOutcome::Left), "{replaced:?}");
    assert_eq!(context.bytes_read.load(Ordering::Relaxed), 3);
}

#[test]
fn cancelled_readers_leave_files_unread() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("file"), "abc").unwrap();
    let mut chunk = Chunk::new(options(u64::MAX));
    chunk.push(job(&directory(folder.path()), "file"));
    let cancel = Cancel::new();
    cancel.cancel();
    let context = context(&cancel);
    let results = read(chunk, &context);
    assert!(matches!(results[..], [ReadResult { outcome: ReadOutcome::Left, bytes: 0, .. }]));
    assert_eq!(context.bytes_read.load(Ordering::Relaxed), 0);
}

/// A clock that panics, as a defect in a reader would.
struct BrokenClock;

impl Clock for BrokenClock {
    fn now_us(&self) -> u64 {
        panic!("broken clock");
    }

    fn monotonic(&self) -> Duration {
        Duration::ZERO
    }
}

#[test]
fn panic_of_a_reader_fails_every_later_call() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("file"), "abc").unwrap();
    let directory = directory(folder.path());
    let chunk = || {
        let mut chunk = Chunk::new(options(u64::MAX));
        chunk.push(job(&directory, "file"));
        chunk
    };
    let context = Arc::new(ReaderContext {
        bucket: None,
        cancel: Cancel::new(),
        bytes_read: Arc::new(AtomicU64::new(0)),
        clock: Arc::new(BrokenClock),
    });
    let mut pool = ReadPool::new(1, false, context);
    let mut results = Vec::new();
    assert!(pool.submit(chunk(), &mut results, PATIENCE).unwrap().is_none());
    let drained = loop {
        match pool.drain(&mut results, PATIENCE) {
            Ok(false) => {}
            end => break end,
        }
    };
    assert!(matches!(drained, Err(PoolError::Panicked)), "{drained:?}");
    let submitted = pool.submit(chunk(), &mut results, PATIENCE);
    assert!(matches!(submitted, Err(PoolError::Panicked)), "{submitted:?}");
    assert!(results.is_empty());
}

#[test]
fn chunk_is_full_at_its_limits_of_files_and_directories() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("file"), "abc").unwrap();
    let one = directory(folder.path());
    let mut chunk = Chunk::new(options(u64::MAX));
    for _ in 0..limits::CHUNK_FILES {
        assert!(!chunk.is_full());
        chunk.push(job(&one, "file"));
    }
    assert!(chunk.take().is_full());
    assert!(chunk.is_empty());
    for _ in 0..limits::CHUNK_DIRECTORIES {
        assert!(!chunk.is_full());
        chunk.push(job(&directory(folder.path()), "file"));
    }
    assert!(chunk.is_full());
    let mut large = job(&one, "file");
    large.stat.size = limits::CHUNK_BYTES;
    chunk = Chunk::new(options(u64::MAX));
    chunk.push(large);
    assert!(chunk.is_full());
}
