//! Retention: deletes events past their age or size, expired tombstones, and empty datasets.
//!
//! [`StateStore::retain`] only reads. It decides what one part of the run deletes and submits it as
//! a record of the journal. Applying the record deletes the rows, so followers and replays delete
//! the same rows at the same position. Each part that deletes events updates the coverage event that
//! the run's first part added.

use std::collections::BTreeMap;

use model::limits::TOMBSTONE_SECONDS;
use model::timestamp::micros;
use model::{AgentId, Applied, Coverage, CoverageKind, EventBody, Record, RetentionEvent};
use rusqlite::{Connection, OptionalExtension, params};

use super::StateStore;
use super::apply::{Applier, Stop};
use super::event_time::EventTime;
use super::transaction_cache::Progress;
use crate::error::{Context, StateError};
use crate::limits::RETAIN_CHUNK_ROWS;
use crate::query::{Retained, Retention};
use columns::EventColumns;
use sqlite::Reader;

const WHAT: &str = "find what is past its retention";

/// Selects the tombstones that one part deletes, in an order that is the same in every copy of the
/// state.
const EXPIRED: &str = "SELECT collection, id FROM tombstone WHERE at_us < ?1
    ORDER BY at_us, collection, id LIMIT ?2";
const UNUSED_COLLECTION: &str = "FROM collection WHERE documents = 0 AND tombstones = 0";
const UNUSED_DATASET: &str =
    "FROM dataset WHERE documents = 0 AND number NOT IN (SELECT dataset FROM collection)";

impl StateStore {
    /// Submits records that delete the events that exceed the policy, and expired tombstones.
    /// `submit` must return after the record is applied. Every earlier record must be applied before
    /// the call. A run that deletes events adds one coverage event of agent 000. Events that arrive
    /// during the run are kept.
    ///
    /// # Errors
    /// Returns an error if the store cannot be read, and the error of `submit`. The coverage event
    /// reports what the parts before it deleted.
    pub fn retain<E: From<StateError>>(
        &self,
        policy: &Retention,
        now_us: u64,
        mut submit: impl FnMut(Record) -> Result<Applied, E>,
    ) -> Result<Retained, E> {
        let mut run =
            Run { policy, now_us, newest: None, span: None, retained: Retained::default() };
        while let Some(part) = self.read(&Reader::server(), WHAT, |db| run.next_part(db))? {
            if let Some(reason) = submit(part)?.quarantined {
                return Err(StateError::Query(format!("the part was set aside: {reason}")).into());
            }
        }
        Ok(run.retained)
    }
}

/// One run of retention, and what its parts have deleted so far.
struct Run<'p> {
    policy: &'p Retention,
    now_us: u64,
    /// Number of the newest event when the run began.
    newest: Option<i64>,
    /// Times of the deleted events, microseconds since the epoch.
    span: Option<(u64, u64)>,
    retained: Retained,
}

/// An event that may be deleted.
struct OldEvent {
    number: i64,
    bytes: i64,
    received_us: u64,
    found_us: u64,
}

