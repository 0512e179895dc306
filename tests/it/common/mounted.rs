//! A small file system for one test.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

/// A tmpfs that is unmounted when dropped.
pub(crate) struct Mounted(pub(crate) PathBuf);

impl Mounted {
    /// Mounts a tmpfs. Without root, skips the test and returns `None`.
    pub(crate) fn new(path: PathBuf, mib: u32) -> Option<Self> {
        fs::create_dir_all(&path).unwrap();
        let done = Command::new("mount")
            .args(["-t", "tmpfs", "-o", &format!("size={mib}m"), "holdfast-test"])
            .arg(&path)
            .output()
            .unwrap();
        if !done.status.success() {
            let error = String::from_utf8_lossy(&done.stderr);
            needs::skip(format_args!("needs root to mount a tmpfs: {error}"));
            return None;
        }
        Some(Self(path))
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}
