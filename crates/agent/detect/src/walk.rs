//! The walk below one root. It keeps a stack of directories, and compares each directory with the
//! baseline's items of that directory.

use std::collections::{HashMap, HashSet};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use env::clock::Clock;
use model::notification::{Check, Detection};
use model::traits::BaselineItem;
use model::{Baseline, DirectoryHandles, ItemKey, Observation, ObserveError, Op};
use observe::{
    Cancel, Chunk, Directory, Entry, Listing, ReadOptions, ReadPool, ReadResult, ReaderContext,
    Stat, XattrReader, open,
};
use rustix::io::Errno;

use crate::gaps::Gaps;
use crate::limits;
use crate::merge::{self, MergedName};
use crate::ports::Interrupt;
use crate::rehash::{self, Schedule};
use crate::report::{Counts, Deferred, Gap, GapKind, Progress, ScanError};
use crate::root::Root;
use crate::writer::Writer;

/// State that the roots of one scan share.
pub(crate) struct Context<'a> {
    pub(crate) baseline: &'a mut dyn Baseline,
    pub(crate) writer: Writer<'a>,
    pub(crate) pool: ReadPool,
    /// State of the readers of `pool`.
    pub(crate) readers: Arc<ReaderContext>,
    pub(crate) handles: &'a mut dyn DirectoryHandles,
    /// Runs checks that become due; see [`Walk::run_due_checks`].
    pub(crate) interrupt: &'a mut dyn Interrupt,
    /// State of targeted checks; `None` in a scan.
    pub(crate) targeted: Option<Targeted>,
    pub(crate) gaps: &'a mut Gaps,
    pub(crate) clock: &'a dyn Clock,
    pub(crate) cancel: &'a Cancel,
    pub(crate) progress: &'a Progress,
    pub(crate) totals: Counts,
    pub(crate) started_us: u64,
    pub(crate) roots: &'a [Root],
    /// Number of reader threads.
    pub(crate) reader_count: usize,
    /// Paths that are not watched.
    pub(crate) excluded: &'a [Vec<u8>],
    /// The items that checks within this check have written; not kept for a scan.
    pub(crate) written_within: HashSet<ItemKey>,
}

/// State of targeted checks.
#[derive(Debug, Default)]
pub(crate) struct Targeted {
    /// Notices of the names to be checked. A name without an entry was found because its
    /// directory was compared: its writer is not known.
    pub(crate) seen: HashMap<ItemKey, Arc<Detection>>,
    /// Paths that were renamed by one writer, with their notices.
    pub(crate) moved: Vec<(Vec<u8>, Arc<Detection>)>,
    /// Files that changed while they were read.
    pub(crate) unsettled: Vec<ItemKey>,
    /// Directories whose names wait for the directory's own name.
    pub(crate) deferred: Vec<Deferred>,
    /// Files that were created and removed before they could be compared.
    pub(crate) transient: Vec<Check>,
    /// Files too large to be read while other checks wait.
    pub(crate) large: Vec<Check>,
    /// Size above which a file is too large, bytes.
    pub(crate) large_bytes: u64,
}

/// The directory below which paths are resolved: the root, or the target of a link that was
/// followed.
#[derive(Debug)]
pub(crate) struct Base {
    pub(crate) fd: OwnedFd,
    /// Length of its path, bytes.
    pub(crate) prefix: usize,
}

/// Difference of a directory's stat from its baseline, which decides whether a check of its name
/// enters it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum DirectoryDifference {
    #[default]
    Known,
    /// Mode or owner differ, or it could not be read before: its entries are compared.
    Changed,
    /// It is new or another directory: everything below it is compared.
    New,
}

/// A directory to enter.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Child {
    pub(crate) name: (usize, usize),
    /// The error in the baseline that prevented entering it, if any.
    pub(crate) error: Option<ObserveError>,
    pub(crate) device_before: Option<u64>,
    /// True if it is on another device than its parent.
    pub(crate) mount: bool,
    /// True if it is entered through a link.
    pub(crate) link: bool,
    pub(crate) novelty: DirectoryDifference,
}

/// The directories to enter from one directory.
#[derive(Debug, Default)]
pub(crate) struct Children {
    names: Vec<u8>,
    list: Vec<Child>,
}

impl Children {
    pub(crate) fn push(&mut self, name: &[u8], mut child: Child) {
        child.name = (self.names.len(), name.len());
        self.names.extend_from_slice(name);
        self.list.push(child);
    }
}

