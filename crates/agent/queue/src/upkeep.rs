//! The byte limit, unused space, the size of the log, notes, and the clean shutdown.
//!
//! State is never dropped. Above the limit the oldest events are dropped, and a coverage event
//! reports their time range. If the state alone exceeds the limit, a coverage event reports this
//! once, and a tenth of the limit is kept for the newest events.

use std::sync::atomic::Ordering;

use model::{Coverage, CoverageKind, EventBody};
use parking_lot::MutexGuard;
use rusqlite::{Connection, OptionalExtension as _};

use crate::error::QueueError;
use crate::events::{event_gap, event_time_us};
use crate::files::{file_bytes, with_suffix};
use crate::inner::Inner;
use crate::known_gaps;
use crate::schema;
use crate::space::{Folded, Size, fold, fold_as_far_as_possible, vacuum};
use crate::writer::{Writer, roll_back_open};

/// Bytes written between two checks of the limits; less if the limit is small.
const LOOK_AFTER_BYTES: u64 = 4 * 1024 * 1024;
/// Percentage of the limit down to which events are dropped.
const DROP_TO_PERCENT: u64 = 90;
/// Percentage of the limit that events keep even if the state alone exceeds it, so that current
/// changes are still reported.
const EVENTS_KEPT_PERCENT: u64 = 10;
/// Most gaps that are appended again when the events around them are dropped.
const GAPS_KEPT_MAX: usize = 1000;
/// Unused pages up to which none are given back.
const UNUSED_PAGES_MIN: i64 = 1024;
/// Pages given back at a time, so that writers do not wait long.
const VACUUM_PAGES_PER_STEP: u32 = 512;
/// Steps after one acknowledgement: 1 GiB with pages of 4 KiB.
const VACUUM_STEPS: u32 = 512;
/// The log's size is checked this many times while it grows by its limit.
const LOG_LOOKS_PER_LIMIT: u64 = 4;

impl Inner {
    /// Adds `written` bytes, and checks the limits once enough was written. A failure is only
    /// logged, because it does not affect what was committed before.
    pub(crate) fn upkeep(&self, writer: &mut Writer, written: u64) {
        writer.written_bytes += written;
        if writer.written_bytes < LOOK_AFTER_BYTES.min(self.options.byte_limit / 32) {
            return;
        }
        writer.written_bytes = 0;
        if let Err(error) = self.keep_limits(writer) {
            tracing::warn!(path = %self.path.display(), %error, "upkeep of the agent database");
        }
    }

    /// Returns the size above which the log is reported: its size between two checkpoints, or the
    /// size that it is truncated to, whichever is larger.
    fn log_limit(&self) -> u64 {
        let pages = u64::from(self.options.checkpoint_pages());
        (pages * u64::from(self.options.page_bytes)).max(self.options.journal_size_limit_bytes)
    }

    /// Checks the log's size once it may have grown enough. `rows` is the number of rows written,
    /// each in a separate page at worst. A failure is only logged.
    pub(crate) fn watch_log(&self, writer: &mut Writer, rows: u64) {
        writer.log_bytes_max += rows.max(1) * u64::from(self.options.page_bytes);
        if writer.log_bytes_max < self.log_limit() / LOG_LOOKS_PER_LIMIT {
            return;
        }
        writer.log_bytes_max = 0;
        if let Err(error) = self.report_log(writer) {
            tracing::warn!(path = %self.path.display(), %error, "the size of the agent database's log");
        }
    }

    fn keep_limits(&self, writer: &mut Writer) -> Result<(), QueueError> {
        let size = Size::of(&writer.conn).map_err(|e| self.classify("measure", e))?;
        let used = size.used_bytes();
        writer.limit_reported &= used > self.options.byte_limit;
        if used > self.options.byte_limit {
            let target = self.options.byte_limit / 100 * DROP_TO_PERCENT;
            self.drop_events(writer, used, used - target)?;
        }
        Ok(())
    }

