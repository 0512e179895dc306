//! A store for the readers under test, and its contents as text.

use readers::{RespReader, RowCollector, RowRefusal};
use series::{Ack, Direction, END_OF_SERIES, Selector, Store, StoreOptions, TimeRange, Wal};

pub(crate) fn store() -> (tempfile::TempDir, Store) {
    let folder = tempfile::tempdir().unwrap();
    let options = StoreOptions { wal: Wal::Off, background: false, ..StoreOptions::default() };
    let (store, _) = Store::open(&folder.path().join("s"), options).unwrap();
    (folder, store)
}

/// Returns everything in the store as lines `name time value`, sorted.
pub(crate) fn contents(store: &Store) -> Vec<String> {
    let snapshot = store.snapshot();
    let mut found = Vec::new();
    for series in store.find(&Selector::default()) {
        if series.is_events() {
            for e in snapshot.events(&series, TimeRange::ALL, Direction::Forward).unwrap() {
                let text = String::from_utf8_lossy(&e.text).into_owned();
                found.push(format!("{} {} {text}", series.name(), e.time_ns));
            }
            continue;
        }
        let scan = snapshot.scan(&series, TimeRange::ALL, Direction::Forward).with_markers();
        for run in scan {
            let run = run.unwrap();
            for (time, value) in run.times.iter().zip(run.values.to_f64().iter()) {
                let is_marker = value.to_bits() == END_OF_SERIES;
                let value = Some(value.to_string()).filter(|_| !is_marker);
                let value = value.unwrap_or_else(|| "stale".into());
                found.push(format!("{} {time} {value}", series.name()));
            }
        }
    }
    found.sort();
    found
}

/// Runs a reader and stores its rows. Returns the contents of the store and the refusals.
pub(crate) fn after(read: impl FnOnce(&mut RowCollector<'_>)) -> (Vec<String>, Vec<RowRefusal>) {
    let (_folder, store) = store();
    let mut collector = RowCollector::new(&store);
    read(&mut collector);
    let taken = collector.finish();
    for batch in taken.batches {
        store.write(batch, Ack::Persisted).unwrap();
    }
    (contents(&store), taken.refusals)
}

pub(crate) fn resp(text: &[u8]) -> (Vec<String>, Vec<RowRefusal>) {
    after(|collector| {
        let mut reader = RespReader::default();
        let done = reader.read(text, collector);
        reader.end(&text[done..], collector);
    })
}
