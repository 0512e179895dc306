//! Golden bytes of each kernel record, and bytes that are no notification.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::missing_panics_doc,
    missing_docs,
    reason = "a test that cannot go on fails"
)]

use dirty::decode::{DecodeError, ITSELF, decode};

/// Returns bytes written in hexadecimal, ignoring white space.
fn bytes(hex: &str) -> Vec<u8> {
    let digits: Vec<u8> = hex.bytes().filter(u8::is_ascii_hexdigit).collect();
    let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
    digits.chunks(2).map(byte).collect()
}

/// A directory's handle and an entry's name.
type Place = (Vec<u8>, Vec<u8>);

/// Returns mask, process, entries and object of the only notification.
fn one(hex: &str) -> (u64, u32, Vec<Place>, Option<Vec<u8>>) {
    let buffer = bytes(hex);
    let found: Vec<_> = decode(&buffer).collect::<Result<_, _>>().unwrap();
    let [found] = found.as_slice() else { panic!("{found:?}") };
    let entries = [found.entry, found.moved_to].into_iter().flatten();
    let entries = entries.map(|entry| (entry.directory.0.to_vec(), entry.name.to_vec()));
    (found.mask, found.pid, entries.collect(), found.object.map(|object| object.0.to_vec()))
}

/// Recorded on ext4: a file `f` is created in a directory.
const CREATE: &str = "54000000 03 00 1800 0001000000000000 ffffffff 32570000
    02 00 2000 c6751419 801a2697 08000000 01000000 69609800 e2acdd8c 6600 0000
    01 00 1c00 c6751419 801a2697 08000000 01000000 6c609800 2aa4485f";

/// Recorded on ext4: `f` is renamed to `g` in another directory.
const RENAME: &str = "74000000 03 00 1800 0000001000000000 ffffffff 32570000
    0a 00 2000 c6751419 801a2697 08000000 01000000 69609800 e2acdd8c 6600 0000
    0c 00 2000 c6751419 801a2697 08000000 01000000 6a609800 66145168 6700 0000
    01 00 1c00 c6751419 801a2697 08000000 01000000 6c609800 2aa4485f";

/// Recorded on ext4: the number of links of a file changed.
const LINK_COUNT: &str = "34000000 03 00 1800 0400000000000000 ffffffff 32570000
    01 00 1c00 c6751419 801a2697 08000000 01000000 6c609800 2aa4485f";

const DIRECTORY_HANDLE: &str = "c6751419 801a2697 08000000 01000000 69609800 e2acdd8c";
const OTHER_DIRECTORY: &str = "c6751419 801a2697 08000000 01000000 6a609800 66145168";
const FILE: &str = "c6751419 801a2697 08000000 01000000 6c609800 2aa4485f";

#[test]
fn created_file_has_directory_name_and_object() {
    let (mask, pid, entries, object) = one(CREATE);
    assert_eq!((mask, pid), (libc::FAN_CREATE, 0x5732));
    assert_eq!(entries, [(bytes(DIRECTORY_HANDLE), b"f".to_vec())]);
    assert_eq!(object, Some(bytes(FILE)));
}

#[test]
fn rename_has_both_places() {
    let (mask, _, entries, object) = one(RENAME);
    assert_eq!(mask, libc::FAN_RENAME);
    let from = (bytes(DIRECTORY_HANDLE), b"f".to_vec());
    assert_eq!(entries, [from, (bytes(OTHER_DIRECTORY), b"g".to_vec())]);
    assert_eq!(object, Some(bytes(FILE)));
}

#[test]
fn link_count_has_the_object_alone() {
    let (mask, _, entries, object) = one(LINK_COUNT);
    assert_eq!((mask, entries.len()), (libc::FAN_ATTRIB, 0));
    assert_eq!(object, Some(bytes(FILE)));
}

#[test]
fn directory_without_a_name_means_itself() {
    let record = format!("03 00 1c00 {DIRECTORY_HANDLE}");
    let (_, _, entries, _) =
        one(&format!("34000000 03 00 1800 0400004000000000 ffffffff 32570000 {record}"));
    assert_eq!(entries, [(bytes(DIRECTORY_HANDLE), ITSELF.to_vec())]);
}

#[test]
fn overflow_has_no_records() {
    let (mask, pid, entries, object) =
        one("18000000 03 00 1800 0040000000000000 ffffffff 00000000");
    assert_eq!((mask, pid, entries.len(), object), (libc::FAN_Q_OVERFLOW, 0, 0, None));
}

#[test]
fn unknown_records_are_skipped() {
    let pidfd = "04 00 0800 ffffffff";
    let (_, _, entries, _) =
        one(&format!("20000000 03 00 1800 0400000000000000 ffffffff 32570000 {pidfd}"));
    assert_eq!(entries, []);
}

#[test]
fn notifications_follow_each_other() {
    let buffer = bytes(&format!("{CREATE} {RENAME} {LINK_COUNT}"));
    let masks: Vec<u64> = decode(&buffer).map(|found| found.unwrap().mask).collect();
    assert_eq!(masks, [libc::FAN_CREATE, libc::FAN_RENAME, libc::FAN_ATTRIB]);
}

#[test]
fn every_cut_is_an_error_after_whole_notifications() {
    let buffer = bytes(&format!("{CREATE} {RENAME}"));
    let first = bytes(CREATE).len();
    for length in 1..buffer.len() {
        let results: Vec<_> = decode(&buffer[..length]).collect();
        let whole = results.iter().filter(|result| result.is_ok()).count();
        assert_eq!(whole, usize::from(length >= first), "{length} bytes");
        let error = (length != first).then_some(Err(DecodeError::Length));
        assert_eq!(results.get(whole).copied(), error, "{length} bytes");
    }
}

#[test]
fn wrong_bytes_are_errors() {
    for (at, value, expected) in [
        (4, 2, DecodeError::Version(2)),
        (0, 23, DecodeError::Length),
        (6, 23, DecodeError::Length),
        (26, 3, DecodeError::Length),
        (36, 129, DecodeError::Length),
        (36, 16, DecodeError::Length),
        (52, 0, DecodeError::Name),
    ] {
        let mut buffer = bytes(CREATE);
        buffer[at] = value;
        let results: Vec<_> = decode(&buffer).collect();
        assert_eq!(results, [Err(expected)], "{value} at {at}");
    }
    let mut endless = bytes(CREATE);
    endless[52..56].fill(b'x');
    assert_eq!(decode(&endless).collect::<Vec<_>>(), [Err(DecodeError::Name)]);
}
