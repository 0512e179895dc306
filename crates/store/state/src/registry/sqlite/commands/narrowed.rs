//! Commands as callers see them who may look at some agents only.

use roaring::RoaringBitmap;
use rusqlite::{Transaction, params};

use super::{Target, state};
use crate::registry::sqlite::rows::{signed, unsigned};
use crate::registry::sqlite::users::array;
use crate::registry::{CommandCounts, CommandRow, Permitted, StoreResult};

/// The agents that a scope names: once for all commands that are looked at.
pub(super) fn named(scope: &Permitted) -> RoaringBitmap {
    match scope {
        Permitted::All => RoaringBitmap::new(),
        Permitted::Only(ids) | Permitted::Except(ids) => ids.iter().map(|agent| agent.0).collect(),
    }
}

/// The command with the counts of the scope's agents alone, of which `named` are those that it names.
/// Only whom the command is for by now counts: who had a number before is nobody's to see, but in the
/// counts of those who see everybody.
pub(super) fn within(
    tx: &Transaction<'_>,
    mut row: CommandRow,
    scope: &Permitted,
    named: &RoaringBitmap,
) -> StoreResult<CommandRow> {
    if scope.is_all() {
        return Ok(row);
    }
    let only = matches!(scope, Permitted::Only(_));
    let Some(target) = Target::of(tx, row.id)? else {
        // A command of an older version: whoever it is for has a row.
        let counts = rows_of(tx, row.id, named)?;
        row.counts = if only { counts } else { row.counts.without(counts) };
        return Ok(row);
    };
    let common = &target.agents & named;
    let of = |agents: &RoaringBitmap| -> StoreResult<CommandCounts> {
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

/// Of these agents, those that have a row of their own; of none, none is looked for.
fn rows_of(
    tx: &Transaction<'_>,
    command: u64,
    agents: &RoaringBitmap,
) -> StoreResult<CommandCounts> {
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

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use model::{AgentId, Incarnation};

    use crate::Reader;
    use crate::registry::{
        CommandKind, NewAgent, NewCommand, OutcomeRow, OutcomeState, Permitted, RegistryStore as _,
        SqliteRegistry, WriteContext,
    };

    fn agent(name: &str, id: Option<AgentId>) -> NewAgent {
        NewAgent {
            id,
            name: name.into(),
            register_ip: "any".into(),
            groups: Vec::new(),
            incarnation: Incarnation(1),
            client_key: None,
            now_s: 1,
        }
    }

    #[test]
    fn what_was_ordered_of_a_number_before_is_shown_to_no_narrowed_caller() {
        let folder = tempfile::TempDir::new().unwrap();
        let store = SqliteRegistry::open(&folder.path().join("registry.db")).unwrap();
        let by = WriteContext::server();
        let added = store.add_agents(&by, &[agent("a", None), agent("b", None)]).unwrap();
        let (a, b) = (added[0].record.id, added[1].record.id);
        let order = |agents: &[AgentId]| {
            let (agents, kind) = (agents.to_vec(), CommandKind::Restart);
            let new = NewCommand { kind, agents, user: "admin".into(), now_s: 1, expires_at_s: 9 };
            store.create_command(&by, &new).unwrap()
        };
        let (alone, both) = (order(&[a]), order(&[a, b]));
        let done = |command| OutcomeRow {
            command,
            agent: a,
            state: OutcomeState::Acknowledged,
            detail: String::new(),
            at_s: 2,
        };
        store.save_outcomes(&[done(alone), done(both)]).unwrap();
        store.remove_agents(&by, &[a], 3).unwrap();
        store.free_numbers(&by, &[a]).unwrap();
        store.add_agents(&by, &[agent("c", Some(a))]).unwrap();
        let seen = |scope: Permitted| -> Vec<(u64, u64)> {
            let rows = store.commands(&Reader::server(), 10, &scope).unwrap();
            rows.into_iter().map(|row| (row.id, row.counts.total)).collect()
        };
        let these = |ids: &[AgentId]| Arc::new(ids.to_vec());
        assert_eq!(seen(Permitted::Only(these(&[b]))), [(both, 1)]);
        assert_eq!(seen(Permitted::Only(these(&[a]))), [], "its new agent had no command");
        assert_eq!(seen(Permitted::Only(these(&[a, b]))), [(both, 1)]);
        assert_eq!(seen(Permitted::Except(these(&[a]))), [(both, 1)]);
        assert_eq!(seen(Permitted::Except(these(&[b]))), []);
        assert_eq!(seen(Permitted::Except(these(&[AgentId(77)]))), [(both, 1)]);
    }
}
