//! A fanotify group that reports which process changed which name in a folder.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read as _;
use std::os::fd::FromRawFd as _;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use model::{Interval, Writer, WriterSeen};

/// Milliseconds between two reads.
const PACE_MS: i32 = 5;

/// Returns nanoseconds of `CLOCK_MONOTONIC`.
pub(crate) fn now_ns() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    u64::try_from(time.tv_sec * 1_000_000_000 + time.tv_nsec).unwrap()
}

/// A thread that reads notifications every [`PACE_MS`].
pub(crate) struct Watched {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<BTreeMap<String, Vec<Writer>>>,
}

impl Watched {
    /// Watches a folder from now on.
    pub(crate) fn start(folder: &Path) -> Self {
        let group = group(folder);
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = stop.clone();
        let thread = std::thread::spawn(move || read_all(group, &stopped));
        Self { stop, thread }
    }

    /// Returns the writers of each name, after reading what is pending.
    pub(crate) fn finish(self) -> BTreeMap<String, Vec<Writer>> {
        self.stop.store(true, Ordering::Release);
        self.thread.join().unwrap()
    }
}

fn group(folder: &Path) -> File {
    let flags = libc::FAN_CLASS_NOTIF
        | libc::FAN_REPORT_DFID_NAME
        | libc::FAN_UNLIMITED_QUEUE
        | libc::FAN_NONBLOCK
        | libc::FAN_CLOEXEC;
    let mask =
        libc::FAN_CREATE | libc::FAN_MODIFY | libc::FAN_CLOSE_WRITE | libc::FAN_EVENT_ON_CHILD;
    let path = std::ffi::CString::new(folder.to_str().unwrap()).unwrap();
    #[expect(unsafe_code, reason = "no safe wrapper has fanotify")]
    // SAFETY: the descriptor is new and owned by nothing; the path outlives the call.
    unsafe {
        let fd = libc::fanotify_init(flags, libc::O_RDONLY as u32);
        assert!(fd >= 0, "{}", std::io::Error::last_os_error());
        let marked =
            libc::fanotify_mark(fd, libc::FAN_MARK_ADD, mask, libc::AT_FDCWD, path.as_ptr());
        assert_eq!(marked, 0, "{}", std::io::Error::last_os_error());
        File::from_raw_fd(fd)
    }
}

fn read_all(mut group: File, stop: &AtomicBool) -> BTreeMap<String, Vec<Writer>> {
    let mut found = BTreeMap::new();
    let mut buffer = vec![0; 256 * 1024];
    // Everything that is returned later happened after the queue was last seen empty.
    let mut empty_ns = now_ns();
    loop {
        let last = stop.load(Ordering::Acquire);
        loop {
            let before_ns = now_ns();
            let Ok(length) = group.read(&mut buffer) else {
                empty_ns = before_ns;
                break;
            };
            let to_ns = now_ns();
            for (name, pid) in events(&buffer[..length]) {
                let read = Interval { from_ns: empty_ns, to_ns };
                let writer = Writer::new(pid, WriterSeen::Changing, read);
                add(found.entry(name).or_default(), writer);
            }
        }
        if last {
            return found;
        }
        // Nothing is polled for: this is the pace of the reader.
        let mut none = libc::pollfd { fd: -1, events: 0, revents: 0 };
        #[expect(unsafe_code, reason = "the workspace's rustix has no poll")]
        // SAFETY: the pointer is to one entry that outlives the call.
        unsafe {
            libc::poll(&raw mut none, 1, PACE_MS);
        }
    }
}

fn add(writers: &mut Vec<Writer>, writer: Writer) {
    match writers.iter_mut().find(|known| known.pid == writer.pid) {
        Some(known) => known.add(&writer),
        None => writers.push(writer),
    }
}

/// Returns the name and process of each notification.
fn events(mut bytes: &[u8]) -> Vec<(String, u32)> {
    let u32_at =
        |bytes: &[u8], at: usize| u32::from_ne_bytes(bytes[at..at + 4].try_into().unwrap());
    let mut events = Vec::new();
    while !bytes.is_empty() {
        let length = u32_at(bytes, 0) as usize;
        // Metadata of 24 bytes; then the record: header 4, fsid 8, handle's size 4, type 4, handle,
        // name.
        let record = &bytes[24..length];
        let handle = u32_at(record, 12) as usize;
        let name = record[20 + handle..].split(|byte| *byte == 0).next().unwrap();
        events.push((String::from_utf8(name.to_vec()).unwrap(), u32_at(bytes, 20)));
        bytes = &bytes[length..];
    }
    events
}
