//! Registration of agents, replacement and removal.

use model::AgentId;
use rusqlite::Connection;

use super::{ControlStore, agents, certificates, commands, groups};
use crate::{AgentRow, ControlError, ControlResult, EnrolledAgent, NewAgent, Sign, WriteContext};
use sqlite::Reader;

impl ControlStore {
    /// Uses the token once and registers an agent with groups and the certificate that `sign`
    /// issues, in one transaction.
    ///
    /// # Errors
    /// `Token`, `DuplicateName`, `NotFound` (group), `Certificate`; then nothing was changed and
    /// the token was not used.
    pub fn enroll(
        &self,
        digest: &[u8; 32],
        agent: &NewAgent,
        sign: Sign<'_>,
    ) -> ControlResult<EnrolledAgent> {
        self.write(&WriteContext::server(), |tx| {
            let token = certificates::use_token(tx, digest, agent.now_s)?;
            let mut agent = agent.clone();
            agent.groups.splice(0..0, token.groups.iter().cloned());
            agent.ephemeral_s = token.ephemeral_s;
            let row = agents::add(tx, &agent, &[])?;
            let certificate = sign(row.record.id).map_err(ControlError::Certificate)?;
            certificates::insert_first(tx, &row.record, &certificate, &token)?;
            Ok(EnrolledAgent { row, certificate })
        })
    }

    /// Registers agents that are added or imported (no token, no certificate yet), all or none.
    ///
    /// # Errors
    /// `DuplicateName`, `NotFound` (group), `NumberUsed`.
    pub fn add_agents(
        &self,
        context: &WriteContext,
        new: &[NewAgent],
    ) -> ControlResult<Vec<AgentRow>> {
        self.write(context, |tx| new.iter().map(|agent| agents::add(tx, agent, &[])).collect())
    }

    /// Removes agents and registers one in their place, in one transaction. The new agent may take
    /// a number of `freed`, without the commands of the former agent. If one of `gone` has its
    /// number and name, it is the same agent: only key, address, date and (if named) groups change,
    /// and its certificates are revoked. Returns the removed agents and the new one.
    ///
    /// # Errors
    /// As [`ControlStore::add_agents`]; then nothing was changed.
    pub fn replace_agents(
        &self,
        context: &WriteContext,
        gone: &[AgentId],
        freed: &[AgentId],
        new: &NewAgent,
    ) -> ControlResult<(Vec<AgentRow>, AgentRow)> {
        self.write(context, |tx| replace(tx, gone, freed, new))
    }

    /// Returns the error that [`ControlStore::replace_agents`] would return now. Changes nothing.
    ///
    /// # Errors
    /// As there.
    pub fn try_replace_agents(
        &self,
        reader: &Reader,
        gone: &[AgentId],
        new: &NewAgent,
    ) -> ControlResult<()> {
        self.try_out(reader, |tx| replace(tx, gone, gone, new).map(drop))
    }

    /// Removes the agent with its groups and pending outcomes and revokes its certificates. Returns
    /// the former row, or `None` if it does not exist.
    ///
    /// # Errors
    /// `Refused` for 000.
    pub fn remove_agent(
        &self,
        context: &WriteContext,
        agent: AgentId,
        now_s: i64,
    ) -> ControlResult<Option<AgentRow>> {
        Ok(self.remove_agents(context, &[agent], now_s)?.pop())
    }

    /// Removes agents in one transaction, as [`ControlStore::remove_agent`] does; returns the
    /// former rows. Numbers that are not registered are skipped.
    ///
    /// # Errors
    /// `Refused` for 000; then none is removed.
    pub fn remove_agents(
        &self,
        context: &WriteContext,
        agents: &[AgentId],
        now_s: i64,
    ) -> ControlResult<Vec<AgentRow>> {
        self.write(context, |tx| remove(tx, agents, now_s))
    }
}

/// Removes agents. Returns the rows of those that existed.
fn remove(tx: &Connection, ids: &[AgentId], now_s: i64) -> ControlResult<Vec<AgentRow>> {
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
fn replace(
    tx: &Connection,
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
