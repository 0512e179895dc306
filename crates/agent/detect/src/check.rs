//! Targeted checks: compares single names or directories with the baseline, without a walk of the
//! whole root.
//!
//! A name is compared exactly as a scan compares it. Its directory must be the one in the baseline:
//! on another device, replaced, or gone, the directory's own name is checked instead, in its
//! directory. So a check never deletes what a file system that is not mounted holds. If the
//! directory's own name is not due yet, its names wait for it.

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use model::path::is_at_or_below;
use model::traits::BaselineItem;
use model::{Attribution, Check, Depth, Detection, ItemKey, Kind, Observation};
use observe::{Directory, Stat, open};
use rustix::io::Errno;

use crate::report::{CheckReport, Deferred, ScanError};
use crate::root::Root;
use crate::visit::{OpenRoot, open_root, visit};
use crate::walk::{Base, Child, Context, Targeted, Walk};
use crate::{limits, merge, moves};

impl Targeted {
    pub(crate) fn new(checks: &[Check], large_bytes: u64) -> Self {
        // A whole tree has actors only if it is a single file.
        let is_single = |check: &&Check| {
            let actors = check.seen.as_ref().is_some_and(|seen| !seen.actors.is_empty());
            check.depth == Depth::Name || actors
        };
        let single = checks.iter().filter(is_single);
        let seen = single.filter_map(|check| Some((check.key.clone(), check.seen.clone()?)));
        let moved = checks.iter().filter_map(|check| {
            let seen = check.seen.as_ref().filter(|seen| seen.moved_after_us.is_some())?;
            Some((check.key.path(), Arc::clone(seen)))
        });
        Self { seen: seen.collect(), moved: moved.collect(), large_bytes, ..Self::default() }
    }
}

impl Targeted {
    /// Returns what is known about an item that no notification named, from the move of a directory
    /// above it. `now` is its state, if it exists.
    pub(crate) fn moved_along(
        &self,
        key: &ItemKey,
        now: Option<&Observation>,
    ) -> Option<Detection> {
        let path = key.path();
        let above = self.moved.iter().filter(|(top, _)| is_at_or_below(&path, top));
        let (_, seen) = above.max_by_key(|(top, _)| top.len())?;
        let mut seen = Detection::clone(seen);
        let moved_after_ns = seen.moved_after_us.take()?.saturating_mul(1_000);
        // An item that changed before the move came with its directory. Another process may have made
        // one that changed later: subdirectories are not watched before this check.
        let settled_ns = limits::CTIME_STEP.as_nanos() as u64;
        let is_older = |now: &Observation| {
            u64::try_from(now.ctime_ns).is_ok_and(|ctime| ctime + settled_ns < moved_after_ns)
        };
        if !now.is_none_or(is_older) {
            for actor in seen.actors.iter_mut().filter(|a| a.attribution < Attribution::Uncertain) {
                actor.attribution = Attribution::Uncertain;
                actor.reason = "came with its directory, or was made in it since".into();
            }
        }
        Some(seen)
    }
}

/// Returns the number of operations that are committed together. A move is recognized only within
/// them. One tree alone is no part of a move; a large one is committed in parts, so that what is
/// checked in its middle does not wait for one long commit.
pub(crate) fn operations_together(checks: &[Check]) -> usize {
    match checks {
        [tree] if tree.depth != Depth::Name => limits::BATCH_OPS,
        _ => limits::MOVE_OPS,
    }
}

