//! Append, read, reopen and trim on a real folder, in every layout.

use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use env::files::{Access, Files as _, RealFiles};
use journal::{AppendError, Durability, IoPath, Journal, Layout, OpenError, Options, ReadError};

const LAYOUTS: [Layout; 3] = [Layout::Packed, Layout::Sparse, Layout::Ring];

fn small(layout: Layout) -> Options {
    Options {
        layout,
        segment_bytes: 256 << 10,
        ring_bytes: 64 << 10,
        fill_ahead_bytes: 16 << 10,
        ..Options::default()
    }
}

fn all(journal: &Journal) -> Vec<(u64, Vec<u8>)> {
    journal.read_from(0).unwrap().map(Result::unwrap).collect()
}

fn record(n: u64) -> Vec<u8> {
    let bytes = [3, 0, 17, 200, 4096, 70, 9000][n as usize % 7];
    n.to_le_bytes().iter().cycle().take(bytes).copied().collect()
}

fn open(dir: &Path, layout: Layout) -> Journal {
    Journal::open(dir, small(layout)).unwrap().0
}

#[test]
fn appended_records_are_read_before_and_after_reopening() {
    for layout in LAYOUTS {
        let dir = tempfile::tempdir().unwrap();
        let mut expected = Vec::new();
        for round in 0..3 {
            let journal = open(dir.path(), layout);
            assert_eq!(all(&journal), expected, "{layout:?} round {round}");
            for n in 0..150 {
                let outcome = journal.append(&record(n), Durability::Persist).unwrap();
                expected.push((outcome.position, record(n)));
                assert_eq!(outcome.position, expected.len() as u64);
                assert!(outcome.flushes >= 1 && outcome.bytes_written >= 4096);
            }
            assert_eq!(all(&journal), expected, "{layout:?} round {round}");
            assert_eq!(journal.persisted_position(), expected.len() as u64);
            journal.close().unwrap();
        }
        let (_, recovery) = Journal::open(dir.path(), small(layout)).unwrap();
        assert!(recovery.clean, "{layout:?} {recovery:?}");
        assert_eq!(recovery.cut, None);
        assert_eq!((recovery.first_position, recovery.last_position), (1, 450));
    }
}

#[test]
fn reopened_journal_may_use_another_layout() {
    let dir = tempfile::tempdir().unwrap();
    let mut expected = Vec::new();
    for round in 0..9 {
        let journal = open(dir.path(), LAYOUTS[round * 2 % 3]);
        for n in 0..40 {
            expected.push((
                journal.append(&record(n), Durability::Persist).unwrap().position,
                record(n),
            ));
        }
        assert_eq!(all(&journal), expected);
    }
}

#[test]
fn append_all_assigns_consecutive_positions() {
    for layout in LAYOUTS {
        let dir = tempfile::tempdir().unwrap();
        let journal = open(dir.path(), layout);
        let outcome = journal.append_all(&[b"a", b"", b"ccc"], Durability::Persist).unwrap();
        assert_eq!((outcome.first, outcome.position, outcome.group_records), (1, 3, 3));
        let empty: [&[u8]; 0] = [];
        assert!(matches!(journal.append_all(&empty, Durability::Persist), Err(AppendError::Empty)));
        let huge = vec![0; 300 << 10];
        let refused = journal.append(&huge, Durability::Persist);
        assert!(matches!(refused, Err(AppendError::TooLarge { .. })));
        let large = vec![7; 200 << 10];
        assert_eq!(journal.append(&large, Durability::Persist).unwrap().position, 4);
        assert_eq!(all(&journal)[3], (4, large));
    }
}

#[test]
fn concurrent_threads_share_groups_and_keep_all_records() {
    for layout in LAYOUTS {
        let dir = tempfile::tempdir().unwrap();
        let journal = open(dir.path(), layout);
        let threads: Vec<_> = (0..8u64)
            .map(|t| {
                let journal = journal.clone();
                thread::spawn(move || {
                    let append = |n: u64| {
                        let body = [t.to_le_bytes(), n.to_le_bytes()].concat();
                        (journal.append(&body, Durability::Persist).unwrap().position, body)
                    };
                    (0..100).map(append).collect::<Vec<_>>()
                })
            })
            .collect();
        let mut expected: Vec<_> = threads.into_iter().flat_map(|t| t.join().unwrap()).collect();
        expected.sort_unstable();
        assert_eq!(all(&journal), expected);
        assert!(journal.stats().groups <= 800);
    }
}

