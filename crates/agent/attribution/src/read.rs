//! Reads processes from `/proc`.
//!
//! Every file of one process is opened below one descriptor of its directory, which never shows
//! another process: once the process is gone, reads fail even if its number is reused. The
//! executable is read last, because [`crate::table`] concludes from it that what was read before
//! it belongs to the same image.

use std::ffi::OsStr;
use std::fs;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{AtFlags, CWD, Mode, OFlags};
use rustix::io::Errno;

use crate::clock;
use crate::container;
use crate::image::{FileId, Image, Login, Program, Start};
use crate::limits;
use crate::message::Ids;
use crate::table::{Reading, Users};

/// Value of `loginuid` and `sessionid` for none.
const NONE: u32 = u32::MAX;
/// `PF_KTHREAD`: flag in `/proc/PID/stat` of a thread of the kernel.
const KERNEL_THREAD: u64 = 0x0020_0000;
/// A tick of `/proc`: `USER_HZ` is 100 on every supported architecture.
const TICK_NS: u64 = 10_000_000;
/// Bytes of a read: `/proc` makes at most a page at once.
const PAGE_BYTES: usize = 4096;
/// Marker that the kernel appends to the path of a removed executable.
const DELETED: &[u8] = b" (deleted)";

/// Returns the paths whose files decide what a program is: its executable, and the script that it
/// runs. Empty for most programs, which are not judged. Takes the path of the executable, the
/// arguments, each ended by a zero byte, and the working directory.
pub type IdentityPaths = fn(&Path, &[u8], &Path) -> Vec<PathBuf>;

/// Returns true if a judged program may run other code than that of its paths. Takes these paths, the
/// arguments, the environment, whose variables end with a zero byte each unless it is cut off, and
/// the user who logged in.
pub type IsAltered = fn(&[PathBuf], &[u8], &[u8], Option<u32>) -> bool;

/// Judges whether a program is what its path says.
#[derive(Debug, Clone, Copy)]
pub struct Identity {
    pub paths: IdentityPaths,
    pub is_altered: IsAltered,
}

impl Identity {
    /// Returns an identity that judges no program.
    pub fn of_none() -> Self {
        Self { paths: |_, _, _| Vec::new(), is_altered: |_, _, _, _| false }
    }
}

/// Reads a process, without its users if they are known. Returns `None` if it is gone.
pub(crate) fn process(pid: u32, known: Option<Ids>, identity: Identity) -> Option<Reading> {
    let directory = directory(pid)?;
    let stat = Stat::parse(&text(&directory, "stat")?)?;
    let ids = match known {
        Some(ids) => ids,
        None => ids(&text(&directory, "status")?)?,
    };
    let login = login_in(&directory);
    let control_group = text(&directory, "cgroup").unwrap_or_default();
    let mut image = Image {
        arguments: bytes(&directory, "cmdline", limits::ARGUMENTS_BYTES_MAX).unwrap_or_default(),
        working_directory: link(&directory, "cwd").unwrap_or_default(),
        tty: tty(stat.tty),
        container: container::id(&control_group).unwrap_or_default(),
        control_group: container::digest(&control_group),
        ..Image::default()
    };
    image.kernel = stat.flags & KERNEL_THREAD != 0;
    let mut ended = false;
    if !image.kernel {
        match program(&directory) {
            Ok(program) => image.program = Some(program),
            Err(error) => ended = error != Errno::ACCESS && error != Errno::PERM,
        }
    }
    image.read_ns = clock::monotonic_ns();
    image.foreign = is_foreign(&directory, &image, login.user, identity);
    Some(Reading {
        start: start(stat.start_ticks),
        parent: stat.parent,
        threads: stat.threads,
        ids,
        login,
        image: (!ended).then(|| Arc::new(image)),
    })
}

/// Returns the identity of a process's executable; `None` if it is gone or a thread of the kernel.
pub(crate) fn executable(pid: u32) -> Option<FileId> {
    let stat = rustix::fs::stat(format!("/proc/{pid}/exe")).ok()?;
    Some(file_id(&stat))
}

/// Reads the users of a process; `None` if it is gone.
pub(crate) fn users(pid: u32) -> Option<Users> {
    let directory = directory(pid)?;
    let stat = Stat::parse(&text(&directory, "stat")?)?;
    let ids = ids(&text(&directory, "status")?)?;
    let login = login_in(&directory);
    let start = start(stat.start_ticks);
    Some(Users { start, ids, login, read_ns: clock::monotonic_ns() })
}

/// Returns true if the process exists, even if its first thread has ended.
pub(crate) fn exists(pid: u32) -> bool {
    rustix::fs::access(format!("/proc/{pid}"), rustix::fs::Access::EXISTS).is_ok()
}

