//! Measures the speed of applying documents: 150,000 documents of files in sessions of 5 MB, first
//! new, then changed, then sent again; then the queries of the API.
//!
//! `cargo run --release -p holdfast-state --example apply [DOCUMENTS]`

#![expect(clippy::unwrap_used, clippy::print_stdout, reason = "a measurement, not the product")]

use std::time::Instant;

use model::document::NoNames;
use model::{
    AgentId, Dataset, FileDocument, Incarnation, ItemKey, Kind, Observation, Overlay, Position,
    Record, SessionRecord, Write,
};
use state::{
    Comparison, Condition, DocumentField, DocumentQuery, Reader, StateOptions, StateStore,
};

const SESSION_BYTES: usize = 5_000_000;

fn document(n: u64, version: u64) -> Write {
    let path = format!("/usr/lib/some-package-{}/directory-{}/file-{n}.so", n / 400, n / 20);
    let key = ItemKey::of_path(path.as_bytes());
    let mut o = Observation::empty(Kind::File);
    o.size = n * 17;
    o.inode = n;
    o.mode = 0o644;
    o.mtime_ns = 1_700_000_000_000_000_000 + (n * version) as i64;
    o.ctime_ns = o.mtime_ns;
    let mut hash = [0; 32];
    for (i, byte) in hash.iter_mut().enumerate() {
        *byte = (n.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (i % 8 * 8)) as u8;
    }
    o.hashes.sha256 = Some(hash);
    let body = serde_json::to_vec(&FileDocument::new(&key, &o, version, &NoNames)).unwrap();
    Write::Upsert { dataset: Dataset::fim_files(), id: key.document_id(), version, body }
}

fn sessions(documents: u64, version: u64) -> Vec<Record> {
    let mut sessions = Vec::new();
    let mut writes = Vec::new();
    let mut bytes = 0;
    for n in 0..documents {
        let write = document(n, version);
        if let Write::Upsert { body, .. } = &write {
            bytes += body.len();
        }
        writes.push(write);
        if bytes >= SESSION_BYTES || n + 1 == documents {
            bytes = 0;
            sessions.push(Record::Session(SessionRecord {
                agent: AgentId(1),
                incarnation: Incarnation(1),
                received_at_us: version,
                session: format!("fim-{version}-{n}"),
                overlay: Overlay::default(),
                writes: std::mem::take(&mut writes),
            }));
        }
    }
    sessions
}

/// Returns the CPU time of this thread, which a busy machine does not distort.
fn cpu_us() -> f64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    now.tv_sec as f64 * 1e6 + now.tv_nsec as f64 / 1e3
}

fn main() {
    let documents = std::env::args().nth(1).and_then(|n| n.parse().ok()).unwrap_or(150_000);
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("state.db");
    let state = StateStore::open(&file, StateOptions::default()).unwrap();
    let mut position = 0;
    for (what, version) in [("new", 1), ("changed", 2), ("again", 2)] {
        let records = sessions(documents, version);
        let began = Instant::now();
        let encoded: usize = records.iter().map(|r| r.encode().len()).sum();
        let encode = began.elapsed();
        let (began, cpu) = (Instant::now(), cpu_us());
        for record in records {
            position += 1;
            state.apply(&[(Position(position), record)]).unwrap();
        }
        let (took, cpu) = (began.elapsed(), cpu_us() - cpu);
        let began = Instant::now();
        state.checkpoint().unwrap();
        println!(
            "{what}: {:.0} documents/s, {:.1} us of CPU each, {:.2} s, checkpoint {:.2} s; {} bytes a document encoded \
             at {:.0} MB/s",
            documents as f64 / took.as_secs_f64(),
            cpu / documents as f64,
            took.as_secs_f64(),
            began.elapsed().as_secs_f64(),
            encoded as u64 / documents,
            encoded as f64 / 1e6 / encode.as_secs_f64(),
        );
    }
    let bytes = std::fs::metadata(&file).unwrap().len();
    println!("state.db: {} bytes a document", bytes / documents);
    queries(&state);
}

fn queries(state: &StateStore) {
    let base = || DocumentQuery::new(AgentId(1), Dataset::fim_files());
    let prefix =
        Condition::field(DocumentField::Path, Comparison::Prefix, "/usr/lib/some-package-7/");
    let search = Condition::field(DocumentField::Path, Comparison::Contains, "file-777");
    for (what, query) in [
        ("first 500 by path", base()),
        ("500 from 100,000", DocumentQuery { offset: 100_000, ..base() }),
        ("path prefix", DocumentQuery { condition: prefix, ..base() }),
        ("search", DocumentQuery { condition: search, ..base() }),
        (
            "500 by size",
            DocumentQuery {
                sort: vec![(DocumentField::Size, state::SortDirection::Descending)],
                ..base()
            },
        ),
    ] {
        let began = Instant::now();
        let page = state.documents(&Reader::server(), &query).unwrap();
        println!(
            "{what}: {:.1} ms, {} of {}",
            began.elapsed().as_secs_f64() * 1e3,
            page.items.len(),
            page.total
        );
    }
    let began = Instant::now();
    state.checksum(&Reader::server(), AgentId(1), &Dataset::fim_files()).unwrap();
    println!("checksum: {:.1} ms", began.elapsed().as_secs_f64() * 1e3);
    let began = Instant::now();
    state.counts(&Reader::server()).unwrap();
    println!("counts: {:.2} ms", began.elapsed().as_secs_f64() * 1e3);
}