    /// Gives unused pages back to the file system while they are more than half of the file: after a
    /// flood whose events were acknowledged. Writers get the lock between two steps. A failure is
    /// only logged.
    pub(crate) fn give_back(&self) {
        for _ in 0..VACUUM_STEPS {
            let mut guard = self.writer.lock();
            let Some(writer) = guard.as_mut() else { return };
            let given = Size::of(&writer.conn).and_then(|size| {
                let is_much = size.unused > UNUSED_PAGES_MIN && size.unused > size.pages / 2;
                is_much.then(|| vacuum(&writer.conn, VACUUM_PAGES_PER_STEP)).transpose()
            });
            match given.map_err(|e| self.classify("give back space", e)) {
                // A commit that waits comes first.
                Ok(Some(())) => MutexGuard::unlock_fair(guard),
                Ok(None) => return,
                Err(error) => {
                    return tracing::warn!(path = %self.path.display(), %error, "unused space");
                }
            }
        }
    }

    /// Drops the oldest events until about `excess` bytes are free, and appends a coverage event in
    /// the same transaction. If no event can be dropped, reports once that the state alone exceeds
    /// the limit.
    fn drop_events(&self, writer: &mut Writer, used: u64, excess: u64) -> Result<(), QueueError> {
        let limit = self.options.byte_limit;
        let reported = writer.limit_reported;
        let dropped = self.transact(writer, "drop events", |txn| {
            let held: i64 = txn.conn.query_row(
                "SELECT coalesce(sum(length(body)), 0) FROM event",
                [],
                |row| row.get(0),
            )?;
            let spare = (held as u64).saturating_sub(limit / 100 * EVENTS_KEPT_PERCENT);
            let oldest = oldest_events(txn.conn, excess.min(spare))?;
            let gap = match &oldest {
                Some(oldest) => Coverage {
                    kind: CoverageKind::EventsDropped,
                    path: String::new(),
                    from_us: oldest.from_us,
                    to_us: oldest.to_us,
                    found: Some(oldest.count + oldest.earlier),
                    lasting: None,
                    detail: format!(
                        "{} events dropped: the queue reached its limit of {limit} bytes; \
                         raise it or restore the connection to the server",
                        oldest.count + oldest.earlier
                    ),
                },
                None if reported => return Ok(0),
                None => Coverage {
                    kind: CoverageKind::LimitReached,
                    path: String::new(),
                    from_us: txn.now_us,
                    to_us: txn.now_us,
                    found: None,
                    lasting: None,
                    detail: format!(
                        "state alone takes {used} bytes, the queue's limit is {limit}: raise it \
                         or watch less"
                    ),
                },
            };
            let count = oldest.as_ref().map_or(0, |oldest| oldest.count);
            if let Some(oldest) = oldest {
                oldest.drop_them(txn.conn)?;
            }
            let body = EventBody::of_coverage(gap).to_json();
            txn.conn.execute("INSERT INTO event(dataset, body) VALUES(0, ?1)", [body])?;
            Ok(count)
        })?;
        if !(reported && dropped == 0) {
            tracing::warn!(path = %self.path.display(), limit, used, dropped, "byte limit reached");
        }
        writer.limit_reported |= dropped == 0;
        Ok(())
    }

    /// Reports a write-ahead log that a reader keeps from shrinking: in the program's log, as a
    /// coverage event and in the status. Writers do not wait for the reader. The log shrinks when
    /// it ends.
    fn report_log(&self, writer: &mut Writer) -> Result<(), QueueError> {
        let limit = self.log_limit();
        let wal_bytes = file_bytes(&with_suffix(&self.path, "-wal"));
        let large = wal_bytes > limit;
        if large == writer.log_reported {
            return Ok(());
        }
        // If the whole log was checkpointed, the next writer restarts and truncates it.
        if large {
            let folded = fold_as_far_as_possible(&writer.conn);
            if folded.map_err(|e| self.failed(writer, "fold the log in", e))? == Folded::All {
                return Ok(());
            }
        }
        let since_us = self.transact(writer, "report the log", |txn| {
            let since_us = if large { txn.now_us } else { 0 };
            schema::set_meta(txn.conn, schema::META_LOG_HELD, since_us as i64)?;
            if large {
                let gap = Coverage {
                    kind: CoverageKind::LimitReached,
                    path: String::new(),
                    from_us: txn.now_us,
                    to_us: txn.now_us,
                    found: None,
                    lasting: None,
                    detail: format!(
                        "the write-ahead log takes {wal_bytes} bytes, its limit is {limit}: a \
                         reader keeps it; `holdfast queue status` names the process, end it"
                    ),
                };
                let body = EventBody::of_coverage(gap).to_json();
                txn.conn.execute("INSERT INTO event(dataset, body) VALUES(0, ?1)", [body])?;
            }
            Ok(since_us)
        })?;
        if large {
            tracing::warn!(path = %self.path.display(), wal_bytes, limit, "a reader keeps the write-ahead log from shrinking");
        } else {
            tracing::info!(path = %self.path.display(), wal_bytes, "the log is small again");
        }
        writer.log_reported = large;
        self.log_held_us.store(since_us, Ordering::Relaxed);
        Ok(())
    }

