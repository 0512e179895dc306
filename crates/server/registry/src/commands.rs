//! Commands to agents. Unfinished commands are also kept in memory, so that a heartbeat costs no
//! query. Hand-outs and outcomes are written in batches. After a crash between an outcome and its
//! flush, the command is handed out again; the agent recognises by its number that it has already
//! run it.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use control::Reader;
use control::{
    Command, CommandKind, CommandOutcome, CommandRow, NewCommand, OpenCommand, OutcomeFilter,
    OutcomeRow, OutcomeState, Permitted, WriteContext,
};
use model::AgentId;
use parking_lot::Mutex;
use roaring::RoaringBitmap;

use crate::limits::{
    COMMAND_AGENTS_FEW, COMMAND_REPEAT_SECONDS, COMMAND_TTL_SECONDS, COMMANDS_AT_ONCE_MAX,
    OUTCOMES_WAITING_MAX,
};
use crate::{Registry, RegistryError};

/// The result of issuing a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IssuedCommand {
    pub command: u64,
    /// True if an unfinished command was joined and nothing was changed.
    pub joined: bool,
}

/// One unfinished command.
struct Open {
    kind: CommandKind,
    /// The user who issued it.
    user: String,
    /// Expiry time, seconds since the epoch.
    expires_at_s: i64,
    /// The agents that have not answered.
    agents: RoaringBitmap,
    /// The agents among them that it was handed out to, with the time.
    sent: HashMap<AgentId, Duration>,
}

impl Open {
    fn new(kind: CommandKind, user: &str, expires_at_s: i64, agents: &[AgentId]) -> Self {
        let agents = agents.iter().map(|agent| agent.0).collect();
        Self { kind, user: user.to_owned(), expires_at_s, agents, sent: HashMap::new() }
    }

    /// Removes agents from the command. `set` has the same agents as `gone`.
    fn forget(&mut self, gone: &[AgentId], set: &RoaringBitmap) {
        if self.agents.is_disjoint(set) {
            return;
        }
        self.agents -= set;
        for agent in gone {
            self.sent.remove(agent);
        }
    }
}

/// Unfinished commands, and outcomes not yet in the database. The cost of a command does not depend
/// on its number of agents. A heartbeat examines the commands of its own agent, and those that many
/// agents have not answered.
#[derive(Default)]
pub(crate) struct OutstandingCommands {
    open: BTreeMap<u64, Open>,
    /// Commands that few agents have yet to answer, by agent.
    few: HashMap<AgentId, Vec<u64>>,
    wide: BTreeSet<u64>,
    waiting: Vec<OutcomeRow>,
}

impl OutstandingCommands {
    /// Loads unfinished commands. Those handed out before a restart are due again.
    pub(crate) fn load(commands: Vec<OpenCommand>) -> Self {
        let mut all = Self::default();
        for command in commands {
            let OpenCommand { id, kind, user, expires_at_s, agents } = command;
            all.add(id, Open::new(kind, &user, expires_at_s, &agents));
        }
        all
    }

    /// Adds a command. A command without agents stays until it expires.
    fn add(&mut self, id: u64, open: Open) {
        self.wide.insert(id);
        self.narrow(id, &open);
        self.open.insert(id, open);
    }

    /// Moves a command to the index by agent if only few agents are left.
    fn narrow(&mut self, id: u64, open: &Open) {
        if open.agents.len() <= COMMAND_AGENTS_FEW && self.wide.remove(&id) {
            for agent in &open.agents {
                self.few.entry(AgentId(agent)).or_default().push(id);
            }
        }
    }

    /// Removes a command from the agent's list in `few`.
    fn unlist(&mut self, agent: AgentId, id: u64) {
        if let Some(own) = self.few.get_mut(&agent) {
            own.retain(|other| *other != id);
            if own.is_empty() {
                self.few.remove(&agent);
            }
        }
    }

    fn remove(&mut self, id: u64) {
        let Some(open) = self.open.remove(&id) else { return };
        if !self.wide.remove(&id) {
            open.agents.iter().for_each(|agent| self.unlist(AgentId(agent), id));
        }
    }

    /// Returns the numbers of the agent's unfinished commands, in no order.
    fn of(&self, agent: AgentId) -> impl Iterator<Item = u64> {
        let own = self.few.get(&agent).into_iter().flatten().copied();
        let has = move |id: &u64| self.open.get(id).is_some_and(|o| o.agents.contains(agent.0));
        own.chain(self.wide.iter().copied().filter(has))
    }