#[test]
fn concurrent_tasks_share_groups() {
    let dir = tempfile::tempdir().unwrap();
    let journal = open(dir.path(), Layout::Packed);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).build().unwrap();
    runtime.block_on(async {
        let mut tasks = Vec::new();
        for t in 0..64u64 {
            let journal = journal.clone();
            tasks.push(tokio::spawn(async move {
                for n in 0..10u64 {
                    let body = (t * 10 + n).to_le_bytes().to_vec();
                    journal.append_async(vec![body], Durability::Persist).await.unwrap();
                }
            }));
        }
        for task in tasks {
            task.await.unwrap();
        }
    });
    let mut bodies: Vec<_> = all(&journal).into_iter().map(|(_, body)| body).collect();
    bodies.sort_unstable_by_key(|b| u64::from_le_bytes(b[..].try_into().unwrap()));
    let expected: Vec<_> = (0..640u64).map(|n| n.to_le_bytes().to_vec()).collect();
    assert_eq!(bodies, expected);
    assert!(journal.stats().groups < 640);
}

#[test]
fn trimmed_segments_are_recycled_and_their_records_dropped() {
    for layout in LAYOUTS {
        let dir = tempfile::tempdir().unwrap();
        let journal = open(dir.path(), layout);
        for n in 0..400 {
            journal.append(&record(n), Durability::Persist).unwrap();
        }
        let outcome = journal.trim(390).unwrap();
        assert!(outcome.first_position > 1 && outcome.first_position <= 390, "{outcome:?}");
        assert!(matches!(journal.read_from(1), Err(ReadError::Trimmed { .. })));
        for n in 400..1200 {
            journal.append(&record(n), Durability::Persist).unwrap();
            journal.trim(n).unwrap();
        }
        assert!(journal.stats().segments_recycled > 0, "{layout:?} {:?}", journal.stats());
        let kept = all(&journal);
        assert_eq!(kept.last().unwrap(), &(1200, record(1199)));
        drop(journal);
        assert_eq!(all(&open(dir.path(), layout)), kept);
    }
}

#[test]
fn second_open_of_a_journal_is_rejected() {
    let dir = tempfile::tempdir().unwrap();
    let journal = open(dir.path(), Layout::Packed);
    assert!(matches!(Journal::open(dir.path(), Options::default()), Err(OpenError::Locked(_))));
    let clone = journal.clone();
    journal.close().unwrap();
    assert!(matches!(clone.append(b"x", Durability::Persist), Err(AppendError::Closed)));
    open(dir.path(), Layout::Packed);
}

#[test]
fn fdatasync_path_reads_back_appended_records() {
    let dir = tempfile::tempdir().unwrap();
    let options = Options { io: IoPath::Fdatasync, ..small(Layout::Packed) };
    let (journal, recovery) = Journal::open(dir.path(), options).unwrap();
    assert_eq!(recovery.io, IoPath::Fdatasync);
    for n in 0..100 {
        journal.append(&record(n), Durability::Persist).unwrap();
    }
    assert_eq!(all(&journal).len(), 100);
}

#[test]
fn flushed_records_become_readable_only_once_persisted() {
    for layout in LAYOUTS {
        let dir = tempfile::tempdir().unwrap();
        let journal = open(dir.path(), layout);
        for n in 0..10 {
            journal.append(&record(n), Durability::Flush).unwrap();
        }
        assert_eq!((journal.persisted_position(), all(&journal).len()), (0, 0));
        // The earlier of two deadlines is used, in either order.
        journal.append(b"late", Durability::Within(Duration::from_hours(1))).unwrap();
        journal.append(b"soon", Durability::Within(Duration::from_millis(5))).unwrap();
        let mut reader = journal.read_from(12).unwrap();
        let found = reader.next_within(Duration::from_mins(10)).unwrap().unwrap();
        assert_eq!(found, (12, b"soon".to_vec()));
        assert_eq!(all(&journal).len(), 12);
    }
}

#[test]
fn reader_returns_records_appended_after_it_was_created() {
    for layout in LAYOUTS {
        let dir = tempfile::tempdir().unwrap();
        let journal = Arc::new(open(dir.path(), layout));
        let writer = Arc::clone(&journal);
        let thread = thread::spawn(move || {
            for n in 0..500 {
                writer.append(&record(n), Durability::Persist).unwrap();
            }
        });
        let mut reader = journal.read_from(1).unwrap();
        for n in 0..500 {
            let next = reader.next_within(Duration::from_mins(10)).unwrap().unwrap();
            assert_eq!(next, (n + 1, record(n)), "{layout:?}");
        }
        thread.join().unwrap();
    }
}

