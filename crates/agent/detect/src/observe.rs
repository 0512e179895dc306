//! Reads one regular file: open, stat, content, stat again. Errors are stored in the observation,
//! because a file that cannot be read is still known to exist.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use env::clock::Clock;
use model::{Hashes, Kind, Observation, ObserveError};
use rustix::io::Errno;

use crate::budget::Bucket;
use crate::digest::Digester;
use crate::directory::Directory;
use crate::report::{Cancel, Progress};
use crate::rules::Algorithm;
use crate::stat::Stat;
use crate::{limits, open, xattrs};

/// Settings for reading the files of one root.
#[derive(Debug)]
pub(crate) struct Recipe {
    pub(crate) algorithms: Vec<Algorithm>,
    pub(crate) hash_bytes_max: u64,
    pub(crate) xattrs: bool,
    /// Inodes changed at or after this instant may change again unseen.
    pub(crate) racy_from_ns: i64,
}

/// State that all readers of one scan share.
pub(crate) struct Around {
    pub(crate) bucket: Option<Bucket>,
    pub(crate) cancel: Cancel,
    pub(crate) progress: Progress,
    pub(crate) clock: Arc<dyn Clock>,
}

/// A file to be read.
#[derive(Debug)]
pub(crate) struct Job {
    pub(crate) directory: Arc<Directory>,
    pub(crate) name: Vec<u8>,
    /// As the walk saw it.
    pub(crate) stat: Stat,
    pub(crate) before: Option<Box<Observation>>,
    /// The device number in `before` was translated.
    pub(crate) renumbered: bool,
    /// The text of the link that led here, when the rule follows links.
    pub(crate) target: Option<Vec<u8>>,
}

/// Result of an observation.
#[derive(Debug)]
pub(crate) enum Outcome {
    /// A consistent observation, or one that holds the error.
    Observed(Box<Observation>),
    Gone,
    /// It is no longer a regular file, or the scan was cancelled. The next scan reads it again.
    Left,
}

/// A job with its outcome and the bytes that were read for it.
#[derive(Debug)]
pub(crate) struct Done {
    pub(crate) job: Job,
    pub(crate) outcome: Outcome,
    pub(crate) bytes: u64,
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
    around: Arc<Around>,
    buffer: Vec<u8>,
    xattrs: xattrs::Reader,
}

impl Reader {
    pub(crate) fn new(around: Arc<Around>) -> Self {
        Self { around, buffer: vec![0; limits::READ_BYTES], xattrs: xattrs::Reader::default() }
    }

    pub(crate) fn run(&mut self, job: Job, recipe: &Recipe) -> Done {
        let mut bytes = 0;
        let outcome = self.observe(&job, recipe, &mut bytes);
        Done { job, outcome, bytes }
    }

    fn observe(&mut self, job: &Job, recipe: &Recipe, bytes: &mut u64) -> Outcome {
        let parent = job.directory.fd.as_fd();
        let mut last = job.stat;
        for _ in 0..=limits::UNSTABLE_RETRIES {
            if self.around.cancel.is_cancelled() {
                return Outcome::Left;
            }
            let fd = match open::file(parent, &job.name, job.stat.uid, job.target.is_some()) {
                Ok(fd) => fd,
                Err(Errno::NOENT) => return Outcome::Gone,
                // It was replaced by a link, a socket or a device.
                Err(Errno::LOOP | Errno::NXIO | Errno::NODEV) => return Outcome::Left,
                Err(error) => return self.unread(job, recipe, error),
            };
            let start = match open::stat_of(fd.as_fd()) {
                Ok(stat) if stat.kind == Kind::File => stat,
                Ok(_) => return Outcome::Left,
                Err(error) => return self.unread(job, recipe, error),
            };
            let content = self.content(fd.as_fd(), &start, recipe, bytes);
            let end = match open::stat_of(fd.as_fd()) {
                Ok(stat) => stat,
                Err(error) => return self.unread(job, recipe, error),
            };
            last = end;
            let mut now = end.observation(recipe.racy_from_ns);
            match content {
                Content::Cancelled => return Outcome::Left,
                Content::Grown => continue,
                Content::Read(_) if start != end => continue,
                Content::Read(hashes) => {
                    now.hashes = hashes;
                    now.verified_at_s = (self.around.clock.now_us() / 1_000_000) as u32;
                }
                Content::TooLarge => now.error = Some(ObserveError::TooLarge),
                Content::Failed(error) => {
                    now.error = Some(ObserveError::Os(error.raw_os_error()));
                }
            }
            if recipe.xattrs {
                now.xattrs = self.xattrs.read(xattrs::Of::Open(fd.as_fd()));
            }
            now.target.clone_from(&job.target);
            return Outcome::Observed(Box::new(now));
        }
        let mut now = last.observation(recipe.racy_from_ns);
        now.error = Some(ObserveError::Unstable);
        Outcome::Observed(Box::new(self.rest(now, job, recipe)))
    }

    /// Returns the observation of a file that cannot be opened, from the walk's stat.
    fn unread(&mut self, job: &Job, recipe: &Recipe, error: Errno) -> Outcome {
        let mut now = job.stat.observation(recipe.racy_from_ns);
        now.error = Some(ObserveError::Os(error.raw_os_error()));
        Outcome::Observed(Box::new(self.rest(now, job, recipe)))
    }

    /// Adds what can be had without opening the file: extended attributes and the link's text.
    fn rest(&mut self, mut now: Observation, job: &Job, recipe: &Recipe) -> Observation {
        if recipe.xattrs && job.target.is_none() {
            let entry = xattrs::Of::Entry(job.directory.fd.as_fd(), &job.name);
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
        recipe: &Recipe,
        bytes: &mut u64,
    ) -> Content {
        if stat.size > recipe.hash_bytes_max {
            return Content::TooLarge;
        }
        let mut digester = Digester::new(&recipe.algorithms);
        let mut total = 0u64;
        loop {
            // Request one byte more than is left: this detects growth without following it. Files
            // generated by the kernel have size 0 and are read to their end.
            let left = stat.size.saturating_sub(total) + 1;
            let want = if stat.size == 0 { u64::MAX } else { left };
            let want = self.buffer.len().min(usize::try_from(want).unwrap_or(usize::MAX));
            if let Some(bucket) = &self.around.bucket {
                bucket.spend(left.min(want as u64), &self.around.cancel);
            }
            if self.around.cancel.is_cancelled() {
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
            self.around.progress.add_bytes(read as u64);
            if total > recipe.hash_bytes_max {
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
