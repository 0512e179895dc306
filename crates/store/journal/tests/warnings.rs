//! Failures that no caller sees are logged.

#![allow(clippy::unwrap_used, missing_docs, reason = "a test that cannot go on fails")]

use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use env::files::{Access, File, Files, FilesOver, SimDisk};
use journal::{Durability, Journal, Options};

/// Time after which the test reports that a line is missing.
const HANG: Duration = Duration::from_mins(1);
const SEGMENT_BYTES: u64 = 64 << 10;

/// A disk on which no file can be created while it fails.
struct Failing(SimDisk, Arc<AtomicBool>);

impl FilesOver for Failing {
    fn under(&self) -> &dyn Files {
        &self.0
    }

    fn open(&self, path: &Path, access: Access) -> io::Result<Arc<dyn File>> {
        if access.create && self.1.load(Ordering::SeqCst) {
            return Err(io::Error::from_raw_os_error(5));
        }
        self.0.open(path, access)
    }
}

/// The lines that were logged.
#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<u8>>>);

impl Lines {
    fn text(&self) -> String {
        String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
    }
}

impl io::Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn failure_to_prepare_the_next_segment_is_logged() {
    let (lines, fails) = (Lines::default(), Arc::new(AtomicBool::new(false)));
    let writer = lines.clone();
    // The line comes from a thread of the journal.
    tracing_subscriber::fmt().with_ansi(false).with_writer(move || writer.clone()).init();
    let files: Arc<dyn Files> = Arc::new(Failing(SimDisk::new(1), Arc::clone(&fails)));
    let options = Options { files, segment_bytes: SEGMENT_BYTES, ..Options::default() };
    let (journal, _) = Journal::open(Path::new("/log"), options).unwrap();
    let append = || journal.append(&[7; 4096], Durability::Persist);
    append().unwrap();
    fails.store(true, Ordering::SeqCst);
    // The next file is prepared once half of the segment is used.
    for _ in 0..SEGMENT_BYTES / 4096 / 2 {
        append().unwrap();
    }
    let begun = Instant::now();
    while !lines.text().contains("no space prepared for the writer") {
        assert!(begun.elapsed() < HANG, "{}", lines.text());
        std::thread::yield_now();
    }
    let text = lines.text();
    assert!(text.contains("WARN") && text.contains("/log/spare-"), "{text}");
    fails.store(false, Ordering::SeqCst);
    for _ in 0..SEGMENT_BYTES / 4096 {
        append().unwrap();
    }
}
