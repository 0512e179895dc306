//! Sets marks and learns handles: for the directories above the roots, and for each directory that
//! a scan enters.

use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::sync::Arc;

use dirty::HandleLayout;
use rustix::fs::{Mode, OFlags};

use crate::fanotify::{Group, Request, file_system_id, handle_of, handle_of_entry};
use crate::file_systems::{FileSystem, FileSystemId, kind_of};
use crate::options::Level;
use crate::refusals::{Refusal, mark_remedy};
use crate::shared::{IncidentKind, Shared, State, monotonic_ns, signal};
use model::path::is_at_or_below;

pub(crate) fn open_directory(path: &[u8]) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    Ok(rustix::fs::open(path, flags, Mode::empty())?)
}

/// Returns the directories above a path, from `/` down.
fn above(path: &[u8]) -> impl Iterator<Item = &[u8]> {
    let slashes = path.iter().enumerate().filter(|(_, byte)| **byte == b'/');
    slashes.filter_map(|(at, _)| path.get(..at.max(1))).filter(move |above| *above != path)
}

impl State {
    /// Keeps a file system that was attached without the lock, for the roots at or above a path.
    /// Returns the mark that the path's directory needs.
    fn keep_attached(
        &mut self,
        id: FileSystemId,
        attached: FileSystem,
        path: &[u8],
    ) -> Option<Request> {
        if attached.state.level == Level::FileSystem
            && let Some(layout) = HandleLayout::of(&attached.state.kind)
        {
            self.tracker.add_file_system(id, layout);
        }
        // Another thread may have attached it in the meantime for another root, which must stay.
        let file_system = self.file_systems.entry(id).or_insert(attached);
        file_system.add_root(self.tracker.roots(), path);
        file_system.mark_needed()
    }
}

impl Shared {
    /// Opens a group and sets the marks that do not wait for a scan.
    pub(crate) fn open_group(&self) {
        let opened_ns = monotonic_ns();
        let (group, refused) = match Group::open() {
            Ok(group) => (Some(Arc::new(group)), None),
            Err(e) => (None, Some(Refusal::of_group(&e))),
        };
        self.intake.set_group(group.clone(), opened_ns);
        let before = {
            let mut state = self.lock();
            if let Some(Refusal { reason, remedy }) = &refused
                && refused != state.refused
            {
                tracing::warn!(remedy, "{reason}; changes are found by scans alone");
            }
            state.refused = refused;
            state.marks_since_ns = monotonic_ns();
            state.file_systems.clear();
            std::mem::replace(&mut state.group, group)
        };
        // Dropping a long queue takes a while.
        drop(before);
        signal(&self.reader_wake);
        self.attach_all();
    }

    /// Marks the directories above all roots, the roots and the canary's folder.
    pub(crate) fn attach_all(&self) {
        for number in 0..self.options.roots.len() {
            self.attach_root(number);
        }
        if let Some(folder) = &self.options.canary {
            let folder = folder.as_os_str().as_encoded_bytes();
            if let Err(e) = self.attach_single(folder, Request::Closes) {
                tracing::warn!("{}: cannot watch the canary: {e}", model::path::show(folder));
            }
        }
    }

    /// Marks the directories above a root, and the root.
    pub(crate) fn attach_root(&self, number: usize) {
        let Some(root) = self.lock().tracker.roots().get(number).cloned() else { return };
        let mut opened = open_directory(&root);
        let is_file = matches!(&opened, Err(e) if e.raw_os_error() == Some(libc::ENOTDIR));
        let parent = model::ItemKey::of_path(&root).directory;
        for directory in above(&root) {
            let whole = is_file && directory == parent;
            let request = if whole { Request::Directory } else { Request::Names };
            // The scan of the root reports a directory that is missing or unreadable.
            let marked = self.attach_single(directory, request).is_ok();
            let mut state = self.lock();
            if whole {
                let marked = marked && state.group.is_some();
                state.file_roots.insert(number, marked);
                // It may have been a directory before.
                state.file_systems.values_mut().for_each(|found| drop(found.roots.remove(&number)));
            }
        }
        // The root may have been created before the mark on its parent was set.
        if opened.is_err() {
            opened = open_directory(&root);
        }
        let mut state = self.lock();
        match &opened {
            Ok(_) => {
                state.file_roots.remove(&number);
                state.missing_roots.remove(&number)
            }
            Err(_) => !is_file && state.missing_roots.insert(number),
        };
        drop(state);
        if let Ok(directory) = opened {
            self.enter(&root, directory.as_fd());
        }
    }

