//! Compares one directory entry with its baseline. The kind of entry decides what is read.

use std::os::fd::AsFd;
use std::sync::Arc;

use model::limits::PATH_BYTES_MAX;
use model::path::join;
use model::traits::BaselineItem;
use model::{Check, Depth, ItemKey, Kind, Observation, ObserveError};
use observe::{Directory, ReadJob, Stat, XattrSource, open};
use rustix::io::Errno;

use crate::report::{GapKind, ScanError};
use crate::walk::{Child, DirectoryDifference, Walk};
use crate::{merge, rehash};

/// An entry being compared.
struct ComparedEntry<'e> {
    directory: &'e Arc<Directory>,
    name: &'e [u8],
    stat: Stat,
    before: Option<Box<Observation>>,
    renumbered: bool,
}

impl Walk<'_, '_> {
    /// Compares an entry that was listed. `before` is its baseline, if any.
    pub(crate) fn entry(
        &mut self,
        directory: &Arc<Directory>,
        name: &[u8],
        stat: Result<Stat, Errno>,
        before: Option<Box<Observation>>,
    ) -> Result<(), ScanError> {
        if self.root.excludes(&directory.path, name) {
            return Ok(());
        }
        if directory.path.len() + 1 + name.len() > PATH_BYTES_MAX {
            let detail = format!(
                "holds entries whose paths are longer than {PATH_BYTES_MAX} bytes: they are not \
                 watched; shorten the path"
            );
            return self.gap(&directory.path, GapKind::PathTooLong, detail);
        }
        let stat = match stat {
            Ok(stat) => stat,
            Err(error) => return self.unknown(directory, error),
        };
        let is_directory = stat.kind == Kind::Directory;
        if !self.is_selected(directory, name, is_directory) {
            self.counts.ignored += 1;
            return match before {
                Some(before) => self.drop_item(directory, name, *before, false),
                None => Ok(()),
            };
        }
        let mut at = ComparedEntry { directory, name, stat, before, renumbered: false };
        if is_directory {
            return self.subdirectory(at);
        }
        self.update_device(&mut at)?;
        if at.before.as_ref().is_some_and(|b| may_hold(b.kind) && b.kind != stat.kind) {
            self.delete_below(&join(&directory.path, name), true)?;
        }
        match stat.kind {
            Kind::File => self.file(at, None),
            Kind::Symlink if self.root.rule.watch.follow_symlinks => self.follow(at),
            _ => self.other(at),
        }
    }

    /// Handles an entry of the baseline that was not listed. Unless a second stat finds it, it is
    /// deleted; if it was the mount point of a missing file system, a gap is reported instead.
    pub(crate) fn missing(
        &mut self,
        directory: &Arc<Directory>,
        item: Option<&mut BaselineItem>,
    ) -> Result<(), ScanError> {
        let Some(item) = item else { return Ok(()) };
        if item.name.is_empty() || self.root.excludes(&directory.path, &item.name) {
            return Ok(());
        }
        if self.is_overtaken(&directory.path, &item.name) {
            let Some(before) = self.item(&directory.path, &item.name)? else { return Ok(()) };
            item.observation = *before;
        }
        // A rename during the listing can hide a name that exists throughout.
        match open::stat_at(directory.fd.as_fd(), item.name.as_slice(), false) {
            Err(Errno::NOENT) => {}
            seen => {
                let before = merge::take_observation(item);
                return self.entry(directory, &item.name, seen, Some(before));
            }
        }
        let before = merge::take_observation(item);
        let reported = self.is_selected(directory, &item.name, before.kind == Kind::Directory);
        let was_mount = before.kind == Kind::Directory
            && directory.device_before.is_some_and(|d| d != before.device);
        let path = join(&directory.path, &item.name);
        if reported
            && was_mount
            && !self.root.rule.watch.accept_device
            && self.holds_below(&path)?
        {
            let detail = "its file system is not mounted and its directory is gone; mount it, or \
                          set accept_device = true if it is gone for good";
            return self.gap(&path, GapKind::Missing, detail.into());
        }
        self.drop_item(directory, &item.name, *before, reported)
    }

    /// Deletes an item and every item below it. `reported` decides whether deletions are reported.
    fn drop_item(
        &mut self,
        directory: &Directory,
        name: &[u8],
        before: Observation,
        reported: bool,
    ) -> Result<(), ScanError> {
        if may_hold(before.kind) {
            self.delete_below(&join(&directory.path, name), reported)?;
        }
        self.delete(&directory.path, name, before, reported)
    }

    /// Reports a gap for an entry that exists but cannot be examined. Its baseline is kept.
    fn unknown(&mut self, directory: &Directory, error: Errno) -> Result<(), ScanError> {
        let error = ObserveError::Os(error.raw_os_error());
        self.counts.error(error);
        let detail =
            format!("its entries cannot be examined: {error}; their last known state is kept");
        self.gap(&directory.path, GapKind::Unreadable, detail)
    }

