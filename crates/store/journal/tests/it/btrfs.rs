//! On a real btrfs with compression, open chooses the I/O path that keeps the compression, reports
//! the reason, and the data is compressed. The test needs root, loop devices and mkfs.btrfs;
//! without them it reports that it is skipped.

use std::path::{Path, PathBuf};
use std::process::Command;

use journal::{Durability, IoPath, Journal, Layout, Options};

/// A mounted file system in a file; unmounted when dropped.
struct Mounted {
    folder: tempfile::TempDir,
    device: String,
}

fn run(program: &str, args: &[&Path]) -> Result<String, String> {
    let output = Command::new(program).args(args).output();
    let output = output.map_err(|e| format!("{program}: {e}"))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).trim().into());
    }
    Err(format!("{program}: {}", String::from_utf8_lossy(&output.stderr).trim()))
}

impl Mounted {
    fn new() -> Result<Self, String> {
        let folder = tempfile::tempdir().map_err(|e| e.to_string())?;
        let image = folder.path().join("image");
        let file = std::fs::File::create(&image).map_err(|e| e.to_string())?;
        file.set_len(400 << 20).map_err(|e| e.to_string())?;
        std::fs::create_dir(folder.path().join("mount")).map_err(|e| e.to_string())?;
        run("mkfs.btrfs", &[Path::new("-q"), &image])?;
        let options = ["-o", "loop,compress=zstd"].map(Path::new);
        let mount = folder.path().join("mount");
        run("mount", &[options[0], options[1], &image, &mount])?;
        let device = run("findmnt", &[Path::new("-no"), Path::new("SOURCE"), &mount])?;
        Ok(Self { folder, device })
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("mount")
    }

    /// Returns the number of bytes that reached the device.
    fn written(&self) -> u64 {
        let name = self.device.trim_start_matches("/dev/");
        let stat = std::fs::read_to_string(format!("/sys/block/{name}/stat")).unwrap();
        stat.split_whitespace().nth(6).unwrap().parse::<u64>().unwrap() * 512
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = run("umount", &[&self.path()]);
    }
}

#[test]
fn btrfs_compresses_journal_writes() {
    let mounted = match Mounted::new() {
        Ok(mounted) => mounted,
        Err(why) => return needs::skip(format_args!("no btrfs to try it on: {why}")),
    };
    let record = b"the same again and again, ".repeat((1 << 20) / 26);
    for (name, io) in [("auto", IoPath::Auto), ("direct", IoPath::Direct)] {
        let options =
            Options { layout: Layout::Sparse, io, segment_bytes: 16 << 20, ..Options::default() };
        let (journal, recovery) = Journal::open(&mounted.path().join(name), options).unwrap();
        journal.append(b"first", Durability::Persist).unwrap();
        let before = mounted.written();
        for _ in 0..4 {
            journal.append(&record, Durability::Persist).unwrap();
        }
        let bytes = mounted.written() - before;
        eprintln!("{name}: {:?} ({}), {bytes} bytes", recovery.io, recovery.io_reason);
        if io == IoPath::Auto {
            assert_eq!(recovery.io, IoPath::Fdatasync);
            assert!(recovery.io_reason.contains("compress"), "{}", recovery.io_reason);
            assert!(bytes < 2 << 20, "4 MiB of repetition took {bytes} bytes");
        }
        journal.close().unwrap();
    }
}