/// A directory on the stack, with the children to enter.
struct Frame {
    base: Arc<Base>,
    path_len: usize,
    depth: u32,
    id: (u64, u64),
    children: Children,
    next: usize,
    /// True if all children are entered, false if only those that are not [`DirectoryDifference::Known`].
    deep: bool,
}

/// The walk below one root.
pub(crate) struct Walk<'c, 'a> {
    pub(crate) cx: &'c mut Context<'a>,
    pub(crate) root: &'c Root,
    pub(crate) read_options: Arc<ReadOptions>,
    pub(crate) schedule: Schedule,
    /// True if the root is not in the baseline: every item found becomes baseline.
    pub(crate) first: bool,
    /// True if the baseline holds nothing below the root, so it is not queried.
    pub(crate) blank: bool,
    pub(crate) counts: Counts,
    /// Old and new device numbers of renumbered file systems.
    pub(crate) renumbered: Vec<(u64, u64)>,
    pub(crate) xattrs: XattrReader,
    pub(crate) children: Children,
    pub(crate) path_hash: u64,
    pub(crate) scratch: Vec<u8>,
    /// Files to be submitted to the readers.
    pub(crate) chunk: Chunk,
    /// Items that checks have written while the scan compared a directory or had files read. What
    /// the scan knew of them is out of date. `None` if no check ran.
    pub(crate) overtaken: Option<HashSet<ItemKey>>,
    /// Depth of the directory that is being compared; 0 is the root.
    pub(crate) depth: u32,
    done: Vec<ReadResult>,
    stack: Vec<Frame>,
    pub(crate) path: Vec<u8>,
    listing: Listing,
    items: Vec<BaselineItem>,
    followed: HashSet<(u64, u64)>,
}

impl<'c, 'a> Walk<'c, 'a> {
    pub(crate) fn new(cx: &'c mut Context<'a>, root: &'c Root, first: bool, blank: bool) -> Self {
        let watch = &root.rule.watch;
        let racy_us = cx.started_us.saturating_sub(limits::RACY.as_micros() as u64);
        let read_options = Arc::new(ReadOptions {
            algorithms: watch.hashes.clone(),
            hash_bytes_max: watch.hash_bytes_max,
            xattrs: watch.xattrs,
            racy_from_ns: i64::try_from(racy_us.saturating_mul(1000)).unwrap_or(i64::MAX),
        });
        Self {
            read_options: Arc::clone(&read_options),
            schedule: Schedule::new(watch.rehash_days, cx.started_us),
            path: root.path.clone(),
            cx,
            root,
            first,
            blank,
            counts: Counts::default(),
            renumbered: Vec::new(),
            xattrs: XattrReader::default(),
            children: Children::default(),
            path_hash: 0,
            scratch: Vec::new(),
            chunk: Chunk::new(read_options),
            overtaken: None,
            depth: 0,
            done: Vec::new(),
            stack: Vec::new(),
            listing: Listing::default(),
            items: Vec::new(),
            followed: HashSet::new(),
        }
    }

    /// Walks everything below the root's descriptor. Returns the error if the root itself cannot be
    /// read.
    pub(crate) fn below_root(
        &mut self,
        fd: OwnedFd,
        device_before: Option<u64>,
    ) -> Result<Option<Errno>, ScanError> {
        let prefix = self.path.len();
        let child = Child { device_before, ..Child::default() };
        let base = Arc::new(Base { fd, prefix });
        let failed = self.enter(base, 0, child, true)?;
        if failed.is_some() {
            return Ok(failed);
        }
        self.walk_stack()?;
        Ok(None)
    }

    /// Enters the directories on the stack until it is empty or the scan is cancelled.
    pub(crate) fn walk_stack(&mut self) -> Result<(), ScanError> {
        while !self.stack.is_empty() {
            self.forget_overtaken();
            self.run_due_checks()?;
            let Some(frame) = self.stack.last_mut() else { break };
            if self.cx.cancel.is_cancelled() {
                return Ok(());
            }
            self.path.truncate(frame.path_len);
            let Some(child) = frame.children.list.get(frame.next).copied() else {
                self.stack.pop();
                continue;
            };
            frame.next += 1;
            if !frame.deep && child.novelty == DirectoryDifference::Known {
                continue;
            }
            let deep = frame.deep || child.novelty == DirectoryDifference::New;
            let (start, length) = child.name;
            let name = frame.children.names.get(start..start + length).unwrap_or_default();
            if !self.path.ends_with(b"/") {
                self.path.push(b'/');
            }
            self.path.extend_from_slice(name);
            let (base, depth) = (Arc::clone(&frame.base), frame.depth + 1);
            if let Some(error) = self.enter(base, depth, child, deep)? {
                self.cannot_enter(error, child)?;
            }
        }
        Ok(())
    }