impl Run<'_> {
    /// Returns the record of the next part; `None` if nothing is left to delete.
    fn next_part(&mut self, db: &Connection) -> Result<Option<Record>, StateError> {
        let through = self.pass_events(db).context(WHAT)?;
        if through > 0 {
            let event = Some(self.event(through));
            let through = through as u64;
            return Ok(Some(Record::Retain { through, tombstones_before_us: 0, event }));
        }
        let tombstones_before_us = self.now_us.saturating_sub(TOMBSTONE_SECONDS * 1_000_000);
        let tombstones = expired_tombstones(db, tombstones_before_us).context(WHAT)?;
        self.retained.tombstones += tombstones;
        let is_part = tombstones > 0 || has_unused(db).context(WHAT)?;
        Ok(is_part.then_some(Record::Retain { through: 0, tombstones_before_us, event: None }))
    }

    /// Counts up to a chunk of events that exceed the policy, and returns the number of the last
    /// one; 0 if there are none.
    fn pass_events(&mut self, db: &Connection) -> rusqlite::Result<i64> {
        let newest = match self.newest {
            Some(newest) => newest,
            None => *self.newest.insert(Progress::load(db)?.last_event),
        };
        let mut stored: i64 = db
            .prepare_cached("SELECT coalesce(sum(bytes), 0) FROM event_kind_count")?
            .query_row([], |r| r.get(0))?;
        let cutoff = self.now_us.saturating_sub(self.policy.age_us_max);
        let bytes_max = i64::try_from(self.policy.event_bytes_max).unwrap_or(i64::MAX);
        let mut last = 0;
        for event in oldest(db, newest)? {
            if event.received_us >= cutoff && stored <= bytes_max {
                break;
            }
            stored -= event.bytes;
            last = event.number;
            self.retained.events += 1;
            self.retained.bytes += event.bytes as u64;
            let found = event.found_us;
            let (from, to) = self.span.unwrap_or((found, found));
            self.span = Some((from.min(found), to.max(found)));
        }
        Ok(last)
    }

    /// Returns the coverage event that reports the run up to this part.
    fn event(&mut self, through: i64) -> RetentionEvent {
        let (from_us, to_us) = self.span.unwrap_or_default();
        let Retained { events, bytes, coverage, .. } = &mut self.retained;
        let id = coverage.get_or_insert_with(|| format!("retention-{}-{through}", self.now_us));
        let body = EventBody::of_coverage(Coverage {
            kind: CoverageKind::Retention,
            path: String::new(),
            from_us,
            to_us,
            found: None,
            lasting: None,
            detail: format!(
                "{events} events of {bytes} bytes, found from {} to {}, were dropped: past their \
                 age or size",
                micros(from_us),
                micros(to_us)
            ),
        });
        RetentionEvent { id: id.clone(), at_us: self.now_us, body: body.to_json() }
    }
}

/// Returns the oldest events up to the number `newest`, at most a chunk.
fn oldest(db: &Connection, newest: i64) -> rusqlite::Result<Vec<OldEvent>> {
    db.prepare_cached(
        "SELECT number, length(body), received_us, found_us FROM event
         WHERE number <= ?1 ORDER BY number LIMIT ?2",
    )?
    .query_map([newest, RETAIN_CHUNK_ROWS as i64], |r| {
        Ok(OldEvent {
            number: r.get(0)?,
            bytes: r.get(1)?,
            received_us: r.get::<_, i64>(2)? as u64,
            found_us: r.get::<_, i64>(3)? as u64,
        })
    })?
    .collect()
}

/// Returns the number of tombstones that the next part deletes.
fn expired_tombstones(db: &Connection, before_us: u64) -> rusqlite::Result<u64> {
    db.prepare_cached(&format!("SELECT count(*) FROM ({EXPIRED})"))?
        .query_row([before_us as i64, RETAIN_CHUNK_ROWS as i64], |r| r.get::<_, i64>(0))
        .map(|count| count as u64)
}

/// Returns true if a collection or a dataset is empty.
fn has_unused(db: &Connection) -> rusqlite::Result<bool> {
    let is_there = |unused: &str| db.prepare_cached(&format!("SELECT 1 {unused}"))?.exists([]);
    Ok(is_there(UNUSED_COLLECTION)? || is_there(UNUSED_DATASET)?)
}

