//! Memory of a reader. The test runs alone in its process, because it measures peak memory.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use readers::RowCollector;
use readers::remote::RemoteReader;
use series::{Store, StoreOptions, Wal};

#[test]
fn remote_message_of_empty_series_allocates_little_memory() {
    // 8 MiB of empty series, which would take more than 200 MB as structs.
    let message = [0x0a, 0x00].repeat(4 << 20);
    let body = snap::raw::Encoder::new().compress_vec(&message).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let options = StoreOptions { wal: Wal::Off, background: false, ..StoreOptions::default() };
    let (store, _) = Store::open(&folder.path().join("s"), options).unwrap();
    let before = peak_bytes();
    let mut collector = RowCollector::new(&store);
    RemoteReader::default().read(&body, &mut collector).unwrap();
    let taken = collector.finish();
    assert_eq!((taken.batches.len(), taken.refusals.len()), (0, readers::REFUSALS_MAX));
    let grown = peak_bytes().saturating_sub(before);
    assert!(grown < 100 << 20, "{grown} bytes more");
}

/// Returns the peak memory of this process, in bytes.
fn peak_bytes() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|l| l.starts_with("VmHWM:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<usize>().unwrap() * 1024
}
