//! A store that is opened read-only is not changed, and may be on a read-only disk.

use std::io;
use std::path::Path;
use std::sync::Arc;

use crate::common::{contents, open, options};
use env::files::{Access, File, FileOver, Files, FilesOver, SimDisk};
use series::{Ack, Batch, Selector, SeriesOpenError, Store, StoreOptions, Wal, WriteError};

const NAME: &[u8] = b"cpu host=a";

/// A disk that rejects writes.
struct ReadOnly(SimDisk);

struct ReadOnlyFile(Arc<dyn File>);

fn refused<T>() -> io::Result<T> {
    Err(io::ErrorKind::ReadOnlyFilesystem.into())
}

impl FileOver for ReadOnlyFile {
    fn under(&self) -> &dyn File {
        &*self.0
    }

    fn write_at(&self, _from: &[u8], _offset: u64) -> io::Result<usize> {
        refused()
    }
}

impl FilesOver for ReadOnly {
    fn under(&self) -> &dyn Files {
        &self.0
    }

    fn open(&self, path: &Path, access: Access) -> io::Result<Arc<dyn File>> {
        if access != Access::READ {
            return refused();
        }
        Ok(Arc::new(ReadOnlyFile(self.0.open(path, access)?)))
    }

    fn rename(&self, _from: &Path, _to: &Path) -> io::Result<()> {
        refused()
    }
}

fn read_only(disk: &SimDisk) -> StoreOptions {
    StoreOptions { files: Arc::new(ReadOnly(disk.clone())), ..options(disk, Wal::Always) }
}

fn write(store: &Store, from: i64) -> Result<(), WriteError> {
    let row = store.row(NAME).unwrap();
    let mut batch = Batch::new();
    (from..from + 100).for_each(|t| batch.push(row, t, &[t as f64]).unwrap());
    store.write(batch, Ack::Persisted).map(|_| ())
}

#[test]
fn closed_store_can_be_read_on_a_read_only_disk() {
    for wal in [Wal::Always, Wal::Off] {
        let disk = SimDisk::new(1);
        let (store, _) = open(&disk, wal);
        write(&store, 0).unwrap();
        store.delete(&Selector::metric("none"), series::TimeRange::ALL).unwrap();
        store.seal().unwrap();
        write(&store, 50).unwrap();
        let expected = contents(&store);
        store.close().unwrap();
        let looked = Store::open_read_only(Path::new("/series"), read_only(&disk)).unwrap();
        assert_eq!(contents(&looked), expected);
        assert!(matches!(
            Store::open_read_only(Path::new("/series"), read_only(&disk)),
            Err(SeriesOpenError::Locked(_))
        ));
        let row = looked.row(NAME).unwrap();
        let mut batch = Batch::new();
        batch.push(row, 1, &[1.0]).unwrap();
        assert!(matches!(looked.write(batch, Ack::Persisted), Err(WriteError::Closed)));
        looked.close().unwrap();
    }
}

#[test]
fn read_only_open_rejects_a_store_that_was_not_closed() {
    let disk = SimDisk::new(1);
    let (store, _) = open(&disk, Wal::Always);
    write(&store, 0).unwrap();
    let looked = Store::open_read_only(Path::new("/series"), read_only(&disk.kill()));
    assert!(matches!(looked.err(), Some(SeriesOpenError::NotClosed(_))));
}
