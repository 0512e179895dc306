//! The fuzz targets: all code that reads bytes of unknown origin. The fuzzers and the ordinary
//! tests (`tests/fuzz_corpus.rs`) call the same functions. Each function panics if a guarantee is
//! violated.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::missing_panics_doc,
    dead_code,
    missing_docs,
    unreachable_pub,
    reason = "a fuzzer that finds something panics; each program uses one target"
)]

use std::path::Path;
use std::sync::{Arc, OnceLock};

use env::files::{Access, Files, SimDisk};
use journal::{Durability, Journal, Layout, Options, VerifyReport};

const BLOCK: usize = 4096;
const DIR: &str = "/journal";

fn options(disk: &SimDisk, layout: Layout) -> Options {
    Options {
        layout,
        segment_bytes: 32 << 10,
        ring_bytes: 16 << 10,
        fill_ahead_bytes: 4 << 10,
        background: false,
        spares: 1,
        files: Arc::new(disk.clone()),
        ..Options::default()
    }
}

fn write(disk: &SimDisk, name: &str, bytes: &[u8]) {
    let path = Path::new(DIR).join(name);
    let file = disk.open(&path, Access::CREATE).unwrap();
    file.set_size(bytes.len() as u64).unwrap();
    file.write_all_at(bytes, 0).unwrap();
    file.persist().unwrap();
}

fn verified(disk: &SimDisk) -> Option<VerifyReport> {
    journal::verify_with(disk, Path::new(DIR)).ok()
}

/// Returns every record that a dump shows.
fn dumped(disk: &SimDisk) -> Vec<Vec<u8>> {
    let mut records = Vec::new();
    let _ = journal::dump_with(disk, Path::new(DIR), 0, |group| {
        records.extend(group.records);
        std::ops::ControlFlow::Continue(())
    });
    records
}

/// Asserts that verifying, opening, reading and repairing agree with each other. Returns the
/// records that were read, up to the first damage.
fn agree(disk: &SimDisk, layout: Layout) -> Vec<Vec<u8>> {
    let report = verified(disk);
    assert_eq!(report, verified(disk), "verifying changes nothing");
    let opened = Journal::open(Path::new(DIR), options(disk, layout));
    let Some(report) = report else {
        assert!(opened.is_err(), "opened what cannot be verified");
        return Vec::new();
    };
    assert_eq!(report.is_sound(), opened.is_ok(), "{report:?}, {:?}", opened.as_ref().err());
    if let Ok((journal, recovery)) = opened {
        assert_eq!(recovery.last_position, report.last_position);
        let read = read_all(&journal);
        let outcome = journal.append(b"one more", Durability::Persist).unwrap();
        assert_eq!(outcome.position, report.last_position + 1);
        return read;
    }
    let disk = disk.kill();
    let files: Arc<dyn Files> = Arc::new(disk.clone());
    let Ok(repair) = journal::repair_with(&files, Path::new(DIR), 0) else { return Vec::new() };
    let repaired = Journal::open(Path::new(DIR), options(&disk, layout));
    let (journal, recovery) = repaired.expect("a repaired journal opens");
    assert_eq!(recovery.last_position, repair.last_position);
    assert!(repair.last_position >= report.last_position, "a repair keeps what can be read");
    // Placeholders, and intact records after them, may follow.
    let mut read = read_all(&journal);
    let first = journal.first_position().max(1);
    read.truncate((report.last_position + 1).saturating_sub(first) as usize);
    read
}

fn read_all(journal: &Journal) -> Vec<Vec<u8>> {
    let Ok(reader) = journal.read_from(0) else { return Vec::new() };
    reader.map(|record| record.expect("what was recovered can be read").1).collect()
}

/// Reads a segment with valid checksums and any content. The input is eight bytes of choices,
/// followed by frames, each of which starts a new block as in the sparse layout.
pub fn segment(data: &[u8]) {
    let Some((choices, mut rest)) = data.split_at_checked(8) else { return };
    let disk = SimDisk::new(1);
    disk.create_dir(Path::new(DIR)).unwrap();
    let layout = [Layout::Packed, Layout::Sparse, Layout::Ring][usize::from(choices[0] % 3)];
    let (journal, epoch, first) = (7_u64, 1_u64, u64::from(choices[1]) + 1);
    let mut header = vec![0; BLOCK];
    header[..8].copy_from_slice(b"hfjourna");
    header[8] = 1;
    header[10] = 1 + choices[0] % 3;
    let end = if layout == Layout::Packed { 4098 } else { 4096 };
    let numbers = [
        journal,
        epoch,
        32 << 10,
        first,
        1,
        0,
        0,
        if choices[2] == 0 { end } else { u64::from(choices[2]) * 512 },
    ];
    for (place, number) in numbers.iter().enumerate() {
        header[16 + 8 * place..24 + 8 * place].copy_from_slice(&number.to_le_bytes());
    }
    header[80] = choices[3] % 9;
    let crc = crc32c::crc32c(&header);
    header[12..16].copy_from_slice(&crc.to_le_bytes());
    let mut content = header;
    let mut sequence = 1_u64;
    while let Some((length, more)) = rest.split_first_chunk::<2>() {
        let length = usize::from(u16::from_le_bytes(*length) % 5_000).min(more.len());
        let (inside, after) = more.split_at(length);
        rest = after;
        let start = content.len();
        let mut covered = vec![sequence as u8];
        covered.extend_from_slice(inside);
        let mut seed = Vec::new();
        seed.extend_from_slice(&journal.to_le_bytes());
        seed.extend_from_slice(&epoch.to_le_bytes());
        seed.push(0);
        seed.extend_from_slice(&(start as u64).to_le_bytes());
        seed.extend_from_slice(&sequence.to_le_bytes());
        let crc = crc32c::crc32c(&covered) ^ crc32c::crc32c(&seed);
        content.extend_from_slice(&crc.to_le_bytes());
        content.extend_from_slice(&covered);
        content.resize(content.len().next_multiple_of(BLOCK), 0);
        sequence += 1;
        if content.len() > 64 << 10 {
            break;
        }
    }
    write(&disk, "segment-0000000000000001", &content);
    let dumped = dumped(&disk);
    let read = agree(&disk, layout);
    if !read.is_empty() {
        assert!(read == dumped, "reading and dumping differ");
    }
}