    pub(crate) fn compact(&self) -> Result<u64, QueueError> {
        let mut guard = self.writer.lock();
        let writer = guard.as_mut().ok_or_else(|| self.closed())?;
        let failed = |error| self.classify("compact", error);
        let before = Size::of(&writer.conn).map_err(failed)?;
        vacuum(&writer.conn, 0).map_err(failed)?;
        fold(&writer.conn).map_err(|error| self.failed(writer, "compact", error))?;
        let after = Size::of(&writer.conn).map_err(failed)?;
        Ok((before.pages - after.pages).max(0) as u64 * after.page_bytes)
    }

    /// Marks a clean end and checkpoints the log; see [`crate::Queue::close`].
    pub(crate) fn close(&self) -> Result<(), QueueError> {
        let mut guard = self.writer.lock();
        let Some(writer) = guard.take() else { return Ok(()) };
        // The writer is closed last, because only the last connection can remove the log.
        self.readers.lock().clear();
        let closed = self.finish(&writer);
        drop(writer);
        *self.lock.lock() = None;
        closed
    }

    /// Marks a clean shutdown durably in any mode, then checkpoints the log.
    fn finish(&self, writer: &Writer) -> Result<(), QueueError> {
        self.count_damage(&writer.conn);
        if let Some(detail) = writer.poisoned.get() {
            return Err(QueueError::Poisoned { path: self.path.clone(), detail: detail.clone() });
        }
        if self.damage.is_doubtful() {
            // Without the mark, the next open checks the whole file.
            return Ok(());
        }
        let end = || -> rusqlite::Result<()> {
            let conn = &writer.conn;
            roll_back_open(conn)?;
            conn.pragma_update(None, "synchronous", "FULL")?;
            // The flush of this commit covers all earlier ones, which are in the same log file.
            conn.execute_batch("BEGIN IMMEDIATE")?;
            schema::set_meta(conn, schema::META_CLOCK, writer.clock.last() as i64)?;
            schema::set_meta(conn, schema::META_DAMAGE_MET, 0)?;
            schema::set_meta(conn, schema::META_CLEAN, 1)?;
            conn.execute_batch("COMMIT")
        };
        end().map_err(|error| self.classify("close", error))?;
        if let Err(error) = fold(&writer.conn) {
            writer.poison(&error.to_string());
            tracing::warn!(path = %self.path.display(), %error, "the write-ahead log was not removed");
        }
        Ok(())
    }

    /// Counts the runs that met damage. After several in a row the next open replaces the file,
    /// because its checks do not find the damage.
    fn count_damage(&self, conn: &Connection) {
        let count = || -> rusqlite::Result<()> {
            roll_back_open(conn)?;
            let before = schema::meta(conn, schema::META_DAMAGE_MET)?.unwrap_or(0);
            schema::set_meta(conn, schema::META_DAMAGE_MET, before + 1)
        };
        if self.damage.was_met()
            && let Err(error) = count()
        {
            tracing::debug!(%error, "that damage was met is not noted");
        }
    }

    pub(crate) fn note(&self, name: &str) -> Result<Option<Vec<u8>>, QueueError> {
        self.read(|conn| {
            conn.prepare_cached("SELECT value FROM note WHERE name = ?1")?
                .query_row([name], |row| Ok(row.get_ref(0)?.as_bytes()?.to_vec()))
                .optional()
        })
    }