    /// Returns true if the entry is not excluded and the rule's patterns select it.
    pub(crate) fn is_selected(
        &mut self,
        directory: &Directory,
        name: &[u8],
        is_directory: bool,
    ) -> bool {
        if !self.cx.excluded.is_empty() {
            let path = join(&directory.path, name);
            if self.cx.excluded.contains(&path) {
                return false;
            }
        }
        let selection = &self.root.rule.selection;
        if selection.takes_all() {
            return true;
        }
        let below = directory.path.get(self.root.path.len()..).unwrap_or_default();
        let below = below.strip_prefix(b"/").unwrap_or(below);
        self.scratch.clear();
        self.scratch.extend_from_slice(below);
        if !below.is_empty() {
            self.scratch.push(b'/');
        }
        self.scratch.extend_from_slice(name);
        selection.matches_entry(&self.scratch, is_directory)
    }

    /// Replaces the device number in the baseline if its file system was renumbered.
    fn update_device(&mut self, at: &mut ComparedEntry<'_>) -> Result<(), ScanError> {
        let Some(before) = &mut at.before else { return Ok(()) };
        if before.device == at.stat.device {
            return Ok(());
        }
        self.learn_from_entry(&at.directory.path, before, &at.stat)?;
        if self.device_now(before.device) == at.stat.device {
            before.device = at.stat.device;
            at.renumbered = true;
        }
        Ok(())
    }

    /// Compares a directory with its baseline and adds it to the directories to enter. If the
    /// rule's file system or depth limit excludes it, the items below it are dropped without a
    /// change. If its file system is missing or another one, a gap is reported and the baseline is
    /// kept.
    fn subdirectory(&mut self, mut at: ComparedEntry<'_>) -> Result<(), ScanError> {
        let (directory, name, stat) = (at.directory, at.name, at.stat);
        self.counts.directories += 1;
        let known = at.before.as_ref().filter(|b| b.kind == Kind::Directory);
        let mut child = Child {
            error: known.and_then(|b| b.error),
            device_before: known.map(|b| b.device),
            mount: stat.device != directory.device,
            novelty: known.map_or(DirectoryDifference::New, |b| novelty(b, &stat)),
            ..Child::default()
        };
        if let Some(before) = known {
            let path = join(&directory.path, name);
            if let Some(gap) = self.file_system_gap(directory, &path, name, before, &stat)? {
                return self.gap(&path, gap.kind, gap.detail);
            }
        }
        self.update_device(&mut at)?;
        let mut now = stat.observation(self.read_options.racy_from_ns);
        now.error = child.error;
        self.settle_stat(at, now)?;
        let stays = child.mount && self.root.rule.watch.one_file_system;
        if stays || !self.may_descend() {
            return self.delete_below(&join(&directory.path, name), false);
        }
        child.link = false;
        self.children.push(name, child);
        Ok(())
    }

    /// Compares an entry of which only stat and extended attributes are read.
    fn settle_stat(
        &mut self,
        at: ComparedEntry<'_>,
        mut now: Observation,
    ) -> Result<(), ScanError> {
        let unchanged = at.before.as_ref().is_some_and(|b| b.same_stat(&now));
        match at.before {
            Some(before) if unchanged => {
                if !at.renumbered && !gains_flags(&before, &now) {
                    return Ok(());
                }
                let now = Observation { flags: now.flags, ..(*before).clone() };
                self.write_pair(&at.directory.path, at.name, Some(before), now, at.renumbered)
            }
            before => {
                if self.read_options.xattrs {
                    let of = XattrSource::Entry(at.directory.fd.as_fd(), at.name);
                    now.xattrs = self.xattrs.read(of);
                }
                self.write_pair(&at.directory.path, at.name, before, now, at.renumbered)
            }
        }
    }

    /// Compares a link, pipe, socket or device, which is never opened.
    fn other(&mut self, at: ComparedEntry<'_>) -> Result<(), ScanError> {
        self.counts.others += 1;
        let mut now = at.stat.observation(self.read_options.racy_from_ns);
        let unchanged = at.before.as_ref().is_some_and(|b| b.same_stat(&now));
        if now.kind == Kind::Symlink && !unchanged {
            match open::link(at.directory.fd.as_fd(), at.name) {
                Ok(target) => now.target = Some(target),
                // It was removed or replaced in between: the next scan reads it again.
                Err(Errno::NOENT | Errno::INVAL) => return Ok(()),
                Err(error) => now.error = Some(ObserveError::Os(error.raw_os_error())),
            }
        }
        self.settle_stat(at, now)
    }