impl Applier<'_> {
    /// Applies one part of a retention run; returns the number of events that it deleted.
    pub(super) fn retain(
        &mut self,
        through: u64,
        tombstones_before_us: u64,
        event: Option<&RetentionEvent>,
    ) -> Result<u64, Stop> {
        if through > 0 {
            let events = self.delete_events(through as i64)?;
            // Nothing is reported if a part that waited for disk space has deleted the same events.
            if let Some(event) = event.filter(|_| events > 0) {
                self.report_retention(event)?;
            }
            return Ok(events);
        }
        // The statements below read and change rows that are kept in memory.
        self.kept.release_collections(self.db)?;
        self.delete_tombstones(tombstones_before_us)?;
        // The limits on datasets count those that are in use.
        for unused in [UNUSED_COLLECTION, UNUSED_DATASET] {
            self.db.prepare_cached(&format!("DELETE {unused}"))?.execute([])?;
        }
        Ok(0)
    }

    /// Deletes the events up to a number, and what refers to them; returns how many there were.
    fn delete_events(&mut self, through: i64) -> rusqlite::Result<u64> {
        // An index in the order of the groups would be read as a whole.
        let groups: Vec<(u32, i64, i64, i64)> = self
            .db
            .prepare_cached(
                "SELECT agent, kind, count(*), sum(length(body)) FROM event NOT INDEXED
                 WHERE number <= ?1 GROUP BY agent, kind",
            )?
            .query_map([through], |r| Ok((r.get(0)?, r.get(1)?, r.get(2)?, r.get(3)?)))?
            .collect::<Result<_, _>>()?;
        let mut deleted = 0;
        for (agent, kind, events, bytes) in groups {
            self.kept.count_events(kind, -events, -bytes);
            self.kept.agent(self.db, AgentId(agent))?.events -= events;
            deleted += events as u64;
        }
        for rows in [
            "DELETE FROM event WHERE number <= ?1",
            "DELETE FROM candidate WHERE event_number <= ?1",
            "DELETE FROM open_gap WHERE number <= ?1",
        ] {
            self.db.prepare_cached(rows)?.execute([through])?;
        }
        Ok(deleted)
    }

    /// Adds the run's coverage event, or updates it.
    fn report_retention(&mut self, event: &RetentionEvent) -> Result<(), Stop> {
        let RetentionEvent { id, at_us, body } = event;
        let unfit = || Stop::Unfit("the event of the retention is not one".into());
        let time = EventTime::of_server(*at_us);
        let stored: Option<(i64, i64)> = self
            .db
            .prepare_cached("SELECT kind, length(body) FROM event WHERE agent = 0 AND id = ?1")?
            .query_row([id], |r| Ok((r.get(0)?, r.get(1)?)))
            .optional()?;
        let Some((kind, bytes)) = stored else {
            return match self.event(AgentId::SERVER, id, time, body)? {
                Ok(_) => Ok(()),
                Err(_) => Err(unfit()),
            };
        };
        let columns = EventColumns::read(body).ok_or_else(unfit)?;
        self.db
            .prepare_cached(
                "UPDATE event SET body = ?2, found_us = ?3 WHERE agent = 0 AND id = ?1",
            )?
            .execute(params![id, body, time.order_us(columns.found_us()) as i64])?;
        self.kept.count_events(kind, 0, body.len() as i64 - bytes);
        Ok(())
    }

    /// Deletes up to a chunk of the tombstones of removals before a time, the oldest first.
    fn delete_tombstones(&mut self, before_us: u64) -> rusqlite::Result<()> {
        let old: Vec<(i64, rusqlite::types::Value)> = self
            .db
            .prepare_cached(EXPIRED)?
            .query_map([before_us as i64, RETAIN_CHUNK_ROWS as i64], |r| {
                Ok((r.get(0)?, r.get(1)?))
            })?
            .collect::<Result<_, _>>()?;
        let mut deleted: BTreeMap<i64, i64> = BTreeMap::new();
        for (collection, id) in &old {
            self.run.drop_tombstone.execute(params![collection, id])?;
            *deleted.entry(*collection).or_default() += 1;
        }
        for (collection, tombstones) in deleted {
            self.db
                .prepare_cached(
                    "UPDATE collection SET tombstones = tombstones - ?2 WHERE number = ?1",
                )?
                .execute([collection, tombstones])?;
        }
        self.kept.progress.tombstones -= old.len() as i64;
        Ok(())
    }
}
