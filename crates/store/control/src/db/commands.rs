//! Commands to agents, and the outcome of each agent. A command is one row that contains the set of
//! its agents; an agent gets a row of its own with its first outcome. The counts are stored with
//! the command and updated in the transaction that changes an outcome.

mod columns;
mod narrowed;
mod numbers;

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use model::AgentId;
use roaring::RoaringBitmap;
use rusqlite::{Connection, OptionalExtension, params};

use super::ControlStore;
use super::rows::{self, corrupt, cut, signed, unsigned};
use crate::limits::{COMMANDS_MAX, COMMANDS_USER_MAX, DETAIL_BYTES_MAX};
use crate::{
    CommandRow, ControlError, ControlResult, NewCommand, OpenCommand, OutcomeFilter, OutcomeRow,
    OutcomeState, Permitted, WriteContext,
};
use sqlite::Reader;

use columns::{COMMAND_COLUMNS, command, kind, outcome, state};
use narrowed::{named, within};
pub(super) use numbers::forget_former_agent;

impl ControlStore {
    /// Creates a command for registered agents, as one row for any number of them; returns its
    /// number.
    ///
    /// # Errors
    /// `Limit` at [`COMMANDS_MAX`] unfinished ones.
    pub fn create_command(
        &self,
        context: &WriteContext,
        command: &NewCommand,
    ) -> ControlResult<u64> {
        self.write(context, |tx| create(tx, command))
    }

    /// Deletes some of the oldest finished commands beyond [`COMMANDS_MAX`]; survives a
    /// killed process. Returns true if there is more to delete.
    pub fn trim_commands(&self) -> ControlResult<bool> {
        self.write_soft(&Reader::server(), trim)
    }

    /// Records outcomes and adjusts the counts in one transaction; survives a killed process. An
    /// outcome only moves forward (acknowledged stays acknowledged).
    pub fn save_outcomes(&self, rows: &[OutcomeRow]) -> ControlResult<()> {
        self.write_soft(&Reader::server(), |tx| save_outcomes(tx, rows))
    }

    /// Sets outcomes that are not final to `state` (expired or cancelled); returns their number.
    pub fn finish_command(
        &self,
        context: &WriteContext,
        id: u64,
        state: OutcomeState,
        now_s: i64,
    ) -> ControlResult<u64> {
        self.write(context, |tx| finish(tx, id, state, now_s))
    }

    /// Returns one command with its counts over the agents of `scope`, and a page of their outcomes
    /// by agent number, from one snapshot.
    pub fn command(
        &self,
        reader: &Reader,
        id: u64,
        scope: &Permitted,
        outcomes: OutcomeFilter,
    ) -> ControlResult<Option<(CommandRow, Vec<OutcomeRow>)>> {
        self.read(reader, |tx| one(tx, id, scope, outcomes))
    }

    /// Returns the newest commands, newest first, each with its counts over the agents of `scope`,
    /// from one snapshot.
    pub fn commands(
        &self,
        reader: &Reader,
        limit: u64,
        scope: &Permitted,
    ) -> ControlResult<Vec<CommandRow>> {
        self.read(reader, |tx| newest(tx, limit, scope))
    }
}

/// The agents of a command, and the state of those that have no row of their own.
struct Target {
    agents: RoaringBitmap,
    rest: OutcomeState,
    rest_at_s: i64,
}

impl Target {
    /// Returns `None` for a command of an older version, which has a row for each agent. A damaged
    /// set counts as empty: the command is not handed out any more and expires, and other commands
    /// continue.
    fn of(tx: &Connection, id: u64) -> ControlResult<Option<Self>> {
        let mut statement = tx.prepare_cached(
            "SELECT agents, rest, rest_at_s FROM command WHERE id = ?1 AND agents IS NOT NULL",
        )?;
        let mut rows = statement.query([signed(id)])?;
        let Some(row) = rows.next()? else { return Ok(None) };
        let set = row.get_ref(0)?.as_blob().unwrap_or_default();
        let agents = RoaringBitmap::deserialize_from(set).unwrap_or_default();
        Ok(Some(Self { agents, rest: state(row.get(1)?)?, rest_at_s: row.get(2)? }))
    }

    fn outcome(&self, command: u64, agent: AgentId) -> OutcomeRow {
        let (state, at_s) = (self.rest, self.rest_at_s);
        OutcomeRow { command, agent, state, detail: String::new(), at_s }
    }
}

fn bytes_of(agents: &RoaringBitmap) -> ControlResult<Vec<u8>> {
    let mut set = Vec::with_capacity(agents.serialized_size());
    agents.serialize_into(&mut set).map_err(|e| corrupt("agents of a command", &e.to_string()))?;
    Ok(set)
}

