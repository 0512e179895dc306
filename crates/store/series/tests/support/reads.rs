//! A disk whose reads are counted and can be made to fail.

use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use env::files::{Access, File, Files, Lock, SimDisk};

#[derive(Default)]
struct State {
    count: AtomicU64,
    failing: Mutex<Option<String>>,
}

/// See the module. Clones are the same disk.
#[derive(Clone)]
pub struct Reads {
    disk: SimDisk,
    state: Arc<State>,
}

impl Reads {
    pub fn of(disk: &SimDisk) -> Self {
        Self { disk: disk.clone(), state: Arc::default() }
    }

    /// Reads so far.
    pub fn count(&self) -> u64 {
        self.state.count.load(Ordering::Relaxed)
    }

    /// From now on the operating system refuses reads of files whose names begin so; of none.
    pub fn fail(&self, failing: Option<&str>) {
        *self.state.failing.lock().unwrap() = failing.map(str::to_owned);
    }
}

struct Opened(Arc<dyn File>, Arc<State>, String);

impl File for Opened {
    fn read_at(&self, into: &mut [u8], offset: u64) -> io::Result<usize> {
        self.1.count.fetch_add(1, Ordering::Relaxed);
        if self.1.failing.lock().unwrap().as_ref().is_some_and(|name| self.2.starts_with(name)) {
            return Err(io::Error::other("too many open files"));
        }
        self.0.read_at(into, offset)
    }

    fn write_at(&self, from: &[u8], offset: u64) -> io::Result<usize> {
        self.0.write_at(from, offset)
    }

    fn persist(&self) -> io::Result<()> {
        self.0.persist()
    }

    fn size(&self) -> io::Result<u64> {
        self.0.size()
    }

    fn set_size(&self, bytes: u64) -> io::Result<()> {
        self.0.set_size(bytes)
    }

    fn allocate(&self, bytes: u64) -> io::Result<()> {
        self.0.allocate(bytes)
    }
}

impl Files for Reads {
    fn open(&self, path: &Path, access: Access) -> io::Result<Arc<dyn File>> {
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        Ok(Arc::new(Opened(self.disk.open(path, access)?, Arc::clone(&self.state), name)))
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        self.disk.list(dir)
    }

    fn create_dir(&self, dir: &Path) -> io::Result<()> {
        self.disk.create_dir(dir)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.disk.rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.disk.remove(path)
    }

    fn persist_dir(&self, dir: &Path) -> io::Result<()> {
        self.disk.persist_dir(dir)
    }

    fn lock(&self, path: &Path) -> io::Result<Option<Box<dyn Lock>>> {
        self.disk.lock(path)
    }
}
