//! dpkg's locks: a transaction runs while a process holds one of them.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::Instant;

use rustix::process::{Flock, FlockType, Pid, fcntl_getlk};

use crate::limits;

/// The locks below `var/lib/dpkg`: that of package managers, and that of dpkg.
const LOCKS: [&str; 2] = ["lock-frontend", "lock"];

/// Answers whether a transaction of dpkg runs. The locks are only queried, never taken.
#[derive(Debug)]
pub struct DpkgLock {
    locks: [PathBuf; 2],
    answer: Option<(Instant, Option<LockHolder>)>,
}

/// The process that holds a lock. A package manager holds the first lock during all its runs of
/// dpkg, so that one holder is one transaction. The number is absent for another pid namespace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LockHolder(pub Option<Pid>);

impl DpkgLock {
    /// Returns the locks of the system below `root`, usually `/`.
    pub fn new(root: &Path) -> Self {
        let folder = root.join("var/lib/dpkg");
        Self { locks: LOCKS.map(|name| folder.join(name)), answer: None }
    }

    /// Returns the holder of a lock if a transaction runs, or ran a moment ago. An answer is used
    /// again for [`limits::LOCK_AGE_MAX`], a negative one for [`limits::UNLOCKED_AGE_MAX`].
    pub fn holder(&mut self) -> Option<LockHolder> {
        if let Some((at, holder)) = self.answer {
            let held = holder.is_some();
            let age_max = if held { limits::LOCK_AGE_MAX } else { limits::UNLOCKED_AGE_MAX };
            if at.elapsed() < age_max {
                return holder;
            }
        }
        let holder = self.locks.iter().find_map(|lock| holder_of(lock));
        self.answer = Some((Instant::now(), holder));
        holder
    }
}

/// Returns the holder of the lock on a file. A file that cannot be opened is not locked.
fn holder_of(path: &Path) -> Option<LockHolder> {
    let file = File::open(path).ok()?;
    let wanted = Flock::from(FlockType::WriteLock);
    let lock = fcntl_getlk(&file, &wanted).ok()??;
    Some(LockHolder(lock.pid))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn system_without_locks_has_no_transaction() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(DpkgLock::new(folder.path()).holder(), None);
        fs::create_dir_all(folder.path().join("var/lib/dpkg")).unwrap();
        fs::write(folder.path().join("var/lib/dpkg/lock"), "").unwrap();
        assert_eq!(DpkgLock::new(folder.path()).holder(), None);
    }
}
