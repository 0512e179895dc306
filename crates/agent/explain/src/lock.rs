//! dpkg's locks: a transaction runs while a process holds one of them.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::Instant;

use rustix::process::{Flock, FlockType, fcntl_getlk};

use crate::limits;

/// The locks below `var/lib/dpkg`: that of package managers, and that of dpkg.
const LOCKS: [&str; 2] = ["lock-frontend", "lock"];

/// Answers whether a transaction of dpkg runs. The locks are only queried, never taken.
#[derive(Debug)]
pub struct DpkgLock {
    locks: [PathBuf; 2],
    answer: Option<(Instant, bool)>,
}

impl DpkgLock {
    /// Returns the locks of the system below `root`, usually `/`.
    pub fn new(root: &Path) -> Self {
        let folder = root.join("var/lib/dpkg");
        Self { locks: LOCKS.map(|name| folder.join(name)), answer: None }
    }

    /// Returns true if a transaction runs, or ran a moment ago. An answer is used again for
    /// [`limits::LOCK_AGE_MAX`], a negative one for [`limits::UNLOCKED_AGE_MAX`].
    pub fn is_held(&mut self) -> bool {
        if let Some((at, held)) = self.answer {
            let age_max = if held { limits::LOCK_AGE_MAX } else { limits::UNLOCKED_AGE_MAX };
            if at.elapsed() < age_max {
                return held;
            }
        }
        let held = self.locks.iter().any(|lock| is_locked(lock));
        self.answer = Some((Instant::now(), held));
        held
    }
}

/// Returns true if a process holds a lock on the file. A file that cannot be opened is not locked.
fn is_locked(path: &Path) -> bool {
    let Ok(file) = File::open(path) else { return false };
    let wanted = Flock::from(FlockType::WriteLock);
    matches!(fcntl_getlk(&file, &wanted), Ok(Some(_)))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn system_without_locks_has_no_transaction() {
        let folder = tempfile::tempdir().unwrap();
        assert!(!DpkgLock::new(folder.path()).is_held());
        fs::create_dir_all(folder.path().join("var/lib/dpkg")).unwrap();
        fs::write(folder.path().join("var/lib/dpkg/lock"), "").unwrap();
        assert!(!DpkgLock::new(folder.path()).is_held());
    }
}
