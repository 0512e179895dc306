//! Groups and their members.

use model::AgentId;
use rusqlite::{Connection, OptionalExtension, Row, params};

use super::ControlStore;
use super::rows::{self, GroupNames, unsigned};
use crate::limits::{DEFAULT_GROUP, GROUPS_PER_AGENT_MAX, NAME_CHARS_MAX};
use crate::{ControlError, ControlResult, GroupConfig, GroupCount, WriteContext};
use sqlite::Reader;

impl ControlStore {
    /// Returns the configuration of a group, or `None` if it has none.
    ///
    /// # Errors
    /// `NotFound` (group).
    pub fn group_config(&self, reader: &Reader, name: &str) -> ControlResult<Option<GroupConfig>> {
        self.read(reader, |tx| config(tx, name))
    }

    /// Stores the configuration of a group.
    ///
    /// # Errors
    /// `NotFound` (group).
    pub fn set_group_config(
        &self,
        context: &WriteContext,
        name: &str,
        config: &GroupConfig,
    ) -> ControlResult<()> {
        self.write(context, |tx| set_config(tx, name, config))
    }

    /// Creates a group.
    ///
    /// # Errors
    /// `Exists`, `Refused` (name).
    pub fn create_group(
        &self,
        context: &WriteContext,
        name: &str,
        now_s: i64,
    ) -> ControlResult<()> {
        self.write(context, |tx| create(tx, name, now_s))
    }

    /// Deletes a group. Its agents leave it, and those left without a group get `default`. Returns
    /// the changed agents with their remaining groups.
    ///
    /// # Errors
    /// `NotFound`; `Refused` for `default`.
    pub fn delete_group(
        &self,
        context: &WriteContext,
        name: &str,
    ) -> ControlResult<Vec<(AgentId, Vec<String>)>> {
        self.write(context, |tx| delete(tx, name))
    }

    /// Returns every group with the number of its agents, by name.
    pub fn groups(&self, reader: &Reader) -> ControlResult<Vec<GroupCount>> {
        self.read(reader, all)
    }
}

/// Replaces the agent's groups. Duplicates count once; an empty list becomes `default`.
pub(super) fn assign(
    tx: &Connection,
    agent: AgentId,
    groups: &[String],
) -> ControlResult<Vec<String>> {
    let mut names: Vec<String> = Vec::new();
    for name in groups {
        if !names.contains(name) {
            names.push(name.clone());
        }
    }
    if names.is_empty() {
        names.push(DEFAULT_GROUP.into());
    }
    if names.len() > GROUPS_PER_AGENT_MAX {
        let max = GROUPS_PER_AGENT_MAX as u64;
        return Err(ControlError::Limit { what: "groups of one agent", max });
    }
    tx.prepare_cached("DELETE FROM membership WHERE agent = ?1")?.execute([agent.0])?;
    for (priority, name) in names.iter().enumerate() {
        let group = id(tx, name)?;
        tx.prepare_cached("INSERT INTO membership VALUES (?1, ?2, ?3)")?.execute(params![
            agent.0,
            priority as i64,
            group
        ])?;
    }
    Ok(names)
}

fn id(tx: &Connection, name: &str) -> ControlResult<i64> {
    tx.prepare_cached("SELECT id FROM agent_group WHERE name = ?1")?
        .query_row([name], |r| r.get(0))
        .optional()?
        .ok_or_else(|| ControlError::NotFound { what: "group", name: name.to_owned() })
}

/// Returns `NotFound` if one of the groups does not exist.
pub(super) fn require(tx: &Connection, names: &[String]) -> ControlResult<()> {
    names.iter().try_for_each(|name| id(tx, name).map(drop))
}

fn create(tx: &Connection, name: &str, now_s: i64) -> ControlResult<()> {
    if !valid(name) {
        return Err(ControlError::Refused(format!(
            "group name {name:?}: use 1 to {NAME_CHARS_MAX} of A-Z a-z 0-9 . _ - and neither \
             `.`, `..` nor `all`"
        )));
    }
    if id(tx, name).is_ok() {
        return Err(ControlError::Exists { what: "group", name: name.to_owned() });
    }
    rows::run(
        tx,
        "INSERT INTO agent_group (name, created_at_s) VALUES (?1, ?2)",
        params![name, now_s],
    )?;
    Ok(())
}

