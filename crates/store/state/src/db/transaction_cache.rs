//! Small rows that a transaction uses repeatedly: progress, agents, datasets, collections. They are
//! read once, changed in memory, and written back before the transaction commits.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use model::{AgentId, Dataset};
use rusqlite::{Connection, OptionalExtension, params, params_from_iter};

use super::agent::Agent;
use crate::limits::{AGENT_DATASETS_MAX, DATASETS_MAX};

/// The one row of `progress`.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Progress {
    pub(super) applied: u64,
    pub(super) last_event: i64,
    pub(super) tombstones: i64,
    pub(super) quarantined: i64,
}

impl Progress {
    pub(super) fn load(db: &Connection) -> rusqlite::Result<Self> {
        db.prepare_cached(
            "SELECT applied, last_event, tombstones, quarantined FROM progress WHERE only = 1",
        )?
        .query_row([], |r| {
            Ok(Self {
                applied: r.get::<_, i64>(0)? as u64,
                last_event: r.get(1)?,
                tombstones: r.get(2)?,
                quarantined: r.get(3)?,
            })
        })
    }

    pub(super) fn save(&self, db: &Connection) -> rusqlite::Result<()> {
        db.prepare_cached(
            "UPDATE progress SET applied = ?1, last_event = ?2, tombstones = ?3, quarantined = ?4
             WHERE only = 1",
        )?
        .execute(params![
            self.applied as i64,
            self.last_event,
            self.tombstones,
            self.quarantined
        ])?;
        Ok(())
    }
}

/// One row of `collection`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Collection {
    pub(super) number: i64,
    pub(super) dataset: i64,
    pub(super) documents: i64,
    pub(super) bytes: i64,
    pub(super) tombstones: i64,
}

/// Documents and bytes that a dataset gained or lost.
#[derive(Debug, Clone, Copy, Default)]
struct Change {
    documents: i64,
    bytes: i64,
}

/// The rows that one transaction has read and changed so far.
#[derive(Default)]
pub(super) struct TransactionCache {
    pub(super) progress: Progress,
    agents: HashMap<u32, (Agent, Agent)>,
    datasets: HashMap<Dataset, i64>,
    collections: HashMap<(u32, i64), (Collection, Collection)>,
    kinds: HashMap<i64, Change>,
}

impl TransactionCache {
    pub(super) fn load(db: &Connection) -> rusqlite::Result<Self> {
        Ok(Self { progress: Progress::load(db)?, ..Self::default() })
    }

    /// Returns the agent's row; a new agent gets one.
    pub(super) fn agent(&mut self, db: &Connection, id: AgentId) -> rusqlite::Result<&mut Agent> {
        let entry = match self.agents.entry(id.0) {
            Entry::Occupied(entry) => return Ok(&mut entry.into_mut().1),
            Entry::Vacant(entry) => entry,
        };
        let stored = Agent::load(db, id)?;
        Ok(&mut entry.insert((stored.clone(), stored)).1)
    }

    /// Returns the number of a dataset in which the agent may store documents; a new one gets the
    /// next. Returns `None` if the agent or the store has as many datasets as it may have.
    pub(super) fn dataset(
        &mut self,
        db: &Connection,
        agent: AgentId,
        name: &Dataset,
    ) -> rusqlite::Result<Option<i64>> {
        let number = match self.datasets.get(name) {
            Some(number) => Some(*number),
            None => db
                .prepare_cached("SELECT number FROM dataset WHERE name = ?1")?
                .query_row([name.name()], |r| r.get(0))
                .optional()?,
        };
        let has_collection = match number {
            Some(number) if self.collections.contains_key(&(agent.0, number)) => true,
            Some(number) => db
                .prepare_cached("SELECT 1 FROM collection WHERE agent = ?1 AND dataset = ?2")?
                .exists([i64::from(agent.0), number])?,
            None => false,
        };
        let count = |sql: &str, parameters: &[i64]| -> rusqlite::Result<u64> {
            db.prepare_cached(sql)?
                .query_row(params_from_iter(parameters), |r| r.get::<_, i64>(0))
                .map(|count| count as u64)
        };
        let of_agent = "SELECT count(*) FROM collection WHERE agent = ?1";
        if !has_collection && count(of_agent, &[agent.0.into()])? >= AGENT_DATASETS_MAX {
            return Ok(None);
        }
        let number = match number {
            Some(number) => number,
            None if count("SELECT count(*) FROM dataset", &[])? >= DATASETS_MAX => return Ok(None),
            None => db
                .prepare_cached(
                    "INSERT INTO dataset (name, documents, bytes) VALUES (?1, 0, 0)
                     RETURNING number",
                )?
                .query_row([name.name()], |r| r.get(0))?,
        };
        self.datasets.insert(name.clone(), number);
        Ok(Some(number))
    }