    pub(crate) fn set_note(&self, name: &str, value: &[u8]) -> Result<(), QueueError> {
        let too_large = |what, bytes, bytes_max| QueueError::TooLarge {
            dataset: format!("note {name}"),
            what,
            bytes,
            bytes_max,
        };
        if value.len() > crate::NOTE_BYTES_MAX {
            return Err(too_large("value", value.len(), crate::NOTE_BYTES_MAX));
        }
        let mut guard = self.writer.lock();
        let writer = guard.as_mut().ok_or_else(|| self.closed())?;
        let kept = self.transact(writer, "keep a note", |txn| {
            let others: i64 = txn.conn.query_row(
                "SELECT count(*) FROM note WHERE name <> ?1",
                [name],
                |row| row.get(0),
            )?;
            if others >= crate::NOTES_MAX as i64 {
                return Ok(false);
            }
            txn.conn
                .prepare_cached("INSERT OR REPLACE INTO note(name, value) VALUES(?1, ?2)")?
                .execute((name, value))?;
            Ok(true)
        })?;
        let notes_max = crate::NOTES_MAX as usize;
        if kept { Ok(()) } else { Err(too_large("number of notes", notes_max + 1, notes_max)) }
    }
}

/// The oldest events, to be dropped.
#[derive(Default)]
struct Oldest {
    last_seq: i64,
    /// Number of events that are lost.
    count: u64,
    /// Number of events that were dropped before according to gaps among these; it is reported
    /// again.
    earlier: u64,
    from_us: u64,
    to_us: u64,
    /// Other gaps among them, with their datasets. They are appended again.
    kept: Vec<(i64, Vec<u8>)>,
}

impl Oldest {
    /// Deletes the events, counts the lost ones, and appends the gaps among them again.
    fn drop_them(self, conn: &Connection) -> rusqlite::Result<()> {
        conn.execute("DELETE FROM event WHERE seq <= ?1", [self.last_seq])?;
        let before = schema::meta(conn, schema::META_DROPPED)?.unwrap_or(0);
        schema::set_meta(conn, schema::META_DROPPED, before + self.count as i64)?;
        // The start of a gap may be appended again after its end.
        known_gaps::forget(conn)?;
        let mut keep = conn.prepare("INSERT INTO event(dataset, body) VALUES(?1, ?2)")?;
        self.kept.into_iter().try_for_each(|gap| keep.execute(gap).map(drop))
    }

    fn add(&mut self, dataset: i64, body: &[u8]) {
        let at_us = event_time_us(body);
        let gap = event_gap(body);
        let (from_us, to_us) = match gap {
            Some(gap) if gap.kind == CoverageKind::EventsDropped => {
                self.earlier += gap.found.unwrap_or(0);
                (gap.from_us, gap.to_us)
            }
            Some(_) if self.kept.len() < GAPS_KEPT_MAX => {
                self.kept.push((dataset, body.to_vec()));
                return;
            }
            _ => {
                self.count += 1;
                (at_us, at_us)
            }
        };
        self.from_us = if self.to_us == 0 { from_us } else { self.from_us.min(from_us) };
        self.to_us = self.to_us.max(to_us);
    }
}

/// Returns the oldest events, about `bytes` in total; `None` if all of them are gaps.
fn oldest_events(conn: &Connection, bytes: u64) -> rusqlite::Result<Option<Oldest>> {
    if bytes == 0 {
        return Ok(None);
    }
    let mut select = conn.prepare("SELECT seq, dataset, body FROM event ORDER BY seq")?;
    let mut rows = select.query([])?;
    let mut oldest = Oldest::default();
    let mut freed = 0;
    while let Some(row) = rows.next()? {
        let body = row.get_ref(2)?.as_bytes()?;
        oldest.last_seq = row.get(0)?;
        // A dataset column of another type counts as 0, the queue itself.
        oldest.add(row.get_ref(1)?.as_i64().unwrap_or(0), body);
        freed += body.len() as u64;
        if freed >= bytes {
            break;
        }
    }
    // If there are only gaps, dropping them would free nothing, because they are appended again.
    Ok((oldest.count > 0).then_some(oldest))
}
