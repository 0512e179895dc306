//! Retention: drops events by age or size, in short transactions, and expired tombstones. Each
//! transaction that drops events updates the coverage event that the run's first one added.

use model::limits::TOMBSTONE_SECONDS;
use model::timestamp::micros;
use model::{AgentId, Coverage, CoverageKind, EventBody};
use rusqlite::{Connection, TransactionBehavior, params};

use super::StateStore;
use super::apply::Applier;
use super::kinds::kind_number;
use super::transaction_cache::Progress;
use crate::error::{Context, StateError};
use crate::limits::RETAIN_CHUNK_ROWS;
use crate::query::{EventKind, Retained, Retention};

impl StateStore {
    /// Drops events that exceed the policy and expired tombstones. Each run that drops events adds
    /// one coverage event of agent 000.
    ///
    /// # Errors
    /// Returns an error if a transaction fails; the coverage event reports what earlier ones
    /// dropped.
    pub fn retain(&self, policy: &Retention, now_us: u64) -> Result<Retained, StateError> {
        let mut dropped = Dropped::default();
        // The lock is released between the chunks, so that the applier can run.
        while drop_events(&mut self.writer.lock(), policy, now_us, &mut dropped)? {}
        let mut tombstones = 0;
        loop {
            match drop_tombstones(&mut self.writer.lock(), now_us)? {
                0 => break,
                some => tombstones += some,
            }
        }
        drop_unused_datasets(&mut self.writer.lock())?;
        Ok(dropped.retained(tombstones))
    }
}

const WHAT: &str = "drop what is past its retention";

/// The totals that one run has dropped so far.
#[derive(Default)]
pub(super) struct Dropped {
    events: u64,
    bytes: u64,
    from_us: Option<u64>,
    to_us: u64,
    coverage: Option<String>,
    /// The newest event when the run began: later ones, the run's own among them, are kept.
    newest: Option<i64>,
}

impl Dropped {
    pub(super) fn retained(self, tombstones: u64) -> Retained {
        Retained { events: self.events, bytes: self.bytes, tombstones, coverage: self.coverage }
    }

    fn event(&self) -> EventBody {
        let from_us = self.from_us.unwrap_or_default();
        EventBody::of_coverage(Coverage {
            kind: CoverageKind::Retention,
            path: String::new(),
            from_us,
            to_us: self.to_us,
            found: None,
            lasting: None,
            detail: format!(
                "{} events of {} bytes, found from {} to {}, were dropped: past their age or size",
                self.events,
                self.bytes,
                micros(from_us),
                micros(self.to_us)
            ),
        })
    }
}

/// An event that may be dropped.
struct Candidate {
    number: i64,
    agent: u32,
    kind: i64,
    bytes: i64,
    received_us: u64,
    found_us: u64,
}

/// Drops up to a chunk of events; returns true if there may be more to drop.
fn drop_events(
    db: &mut Connection,
    policy: &Retention,
    now_us: u64,
    dropped: &mut Dropped,
) -> Result<bool, StateError> {
    let tx = db.transaction_with_behavior(TransactionBehavior::Immediate).context(WHAT)?;
    if dropped.newest.is_none() {
        dropped.newest = Some(Progress::load(&tx).context(WHAT)?.last_event);
    }
    let candidates = oldest(&tx, dropped.newest.unwrap_or_default()).context(WHAT)?;
    let mut stored: i64 = tx
        .prepare_cached("SELECT coalesce(sum(bytes), 0) FROM event_kind_count")
        .and_then(|mut sum| sum.query_row([], |r| r.get(0)))
        .context(WHAT)?;
    let cutoff = now_us.saturating_sub(policy.age_us_max);
    let bytes_max = i64::try_from(policy.event_bytes_max).unwrap_or(i64::MAX);
    let own = dropped.coverage.clone();
    let mut applier = Applier::in_transaction(&tx).context(WHAT)?;
    let full = candidates.len() == RETAIN_CHUNK_ROWS;
    let mut last = None;
    for event in &candidates {
        if event.received_us >= cutoff && stored <= bytes_max {
            break;
        }
        stored -= event.bytes;
        last = Some(event.number);
        dropped.events += 1;
        dropped.bytes += event.bytes as u64;
        dropped.from_us = Some(dropped.from_us.map_or(event.found_us, |f| f.min(event.found_us)));
        dropped.to_us = dropped.to_us.max(event.found_us);
        applier.cached_rows().count_events(event.kind, -1, -event.bytes);
        applier.cached_rows().agent(&tx, AgentId(event.agent)).context(WHAT)?.events -= 1;
    }
    let Some(last) = last else { return Ok(false) };
    tx.prepare_cached("DELETE FROM event WHERE number <= ?1")
        .and_then(|mut delete| delete.execute([last]))
        .context(WHAT)?;
    tx.prepare_cached("DELETE FROM candidate WHERE event_number <= ?1")
        .and_then(|mut s| s.execute([last]))
        .context(WHAT)?;
    tx.prepare_cached("DELETE FROM open_gap WHERE number <= ?1")
        .and_then(|mut delete| delete.execute([last]))
        .context(WHAT)?;
    let id = own.unwrap_or_else(|| format!("retention-{now_us}-{last}"));
    record_coverage(&tx, &mut applier, &id, now_us, dropped).context(WHAT)?;
    dropped.coverage = Some(id);
    applier.finish().context(WHAT)?;
    tx.commit().context(WHAT)?;
    Ok(full && candidates.last().is_some_and(|c| c.number == last))
}