/// Runs the checks and commits what they found. Checks outside all roots are skipped.
pub(crate) fn run(cx: &mut Context<'_>, checks: &[Check]) -> Result<CheckReport, ScanError> {
    let began = cx.clock.monotonic();
    let mut by_root: BTreeMap<usize, Vec<&Check>> = BTreeMap::new();
    for check in checks {
        let path = check.key.path();
        let of_check = cx.roots.iter().enumerate().filter(|(_, r)| is_at_or_below(&path, &r.path));
        // Of nested roots the deepest answers.
        if let Some((root, _)) = of_check.max_by_key(|(_, r)| r.path.len()) {
            by_root.entry(root).or_default().push(check);
        }
    }
    let roots = cx.roots;
    for (root, checks) in by_root {
        if let Some(root) = roots.get(root) {
            check_root(cx, root, &checks)?;
        }
    }
    moves::recognize(cx.writer.batch());
    cx.writer.flush()?;
    let Targeted { unsettled, deferred, transient, large, .. } =
        cx.targeted.take().unwrap_or_default();
    Ok(CheckReport {
        counts: std::mem::take(&mut cx.totals),
        unsettled,
        deferred,
        transient,
        large,
        took: cx.clock.monotonic().saturating_sub(began),
    })
}

/// Runs the checks of one root. A root that is not in the baseline, or not as the baseline has it,
/// is scanned as a whole.
fn check_root(cx: &mut Context<'_>, root: &Root, checks: &[&Check]) -> Result<(), ScanError> {
    let key = ItemKey::of_path(&root.path);
    let whole = checks.iter().any(|c| c.depth == Depth::Below && c.key == key);
    let before = cx.baseline.item(&key).map_err(ScanError::Baseline)?;
    if let (false, Some(before), Ok(OpenRoot { fd, stat })) =
        (whole, &before, open_root(root, before.as_ref()))
        && stat.kind == Kind::Directory
        && (before.device, before.inode) == (stat.device, stat.inode)
    {
        let mut walk = Walk::new(cx, root, false, false);
        walk.check_below(fd, stat, before, checks)?;
        let counts = std::mem::take(&mut walk.counts);
        cx.totals.add(&counts);
        return Ok(());
    }
    visit(cx, root).map(drop)
}

/// The names of one directory that are to be compared.
#[derive(Default)]
struct Group {
    names: BTreeSet<Vec<u8>>,
    /// True if known directories among the names are entered too.
    deep: bool,
}

/// The outcome of opening a directory of the baseline.
enum LocateOutcome {
    Open(Box<Open>),
    /// It is gone, replaced, or on another device: its own name is to be checked. `true` if what it
    /// leads to is to be compared too, because a link may be in the way.
    Elsewhere(bool),
    /// Nothing below it is watched, or its gap is recorded.
    Left,
}

struct Open {
    fd: OwnedFd,
    stat: Stat,
    before: Observation,
}

impl Walk<'_, '_> {
    /// Runs checks below a root whose directory is the one in the baseline.
    fn check_below(
        &mut self,
        fd: OwnedFd,
        stat: Stat,
        before: &Observation,
        checks: &[&Check],
    ) -> Result<(), ScanError> {
        let base = Arc::new(Base { fd, prefix: self.root.path.len() });
        let root = ItemKey::of_path(&self.root.path);
        // Deepest directories first: what is checked instead of them lies above.
        let mut groups: BTreeMap<Vec<u8>, Group> = BTreeMap::new();
        for check in checks {
            if check.key == root && check.depth == Depth::Name {
                let now = self.observe_root(base.fd.as_fd(), &stat);
                let before = Some(Box::new(before.clone()));
                self.write_pair(&root.directory, &root.name, before, now, false)?;
            } else if check.depth == Depth::Name {
                let group = groups.entry(check.key.directory.clone()).or_default();
                group.names.insert(check.key.name.clone());
            } else {
                self.check_directory(&base, before, check, &mut groups)?;
            }
        }
        while let Some((directory, group)) = groups.pop_last() {
            if self.cx.cancel.is_cancelled() {
                break;
            }
            self.path.clone_from(&directory);
            match self.locate(&base, before)? {
                LocateOutcome::Open(open) => self.check_names(&base, *open, group)?,
                LocateOutcome::Elsewhere(_) if self.defer(&directory, checks) => {}
                LocateOutcome::Elsewhere(deep) => {
                    self.check_own_name(&directory, deep, &mut groups);
                }
                LocateOutcome::Left => {}
            }
        }
        self.finish()
    }

