//! The input of all subjects: the same ids, documents and order.

use std::fs;
use std::path::Path;

use env::random::{Random as _, SeededRandom};
use model::document::NoNames;
use model::{FileDocument, ItemKey, Kind, Observation, Op};

use crate::peer::{Event, Operation};

/// Files in one directory.
const DIRECTORY_FILES: u64 = 50;
/// Smallest and largest file of the scanned tree, bytes; sizes between are log-uniform.
const FILE_BYTES: (f64, f64) = (512.0, 65_536.0);

/// Returns the numbers of all items in the order of a scan, or shuffled.
pub fn order(count: u64, shuffled: bool) -> anyhow::Result<Vec<u64>> {
    if !shuffled {
        return Ok((0..count).collect());
    }
    let random = SeededRandom::new(7);
    let mut keyed =
        (0..count).map(|n| Ok((random.next_u64()?, n))).collect::<std::io::Result<Vec<_>>>()?;
    keyed.sort_unstable();
    Ok(keyed.into_iter().map(|(_, n)| n).collect())
}

fn key(number: u64) -> ItemKey {
    ItemKey::new(
        format!("/usr/share/application-{:05}/data", number / DIRECTORY_FILES),
        format!("file-{number:08}.bin"),
    )
}

/// Returns the key of an item if all are in one directory.
fn flat(number: u64) -> ItemKey {
    ItemKey::new("/var/spool/one", format!("file-{number:08}.bin"))
}

/// Returns the state of an item in a round. Content, size and times differ in every round.
fn observation(number: u64, round: u64) -> anyhow::Result<Observation> {
    let mut o = Observation::empty(Kind::File);
    o.device = 0xfe00;
    o.inode = 8_000_000 + number;
    o.mode = 0o644;
    o.uid = 1000;
    o.gid = 1000;
    o.size = 1000 + number * 7 + round;
    o.mtime_ns = 1_700_000_000_000_000_000 + (number * 1_000_003 + round) as i64;
    o.ctime_ns = o.mtime_ns + 5_123_456;
    o.verified_at_s = 1_795_000_000;
    let mut hash = [0; 32];
    SeededRandom::new(number * 31 + round).fill_bytes(&mut hash)?;
    o.hashes.sha256 = Some(hash);
    Ok(o)
}

/// Returns the events as batches of operations.
pub fn batches(order: &[u64], size: usize, round: u64) -> anyhow::Result<Vec<Vec<Op>>> {
    placed(order, size, round, key)
}

/// As [`batches`], with all items in one directory.
pub fn flat_batches(order: &[u64], size: usize, round: u64) -> anyhow::Result<Vec<Vec<Op>>> {
    placed(order, size, round, flat)
}

fn placed(
    order: &[u64],
    size: usize,
    round: u64,
    key: impl Fn(u64) -> ItemKey,
) -> anyhow::Result<Vec<Vec<Op>>> {
    let put =
        |n: &u64| Ok(Op::Put { key: key(*n), observation: observation(*n, round)?, change: None });
    order.chunks(size).map(|chunk| chunk.iter().map(put).collect()).collect()
}

/// Returns the same events as documents.
pub fn events(order: &[u64], round: u64) -> anyhow::Result<Vec<Event>> {
    let operation = if round == 0 { Operation::Create } else { Operation::Modify };
    order.iter().map(|n| event(&key(*n), &observation(*n, round)?, operation, round)).collect()
}

/// Returns an item as a document of the published design.
pub fn event(
    key: &ItemKey,
    observation: &Observation,
    operation: Operation,
    round: u64,
) -> anyhow::Result<Event> {
    let seen = 1_795_000_000_000_000 + round;
    let document = serde_json::to_string(&FileDocument::new(key, observation, seen, &NoNames))?;
    Ok(Event { id: key.document_id(), document, operation, version: round as i64 + 1 })
}

/// Creates the tree to scan and returns the bytes of its content.
pub fn tree(folder: &Path, files: u64) -> anyhow::Result<u64> {
    let random = SeededRandom::new(11);
    let mut content = vec![0; FILE_BYTES.1 as usize];
    let mut total = 0;
    for number in 0..files {
        let directory = folder.join(format!("directory-{:04}", number / DIRECTORY_FILES));
        if number % DIRECTORY_FILES == 0 {
            fs::create_dir_all(&directory)?;
        }
        let share = random.next_u64()? as f64 / u64::MAX as f64;
        let bytes = (FILE_BYTES.0 * (FILE_BYTES.1 / FILE_BYTES.0).powf(share)) as usize;
        let content = &mut content[..bytes];
        random.fill_bytes(content)?;
        fs::write(directory.join(format!("file-{number:08}.bin")), content)?;
        total += bytes as u64;
    }
    Ok(total)
}

/// Size of a typical document and of a typical stored observation, bytes.
pub struct Sizes {
    pub document: usize,
    pub stored: usize,
}

pub fn sizes() -> anyhow::Result<Sizes> {
    let seen = observation(50_000, 0)?;
    let document = event(&key(50_000), &seen, Operation::Create, 0)?.document;
    let mut stored = Vec::new();
    seen.encode(&mut stored);
    Ok(Sizes { document: document.len(), stored: stored.len() })
}
