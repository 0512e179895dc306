//! Scans one root: opens it, walks it, and builds its report.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use model::path::show;
use model::traits::BaselineItem;
use model::{Coverage, CoverageKind, ItemKey, Kind, Observation, Op};
use observe::{Directory, Stat, XattrSource, open};
use rustix::io::Errno;

use crate::report::{Counts, GapKind, GapReason, RootReport, RootState, ScanError};
use crate::root::Root;
use crate::walk::{Context, Walk};

/// Scans a root.
pub(crate) fn visit(cx: &mut Context<'_>, root: &Root) -> Result<RootReport, ScanError> {
    let mut report = RootReport {
        path: show(root.rule.watch.path.as_os_str().as_encoded_bytes()).into_owned(),
        real_path: show(&root.path).into_owned(),
        state: RootState::Unfinished,
        counts: Counts::default(),
    };
    if cx.cancel.is_cancelled() {
        return Ok(report);
    }
    let key = ItemKey::of_path(&root.path);
    let before = cx.baseline.item(&key).map_err(ScanError::Baseline)?.map(Box::new);
    let first = before.is_none() && !cx.gaps.is_absent(&root.path);
    let blank = first && is_blank(cx, &root.path)?;
    let mut walk = Walk::new(cx, root, first, blank);
    let gap = match open_root(root, before.as_deref()) {
        Err(gap) if gap.kind == GapKind::Missing && root.rule.watch.optional => {
            walk.absent(&key, before, gap)?
        }
        Err(gap) => Some(gap),
        Ok(opened) => walk.root(opened, &key, before)?,
    };
    let counts = std::mem::take(&mut walk.counts);
    report.state = match gap {
        Some(GapReason { kind: kind @ GapKind::Absent, detail }) => {
            walk.gap(&root.path, kind, detail)?;
            RootState::Covered
        }
        Some(GapReason { kind, detail }) => {
            walk.gap(&root.path, kind, detail.clone())?;
            RootState::Gap { kind, detail }
        }
        None if cx.cancel.is_cancelled() => RootState::Unfinished,
        None => {
            close(cx, root, first, &counts)?;
            if first { RootState::Baseline } else { RootState::Covered }
        }
    };
    cx.writer.flush()?;
    cx.totals.add(&counts);
    cx.progress.show(&cx.totals, &Counts::default());
    report.counts = counts;
    Ok(report)
}

/// Reports the gaps that have closed, and the coverage note of a first scan.
fn close(cx: &mut Context<'_>, root: &Root, first: bool, counts: &Counts) -> Result<(), ScanError> {
    let now_us = cx.clock.now_us();
    for over in cx.gaps.close_below(&root.path, now_us, counts.changes()) {
        cx.writer.push(Op::Coverage(over))?;
    }
    if !first || root.link {
        return Ok(());
    }
    let met = counts.files + counts.directories + counts.others;
    cx.writer.push(Op::Coverage(Coverage {
        kind: CoverageKind::Baseline,
        path: show(&root.path).into_owned(),
        from_us: cx.started_us,
        to_us: now_us,
        found: Some(counts.changes()),
        lasting: None,
        detail: format!("items in the baseline: {met}"),
    }))
}

/// Returns true if the baseline holds nothing below the path.
fn is_blank(cx: &mut Context<'_>, path: &[u8]) -> Result<bool, ScanError> {
    let mut items: Vec<BaselineItem> = Vec::new();
    cx.baseline.directory(path, &mut items).map_err(ScanError::Baseline)?;
    let below = cx.baseline.directories_below(path).map_err(ScanError::Baseline)?;
    Ok(items.is_empty() && below.is_empty())
}

/// An opened root with its stat.
pub(crate) struct OpenRoot {
    pub(crate) fd: OwnedFd,
    pub(crate) stat: Stat,
}

/// Opens a root. Returns the gap if that fails, or if it became a directory or ceased to be one.
pub(crate) fn open_root(root: &Root, before: Option<&Observation>) -> Result<OpenRoot, GapReason> {
    let unreadable = |error: Errno| {
        let text = std::io::Error::from(error);
        let detail = format!("cannot be opened: {text}; check the agent's permissions");
        GapReason::new(GapKind::Unreadable, detail)
    };
    let fd = open::root(&root.path).map_err(|error| match error {
        Errno::NOENT | Errno::NOTDIR => {
            let detail = "not there; create or mount it, or remove its rule";
            GapReason::new(GapKind::Missing, detail)
        }
        Errno::LOOP => GapReason::new(GapKind::Missing, "a symbolic link is in its place"),
        error => unreadable(error),
    })?;
    let stat = open::stat_of(fd.as_fd()).map_err(unreadable)?;
    let was = before.map_or(stat.kind, |before| before.kind);
    let changed = (was == Kind::Directory) != (stat.kind == Kind::Directory);
    if changed && !root.rule.watch.accept_kind {
        let kinds = match was {
            Kind::Directory => format!("a {} now, was a directory", stat.kind.name()),
            _ => format!("a directory now, was a {}", was.name()),
        };
        let detail = format!("{kinds}; restore it, or set accept_kind = true to watch it as it is");
        return Err(GapReason::new(GapKind::Missing, detail));
    }
    Ok(OpenRoot { fd, stat })
}

