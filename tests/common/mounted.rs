//! A small file system for one test.
#![allow(dead_code, unreachable_pub, reason = "each test file uses its own part")]

use std::fs;
use std::path::PathBuf;
use std::process::Command;

/// A tmpfs that is unmounted when dropped.
pub struct Mounted(pub PathBuf);

impl Mounted {
    /// Mounts a tmpfs. Without root, prints a message and returns `None`.
    pub fn new(path: PathBuf, mib: u32) -> Option<Self> {
        fs::create_dir_all(&path).unwrap();
        let done = Command::new("mount")
            .args(["-t", "tmpfs", "-o", &format!("size={mib}m"), "holdfast-test"])
            .arg(&path)
            .output()
            .unwrap();
        if !done.status.success() {
            println!("SKIPPED: mounting needs root: {}", String::from_utf8_lossy(&done.stderr));
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
