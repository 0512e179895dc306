//! Damage below the durable horizon is reported, never cut. A torn tail is cut, never reported as
//! damage.

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::common::{DIR, Noise, open, options};
use env::files::{Access, Failure, Fault, Files, SimDisk};
use journal::{
    AppendError, Durability, Journal, Layout, OpenError, ReadError, RepairReport, dump_with,
    repair_with, stat_with, verify_with,
};

const LAYOUTS: [Layout; 3] = [Layout::Packed, Layout::Sparse, Layout::Ring];

fn dir() -> &'static Path {
    Path::new(DIR)
}

fn record(n: u64) -> Vec<u8> {
    let bytes = [16, 40, 900, 5000, 3][n as usize % 5];
    (0..bytes).map(|i| (n * 31 + i * 7 + 1) as u8).collect()
}

fn filled_journal(disk: &SimDisk, layout: Layout, count: u64) -> Journal {
    let journal = open(disk, layout, "fill").0;
    for n in 0..count {
        journal.append(&record(n), Durability::Persist).unwrap();
    }
    journal
}

fn all(journal: &Journal) -> Vec<(u64, Vec<u8>)> {
    journal.read_from(0).unwrap().map(Result::unwrap).collect()
}

fn files(disk: &SimDisk, prefix: &str) -> Vec<PathBuf> {
    let names = disk.list(dir()).unwrap();
    names.iter().filter(|n| n.starts_with(prefix)).map(|n| dir().join(n)).collect()
}

/// Opens after a bit flip. Returns the complete journal, or the error.
fn reopened(disk: &SimDisk, layout: Layout) -> Result<Vec<(u64, Vec<u8>)>, OpenError> {
    Journal::open(dir(), options(disk, layout)).map(|(journal, _)| all(&journal))
}

#[test]
fn any_flipped_bit_of_a_closed_journal_is_reported_or_harmless() {
    let mut noise = Noise(7);
    for layout in LAYOUTS {
        let disk = SimDisk::new(1);
        let journal = filled_journal(&disk, layout, 60);
        let expected = all(&journal);
        journal.close().unwrap();
        let mut reported = 0;
        let paths = [files(&disk, "segment-"), files(&disk, "ring-")].concat();
        for round in 0..1500 {
            let path = &paths[noise.below(paths.len() as u64) as usize];
            let byte = noise.below(disk.content(path).unwrap().len() as u64) as usize;
            let bit = noise.below(8) as u8;
            let flipped = disk.kill();
            assert!(flipped.flip(path, byte, bit));
            match reopened(&flipped, layout) {
                Ok(found) => assert!(found == expected, "{layout:?} {round}: {path:?} byte={byte}"),
                Err(OpenError::Corrupt(_) | OpenError::NewerVersion { .. }) => {
                    reported += 1;
                }
                Err(e) => panic!("{layout:?} {path:?} byte={byte}: {e}"),
            }
        }
        assert!(reported > 100, "{layout:?}: {reported}");
    }
}

#[test]
fn archive_damage_with_tiny_records_is_reported_or_harmless() {
    let disk = SimDisk::new(1);
    let sizes = |disk: &SimDisk| journal::Options {
        segment_bytes: 256 << 10,
        ring_bytes: 128 << 10,
        ..options(disk, Layout::Ring)
    };
    let (journal, _) = Journal::open(dir(), sizes(&disk)).unwrap();
    for n in 0..700u64 {
        journal.append(&n.to_le_bytes(), Durability::Persist).unwrap();
    }
    let expected = all(&journal);
    let path = files(&disk, "segment-").remove(0);
    let killed = disk.kill();
    let end = killed.content(&path).unwrap().iter().rposition(|b| *b != 0).unwrap();
    let mut reported = 0;
    for byte in (4096..end).step_by(3) {
        let flipped = killed.kill();
        flipped.flip(&path, byte, byte as u8);
        match Journal::open(dir(), sizes(&flipped)) {
            Ok((journal, _)) => assert!(all(&journal) == expected, "byte {byte} of {end}"),
            Err(OpenError::Corrupt(_)) => reported += 1,
            Err(e) => panic!("byte {byte}: {e}"),
        }
    }
    assert!(reported > 100, "{reported}");
}