fn valid(name: &str) -> bool {
    (1..=NAME_CHARS_MAX).contains(&name.len())
        && name.bytes().all(|b| b.is_ascii_alphanumeric() || b"._-".contains(&b))
        && ![".", "..", "all"].contains(&name)
}

fn delete(tx: &Connection, name: &str) -> ControlResult<Vec<(AgentId, Vec<String>)>> {
    if name == DEFAULT_GROUP {
        return Err(ControlError::Refused("the group default cannot be deleted".into()));
    }
    let group = id(tx, name)?;
    let members: Vec<u32> = tx
        .prepare_cached("SELECT agent FROM membership WHERE grp = ?1 ORDER BY agent")?
        .query_map([group], |r| r.get(0))?
        .collect::<Result<_, _>>()?;
    let mut changed = Vec::with_capacity(members.len());
    for agent in members {
        let mut rest = of(tx, AgentId(agent))?;
        rest.retain(|other| other != name);
        changed.push((AgentId(agent), assign(tx, AgentId(agent), &rest)?));
    }
    rows::run(tx, "DELETE FROM agent_group WHERE id = ?1", [group])?;
    Ok(changed)
}

fn of(tx: &Connection, agent: AgentId) -> ControlResult<Vec<String>> {
    let mut statement = tx.prepare_cached(
        "SELECT g.name FROM membership m JOIN agent_group g ON g.id = m.grp
         WHERE m.agent = ?1 ORDER BY m.priority",
    )?;
    let names = statement.query_map([agent.0], |r| r.get(0))?.collect::<Result<_, _>>()?;
    Ok(names)
}

pub(super) fn all(tx: &Connection) -> ControlResult<Vec<GroupCount>> {
    let mut statement =
        tx.prepare_cached("SELECT name, agents, config_sum FROM agent_group ORDER BY name")?;
    let groups = statement
        .query_map([], |r| {
            Ok(GroupCount { name: r.get(0)?, count: unsigned(r, 1)?, config_sum: r.get(2)? })
        })?
        .collect::<Result<_, _>>()?;
    Ok(groups)
}

pub(super) fn names(tx: &Connection) -> ControlResult<GroupNames> {
    let mut statement = tx.prepare_cached("SELECT id, name FROM agent_group")?;
    let names =
        statement.query_map([], |r| Ok((r.get(0)?, r.get(1)?)))?.collect::<Result<_, _>>()?;
    Ok(names)
}

fn config(tx: &Connection, name: &str) -> ControlResult<Option<GroupConfig>> {
    let group = id(tx, name)?;
    let mut statement = tx.prepare_cached(
        "SELECT config, config_sum, config_at_s FROM agent_group
         WHERE id = ?1 AND config IS NOT NULL",
    )?;
    let row = |r: &Row<'_>| Ok(GroupConfig { body: r.get(0)?, sum: r.get(1)?, at_s: r.get(2)? });
    Ok(statement.query_row([group], row).optional()?)
}

/// Returns every group that has a configuration, with its text.
pub(super) fn configs(tx: &Connection) -> ControlResult<Vec<(String, Vec<u8>)>> {
    let mut statement =
        tx.prepare_cached("SELECT name, config FROM agent_group WHERE config IS NOT NULL")?;
    let configs =
        statement.query_map([], |r| Ok((r.get(0)?, r.get(1)?)))?.collect::<Result<_, _>>()?;
    Ok(configs)
}

fn set_config(tx: &Connection, name: &str, config: &GroupConfig) -> ControlResult<()> {
    let group = id(tx, name)?;
    tx.prepare_cached(
        "UPDATE agent_group SET config = ?2, config_sum = ?3, config_at_s = ?4 WHERE id = ?1",
    )?
    .execute(params![group, config.body, config.sum, config.at_s])?;
    Ok(())
}