/// Creates a command as one row, whatever the number of agents. Outcomes get their rows later.
fn create(tx: &Connection, new: &NewCommand) -> ControlResult<u64> {
    check_open_limit(tx, &new.user)?;
    let agents: RoaringBitmap =
        new.agents.iter().map(|agent| agent.0).filter(|id| *id > 0).collect();
    let set = bytes_of(&agents)?;
    tx.prepare_cached(
        "INSERT INTO command (kind, user, created_at_s, expires_at_s, pending, agents, rest_at_s)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?3)",
    )?
    .execute(params![
        new.kind.name(),
        new.user,
        new.now_s,
        new.expires_at_s,
        signed(agents.len()),
        set
    ])?;
    Ok(tx.last_insert_rowid().cast_unsigned())
}

/// Refuses a new command if too many are unfinished. [`trim`] drops the finished ones.
fn check_open_limit(tx: &Connection, user: &str) -> ControlResult<()> {
    let (open, own) = tx
        .prepare_cached(
            "SELECT count(*), coalesce(sum(user = ?1), 0) FROM command WHERE pending + sent > 0",
        )?
        .query_row([user], |r| Ok((unsigned(r, 0)?, unsigned(r, 1)?)))?;
    if own >= COMMANDS_USER_MAX {
        let what = "unfinished commands of one user: cancel some, or wait until they expire";
        return Err(ControlError::Limit { what, max: COMMANDS_USER_MAX });
    }
    if open >= COMMANDS_MAX {
        let what = "unfinished commands: cancel some, or wait until they expire";
        return Err(ControlError::Limit { what, max: COMMANDS_MAX });
    }
    Ok(())
}

/// Condition of a command that is being deleted: it is hidden and accepts no outcome. A command of
/// an older version has no set either, but has counts.
const DROPPED: &str =
    "agents IS NULL AND pending + sent + acknowledged + failed + expired + cancelled = 0";

/// Drops finished commands beyond the limit, oldest first. A command is hidden at once and its
/// outcomes are deleted in batches, so that other writers run in between. Returns true if there is
/// more to drop.
fn trim(tx: &Connection) -> ControlResult<bool> {
    let kept =
        tx.prepare_cached("SELECT count(*) FROM command")?.query_row([], |r| unsigned(r, 0))?;
    if kept <= COMMANDS_MAX {
        return Ok(false);
    }
    let oldest: Option<i64> =
        rows::get(tx, "SELECT min(id) FROM command WHERE pending + sent = 0", [], |r| r.get(0))?;
    let Some(oldest) = oldest else { return Ok(false) };
    let hide = format!(
        "UPDATE command SET agents = NULL, acknowledged = 0, failed = 0, expired = 0, cancelled = 0
         WHERE id = ?1 AND NOT ({DROPPED})"
    );
    tx.prepare_cached(&hide)?.execute([oldest])?;
    let rows = rows::run(
        tx,
        "DELETE FROM command_outcome WHERE command = ?1 AND agent IN
         (SELECT agent FROM command_outcome WHERE command = ?1 LIMIT ?2)",
        params![oldest, TRIM_ROWS as i64],
    )?;
    if rows < TRIM_ROWS {
        rows::run(tx, "DELETE FROM command WHERE id = ?1", [oldest])?;
    }
    Ok(true)
}

fn is_dropped(tx: &Connection, id: u64) -> ControlResult<bool> {
    let sql = format!("SELECT 1 FROM command WHERE id = ?1 AND {DROPPED}");
    Ok(tx.prepare_cached(&sql)?.exists([signed(id)])?)
}

/// Returns true if `to` may replace `from`: forward only, and an agent's own answer replaces
/// `expired` and `cancelled`.
fn replaces(from: OutcomeState, to: OutcomeState) -> bool {
    use OutcomeState::{Acknowledged, Cancelled, Expired, Failed, Pending, Sent};
    match from {
        Pending => to != Pending,
        Sent => !matches!(to, Pending | Sent),
        Expired | Cancelled => matches!(to, Acknowledged | Failed),
        Acknowledged | Failed => false,
    }
}