    /// Returns the commands that are due, and marks them as handed out: first those never handed
    /// out, then those that have waited longest for an answer.
    fn hand_out(&mut self, agent: AgentId, now: Duration, now_s: i64) -> Vec<Command> {
        let repeat = Duration::from_secs(COMMAND_REPEAT_SECONDS);
        let sent = |id| self.open.get(&id).and_then(|one| one.sent.get(&agent).copied());
        let mut due: Vec<(Option<Duration>, u64)> = self
            .of(agent)
            .map(|id| (sent(id), id))
            .filter(|(sent, _)| sent.is_none_or(|sent| now.saturating_sub(sent) >= repeat))
            .collect();
        due.sort_unstable();
        due.truncate(COMMANDS_AT_ONCE_MAX);
        let mut commands = Vec::with_capacity(due.len());
        for (before, id) in due {
            let Some(one) = self.open.get_mut(&id) else { continue };
            if before.is_none() {
                self.waiting.push(OutcomeRow {
                    command: id,
                    agent,
                    state: OutcomeState::Sent,
                    detail: String::new(),
                    at_s: now_s,
                });
            }
            one.sent.insert(agent, now);
            commands.push(Command { id, kind: one.kind });
        }
        commands
    }

    /// Removes a command from the agent's list; returns true if it was there.
    fn close(&mut self, agent: AgentId, id: u64) -> bool {
        let Some(mut open) = self.open.remove(&id) else { return false };
        open.sent.remove(&agent);
        let found = open.agents.remove(agent.0);
        self.unlist(agent, id);
        self.put_back(id, open);
        found
    }

    /// Puts back a command with fewer agents left.
    fn put_back(&mut self, id: u64, open: Open) {
        if open.agents.is_empty() {
            self.wide.remove(&id);
        } else {
            self.narrow(id, &open);
            self.open.insert(id, open);
        }
    }

    /// Returns an unfinished command that can replace a new one: it has the same kind, user and
    /// agents, and at least half its lifetime left. The user must be the same because the user of a
    /// command may cancel it.
    fn same(&self, new: &NewCommand) -> Option<u64> {
        let agents: RoaringBitmap = new.agents.iter().map(|agent| agent.0).collect();
        let half_s = (new.expires_at_s - new.now_s) / 2;
        let same = |open: &Open| {
            // A running scan may already have passed the files that this command should cover.
            let fresh = new.kind != CommandKind::Rescan || open.sent.is_empty();
            let lives = open.expires_at_s - new.now_s >= half_s;
            open.kind == new.kind
                && open.user == new.user
                && open.agents == agents
                && fresh
                && lives
        };
        let found = self.open.iter().find(|(_, open)| !agents.is_empty() && same(open));
        found.map(|(id, _)| *id)
    }

    /// Forgets removed agents. Each command that many agents have not answered is examined once.
    pub(crate) fn forget(&mut self, gone: &[AgentId]) {
        let own = |agent: &AgentId| self.few.get(agent).cloned().unwrap_or_default();
        let few: Vec<(AgentId, Vec<u64>)> = gone.iter().map(|agent| (*agent, own(agent))).collect();
        for (agent, own) in few {
            for id in own {
                self.close(agent, id);
            }
        }
        let set: RoaringBitmap = gone.iter().map(|agent| agent.0).collect();
        for id in self.wide.clone() {
            let Some(mut open) = self.open.remove(&id) else { continue };
            open.forget(gone, &set);
            self.put_back(id, open);
        }
    }
}

impl Registry {
    /// Does the same as [`Registry::issue_command`], and returns the command's number.
    ///
    /// # Errors
    /// See [`Registry::issue_command`].
    pub fn create_command(
        &self,
        context: &WriteContext,
        kind: CommandKind,
        agents: &[AgentId],
        user: &str,
    ) -> Result<u64, RegistryError> {
        Ok(self.issue_command(context, kind, agents, user)?.command)
    }

    /// Creates a command for agents. It is durable when this returns, and handed out only
    /// afterwards. Unregistered numbers are skipped. Unanswered commands expire after a day.
    /// Instead of creating a command, this joins an unfinished one of the same kind and user, if
    /// exactly these agents have yet to answer it and it has at least half its lifetime left.
    ///
    /// # Errors
    /// `Store(Limit)` if there are too many unfinished commands, in total or of this user.
    pub fn issue_command(
        &self,
        context: &WriteContext,
        kind: CommandKind,
        agents: &[AgentId],
        user: &str,
    ) -> Result<IssuedCommand, RegistryError> {
        let now_s = self.now().s;
        let mut agents = agents.to_vec();
        agents.sort_unstable();
        agents.dedup();
        let _order = self.inner.decisions.lock();
        let agents = self.inner.fleet.read().roll().ids(&Permitted::Only(Arc::new(agents)), &[]);
        let user = user.to_owned();
        let new =
            NewCommand { kind, agents, user, now_s, expires_at_s: now_s + COMMAND_TTL_SECONDS };
        if let Some(command) = self.inner.outstanding.lock().same(&new) {
            return Ok(IssuedCommand { command, joined: true });
        }
        let id = self.inner.store.create_command(context, &new)?;
        if !new.agents.is_empty() {
            let open = Open::new(kind, &new.user, new.expires_at_s, &new.agents);
            self.inner.outstanding.lock().add(id, open);
        }
        Ok(IssuedCommand { command: id, joined: false })
    }

