//! Replay at opening: applies the journal's records after the state's position.

use std::time::Instant;

use journal::{AppendError, Journal};
use model::{Position, Record};
use state::StateStore;

use crate::error::CommitError;
use crate::options::{CommitOptions, ReplayReport};

impl From<AppendError> for CommitError {
    fn from(error: AppendError) -> Self {
        match error {
            AppendError::Poisoned(reason) => Self::Poisoned(reason),
            AppendError::TooLarge { bytes, bytes_max } => {
                Self::TooLarge { bytes: bytes as u64, limit: bytes_max as u64 }
            }
            AppendError::Closed => Self::Closed,
            other => Self::Full(other.to_string()),
        }
    }
}

/// Records gathered for one transaction.
struct Replay<'a> {
    state: &'a StateStore,
    options: &'a CommitOptions,
    batch: Vec<(Position, Record)>,
    bytes: u64,
    report: ReplayReport,
}

/// Applies the records of `journal` after the position of `state`. Used for a follower's copy of a
/// server's folder, which accepts no submits. Blocks.
///
/// # Errors
/// See [`crate::Commit::open`].
pub fn catch_up(
    journal: &Journal,
    state: &StateStore,
    options: &CommitOptions,
) -> Result<ReplayReport, CommitError> {
    replay(journal, state, options)
}

/// Applies the records that the state lacks.
pub(crate) fn replay(
    journal: &Journal,
    state: &StateStore,
    options: &CommitOptions,
) -> Result<ReplayReport, CommitError> {
    let started = Instant::now();
    let applied = state.applied().map_err(|e| CommitError::State(e.to_string()))?;
    let end = journal.persisted_position();
    check(applied, journal.first_position(), end)?;
    let report = ReplayReport { from: applied, to: applied, ..ReplayReport::default() };
    let mut replay = Replay { state, options, batch: Vec::new(), bytes: 0, report };
    if end > applied.0 {
        replay.read(journal, end)?;
    }
    let mut report = replay.report;
    report.took_us = started.elapsed().as_micros() as u64;
    if report.records > 0 {
        tracing::info!(from = %report.from, to = %report.to, records = report.records,
            quarantined = report.quarantined, took_us = report.took_us, "journal replayed");
    }
    Ok(report)
}

/// Returns an error for a record of a newer version. Quarantining it would lose a record that a
/// newer program acknowledged.
pub(crate) fn check_version(position: Position, bytes: &[u8]) -> Result<(), CommitError> {
    match bytes.first() {
        Some(&found) if found > Record::VERSION => {
            Err(CommitError::NewerRecord { position, found, known: Record::VERSION })
        }
        _ => Ok(()),
    }
}

/// Returns an error if the journal lacks a record that the state needs: one after `applied`, or one
/// that was applied already. `first` is 0 for an empty journal.
fn check(applied: Position, first: u64, end: u64) -> Result<(), CommitError> {
    if end < applied.0 {
        return Err(CommitError::Behind { end, applied });
    }
    let needed = Position(applied.0 + 1);
    // The first record of an empty journal will have the position after its end.
    let first = if first == 0 { end + 1 } else { first };
    if first > needed.0 {
        return Err(CommitError::Gap { first, applied, needed });
    }
    Ok(())
}

impl Replay<'_> {
    fn read(&mut self, journal: &Journal, end: u64) -> Result<(), CommitError> {
        let failed = |position, error: journal::ReadError| CommitError::Journal {
            position,
            reason: error.to_string(),
        };
        let mut next = self.report.to.0 + 1;
        for read in journal.read_from(next).map_err(|e| failed(next, e))? {
            let (position, bytes) = read.map_err(|e| failed(next, e))?;
            if position != next {
                let reason = format!("record {position} comes next");
                return Err(CommitError::Journal { position: next, reason });
            }
            next += 1;
            self.replay_record(Position(position), &bytes)?;
        }
        self.flush()?;
        // `next` may be beyond `end`: a follower's journal grows during the replay.
        if next <= end {
            let reason = format!("the journal ends there instead of at {end}");
            return Err(CommitError::Journal { position: next, reason });
        }
        Ok(())
    }

    /// Adds one record to the batch, and applies the batch when it is full. A record that cannot be
    /// decoded is quarantined after the records before it were applied.
    fn replay_record(&mut self, position: Position, bytes: &[u8]) -> Result<(), CommitError> {
        self.bytes += bytes.len() as u64;
        check_version(position, bytes)?;
        match Record::decode(bytes) {
            Ok(record) => self.batch.push((position, record)),
            Err(reason) => {
                self.flush()?;
                tracing::error!(%position, reason, "record set aside");
                self.state.quarantine(position, bytes, &reason).map_err(state_failed)?;
                self.report.records += 1;
                self.report.quarantined += 1;
                self.report.to = position;
            }
        }
        if self.batch.len() >= self.options.batch_records_max
            || self.bytes >= self.options.batch_bytes_max
        {
            self.flush()?;
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<(), CommitError> {
        self.bytes = 0;
        let Some((last, _)) = self.batch.last() else { return Ok(()) };
        let last = *last;
        let applied = self.state.apply(&self.batch).map_err(state_failed)?;
        self.report.records += applied.len() as u64;
        self.report.quarantined +=
            applied.iter().filter(|a| a.quarantined.is_some()).count() as u64;
        self.report.to = last;
        self.batch.clear();
        // The log's own size counts: a follower catches up in many calls, and a process that is
        // killed again and again replays a little each time.
        if self.state.checkpoint_due() {
            self.state.checkpoint().map_err(state_failed)?;
        }
        Ok(())
    }
}

#[expect(clippy::needless_pass_by_value, reason = "the shape map_err wants")]
fn state_failed(error: state::StateError) -> CommitError {
    CommitError::State(error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn journal_must_continue_at_the_state_position() {
        let fits = |applied, first, end| check(Position(applied), first, end).is_ok();
        assert!(fits(0, 0, 0) && fits(0, 1, 5) && fits(5, 1, 5) && fits(5, 6, 9) && fits(5, 0, 5));
        let gap = check(Position(5), 7, 9).unwrap_err().to_string();
        assert!(gap.contains('7') && gap.contains('5'), "{gap}");
        assert!(matches!(check(Position(0), 3, 9), Err(CommitError::Gap { .. })));
        assert!(matches!(check(Position(0), 0, 9), Err(CommitError::Gap { .. })));
        assert!(matches!(check(Position(5), 1, 4), Err(CommitError::Behind { .. })));
        assert!(matches!(check(Position(5), 0, 0), Err(CommitError::Behind { .. })));
    }
}
