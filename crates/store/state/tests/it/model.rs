//! A model test: random records and reopens, compared with maps.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::path::Path;

use model::{
    AgentId, Applied, ChangeKind, Dataset, Incarnation, ItemKey, Position, Record, SkipReason,
    Skipped, Write,
};
use proptest::prelude::*;

use records::{document, event, removal, session_of_life};
use state::limits::SESSIONS_KEPT;

use crate::promises::path_of;
use state::{ChangeQuery, DocumentQuery, Reader, StateOptions, StateStore};

/// Time of the first session, microseconds since the epoch.
const FIRST_US: u64 = 1_790_000_000_000_000;

fn open(file: &Path) -> StateStore {
    StateStore::open(file, StateOptions { readers: 2, ..StateOptions::default() }).unwrap()
}

#[derive(Debug, Clone)]
pub(crate) enum Step {
    Session {
        agent: u32,
        life: u64,
        writes: Vec<Small>,
    },
    Remove {
        agent: u32,
        life: u64,
    },
    /// Records that were already applied are applied again, as after a crash of the journal's
    /// reader.
    Again {
        back: usize,
    },
    /// A session that was answered before is sent again and gets a new position.
    Replay {
        back: usize,
    },
    Reopen,
    Checkpoint,
}

#[derive(Debug, Clone)]
pub(crate) enum Small {
    Upsert { file: u8, version: u64, size: u64 },
    Delete { file: u8, version: u64 },
    Clean,
    Event { id: u8 },
    Rubbish,
}

#[derive(Debug, Default, Clone)]
struct Life {
    current: Option<u64>,
    removed: BTreeSet<u64>,
    /// Path to version, size and changes.
    documents: BTreeMap<String, (u64, u64, u64)>,
    tombstones: BTreeMap<String, u64>,
    events: BTreeSet<String>,
    /// Times of the sessions applied last.
    known: VecDeque<u64>,
    /// Time of the newest earlier session, for an agent whose ids contain the time.
    floor: u64,
}

#[derive(Debug, Default)]
struct Model {
    agents: BTreeMap<u32, Life>,
}

fn path(file: u8) -> String {
    format!("/d{}/f{file}", file % 3)
}

fn id(file: u8) -> String {
    ItemKey::of_path(path(file).as_bytes()).document_id()
}

impl Small {
    fn write(&self, at: u64) -> Write {
        match self {
            Self::Upsert { file, version, size } => {
                document(&path(*file), *version, |o| o.size = *size)
            }
            Self::Delete { file, version } => removal(&path(*file), *version),
            Self::Clean => Write::Clean { dataset: Dataset::fim_files() },
            Self::Event { id } => {
                event(&format!("e-{id}"), "/a", ChangeKind::Modified, at + u64::from(*id))
            }
            Self::Rubbish => Write::Upsert {
                dataset: Dataset::fim_files(),
                id: "rubbish".into(),
                version: 1,
                body: b"[]".to_vec(),
            },
        }
    }
}

impl Life {
    fn admit(&mut self, life: u64) -> bool {
        if self.current == Some(life) {
            return true;
        }
        if life == 0 && self.current.is_some() {
            return false;
        }
        if self.removed.contains(&life) {
            return false;
        }
        if let Some(former) = self.current {
            self.remove(former);
        }
        self.current = Some(life);
        if life != 0 {
            self.floor = 0;
        }
        true
    }

    fn remove(&mut self, life: u64) -> u64 {
        if life != 0 {
            self.removed.insert(life);
        }
        if self.current != Some(life) {
            return 0;
        }
        self.current = None;
        let newest = self.known.drain(..).max().unwrap_or(0);
        self.floor = if life == 0 { self.floor.max(newest) } else { 0 };
        self.tombstones.clear();
        let gone = self.documents.len() as u64;
        self.documents.clear();
        gone
    }

    fn session(&mut self, at: u64, timed: bool, writes: &[Small]) -> Applied {
        let mut applied = Applied::default();
        if self.known.contains(&at) {
            return Applied { replayed: true, skipped: self.overtaken(writes), ..applied };
        }
        if timed && at <= self.floor {
            return Applied { outdated: true, ..applied };
        }
        self.known.push_back(at);
        if self.known.len() > SESSIONS_KEPT {
            self.floor = self.floor.max(self.known.pop_front().unwrap());
        }
        for (index, write) in writes.iter().enumerate() {
            match self.write(write) {
                Ok(changed) => applied.changed += changed,
                Err((id, reason, version)) => {
                    applied.skipped.push(Skipped { index: index as u32, id, reason, version });
                }
            }
        }
        applied
    }