/// Files of a small journal in each layout, and the records it holds.
struct Written {
    files: Vec<(String, Vec<u8>)>,
    records: Vec<Vec<u8>>,
}

fn written(layout: usize) -> &'static Written {
    static ALL: OnceLock<Vec<Written>> = OnceLock::new();
    &ALL.get_or_init(|| {
        [Layout::Packed, Layout::Sparse, Layout::Ring].into_iter().map(write_one).collect()
    })[layout % 3]
}

fn write_one(layout: Layout) -> Written {
    let disk = SimDisk::new(1);
    let mut records = Vec::new();
    for round in 0..2_usize {
        let (journal, _) = Journal::open(Path::new(DIR), options(&disk, layout)).unwrap();
        for n in 0..12_usize {
            let group: Vec<Vec<u8>> =
                (0..=n % 3).map(|m| vec![(round * 50 + n * 3 + m) as u8; n * 97 % 700]).collect();
            let parts: Vec<&[u8]> = group.iter().map(Vec::as_slice).collect();
            journal.append_all(&parts, Durability::Persist).unwrap();
            records.extend(group);
        }
        if round == 0 {
            journal.close().unwrap();
        }
    }
    let disk = disk.kill();
    let names = disk.list(Path::new(DIR)).unwrap();
    let content = |name: &String| disk.content(&Path::new(DIR).join(name)).unwrap_or_default();
    let files = names.iter().filter(|n| n.starts_with("segment") || n.starts_with("ring"));
    Written { files: files.map(|n| (n.clone(), content(n))).collect(), records }
}

/// Reads a journal that was written correctly and then damaged: the records read are a prefix of
/// those written.
pub fn damage(data: &[u8]) {
    let Some((choice, mut patches)) = data.split_first() else { return };
    let well = written(usize::from(*choice));
    let layout = [Layout::Packed, Layout::Sparse, Layout::Ring][usize::from(choice % 3)];
    let mut files = well.files.clone();
    while let Some((patch, rest)) = patches.split_first_chunk::<5>() {
        patches = rest;
        let [file, low, high, kind, value] = *patch;
        let chosen = usize::from(file) % files.len();
        let content = &mut files[chosen].1;
        if content.is_empty() {
            continue;
        }
        let at = usize::from(u16::from_le_bytes([low, high])) % content.len();
        match kind % 4 {
            0 => content[at] ^= value,
            1 => content.truncate(at),
            2 => content[at..].iter_mut().take(usize::from(value) * 16).for_each(|b| *b = 0),
            _ => {
                // Overwrite one block with another, as a stale or misdirected write would.
                let from = (usize::from(value) * BLOCK) % content.len() / BLOCK * BLOCK;
                let to = at / BLOCK * BLOCK;
                let block = content[from..].iter().copied().take(BLOCK).collect::<Vec<_>>();
                let room = content.len() - to;
                let n = block.len().min(room);
                content[to..to + n].copy_from_slice(&block[..n]);
            }
        }
    }
    let disk = SimDisk::new(1);
    disk.create_dir(Path::new(DIR)).unwrap();
    for (name, content) in &files {
        write(&disk, name, content);
    }
    let read = agree(&disk, layout);
    assert!(well.records.starts_with(&read), "{} records that were never written", read.len());
}

/// Decodes a session from an agent and encodes it again.
pub fn session(data: &[u8]) {
    let limits = link::Limits { bytes_max: 1 << 20, values_max: 1_000 };
    let Ok(view) = link::verify(data, &limits) else { return };
    let session = view.to_session();
    let bytes = link::encode(&session);
    let wide = link::Limits { bytes_max: usize::MAX, values_max: 1_000 };
    let again = link::verify(&bytes, &wide).expect("what was accepted can be written and read");
    assert_eq!(again.to_session(), session);
}

/// Decodes a record of the server's journal and encodes it again.
pub fn record(data: &[u8]) {
    let Ok(record) = model::Record::decode(data) else { return };
    let _ = record.agent();
    assert_eq!(model::Record::decode(&record.encode()), Ok(record));
}
