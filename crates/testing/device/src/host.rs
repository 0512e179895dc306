//! The operating system's side: folders, the FUSE session, loop devices, `mkfs` and `mount`.

use std::ffi::OsStr;
use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};

use fuser::{BackgroundSession, Config, Filesystem, Session};

use crate::error::DeviceError;
use crate::fuse::Served;
use crate::options::Fs;

/// Beginning of the names of our folders; the process's number and a count follow.
const PREFIX: &str = "holdfast-device-";
/// Threads that serve requests, so that flushes overlap as on a drive.
const SERVING_THREADS: usize = 4;

/// A folder of ours in which a FUSE file system is mounted. Dropping it unmounts and removes it.
pub(crate) struct FuseMount {
    base: PathBuf,
    folder: PathBuf,
    session: Option<BackgroundSession>,
}

impl FuseMount {
    pub(crate) fn new(served: impl Filesystem) -> Result<Self, DeviceError> {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let parent = std::env::temp_dir();
        sweep(&parent);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let base = parent.join(format!("{PREFIX}{}-{count}", std::process::id()));
        let folder = base.join("fuse");
        fs::create_dir_all(&folder).map_err(DeviceError::io(&folder))?;
        let mut config = Config::default();
        config.n_threads = Some(SERVING_THREADS);
        config.clone_fd = true;
        let session = Session::new(served, &folder, &config).and_then(Session::spawn);
        let session = Some(session.map_err(|e| {
            let _ = fs::remove_dir_all(&base);
            DeviceError::Unavailable(format!("mounting FUSE: {e}"))
        })?);
        Ok(Self { base, folder, session })
    }

    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }
}

impl Drop for FuseMount {
    fn drop(&mut self) {
        end_fuse(&self.folder);
        if let Some(session) = self.session.take() {
            let _ = session.join();
        }
        let _ = run("umount", [OsStr::new("-l"), self.folder.as_os_str()]);
        let _ = fs::remove_dir_all(&self.base);
    }
}

/// The folders of a device and what is mounted in them.
pub(crate) struct Mounts {
    /// Folder of the device's file.
    fuse: FuseMount,
    /// Mount point of the file system.
    target: PathBuf,
    fs: Option<Fs>,
    /// The loop device in use.
    loop_device: Option<String>,
    mounted: bool,
}

impl Mounts {
    pub(crate) fn new(served: Served) -> Result<Self, DeviceError> {
        available(Fs::Ext4)?;
        let fuse = FuseMount::new(served)?;
        let target = fuse.base.join("fs");
        fs::create_dir_all(&target).map_err(DeviceError::io(&target))?;
        Ok(Self { fuse, target, fs: None, loop_device: None, mounted: false })
    }

    pub(crate) fn folder(&self) -> &Path {
        &self.target
    }

    /// Makes a file system. Returns the blocks of its journal where they can be determined.
    pub(crate) fn format(&mut self, name: &str, fs: Fs) -> Result<Vec<Range<u64>>, DeviceError> {
        available(fs)?;
        let device = self.attach(name)?;
        let (program, options) = mkfs(fs);
        run(program, options.iter().copied().chain([device.as_str()]))?;
        self.fs = Some(fs);
        if fs != Fs::Ext4 {
            return Ok(Vec::new());
        }
        // Inode 8 is the journal.
        let listed = run("debugfs", ["-R", "blocks <8>", &device])?;
        Ok(ranges(&listed))
    }

    pub(crate) fn mount(&mut self, name: &str) -> Result<PathBuf, DeviceError> {
        let Some(fs) = self.fs else {
            let output = "no file system was made on this device yet; mount one first".to_owned();
            return Err(DeviceError::Program { command: "mount".into(), output });
        };
        let device = self.attach(name)?;
        let options = ["-o", mount_options(fs), &device].map(OsStr::new);
        run("mount", options.into_iter().chain([self.target.as_os_str()]))?;
        self.mounted = true;
        Ok(self.target.clone())
    }

    /// Unmounts the file system.
    pub(crate) fn unmount(&mut self) -> Result<(), DeviceError> {
        if self.mounted {
            run("umount", [&self.target])?;
            self.mounted = false;
        }
        self.release();
        Ok(())
    }

    /// Unmounts everything that is still mounted.
    pub(crate) fn detach(&mut self) {
        if self.mounted {
            let _ = run("umount", [OsStr::new("-l"), self.target.as_os_str()]);
            self.mounted = false;
        }
        self.release();
    }

    /// Attaches the file to a loop device that bypasses the page cache of the file.
    fn attach(&mut self, name: &str) -> Result<String, DeviceError> {
        if let Some(device) = &self.loop_device {
            return Ok(device.clone());
        }
        let file = self.fuse.folder.join(name);
        let options = ["--direct-io=on", "--find", "--show"].map(OsStr::new);
        let out = run("losetup", options.into_iter().chain([file.as_os_str()]))?;
        let device = out.trim().to_owned();
        self.loop_device = Some(device.clone());
        Ok(device)
    }

    fn release(&mut self) {
        if let Some(device) = self.loop_device.take() {
            let _ = run("losetup", ["-d", &device]);
        }
    }
}

impl Drop for Mounts {
    fn drop(&mut self) {
        if self.unmount().is_err() {
            self.detach();
        }
    }
}

/// Aborts the connection, so that no process waits for an answer, and unmounts.
fn end_fuse(fuse: &Path) {
    let _ = run("umount", [OsStr::new("-f"), fuse.as_os_str()]);
}