impl Walk<'_, '_> {
    /// Handles an optional root that does not exist. If it was removed, and not unmounted with what
    /// it lies in, it and what it contained are deleted.
    fn absent(
        &mut self,
        key: &ItemKey,
        before: Option<Box<Observation>>,
        gap: GapReason,
    ) -> Result<Option<GapReason>, ScanError> {
        if let Some(before) = before {
            let parent = open::root(&key.directory).and_then(|fd| open::stat_of(fd.as_fd()));
            let is_removed = parent.is_ok_and(|parent| parent.device == before.device)
                && open::root(&self.root.path).is_err_and(|error| error == Errno::NOENT);
            if !is_removed {
                return Ok(Some(gap));
            }
            self.delete_below(&self.root.path.clone(), true)?;
            self.delete(&key.directory, &key.name, *before, true)?;
        }
        let detail = "not there; watched from the moment it appears";
        Ok(Some(GapReason::new(GapKind::Absent, detail)))
    }

    /// Scans a root. Returns the gap if the root cannot be scanned. A cancelled scan leaves the
    /// root's own item unwritten, so that a first scan stays a first scan.
    fn root(
        &mut self,
        OpenRoot { fd, stat }: OpenRoot,
        key: &ItemKey,
        mut before: Option<Box<Observation>>,
    ) -> Result<Option<GapReason>, ScanError> {
        if stat.kind != Kind::Directory {
            return self.single(key, stat, before);
        }
        let device_before = before.as_ref().map(|b| b.device);
        if let Some(before) = &before
            && let Some(gap) = self.root_ground(fd.as_fd(), before, &stat)?
        {
            return Ok(Some(gap));
        }
        let renumbered = match &mut before {
            Some(b) if b.device != stat.device && self.device_now(b.device) == stat.device => {
                b.device = stat.device;
                true
            }
            _ => false,
        };
        self.counts.directories += 1;
        let now = self.observe_root(fd.as_fd(), &stat);
        if self.root.rule.watch.max_depth == Some(0) {
            self.leave_below()?;
        } else if let Some(error) = self.below_root(fd, device_before)? {
            let text = std::io::Error::from(error);
            let detail = format!("cannot be read: {text}; check the agent's permissions");
            return Ok(Some(GapReason::new(GapKind::Unreadable, detail)));
        }
        self.finish()?;
        if self.cx.cancel.is_cancelled() {
            return Ok(None);
        }
        // The root's own item comes last, so that an interrupted first scan stays a first scan.
        self.write_pair(&key.directory, &key.name, before, now, renumbered)?;
        Ok(None)
    }

    /// Returns the observation of a root that is a directory.
    pub(crate) fn observe_root(&mut self, fd: BorrowedFd<'_>, stat: &Stat) -> Observation {
        let mut now = stat.observation(self.read_options.racy_from_ns);
        if self.read_options.xattrs {
            now.xattrs = self.xattrs.read(XattrSource::Entry(fd, b"."));
        }
        now
    }

    /// Scans a root that is a single entry, not a directory.
    fn single(
        &mut self,
        key: &ItemKey,
        stat: Stat,
        before: Option<Box<Observation>>,
    ) -> Result<Option<GapReason>, ScanError> {
        let parent = match open::root(&key.directory) {
            Ok(fd) => fd,
            Err(error) => {
                let detail = format!("its directory: {}", std::io::Error::from(error));
                return Ok(Some(GapReason::new(GapKind::Unreadable, detail)));
            }
        };
        let device = open::stat_of(parent.as_fd()).map_or(stat.device, |s| s.device);
        let path = key.directory.clone();
        let directory = Arc::new(Directory { fd: parent, path, device, device_before: None });
        self.path_hash =
            crate::rehash::hash(crate::rehash::hash(crate::rehash::SEED, &directory.path), b"/");
        self.entry(&directory, &key.name, Ok(stat), before)?;
        self.finish()?;
        Ok(None)
    }
}
