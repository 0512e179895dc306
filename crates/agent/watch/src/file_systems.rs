//! The file systems of the roots: how each is watched, why not better, and what helps.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::os::fd::BorrowedFd;

use dirty::HandleLayout;

use crate::fanotify::{Group, Request, file_system_id};
use crate::options::Level;
use crate::refusals::{Refusal, mark_remedy};

/// Identifier of a file system in notifications.
pub(crate) type FileSystemId = [u8; 8];

/// The level at which a root is watched on one of its file systems.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileSystemState {
    /// First directory of this file system that was entered.
    pub path: Vec<u8>,
    /// The kernel's name of the file system, or its number.
    pub kind: String,
    pub level: Level,
    /// Cause of a level below the best one; empty at the best.
    pub reason: String,
    /// Change that would improve the level; empty if there is none.
    pub remedy: String,
}

impl FileSystemState {
    /// Returns the state of a root that is a single file: its directory is marked. `refused` is the
    /// reason why there is no group.
    pub(crate) fn of_file(path: &[u8], marked: bool, refused: Option<&Refusal>) -> Self {
        let (level, reason, remedy) = match refused {
            _ if marked => (Level::Directories, "", ""),
            Some(refused) => (Level::ScanOnly, &*refused.reason, refused.remedy),
            None => (Level::ScanOnly, "the directory of the file cannot be marked", ""),
        };
        let (kind, reason, remedy) = ("file".to_owned(), reason.to_owned(), remedy.to_owned());
        Self { path: path.to_vec(), kind, level, reason, remedy }
    }
}

/// A root with the file systems at or below it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WatchState {
    pub path: Vec<u8>,
    /// False while nothing exists at the path. Its creation is noticed.
    pub exists: bool,
    /// The file systems at or below the path that scans have entered so far.
    pub file_systems: Vec<FileSystemState>,
}

impl WatchState {
    /// Returns true if kernel notifications cover all known file systems of the root.
    pub fn is_realtime(&self) -> bool {
        self.file_systems.iter().all(|fs| fs.level != Level::ScanOnly)
    }
}

/// A file system that a scan entered.
#[derive(Debug, Clone)]
pub(crate) struct FileSystem {
    pub(crate) state: FileSystemState,
    /// Number of the device as `/proc/self/fdinfo` shows it.
    pub(crate) device: u64,
    pub(crate) roots: BTreeMap<usize, Vec<u8>>,
    /// Roots with directories that are in no index or have no mark, with reason and remedy.
    pub(crate) limited: BTreeMap<usize, (String, String)>,
    /// Roots whose limits the caller knows of.
    pub(crate) limits_reported: BTreeSet<usize>,
}

/// Limit of a file system that has no mark of its own, or whose handles are not understood.
const NEW_LINKS: &str =
    "a write through a new hard link in another place is found by the next scan";

/// File systems whose other clients the kernel cannot see, by the number in `statfs`.
const REMOTE: &[(u32, &str)] = &[
    (0x6969, "nfs"),
    (0x517b, "smb"),
    (0xff53_4d42, "cifs"),
    (0xfe53_4d42, "smb3"),
    (0x6573_5546, "fuse"),
    (0x0102_1997, "9p"),
    (0x00c3_6400, "ceph"),
    (0x5346_414f, "afs"),
    (0x0161_1970, "gfs2"),
    (0x7461_636f, "ocfs2"),
];

const LOCAL: &[(u32, &str)] = &[
    (0xef53, "ext4"),
    (0x0102_1994, "tmpfs"),
    (0x794c_7630, "overlay"),
    (0x5846_5342, "xfs"),
    (0x9123_683e, "btrfs"),
    (0xf2f5_2010, "f2fs"),
    (0x2fc1_2fc1, "zfs"),
    (0x4d44, "vfat"),
    (0x9fa0, "proc"),
    (0x6265_6572, "sysfs"),
    (0x7371_7368, "squashfs"),
    (0x8584_58f6, "ramfs"),
];

