//! Who stores a batch that nobody waits for: another core while one is free, else its own writer.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod support;

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::thread;

use env::files::{Access, File, FileOver, Files, FilesOver, SimDisk};
use parking_lot::Mutex;
use series::{Ack, Batch, Store, StoreOptions, Wal};
use support::{contents, options};

/// Names of the threads that wrote to the log.
type Names = Arc<Mutex<Vec<String>>>;

struct SeenFile(Arc<dyn File>, Names);

impl FileOver for SeenFile {
    fn under(&self) -> &dyn File {
        &*self.0
    }

    fn write_at(&self, from: &[u8], offset: u64) -> io::Result<usize> {
        self.1.lock().push(thread::current().name().unwrap_or_default().to_owned());
        self.0.write_at(from, offset)
    }
}

struct Seen(SimDisk, Names);

impl FilesOver for Seen {
    fn under(&self) -> &dyn Files {
        &self.0
    }

    fn open(&self, path: &Path, access: Access) -> io::Result<Arc<dyn File>> {
        let file = self.0.open(path, access)?;
        let is_log = path.starts_with("/series/log");
        Ok(if is_log { Arc::new(SeenFile(file, Arc::clone(&self.1))) } else { file })
    }
}

#[test]
fn a_writer_stores_its_batch_itself_where_as_many_work_as_there_are_cores() {
    let (disk, names) = (SimDisk::new(1), Names::default());
    let files = Arc::new(Seen(disk.clone(), Arc::clone(&names)));
    let options = StoreOptions { background: true, cores: 2, files, ..options(&disk, Wal::Always) };
    let (store, _) = Store::open(Path::new("/series"), options).unwrap();
    let row = store.row(b"load host=a").unwrap();
    let mut time_ns = 0;
    // Whether this thread stored what it wrote.
    let mut stores_itself = || {
        time_ns += 1;
        let mut batch = Batch::new();
        batch.push(row, time_ns, &[1.0]).unwrap();
        names.lock().clear();
        store.submit(batch, Ack::Flushed).unwrap().wait().unwrap();
        names.lock().iter().any(|name| Some(name.as_str()) == thread::current().name())
    };
    let (mut handed_over, mut stored) = (0, 0);
    for _ in 0..3 {
        let _one = store.working();
        handed_over += (0..100).filter(|_| !stores_itself()).count();
        let _another = store.working();
        // Not while the log is being flushed, or another is about to end.
        let before = stored;
        while !stores_itself() {
            stored += 1;
            assert!(stored < before + 100_000, "others store it all the time");
        }
        stored += 1;
    }
    assert_eq!(handed_over, 300);
    drop(names);
    let written = contents(&store).values().map(support::Samples::len).sum::<usize>();
    assert_eq!(written, handed_over + stored);
}
