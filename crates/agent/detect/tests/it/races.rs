//! Files that change during the scan, scans that are cancelled, and stores that fail.

use std::fs;
use std::os::unix::fs::FileExt as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::common::{Bench, Folder, Memory, independent_walk, stored_items};
use detect::{Cancel, Progress, RootState, Rules, ScanBudget, ScanError, ScanOptions};
use env::clock::{Clock, ManualClock, SystemClock};
use model::traits::PortError;
use model::{
    Baseline, BaselineItem, ChangeBatch, CoverageKind, Observation, ObserveError, Sink, SinkOutcome,
};

const DAY: Duration = Duration::from_hours(24);

#[test]
fn file_written_during_hashing_is_unstable_and_reread_later() {
    let f = Folder::new();
    let path = f.write("log", vec![1u8; 1 << 20]);
    let stop = Arc::new(AtomicBool::new(false));
    let (begun, begins) = std::sync::mpsc::channel();
    let writer = {
        let (path, stop) = (path.clone(), Arc::clone(&stop));
        std::thread::spawn(move || {
            let file = fs::File::options().write(true).open(path).unwrap();
            while !stop.load(Ordering::Relaxed) {
                file.write_all_at(b"x", 0).unwrap();
                let _ = begun.send(());
            }
        })
    };
    begins.recv().unwrap();
    // Each read waits for its budget while the writer continues.
    let budget = ScanBudget { max_bytes_per_second: Some(2 << 20), background: true };
    let options = ScanOptions { budget, ..ScanOptions::default() };
    let b = Bench::with_options(Rules::of_paths([&f.path]), options, Arc::new(SystemClock::new()));
    drop(begins);
    let report = b.scan();
    stop.store(true, Ordering::Relaxed);
    writer.join().unwrap();
    assert_eq!(report.counts.errors.get("unstable"), Some(&1));
    let o = b.store.get(&path).unwrap();
    assert_eq!(o.error, Some(ObserveError::Unstable));
    assert!(o.hashes.is_empty(), "what was read is not trusted");
    b.scanner.set_budget(ScanBudget::UNLIMITED);
    b.scan();
    assert_eq!(stored_items(&b.store), independent_walk(&f.path));
}

/// A baseline that calls a function each time a directory is compared, which is after it was listed
/// and before its files are read.
struct Meanwhile<F>(Memory, F);

impl<F: FnMut(&[u8])> Baseline for Meanwhile<F> {
    fn directory(&mut self, at: &[u8], into: &mut Vec<BaselineItem>) -> Result<(), PortError> {
        (self.1)(at);
        self.0.directory(at, into)
    }

    fn directories_below(&mut self, at: &[u8]) -> Result<Vec<Vec<u8>>, PortError> {
        self.0.directories_below(at)
    }
}

fn scan_meanwhile(b: &Bench, act: impl FnMut(&[u8])) -> detect::ScanReport {
    let mut baseline = Meanwhile(b.store.clone(), act);
    let mut sink = b.store.clone();
    b.scanner.scan(&mut baseline, &mut sink, &Progress::new(), &Cancel::new()).unwrap()
}

#[test]
fn scan_tolerates_files_and_directories_that_vanish() {
    let f = Folder::new();
    f.write("dir/known", "1");
    f.write("dir/sub/x", "1");
    f.write("dir/stays", "1");
    let b = Bench::of(&f.path);
    b.scan();
    let new = f.write("dir/new", "2");
    fs::write(f.at("dir/known"), "22").unwrap();
    let (dir, known, sub) = (f.at("dir"), f.at("dir/known"), f.at("dir/sub"));
    let report = scan_meanwhile(&b, |at| {
        if at == dir.as_os_str().as_encoded_bytes() && new.exists() {
            fs::remove_file(&new).unwrap();
            fs::remove_file(&known).unwrap();
            fs::remove_dir_all(&sub).unwrap();
        }
    });
    assert!(report.counts.errors.is_empty(), "{report:?}");
    assert_eq!(b.store.reported_changes(), [("deleted", known)], "the new one was never observed");
    b.scan();
    assert_eq!(
        b.store.reported_changes(),
        [("deleted", f.at("dir/sub")), ("deleted", f.at("dir/sub/x"))]
    );
    assert_eq!(stored_items(&b.store), independent_walk(&f.path));
}