/// Returns the name of the file system of an open directory, and true if other machines may change it.
pub(crate) fn kind_of(directory: BorrowedFd<'_>) -> io::Result<(String, bool)> {
    let number = rustix::fs::fstatfs(directory)?.f_type as u32;
    let named = |names: &[(u32, &str)]| {
        names.iter().find(|(known, _)| *known == number).map(|(_, name)| (*name).to_owned())
    };
    Ok(match named(REMOTE) {
        Some(remote) => (remote, true),
        None => (named(LOCAL).unwrap_or_else(|| format!("{number:#x}")), false),
    })
}

impl FileSystem {
    /// Selects the best level of an open directory's file system and sets its mark.
    pub(crate) fn attach(
        group: Result<&Group, Refusal>,
        best: Level,
        path: &[u8],
        directory: BorrowedFd<'_>,
    ) -> io::Result<(FileSystemId, Self)> {
        let id = file_system_id(directory)?;
        let (kind, is_remote) = kind_of(directory)?;
        let (level, reason, remedy) = match group {
            _ if is_remote => {
                let reason = "the kernel does not notify changes made by other clients";
                (Level::ScanOnly, reason.to_owned(), "watch the files where they are stored")
            }
            Err(refused) => (Level::ScanOnly, refused.reason, refused.remedy),
            Ok(group) => select(group, best, &kind, directory),
        };
        let links_are_seen = level == Level::FileSystem && HandleLayout::of(&kind).is_some();
        let reason = match (level, links_are_seen) {
            (Level::ScanOnly, _) | (_, true) => reason,
            _ if reason.is_empty() => NEW_LINKS.to_owned(),
            _ => format!("{reason}; {NEW_LINKS}"),
        };
        let device = rustix::fs::fstat(directory)?.st_dev;
        let device =
            u64::from(rustix::fs::major(device)) << 20 | u64::from(rustix::fs::minor(device));
        let state =
            FileSystemState { path: path.to_vec(), kind, level, reason, remedy: remedy.to_owned() };
        let (roots, limited, limits_reported) = Default::default();
        Ok((id, Self { state, device, roots, limited, limits_reported }))
    }

    /// Returns the state of a root on this file system.
    pub(crate) fn state_of(&self, root: usize) -> Option<FileSystemState> {
        let path = self.roots.get(&root)?.clone();
        let mut state = FileSystemState { path, ..self.state.clone() };
        if let Some((reason, remedy)) = self.limited.get(&root) {
            state.level = Level::ScanOnly;
            state.reason.clone_from(reason);
            state.remedy.clone_from(remedy);
        }
        Some(state)
    }

    /// Returns the mark that each directory needs; `None` if there are no notifications.
    pub(crate) fn mark_needed(&self) -> Option<Request> {
        match self.state.level {
            Level::FileSystem => Some(Request::Writes),
            Level::Directories => Some(Request::Directory),
            Level::ScanOnly => None,
        }
    }
}

/// Tries the marks, best first.
fn select(
    group: &Group,
    best: Level,
    kind: &str,
    directory: BorrowedFd<'_>,
) -> (Level, String, &'static str) {
    let mut reason = match best {
        Level::FileSystem if group.privileged => match group.mark(directory, Request::FileSystem) {
            Ok(()) => return (Level::FileSystem, String::new(), ""),
            Err(e) => format!("the file system refuses a mark: {e}"),
        },
        Level::FileSystem => "marks on file systems need CAP_SYS_ADMIN".to_owned(),
        _ => "limited by the settings".to_owned(),
    };
    let mut remedy = match best {
        Level::FileSystem if !group.privileged => "run the agent with CAP_SYS_ADMIN",
        Level::FileSystem => "",
        _ => "allow a better level in the settings",
    };
    if best != Level::ScanOnly {
        match group.mark(directory, Request::Directory) {
            Ok(()) => return (Level::Directories, reason, remedy),
            Err(e) => {
                reason = format!("{reason}; a directory cannot be marked: {e}");
                let needed = mark_remedy(kind, &e);
                remedy = if needed.is_empty() { remedy } else { needed };
            }
        }
    }
    (Level::ScanOnly, reason, remedy)
}
