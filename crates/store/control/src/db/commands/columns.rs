//! Rows of the tables `command` and `command_outcome`.

use model::AgentId;
use rusqlite::Row;

use crate::db::rows::{corrupt, unsigned};
use crate::{CommandCounts, CommandKind, CommandRow, ControlResult, OutcomeRow, OutcomeState};

pub(super) const COMMAND_COLUMNS: &str = "id, kind, user, created_at_s, expires_at_s, pending, sent, \
     acknowledged, failed, expired, cancelled";

pub(super) fn kind(name: &str) -> ControlResult<CommandKind> {
    CommandKind::from_name(name).ok_or_else(|| corrupt("command", name))
}

pub(super) fn state(number: u8) -> ControlResult<OutcomeState> {
    OutcomeState::ALL
        .get(usize::from(number))
        .copied()
        .ok_or_else(|| corrupt("state", &number.to_string()))
}

pub(super) fn command(row: &Row<'_>) -> ControlResult<CommandRow> {
    let mut counts = CommandCounts {
        pending: unsigned(row, 5)?,
        sent: unsigned(row, 6)?,
        acknowledged: unsigned(row, 7)?,
        failed: unsigned(row, 8)?,
        expired: unsigned(row, 9)?,
        cancelled: unsigned(row, 10)?,
        total: 0,
    };
    counts.total = counts.pending
        + counts.sent
        + counts.acknowledged
        + counts.failed
        + counts.expired
        + counts.cancelled;
    Ok(CommandRow {
        id: unsigned(row, 0)?,
        kind: kind(&row.get::<_, String>(1)?)?,
        user: row.get(2)?,
        created_at_s: row.get(3)?,
        expires_at_s: row.get(4)?,
        counts,
    })
}

pub(super) fn outcome(row: &Row<'_>) -> ControlResult<OutcomeRow> {
    Ok(OutcomeRow {
        command: unsigned(row, 0)?,
        agent: AgentId(row.get(1)?),
        state: state(row.get(2)?)?,
        at_s: row.get(3)?,
        detail: row.get(4)?,
    })
}
