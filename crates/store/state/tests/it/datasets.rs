//! The limits on the number of datasets.

use crate::promises;
use model::limits::TOMBSTONE_SECONDS;
use model::{
    AgentId, Applied, Dataset, Incarnation, Overlay, Position, Record, SessionRecord, SkipReason,
    Write,
};
use state::limits::{AGENT_DATASETS_MAX, DATASETS_MAX};
use state::{Reader, Retention, StateOptions, StateStore};

const NOW_US: u64 = 1_700_000_000_000_000;

struct Store {
    state: StateStore,
    position: u64,
    _dir: tempfile::TempDir,
}

impl Store {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("state.db");
        let state = StateStore::open(&file, StateOptions::default()).unwrap();
        Self { state, position: 0, _dir: dir }
    }

    fn retain(&mut self, now_us: u64) {
        promises::retain(&self.state, Retention::default(), now_us);
        self.position = self.state.applied().unwrap().0;
    }

    fn apply(&mut self, agent: u32, writes: Vec<Write>) -> Applied {
        self.position += 1;
        let session = SessionRecord {
            agent: AgentId(agent),
            incarnation: Incarnation(1),
            received_at_us: NOW_US,
            session: self.position.to_string(),
            overlay: Overlay::default(),
            writes,
        };
        let record = (Position(self.position), Record::Session(session));
        self.state.apply(&[record]).unwrap().remove(0)
    }

    /// Returns the datasets that hold documents.
    fn datasets(&self) -> usize {
        let counts = self.state.counts(&Reader::server()).unwrap();
        counts.documents.iter().filter(|(_, documents, _)| *documents > 0).count()
    }
}

fn put(dataset: &str, id: &str) -> Write {
    let (dataset, body) = (Dataset::new(dataset), br#"{"a":1}"#.to_vec());
    Write::Upsert { dataset, id: id.into(), version: 1, body }
}

fn delete(dataset: &str, id: &str) -> Write {
    Write::Delete { dataset: Dataset::new(dataset), id: id.into(), version: 2 }
}

fn skipped(applied: &Applied) -> Vec<(u32, SkipReason)> {
    applied.skipped.iter().map(|skipped| (skipped.index, skipped.reason)).collect()
}

#[test]
fn documents_of_too_many_datasets_of_an_agent_are_skipped() {
    let mut store = Store::new();
    let name = |n: u64| format!("set-{n}");
    let all: Vec<_> = (0..AGENT_DATASETS_MAX).map(|n| put(&name(n), "a")).collect();
    assert_eq!(skipped(&store.apply(1, all)), []);
    let over = name(AGENT_DATASETS_MAX);
    let clean = Write::Clean { dataset: Dataset::new(&*over) };
    let mixed = vec![put(&over, "a"), put("set-7", "b"), delete(&over, "a"), clean];
    let refused = [(0, SkipReason::Index), (2, SkipReason::Index)];
    assert_eq!(skipped(&store.apply(1, mixed)), refused);
    assert_eq!(store.datasets() as u64, AGENT_DATASETS_MAX);
    assert_eq!(skipped(&store.apply(2, vec![put(&over, "a")])), [], "another agent may");
}

#[test]
fn documents_of_too_many_datasets_of_all_agents_are_skipped() {
    let mut store = Store::new();
    for agent in 0..DATASETS_MAX / AGENT_DATASETS_MAX {
        let names = (0..AGENT_DATASETS_MAX).map(|n| put(&format!("set-{agent}-{n}"), "a"));
        assert_eq!(skipped(&store.apply(agent as u32 + 1, names.collect())), []);
    }
    let more = vec![put("one-more", "a"), put("set-0-0", "a")];
    assert_eq!(skipped(&store.apply(100, more)), [(0, SkipReason::Index)]);
}

#[test]
fn retention_frees_the_datasets_that_hold_nothing() {
    let mut store = Store::new();
    let all = (0..AGENT_DATASETS_MAX).map(|n| put(&format!("set-{n}"), "a")).collect();
    store.apply(1, all);
    store.apply(1, vec![delete("set-3", "a"), Write::Clean { dataset: Dataset::new("set-4") }]);
    store.retain(NOW_US);
    let more = vec![put("new-1", "a"), put("new-2", "a")];
    let refused = [(1, SkipReason::Index)];
    assert_eq!(skipped(&store.apply(1, more.clone())), refused, "a tombstone keeps its dataset");
    store.retain(NOW_US + (TOMBSTONE_SECONDS + 1) * 1_000_000);
    assert_eq!(skipped(&store.apply(1, more)), []);
    assert_eq!(store.datasets() as u64, AGENT_DATASETS_MAX);
}