    /// Returns the agent's collection of a dataset; a new one gets a row.
    pub(super) fn collection(
        &mut self,
        db: &Connection,
        agent: AgentId,
        dataset: i64,
    ) -> rusqlite::Result<&mut Collection> {
        let entry = match self.collections.entry((agent.0, dataset)) {
            Entry::Occupied(entry) => return Ok(&mut entry.into_mut().1),
            Entry::Vacant(entry) => entry,
        };
        let stored = db
            .prepare_cached(
                "INSERT INTO collection (agent, dataset, documents, bytes, tombstones)
                     VALUES (?1, ?2, 0, 0, 0)
                     ON CONFLICT (agent, dataset) DO UPDATE SET documents = documents
                     RETURNING number, documents, bytes, tombstones",
            )?
            .query_row([i64::from(agent.0), dataset], |r| {
                Ok(Collection {
                    number: r.get(0)?,
                    dataset,
                    documents: r.get(1)?,
                    bytes: r.get(2)?,
                    tombstones: r.get(3)?,
                })
            })?;
        Ok(&mut entry.insert((stored, stored)).1)
    }

    /// Loads all collections of an agent and returns the numbers of their datasets.
    pub(super) fn collections_of(
        &mut self,
        db: &Connection,
        agent: AgentId,
    ) -> rusqlite::Result<Vec<i64>> {
        let datasets: Vec<i64> = db
            .prepare_cached("SELECT dataset FROM collection WHERE agent = ?1")?
            .query_map([agent.0], |r| r.get(0))?
            .collect::<Result<_, _>>()?;
        for dataset in &datasets {
            self.collection(db, agent, *dataset)?;
        }
        Ok(datasets)
    }

    /// Adds events of a kind and cause to the counters (or subtracts, with negative numbers).
    pub(super) fn count_events(&mut self, kind: i64, events: i64, bytes: i64) {
        let change = self.kinds.entry(kind).or_default();
        change.documents += events;
        change.bytes += bytes;
    }

    /// Writes changed rows back.
    pub(super) fn save(&mut self, db: &Connection) -> rusqlite::Result<()> {
        self.save_agents(db)?;
        self.save_collections(db)?;
        for (kind, change) in self.kinds.drain() {
            db.prepare_cached(
                "UPDATE event_kind_count SET events = events + ?2, bytes = bytes + ?3
                 WHERE kind = ?1",
            )?
            .execute(params![kind, change.documents, change.bytes])?;
        }
        self.progress.save(db)
    }

    /// Writes changed collections back and forgets collections and datasets, so that statements may
    /// change or delete their rows.
    pub(super) fn release_collections(&mut self, db: &Connection) -> rusqlite::Result<()> {
        self.save_collections(db)?;
        self.collections.clear();
        self.datasets.clear();
        Ok(())
    }

    fn save_agents(&mut self, db: &Connection) -> rusqlite::Result<()> {
        for (number, (before, now)) in &mut self.agents {
            if before == now {
                continue;
            }
            now.save(db, *number)?;
            *before = now.clone();
        }
        Ok(())
    }

    /// Writes the counters of changed collections, and adds the differences to those of their
    /// datasets.
    fn save_collections(&mut self, db: &Connection) -> rusqlite::Result<()> {
        let mut datasets: HashMap<i64, Change> = HashMap::new();
        for (before, now) in self.collections.values_mut() {
            if before == now {
                continue;
            }
            db.prepare_cached(
                "UPDATE collection SET documents = ?2, bytes = ?3, tombstones = ?4
                 WHERE number = ?1",
            )?
            .execute(params![now.number, now.documents, now.bytes, now.tombstones])?;
            let change = datasets.entry(now.dataset).or_default();
            change.documents += now.documents - before.documents;
            change.bytes += now.bytes - before.bytes;
            self.progress.tombstones += now.tombstones - before.tombstones;
            *before = *now;
        }
        for (dataset, change) in datasets {
            db.prepare_cached(
                "UPDATE dataset SET documents = documents + ?2, bytes = bytes + ?3
                 WHERE number = ?1",
            )?
            .execute(params![dataset, change.documents, change.bytes])?;
        }
        Ok(())
    }
}