/// Reads every process. A process that ends while it is read is left out.
pub(crate) fn all(identity: Identity) -> std::io::Result<Vec<(u32, Reading)>> {
    let mut running = Vec::new();
    for entry in fs::read_dir("/proc")? {
        let Some(pid) = entry?.file_name().to_str().and_then(|name| name.parse().ok()) else {
            continue;
        };
        running.extend(process(pid, None, identity).map(|reading| (pid, reading)));
    }
    Ok(running)
}

/// Returns true if process 1 sees another file at a path that decides what the program is, or none,
/// or if it was started in a way that may make it run other code.
fn is_foreign(
    directory: &OwnedFd,
    image: &Image,
    login_user: Option<u32>,
    identity: Identity,
) -> bool {
    let Some(known) = &image.program else { return false };
    let as_path = |bytes: &[u8]| PathBuf::from(OsStr::from_bytes(bytes));
    let executable = as_path(&known.path);
    let paths = (identity.paths)(&executable, &image.arguments, &as_path(&image.working_directory));
    let is_other = |path: &PathBuf| {
        let own = if *path == executable {
            Some((known.file.device, known.file.inode))
        } else {
            let below = path.strip_prefix("/").unwrap_or(path);
            let stat =
                rustix::fs::statat(directory, Path::new("root").join(below), AtFlags::empty());
            stat.ok().map(|stat| (stat.st_dev, stat.st_ino))
        };
        own.is_none() || own != on_host(path)
    };
    let is_altered = || {
        let environment = bytes(directory, "environ", limits::ENVIRONMENT_BYTES_MAX);
        // The environment is empty once the process has ended, or that of the next program.
        let environment = environment.filter(|_| program(directory).as_ref() == Ok(known));
        environment.is_none_or(|environment| {
            (identity.is_altered)(&paths, &image.arguments, &environment, login_user)
        })
    };
    paths.iter().any(is_other) || (!paths.is_empty() && is_altered())
}

/// Returns device and inode of a path as process 1 sees it. Where its view cannot be read, the
/// agent's own counts.
fn on_host(path: &Path) -> Option<(u64, u64)> {
    let below = path.strip_prefix("/").unwrap_or(path);
    let stat = match rustix::fs::stat(Path::new("/proc/1/root").join(below)) {
        Err(Errno::ACCESS | Errno::PERM) => rustix::fs::stat(path),
        other => other,
    };
    stat.ok().map(|stat| (stat.st_dev, stat.st_ino))
}

/// Returns the identity of a file.
pub(crate) fn file_id(stat: &rustix::fs::Stat) -> FileId {
    let ctime_ns = i128::from(stat.st_ctime) * 1_000_000_000 + i128::from(stat.st_ctime_nsec);
    FileId { device: stat.st_dev, inode: stat.st_ino, ctime_ns }
}

fn directory(pid: u32) -> Option<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    rustix::fs::openat(CWD, format!("/proc/{pid}"), flags, Mode::empty()).ok()
}

fn bytes(directory: &OwnedFd, name: &str, most: usize) -> Option<Vec<u8>> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
    let file = rustix::fs::openat(directory, name, flags, Mode::empty()).ok()?;
    let mut buffer = [0; PAGE_BYTES];
    let mut content = Vec::new();
    // `/proc` fills the buffer if it has more, so that one call reads most files.
    while content.len() < most {
        let room = most.min(content.len() + PAGE_BYTES) - content.len();
        let read = rustix::io::read(&file, buffer.get_mut(..room)?).ok()?;
        content.extend_from_slice(buffer.get(..read)?);
        if read < room {
            break;
        }
    }
    Some(content)
}

fn text(directory: &OwnedFd, name: &str) -> Option<String> {
    let content = bytes(directory, name, limits::PROC_BYTES_MAX)?;
    Some(String::from_utf8_lossy(&content).into_owned())
}

fn link(directory: &OwnedFd, name: &str) -> Option<Vec<u8>> {
    Some(rustix::fs::readlinkat(directory, name, Vec::new()).ok()?.into_bytes())
}

fn program(directory: &OwnedFd) -> Result<Program, Errno> {
    let path = rustix::fs::readlinkat(directory, "exe", Vec::new())?.into_bytes();
    let stat = rustix::fs::statat(directory, "exe", AtFlags::empty())?;
    // A file that exists may have the marker as part of its name.
    let deleted = stat.st_nlink == 0;
    let path = match path.strip_suffix(DELETED) {
        Some(path) if deleted => path.to_vec(),
        _ => path,
    };
    Ok(Program { path, deleted, file: file_id(&stat) })
}

fn login_in(directory: &OwnedFd) -> Login {
    let number = |name| {
        let number = text(directory, name)?.trim().parse().ok()?;
        (number != NONE).then_some(number)
    };
    let user = number("loginuid");
    // Both are set at the login.
    Login { user, session: user.and_then(|_| number("sessionid")) }
}