    /// Compares a link under a rule that follows links. A file behind it is observed as if it were
    /// the entry. A directory behind it is entered as well.
    fn follow(&mut self, at: ComparedEntry<'_>) -> Result<(), ScanError> {
        let parent = at.directory.fd.as_fd();
        let target = open::stat_at(parent, at.name, true);
        let text = open::link(parent, at.name);
        match (target, text) {
            (Ok(stat), Ok(text)) if stat.kind == Kind::File => {
                self.file(ComparedEntry { stat, ..at }, Some(text))
            }
            (Ok(stat), Ok(_)) if stat.kind == Kind::Directory => {
                if self.may_descend() {
                    // The baseline holds the link's device, not that of its target.
                    let before = at.before.as_deref();
                    let error = before.and_then(|b| b.error);
                    let novelty = link_novelty(before, &at.stat);
                    let child = Child { error, link: true, novelty, ..Child::default() };
                    self.children.push(at.name, child);
                }
                self.other(at)
            }
            _ => {
                let path = join(&at.directory.path, at.name);
                if at.before.is_some() && self.holds_below(&path)? {
                    let detail = "the target of the link is gone; the last known state of what it led to is kept";
                    self.gap(&path, GapKind::Missing, detail.into())?;
                }
                self.other(at)
            }
        }
    }

    /// Compares a regular file. If its content must be read, it is queued for the readers.
    fn file(&mut self, at: ComparedEntry<'_>, target: Option<Vec<u8>>) -> Result<(), ScanError> {
        self.counts.files += 1;
        self.cx.handles.file(&at.directory.path, at.stat.inode);
        if at.stat.links > 1 {
            let path = &at.directory.path;
            self.cx.handles.linked_file(path, at.directory.fd.as_fd(), at.name);
        }
        let mut now = at.stat.observation(self.read_options.racy_from_ns);
        let large =
            now.size > self.read_options.hash_bytes_max && !self.read_options.algorithms.is_empty();
        if large {
            self.counts.error(ObserveError::TooLarge);
        }
        if let Some(before) = &at.before
            && before.target == target
            && before.same_stat(&now)
            && !self.must_read(before, at.name, large)
        {
            self.counts.skipped += 1;
            if !at.renumbered && !gains_flags(before, &now) {
                return Ok(());
            }
            let now = Observation { flags: now.flags, ..(**before).clone() };
            return self.write_pair(&at.directory.path, at.name, at.before, now, at.renumbered);
        }
        if large || self.read_options.algorithms.is_empty() {
            now.error = large.then_some(ObserveError::TooLarge);
            if self.read_options.xattrs && target.is_none() {
                let of = XattrSource::Entry(at.directory.fd.as_fd(), at.name);
                now.xattrs = self.xattrs.read(of);
            }
            now.target = target;
            return self.write_pair(&at.directory.path, at.name, at.before, now, at.renumbered);
        }
        if self.is_postponed(&at) {
            return Ok(());
        }
        self.chunk.push(ReadJob {
            directory: Arc::clone(at.directory),
            name: at.name.to_vec(),
            stat: at.stat,
            before: at.before,
            renumbered: at.renumbered,
            target,
        });
        self.hand_over(false)
    }

    /// In a targeted check, returns true if a file is too large to be read now, and adds it to the
    /// files to be checked later.
    fn is_postponed(&mut self, at: &ComparedEntry<'_>) -> bool {
        let Some(targeted) = &mut self.cx.targeted else { return false };
        if at.stat.size <= targeted.large_bytes {
            return false;
        }
        let key = ItemKey::new(&*at.directory.path, at.name);
        let seen = targeted.seen.get(&key).cloned();
        targeted.large.push(Check { key, depth: Depth::Name, seen });
        true
    }

    /// Returns true if a file must be read although its stat is unchanged.
    fn must_read(&self, before: &Observation, name: &[u8], large: bool) -> bool {
        if large || self.read_options.algorithms.is_empty() {
            return false;
        }
        observe::lacks_digest(&before.hashes, &self.read_options.algorithms)
            || self.schedule.is_due(rehash::hash(self.path_hash, name), before.verified_at_s)
    }
}

/// Compares a directory's stat with its baseline.
fn novelty(before: &Observation, now: &Stat) -> DirectoryDifference {
    if (before.device, before.inode) != (now.device, now.inode) {
        return DirectoryDifference::New;
    }
    let same = (before.mode, before.uid, before.gid) == (now.mode, now.uid, now.gid);
    if same && before.error.is_none() {
        DirectoryDifference::Known
    } else {
        DirectoryDifference::Changed
    }
}

/// Compares the stat of a link to a directory with its baseline.
fn link_novelty(before: Option<&Observation>, now: &Stat) -> DirectoryDifference {
    let same = before.is_some_and(|b| b.inode == now.inode);
    if same { DirectoryDifference::Known } else { DirectoryDifference::New }
}

/// Returns true if the baseline, of an earlier version of the agent, lacks the item's flags.
fn gains_flags(before: &Observation, now: &Observation) -> bool {
    before.flags.is_none() && now.flags.is_some()
}

/// Returns true if the baseline may hold items below an item of this kind. A link counts because it
/// may have been followed.
fn may_hold(kind: Kind) -> bool {
    matches!(kind, Kind::Directory | Kind::Symlink)
}
