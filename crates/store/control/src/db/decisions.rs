//! Transactions of the writer. With a log of rows, decisions that wait for the writer share one: each
//! runs in a savepoint, and the last one logs the rows of all and commits. Every caller waits for that.
//!
//! # Order
//! BEGIN IMMEDIATE; decisions; read the changed rows; append their record, which persists it; store
//! its position; COMMIT without a flush. What a power cut takes from the database is in the log, and
//! is applied at the next start. Absolute rows make it harmless to apply a record twice.
//!
//! # Locking
//! The writer's mutex is held while a decision runs, and through append and commit. A shared
//! transaction stays open while the mutex changes hands, but only while a caller waits for
//! the mutex: the last one ends it. A waiting caller holds no lock of this crate.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use parking_lot::{Condvar, Mutex};
use rusqlite::{Connection, ffi};

use super::connections::{ControlStore, Writer};
use crate::log::RowLogError;
use crate::{ControlError, ControlResult};
use sqlite::Reader;

/// Most decisions in one transaction.
const MEMBERS_MAX: usize = 64;
/// Changed rows above which a transaction takes in no other decision.
const SHARED_ROWS_MAX: usize = 1_000;

/// The fate of a piece of work.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// It survives a power cut when the call returns.
    Durable,
    /// It survives a killed process when the call returns, and is logged with a later record.
    Soft,
    /// As durable; and rows that earlier transactions changed are logged.
    Reports,
    /// It is rolled back.
    Trial,
}

impl Kind {
    fn is_durable(self) -> bool {
        matches!(self, Self::Durable | Self::Reports)
    }
}

/// The transaction that is open, and what several calls wait for.
pub(super) struct Open {
    shared: Arc<Shared>,
    durable: bool,
    reports: bool,
    members: usize,
}

/// The outcome of a transaction that several calls share.
#[derive(Default)]
struct Shared {
    outcome: Mutex<Option<Result<(), Failed>>>,
    signal: Condvar,
}

/// The reason why a shared transaction was rolled back.
#[derive(Clone)]
enum Failed {
    NotLogged(String),
    Poisoned(String),
    Sqlite(ffi::Error, Option<String>),
    Other(String),
}

impl From<ControlError> for Failed {
    fn from(error: ControlError) -> Self {
        match error {
            ControlError::NotLogged(why) => Self::NotLogged(why),
            ControlError::Poisoned(why) => Self::Poisoned(why),
            ControlError::Sqlite(rusqlite::Error::SqliteFailure(code, why)) => {
                Self::Sqlite(code, why)
            }
            other => Self::Other(other.to_string()),
        }
    }
}

impl From<Failed> for ControlError {
    fn from(failed: Failed) -> Self {
        match failed {
            Failed::NotLogged(why) => Self::NotLogged(why),
            Failed::Poisoned(why) => Self::Poisoned(why),
            Failed::Sqlite(code, why) => Self::Sqlite(rusqlite::Error::SqliteFailure(code, why)),
            Failed::Other(why) => Self::Corrupt(why),
        }
    }
}

impl Shared {
    fn end(&self, outcome: Result<(), Failed>) {
        *self.outcome.lock() = Some(outcome);
        self.signal.notify_all();
    }

    fn wait(&self) -> ControlResult<()> {
        let mut outcome = self.outcome.lock();
        loop {
            match &*outcome {
                Some(outcome) => return outcome.clone().map_err(Into::into),
                None => self.signal.wait(&mut outcome),
            }
        }
    }
}

/// Returns the error for work that succeeded although SQLite rolled its transaction back.
fn rolled_back() -> ControlError {
    ControlError::NotLogged("the transaction was rolled back".into())
}

/// Rolls the open transaction back if a decision panics.
struct OnPanic<'a>(&'a mut Writer);

impl Drop for OnPanic<'_> {
    fn drop(&mut self) {
        if std::thread::panicking()
            && let Some(open) = self.0.open.take()
        {
            self.0.roll_back();
            open.shared
                .end(Err(Failed::Other("a decision of the same transaction panicked".into())));
        }
    }
}

impl ControlStore {
    /// Runs work on the writer, in a transaction that other calls may share.
    pub(super) fn decide<T>(
        &self,
        reader: &Reader,
        kind: Kind,
        work: impl FnOnce(&Connection) -> ControlResult<T>,
    ) -> ControlResult<T> {
        self.waiting.fetch_add(1, Ordering::SeqCst);
        let mut writer = self.writer.lock();
        self.waiting.fetch_sub(1, Ordering::SeqCst);
        let guard = OnPanic(&mut writer);
        // Lists write what agents reported before they read; they work while the file is gone.
        let there = if kind.is_durable() { self.expect_file() } else { Ok(()) };
        let done = there.and_then(|()| guard.0.join(reader, kind, work));
        let shared = guard.0.open.as_ref().map(|open| Arc::clone(&open.shared));
        if self.waiting.load(Ordering::SeqCst) == 0 || guard.0.is_full() {
            guard.0.settle();
        }
        drop(guard);
        drop(writer);
        match shared {
            // Work that failed may have failed because of what another one wrote.
            Some(shared) => shared.wait().and(done),
            None => done,
        }
    }
}