fn oldest(db: &Connection, newest: i64) -> rusqlite::Result<Vec<Candidate>> {
    db.prepare_cached(
        "SELECT number, agent, kind, length(body), received_us, found_us FROM event
         WHERE number <= ?1 ORDER BY number LIMIT ?2",
    )?
    .query_map([newest, RETAIN_CHUNK_ROWS as i64], |r| {
        Ok(Candidate {
            number: r.get(0)?,
            agent: r.get(1)?,
            kind: r.get(2)?,
            bytes: r.get(3)?,
            received_us: r.get::<_, i64>(4)? as u64,
            found_us: r.get::<_, i64>(5)? as u64,
        })
    })?
    .collect()
}

/// Adds the run's coverage event, or updates it.
fn record_coverage(
    db: &Connection,
    applier: &mut Applier<'_>,
    id: &str,
    now_us: u64,
    dropped: &Dropped,
) -> rusqlite::Result<()> {
    let event = dropped.event();
    if dropped.coverage.is_none() {
        return applier.server_event(id, now_us, &event);
    }
    let body = event.to_json();
    let before: i64 = db
        .prepare_cached("SELECT length(body) FROM event WHERE agent = 0 AND id = ?1")?
        .query_row([id], |r| r.get(0))?;
    db.prepare_cached("UPDATE event SET body = ?2, found_us = ?3 WHERE agent = 0 AND id = ?1")?
        .execute(params![id, body, dropped.to_us as i64])?;
    let coverage = kind_number(EventKind::Coverage);
    applier.cached_rows().count_events(coverage, 0, body.len() as i64 - before);
    Ok(())
}

/// Drops up to a chunk of expired tombstones; returns their number.
fn drop_tombstones(db: &mut Connection, now_us: u64) -> Result<u64, StateError> {
    let cutoff = now_us.saturating_sub(TOMBSTONE_SECONDS * 1_000_000);
    let tx = db.transaction_with_behavior(TransactionBehavior::Immediate).context(WHAT)?;
    let old: Vec<(i64, rusqlite::types::Value)> = tx
        .prepare_cached("SELECT collection, id FROM tombstone WHERE at_us < ?1 LIMIT ?2")
        .and_then(|mut s| {
            s.query_map(params![cutoff as i64, RETAIN_CHUNK_ROWS as i64], |r| {
                Ok((r.get(0)?, r.get(1)?))
            })?
            .collect()
        })
        .context(WHAT)?;
    for (collection, id) in &old {
        tx.prepare_cached("DELETE FROM tombstone WHERE collection = ?1 AND id = ?2")
            .and_then(|mut s| s.execute(params![collection, id]))
            .context(WHAT)?;
        tx.prepare_cached("UPDATE collection SET tombstones = tombstones - 1 WHERE number = ?1")
            .and_then(|mut s| s.execute([collection]))
            .context(WHAT)?;
    }
    tx.prepare_cached("UPDATE progress SET tombstones = tombstones - ?1")
        .and_then(|mut update| update.execute([old.len() as i64]))
        .context(WHAT)?;
    tx.commit().context(WHAT)?;
    Ok(old.len() as u64)
}

/// Drops collections without documents and tombstones, and datasets without collections, so that
/// their limits count what is in use.
fn drop_unused_datasets(db: &mut Connection) -> Result<(), StateError> {
    let tx = db.transaction_with_behavior(TransactionBehavior::Immediate).context(WHAT)?;
    for unused in [
        "DELETE FROM collection WHERE documents = 0 AND tombstones = 0",
        "DELETE FROM dataset WHERE documents = 0
         AND number NOT IN (SELECT dataset FROM collection)",
    ] {
        tx.prepare_cached(unused).and_then(|mut delete| delete.execute([])).context(WHAT)?;
    }
    tx.commit().context(WHAT)
}
