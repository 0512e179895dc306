//! Tests of the commit with the real journal and the real state.

mod acknowledgements;
mod kills;
mod limits;
mod recovery;
mod state_log;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use journal::{Journal, Options};
use model::{
    AgentId, Dataset, EventBody, Incarnation, Overlay, Record, RetentionEvent, SessionRecord, Write,
};
use state::{ChangeQuery, Reader, StateOptions, StateStore};
use tempfile::TempDir;

use crate::{Commit, CommitError, CommitOptions, ReplayReport};

/// One data folder.
struct DataFolder {
    dir: PathBuf,
    _temporary: TempDir,
}

/// A commit on a data folder, with its state.
struct Open {
    commit: Arc<Commit>,
    state: Arc<StateStore>,
    report: ReplayReport,
}

impl DataFolder {
    fn new() -> Self {
        let temporary = tempfile::tempdir().unwrap();
        Self { dir: temporary.path().to_owned(), _temporary: temporary }
    }

    fn journal(&self) -> PathBuf {
        self.dir.join("journal")
    }

    fn state(&self) -> PathBuf {
        self.dir.join("state.db")
    }

    fn try_open(&self, options: CommitOptions) -> Result<Open, CommitError> {
        open(&self.journal(), &self.state(), small_segments(), options)
    }

    fn open(&self) -> Open {
        self.try_open(CommitOptions::default()).unwrap()
    }
}

/// Returns options with small segments, so that a checkpoint trims whole segments.
fn small_segments() -> Options {
    Options { segment_bytes: 64 * 1024, ..Options::default() }
}

fn open(
    journal: &Path,
    state: &Path,
    journal_options: Options,
    options: CommitOptions,
) -> Result<Open, CommitError> {
    let (journal, _) = Journal::open(journal, journal_options).unwrap();
    let state = Arc::new(StateStore::open(state, StateOptions::default()).unwrap());
    let (commit, report) = Commit::open(journal, Arc::<StateStore>::clone(&state), options)?;
    Ok(Open { commit, state, report })
}

fn document(id: &str, version: u64) -> Write {
    let body = format!("{{\"file\":{{\"path\":\"/{id}\"}}}}").into_bytes();
    Write::Upsert { dataset: Dataset::fim_files(), id: id.into(), version, body }
}

fn event(id: &str) -> Write {
    Write::Event { id: id.into(), body: EventBody::default().to_json() }
}

fn session(agent: u32, name: &str, writes: Vec<Write>) -> Record {
    Record::Session(SessionRecord {
        agent: AgentId(agent),
        incarnation: Incarnation(1),
        received_at_us: 1,
        session: name.into(),
        overlay: Overlay::default(),
        writes,
    })
}

/// Returns a session of one event and one document, both called `name`.
fn one(name: &str) -> Record {
    session(1, name, vec![event(name), document(name, 1)])
}

fn event_ids(state: &StateStore) -> Vec<String> {
    let all = ChangeQuery { limit: 100_000, ..ChangeQuery::default() };
    let mut ids: Vec<_> =
        state.changes(&Reader::server(), &all).unwrap().items.into_iter().map(|e| e.id).collect();
    ids.sort();
    ids
}

fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_mins(10);
    while !holds() {
        assert!(Instant::now() < end, "{what} did not come true");
        std::thread::sleep(Duration::from_millis(2));
    }
}

fn copy_state(from: &Path, to: &Path) {
    std::fs::create_dir_all(to.parent().unwrap()).unwrap();
    for suffix in ["", "-wal"] {
        let mut source = from.as_os_str().to_owned();
        source.push(suffix);
        let mut target = to.as_os_str().to_owned();
        target.push(suffix);
        if Path::new(&source).exists() {
            std::fs::copy(&source, &target).unwrap();
        }
    }
}

fn copy_folder(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        std::fs::copy(entry.path(), to.join(entry.file_name())).unwrap();
    }
}

/// The encoded records are the example of `docs/format/record.md` and one session of version 1.
#[test]
fn encoded_records_match_the_format_document() {
    let removed =
        Record::AgentRemoved { agent: AgentId(7), incarnation: Incarnation(300), at_us: 1 };
    assert_eq!(removed.encode(), [1, 1, 7, 0xac, 2, 1]);
    let event = RetentionEvent { id: "r".into(), at_us: 3, body: b"{}".to_vec() };
    let retain = |event| Record::Retain { through: 300, tombstones_before_us: 2, event };
    assert_eq!(retain(None).encode(), [4, 6, 0xac, 2, 2, 0]);
    assert_eq!(retain(Some(event)).encode(), b"\x04\x06\xac\x02\x02\x01\x01r\x03\x02{}");
    let overlay =
        Overlay { agent_name: "w".into(), groups: vec!["g".into()], ..Overlay::default() };
    let record = Record::Session(SessionRecord {
        agent: AgentId(1),
        incarnation: Incarnation(2),
        received_at_us: 3,
        session: "s".into(),
        overlay,
        writes: vec![
            Write::Upsert {
                dataset: Dataset::new("sca"),
                id: "i".into(),
                version: 128,
                body: b"{}".to_vec(),
            },
            Write::Delete { dataset: Dataset::new("sca"), id: "i".into(), version: 0 },
            Write::Clean { dataset: Dataset::new("sca") },
            Write::Event { id: "e".into(), body: b"{}".to_vec() },
        ],
    });
    let bytes = b"\x01\x00\x01\x02\x03\x01s\
        \x01w\x00\x01\x01g\x00\x00\x00\x00\x00\x00\x00\
        \x04\x00\x03sca\x01i\x80\x01\x02{}\x01\x03sca\x01i\x00\x02\x03sca\x03\x01e\x02{}";
    assert_eq!(record.encode(), bytes);
    assert_eq!(Record::decode(bytes), Ok(record));
}
