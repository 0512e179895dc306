//! Commands to agents. What is outstanding is also in memory, so that a heartbeat costs no query;
//! handing out and outcomes are written in batches. A crash between outcome and flush hands the
//! command out once more: the agent knows by its number that it has done it.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use model::AgentId;
use parking_lot::Mutex;
use state::registry::{
    Command, CommandCounts, CommandKind, CommandRow, NewCommand, Outcome, OutcomeRow, OutcomeState,
    Permitted,
};

use crate::limits::{COMMAND_REPEAT_SECONDS, COMMAND_TTL_SECONDS, OUTCOMES_WAITING_MAX};
use crate::{Registry, RegistryError};

struct Open {
    command: Command,
    sent: Option<Duration>,
}

/// What is outstanding, and what is not yet in the database.
#[derive(Default)]
pub(crate) struct Outstanding {
    open: HashMap<AgentId, Vec<Open>>,
    /// When each unfinished command expires, seconds since the epoch.
    expiry: BTreeMap<u64, i64>,
    waiting: Vec<OutcomeRow>,
}

impl Outstanding {
    pub(crate) fn load(rows: Vec<(OutcomeRow, CommandKind, i64)>) -> Self {
        let mut all = Self::default();
        for (row, kind, expires_at_s) in rows {
            all.expiry.insert(row.command, expires_at_s);
            // One that was sent before the restart is due again.
            all.add(row.agent, Command { id: row.command, kind });
        }
        all
    }

    fn add(&mut self, agent: AgentId, command: Command) {
        self.open.entry(agent).or_default().push(Open { command, sent: None });
    }

    fn hand_out(&mut self, agent: AgentId, now: Duration, now_s: i64) -> Vec<Command> {
        let Some(open) = self.open.get_mut(&agent) else { return Vec::new() };
        let repeat = Duration::from_secs(COMMAND_REPEAT_SECONDS);
        let mut due = Vec::new();
        for one in open {
            if one.sent.is_some_and(|sent| now.saturating_sub(sent) < repeat) {
                continue;
            }
            if one.sent.is_none() {
                self.waiting.push(OutcomeRow {
                    command: one.command.id,
                    agent,
                    state: OutcomeState::Sent,
                    detail: String::new(),
                    at_s: now_s,
                });
            }
            one.sent = Some(now);
            due.push(one.command.clone());
        }
        due
    }

    /// Take it off the agent's list; whether it was there.
    fn close(&mut self, agent: AgentId, id: u64) -> bool {
        let Some(open) = self.open.get_mut(&agent) else { return false };
        let before = open.len();
        open.retain(|one| one.command.id != id);
        let found = open.len() < before;
        if open.is_empty() {
            self.open.remove(&agent);
        }
        found
    }

    fn close_all(&mut self, id: u64) {
        self.expiry.remove(&id);
        self.open.retain(|_, open| {
            open.retain(|one| one.command.id != id);
            !open.is_empty()
        });
    }

    pub(crate) fn forget_agent(&mut self, agent: AgentId) {
        self.open.remove(&agent);
    }
}

impl Registry {
    /// Create a command for agents; durable when it returns. Numbers that are not registered are
    /// passed over. Unanswered ones expire after a day. Its number.
    ///
    /// # Errors
    /// `Store(Limit)` when too many commands are unfinished.
    pub fn create_command(
        &self,
        kind: CommandKind,
        agents: &[AgentId],
        user: &str,
    ) -> Result<u64, RegistryError> {
        let now_s = self.now().s;
        let new = NewCommand {
            kind,
            agents: agents.to_vec(),
            user: user.to_owned(),
            now_s,
            expires_at_s: now_s + COMMAND_TTL_SECONDS,
        };
        let _order = self.inner.decisions.lock();
        let (id, agents) = self.inner.store.create_command(&new)?;
        let mut outstanding = self.inner.outstanding.lock();
        outstanding.expiry.insert(id, new.expires_at_s);
        for agent in agents {
            outstanding.add(agent, Command { id, kind });
        }
        Ok(id)
    }

    /// What the agent is to do; handed out again after a minute without an outcome, so the agent
    /// must know the numbers it has done. Memory only.
    pub fn pending_commands(&self, agent: AgentId) -> Vec<Command> {
        let now = self.now();
        self.inner.outstanding.lock().hand_out(agent, now.monotonic, now.s)
    }

