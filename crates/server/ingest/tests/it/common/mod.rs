//! A store for the ports under test.

use series::{Store, StoreOptions, Wal};

pub(crate) fn store() -> (tempfile::TempDir, Store) {
    let folder = tempfile::tempdir().unwrap();
    let options = StoreOptions { wal: Wal::Off, background: false, ..StoreOptions::default() };
    let (store, _) = Store::open(&folder.path().join("s"), options).unwrap();
    (folder, store)
}