#[test]
fn file_swapped_before_open_is_left_to_the_next_scan() {
    let f = Folder::new();
    let outside = Folder::new();
    outside.write("secret", "do not read");
    f.write("one", "1");
    f.write("two", "1");
    f.write("three/x", "1");
    let b = Bench::of(&f.path);
    b.scan();
    fs::write(f.at("one"), "22").unwrap();
    fs::write(f.at("two"), "22").unwrap();
    let root = f.path.clone();
    let mut asked = 0;
    scan_meanwhile(&b, |at| {
        // Act on the first request for the root directory, which comes after it was listed.
        asked += u32::from(at == root.as_os_str().as_encoded_bytes());
        if at == root.as_os_str().as_encoded_bytes() && asked == 1 {
            fs::remove_file(root.join("one")).unwrap();
            std::os::unix::fs::symlink(outside.at("secret"), root.join("one")).unwrap();
            fs::remove_file(root.join("two")).unwrap();
            let fifo = rustix::fs::FileType::Fifo;
            let mode = rustix::fs::Mode::from_raw_mode(0o600);
            rustix::fs::mknodat(rustix::fs::CWD, root.join("two"), fifo, mode, 0).unwrap();
            fs::remove_dir_all(root.join("three")).unwrap();
            std::os::unix::fs::symlink(&outside.path, root.join("three")).unwrap();
        }
    });
    assert!(b.store.changes().is_empty());
    b.scan();
    let told = b.store.reported_changes();
    let expected = [
        ("deleted", f.at("three/x")),
        ("modified", f.at("one")),
        ("modified", f.at("three")),
        ("modified", f.at("two")),
    ];
    assert_eq!(told, expected);
    assert_eq!(stored_items(&b.store), independent_walk(&f.path));
}

#[test]
fn racy_file_is_rehashed_once_without_a_change() {
    let f = Folder::new();
    let path = f.write("a", "1");
    let clock = ManualClock::at(SystemClock::new().now_us());
    let b = Bench::with_clock(Rules::of_paths([&f.path]), Arc::new(clock.clone()));
    assert_eq!(b.scan().counts.hashed, 1);
    assert!(b.store.get(&path).unwrap().racy);
    clock.advance(Duration::from_mins(1));
    let report = b.scan();
    assert_eq!((report.counts.hashed, report.counts.changes()), (1, 0));
    assert!(!b.store.get(&path).unwrap().racy);
    let report = b.scan();
    assert_eq!((report.counts.hashed, report.counts.skipped), (0, 1));
}

#[test]
fn weekly_rehash_finds_tampering_that_stat_does_not_show() {
    let f = Folder::new();
    for i in 0..60 {
        f.write(&format!("f{i}"), "1");
    }
    let clock = ManualClock::at(SystemClock::new().now_us() + 60_000_000);
    let b = Bench::with_clock(Rules::of_paths([&f.path]), Arc::new(clock.clone()));
    b.scan();
    let mut reads = Vec::new();
    for _ in 0..7 {
        clock.advance(DAY);
        reads.push(b.scan().counts.hashed);
    }
    assert_eq!(reads.iter().sum::<u64>(), 60, "{reads:?}");
    assert!(reads.iter().all(|r| *r < 30), "spread over the days: {reads:?}");
    assert_eq!(b.scan().counts.changes(), 0);
    // Simulate content that was changed without a trace in stat.
    for o in b.store.0.lock().items.values_mut() {
        if let Some(hash) = &mut o.hashes.sha256 {
            hash[0] ^= 1;
        }
    }
    let found: u64 = (0..7)
        .map(|_| {
            clock.advance(DAY);
            b.scan().counts.modified
        })
        .sum();
    assert_eq!(found, 60);
}

/// A sink that cancels the scan when the first batch arrives.
struct Stopping(Memory, Cancel);

