//! Detects file systems that were mounted, unmounted or renumbered.

use std::os::fd::{AsFd, BorrowedFd};

use model::traits::BaselineItem;
use model::{Coverage, CoverageKind, Kind, Observation, Op};
use observe::{Directory, Stat, open};

use crate::report::{GapKind, GapReason, ScanError};
use crate::walk::Walk;

/// Most translations of device numbers remembered in one scan of a root.
const RENUMBERED_MAX: usize = 64;
/// Most entries compared to distinguish a renumbered file system from another one.
const SAMPLE: usize = 64;

/// Returns true if at least half of the first [`SAMPLE`] known entries of a directory exist with
/// the same inode and, unless they are directories, the same change time.
fn same_entries(directory: BorrowedFd<'_>, items: &[BaselineItem]) -> bool {
    let sample = || items.iter().filter(|i| !i.name.is_empty()).take(SAMPLE);
    let same = sample().filter(|item| {
        let before = &item.observation;
        open::stat_at(directory, item.name.as_slice(), false).is_ok_and(|now| {
            now.inode == before.inode
                && now.kind == before.kind
                && (now.kind == Kind::Directory || now.ctime_ns == before.ctime_ns)
        })
    });
    same.count() * 2 >= sample().count()
}

impl Walk<'_, '_> {
    /// Returns the current device number of the file system that had the number `before`.
    pub(crate) fn device_now(&self, before: u64) -> u64 {
        self.renumbered.iter().find(|(then, _)| *then == before).map_or(before, |(_, now)| *now)
    }

    /// Remembers that a file system has a new device number, and reports it.
    fn record_renumbered(&mut self, path: &[u8], then: u64, now: u64) -> Result<(), ScanError> {
        if self.renumbered.len() >= RENUMBERED_MAX {
            return Ok(());
        }
        self.renumbered.push((then, now));
        let at_us = self.cx.clock.now_us();
        self.cx.writer.push(Op::Coverage(Coverage {
            kind: CoverageKind::Renumbered,
            path: model::path::show(path).into_owned(),
            from_us: at_us,
            to_us: at_us,
            found: None,
            lasting: None,
            detail: format!("device number {then} is {now} now; the file system is the same"),
        }))
    }

    /// Records a renumbered file system if an entry is unchanged except for its device.
    pub(crate) fn learn_from_entry(
        &mut self,
        path: &[u8],
        before: &Observation,
        now: &Stat,
    ) -> Result<(), ScanError> {
        let same = before.kind == now.kind
            && before.inode == now.inode
            && before.ctime_ns == now.ctime_ns
            && before.mtime_ns == now.mtime_ns
            && before.size == now.size;
        let known = self.renumbered.iter().any(|(then, _)| *then == before.device);
        if same && !known {
            self.record_renumbered(path, before.device, now.device)
        } else {
            Ok(())
        }
    }

    /// Returns a gap if a known directory is on another file system than before.
    pub(crate) fn file_system_gap(
        &mut self,
        parent: &Directory,
        path: &[u8],
        name: &[u8],
        before: &Observation,
        now: &Stat,
    ) -> Result<Option<GapReason>, ScanError> {
        let was_mount = parent.device_before.is_some_and(|d| d != before.device);
        let is_mount = parent.device != now.device;
        if !was_mount && !is_mount {
            return Ok(None);
        }
        let same_inode = before.inode == now.inode;
        if was_mount && is_mount && same_inode && self.device_now(before.device) == now.device {
            return Ok(None);
        }
        if self.root.rule.watch.accept_device {
            return Ok(None);
        }
        if was_mount
            && is_mount
            && same_inode
            && let Ok(fd) = open::directory_below(parent.fd.as_fd(), name)
            && self.is_renumbered(fd.as_fd(), path)?
        {
            self.record_renumbered(path, before.device, now.device)?;
            return Ok(None);
        }
        if !self.holds_below(path)? {
            return Ok(None);
        }
        Ok(Some(if is_mount {
            let detail = "another file system is mounted there; mount the former one, or set \
                          accept_device = true to take it";
            GapReason::new(GapKind::OtherDevice, detail)
        } else {
            let detail = "its file system is not mounted; mount it, or set accept_device = true \
                          if it is gone for good";
            GapReason::new(GapKind::Missing, detail)
        }))
    }

    /// Returns a gap if the root is on another file system than before.
    pub(crate) fn root_ground(
        &mut self,
        fd: BorrowedFd<'_>,
        before: &Observation,
        now: &Stat,
    ) -> Result<Option<GapReason>, ScanError> {
        if before.device == now.device || self.root.rule.watch.accept_device {
            return Ok(None);
        }
        let path = self.root.path.clone();
        let opened = open::directory_below(fd, b"");
        if before.inode == now.inode
            && let Ok(fd) = opened
            && self.is_renumbered(fd.as_fd(), &path)?
        {
            self.record_renumbered(&path, before.device, now.device)?;
            return Ok(None);
        }
        let detail = format!(
            "on device {} instead of {}: not mounted, or another file system; mount the former \
             one, or set accept_device = true to take this one",
            now.device, before.device
        );
        Ok(Some(GapReason::new(GapKind::OtherDevice, detail)))
    }

    fn is_renumbered(&mut self, fd: BorrowedFd<'_>, path: &[u8]) -> Result<bool, ScanError> {
        let mut items = Vec::new();
        self.cx.baseline.directory(path, &mut items).map_err(ScanError::Baseline)?;
        Ok(same_entries(fd, &items))
    }

    /// Returns true if the baseline holds anything below a directory.
    pub(crate) fn holds_below(&mut self, directory: &[u8]) -> Result<bool, ScanError> {
        if self.blank {
            return Ok(false);
        }
        let mut items = Vec::new();
        self.cx.baseline.directory(directory, &mut items).map_err(ScanError::Baseline)?;
        if items.iter().any(|i| !i.name.is_empty()) {
            return Ok(true);
        }
        let below = self.cx.baseline.directories_below(directory).map_err(ScanError::Baseline)?;
        Ok(!below.is_empty())
    }
}
