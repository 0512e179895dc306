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

/// Creates a folder to watch on a tmpfs of its own. An agent marks the whole file system of what it
/// watches, so on a shared one it wakes for every change that any other test makes.
///
/// Only the calling thread, and what it starts from now on, sees the tmpfs, so it is gone with the
/// test, also after a kill. Without root it is a plain folder.
pub(crate) fn folder_to_watch(path: PathBuf) -> PathBuf {
    fs::create_dir_all(&path).unwrap();
    if rustix::process::geteuid().is_root() {
        // SAFETY: no file descriptor becomes private, only the list of mounts.
        #[expect(unsafe_code, reason = "with other flags it would take descriptors away")]
        unsafe {
            rustix::thread::unshare_unsafe(rustix::thread::UnshareFlags::NEWNS).unwrap();
        }
        mount(&["--make-rprivate", "/"]);
        mount(&["-t", "tmpfs", "holdfast-watched", path.to_str().unwrap()]);
    }
    path
}

fn mount(words: &[&str]) {
    let done = Command::new("mount").args(words).output().unwrap();
    assert!(done.status.success(), "mount {words:?}: {}", String::from_utf8_lossy(&done.stderr));
}