/// Removes the mounts and folders of killed processes.
fn sweep(parent: &Path) {
    let Ok(entries) = fs::read_dir(parent) else { return };
    for entry in entries.flatten() {
        let name = entry.file_name();
        let name = name.to_string_lossy();
        let process = name.strip_prefix(PREFIX).and_then(|rest| rest.split('-').next());
        let Some(process) = process.and_then(|p| p.parse::<u32>().ok()) else { continue };
        if Path::new(&format!("/proc/{process}")).exists() {
            continue;
        }
        let base = entry.path();
        let (fuse, target) = (base.join("fuse"), base.join("fs"));
        end_fuse(&fuse);
        let _ = run("umount", [OsStr::new("-l"), target.as_os_str()]);
        detach_loops_below(&base);
        let _ = run("umount", [OsStr::new("-l"), fuse.as_os_str()]);
        // Only the empty folders: never what something else has mounted there.
        for folder in [&fuse, &target, &base] {
            let _ = fs::remove_dir(folder);
        }
    }
}

/// Detaches the loop devices of files below `base`, which `/sys` names.
fn detach_loops_below(base: &Path) {
    let Ok(devices) = fs::read_dir("/sys/block") else { return };
    for device in devices.flatten() {
        let file = fs::read_to_string(device.path().join("loop/backing_file"));
        if file.is_ok_and(|f| Path::new(f.trim_end()).starts_with(base)) {
            let node = Path::new("/dev").join(device.file_name());
            let _ = run("losetup", [OsStr::new("-d"), node.as_os_str()]);
        }
    }
}

/// Checks that a device is available on this machine.
pub(crate) fn available(fs: Fs) -> Result<(), DeviceError> {
    let missing = |what: &str| Err(DeviceError::Unavailable(what.to_owned()));
    available_fuse()?;
    if !Path::new("/dev/loop-control").exists() {
        return missing("/dev/loop-control is missing");
    }
    for program in ["losetup", "mount", "umount", "mkfs.ext4", "debugfs", mkfs(fs).0] {
        if find_program(program).is_none() {
            return missing(&format!("the program {program} is missing"));
        }
    }
    Ok(())
}

/// Checks that FUSE is available on this machine.
pub(crate) fn available_fuse() -> Result<(), DeviceError> {
    let missing = |what: &str| Err(DeviceError::Unavailable(what.to_owned()));
    if !is_root() {
        return missing("only root may mount");
    }
    if !Path::new("/dev/fuse").exists() {
        return missing("/dev/fuse is missing");
    }
    Ok(())
}

fn is_root() -> bool {
    #[expect(unsafe_code, reason = "reads the effective user id, which cannot fail")]
    // SAFETY: no arguments, no memory.
    let user = unsafe { libc::geteuid() };
    user == 0
}

fn mkfs(fs: Fs) -> (&'static str, &'static [&'static str]) {
    match fs {
        // Tables and journal are written now, not by the kernel while something is measured.
        Fs::Ext4 => (
            "mkfs.ext4",
            &["-q", "-F", "-b", "4096", "-E", "lazy_itable_init=0,lazy_journal_init=0,nodiscard"],
        ),
        Fs::Xfs => ("mkfs.xfs", &["-q", "-f", "-K"]),
        Fs::Btrfs | Fs::BtrfsZstd => ("mkfs.btrfs", &["-q", "-f", "-K"]),
    }
}

fn mount_options(fs: Fs) -> &'static str {
    match fs {
        Fs::Ext4 | Fs::Btrfs => "noatime",
        // The image before a cut has the same identity.
        Fs::Xfs => "noatime,nouuid",
        Fs::BtrfsZstd => "noatime,compress=zstd",
    }
}

/// Folders of administrators' programs, searched in addition to `PATH`.
const SBIN: [&str; 3] = ["/usr/sbin", "/sbin", "/usr/local/sbin"];

fn find_program(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::env::split_paths(&path).chain(SBIN.iter().map(PathBuf::from));
    folders.map(|folder| folder.join(program)).find(|file| file.is_file())
}

fn run<A: AsRef<OsStr>>(
    program: &str,
    arguments: impl IntoIterator<Item = A>,
) -> Result<String, DeviceError> {
    let mut command = Command::new(find_program(program).unwrap_or_else(|| program.into()));
    command.args(arguments).env("LC_ALL", "C");
    let shown = format!("{command:?}");
    let out = command.output().map_err(DeviceError::io(program))?;
    if out.status.success() {
        return Ok(String::from_utf8_lossy(&out.stdout).into_owned());
    }
    let said = String::from_utf8_lossy(&out.stderr).trim().to_owned();
    let output = if said.is_empty() { out.status.to_string() } else { said };
    Err(DeviceError::Program { command: shown, output })
}

/// Parses block numbers into ranges.
fn ranges(listed: &str) -> Vec<Range<u64>> {
    let mut found: Vec<Range<u64>> = Vec::new();
    for block in listed.split_whitespace().filter_map(|word| word.parse::<u64>().ok()) {
        match found.last_mut() {
            Some(last) if last.end == block => last.end += 1,
            _ => found.push(block..block + 1),
        }
    }
    found
}

#[cfg(test)]
mod tests {
    #[test]
    fn debugfs_block_list_parses_to_ranges() {
        assert_eq!(super::ranges("4 5 6\n9 10 2"), [4..7, 9..11, 2..3]);
        assert!(super::ranges("").is_empty());
    }
}
