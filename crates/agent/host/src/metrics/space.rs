//! The space of local file systems, in bytes, and the number of their files.
//!
//! A query of a file system that does not answer, such as a FUSE mount whose disk is gone, would
//! block forever. Therefore mounts are queried on a separate thread. If a mount takes longer than
//! [`PATIENCE`], that thread is abandoned, and the mount is not queried again until the thread
//! returns.
//!
//! **Locking.** The mutex of the silent mounts is held during a whole sample, so samples do not run
//! concurrently.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::mpsc::{Receiver, RecvTimeoutError, TryRecvError, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rustix::fs::statvfs;

use super::Reading;

/// Most file systems that are queried.
const MOUNTS_MAX: usize = 128;
/// Longest wait for one file system.
const PATIENCE: Duration = Duration::from_secs(1);
/// Most file systems per sample that may fail to answer. The mounts after them have no row in it.
const SILENT_MAX: usize = 3;

/// Total, free and available bytes, total and free files.
type Values = [f64; 5];
/// A function that returns the values of a mount, or `None` if it was unmounted or is hidden from
/// this process.
type MountQuery = Arc<dyn Fn(&str) -> Option<Values> + Send + Sync>;
/// A mount that did not answer, and the channel for its answer.
type Silent = (String, Receiver<Option<Values>>);

/// The query of file systems. Clones share the list of silent mounts.
#[derive(Clone)]
pub(super) struct Space {
    ask: MountQuery,
    silent: Arc<Mutex<Vec<Silent>>>,
}

impl fmt::Debug for Space {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Space").finish_non_exhaustive()
    }
}

impl Default for Space {
    fn default() -> Self {
        Self { ask: Arc::new(of), silent: Arc::default() }
    }
}

impl Space {
    /// Adds a row for one mount of each device in `/proc/self/mounts`.
    pub(super) fn rows(&self, text: &str, look: &mut Reading) -> Option<()> {
        let mut silent = self.silent.lock().unwrap_or_else(PoisonError::into_inner);
        silent.retain(|(_, answer)| matches!(answer.try_recv(), Err(TryRecvError::Empty)));
        let (known, mut left): (Vec<String>, Vec<String>) =
            mounts(text)?.into_iter().partition(|m| silent.iter().any(|(mount, _)| mount == m));
        look.problems.extend(known.iter().map(|mount| said_nothing(mount)));
        for _ in 0..SILENT_MAX {
            if left.is_empty() {
                break;
            }
            let Some((answered, answers)) = self.query_mounts(&left, look) else { break };
            let mut behind = left.split_off(answered);
            let mount = behind.remove(0);
            look.problems.push(said_nothing(&mount));
            silent.push((mount, answers));
            left = behind;
        }
        Some(())
    }

    /// Queries mounts one after the other. If one does not answer, returns the number of mounts
    /// before it and the channel for its answer. Returns `None` if all answered.
    fn query_mounts(
        &self,
        mounts: &[String],
        look: &mut Reading,
    ) -> Option<(usize, Receiver<Option<Values>>)> {
        let (send, answers) = channel();
        let (ask, asked) = (Arc::clone(&self.ask), mounts.to_vec());
        let run = move || {
            // An error means that the caller has stopped waiting.
            let _ = asked.iter().try_for_each(|mount| send.send(ask(mount)));
        };
        if let Err(e) = std::thread::Builder::new().name("space".into()).spawn(run) {
            look.problems.push(format!("space of file systems: {e}"));
            return None;
        }
        for (at, mount) in mounts.iter().enumerate() {
            match answers.recv_timeout(PATIENCE) {
                Ok(values) => row(mount, values, look),
                Err(RecvTimeoutError::Timeout) => return Some((at, answers)),
                Err(RecvTimeoutError::Disconnected) => return None,
            }
        }
        None
    }
}

fn said_nothing(mount: &str) -> String {
    format!("space of {mount}: the file system does not answer; unmount it if it is gone")
}

fn row(mount: &str, values: Option<Values>, look: &mut Reading) {
    let names = ["space.total", "space.free", "space.available", "space.files", "space.files_free"];
    if let Some(values) = values {
        look.row(&names, ("mount", mount), values.to_vec());
    }
}

fn of(mount: &str) -> Option<Values> {
    let stat = statvfs(mount).ok()?;
    let bytes = |blocks: u64| blocks as f64 * stat.f_frsize as f64;
    let (files, free) = (stat.f_files as f64, stat.f_ffree as f64);
    Some([bytes(stat.f_blocks), bytes(stat.f_bfree), bytes(stat.f_bavail), files, free])
}

/// Returns one mount of each local device.
fn mounts(text: &str) -> Option<Vec<String>> {
    let (mut seen, mut mounts) = (BTreeSet::new(), Vec::new());
    for line in text.lines() {
        let mut words = line.split(' ');
        let (device, mount) = (words.next()?, words.next()?);
        if device.starts_with("/dev/") && seen.len() < MOUNTS_MAX && seen.insert(device) {
            mounts.push(unescaped(mount));
        }
    }
    Some(mounts)
}

/// Decodes a path in `/proc/mounts`, where space, tab, newline and `\` are written as `\` and three
/// octal digits.
fn unescaped(text: &str) -> String {
    [("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")]
        .iter()
        .fold(text.to_owned(), |text, (code, sign)| text.replace(code, sign))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOUNTS: &str = "/dev/a / ext4 rw 0 0\nproc /proc proc rw 0 0\n/dev/b /gone fuseblk rw 0 0\n\
                          /dev/a /again ext4 rw 0 0\n/dev/c /a\\040b ext4 rw 0 0\n";

    #[test]
    fn hanging_mount_does_not_block_others_and_is_not_queried_again() {
        let hang = Arc::new(Mutex::new(()));
        let asked: Arc<Mutex<Vec<String>>> = Arc::default();
        let (door, log) = (Arc::clone(&hang), Arc::clone(&asked));
        let ask: MountQuery = Arc::new(move |mount: &str| {
            log.lock().unwrap().push(mount.to_owned());
            if mount == "/gone" {
                drop(door.lock());
            }
            Some([5.0, 4.0, 3.0, 2.0, 1.0])
        });
        let space = Space { ask, silent: Arc::default() };
        let look = || {
            let mut look = Reading::default();
            space.rows(MOUNTS, &mut look).unwrap();
            let mounts =
                look.rows.iter().map(|row| row.name.rsplit_once('=').unwrap().1.to_owned());
            (mounts.collect::<Vec<_>>(), look.problems.len())
        };
        let held = hang.lock().unwrap();
        for _ in 0..2 {
            assert_eq!(look(), (vec!["/".to_owned(), "/a\\ b".into()], 1));
        }
        let times = asked.lock().unwrap().iter().filter(|mount| *mount == "/gone").count();
        assert_eq!(times, 1);
        drop(held);
        // Once the hanging query has returned, the mount is queried again.
        while look().0.len() < 3 {}
        assert_eq!(look().1, 0);
    }

    #[test]
    fn octal_escapes_of_proc_are_decoded() {
        assert_eq!(mounts(MOUNTS).unwrap(), ["/", "/gone", "/a b"]);
        assert_eq!(unescaped("/a\\040b\\134c"), "/a b\\c");
        assert!(mounts("nonsense\n").is_none());
    }
}