    /// Leaves the notified names below a directory that is gone or unknown until the directory's own
    /// name is due: its notification says who removed or moved all of them, and a move is recognized
    /// only if both of its names are compared together. Returns false if it is due now.
    fn defer(&mut self, directory: &[u8], checks: &[&Check]) -> bool {
        let key = ItemKey::of_path(directory);
        let Some(targeted) = &mut self.cx.targeted else { return false };
        let is_large = targeted.large_bytes == u64::MAX;
        let is_due = || checks.iter().any(|check| check.key == key);
        if is_large || directory == self.root.path || is_due() {
            return false;
        }
        let below = checks.iter().filter(|check| {
            check.seen.is_some() && is_at_or_below(&check.key.directory, directory)
        });
        let below: Vec<ItemKey> = below.map(|check| check.key.clone()).collect();
        if below.is_empty() {
            return false;
        }
        targeted.deferred.push(Deferred { directory: key, names: below });
        true
    }

    /// Adds the directory's own name to the names to be compared.
    fn check_own_name(&self, directory: &[u8], deep: bool, groups: &mut BTreeMap<Vec<u8>, Group>) {
        let key = ItemKey::of_path(directory);
        if directory == self.root.path {
            return;
        }
        let group = groups.entry(key.directory).or_default();
        group.deep |= deep;
        group.names.insert(key.name);
    }

    /// Compares the entries of a directory, and with [`Depth::Below`] everything below it.
    fn check_directory(
        &mut self,
        base: &Arc<Base>,
        root: &Observation,
        check: &Check,
        groups: &mut BTreeMap<Vec<u8>, Group>,
    ) -> Result<(), ScanError> {
        self.path = check.key.path();
        if check.seen.as_ref().is_some_and(|seen| seen.is_created) {
            // It may have replaced what had the name before, under the same inode number.
            let path = self.path.clone();
            self.check_own_name(&path, false, groups);
        }
        let before = match self.locate(base, root)? {
            LocateOutcome::Open(open) => open.before,
            LocateOutcome::Elsewhere(deep) => {
                let path = self.path.clone();
                self.check_own_name(&path, deep, groups);
                return Ok(());
            }
            LocateOutcome::Left => return Ok(()),
        };
        let child =
            Child { error: before.error, device_before: Some(before.device), ..Child::default() };
        let deep = check.depth == Depth::Below;
        if let Some(error) = self.enter(Arc::clone(base), self.depth_of_path(), child, deep)? {
            self.cannot_enter(error, child)?;
        }
        self.walk_stack()
    }

    /// Opens the directory at `self.path`, if it is the one in the baseline.
    fn locate(&mut self, base: &Arc<Base>, root: &Observation) -> Result<LocateOutcome, ScanError> {
        let relative = self.path.get(base.prefix..).unwrap_or_default();
        let relative = relative.strip_prefix(b"/").unwrap_or(relative);
        let before = if relative.is_empty() {
            root.clone()
        } else {
            let key = ItemKey::of_path(&self.path);
            let item = self.cx.baseline.item(&key).map_err(ScanError::Baseline)?;
            let Some(item) = item else { return Ok(LocateOutcome::Elsewhere(false)) };
            item
        };
        let max_depth = self.root.rule.watch.max_depth;
        if max_depth.is_some_and(|max| self.depth_of_path() >= max) {
            return Ok(LocateOutcome::Left);
        }
        let opened = open::directory_below(base.fd.as_fd(), relative)
            .and_then(|fd| open::stat_of(fd.as_fd()).map(|stat| (fd, stat)));
        let (fd, stat) = match opened {
            Ok(opened) => opened,
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => {
                return Ok(LocateOutcome::Elsewhere(self.root.rule.watch.follow_symlinks));
            }
            Err(error) => {
                let device_before = Some(before.device);
                let child = Child { error: before.error, device_before, ..Child::default() };
                self.cannot_enter(error, child)?;
                return Ok(LocateOutcome::Left);
            }
        };
        // A directory may have the inode number of the file that had its name before.
        if before.kind != Kind::Directory
            || (before.device, before.inode) != (stat.device, stat.inode)
        {
            return Ok(LocateOutcome::Elsewhere(false));
        }
        let mounted = stat.device != root.device;
        if mounted && (self.root.rule.watch.one_file_system || observe::is_pseudo(fd.as_fd())) {
            return Ok(LocateOutcome::Left);
        }
        Ok(LocateOutcome::Open(Box::new(Open { fd, stat, before })))
    }

