//! Commands to agents and each one's outcome. The counts stand with the command and are changed
//! in the transaction that changes an outcome.

use std::collections::BTreeMap;

use model::AgentId;
use rusqlite::{OptionalExtension, Row, Transaction, params};

use super::rows::{corrupt, cut, signed, unsigned};
use super::users::array;
use crate::registry::limits::{COMMANDS_MAX, DETAIL_BYTES_MAX};
use crate::registry::{
    CommandCounts, CommandKind, CommandRow, NewCommand, OutcomeRow, OutcomeState,
    RegistryStoreError, StoreResult,
};

const COMMAND_COLUMNS: &str = "id, kind, user, created_at_s, expires_at_s, pending, sent, \
     acknowledged, failed, expired, cancelled";

fn kind(name: &str) -> StoreResult<CommandKind> {
    CommandKind::from_name(name).ok_or_else(|| corrupt("command", name))
}

fn state(number: u8) -> StoreResult<OutcomeState> {
    OutcomeState::ALL
        .get(usize::from(number))
        .copied()
        .ok_or_else(|| corrupt("state", &number.to_string()))
}

fn command(row: &Row<'_>) -> StoreResult<CommandRow> {
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

fn outcome(row: &Row<'_>) -> StoreResult<OutcomeRow> {
    Ok(OutcomeRow {
        command: unsigned(row, 0)?,
        agent: AgentId(row.get(1)?),
        state: state(row.get(2)?)?,
        at_s: row.get(3)?,
        detail: row.get(4)?,
    })
}

/// All rows of the command in one statement.
pub(super) fn create(tx: &Transaction<'_>, new: &NewCommand) -> StoreResult<(u64, Vec<AgentId>)> {
    make_room(tx)?;
    tx.execute(
        "INSERT INTO command (kind, user, created_at_s, expires_at_s) VALUES (?1, ?2, ?3, ?4)",
        params![new.kind.name(), new.user, new.now_s, new.expires_at_s],
    )?;
    let id = tx.last_insert_rowid();
    let mut wanted: Vec<u32> = new.agents.iter().map(|a| a.0).filter(|id| *id > 0).collect();
    wanted.sort_unstable();
    wanted.dedup();
    let mut statement = tx.prepare_cached(
        "INSERT INTO command_outcome (command, agent, state, at_s, detail)
         SELECT ?1, w.value, 0, ?2, '' FROM rarray(?3) w
         WHERE EXISTS (SELECT 1 FROM agent WHERE id = w.value)
         RETURNING agent",
    )?;
    let wanted = array(wanted.into_iter().map(i64::from));
    let agents: Vec<AgentId> = statement
        .query_map(params![id, new.now_s, wanted], |r| r.get(0).map(AgentId))?
        .collect::<Result<_, _>>()?;
    tx.execute("UPDATE command SET pending = ?2 WHERE id = ?1", params![id, agents.len() as i64])?;
    Ok((id.cast_unsigned(), agents))
}

/// Drop the oldest finished commands beyond the limit.
fn make_room(tx: &Transaction<'_>) -> StoreResult<()> {
    let kept = tx.query_row("SELECT count(*) FROM command", [], |r| unsigned(r, 0))?;
    if kept < COMMANDS_MAX {
        return Ok(());
    }
    let oldest: Option<i64> =
        tx.query_row("SELECT min(id) FROM command WHERE pending + sent = 0", [], |r| r.get(0))?;
    let Some(oldest) = oldest else {
        let what = "unfinished commands: cancel some, or wait until they expire";
        return Err(RegistryStoreError::Limit { what, max: COMMANDS_MAX });
    };
    tx.execute("DELETE FROM command_outcome WHERE command = ?1", [oldest])?;
    tx.execute("DELETE FROM command WHERE id = ?1", [oldest])?;
    Ok(())
}

/// Whether `to` may replace `from`: forward only, and an agent's own answer replaces `expired`
/// and `cancelled`.
fn replaces(from: OutcomeState, to: OutcomeState) -> bool {
    use OutcomeState::{Acknowledged, Cancelled, Expired, Failed, Pending, Sent};
    match from {
        Pending => to != Pending,
        Sent => !matches!(to, Pending | Sent),
        Expired | Cancelled => matches!(to, Acknowledged | Failed),
        Acknowledged | Failed => false,
    }
}

pub(super) fn save_outcomes(tx: &Transaction<'_>, rows: &[OutcomeRow]) -> StoreResult<()> {
    let mut get =
        tx.prepare_cached("SELECT state FROM command_outcome WHERE command = ?1 AND agent = ?2")?;
    let mut set = tx.prepare_cached(
        "UPDATE command_outcome SET state = ?3, at_s = ?4, detail = ?5
         WHERE command = ?1 AND agent = ?2",
    )?;
    let mut moved: BTreeMap<(u64, OutcomeState, OutcomeState), u64> = BTreeMap::new();
    for row in rows {
        let found: Option<u8> =
            get.query_row(params![signed(row.command), row.agent.0], |r| r.get(0)).optional()?;
        let Some(from) = found.map(state).transpose()? else { continue };
        if replaces(from, row.state) {
            set.execute(params![
                signed(row.command),
                row.agent.0,
                row.state as u8,
                row.at_s,
                cut(&row.detail, DETAIL_BYTES_MAX)
            ])?;
            *moved.entry((row.command, from, row.state)).or_default() += 1;
        }
    }
    moved.into_iter().try_for_each(|((command, from, to), n)| count(tx, command, from, to, n))
}

/// Move `n` of a command's outcomes from one count to another.
fn count(
    tx: &Transaction<'_>,
    command: u64,
    from: OutcomeState,
    to: OutcomeState,
    n: u64,
) -> StoreResult<()> {
    // The names are words of an enum, never a caller's text.
    let sql = format!(
        "UPDATE command SET {from} = {from} - ?2, {to} = {to} + ?2 WHERE id = ?1",
        from = from.name(),
        to = to.name()
    );
    tx.prepare_cached(&sql)?.execute(params![signed(command), signed(n)])?;
    Ok(())
}

pub(super) fn finish(
    tx: &Transaction<'_>,
    id: u64,
    to: OutcomeState,
    now_s: i64,
) -> StoreResult<u64> {
    let mut total = 0;
    for from in [OutcomeState::Pending, OutcomeState::Sent] {
        let n = tx.execute(
            "UPDATE command_outcome SET state = ?3, at_s = ?4 WHERE command = ?1 AND state = ?2",
            params![signed(id), from as u8, to as u8, now_s],
        )? as u64;
        count(tx, id, from, to, n)?;
        total += n;
    }
    Ok(total)
}

/// The agent is removed: what it has not answered is taken back.
pub(super) fn agent_gone(tx: &Transaction<'_>, agent: AgentId, now_s: i64) -> StoreResult<()> {
    let open: Vec<OutcomeRow> = {
        let mut statement = tx.prepare_cached(
            "SELECT o.command, o.agent, o.state, o.at_s, o.detail
             FROM command c CROSS JOIN command_outcome o ON o.command = c.id AND o.agent = ?1
             WHERE c.pending + c.sent > 0 AND o.state <= 1",
        )?;
        statement.query_and_then([agent.0], outcome)?.collect::<StoreResult<_>>()?
    };
    let rows: Vec<OutcomeRow> = open
        .into_iter()
        .map(|o| OutcomeRow {
            state: OutcomeState::Cancelled,
            detail: "the agent was removed".into(),
            at_s: now_s,
            ..o
        })
        .collect();
    save_outcomes(tx, &rows)
}

pub(super) fn outstanding(
    tx: &Transaction<'_>,
) -> StoreResult<Vec<(OutcomeRow, CommandKind, i64)>> {
    let mut statement = tx.prepare_cached(
        "SELECT o.command, o.agent, o.state, o.at_s, o.detail, c.kind, c.expires_at_s
         FROM command c CROSS JOIN command_outcome o ON o.command = c.id
         WHERE c.pending + c.sent > 0 AND o.state <= 1",
    )?;
    statement
        .query_and_then([], |row| {
            Ok((outcome(row)?, kind(&row.get::<_, String>(5)?)?, row.get(6)?))
        })?
        .collect()
}

pub(super) fn one(tx: &Transaction<'_>, id: u64) -> StoreResult<Option<CommandRow>> {
    let sql = format!("SELECT {COMMAND_COLUMNS} FROM command WHERE id = ?1");
    tx.prepare_cached(&sql)?.query_and_then([signed(id)], command)?.next().transpose()
}

pub(super) fn newest(tx: &Transaction<'_>, limit: u64) -> StoreResult<Vec<CommandRow>> {
    let sql = format!("SELECT {COMMAND_COLUMNS} FROM command ORDER BY id DESC LIMIT ?1");
    tx.prepare_cached(&sql)?.query_and_then([signed(limit)], command)?.collect()
}

pub(super) fn outcome_counts(
    tx: &Transaction<'_>,
    id: u64,
    agents: &[AgentId],
) -> StoreResult<CommandCounts> {
    let mut statement = tx.prepare_cached(
        "SELECT state, count(*) FROM command_outcome
         WHERE command = ?1 AND agent IN rarray(?2) GROUP BY state",
    )?;
    let agents = array(agents.iter().map(|agent| i64::from(agent.0)));
    let mut rows = statement.query(params![signed(id), agents])?;
    let mut counts = CommandCounts::default();
    while let Some(row) = rows.next()? {
        let count = unsigned(row, 1)?;
        counts.total += count;
        *match state(row.get(0)?)? {
            OutcomeState::Pending => &mut counts.pending,
            OutcomeState::Sent => &mut counts.sent,
            OutcomeState::Acknowledged => &mut counts.acknowledged,
            OutcomeState::Failed => &mut counts.failed,
            OutcomeState::Expired => &mut counts.expired,
            OutcomeState::Cancelled => &mut counts.cancelled,
        } += count;
    }
    Ok(counts)
}

pub(super) fn outcomes(
    tx: &Transaction<'_>,
    id: u64,
    state: Option<OutcomeState>,
    after: Option<AgentId>,
    limit: u64,
) -> StoreResult<Vec<OutcomeRow>> {
    let mut statement = tx.prepare_cached(
        "SELECT command, agent, state, at_s, detail FROM command_outcome
         WHERE command = ?1 AND agent > ?2 AND (?3 IS NULL OR state = ?3)
         ORDER BY agent LIMIT ?4",
    )?;
    statement
        .query_and_then(
            params![signed(id), after.map_or(0, |a| a.0), state.map(|s| s as u8), signed(limit)],
            outcome,
        )?
        .collect()
}