#[test]
fn consumer_checkpoint_limits_trim_and_survives_reopen() {
    let dir = tempfile::tempdir().unwrap();
    let journal = open(dir.path(), Layout::Packed);
    let consumer = journal.consumer("shipper").unwrap();
    for n in 0..400 {
        journal.append(&record(n), Durability::Persist).unwrap();
    }
    assert_eq!(journal.trim(400).unwrap().first_position, 1);
    assert!(consumer.checkpoint(401).is_err());
    consumer.checkpoint(200).unwrap();
    assert!(journal.consumer("../x").is_err());
    let first = journal.trim(400).unwrap().first_position;
    assert!(first > 1 && first <= 201);
    drop((journal, consumer));
    let journal = open(dir.path(), Layout::Packed);
    let consumer = journal.consumer("shipper").unwrap();
    assert_eq!(consumer.position(), 200);
    assert_eq!(consumer.read().unwrap().next().unwrap().unwrap(), (201, record(200)));
    consumer.remove().unwrap();
    assert!(journal.trim(400).unwrap().first_position > 201);
}

#[test]
fn unused_ring_file_is_removed() {
    let dir = tempfile::tempdir().unwrap();
    let rings = || {
        let names = std::fs::read_dir(dir.path()).unwrap();
        let names = names.map(|n| n.unwrap().file_name().into_string().unwrap());
        names.filter(|n| n.starts_with("ring-")).collect::<Vec<_>>()
    };
    let mut expected = 0;
    for (layout, ring_bytes, left) in [
        (Layout::Ring, 16 << 10, "ring-4"),
        (Layout::Ring, 24 << 10, "ring-6"),
        (Layout::Sparse, 0, ""),
        (Layout::Ring, 16 << 10, "ring-4"),
        (Layout::Packed, 0, ""),
    ] {
        let options = Options { ring_bytes, ..small(layout) };
        let (journal, recovery) = Journal::open(dir.path(), options).unwrap();
        assert_eq!(recovery.last_position, expected);
        for n in 0..7 {
            journal.append(&record(n), Durability::Persist).unwrap();
        }
        expected += 7;
        // The journal is not closed: the groups that only the ring has are needed.
        drop(journal);
        assert_eq!(rings().join(" "), left);
    }
    assert_eq!(all(&open(dir.path(), Layout::Sparse)).len() as u64, expected);
}

#[test]
fn recovery_reports_the_io_path_and_its_reason() {
    let disk = env::files::SimDisk::new(1);
    let options = || Options { files: Arc::new(disk.clone()), ..small(Layout::Sparse) };
    let open = |options| Journal::open(Path::new("/journal"), options).unwrap();
    let (journal, recovery) = open(options());
    assert_eq!((recovery.io, journal.stats().io), (IoPath::Direct, IoPath::Direct));
    assert!(recovery.io_reason.contains("takes direct writes"));
    drop(journal);
    disk.compress();
    let (journal, recovery) = open(options());
    assert_eq!((recovery.io, journal.stats().io_reason), (IoPath::Fdatasync, recovery.io_reason));
    assert!(recovery.io_reason.contains("compress"));
    drop(journal);
    assert_eq!(open(Options { io: IoPath::Direct, ..options() }).1.io, IoPath::Direct);
    disk.refuse_direct();
    assert!(matches!(
        Journal::open(Path::new("/journal"), Options { io: IoPath::Direct, ..options() }),
        Err(OpenError::Io { .. })
    ));
}

#[test]
fn streamed_writes_are_not_preceded_by_zeros() {
    let zeros = |durability, layout| {
        let dir = tempfile::tempdir().unwrap();
        let options = Options { segment_bytes: 4 << 20, ..small(layout) };
        let (journal, _) = Journal::open(dir.path(), options.clone()).unwrap();
        let records: Vec<_> = (1..=250).map(|n: u64| (n, vec![n as u8; 4000])).collect();
        for (_, record) in &records {
            journal.append(record, durability).unwrap();
        }
        let zeros = journal.stats().zero_bytes;
        journal.close().unwrap();
        assert_eq!(all(&Journal::open(dir.path(), options).unwrap().0), records, "{layout:?}");
        zeros
    };
    let probe = tempfile::tempdir().unwrap();
    let probe = RealFiles.open(&probe.path().join("probe"), Access::CREATE).unwrap();
    let reserves = probe.allocate(4096).unwrap();
    for layout in [Layout::Packed, Layout::Sparse] {
        assert!(zeros(Durability::Persist, layout) >= 1_000_000, "{layout:?}");
        // If space cannot be reserved, writing zeros detects the full disk.
        assert!(!reserves || zeros(Durability::Flush, layout) <= 200_000, "{layout:?}");
    }
}

#[test]
fn small_groups_do_not_enable_streaming() {
    let dir = tempfile::tempdir().unwrap();
    let options = Options { segment_bytes: 4 << 20, ..small(Layout::Packed) };
    let (journal, _) = Journal::open(dir.path(), options).unwrap();
    // Each append rewrites a whole block. Between two flushes they fill less than is filled ahead.
    for i in 0..4000 {
        journal.append(&[7; 100], Durability::Flush).unwrap();
        if i % 100 == 99 {
            journal.persist().unwrap();
        }
    }
    assert!(journal.stats().zero_bytes >= 400_000, "{:?}", journal.stats());
}
