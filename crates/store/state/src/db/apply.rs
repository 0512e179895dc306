//! One batch of records in one transaction.
//!
//! Versions are compared here, not in SQL, so that the answer can name the version that won. A
//! record whose own content makes it fail aborts the attempt; the batch is retried with that
//! record set aside. Any other failure (disk, damage) fails the batch.

use model::limits::{DOCUMENT_BYTES_MAX, DOCUMENT_ID_BYTES_MAX};
use model::{
    AgentId, Applied, Dataset, Incarnation, Position, Record, SessionRecord, SkipReason, Skipped,
    Write,
};
use rusqlite::{Connection, ErrorCode, OptionalExtension, Row, params};

use super::event_time::{EventTime, received_us};
use super::kinds;
use super::replay;
use super::sessions::SessionStatus;
use super::statements::{Found, Put, Statements, store};
use super::transaction_cache::{Collection, TransactionCache};
use crate::limits::{DATASET_NAME_BYTES_MAX, EVENT_ID_BYTES_MAX, SESSION_ID_BYTES_MAX};
use columns::{Columns, EventColumns};
use sqlite::Packed;

/// The reason why an attempt ended.
pub(super) enum Failure {
    /// The database failed.
    Database(rusqlite::Error),
    /// The record at this index of the batch cannot be applied.
    Record(usize, String),
}

/// The reason why one record was not applied.
pub(super) enum Stop {
    Database(rusqlite::Error),
    Unfit(String),
}

impl From<rusqlite::Error> for Stop {
    fn from(error: rusqlite::Error) -> Self {
        let own = matches!(error, rusqlite::Error::ToSqlConversionFailure(_))
            || matches!(
                error.sqlite_error_code(),
                Some(
                    ErrorCode::ConstraintViolation
                        | ErrorCode::TooBig
                        | ErrorCode::TypeMismatch
                        | ErrorCode::ParameterOutOfRange
                )
            );
        if own { Self::Unfit(error.to_string()) } else { Self::Database(error) }
    }
}

/// One open transaction.
pub(super) struct Applier<'c> {
    pub(super) db: &'c Connection,
    pub(super) kept: TransactionCache,
    pub(super) run: Statements<'c>,
}

impl<'c> Applier<'c> {
    /// Returns an applier on a connection that is already inside a transaction.
    pub(super) fn in_transaction(db: &'c Connection) -> rusqlite::Result<Self> {
        let run = Statements::prepare(db)?;
        Ok(Self { db, kept: TransactionCache::load(db)?, run })
    }

    /// Returns the position of the last record applied.
    pub(super) fn applied(&self) -> Position {
        Position(self.kept.progress.applied)
    }

    /// Writes the rows kept in memory back. The caller commits.
    pub(super) fn finish(mut self) -> rusqlite::Result<Position> {
        self.kept.save(self.db)?;
        Ok(Position(self.kept.progress.applied))
    }

    /// Applies a batch; `aside` names the records that an earlier attempt found invalid, and why.
    pub(super) fn apply(
        &mut self,
        batch: &[(Position, Record)],
        aside: &[Option<String>],
    ) -> Result<Vec<Applied>, Failure> {
        let mut answers = Vec::with_capacity(batch.len());
        for (place, (position, record)) in batch.iter().enumerate() {
            if position.0 <= self.kept.progress.applied {
                answers.push(Applied::default());
                continue;
            }
            let applied = match aside.get(place).and_then(Option::as_ref) {
                Some(reason) => {
                    let at_us = received_us(record);
                    self.set_aside(*position, record.agent(), at_us, &record.encode(), reason)
                        .map_err(Failure::Database)?;
                    Applied { quarantined: Some(reason.clone()), ..Applied::default() }
                }
                None => self.record(record).map_err(|stop| match stop {
                    Stop::Database(error) => Failure::Database(error),
                    Stop::Unfit(reason) => Failure::Record(place, reason),
                })?,
            };
            self.kept.progress.applied = position.0;
            answers.push(applied);
        }
        Ok(answers)
    }

    /// Marks a position as applied.
    pub(super) fn advance(&mut self, position: Position) {
        self.kept.progress.applied = position.0;
    }