    /// Marks one directory outside the roots.
    fn attach_single(&self, path: &[u8], request: Request) -> io::Result<()> {
        let directory = open_directory(path)?;
        let handle = handle_of(directory.as_fd())?;
        let group = {
            let mut state = self.lock();
            // The limit of directories concerns the roots, which report it.
            let _ = state.tracker.set_handle(path, &handle);
            state.group.clone()
        };
        group.map_or(Ok(()), |group| group.mark(directory.as_fd(), request))
    }

    /// Learns an open directory of a root. The handle is known before the mark is set, and the mark
    /// is set before the caller lists the directory: no change is missed in between.
    pub(crate) fn enter(&self, path: &[u8], directory: BorrowedFd<'_>) {
        let entered = self.request_of(path, directory).and_then(|request| match request {
            Some(request) => self.enter_marked(path, directory, request),
            None => Ok(()),
        });
        match entered {
            Ok(()) => {}
            // It was removed since it was opened. Its parent is notified of that.
            Err(e) if [Some(libc::ENOENT), Some(libc::ESTALE)].contains(&e.raw_os_error()) => {}
            Err(e) => {
                let reason = format!("a mark was refused: {e}");
                // Older kernels give an overlay the identifier of the file system below it, whose marks are
                // accepted.
                let (kind, _) = kind_of(directory).unwrap_or_default();
                self.limit(path, directory, &reason, mark_remedy(&kind, &e));
            }
        }
    }

    fn enter_marked(
        &self,
        path: &[u8],
        directory: BorrowedFd<'_>,
        request: Request,
    ) -> io::Result<()> {
        let handle = handle_of(directory)?;
        let mut state = self.lock();
        let Ok(node) = state.tracker.enter(path, &handle) else {
            drop(state);
            let limit = self.options.directories_max;
            let reason = format!("the limit of {limit} directories is reached");
            self.limit(path, directory, &reason, "raise realtime.directories_max");
            return Ok(());
        };
        let since_ns = state.marks_since_ns;
        let group = state.group.clone();
        let is_marked = state.tracker.is_marked(node, since_ns);
        self.announce(state);
        if let Some(group) = group.filter(|_| !is_marked) {
            group.mark(directory, request)?;
            let mut state = self.lock();
            if state.marks_since_ns == since_ns {
                state.tracker.set_marked(node, monotonic_ns());
            }
        }
        Ok(())
    }

    /// Learns a file with several links.
    pub(crate) fn linked_file(&self, path: &[u8], directory: BorrowedFd<'_>, name: &[u8]) {
        if !matches!(self.request_of(path, directory), Ok(Some(_))) {
            return;
        }
        let Ok(handle) = handle_of_entry(directory, name) else { return };
        self.lock().tracker.link_file(path, name, &handle);
    }

    /// Returns the mark that a directory needs; `None` if it is not watched by notifications.
    fn request_of(&self, path: &[u8], directory: BorrowedFd<'_>) -> io::Result<Option<Request>> {
        let id = file_system_id(directory)?;
        let (group, refused, since_ns) = {
            let mut state = self.lock();
            if !state.tracker.is_watched(path) {
                return Ok(None);
            }
            let State { tracker, file_systems, .. } = &mut *state;
            if let Some(file_system) = file_systems.get_mut(&id) {
                file_system.add_root(tracker.roots(), path);
                return Ok(file_system.mark_needed());
            }
            (state.group.clone(), state.refused.clone(), state.marks_since_ns)
        };
        let best = self.options.best_level;
        let group = group.as_deref().ok_or_else(|| refused.unwrap_or_default());
        let (id, attached) = FileSystem::attach(group, best, path, directory)?;
        let mut state = self.lock();
        // A group that was opened since has none of these marks; its roots are scanned again.
        if state.marks_since_ns != since_ns {
            return Ok(attached.mark_needed());
        }
        Ok(state.keep_attached(id, attached, path))
    }