impl Sink for Stopping {
    fn apply(&mut self, batch: &mut ChangeBatch) -> Result<SinkOutcome, PortError> {
        self.1.cancel();
        self.0.apply(batch)
    }
}

#[test]
fn cancelled_first_scan_keeps_progress_and_resumes_as_baseline() {
    let f = Folder::new();
    for i in 0..2000 {
        f.write(&format!("d{}/f{i}", i % 200), "1");
    }
    let b = Bench::of(&f.path);
    let cancel = Cancel::new();
    let mut sink = Stopping(b.store.clone(), cancel.clone());
    let mut baseline = b.store.clone();
    let report = b.scanner.scan(&mut baseline, &mut sink, &Progress::new(), &cancel).unwrap();
    assert!(report.cancelled);
    assert_eq!(report.roots[0].state, RootState::Unfinished);
    assert!((50..2000).contains(&b.store.len()), "{}", b.store.len());
    assert!(b.store.get(&f.path).is_none(), "the root's own item comes last");
    let report = b.scan();
    assert_eq!(report.roots[0].state, RootState::Baseline);
    assert!(b.store.changes().is_empty());
    assert_eq!(stored_items(&b.store), independent_walk(&f.path));
}

#[test]
fn first_scan_resumes_after_store_failure_without_new_changes() {
    let f = Folder::new();
    for i in 0..400 {
        f.write(&format!("d{}/f{i}", i % 40), "1");
    }
    let b = Bench::of(&f.path);
    b.store.0.lock().fail_after = Some(4);
    let (mut baseline, mut sink) = (b.store.clone(), b.store.clone());
    let failed = b.scanner.scan(&mut baseline, &mut sink, &Progress::new(), &Cancel::new());
    assert!(matches!(&failed, Err(ScanError::Sink(e)) if e.0 == "no room"), "{failed:?}");
    assert_eq!(b.store.len(), 200, "four batches of fifty");
    b.store.0.lock().fail_after = None;
    fs::write(f.at("d0/f0"), "22").unwrap();
    let report = b.scan();
    assert_eq!(report.counts.created + report.counts.deleted, 0);
    let told = b.store.reported_changes();
    assert!(told.is_empty() || told == [("modified", f.at("d0/f0"))], "{told:?}");
    assert!(b.store.gaps().contains(&CoverageKind::Baseline));
    assert_eq!(stored_items(&b.store), independent_walk(&f.path));
}

#[test]
fn final_progress_equals_report_counts() {
    let f = Folder::new();
    f.write("d/a", "hello");
    let b = Bench::new(Rules::of_paths([f.at("d")]));
    let progress = Progress::new();
    let (mut baseline, mut sink) = (b.store.clone(), b.store.clone());
    let report = b.scanner.scan(&mut baseline, &mut sink, &progress, &Cancel::new()).unwrap();
    let counts = progress.counts();
    assert_eq!((counts.files, counts.directories, counts.hashed), (1, 1, 1));
    assert_eq!(counts.bytes_hashed, report.counts.bytes_hashed);
    assert!(report.seconds >= 0.0 && report.ended_at_us >= report.started_at_us);
}

#[test]
fn scan_budget_limits_read_rate() {
    let f = Folder::new();
    f.write("a", vec![1u8; 1 << 20]);
    let budget = ScanBudget { max_bytes_per_second: Some(2 << 20), background: false };
    let options = ScanOptions { budget, ..ScanOptions::default() };
    let b = Bench::with_options(Rules::of_paths([&f.path]), options, Arc::new(SystemClock::new()));
    let report = b.scan();
    // 1 MiB at 2 MiB/s, minus the burst of a quarter second.
    assert!(report.seconds >= 0.24, "{}", report.seconds);
    b.scanner.set_budget(ScanBudget::UNLIMITED);
    for o in b.store.0.lock().items.values_mut() {
        *o = Observation { verified_at_s: 1, ..o.clone() };
    }
    let report = b.scan();
    assert_eq!(report.counts.hashed, 1);
}
