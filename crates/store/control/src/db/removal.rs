//! Removal of agents, and registration in place of removed ones.

use model::AgentId;
use rusqlite::Transaction;

use super::{agents, certificates, commands, groups};
use crate::{AgentRow, ControlResult, NewAgent};

/// Removes agents. Returns the rows of those that existed.
pub(super) fn remove(
    tx: &Transaction<'_>,
    ids: &[AgentId],
    now_s: i64,
) -> ControlResult<Vec<AgentRow>> {
    let mut rows = Vec::with_capacity(ids.len());
    let names = groups::names(tx)?;
    for id in ids {
        if let Some(row) = agents::remove(tx, *id, &names)? {
            certificates::revoke(tx, *id, now_s)?;
            rows.push(row);
        }
    }
    let gone: Vec<AgentId> = rows.iter().map(|row| row.record.id).collect();
    commands::cancel_for_removed_agents(tx, &gone, now_s)?;
    Ok(rows)
}

/// Removes agents and registers one in their place. If one of them is the new agent itself,
/// replaces its key instead of removing it.
pub(super) fn replace(
    tx: &Transaction<'_>,
    gone: &[AgentId],
    freed: &[AgentId],
    new: &NewAgent,
) -> ControlResult<(Vec<AgentRow>, AgentRow)> {
    let known = new.id.filter(|id| gone.contains(id));
    if known.is_none() || !agents::is_known(tx, new)? {
        let rows = remove(tx, gone, new.now_s)?;
        return Ok((rows, agents::add(tx, new, freed)?));
    }
    let others: Vec<AgentId> = gone.iter().copied().filter(|id| Some(*id) != known).collect();
    Ok((remove(tx, &others, new.now_s)?, agents::replace_key(tx, new)?))
}