impl Writer {
    /// Runs work in the open transaction, or in a new one.
    fn join<T>(
        &mut self,
        reader: &Reader,
        kind: Kind,
        work: impl FnOnce(&Connection) -> ControlResult<T>,
    ) -> ControlResult<T> {
        let Some(open) = &mut self.open else { return self.begin(reader, kind, work) };
        open.members += 1;
        let charge = self.meter.charge(reader);
        self.conn.prepare_cached("SAVEPOINT decision")?.execute([])?;
        let out = work(&self.conn);
        drop(charge);
        if self.conn.is_autocommit() {
            // After some errors SQLite rolls the whole transaction back.
            let why = out.as_ref().err().map_or_else(String::new, ToString::to_string);
            self.abandon(Failed::NotLogged(format!("the transaction was rolled back: {why}")));
            return out.and_then(|_| Err(rolled_back()));
        }
        if out.is_err() || kind == Kind::Trial {
            self.conn.prepare_cached("ROLLBACK TO decision")?.execute([])?;
        }
        self.conn.prepare_cached("RELEASE decision")?.execute([])?;
        if out.is_ok() {
            open.durable |= kind.is_durable();
            open.reports |= kind == Kind::Reports;
        }
        out
    }

    /// Runs the first work of a transaction, without a savepoint: in one, SQLite keeps a copy of each
    /// page for each statement, which makes 50,000 statements three times as slow.
    fn begin<T>(
        &mut self,
        reader: &Reader,
        kind: Kind,
        work: impl FnOnce(&Connection) -> ControlResult<T>,
    ) -> ControlResult<T> {
        self.failures.expect_none()?;
        let durable = kind.is_durable();
        if self.log.as_ref().is_none_or(|log| log.rows.is_none()) {
            // Set each time, so that no transaction inherits the level of another.
            let level = if durable { "FULL" } else { "NORMAL" };
            self.conn.pragma_update(None, "synchronous", level)?;
        }
        self.conn.execute_batch("BEGIN IMMEDIATE")?;
        let reports = kind == Kind::Reports;
        self.open = Some(Open { shared: Arc::default(), durable, reports, members: 1 });
        let charge = self.meter.charge(reader);
        let mut out = work(&self.conn);
        drop(charge);
        if self.conn.is_autocommit() {
            out = out.and_then(|_| Err(rolled_back()));
        }
        if out.is_err() || kind == Kind::Trial {
            self.open = None;
            self.roll_back();
        }
        out
    }

    fn is_full(&self) -> bool {
        let Some(log) = self.log.as_ref().filter(|log| log.rows.is_some()) else { return true };
        self.open.as_ref().is_some_and(|open| open.members >= MEMBERS_MAX)
            || log.capture.noted() > SHARED_ROWS_MAX
    }

    /// Ends the open transaction, which is rolled back already, with an error for all who share it.
    fn abandon(&mut self, why: Failed) {
        let open = self.open.take();
        self.roll_back();
        if let Some(open) = open {
            open.shared.end(Err(why));
        }
    }

    fn roll_back(&mut self) {
        // SQLite has done it already after some errors.
        if !self.conn.is_autocommit()
            && let Err(error) = self.conn.execute_batch("ROLLBACK")
        {
            self.failures.close(format!("rollback failed: {error}"));
        }
        if let Some(log) = &self.log {
            log.capture.forget();
        }
    }

    /// Logs and commits the open transaction, if there is one, and answers every call that shares it.
    pub(super) fn settle(&mut self) {
        let Some(open) = self.open.take() else { return };
        let outcome = self.finish(&open);
        if outcome.is_err() {
            self.roll_back();
        }
        open.shared.end(outcome.map_err(Into::into));
    }

    fn finish(&mut self, open: &Open) -> ControlResult<()> {
        let Self { conn, log, failures, .. } = self;
        let commit = || {
            let done = conn.prepare_cached("COMMIT").and_then(|mut c| c.execute([])).map(drop);
            failures.note(&done);
            done
        };
        let Some(log) = log else { return Ok(commit()?) };
        let Some(rows) = log.rows.as_ref().filter(|_| open.durable) else {
            log.capture.postpone(conn)?;
            return Ok(commit()?);
        };
        let captured = log.capture.take(conn, open.reports)?;
        if captured.rows.is_empty() {
            commit()?;
            log.capture.logged(captured);
            return Ok(());
        }
        let position = rows.append(captured.rows.encode()).map_err(|error| match error {
            RowLogError::Refused(why) => ControlError::NotLogged(why),
            RowLogError::TooLarge { bytes_max } => {
                ControlError::Limit { what: "bytes of the rows of one decision", max: bytes_max }
            }
            RowLogError::Unknown(why) => {
                let cause = format!("the journal failed: {why}");
                failures.close(cause.clone());
                ControlError::Poisoned(cause)
            }
        })?;
        let mut stored = conn.prepare_cached("UPDATE progress SET applied = ?1")?;
        let done = stored.execute([position.cast_signed()]).and_then(|_| commit());
        if let Err(error) = done {
            // The record will be applied, so nothing may be decided before it is.
            let cause = format!("record {position} is logged and could not be stored: {error}");
            failures.close(cause.clone());
            return Err(ControlError::Poisoned(cause));
        }
        rows.committed(position);
        log.capture.logged(captured);
        Ok(())
    }
}