    fn record(&mut self, record: &Record) -> Result<Applied, Stop> {
        match record {
            Record::Session(session) => self.session(session),
            Record::AgentRemoved { agent, incarnation, .. } => {
                let changed = self.remove_agent(*agent, *incarnation)?;
                Ok(Applied { changed, ..Applied::default() })
            }
            Record::ServerEvent { id, at_us, body } => {
                match self.event(AgentId::SERVER, id, EventTime::of_server(*at_us), body)? {
                    Ok(new) => Ok(Applied { changed: u64::from(new), ..Applied::default() }),
                    Err(_) => Err(Stop::Unfit("the server's event is not one".into())),
                }
            }
            Record::AgentEvents { at_us, events } => {
                let changed = self.agent_events(*at_us, events)?;
                Ok(Applied { changed, ..Applied::default() })
            }
            Record::Report(report) => self.report(report),
            // `registry.db` applies them, and stores its own position.
            Record::RegistryRows(_) => Ok(Applied::default()),
            Record::Retain { through, tombstones_before_us, event } => {
                let changed = self.retain(*through, *tombstones_before_us, event.as_ref())?;
                Ok(Applied { changed, ..Applied::default() })
            }
        }
    }

    fn session(&mut self, session: &SessionRecord) -> Result<Applied, Stop> {
        let mut applied = Applied::default();
        if !self.admit(session.agent, session.incarnation)? {
            return Ok(Applied { refused: true, ..applied });
        }
        if session.session.len() > SESSION_ID_BYTES_MAX {
            return Err(Stop::Unfit("the session's id is too long".into()));
        }
        match self.kept.agent(self.db, session.agent)?.session_status(session) {
            SessionStatus::No => {}
            SessionStatus::Applied => {
                let skipped = replay::overtaken(self.db, session)?;
                return Ok(Applied { replayed: true, skipped, ..applied });
            }
            SessionStatus::Outdated => return Ok(Applied { outdated: true, ..applied }),
        }
        for (index, write) in session.writes.iter().enumerate() {
            let (id, outcome) = self.write(session, write)?;
            match outcome {
                Ok(changed) => applied.changed += changed,
                Err((reason, version)) => applied.skipped.push(Skipped {
                    index: index as u32,
                    id: id.to_owned(),
                    reason,
                    version,
                }),
            }
        }
        let agent = self.kept.agent(self.db, session.agent)?;
        if !session.writes.iter().any(|w| matches!(w, Write::Describe { .. })) {
            agent.mentioned(&session.overlay);
        }
        agent.applied(session);
        Ok(applied)
    }

    /// Returns true if records of this life of the agent are still accepted. A new life begins
    /// empty. Life 0, of a number without a registered agent, ends no other life.
    pub(super) fn admit(&mut self, agent: AgentId, incarnation: Incarnation) -> Result<bool, Stop> {
        let current = self.kept.agent(self.db, agent)?.incarnation;
        if current == Some(incarnation.0) {
            return Ok(true);
        }
        if incarnation.0 == 0 && current.is_some() {
            return Ok(false);
        }
        let removed = self
            .db
            .prepare_cached("SELECT 1 FROM removed WHERE agent = ?1 AND incarnation = ?2")?
            .exists(params![agent.0, incarnation.0 as i64])?;
        if removed && incarnation.0 != 0 {
            return Ok(false);
        }
        if let Some(former) = current {
            self.remove_agent(agent, Incarnation(former))?;
        }
        self.kept.agent(self.db, agent)?.begin_life(incarnation.0);
        Ok(true)
    }

    /// Ends a life and records it with the number of its last event. Life 0 can begin and end
    /// again. Returns the number of documents removed.
    fn remove_agent(&mut self, agent: AgentId, incarnation: Incarnation) -> Result<u64, Stop> {
        let last_event = self.kept.progress.last_event;
        let row = self.kept.agent(self.db, agent)?;
        let current = row.incarnation == Some(incarnation.0);
        if current || incarnation.0 != 0 {
            // A life that was replaced has reported nothing since then.
            let through = if current { last_event } else { 0 };
            self.db
                .prepare_cached(
                    "INSERT INTO removed (agent, incarnation, through, name)
                     VALUES (?1, ?2, ?3, ?4) ON CONFLICT DO UPDATE
                     SET through = max(through, excluded.through), name = excluded.name
                     WHERE excluded.through > 0",
                )?
                .execute(params![agent.0, incarnation.0 as i64, through, row.name()])?;
        }
        if !current {
            return Ok(0);
        }
        row.end();
        self.end_all_gaps(agent)?;
        self.drop_self_reports(agent)?;
        let mut changed = 0;
        for dataset in self.kept.collections_of(self.db, agent)? {
            changed += self.clean(agent, dataset)?;
        }
        Ok(changed)
    }

