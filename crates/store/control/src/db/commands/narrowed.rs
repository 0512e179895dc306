//! Commands as seen by callers who may see only some agents.

use roaring::RoaringBitmap;
use rusqlite::{Connection, params};

use super::{Target, state};
use crate::db::rows::{signed, unsigned};
use crate::db::users::array;
use crate::{CommandCounts, CommandRow, ControlResult, Permitted};

/// Returns the agents that a scope names, computed once for all commands of a call.
pub(super) fn named(scope: &Permitted) -> RoaringBitmap {
    match scope {
        Permitted::All => RoaringBitmap::new(),
        Permitted::Only(ids) | Permitted::Except(ids) => ids.iter().map(|agent| agent.0).collect(),
    }
}

/// Returns the command with the counts of the scope's agents only; `named` are the agents that the
/// scope names. An earlier agent with the same number is not counted, because a narrowed caller
/// must not see it. Only the counts of callers who may see every agent include it.
pub(super) fn within(
    tx: &Connection,
    mut row: CommandRow,
    scope: &Permitted,
    named: &RoaringBitmap,
) -> ControlResult<CommandRow> {
    if scope.is_all() {
        return Ok(row);
    }
    let only = matches!(scope, Permitted::Only(_));
    let Some(target) = Target::of(tx, row.id)? else {
        // A command of an older version has a row for each agent.
        let counts = rows_of(tx, row.id, named)?;
        row.counts = if only { counts } else { row.counts.without(counts) };
        return Ok(row);
    };
    let common = &target.agents & named;
    let of = |agents: &RoaringBitmap| -> ControlResult<CommandCounts> {
        let mut counts = rows_of(tx, row.id, agents)?;
        counts.add(target.rest, agents.len().saturating_sub(counts.total));
        Ok(counts)
    };
    let all = || {
        let kept = row.counts.total == target.agents.len();
        if kept { Ok(row.counts) } else { of(&target.agents) }
    };
    row.counts = match (only, common.len()) {
        (true, n) if n == target.agents.len() => all()?,
        (true, _) => of(&common)?,
        (false, 0) => all()?,
        (false, _) => all()?.without(of(&common)?),
    };
    Ok(row)
}

/// Counts those of the agents that have a row of their own, by state. An empty set runs no query.
fn rows_of(tx: &Connection, command: u64, agents: &RoaringBitmap) -> ControlResult<CommandCounts> {
    let mut counts = CommandCounts::default();
    if agents.is_empty() {
        return Ok(counts);
    }
    let mut statement = tx.prepare_cached(
        "SELECT state, count(*) FROM command_outcome
         WHERE command = ?1 AND agent IN rarray(?2) GROUP BY state",
    )?;
    let ids = array(agents.iter().map(i64::from));
    let mut rows = statement.query(params![signed(command), ids])?;
    while let Some(row) = rows.next()? {
        counts.add(state(row.get(0)?)?, unsigned(row, 1)?);
    }
    Ok(counts)
}
