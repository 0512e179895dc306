//! A disk whose reads are counted and can be made to fail.

use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use env::files::{Access, File, FileOver, Files, FilesOver, SimDisk};

#[derive(Default)]
struct State {
    count: AtomicU64,
    failing: Mutex<Option<String>>,
}

/// See the module. Clones are the same disk.
#[derive(Clone)]
pub(crate) struct Reads {
    disk: SimDisk,
    state: Arc<State>,
}

impl Reads {
    pub(crate) fn of(disk: &SimDisk) -> Self {
        Self { disk: disk.clone(), state: Arc::default() }
    }

    /// Reads so far.
    pub(crate) fn count(&self) -> u64 {
        self.state.count.load(Ordering::Relaxed)
    }

    /// Lets reads of files whose names begin with `failing` fail; `None` ends that.
    pub(crate) fn fail(&self, failing: Option<&str>) {
        *self.state.failing.lock().unwrap() = failing.map(str::to_owned);
    }
}

struct Opened(Arc<dyn File>, Arc<State>, String);

impl FileOver for Opened {
    fn under(&self) -> &dyn File {
        &*self.0
    }

    fn read_at(&self, into: &mut [u8], offset: u64) -> io::Result<usize> {
        self.1.count.fetch_add(1, Ordering::Relaxed);
        if self.1.failing.lock().unwrap().as_ref().is_some_and(|name| self.2.starts_with(name)) {
            return Err(io::Error::other("too many open files"));
        }
        self.0.read_at(into, offset)
    }
}

impl FilesOver for Reads {
    fn under(&self) -> &dyn Files {
        &self.disk
    }

    fn open(&self, path: &Path, access: Access) -> io::Result<Arc<dyn File>> {
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        Ok(Arc::new(Opened(self.disk.open(path, access)?, Arc::clone(&self.state), name)))
    }
}