    /// Returns the commands for the agent. A command is handed out again after a minute without an
    /// outcome, so the agent must remember the numbers of commands it has run. Memory only.
    pub fn pending_commands(&self, agent: AgentId) -> Vec<Command> {
        let now = self.now();
        self.inner.outstanding.lock().hand_out(agent, now.monotonic, now.s)
    }

    /// Records the outcome of a command at an agent, which is written with the next flush. Returns
    /// false if the agent has no such open command, or the outcome is neither acknowledged nor
    /// failed. A late outcome of an expired command is still recorded.
    pub fn command_outcome(&self, agent: AgentId, id: u64, outcome: &CommandOutcome) -> bool {
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

    /// Returns one command with its counts, which include all outcomes reported so far.
    ///
    /// # Errors
    /// Returns an error if the store fails.
    pub fn command(&self, reader: &Reader, id: u64) -> Result<Option<CommandRow>, RegistryError> {
        let none = OutcomeFilter::default();
        Ok(self.command_page(reader, id, &Permitted::All, none)?.map(|(command, _)| command))
    }

    /// Returns one command with its counts over the agents of a scope, and a page of their outcomes
    /// by agent number, from one snapshot. Includes all outcomes reported so far.
    ///
    /// # Errors
    /// Returns an error if the store fails.
    pub fn command_page(
        &self,
        reader: &Reader,
        id: u64,
        scope: &Permitted,
        outcomes: OutcomeFilter,
    ) -> Result<Option<(CommandRow, Vec<OutcomeRow>)>, RegistryError> {
        self.flush_outcomes()?;
        Ok(self.inner.store.command(reader, id, scope, outcomes)?)
    }

    /// Returns the newest commands for agents of a scope, newest first, with their counts over
    /// these agents, from one snapshot.
    ///
    /// # Errors
    /// Returns an error if the store fails.
    pub fn commands(
        &self,
        reader: &Reader,
        limit: u64,
        scope: &Permitted,
    ) -> Result<Vec<CommandRow>, RegistryError> {
        self.flush_outcomes()?;
        Ok(self.inner.store.commands(reader, limit, scope)?)
    }

    /// Returns the outcomes of a command, by agent number, above `after`.
    ///
    /// # Errors
    /// Returns an error if the store fails.
    pub fn outcomes(
        &self,
        reader: &Reader,
        id: u64,
        state: Option<OutcomeState>,
        after: Option<AgentId>,
        limit: u64,
    ) -> Result<Vec<OutcomeRow>, RegistryError> {
        let page =
            self.command_page(reader, id, &Permitted::All, OutcomeFilter { state, after, limit })?;
        Ok(page.map(|(_, outcomes)| outcomes).unwrap_or_default())
    }

    /// Cancels a command for agents that have not answered yet; returns their number.
    ///
    /// # Errors
    /// Returns an error if the store fails.
    pub fn cancel_command(&self, context: &WriteContext, id: u64) -> Result<u64, RegistryError> {
        self.finish_command(context, id, OutcomeState::Cancelled)
    }

    fn finish_command(
        &self,
        context: &WriteContext,
        id: u64,
        state: OutcomeState,
    ) -> Result<u64, RegistryError> {
        self.flush_outcomes()?;
        // The lock prevents a new request from joining this command in the meantime.
        let _order = self.inner.decisions.lock();
        let n = self.inner.store.finish_command(context, id, state, self.now().s)?;
        self.inner.outstanding.lock().remove(id);
        Ok(n)
    }

    /// Writes hand-outs and outcomes; returns their number.
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

    /// Expires commands that are overdue; returns the number of outcomes.
    pub(crate) fn expire_commands(&self) -> Result<u64, RegistryError> {
        let now_s = self.now().s;
        let over: Vec<u64> = {
            let outstanding = self.inner.outstanding.lock();
            let over = outstanding.open.iter().filter(|(_, open)| open.expires_at_s <= now_s);
            over.map(|(id, _)| *id).collect()
        };
        over.into_iter()
            .map(|id| self.finish_command(&WriteContext::server(), id, OutcomeState::Expired))
            .sum()
    }
}

/// Puts rows back before newer ones, so that the order of an agent's rows is kept.
fn put_back(outstanding: &Mutex<OutstandingCommands>, mut rows: Vec<OutcomeRow>) {
    let mut outstanding = outstanding.lock();
    rows.append(&mut outstanding.waiting);
    outstanding.waiting = rows;
}

#[cfg(test)]
#[path = "commands_tests.rs"]
mod tests;