    /// Applies one write; returns its id, and the number of changes or the reason it was left out.
    #[expect(clippy::type_complexity, reason = "read in one place only")]
    fn write<'w>(
        &mut self,
        session: &SessionRecord,
        write: &'w Write,
    ) -> Result<(&'w str, Result<u64, (SkipReason, u64)>), Stop> {
        let received_us = session.received_at_us;
        match write {
            Write::Upsert { dataset, id, version, body } => {
                let Some(dataset) = self.dataset(session.agent, dataset)? else {
                    return Ok((id, Err((SkipReason::Index, 0))));
                };
                let packed_id = Packed::new(id);
                let put = Put { id, packed_id, version: *version, body, received_us };
                Ok((id, self.upsert(session.agent, dataset, &put)?))
            }
            Write::Delete { dataset, id, version } => {
                let Some(dataset) = self.dataset(session.agent, dataset)? else {
                    return Ok((id, Err((SkipReason::Index, 0))));
                };
                Ok((id, self.delete(session.agent, dataset, id, *version, received_us)?))
            }
            Write::Clean { dataset } => {
                let dataset = self.dataset(session.agent, dataset)?;
                let removed = dataset.map_or(Ok(0), |dataset| self.clean(session.agent, dataset));
                Ok(("", Ok(removed?)))
            }
            Write::Event { id, body } => {
                let time = EventTime::of_session(session);
                let outcome = self.event(session.agent, id, time, body)?;
                Ok((id, outcome.map(u64::from).map_err(|reason| (reason, 0))))
            }
            Write::Describe { subject, version, check } => {
                let agent = self.kept.agent(self.db, session.agent)?;
                let outcome = agent.described(&session.overlay, *subject, *version, *check);
                Ok(("", outcome.map_err(|kept| (SkipReason::Stale, kept))))
            }
            Write::ClockOff { .. } => Ok(("", Ok(0))),
            Write::RaiseVersion { dataset, version } => {
                Ok(("", Ok(self.raise_version(session.agent, dataset, *version)?)))
            }
        }
    }

    fn dataset(&mut self, agent: AgentId, dataset: &Dataset) -> Result<Option<i64>, Stop> {
        let bytes = dataset.name().len();
        if bytes == 0 || bytes > DATASET_NAME_BYTES_MAX || dataset.is_events() {
            return Err(Stop::Unfit(format!("{:?} is no dataset of documents", dataset.name())));
        }
        Ok(self.kept.dataset(self.db, agent, dataset)?)
    }

    fn find_document(
        &mut self,
        collection: &Collection,
        id: &Packed<'_>,
        path: &str,
    ) -> rusqlite::Result<Option<Found>> {
        if collection.documents == 0 {
            return Ok(None);
        }
        let read = |r: &Row<'_>| {
            let version: i64 = r.get(1)?;
            let version = version as u64;
            Ok(Found { number: r.get(0)?, version, bytes: r.get(2)?, same_path: r.get(3)? })
        };
        self.run.find.query_row(params![collection.number, id, path], read).optional()
    }

    fn tombstone(
        &mut self,
        collection: &Collection,
        id: &Packed<'_>,
    ) -> rusqlite::Result<Option<u64>> {
        if collection.tombstones == 0 {
            return Ok(None);
        }
        self.run
            .find_tombstone
            .query_row(params![collection.number, id], |r| r.get::<_, i64>(0))
            .optional()
            .map(|version| version.map(|v| v as u64))
    }

    fn upsert(
        &mut self,
        agent: AgentId,
        dataset: i64,
        put: &Put<'_>,
    ) -> Result<Result<u64, (SkipReason, u64)>, Stop> {
        if put.id.is_empty() || put.id.len() > DOCUMENT_ID_BYTES_MAX {
            return Ok(Err((SkipReason::Id, 0)));
        }
        if put.body.len() > DOCUMENT_BYTES_MAX {
            return Ok(Err((SkipReason::TooLarge, 0)));
        }
        let Some(columns) = Columns::read(put.body) else {
            return Ok(Err((SkipReason::Json, 0)));
        };
        let mut collection = *self.kept.collection(self.db, agent, dataset)?;
        let found = self.find_document(&collection, &put.packed_id, columns.path())?;
        let tombstone = self.tombstone(&collection, &put.packed_id)?;
        let stored = found.as_ref().map(|f| f.version).max(tombstone).unwrap_or(0);
        if put.version != 0 && stored > put.version {
            return Ok(Err((SkipReason::Stale, stored)));
        }
        if let Some(found) = &found
            && found.version == put.version
            && self.run.same.query_row(params![found.number, put.body], |r| r.get(0))?
        {
            return Ok(Ok(0));
        }
        if tombstone.is_some() {
            self.run.drop_tombstone.execute(params![collection.number, put.packed_id])?;
            collection.tombstones -= 1;
        }
        match &found {
            None => store(&mut self.run.insert, collection.number, put, &columns, false)?,
            Some(found) => {
                let is_newer = put.version > found.version;
                store(&mut self.run.update, found.number, put, &columns, is_newer)?;
                if !found.same_path {
                    self.run.rename.execute(params![found.number, columns.path()])?;
                }
            }
        }
        collection.documents += i64::from(found.is_none());
        collection.bytes += put.body.len() as i64 - found.map_or(0, |f| f.bytes);
        *self.kept.collection(self.db, agent, dataset)? = collection;
        Ok(Ok(1))
    }

    fn delete(
        &mut self,
        agent: AgentId,
        dataset: i64,
        id: &str,
        version: u64,
        at_us: u64,
    ) -> Result<Result<u64, (SkipReason, u64)>, Stop> {
        if id.is_empty() || id.len() > DOCUMENT_ID_BYTES_MAX {
            return Ok(Err((SkipReason::Id, 0)));
        }
        let packed = Packed::new(id);
        let mut collection = *self.kept.collection(self.db, agent, dataset)?;
        let found = self.find_document(&collection, &packed, "")?;
        if let Some(found) = &found {
            if version != 0 && found.version > version {
                return Ok(Err((SkipReason::Stale, found.version)));
            }
            self.run.delete.execute([found.number])?;
            collection.documents -= 1;
            collection.bytes -= found.bytes;
        }
        let tombstone = self.tombstone(&collection, &packed)?;
        if version > tombstone.unwrap_or(0) {
            let values = params![collection.number, packed, version as i64, at_us as i64];
            self.run.put_tombstone.execute(values)?;
            collection.tombstones += i64::from(tombstone.is_none());
        }
        *self.kept.collection(self.db, agent, dataset)? = collection;
        Ok(Ok(u64::from(found.is_some())))
    }

    /// Removes every document and tombstone of a collection; returns the number of documents.
    fn clean(&mut self, agent: AgentId, dataset: i64) -> rusqlite::Result<u64> {
        let collection = *self.kept.collection(self.db, agent, dataset)?;
        if collection.documents > 0 {
            self.db
                .prepare_cached("DELETE FROM document WHERE collection = ?1")?
                .execute([collection.number])?;
        }
        if collection.tombstones > 0 {
            self.db
                .prepare_cached("DELETE FROM tombstone WHERE collection = ?1")?
                .execute([collection.number])?;
        }
        *self.kept.collection(self.db, agent, dataset)? =
            Collection { documents: 0, bytes: 0, tombstones: 0, ..collection };
        Ok(collection.documents as u64)
    }

    /// Appends an event; returns true if it is new, or the reason why it was left out.
    pub(super) fn event(
        &mut self,
        agent: AgentId,
        id: &str,
        time: EventTime,
        body: &[u8],
    ) -> rusqlite::Result<Result<bool, SkipReason>> {
        if id.is_empty() || id.len() > EVENT_ID_BYTES_MAX {
            return Ok(Err(SkipReason::Id));
        }
        if body.len() > DOCUMENT_BYTES_MAX {
            return Ok(Err(SkipReason::TooLarge));
        }
        let Some(columns) = EventColumns::read(body) else {
            return Ok(Err(SkipReason::Json));
        };
        let kind = kinds::number(columns.kind(), columns.cause());
        let number = self.kept.progress.last_event + 1;
        let found_us = time.order_us(columns.found_us()) as i64;
        let new = self.run.insert_event.execute(params![
            number,
            agent.0,
            id,
            time.received_us() as i64,
            found_us,
            kind,
            columns.path(),
            columns.changed(),
            body,
            columns.moved_from(),
            columns.user(),
            columns.process(),
            columns.cause_id(),
            columns.cause_package(),
        ])? == 1;
        if new {
            self.kept.progress.last_event = number;
            for name in columns.candidates() {
                self.run.insert_candidate.execute(params![name, found_us, number])?;
            }
            self.kept.count_events(kind, 1, body.len() as i64);
            self.kept.agent(self.db, agent)?.events += 1;
            if columns.kind() == crate::query::EventKind::Coverage {
                self.follow_gaps(agent, &columns, body.len() as i64)?;
            }
        }
        Ok(Ok(new))
    }
}
