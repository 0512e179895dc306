//! Reads one regular file: open, stat, content, stat again. Errors are stored in the observation,
//! because a file that cannot be read is still known to exist.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use env::clock::Clock;
use model::{Hashes, Kind, Observation, ObserveError};
use rustix::io::Errno;

use crate::budget::TokenBucket;
use crate::cancel::Cancel;
use crate::digest::{Algorithm, Digester};
use crate::directory::Directory;
use crate::stat::Stat;
use crate::xattrs::{XattrReader, XattrSource};
use crate::{limits, open};

/// Settings for reading files.
#[derive(Debug)]
pub struct ReadOptions {
    /// The digests to compute.
    pub algorithms: Vec<Algorithm>,
    /// Size above which content is not read, bytes.
    pub hash_bytes_max: u64,
    /// True if extended attributes are read.
    pub xattrs: bool,
    /// Inodes changed at or after this instant may change again unseen, nanoseconds since the
    /// epoch.
    pub racy_from_ns: i64,
}

/// State that all readers of one pool share.
pub struct ReaderContext {
    /// The limit of bytes per second, if any.
    pub bucket: Option<TokenBucket>,
    /// Stops the readers.
    pub cancel: Cancel,
    /// Bytes of content read, also of files that could not be read to their end.
    pub bytes_read: Arc<AtomicU64>,
    /// The source of the time at which content was verified.
    pub clock: Arc<dyn Clock>,
}

/// A file to be read.
#[derive(Debug)]
pub struct ReadJob {
    /// The directory that holds it.
    pub directory: Arc<Directory>,
    /// Its name in the directory, raw.
    pub name: Vec<u8>,
    /// Its stat when it was listed: a regular file. Used if the file cannot be opened.
    pub stat: Stat,
    /// The last observation, which is returned with the result and not used by the reader.
    pub before: Option<Box<Observation>>,
    /// True if the device number in `before` was translated; returned with the result.
    pub renumbered: bool,
    /// The text of the link at this name, if the file behind the link is to be read.
    pub target: Option<Vec<u8>>,
}

/// The outcome of reading one file.
#[derive(Debug)]
pub enum ReadOutcome {
    /// A consistent observation, or one that holds the error.
    Observed(Box<Observation>),
    /// There is no entry of that name.
    Gone,
    /// It is no longer a regular file, or the reader was cancelled. Read it again later.
    Left,
}

/// A job with its outcome.
#[derive(Debug)]
pub struct ReadResult {
    /// The job, as it was submitted.
    pub job: ReadJob,
    /// The outcome.
    pub outcome: ReadOutcome,
    /// Bytes of content read for it, also for attempts that were repeated.
    pub bytes: u64,
}

enum Content {
    Read(Hashes),
    /// The content is longer than the size in the first stat.
    Grown,
    TooLarge,
    Failed(Errno),
    Cancelled,
}

/// A reader of files, one after the other, with one buffer.
pub(crate) struct Reader {
    context: Arc<ReaderContext>,
    buffer: Vec<u8>,
    xattrs: XattrReader,
}

impl Reader {
    pub(crate) fn new(context: Arc<ReaderContext>) -> Self {
        Self { context, buffer: vec![0; limits::READ_BYTES], xattrs: XattrReader::default() }
    }

    pub(crate) fn run(&mut self, job: ReadJob, options: &ReadOptions) -> ReadResult {
        let mut bytes = 0;
        let outcome = self.observe(&job, options, &mut bytes);
        ReadResult { job, outcome, bytes }
    }