#[test]
fn flipped_bits_are_reported_except_in_the_last_packed_group() {
    let disk = SimDisk::new(1);
    let journal = filled_journal(&disk, Layout::Packed, 12);
    let path = files(&disk, "segment-").remove(0);
    let killed = disk.kill();
    drop(journal);
    let content = killed.content(&path).unwrap();
    let end = content.iter().rposition(|b| *b != 0).unwrap() + 1;
    let last_frame = end - record(11).len() - 8;
    let mut noise = Noise(3);
    for byte in 0..last_frame {
        let flipped = killed.kill();
        flipped.flip(&path, byte, noise.below(8) as u8);
        let found = reopened(&flipped, Layout::Packed);
        assert!(
            matches!(found, Err(OpenError::Corrupt(_) | OpenError::NewerVersion { .. })),
            "byte {byte} of {last_frame}: {found:?}"
        );
    }
    for byte in last_frame..end {
        let flipped = killed.kill();
        flipped.flip(&path, byte, noise.below(8) as u8);
        assert_eq!(reopened(&flipped, Layout::Packed).unwrap().len(), 11, "byte {byte}");
    }
}

#[test]
fn damage_names_file_block_and_position_and_a_repair_cuts_there() {
    for layout in LAYOUTS {
        let disk = SimDisk::new(1);
        let journal = filled_journal(&disk, layout, 100);
        journal.consumer("far").unwrap().checkpoint(99).unwrap();
        journal.close().unwrap();
        let paths = files(&disk, "segment-");
        assert!(paths.len() > 2, "{layout:?}");
        disk.flip(&paths[1], 4100, 3);
        let Err(OpenError::Corrupt(damage)) = reopened(&disk, layout) else { panic!("not seen") };
        assert_eq!(damage.file, paths[1]);
        assert_eq!(damage.block, 1);
        let report = verify_with(&disk, dir()).unwrap();
        assert_eq!(report.damage.as_ref(), Some(&damage));
        assert_eq!(report.last_position, damage.position - 1);
        assert!(!report.is_sound());
        let known = 100 - damage.position;
        assert!(damage.records_lost_at_least > 0 && damage.records_lost_at_least <= known + 1);

        // The header of the next segment cannot be read either, so nothing after the damage can be
        // placed.
        disk.flip(&paths[2], 50, 3);
        let repaired = repaired(&disk, 99);
        assert_eq!(repaired.damage.map(|found| found.position), Some(damage.position));
        assert!(repaired.cut && repaired.lost.is_empty());
        assert!(repaired.cut_records_at_least >= 99 - repaired.last_position);
        assert_eq!(repaired.consumers_lowered, [("far".to_owned(), 99)]);
        assert!(repaired.set_aside.len() >= 2);
        let after = disk.crash(5);
        let found = reopened(&after, layout).unwrap();
        let expected: Vec<_> = (1..damage.position).map(|p| (p, record(p - 1))).collect();
        assert_eq!(found, expected, "{layout:?}");
        let journal = open(&after, layout, "repaired").0;
        let next = journal.append(b"next", Durability::Persist).unwrap();
        assert_eq!(next.position, damage.position);
    }
}

fn repaired(disk: &SimDisk, seen: u64) -> RepairReport {
    repair_with(&(Arc::new(disk.clone()) as Arc<dyn Files>), dir(), seen).unwrap()
}

/// Repairs a journal whose records were `expected` and returns the report. Asserts that the journal is
/// sound, that each record is at its position or reported as lost, and that lost ones are placeholders.
fn expect_repair(disk: &SimDisk, layout: Layout, expected: &[Vec<u8>]) -> RepairReport {
    let report = repaired(disk, expected.len() as u64);
    let after = disk.crash(9);
    let sound = verify_with(&after, dir()).unwrap();
    assert!(sound.is_sound(), "{report:?} {sound:?}");
    let found = reopened(&after, layout).unwrap();
    assert_eq!(found.len() as u64, report.last_position);
    for ((position, bytes), expected) in found.iter().zip(expected) {
        let lost = report.lost.iter().any(|range| range.contains(position));
        let zeros = bytes.iter().all(|byte| *byte == 0);
        assert!(if lost { zeros } else { bytes == expected }, "{position}: {report:?}");
    }
    let journal = open(&after, layout, "repaired").0;
    let next = journal.append(b"next", Durability::Persist).unwrap();
    assert_eq!(next.position, report.last_position + 1);
    report
}

