//! The bytes on disk match `docs/format/journal.md`. `HOLDFAST_BLESS=1` rewrites the golden files.
//! Any change of them is a change of the format.

use std::path::{Path, PathBuf};

use crate::common::{DIR, open, options};
use env::files::{Access, Files, SimDisk};
use journal::{Durability, Journal, Layout};

/// Writes every kind of frame: one record, several, an empty one, one that spans blocks, one with a
/// lag, and the last group of a closed journal.
fn write(disk: &SimDisk, layout: Layout) {
    let journal = open(disk, layout, "golden").0;
    journal.append(b"sixteen bytes...", Durability::Persist).unwrap();
    journal.append_all(&[b"two", b"records"], Durability::Persist).unwrap();
    journal.append(b"", Durability::Flush).unwrap();
    journal.append(b"after one that is not persisted", Durability::Persist).unwrap();
    journal.append(&[7; 5000], Durability::Persist).unwrap();
    journal.consumer("golden").unwrap().checkpoint(3).unwrap();
    journal.close().unwrap();
}

const FILES: [(Layout, &[&str]); 3] = [
    (Layout::Packed, &["segment-0000000000000001", "consumer-golden"]),
    (Layout::Sparse, &["segment-0000000000000001"]),
    (Layout::Ring, &["segment-0000000000000001", "ring-6"]),
];

fn golden(layout: Layout, name: &str) -> PathBuf {
    let name = format!("{layout:?}-{name}.bin").to_lowercase();
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name)
}

/// Removes the zeros at the end, which are not kept in the repository.
fn trimmed(mut bytes: Vec<u8>) -> Vec<u8> {
    bytes.truncate(bytes.iter().rposition(|b| *b != 0).map_or(0, |last| last + 1));
    bytes
}

#[test]
fn golden_journals_contain_the_expected_records() {
    for (layout, names) in FILES {
        if std::env::var_os("HOLDFAST_BLESS").is_some() {
            let disk = SimDisk::new(1);
            write(&disk, layout);
            for name in names {
                let bytes = trimmed(disk.content(&Path::new(DIR).join(name)).unwrap());
                std::fs::write(golden(layout, name), bytes).unwrap();
            }
        }
        let disk = SimDisk::new(2);
        for name in names {
            let bytes = std::fs::read(golden(layout, name)).unwrap();
            let file = disk.open(&Path::new(DIR).join(name), Access::CREATE).unwrap();
            let whole = if name.starts_with("consumer") { 24 } else { 4096 };
            file.set_size(bytes.len().next_multiple_of(whole) as u64).unwrap();
            file.write_all_at(&bytes, 0).unwrap();
        }
        let (journal, recovery) = Journal::open(Path::new(DIR), options(&disk, layout)).unwrap();
        assert!(recovery.clean && recovery.cut.is_none(), "{layout:?} {recovery:?}");
        let records: Vec<_> = journal.read_from(1).unwrap().map(|r| r.unwrap().1).collect();
        let expected: [&[u8]; 6] = [
            b"sixteen bytes...",
            b"two",
            b"records",
            b"",
            b"after one that is not persisted",
            &[7; 5000],
        ];
        assert_eq!(records, expected, "{layout:?}");
        if layout == Layout::Packed {
            assert_eq!(journal.consumer("golden").unwrap().position(), 3);
        }
    }
}

#[test]
fn first_frame_of_a_sparse_segment_matches_the_format_document() {
    let bytes = std::fs::read(golden(Layout::Sparse, "segment-0000000000000001")).unwrap();
    assert_eq!(&bytes[..11], b"hfjourna\x01\x00\x02");
    let journal = &bytes[16..24];
    assert_eq!(&bytes[24..32], 1u64.to_le_bytes());
    let frame = &bytes[4096..4096 + 22];
    assert_eq!(frame[4], 1, "the low byte of the sequence");
    assert_eq!(frame[5], 16 * 4 + 1, "sixteen bytes, a single record, no lag");
    assert_eq!(&frame[6..], b"sixteen bytes...");
    assert!(bytes[4096 + 22..8192].iter().all(|b| *b == 0));
    let mut seed = journal.to_vec();
    seed.extend_from_slice(&1u64.to_le_bytes());
    seed.push(0);
    seed.extend_from_slice(&4096u64.to_le_bytes());
    seed.extend_from_slice(&1u64.to_le_bytes());
    let checksum = crc32c::crc32c(&frame[4..]) ^ crc32c::crc32c(&seed);
    assert_eq!(&frame[..4], checksum.to_le_bytes());
}