    /// Reports that a root cannot be watched completely.
    fn limit(&self, path: &[u8], directory: BorrowedFd<'_>, reason: &str, remedy: &str) {
        let Ok(id) = file_system_id(directory) else { return };
        let mut state = self.lock();
        let Some(number) = root_of(state.tracker.roots(), path) else { return };
        let Some(file_system) = state.file_systems.get_mut(&id) else { return };
        file_system.limited.insert(number, (reason.into(), remedy.into()));
        if !file_system.limits_reported.insert(number) {
            return;
        }
        let detail = format!("{}: {reason}", model::path::show(path));
        self.record(&mut state, IncidentKind::LimitReached, &[number], detail);
        self.announce(state);
    }
}

impl FileSystem {
    /// Records that a root has directories in this file system.
    fn add_root(&mut self, roots: &[Vec<u8>], path: &[u8]) {
        let Some(number) = root_of(roots, path) else { return };
        self.roots.entry(number).or_insert_with(|| path.to_vec());
        // A scan of the whole root begins, which may find space now.
        if roots.get(number).is_some_and(|root| root == path) {
            self.limited.remove(&number);
        }
    }
}

/// Returns the number of the deepest root that a path is in.
fn root_of(roots: &[Vec<u8>], path: &[u8]) -> Option<usize> {
    let above = roots.iter().enumerate().filter(|(_, root)| is_at_or_below(path, root));
    above.max_by_key(|(_, root)| root.len()).map(|(number, _)| number)
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use dirty::{Paths, Tracker};

    use super::*;
    use crate::options::{Level, Options};

    #[test]
    fn file_system_attached_twice_keeps_the_roots_of_both() {
        let folder = tempfile::tempdir().unwrap();
        let roots = ["a", "b"].map(|name| folder.path().join(name));
        let bytes = |path: &std::path::PathBuf| path.as_os_str().as_encoded_bytes().to_vec();
        let paths = Paths {
            roots: roots.iter().map(bytes).collect(),
            excluded: Vec::new(),
            canary: None,
            directories_max: 10,
            dirty_max: 10,
        };
        let options = Options { roots: roots.to_vec(), ..Options::default() };
        let tracker = Tracker::new(paths, options.windows);
        let shared = Shared::new(options, tracker).unwrap();
        // Both scans find the file system unknown and attach it without the lock.
        let attached = roots.map(|root| {
            std::fs::create_dir(&root).unwrap();
            let directory = File::open(&root).unwrap();
            let path = bytes(&root);
            let refused = Err(Refusal::default());
            let found = FileSystem::attach(refused, Level::ScanOnly, &path, directory.as_fd());
            (path, found.unwrap())
        });
        let mut state = shared.lock();
        for (path, (id, file_system)) in attached {
            assert!(state.keep_attached(id, file_system, &path).is_none());
        }
        let known: Vec<_> = state.file_systems.values().map(|found| found.roots.len()).collect();
        assert_eq!(known, [2]);
    }

    #[test]
    fn directories_above_a_path_start_at_the_top() {
        let paths: Vec<&[u8]> = above(b"/srv/data/x").collect();
        assert_eq!(paths, [&b"/"[..], b"/srv", b"/srv/data"]);
        assert_eq!(above(b"/").count(), 0);
        assert_eq!(above(b"/etc").collect::<Vec<_>>(), [b"/"]);
    }

    #[test]
    fn nested_roots_divide_the_tree() {
        let roots = [b"/srv".to_vec(), b"/srv/data".to_vec(), b"/srv2".to_vec()];
        assert_eq!(root_of(&roots, b"/srv/data/x"), Some(1));
        assert_eq!(root_of(&roots, b"/srv/database"), Some(0));
        assert_eq!(root_of(&roots, b"/etc"), None);
    }
}
