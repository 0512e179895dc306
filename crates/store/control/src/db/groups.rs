//! Groups and their members.

use model::AgentId;
use rusqlite::{OptionalExtension, Row, Transaction, params};

use super::rows::{self, GroupNames, unsigned};
use crate::limits::{DEFAULT_GROUP, GROUPS_PER_AGENT_MAX, NAME_CHARS_MAX};
use crate::{ControlError, ControlResult, GroupConfig, GroupCount};

/// Replaces the agent's groups. Duplicates count once; an empty list becomes `default`.
pub(super) fn assign(
    tx: &Transaction<'_>,
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

fn id(tx: &Transaction<'_>, name: &str) -> ControlResult<i64> {
    tx.prepare_cached("SELECT id FROM agent_group WHERE name = ?1")?
        .query_row([name], |r| r.get(0))
        .optional()?
        .ok_or_else(|| ControlError::NotFound { what: "group", name: name.to_owned() })
}

/// Returns `NotFound` if one of the groups does not exist.
pub(super) fn require(tx: &Transaction<'_>, names: &[String]) -> ControlResult<()> {
    names.iter().try_for_each(|name| id(tx, name).map(drop))
}

pub(super) fn create(tx: &Transaction<'_>, name: &str, now_s: i64) -> ControlResult<()> {
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

pub(super) fn delete(
    tx: &Transaction<'_>,
    name: &str,
) -> ControlResult<Vec<(AgentId, Vec<String>)>> {
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

fn of(tx: &Transaction<'_>, agent: AgentId) -> ControlResult<Vec<String>> {
    let mut statement = tx.prepare_cached(
        "SELECT g.name FROM membership m JOIN agent_group g ON g.id = m.grp
         WHERE m.agent = ?1 ORDER BY m.priority",
    )?;
    let names = statement.query_map([agent.0], |r| r.get(0))?.collect::<Result<_, _>>()?;
    Ok(names)
}

pub(super) fn all(tx: &Transaction<'_>) -> ControlResult<Vec<GroupCount>> {
    let mut statement =
        tx.prepare_cached("SELECT name, agents, config_sum FROM agent_group ORDER BY name")?;
    let groups = statement
        .query_map([], |r| {
            Ok(GroupCount { name: r.get(0)?, count: unsigned(r, 1)?, config_sum: r.get(2)? })
        })?
        .collect::<Result<_, _>>()?;
    Ok(groups)
}

pub(super) fn names(tx: &Transaction<'_>) -> ControlResult<GroupNames> {
    let mut statement = tx.prepare_cached("SELECT id, name FROM agent_group")?;
    let names =
        statement.query_map([], |r| Ok((r.get(0)?, r.get(1)?)))?.collect::<Result<_, _>>()?;
    Ok(names)
}

pub(super) fn config(tx: &Transaction<'_>, name: &str) -> ControlResult<Option<GroupConfig>> {
    let group = id(tx, name)?;
    let mut statement = tx.prepare_cached(
        "SELECT config, config_sum, config_at_s FROM agent_group
         WHERE id = ?1 AND config IS NOT NULL",
    )?;
    let row = |r: &Row<'_>| Ok(GroupConfig { body: r.get(0)?, sum: r.get(1)?, at_s: r.get(2)? });
    Ok(statement.query_row([group], row).optional()?)
}

/// Returns every group that has a configuration, with its text.
pub(super) fn configs(tx: &Transaction<'_>) -> ControlResult<Vec<(String, Vec<u8>)>> {
    let mut statement =
        tx.prepare_cached("SELECT name, config FROM agent_group WHERE config IS NOT NULL")?;
    let configs =
        statement.query_map([], |r| Ok((r.get(0)?, r.get(1)?)))?.collect::<Result<_, _>>()?;
    Ok(configs)
}

pub(super) fn set_config(
    tx: &Transaction<'_>,
    name: &str,
    config: &GroupConfig,
) -> ControlResult<()> {
    let group = id(tx, name)?;
    tx.prepare_cached(
        "UPDATE agent_group SET config = ?2, config_sum = ?3, config_at_s = ?4 WHERE id = ?1",
    )?
    .execute(params![group, config.body, config.sum, config.at_s])?;
    Ok(())
}
