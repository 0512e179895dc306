//! A query reads only series that may have samples in its range.

use std::path::{Path, PathBuf};

use crate::common::options;
use env::files::{Files as _, SimDisk};
use series::{Ack, Batch, PARTITION_NS, Selector, Store, TimeRange, Wal};

fn write(store: &Store, host: &str, time_ns: i64) {
    let row = store.row(format!("load host={host}").as_bytes()).unwrap();
    let mut batch = Batch::new();
    batch.push(row, time_ns, &[1.0]).unwrap();
    store.write(batch, Ack::Persisted).unwrap();
}

fn partition(n: i64) -> TimeRange {
    TimeRange { from_ns: n * PARTITION_NS, to_ns: (n + 1) * PARTITION_NS }
}

fn hosts(store: &Store, range: TimeRange) -> Vec<String> {
    let found = store.find_in(&store.snapshot(), &Selector::metric("load"), range);
    found.iter().map(|series| series.tag("host").to_owned()).collect()
}

#[test]
fn find_in_returns_rows_of_the_partitions_and_the_head() {
    let disk = SimDisk::new(1);
    let (store, _) = Store::open(Path::new("/s"), options(&disk, Wal::Always)).unwrap();
    write(&store, "a", partition(1).from_ns);
    write(&store, "b", partition(2).from_ns);
    write(&store, "both", partition(1).from_ns);
    write(&store, "both", partition(2).from_ns);
    store.seal().unwrap();
    write(&store, "new", partition(5).from_ns);
    let cases = [
        (1, vec!["a", "both"]),
        (2, vec!["b", "both"]),
        (3, vec![]),
        // In the head.
        (5, vec!["new"]),
    ];
    for (n, expected) in cases {
        assert_eq!(hosts(&store, partition(n)), expected, "partition {n}");
    }
    assert_eq!(hosts(&store, TimeRange::ALL), ["a", "b", "both", "new"]);
    store.close().unwrap();
    let (store, _) = Store::open(Path::new("/s"), options(&disk, Wal::Always)).unwrap();
    assert_eq!(hosts(&store, partition(3)), Vec::<String>::new());
    assert_eq!(hosts(&store, partition(5)), ["new"]);
    store.close().unwrap();
    // A part whose top is damaged may have them all: reading them reports the error.
    let name = disk.list(Path::new("/s/parts")).unwrap().remove(0);
    let path = PathBuf::from("/s/parts").join(name);
    let top = disk.content(&path).unwrap().len() - 8;
    disk.flip(&path, top, 1);
    let (store, _) = Store::open(Path::new("/s"), options(&disk, Wal::Always)).unwrap();
    assert_eq!(hosts(&store, partition(1)), ["a", "b", "both", "new"]);
    assert_eq!(hosts(&store, partition(2)), ["b", "both"]);
}
