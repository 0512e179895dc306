//! Commands refer to agents by number, and a number may be given to another agent.

use model::AgentId;
use rusqlite::{Connection, params};

use super::{Target, bytes_of};
use crate::ControlResult;
use crate::db::rows::{signed, unsigned};

/// Removes the number from commands to its former agent, because another agent gets it. The counts
/// of the commands stay as they are.
pub(in crate::db) fn forget_former_agent(tx: &Connection, agent: AgentId) -> ControlResult<()> {
    let mut all = tx.prepare_cached("SELECT id FROM command")?;
    let ids = all.query_map([], |row| unsigned(row, 0))?.collect::<Result<Vec<_>, _>>()?;
    let mut forget =
        tx.prepare_cached("DELETE FROM command_outcome WHERE command = ?1 AND agent = ?2")?;
    let mut narrow = tx.prepare_cached("UPDATE command SET agents = ?2 WHERE id = ?1")?;
    for id in ids {
        forget.execute(params![signed(id), agent.0])?;
        let Some(mut target) = Target::of(tx, id)? else { continue };
        if target.agents.remove(agent.0) {
            narrow.execute(params![signed(id), bytes_of(&target.agents)?])?;
        }
    }
    Ok(())
}