    fn observe(&mut self, job: &ReadJob, options: &ReadOptions, bytes: &mut u64) -> ReadOutcome {
        let parent = job.directory.fd.as_fd();
        let mut last = job.stat;
        for _ in 0..=limits::UNSTABLE_RETRIES {
            if self.context.cancel.is_cancelled() {
                return ReadOutcome::Left;
            }
            let fd = match open::file(parent, &job.name, job.stat.uid, job.target.is_some()) {
                Ok(fd) => fd,
                Err(Errno::NOENT) => return ReadOutcome::Gone,
                // It was replaced by a link, a socket or a device.
                Err(Errno::LOOP | Errno::NXIO | Errno::NODEV) => return ReadOutcome::Left,
                Err(error) => return self.unread(job, options, error),
            };
            let start = match open::stat_of(fd.as_fd()) {
                Ok(stat) if stat.kind == Kind::File => stat,
                Ok(_) => return ReadOutcome::Left,
                Err(error) => return self.unread(job, options, error),
            };
            let content = self.content(fd.as_fd(), &start, options, bytes);
            let end = match open::stat_of(fd.as_fd()) {
                Ok(stat) => stat,
                Err(error) => return self.unread(job, options, error),
            };
            last = end;
            let mut now = end.observation(options.racy_from_ns);
            match content {
                Content::Cancelled => return ReadOutcome::Left,
                Content::Grown => continue,
                Content::Read(_) if start != end => continue,
                Content::Read(hashes) => {
                    now.hashes = hashes;
                    now.verified_at_s = (self.context.clock.now_us() / 1_000_000) as u32;
                }
                Content::TooLarge => now.error = Some(ObserveError::TooLarge),
                Content::Failed(error) => {
                    now.error = Some(ObserveError::Os(error.raw_os_error()));
                }
            }
            if options.xattrs {
                now.xattrs = self.xattrs.read(XattrSource::Open(fd.as_fd()));
            }
            now.target.clone_from(&job.target);
            return ReadOutcome::Observed(Box::new(now));
        }
        let mut now = last.observation(options.racy_from_ns);
        now.error = Some(ObserveError::Unstable);
        ReadOutcome::Observed(Box::new(self.rest(now, job, options)))
    }

    /// Returns the observation of a file that cannot be opened, from the stat of its job.
    fn unread(&mut self, job: &ReadJob, options: &ReadOptions, error: Errno) -> ReadOutcome {
        let mut now = job.stat.observation(options.racy_from_ns);
        now.error = Some(ObserveError::Os(error.raw_os_error()));
        ReadOutcome::Observed(Box::new(self.rest(now, job, options)))
    }

    /// Adds what can be had without opening the file: extended attributes and the link's text.
    fn rest(&mut self, mut now: Observation, job: &ReadJob, options: &ReadOptions) -> Observation {
        if options.xattrs && job.target.is_none() {
            let entry = XattrSource::Entry(job.directory.fd.as_fd(), &job.name);
            now.xattrs = self.xattrs.read(entry);
        }
        now.target.clone_from(&job.target);
        now
    }

    /// Reads and hashes an open file, at the speed that the budget allows. Adds the bytes read to
    /// `bytes`, also if it fails.
    fn content(
        &mut self,
        fd: BorrowedFd<'_>,
        stat: &Stat,
        options: &ReadOptions,
        bytes: &mut u64,
    ) -> Content {
        if stat.size > options.hash_bytes_max {
            return Content::TooLarge;
        }
        let mut digester = Digester::new(&options.algorithms);
        let mut total = 0u64;
        loop {
            // Request one byte more than is left: this detects growth without following it. Files
            // generated by the kernel have size 0 and are read to their end.
            let left = stat.size.saturating_sub(total) + 1;
            let want = if stat.size == 0 { u64::MAX } else { left };
            let want = self.buffer.len().min(usize::try_from(want).unwrap_or(usize::MAX));
            if let Some(bucket) = &self.context.bucket {
                bucket.spend(left.min(want as u64), &self.context.cancel);
            }
            if self.context.cancel.is_cancelled() {
                return Content::Cancelled;
            }
            let into = self.buffer.get_mut(..want).unwrap_or_default();
            let read = match rustix::io::read(fd, into) {
                Ok(read) => read,
                Err(Errno::INTR) => continue,
                Err(error) => return Content::Failed(error),
            };
            digester.update(self.buffer.get(..read).unwrap_or_default());
            total += read as u64;
            *bytes += read as u64;
            self.context.bytes_read.fetch_add(read as u64, Ordering::Relaxed);
            if total > options.hash_bytes_max {
                return Content::TooLarge;
            }
            if stat.size > 0 && total > stat.size {
                return Content::Grown;
            }
            // A short read that completes the size is taken for the end. The second stat confirms
            // it.
            if read == 0 || (read < want && total == stat.size) {
                return Content::Read(digester.finish());
            }
        }
    }
}
