//! Notifications from directories that the first scan has not entered yet.
//!
//! The scan finds these changes by itself, because it lists a directory after it reported the
//! directory's handle. The notifications are kept for what the scan cannot know: the writers. What
//! exceeds the limit is dropped.

use std::collections::HashMap;

use model::Depth;

use crate::set::NotificationInfo;

/// Notifications that are kept.
const UNKNOWN_MAX: usize = 100_000;

/// A notification for an entry of an unknown directory.
#[derive(Debug)]
pub(crate) struct UnknownNotice {
    pub(crate) name: Box<[u8]>,
    pub(crate) depth: Depth,
    pub(crate) noted: NotificationInfo,
}

/// See the module's documentation.
#[derive(Debug, Default)]
pub(crate) struct UnknownNotices {
    by_directory: HashMap<Box<[u8]>, Vec<UnknownNotice>>,
    len: usize,
}

impl UnknownNotices {
    pub(crate) fn keep(
        &mut self,
        directory: &[u8],
        name: &[u8],
        depth: Depth,
        noted: NotificationInfo,
    ) {
        if self.len >= UNKNOWN_MAX {
            return;
        }
        self.len += 1;
        let notice = UnknownNotice { name: name.into(), depth, noted };
        match self.by_directory.get_mut(directory) {
            Some(notices) => notices.push(notice),
            None => drop(self.by_directory.insert(directory.into(), vec![notice])),
        }
    }

    /// Returns what was kept for a directory that is known now.
    pub(crate) fn take(&mut self, directory: &[u8]) -> Vec<UnknownNotice> {
        let notices = self.by_directory.remove(directory).unwrap_or_default();
        self.len -= notices.len();
        notices
    }
}
