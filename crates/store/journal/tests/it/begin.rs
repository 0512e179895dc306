//! A journal that begins at a position other than 1.

use std::path::Path;
use std::sync::Arc;

use env::files::{Files, SimDisk};
use journal::{Durability, Journal, Layout, Options, begin_at, begin_at_with};

fn options(layout: Layout) -> Options {
    Options { layout, segment_bytes: 64 << 10, ring_bytes: 24 << 10, ..Options::default() }
}

#[test]
fn journal_continues_from_its_begin_position_in_every_layout() {
    for layout in [Layout::Packed, Layout::Sparse, Layout::Ring] {
        let folder = tempfile::tempdir().unwrap();
        let dir = folder.path().join("journal");
        begin_at(&dir, 5_001).unwrap();
        for round in 0..3 {
            let (journal, recovery) = Journal::open(&dir, options(layout)).unwrap();
            assert_eq!(journal.persisted_position(), 5_000 + 2 * round, "{layout:?}");
            assert_eq!(recovery.cut, None);
            let outcome = journal.append_all(&[b"a", b"b"], Durability::Persist).unwrap();
            assert_eq!(outcome.first, 5_001 + 2 * round);
            assert!(journal.read_from(5_000).is_err(), "nothing is below the beginning");
            let read: Vec<u64> =
                journal.read_from(0).unwrap().map(|record| record.unwrap().0).collect();
            assert_eq!(read, (5_001..=outcome.position).collect::<Vec<_>>());
            journal.close().unwrap();
        }
        assert!(journal::verify(&dir).unwrap().is_sound());
    }
}

#[test]
fn begin_position_survives_a_power_cut() {
    for seed in 0..64 {
        let disk = SimDisk::new(seed);
        let files: Arc<dyn Files> = Arc::new(disk.clone());
        let dir = Path::new("/journal");
        begin_at_with(&files, dir, 42).unwrap();
        let files: Arc<dyn Files> = Arc::new(disk.crash(seed));
        let options = Options { background: false, files, ..options(Layout::Packed) };
        let (journal, _) = Journal::open(dir, options).unwrap();
        assert_eq!(journal.append(b"x", Durability::Persist).unwrap().position, 42);
    }
}

#[test]
fn begin_at_rejects_position_zero_and_an_existing_journal() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().join("journal");
    assert!(begin_at(&dir, 0).is_err());
    begin_at(&dir, 7).unwrap();
    let error = begin_at(&dir, 7).unwrap_err();
    assert!(format!("{error}").contains("cannot begin a journal"), "{error}");
}
