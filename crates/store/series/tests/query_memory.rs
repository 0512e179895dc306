//! Memory of queries and merges is bounded for any amount of data. The test is alone in its
//! process, so that all allocations belong to it.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    missing_docs,
    reason = "a test that cannot go on fails"
)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use series::{
    Ack, Batch, Direction, PARTITION_NS, Selector, Series, Snapshot, Store, StoreOptions,
    TimeRange, Wal,
};

/// Counts the memory of the system allocator.
struct Counted;

static HELD: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);
/// Runs one test at a time.
static TURN: Mutex<()> = Mutex::new(());

#[expect(unsafe_code, reason = "allocators are inherently unsafe")]
// SAFETY: every call is forwarded unchanged to the system allocator.
unsafe impl GlobalAlloc for Counted {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let held = HELD.fetch_add(layout.size(), Ordering::Relaxed) + layout.size();
        PEAK.fetch_max(held, Ordering::Relaxed);
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        HELD.fetch_sub(layout.size(), Ordering::Relaxed);
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static MEMORY: Counted = Counted;

/// Returns the peak of the memory allocated during `run`, in bytes, and the result of `run`.
fn peak<T>(what: &str, run: impl FnOnce() -> T) -> (usize, T) {
    let (before, began) = (HELD.load(Ordering::Relaxed), Instant::now());
    PEAK.store(before, Ordering::Relaxed);
    let done = run();
    let peak = PEAK.load(Ordering::Relaxed) - before;
    println!("{what}: {} KiB at most, {:?}", peak >> 10, began.elapsed());
    (peak, done)
}

fn open(dir: &Path) -> Store {
    let options = StoreOptions { wal: Wal::Off, background: false, ..StoreOptions::default() };
    Store::open(dir, options).unwrap().0
}

/// Returns the number of samples and their sum. Checks that they come in order.
fn scanned(snapshot: &Snapshot, series: &Series, way: Direction, rows: usize) -> (i64, f64) {
    let (mut count, mut sum, mut last) = (0, 0.0, None);
    for run in snapshot.scan(series, TimeRange::ALL, way).with_rows(rows) {
        let run = run.unwrap();
        let forward = way == Direction::Forward;
        let follows = |a: i64, b: i64| if forward { a < b } else { a > b };
        let times = || last.iter().chain(&run.times).copied();
        assert!(times().zip(times().skip(1)).all(|(a, b)| follows(a, b)), "not in order");
        count += run.times.len() as i64;
        sum += run.values.to_f64().iter().sum::<f64>();
        last = run.times.last().copied();
    }
    (count, sum)
}

/// Memory per sample of a window, in bytes: sorted and compressed samples, samples that are being
/// sorted, and spans of chunks.
const BYTES_PER_ROW: usize = 768;

/// Uses `HOLDFAST_SAMPLES` samples, in windows of the default size.
#[test]
fn query_of_unordered_samples_uses_bounded_memory() {
    let _turn = TURN.lock();
    let asked = std::env::var("HOLDFAST_SAMPLES").ok().and_then(|n| n.parse::<i64>().ok());
    let (samples, rows) = asked.map_or((400_000, 4096), |samples| (samples, 1 << 16));
    let folder = tempfile::tempdir().unwrap();
    let store = open(&folder.path().join("series"));
    // The samples cover three partitions, each time once: half of them in parts, half in the head.
    let apart = 3 * PARTITION_NS / samples;
    let row = store.row(b"load host=a").unwrap();
    let (mut batch, mut sum) = (Batch::new(), 0.0);
    for i in 0..samples {
        let at = i * 7_368_787 % samples;
        let value = (at % 1000) as f64;
        sum += value;
        batch.push(row, at * apart, &[value]).unwrap();
        if i % 10_000 == 9_999 || i + 1 == samples {
            store.write(std::mem::take(&mut batch), Ack::Flushed).unwrap();
        }
        if i == samples / 2 {
            store.seal().unwrap();
        }
    }
    let series = store.find(&Selector::metric("load")).remove(0);
    let snapshot = store.snapshot();
    for way in [Direction::Forward, Direction::Backward] {
        let what = format!("{samples} samples {way:?}");
        let (peak, found) = peak(&what, || scanned(&snapshot, &series, way, rows));
        assert_eq!(found, (samples, sum));
        assert!(peak <= rows * BYTES_PER_ROW, "{peak} bytes");
    }
    let (peak, all) = peak("their summary", || snapshot.summary(&series, TimeRange::ALL).unwrap());
    assert_eq!(all.map(|all| (all.count, all.sum)), Some((samples as u64, sum)));
    assert!(peak <= (1 << 16) * BYTES_PER_ROW, "{peak} bytes");
}

/// Number of metrics of the row, and number of its rows in the partition.
const WIDE: usize = 256;
const WIDE_ROWS: i64 = 20_000;

#[test]
fn merge_of_a_wide_row_uses_bounded_memory() {
    let _turn = TURN.lock();
    let folder = tempfile::tempdir().unwrap();
    let store = open(&folder.path().join("series"));
    let metrics: Vec<String> = (0..WIDE).map(|i| format!("m{i}")).collect();
    let row = store.row(format!("{} host=a", metrics.join("|")).as_bytes()).unwrap();
    for part in 0..2 {
        for from in (0..WIDE_ROWS).step_by(1000) {
            let mut batch = Batch::new();
            for i in from..from + 1000 {
                let values: Vec<f64> = (0..WIDE).map(|c| ((i + c as i64) % 100) as f64).collect();
                batch.push(row, (2 * i + part) * 100_000_000, &values).unwrap();
            }
            store.write(batch, Ack::Flushed).unwrap();
        }
        store.seal().unwrap();
    }
    let all = 2 * WIDE_ROWS as usize * WIDE * size_of::<f64>();
    let (peak, outcome) = peak("a merge", || store.merge().unwrap());
    assert_eq!((outcome.parts_before, outcome.parts_after), (2, 1), "{outcome:?}");
    assert!(peak <= all / 2, "{peak} bytes of {all}");
    let stats = store.stats();
    assert_eq!(stats.part_samples, 2 * WIDE_ROWS as u64 * WIDE as u64);
    let series = store.find(&Selector::metric("m7")).remove(0);
    let all = store.snapshot().summary(&series, TimeRange::ALL).unwrap().unwrap();
    let sum: i64 = (0..WIDE_ROWS).map(|i| (i + 7) % 100).sum();
    assert_eq!((all.count, all.sum), (2 * WIDE_ROWS as u64, 2.0 * sum as f64));
}

#[test]
fn roll_up_of_a_high_rate_row_uses_bounded_memory() {
    let _turn = TURN.lock();
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().join("series");
    let (samples, store) = (400_000, open(&dir));
    let row = store.row(b"load host=a").unwrap();
    for from in (0..samples).step_by(10_000) {
        let mut batch = Batch::new();
        for i in from..from + 10_000 {
            batch.push(row, i * (PARTITION_NS / samples), &[(i % 100) as f64]).unwrap();
        }
        store.write(batch, Ack::Flushed).unwrap();
    }
    store.close().unwrap();
    let beside =
        StoreOptions { rollups_beside: true, background: false, ..StoreOptions::default() };
    let (store, _) = Store::open(&dir, StoreOptions { wal: Wal::Off, ..beside }).unwrap();
    let (peak, outcome) = peak("a roll-up", || store.merge().unwrap());
    assert_eq!((outcome.parts_before, outcome.parts_after, store.stats().rollups), (0, 1, 1));
    let all = samples as usize * size_of::<(i64, f64)>();
    assert!(peak <= all / 2, "{peak} bytes of {all}");
    let series = store.find(&Selector::metric("load")).remove(0);
    let steps = store.snapshot().steps(&series, TimeRange::ALL, PARTITION_NS).unwrap();
    let sum: i64 = (0..samples).map(|i| i % 100).sum();
    let told: Vec<_> = steps.iter().map(|(_, all)| (all.count, all.sum)).collect();
    assert_eq!(told, [(samples as u64, sum as f64)]);
}

#[test]
fn names_are_listed_in_the_memory_of_a_page() {
    const NAMES: usize = 50_000;
    const PAGE_BYTES: usize = 256 << 10;
    let _turn = TURN.lock();
    let folder = tempfile::tempdir().unwrap();
    let store = open(&folder.path().join("series"));
    for host in 0..NAMES {
        store.row(format!("cpu.user dc=frankfurt host=web-{host}").as_bytes()).unwrap();
    }
    let all = [Selector::metric("cpu.user")];
    let (peak, count) = peak("names", || {
        let (mut after, mut count) = (String::new(), 0);
        loop {
            let page = store.names_after(&all, &after, PAGE_BYTES);
            let Some(last) = page.last() else { return count };
            after.clone_from(last);
            count += page.len();
        }
    });
    assert_eq!(count, NAMES);
    assert!(peak <= 3 * PAGE_BYTES, "{peak} bytes for a page of {PAGE_BYTES}");
}