/// Stores outcomes and updates the counts. Skips agents that the command is not addressed to.
fn save_outcomes(tx: &Connection, rows: &[OutcomeRow]) -> ControlResult<()> {
    let mut get =
        tx.prepare_cached("SELECT state FROM command_outcome WHERE command = ?1 AND agent = ?2")?;
    let mut set = tx.prepare_cached(
        "INSERT INTO command_outcome (command, agent, state, at_s, detail)
         VALUES (?1, ?2, ?3, ?4, ?5) ON CONFLICT DO UPDATE
         SET state = excluded.state, at_s = excluded.at_s, detail = excluded.detail",
    )?;
    // `None` if the command is being deleted.
    let mut targets: BTreeMap<u64, Option<Option<Target>>> = BTreeMap::new();
    let mut moved: BTreeMap<(u64, OutcomeState, OutcomeState), u64> = BTreeMap::new();
    for row in in_order(rows) {
        let target = match targets.entry(row.command) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(new) if is_dropped(tx, row.command)? => new.insert(None),
            Entry::Vacant(new) => new.insert(Some(Target::of(tx, row.command)?)),
        };
        let Some(target) = target else { continue };
        if target.as_ref().is_some_and(|target| !target.agents.contains(row.agent.0)) {
            continue;
        }
        let found: Option<u8> =
            get.query_row(params![signed(row.command), row.agent.0], |r| r.get(0)).optional()?;
        let rest = target.as_ref().map(|target| target.rest);
        let Some(from) = found.map(state).transpose()?.or(rest) else { continue };
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

/// Sorts rows by key, so that the table is written in order; rows of one key keep their order.
fn in_order(rows: &[OutcomeRow]) -> Vec<&OutcomeRow> {
    let mut rows: Vec<&OutcomeRow> = rows.iter().collect();
    rows.sort_by_key(|row| (row.command, row.agent));
    rows
}

/// Moves `n` of a command's outcomes from one count to another.
fn count(
    tx: &Connection,
    command: u64,
    from: OutcomeState,
    to: OutcomeState,
    n: u64,
) -> ControlResult<()> {
    // The names are words of an enum, never text from a caller.
    let sql = format!(
        "UPDATE command SET {from} = {from} - ?2, {to} = {to} + ?2 WHERE id = ?1",
        from = from.name(),
        to = to.name()
    );
    tx.prepare_cached(&sql)?.execute(params![signed(command), signed(n)])?;
    Ok(())
}

fn finish(tx: &Connection, id: u64, to: OutcomeState, now_s: i64) -> ControlResult<u64> {
    let mut total = 0;
    if Target::of(tx, id)?.is_some_and(|target| target.rest == OutcomeState::Pending) {
        // A command with a set has no pending rows.
        total = rows::get(tx, "SELECT pending FROM command WHERE id = ?1", [signed(id)], |r| {
            unsigned(r, 0)
        })?;
        rows::run(
            tx,
            "UPDATE command SET rest = ?2, rest_at_s = ?3 WHERE id = ?1",
            params![signed(id), to as u8, now_s],
        )?;
        count(tx, id, OutcomeState::Pending, to, total)?;
    }
    for from in [OutcomeState::Pending, OutcomeState::Sent] {
        let n = rows::run(
            tx,
            "UPDATE command_outcome SET state = ?3, at_s = ?4 WHERE command = ?1 AND state = ?2",
            params![signed(id), from as u8, to as u8, now_s],
        )? as u64;
        count(tx, id, from, to, n)?;
        total += n;
    }
    Ok(total)
}

/// Returns the unfinished commands, without their agents.
fn unfinished(tx: &Connection) -> ControlResult<Vec<OpenCommand>> {
    let mut statement = tx.prepare_cached(
        "SELECT id, kind, user, expires_at_s FROM command WHERE pending + sent > 0 ORDER BY id",
    )?;
    statement
        .query_and_then([], |row| {
            Ok(OpenCommand {
                id: unsigned(row, 0)?,
                kind: kind(&row.get::<_, String>(1)?)?,
                user: row.get(2)?,
                expires_at_s: row.get(3)?,
                agents: Vec::new(),
            })
        })?
        .collect()
}

/// Cancels the unanswered commands of removed agents.
pub(super) fn cancel_for_removed_agents(
    tx: &Connection,
    agents: &[AgentId],
    now_s: i64,
) -> ControlResult<()> {
    let gone: RoaringBitmap = agents.iter().map(|agent| agent.0).collect();
    for OpenCommand { id: command, .. } in unfinished(tx)? {
        let concerned = match Target::of(tx, command)? {
            Some(target) => target.agents & &gone,
            None => gone.clone(),
        };
        let rows: Vec<OutcomeRow> = concerned
            .into_iter()
            .map(|agent| OutcomeRow {
                command,
                agent: AgentId(agent),
                state: OutcomeState::Cancelled,
                detail: "the agent was removed".into(),
                at_s: now_s,
            })
            .collect();
        save_outcomes(tx, &rows)?;
    }
    Ok(())
}

pub(super) fn outstanding(tx: &Connection) -> ControlResult<Vec<OpenCommand>> {
    let mut rows =
        tx.prepare_cached("SELECT agent, state FROM command_outcome WHERE command = ?1")?;
    let mut all = unfinished(tx)?;
    for command in &mut all {
        let target =
            Target::of(tx, command.id)?.filter(|target| target.rest == OutcomeState::Pending);
        let mut open = target.map_or_else(RoaringBitmap::new, |target| target.agents);
        let mut found = rows.query([signed(command.id)])?;
        while let Some(row) = found.next()? {
            let agent: u32 = row.get(0)?;
            if state(row.get(1)?)?.is_final() {
                open.remove(agent);
            } else {
                open.insert(agent);
            }
        }
        command.agents = open.into_iter().map(AgentId).collect();
    }
    Ok(all)
}

/// Returns one command and a page of its outcomes, restricted to the scope.
pub(super) fn one(
    tx: &Connection,
    id: u64,
    scope: &Permitted,
    filter: OutcomeFilter,
) -> ControlResult<Option<(CommandRow, Vec<OutcomeRow>)>> {
    let sql = format!("SELECT {COMMAND_COLUMNS} FROM command WHERE id = ?1 AND NOT ({DROPPED})");
    let row = tx.prepare_cached(&sql)?.query_and_then([signed(id)], command)?.next().transpose()?;
    let Some(row) = row else { return Ok(None) };
    let row = within(tx, row, scope, &named(scope))?;
    let outcomes =
        if row.counts.total == 0 { Vec::new() } else { outcomes(tx, id, scope, filter)? };
    Ok(Some((row, outcomes)))
}

pub(super) fn newest(
    tx: &Connection,
    limit: u64,
    scope: &Permitted,
) -> ControlResult<Vec<CommandRow>> {
    let sql =
        format!("SELECT {COMMAND_COLUMNS} FROM command WHERE NOT ({DROPPED}) ORDER BY id DESC");
    let mut statement = tx.prepare_cached(&sql)?;
    let (mut seen, named) = (Vec::new(), named(scope));
    let mut rows = statement.query_and_then([], command)?;
    while (seen.len() as u64) < limit
        && let Some(row) = rows.next()
    {
        let row = within(tx, row?, scope, &named)?;
        // A command for none of the caller's agents is hidden and does not count towards the page.
        if scope.is_all() || row.counts.total > 0 {
            seen.push(row);
        }
    }
    Ok(seen)
}

/// Outcomes deleted in one transaction.
const TRIM_ROWS: usize = 5_000;
/// Minimum number of agents examined at a time for a page of outcomes.
const AGENTS_AT_ONCE: usize = 1_000;

fn outcomes(
    tx: &Connection,
    id: u64,
    scope: &Permitted,
    filter: OutcomeFilter,
) -> ControlResult<Vec<OutcomeRow>> {
    let limit = usize::try_from(filter.limit).unwrap_or(usize::MAX);
    let wanted = |row: &OutcomeRow| {
        filter.state.is_none_or(|state| row.state == state) && scope.holds(row.agent)
    };
    let first = filter.after.map_or(0, |after| after.0).saturating_add(1);
    let mut statement = tx.prepare_cached(
        "SELECT command, agent, state, at_s, detail FROM command_outcome
         WHERE command = ?1 AND agent BETWEEN ?2 AND ?3 ORDER BY agent",
    )?;
    let target = Target::of(tx, id)?;
    let rest = target.as_ref().map(|target| target.rest);
    let Some(target) = target.filter(|_| filter.state.is_none_or(|state| rest == Some(state)))
    else {
        // Every agent in that state has a row.
        let rows = statement.query_and_then(params![signed(id), first, u32::MAX], outcome)?;
        return rows.filter(|row| row.as_ref().map_or(true, wanted)).take(limit).collect();
    };
    let mut found = Vec::new();
    let mut agents = target.agents.range(first..);
    while found.len() < limit {
        let some: Vec<u32> =
            agents.by_ref().take((limit - found.len()).max(AGENTS_AT_ONCE)).collect();
        let (Some(from), Some(to)) = (some.first(), some.last()) else { break };
        let rows = statement.query_and_then(params![signed(id), from, to], outcome)?;
        let mut rows = rows.collect::<ControlResult<Vec<_>>>()?.into_iter().peekable();
        for agent in some {
            let own = rows.next_if(|row| row.agent.0 == agent);
            let row = own.unwrap_or_else(|| target.outcome(id, AgentId(agent)));
            if wanted(&row) && found.len() < limit {
                found.push(row);
            }
        }
    }
    Ok(found)
}