    fn overtaken(&self, writes: &[Small]) -> Vec<Skipped> {
        let stale = |(index, write): (usize, &Small)| {
            let (file, version, highest) = match write {
                Small::Upsert { file, version, .. } => {
                    let stored = self.documents.get(&path(*file)).map(|d| d.0);
                    (file, *version, stored.max(self.tombstones.get(&path(*file)).copied()))
                }
                Small::Delete { file, version } => {
                    (file, *version, self.documents.get(&path(*file)).map(|d| d.0))
                }
                _ => return None,
            };
            let version = highest.filter(|highest| version != 0 && *highest > version)?;
            let (index, id, reason) = (index as u32, id(*file), SkipReason::Stale);
            Some(Skipped { index, id, reason, version })
        };
        writes.iter().enumerate().filter_map(stale).collect()
    }

    fn write(&mut self, write: &Small) -> Result<u64, (String, SkipReason, u64)> {
        match write {
            Small::Upsert { file, version, size } => {
                let path = path(*file);
                let stored = self.documents.get(&path).map(|d| d.0);
                let highest = stored.max(self.tombstones.get(&path).copied()).unwrap_or(0);
                if *version != 0 && highest > *version {
                    return Err((id(*file), SkipReason::Stale, highest));
                }
                let changes = match self.documents.get(&path) {
                    Some((known, same, _)) if (known, same) == (version, size) => return Ok(0),
                    Some((known, same, changes)) => {
                        changes + u64::from(version > known && size != same)
                    }
                    None => 0,
                };
                self.tombstones.remove(&path);
                self.documents.insert(path, (*version, *size, changes));
                Ok(1)
            }
            Small::Delete { file, version } => {
                let path = path(*file);
                let stored = self.documents.get(&path).map(|d| d.0);
                if let Some(stored) = stored
                    && *version != 0
                    && stored > *version
                {
                    return Err((id(*file), SkipReason::Stale, stored));
                }
                self.documents.remove(&path);
                let known = self.tombstones.get(&path).copied().unwrap_or(0);
                if *version > known {
                    self.tombstones.insert(path, *version);
                }
                Ok(u64::from(stored.is_some()))
            }
            Small::Clean => {
                let gone = self.documents.len() as u64;
                self.documents.clear();
                self.tombstones.clear();
                Ok(gone)
            }
            Small::Event { id } => Ok(u64::from(self.events.insert(format!("e-{id}")))),
            Small::Rubbish => Err(("rubbish".into(), SkipReason::Json, 0)),
        }
    }
}

impl Model {
    /// Applies a step to the model; `at` is the time at which the session was first sent.
    fn apply(&mut self, step: &Step, at: u64) -> Applied {
        match step {
            Step::Session { agent, life, writes } => {
                let entry = self.agents.entry(*agent).or_default();
                if entry.admit(*life) {
                    entry.session(at, timed(*agent), writes)
                } else {
                    Applied { refused: true, ..Applied::default() }
                }
            }
            Step::Remove { agent, life } => {
                let changed = self.agents.entry(*agent).or_default().remove(*life);
                Applied { changed, ..Applied::default() }
            }
            _ => Applied::default(),
        }
    }

    fn check(&self, store: &StateStore) {
        let (mut documents, mut events, mut tombstones) = (0, 0, 0);
        for (agent, life) in &self.agents {
            let query = DocumentQuery::new(AgentId(*agent), Dataset::fim_files());
            let page = store.documents(&Reader::server(), &query).unwrap();
            let stored: BTreeMap<_, _> = page
                .items
                .iter()
                .map(|d| {
                    let body: ::model::FileDocument = serde_json::from_slice(&d.body).unwrap();
                    (path_of(d), (d.version, body.file.size.unwrap(), d.changes))
                })
                .collect();
            assert_eq!(stored, life.documents, "agent {agent}");
            assert_eq!(page.total, life.documents.len() as u64);
            let counts = store.agent_counts(&Reader::server(), AgentId(*agent)).unwrap();
            assert_eq!(counts.events, life.events.len() as u64);
            documents += life.documents.len() as u64;
            events += life.events.len() as u64;
            tombstones += life.tombstones.len() as u64;
        }
        let counts = store.counts(&Reader::server()).unwrap();
        assert_eq!(counts.documents.iter().map(|d| d.1).sum::<u64>(), documents);
        assert_eq!((counts.events, counts.tombstones), (events, tombstones));
        let all = ChangeQuery { limit: 1_000, ..ChangeQuery::default() };
        assert_eq!(store.changes(&Reader::server(), &all).unwrap().items.len() as u64, events);
    }
}