    /// Returns the number of levels between the root and `self.path`.
    fn depth_of_path(&self) -> u32 {
        let below = self.path.get(self.root.path.len()..).unwrap_or_default();
        let parts = below.split(|b| *b == b'/').filter(|part| !part.is_empty()).count();
        u32::try_from(parts).unwrap_or(u32::MAX)
    }

    /// Compares names of an open directory, and enters those that are new or changed directories.
    fn check_names(&mut self, base: &Arc<Base>, open: Open, group: Group) -> Result<(), ScanError> {
        let Open { fd, stat, before } = open;
        let (device, device_before) = (stat.device, Some(before.device));
        let directory = Arc::new(Directory { fd, path: self.path.clone(), device, device_before });
        self.begin_directory(self.depth_of_path());
        let mut items: Vec<BaselineItem> = Vec::new();
        let together = group.names.len() > limits::NAMES_ONE_BY_ONE;
        if together {
            self.cx.baseline.directory(&self.path, &mut items).map_err(ScanError::Baseline)?;
            merge::sort(&mut items);
        }
        for name in group.names {
            let before = if together {
                let at = items.binary_search_by(|item| item.name.as_slice().cmp(&name));
                let item = at.ok().and_then(|at| items.get_mut(at));
                item.map(merge::take_observation)
            } else {
                self.item(&directory.path, &name)?
            };
            let stat = open::stat_at(directory.fd.as_fd(), name.as_slice(), false);
            self.name(&directory, &name, stat, before)?;
        }
        self.push_frame(Arc::clone(base), (stat.device, stat.inode), group.deep);
        self.walk_stack()
    }

    /// Compares one name with its baseline.
    pub(crate) fn name(
        &mut self,
        directory: &Arc<Directory>,
        name: &[u8],
        stat: Result<Stat, Errno>,
        before: Option<Box<Observation>>,
    ) -> Result<(), ScanError> {
        match (stat, before) {
            (Err(Errno::NOENT), None) => {
                self.note_transient(directory, name);
                Ok(())
            }
            (Err(Errno::NOENT), Some(before)) => {
                let mut item = BaselineItem { name: name.to_vec(), observation: *before };
                self.missing(directory, Some(&mut item))
            }
            (stat, before) => self.entry(directory, name, stat, before),
        }
    }

    /// Records a name that existed only between two checks, if the rules select it.
    fn note_transient(&mut self, directory: &Directory, name: &[u8]) {
        let key = ItemKey::new(&*directory.path, name);
        let Some(targeted) = &self.cx.targeted else { return };
        let seen = targeted.seen.get(&key).filter(|seen| seen.is_transient);
        let seen = seen.map(|seen| self.attributed(seen));
        let left_out = self.root.excludes(&directory.path, name);
        if seen.is_none() || left_out || !self.is_selected(directory, name, false) {
            return;
        }
        if let Some(targeted) = &mut self.cx.targeted {
            targeted.transient.push(Check { key, depth: Depth::Name, seen });
        }
    }

    /// Reads one item of the baseline.
    pub(crate) fn item(
        &mut self,
        directory: &[u8],
        name: &[u8],
    ) -> Result<Option<Box<Observation>>, ScanError> {
        let key = ItemKey::new(directory, name);
        Ok(self.cx.baseline.item(&key).map_err(ScanError::Baseline)?.map(Box::new))
    }
}