    /// The agent's report, written with the next flush. `false` when the agent had no such
    /// command open, or the report says neither acknowledged nor failed; a late report of an
    /// expired command is recorded all the same.
    pub fn command_outcome(&self, agent: AgentId, id: u64, outcome: &Outcome) -> bool {
        if !matches!(outcome.state, OutcomeState::Acknowledged | OutcomeState::Failed) {
            return false;
        }
        let row = OutcomeRow {
            command: id,
            agent,
            state: outcome.state,
            detail: outcome.detail.clone(),
            at_s: self.now().s,
        };
        let mut outstanding = self.inner.outstanding.lock();
        let found = outstanding.close(agent, id);
        if found || outstanding.waiting.len() < OUTCOMES_WAITING_MAX {
            outstanding.waiting.push(row);
        }
        found
    }

    /// One command with its counts, everything reported so far included.
    ///
    /// # Errors
    /// When the store fails.
    pub fn command(&self, id: u64) -> Result<Option<CommandRow>, RegistryError> {
        self.flush_outcomes()?;
        Ok(self.inner.store.command(id)?)
    }

    /// The newest commands, newest first.
    ///
    /// # Errors
    /// When the store fails.
    pub fn commands(&self, limit: u64) -> Result<Vec<CommandRow>, RegistryError> {
        self.flush_outcomes()?;
        Ok(self.inner.store.commands(limit)?)
    }

    /// The outcomes of a command by agent number above `after`.
    ///
    /// # Errors
    /// When the store fails.
    pub fn outcomes(
        &self,
        id: u64,
        state: Option<OutcomeState>,
        after: Option<AgentId>,
        limit: u64,
    ) -> Result<Vec<OutcomeRow>, RegistryError> {
        self.flush_outcomes()?;
        Ok(self.inner.store.outcomes(id, state, after, limit)?)
    }

    /// A command's counts as far as the agents of a scope go.
    ///
    /// # Errors
    /// When the store fails.
    pub fn counts_within(
        &self,
        command: &CommandRow,
        scope: &Permitted,
    ) -> Result<CommandCounts, RegistryError> {
        let counted = |ids: &[AgentId]| self.inner.store.outcome_counts(command.id, ids);
        let all = command.counts;
        Ok(match scope {
            Permitted::All => all,
            Permitted::Only(ids) => counted(ids)?,
            Permitted::Except(ids) => {
                let hidden = counted(ids)?;
                CommandCounts {
                    pending: all.pending.saturating_sub(hidden.pending),
                    sent: all.sent.saturating_sub(hidden.sent),
                    acknowledged: all.acknowledged.saturating_sub(hidden.acknowledged),
                    failed: all.failed.saturating_sub(hidden.failed),
                    expired: all.expired.saturating_sub(hidden.expired),
                    cancelled: all.cancelled.saturating_sub(hidden.cancelled),
                    total: all.total.saturating_sub(hidden.total),
                }
            }
        })
    }

    /// Take back a command where it is not answered yet; for how many agents.
    ///
    /// # Errors
    /// When the store fails.
    pub fn cancel_command(&self, id: u64) -> Result<u64, RegistryError> {
        self.finish_command(id, OutcomeState::Cancelled)
    }

    fn finish_command(&self, id: u64, state: OutcomeState) -> Result<u64, RegistryError> {
        self.flush_outcomes()?;
        let n = self.inner.store.finish_command(id, state, self.now().s)?;
        self.inner.outstanding.lock().close_all(id);
        Ok(n)
    }

    /// Write hand-outs and outcomes; how many.
    pub(crate) fn flush_outcomes(&self) -> Result<u64, RegistryError> {
        let _order = self.inner.flush.lock();
        let rows = std::mem::take(&mut self.inner.outstanding.lock().waiting);
        if rows.is_empty() {
            return Ok(0);
        }
        if let Err(e) = self.inner.store.save_outcomes(&rows) {
            put_back(&self.inner.outstanding, rows);
            return Err(e.into());
        }
        Ok(rows.len() as u64)
    }

    /// Expire commands whose time is over; how many outcomes.
    pub(crate) fn expire_commands(&self) -> Result<u64, RegistryError> {
        let now_s = self.now().s;
        let over: Vec<u64> = {
            let outstanding = self.inner.outstanding.lock();
            outstanding.expiry.iter().filter(|(_, at)| **at <= now_s).map(|(id, _)| *id).collect()
        };
        over.into_iter().map(|id| self.finish_command(id, OutcomeState::Expired)).sum()
    }
}

/// In front of what came meanwhile, so that the order of one agent's rows is kept.
fn put_back(outstanding: &Mutex<Outstanding>, mut rows: Vec<OutcomeRow>) {
    let mut outstanding = outstanding.lock();
    rows.append(&mut outstanding.waiting);
    outstanding.waiting = rows;
}