/// Returns the real and effective user from `/proc/PID/status`.
fn ids(status: &str) -> Option<Ids> {
    let line = status.lines().find_map(|line| line.strip_prefix("Uid:"))?;
    let mut numbers = line.split_ascii_whitespace().map_while(|number| number.parse().ok());
    Some(Ids { real: numbers.next()?, effective: numbers.next()? })
}

fn start(ticks: u64) -> Start {
    let since_boot_ns = i64::try_from(ticks.saturating_mul(TICK_NS)).ok();
    let at_ns = since_boot_ns.map(|ns| ns - clock::suspended_ns());
    Start { at_ns, ticks: Some(ticks) }
}

/// Fields of `/proc/PID/stat`.
#[derive(Debug, PartialEq, Eq)]
struct Stat {
    parent: u32,
    tty: u32,
    flags: u64,
    threads: u32,
    start_ticks: u64,
}

impl Stat {
    fn parse(line: &str) -> Option<Self> {
        // The name, in parentheses, may contain blanks and parentheses.
        let (_, rest) = line.rsplit_once(") ")?;
        let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
        let field = |number: usize| fields.get(number - 3);
        Some(Self {
            parent: field(4)?.parse().ok()?,
            tty: field(7)?.parse::<i32>().ok()?.cast_unsigned(),
            flags: field(9)?.parse().ok()?,
            threads: field(20)?.parse().ok()?,
            start_ticks: field(22)?.parse().ok()?,
        })
    }
}

/// Returns the name of a terminal from its device number as in `/proc/PID/stat`; empty for none.
fn tty(device: u32) -> String {
    let (major, minor) = (device >> 8 & 0xfff, device & 0xff | device >> 12 & 0xf_ff00);
    match major {
        4 if minor < 64 => format!("tty{minor}"),
        4 => format!("ttyS{}", minor - 64),
        5 if minor == 1 => "console".into(),
        136..=143 => format!("pts/{}", (major - 136) << 20 | minor),
        0 => String::new(),
        229 => format!("hvc{minor}"),
        _ => format!("{major}:{minor}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stat_parses_names_with_blanks_and_parentheses() {
        let line = "7 (a) b (c) S 1 7 7 34816 7 4194304 1 0 0 0 1 2 0 0 20 0 3 0 555 1 2 3";
        let expected =
            Stat { parent: 1, tty: 34816, flags: 4_194_304, threads: 3, start_ticks: 555 };
        assert_eq!(Stat::parse(line), Some(expected));
        assert_eq!(Stat::parse("7 (a) S 1"), None);
    }

    #[test]
    fn terminals_have_their_names() {
        let cases = [
            (0, ""),
            (34816, "pts/0"),
            (34817, "pts/1"),
            (1025, "tty1"),
            (1088, "ttyS0"),
            (1281, "console"),
        ];
        for (device, name) in cases {
            assert_eq!(tty(device), name, "{device}");
        }
        // The 300th pseudo-terminal: the minor number has more than 8 bits.
        assert_eq!(tty((136 << 8) | 0x2c | (0x100 << 12)), "pts/300");
    }

    #[test]
    fn own_process_is_read() {
        let reading = process(std::process::id(), None, Identity::of_none()).unwrap();
        let image = reading.image.unwrap();
        let program = image.program.as_ref().unwrap();
        let path = std::env::current_exe().unwrap();
        assert_eq!(program.path, path.as_os_str().as_encoded_bytes());
        assert_eq!(Some(program.file), executable(std::process::id()));
        assert!(image.arguments.starts_with(std::env::args().next().unwrap().as_bytes()));
        assert_eq!(reading.ids.effective, rustix::process::geteuid().as_raw());
        let start_ns = u64::try_from(reading.start.at_ns.unwrap()).unwrap();
        assert!(start_ns < image.read_ns);
        assert!(exists(std::process::id()));
        assert!(process(u32::MAX, None, Identity::of_none()).is_none());
        assert!(!image.foreign);
        let judged = |own: Identity| process(std::process::id(), None, own).unwrap().image.unwrap();
        let by_paths = |paths| judged(Identity { paths, ..Identity::of_none() }).foreign;
        assert!(!by_paths(|executable, _, _| vec![executable.to_owned()]));
        assert!(by_paths(|_, _, _| vec!["/none".into()]));
        let by_environment = |is_altered| {
            judged(Identity { paths: |executable, _, _| vec![executable.to_owned()], is_altered })
        };
        assert!(
            by_environment(|_, _, environment, _| {
                environment.split(|byte| *byte == 0).any(|variable| variable.starts_with(b"PATH="))
            })
            .foreign
        );
        assert!(!by_environment(|_, _, _, _| false).foreign);
    }
}