#[test]
fn repair_keeps_intact_records_after_damage_at_their_positions() {
    let mut noise = Noise(11);
    for layout in [Layout::Packed, Layout::Sparse] {
        let disk = SimDisk::new(1);
        let journal = open(&disk, layout, "fill").0;
        let mut expected = Vec::new();
        while expected.len() < 120 {
            let first = expected.len() as u64;
            let group: Vec<_> = (first..=first + noise.below(4)).map(record).collect();
            let records: Vec<&[u8]> = group.iter().map(Vec::as_slice).collect();
            journal.append_all(&records, Durability::Persist).unwrap();
            expected.extend(group);
        }
        journal.close().unwrap();
        let paths = files(&disk, "segment-");
        let (mut filled, mut cut) = (0, 0);
        for round in 0..400 {
            let damaged = disk.kill();
            for _ in 0..=noise.below(3) {
                let path = &paths[noise.below(paths.len() as u64) as usize];
                let length = damaged.content(path).unwrap().len() as u64;
                let at = 4096 + noise.below(length - 4096);
                let bytes = vec![0xa5; [1, 8, 100, 4096][noise.below(4) as usize]];
                let bytes = &bytes[..bytes.len().min((length - at) as usize)];
                damaged.open(path, Access::WRITE).unwrap().write_all_at(bytes, at).unwrap();
            }
            let report = expect_repair(&damaged, layout, &expected);
            assert!(report.cut || report.last_position == expected.len() as u64, "{round}");
            filled += u64::from(!report.lost.is_empty());
            cut += u64::from(report.cut);
        }
        println!("{layout:?}: {filled} filled, {cut} cut");
        assert!(filled > 100 && cut < filled, "{layout:?}: {filled} filled, {cut} cut");
    }
}

#[test]
fn repair_interrupted_by_a_power_cut_is_repeated() {
    for layout in [Layout::Packed, Layout::Sparse] {
        let disk = SimDisk::new(1);
        filled_journal(&disk, layout, 300).close().unwrap();
        let paths = files(&disk, "segment-");
        disk.flip(&paths[1], 4100, 3);
        disk.flip(&paths[3], 50, 3);
        let lost = verify_with(&disk, dir()).unwrap().last_position + 1;
        for call in 1.. {
            let cut = disk.kill();
            cut.fail(&[Fault { call: cut.calls() + call, failure: Failure::PowerCut }]);
            let repaired = repair_with(&(Arc::new(cut.clone()) as Arc<dyn Files>), dir(), 300);
            if let Ok(report) = repaired {
                assert_eq!((report.lost, report.cut), (vec![lost..=lost], false), "{layout:?}");
                assert!(call > 10, "{layout:?}: {call}");
                break;
            }
            let after = cut.crash(call);
            repair_with(&(Arc::new(after.clone()) as Arc<dyn Files>), dir(), 300).unwrap();
            let found = reopened(&after, layout).unwrap();
            let wrong: Vec<_> = found.iter().filter(|(p, bytes)| *bytes != record(p - 1)).collect();
            assert_eq!((found.len(), wrong.len()), (300, 1), "{layout:?}: call {call}");
            assert_eq!(wrong[0].0, lost);
        }
    }
}

#[test]
fn segments_before_a_damaged_header_are_kept() {
    for layout in [Layout::Packed, Layout::Sparse] {
        let disk = SimDisk::new(1);
        filled_journal(&disk, layout, 300).close().unwrap();
        let paths = files(&disk, "segment-");
        assert!(paths.len() > 3, "{layout:?}");
        let first = stat_with(&disk, dir()).unwrap().segments[3].3;
        disk.flip(&paths[3], 50, 3);
        let report = verify_with(&disk, dir()).unwrap();
        assert_eq!(report.last_position, first - 1, "{layout:?}");
        assert_eq!(report.damage.unwrap().position, first, "{layout:?}");
        // Nothing is lost with a header: its values follow from the segment before.
        let expected: Vec<_> = (0..300).map(record).collect();
        let report = expect_repair(&disk, layout, &expected);
        assert_eq!((report.lost, report.cut, report.last_position), (vec![], false, 300));
    }
}

#[test]
fn missing_or_swapped_segment_is_reported() {
    for layout in LAYOUTS {
        let disk = SimDisk::new(1);
        filled_journal(&disk, layout, 100).close().unwrap();
        let paths = files(&disk, "segment-");
        let gone = disk.kill();
        gone.remove(&paths[1]).unwrap();
        assert!(matches!(reopened(&gone, layout), Err(OpenError::Corrupt(_))));
        let swapped = disk.kill();
        swapped.rename(&paths[0], &paths[1]).unwrap();
        assert!(matches!(reopened(&swapped, layout), Err(OpenError::Corrupt(_))));
        let last = disk.kill();
        last.remove(paths.last().unwrap()).unwrap();
        let expected = options(&last, layout);
        let expected = journal::Options { position_expected: 100, ..expected };
        let refused = Journal::open(dir(), expected).map(|_| ());
        assert!(matches!(refused, Err(OpenError::EndsTooEarly { .. })), "{refused:?}");
    }
}