    /// Reads and compares the directory at `self.path`, and puts it on the stack. Returns the error
    /// if it cannot be read.
    pub(crate) fn enter(
        &mut self,
        base: Arc<Base>,
        depth: u32,
        child: Child,
        deep: bool,
    ) -> Result<Option<Errno>, ScanError> {
        let (base, fd) = match self.open(base, child) {
            Ok(opened) => opened,
            Err(error) => return Ok(Some(error)),
        };
        let stat = match open::stat_of(fd.as_fd()) {
            Ok(stat) => stat,
            Err(error) => return Ok(Some(error)),
        };
        if child.mount && observe::is_pseudo(fd.as_fd()) {
            self.leave_below()?;
            return Ok(None);
        }
        if self.is_loop(&stat, child) || (child.link && self.is_watched(&fd)) {
            return Ok(None);
        }
        // Before the listing, so that every later change is notified.
        self.cx.handles.enter(&self.path, fd.as_fd());
        let mut listing = std::mem::take(&mut self.listing);
        let read = listing.read(fd.as_fd());
        if let Err(error) = read {
            self.listing = listing;
            return Ok(Some(error));
        }
        if matches!(child.error, Some(ObserveError::Os(_))) {
            self.mark(None, false)?;
        }
        let mut items = std::mem::take(&mut self.items);
        items.clear();
        if !self.blank {
            self.cx.baseline.directory(&self.path, &mut items).map_err(ScanError::Baseline)?;
            merge::sort(&mut items);
        }
        let (device, device_before) = (stat.device, child.device_before);
        let directory = Arc::new(Directory { fd, path: self.path.clone(), device, device_before });
        self.begin_directory(depth);
        let compared = self.compare(&directory, &listing, &mut items);
        self.listing = listing;
        self.items = items;
        compared?;
        self.push_frame(base, (stat.device, stat.inode), deep);
        self.cx.progress.show(&self.cx.totals, &self.counts);
        Ok(None)
    }

    /// Prepares the comparison of entries of the directory at `self.path`.
    pub(crate) fn begin_directory(&mut self, depth: u32) {
        self.depth = depth;
        self.path_hash = rehash::hash(rehash::hash(rehash::SEED, &self.path), b"/");
    }

    /// Puts the directory at `self.path` on the stack, with the children found in it.
    pub(crate) fn push_frame(&mut self, base: Arc<Base>, id: (u64, u64), deep: bool) {
        let children = std::mem::take(&mut self.children);
        let (path_len, depth) = (self.path.len(), self.depth);
        self.stack.push(Frame { base, path_len, depth, id, children, next: 0, deep });
    }

    /// Opens the directory at `self.path`, and returns the base of the paths below it.
    fn open(&self, base: Arc<Base>, child: Child) -> Result<(Arc<Base>, OwnedFd), Errno> {
        let relative = self.path.get(base.prefix..).unwrap_or_default();
        let relative = relative.strip_prefix(b"/").unwrap_or(relative);
        if !child.link {
            let fd = open::directory_below(base.fd.as_fd(), relative)?;
            return Ok((base, fd));
        }
        let (parent, name) = match relative.iter().rposition(|b| *b == b'/') {
            Some(at) => {
                (relative.get(..at).unwrap_or_default(), relative.get(at + 1..).unwrap_or_default())
            }
            None => (&[][..], relative),
        };
        let parent = open::directory_below(base.fd.as_fd(), parent)?;
        let fd = open::directory_behind(parent.as_fd(), name)?;
        let again = rustix::io::fcntl_dupfd_cloexec(&fd, 0)?;
        Ok((Arc::new(Base { fd: again, prefix: self.path.len() }), fd))
    }

    /// Returns true if the directory is one of its own ancestors, or was entered through a link
    /// before.
    fn is_loop(&mut self, stat: &Stat, child: Child) -> bool {
        let id = (stat.device, stat.inode);
        if self.stack.iter().any(|f| f.id == id) {
            return true;
        }
        if !child.link {
            return false;
        }
        self.followed.len() >= limits::FOLLOWED_MAX || !self.followed.insert(id)
    }