/// Returns true if the ids of its sessions contain their time.
fn timed(agent: u32) -> bool {
    agent == 2
}

pub(crate) fn record(step: &Step, at: u64) -> Option<Record> {
    match step {
        Step::Session { agent, life, writes } => {
            let writes = writes.iter().map(|w| w.write(at)).collect();
            let mut record = session_of_life(*agent, *life, at, writes);
            if let Record::Session(session) = &mut record
                && timed(*agent)
            {
                session.received_at_us = FIRST_US + at;
                session.session = format!("fim-{}", (FIRST_US + at) << 12);
            }
            Some(record)
        }
        Step::Remove { agent, life } => Some(Record::AgentRemoved {
            agent: AgentId(*agent),
            incarnation: Incarnation(*life),
            at_us: at,
        }),
        _ => None,
    }
}

fn small() -> impl Strategy<Value = Small> {
    prop_oneof![
        6 => (0..8u8, 0..6u64, 0..3u64)
            .prop_map(|(file, version, size)| Small::Upsert { file, version, size }),
        3 => (0..8u8, 0..6u64).prop_map(|(file, version)| Small::Delete { file, version }),
        1 => Just(Small::Clean),
        3 => (0..12u8).prop_map(|id| Small::Event { id }),
        1 => Just(Small::Rubbish),
    ]
}

pub(crate) fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        12 => (1..4u32, 0..3u64, prop::collection::vec(small(), 0..8))
            .prop_map(|(agent, life, writes)| Step::Session { agent, life, writes }),
        1 => (1..4u32, 0..3u64).prop_map(|(agent, life)| Step::Remove { agent, life }),
        2 => (1..5usize).prop_map(|back| Step::Again { back }),
        3 => (1..40usize).prop_map(|back| Step::Replay { back }),
        1 => Just(Step::Reopen),
        1 => Just(Step::Checkpoint),
    ]
}

/// Applies the collected records in one transaction and compares each result.
fn flush(store: &StateStore, batch: &mut Vec<(Position, Record)>, expected: &mut Vec<Applied>) {
    assert_eq!(store.apply(batch).unwrap(), *expected);
    batch.clear();
    expected.clear();
}

fn run(steps: &[Step], batch_records: usize) {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("state.db");
    let mut store = open(&file);
    let mut model = Model::default();
    let mut history: Vec<(Position, Record)> = Vec::new();
    let mut told: Vec<(&Step, u64)> = Vec::new();
    let (mut batch, mut expected) = (Vec::new(), Vec::new());
    for step in steps {
        let position = Position(history.len() as u64 + 1);
        let (step, at) = match step {
            Step::Replay { back } => match told.iter().rev().nth(back % told.len().max(1)) {
                Some(before) => *before,
                None => continue,
            },
            step => (step, position.0),
        };
        if let Some(record) = record(step, at) {
            history.push((position, record.clone()));
            batch.push((position, record));
            expected.push(model.apply(step, at));
            told.push((step, at));
            if batch.len() < batch_records {
                continue;
            }
        }
        flush(&store, &mut batch, &mut expected);
        match step {
            Step::Again { back } => {
                let from = history.len().saturating_sub(*back);
                let again = store.apply(&history[from..]).unwrap();
                assert!(again.iter().all(|a| *a == Applied::default()));
            }
            Step::Reopen => {
                drop(store);
                store = open(&file);
            }
            Step::Checkpoint => {
                assert_eq!(store.checkpoint().unwrap().0, history.len() as u64);
            }
            _ => {}
        }
        model.check(&store);
    }
    flush(&store, &mut batch, &mut expected);
    model.check(&store);
    assert_eq!(store.applied().unwrap().0, history.len() as u64);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn store_matches_map_model_for_random_records(
        steps in prop::collection::vec(step(), 1..40),
        batch_records in 1..6usize,
    ) {
        run(&steps, batch_records);
    }
}