#[test]
fn journal_ending_below_a_consumer_checkpoint_is_rejected() {
    let disk = SimDisk::new(1);
    let journal = filled_journal(&disk, Layout::Packed, 12);
    journal.consumer("reader").unwrap().checkpoint(12).unwrap();
    let path = files(&disk, "segment-").remove(0);
    let killed = disk.kill();
    let end = killed.content(&path).unwrap().iter().rposition(|b| *b != 0).unwrap();
    killed.flip(&path, end, 0);
    let Err(OpenError::EndsTooEarly { end, expected, by, .. }) = reopened(&killed, Layout::Packed)
    else {
        panic!("the last record is missing and nobody says so")
    };
    assert_eq!((end, expected, by.as_str()), (11, 12, "consumer reader"));
}

#[test]
fn segment_of_a_newer_version_is_rejected_with_its_path() {
    let disk = SimDisk::new(1);
    filled_journal(&disk, Layout::Packed, 3).close().unwrap();
    let path = files(&disk, "segment-").remove(0);
    disk.open(&path, Access::WRITE).unwrap().write_all_at(&[2, 0], 8).unwrap();
    let refused = reopened(&disk, Layout::Packed).map(|_| ()).unwrap_err().to_string();
    assert!(refused.contains("version 2 is newer than 1"), "{refused}");
    assert!(verify_with(&disk, dir()).is_err());
}

#[test]
fn reader_reports_damage_after_open() {
    for layout in [Layout::Packed, Layout::Sparse] {
        let disk = SimDisk::new(1);
        let journal = filled_journal(&disk, layout, 20);
        let path = files(&disk, "segment-").remove(0);
        disk.flip(&path, 4096 + 15, 0);
        let mut reader = journal.read_from(1).unwrap();
        let found = reader.next().unwrap();
        assert!(matches!(found, Err(ReadError::Corrupt(_))), "{layout:?} {found:?}");
    }
}

#[test]
fn verify_stat_and_dump_work_on_an_open_journal() {
    for layout in LAYOUTS {
        let disk = SimDisk::new(1);
        let journal = filled_journal(&disk, layout, 80);
        let report = verify_with(&disk, dir()).unwrap();
        assert!(report.is_sound() && !report.closed, "{report:?}");
        assert_eq!((report.first_position, report.last_position, report.groups), (1, 80, 80));
        let stat = stat_with(&disk, dir()).unwrap();
        assert_eq!(stat.segments.len(), report.segments.len());
        let mut shown = Vec::new();
        dump_with(&disk, dir(), 5, |group| {
            for (i, record) in group.records.into_iter().enumerate() {
                shown.push((group.first_position + i as u64, record));
            }
            if shown.len() == 70 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        })
        .unwrap();
        assert_eq!(shown, all(&journal)[4..74]);
    }
}

#[test]
fn full_disk_rejects_appends_until_a_trim() {
    for layout in LAYOUTS {
        let disk = SimDisk::new(1);
        disk.set_capacity(Some(300 << 10));
        let journal = open(&disk, layout, "full").0;
        let mut last = 0;
        let refused = loop {
            match journal.append(&record(last), Durability::Persist) {
                Ok(outcome) => last = outcome.position,
                Err(e) => break e,
            }
        };
        assert!(matches!(refused, AppendError::Full(_)), "{refused}");
        assert_eq!(journal.stats().poisoned, None);
        assert_eq!(all(&journal).len() as u64, last);
        journal.trim(last).unwrap();
        assert_eq!(journal.append(&record(last), Durability::Persist).unwrap().position, last + 1);
        drop(journal);
        let expected = all(&open(&disk, layout, "full again").0);
        assert_eq!(expected.last().unwrap(), &(last + 1, record(last)));
    }
}

#[test]
fn full_disk_allows_open_read_and_trim() {
    let disk = SimDisk::new(1);
    filled_journal(&disk, Layout::Packed, 100).close().unwrap();
    disk.set_capacity(Some(0));
    let journal = open(&disk, Layout::Packed, "full").0;
    assert_eq!(all(&journal).len(), 100);
    let mut appends = (0..1000).map(|n| journal.append(&record(n), Durability::Persist));
    assert!(appends.any(|outcome| matches!(outcome, Err(AppendError::Full(_)))));
    assert!(journal.trim(100).unwrap().first_position > 1);
}

#[test]
fn refused_direct_io_falls_back_unless_explicitly_requested() {
    let disk = SimDisk::new(1);
    disk.refuse_direct();
    let (journal, recovery) = open(&disk, Layout::Packed, "refused");
    assert_eq!(recovery.io, journal::IoPath::Fdatasync);
    journal.append(b"x", Durability::Persist).unwrap();
    let wanted = journal::Options { io: journal::IoPath::Direct, ..options(&disk, Layout::Packed) };
    drop(journal);
    assert!(matches!(Journal::open(dir(), wanted), Err(OpenError::Io { .. })));
}