    /// Returns true if the target of a link is watched under its own path.
    fn is_watched(&self, fd: &OwnedFd) -> bool {
        open::path_of(fd.as_fd()).is_ok_and(|path| {
            self.cx.roots.iter().any(|r| model::path::is_at_or_below(&path, &r.path))
        })
    }

    fn compare(
        &mut self,
        directory: &Arc<Directory>,
        listing: &Listing,
        items: &mut [BaselineItem],
    ) -> Result<(), ScanError> {
        let mut at = (0, 0);
        while let Some(met) = merge::next(listing, items, &mut at) {
            match met {
                MergedName::New(i) => self.listed(directory, listing.get(i), None)?,
                MergedName::Both(i, item) => {
                    let before = items.get_mut(item).map(merge::take_observation);
                    self.listed(directory, listing.get(i), before)?;
                }
                MergedName::Gone(i) => self.missing(directory, items.get_mut(i))?,
            }
        }
        self.collect()
    }

    fn listed(
        &mut self,
        directory: &Arc<Directory>,
        listed: Option<(&[u8], &Entry)>,
        before: Option<Box<Observation>>,
    ) -> Result<(), ScanError> {
        let Some((name, entry)) = listed else { return Ok(()) };
        let is_overtaken = self.is_overtaken(&directory.path, name);
        if (is_overtaken || before.is_none()) && self.has_vanished(&directory.path, name) {
            return Ok(());
        }
        if is_overtaken {
            let before = self.item(&directory.path, name)?;
            let stat = open::stat_at(directory.fd.as_fd(), name, false);
            return self.name(directory, name, stat, before);
        }
        self.entry(directory, name, entry.stat, before)
    }

    /// Reports a gap for a directory that cannot be read. Its baseline is kept.
    pub(crate) fn cannot_enter(&mut self, error: Errno, child: Child) -> Result<(), ScanError> {
        if matches!(error, Errno::NOENT | Errno::NOTDIR | Errno::LOOP) {
            // It was removed or replaced after it was listed. The next scan compares it.
            return Ok(());
        }
        let error = ObserveError::Os(error.raw_os_error());
        self.counts.error(error);
        let path = self.path.clone();
        let detail =
            format!("cannot be read: {error}; the last known state of what it contains is kept");
        self.gap(&path, GapKind::Unreadable, detail)?;
        if child.error == Some(error) {
            return Ok(());
        }
        // A new directory was just reported as created, so the error is no separate change.
        self.mark(Some(error), child.device_before.is_none())
    }

    /// Records a gap, and reports it if it is not open yet.
    pub(crate) fn gap(
        &mut self,
        path: &[u8],
        kind: GapKind,
        detail: String,
    ) -> Result<(), ScanError> {
        let gap = Gap { path: path.to_vec(), kind, since_us: self.cx.clock.now_us(), detail };
        let events = self.cx.gaps.record_gap(gap);
        events.into_iter().try_for_each(|event| self.cx.writer.push(Op::Coverage(event)))
    }

    /// Returns true if the depth limit allows entering the subdirectories of the directory that is
    /// being compared.
    pub(crate) fn may_descend(&self) -> bool {
        self.root.rule.watch.max_depth.is_none_or(|max| self.depth + 1 < max)
    }

    /// Submits the collected files to the readers if the chunk is full, or always with `all`.
    pub(crate) fn hand_over(&mut self, all: bool) -> Result<(), ScanError> {
        if self.chunk.is_empty() || !(all || self.chunk.is_full()) {
            return Ok(());
        }
        let mut chunk = self.chunk.take();
        while let Some(left) = self.cx.pool.submit(chunk, &mut self.done, limits::PATIENCE)? {
            self.run_due_checks()?;
            chunk = left;
        }
        Ok(())
    }

    /// Processes the results of the readers so far.
    fn collect(&mut self) -> Result<(), ScanError> {
        let mut done = std::mem::take(&mut self.done);
        for done in done.drain(..) {
            self.read(done)?;
        }
        self.done = done;
        Ok(())
    }

    /// Submits the last chunk, waits for the readers and processes their results.
    pub(crate) fn finish(&mut self) -> Result<(), ScanError> {
        self.hand_over(true)?;
        loop {
            let mut done = std::mem::take(&mut self.done);
            let all = self.cx.pool.drain(&mut done, limits::PATIENCE)?;
            self.done = done;
            self.collect()?;
            if all {
                return Ok(());
            }
            self.run_due_checks()?;
        }
    }

    /// Returns the path of the current directory.
    pub(crate) fn path(&self) -> &[u8] {
        &self.path
    }
}
