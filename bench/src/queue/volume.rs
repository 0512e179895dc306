//! Separate file systems to measure on, each in a file behind a loop device. They need root and the
//! program that makes the file system; if one is missing, the reason is printed.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, bail};

const BYTES: u64 = 1 << 30;

/// The file systems, with the program that makes each.
pub const KINDS: [(&str, &[&str]); 3] = [
    ("ext4", &["mkfs.ext4", "-q", "-F"]),
    ("xfs", &["mkfs.xfs", "-q", "-f"]),
    ("btrfs", &["mkfs.btrfs", "-q", "-f"]),
];

/// A mounted file system, unmounted when dropped.
pub struct Volume {
    pub folder: PathBuf,
    image: PathBuf,
}

impl Volume {
    /// Creates and mounts a file system below `base`.
    pub fn new(base: &Path, kind: &str, make: &[&str]) -> anyhow::Result<Self> {
        if !rustix::process::geteuid().is_root() {
            bail!("mounting needs root");
        }
        let (folder, image) = (base.join(kind), base.join(format!("{kind}.image")));
        fs::create_dir_all(&folder)?;
        File::create(&image)?.set_len(BYTES)?;
        let (program, words) = make.split_first().context("no program")?;
        run(Command::new(program).args(words).arg(&image))?;
        run(Command::new("mount").args(["-o", "loop"]).arg(&image).arg(&folder))?;
        Ok(Self { folder, image })
    }
}

impl Drop for Volume {
    fn drop(&mut self) {
        if let Err(error) = run(Command::new("umount").arg(&self.folder)) {
            eprintln!("{}: {error:#}", self.folder.display());
        }
        let _ = fs::remove_file(&self.image);
    }
}

fn run(command: &mut Command) -> anyhow::Result<()> {
    let shown = format!("{command:?}");
    let done = command.output().with_context(|| shown.clone())?;
    if !done.status.success() {
        bail!("{shown}: {}", String::from_utf8_lossy(&done.stderr).trim());
    }
    Ok(())
}
