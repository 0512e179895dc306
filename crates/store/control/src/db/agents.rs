//! Agents: registration, removal, and what they report about themselves.

use model::{AgentId, AgentRecord, AgentStatus};
use rusqlite::{Connection, OptionalExtension, params};

use super::rows::{self, AGENT_COLUMNS, GroupNames, bits, version_key};
use super::{ControlStore, certificates, commands, groups, users};
use crate::types::InfoRow;
use crate::{
    AgentRow, ConfigRow, ConfigState, ControlError, ControlResult, LastScan, LivenessRow, NewAgent,
    StatusCode, WriteContext,
};
use sqlite::Reader;

impl ControlStore {
    /// Writes agent 000, the server's own entry. Returns its date of registration, seconds since
    /// the epoch: that of the first call.
    pub fn save_server(&self, server: &AgentRecord) -> ControlResult<i64> {
        self.write(&WriteContext::server(), |tx| save_server(tx, server))
    }

    /// Returns the agents that have this name, this number or this registration address (`None`:
    /// the address may be shared), ascending.
    pub fn rivals(
        &self,
        reader: &Reader,
        name: &str,
        id: Option<AgentId>,
        register_ip: Option<&str>,
    ) -> ControlResult<Vec<AgentId>> {
        // This uses the writer, which the decision needs anyway, so that it does not wait for long
        // lists.
        self.write_soft(reader, |tx| rivals(tx, name, id, register_ip))
    }

    /// Frees numbers of removed agents: an agent that asks for one of them may get it.
    pub fn free_numbers(&self, context: &WriteContext, ids: &[AgentId]) -> ControlResult<()> {
        self.write(context, |tx| ids.iter().try_for_each(|id| free_number(tx, *id)))
    }

    /// Returns the key of the agent for 4.x clients, or `None` if it has none.
    ///
    /// # Errors
    /// `NotFound` (agent).
    pub fn client_key(&self, reader: &Reader, agent: AgentId) -> ControlResult<Option<String>> {
        self.read(reader, |tx| client_key(tx, agent))
    }

    /// Writes the last scans of agents in one transaction; survives a killed process.
    pub fn save_last_scans(&self, scans: &[(AgentId, LastScan)]) -> ControlResult<()> {
        self.write_soft(&Reader::server(), |tx| save_last_scans(tx, scans))
    }

    /// Returns the last scan as the agent reported it.
    ///
    /// # Errors
    /// `NotFound` (agent).
    pub fn last_scan(&self, reader: &Reader, agent: AgentId) -> ControlResult<LastScan> {
        self.read(reader, |tx| last_scan(tx, agent))
    }

    /// Writes status and system of agents in one transaction; survives a killed process. Rows of
    /// removed agents are skipped.
    pub fn save_liveness(&self, rows: &[LivenessRow]) -> ControlResult<()> {
        self.write_soft(&Reader::server(), |tx| save_liveness(tx, rows))
    }

    /// Writes which configuration agents run, in one transaction; survives a killed process. Rows
    /// of removed agents are skipped.
    pub fn save_configs(&self, rows: &[ConfigRow]) -> ControlResult<()> {
        self.write_soft(&Reader::server(), |tx| save_configs(tx, rows))
    }

    /// Returns the number that the next new agent gets.
    ///
    /// # Errors
    /// Returns an error if the store fails.
    pub fn next_agent(&self, reader: &Reader) -> ControlResult<AgentId> {
        self.read(reader, |tx| next_number(tx).map(AgentId))
    }

    /// Raises the number that the next new agent gets above `used`. Returns the next number.
    ///
    /// # Errors
    /// `Limit` above the highest number.
    pub fn raise_next_agent(
        &self,
        context: &WriteContext,
        used: AgentId,
    ) -> ControlResult<AgentId> {
        self.write(context, |tx| {
            let next = next_number(tx)?;
            if used.0 < next {
                return Ok(AgentId(next));
            }
            let after = after(used.0)?;
            users::set_setting(tx, NEXT_AGENT, &after.to_string())?;
            Ok(AgentId(after))
        })
    }

    /// Replaces the agent's groups, in order of priority; an empty list becomes `default`. Returns
    /// the groups that it has now.
    ///
    /// # Errors
    /// `NotFound` (agent or group), `Limit` at [`crate::limits::GROUPS_PER_AGENT_MAX`].
    pub fn set_agent_groups(
        &self,
        context: &WriteContext,
        agent: AgentId,
        groups: &[String],
    ) -> ControlResult<Vec<String>> {
        let changed = self.set_groups_of(context, &[(agent, groups.to_vec())])?;
        Ok(changed.into_iter().next().map(|(_, groups)| groups).unwrap_or_default())
    }

    /// Replaces the groups of several agents in one transaction, all or none. Returns the groups
    /// that each has now.
    ///
    /// # Errors
    /// See [`ControlStore::set_agent_groups`].
    pub fn set_groups_of(
        &self,
        context: &WriteContext,
        agents: &[(AgentId, Vec<String>)],
    ) -> ControlResult<Vec<(AgentId, Vec<String>)>> {
        self.write(context, |tx| {
            agents
                .iter()
                .map(|(agent, groups)| {
                    require(tx, *agent)?;
                    Ok((*agent, groups::assign(tx, *agent, groups)?))
                })
                .collect()
        })
    }
}

const NEXT_AGENT: &str = "next_agent";

/// Returns every agent but 000.
pub(super) fn all(tx: &Connection) -> ControlResult<Vec<AgentRow>> {
    let sql = format!("SELECT {AGENT_COLUMNS} FROM agent a WHERE a.id > 0 ORDER BY a.id");
    let mut statement = tx.prepare_cached(&sql)?;
    let names = groups::names(tx)?;
    let rows = statement.query_and_then([], |row| rows::agent(row, &names))?;
    rows.collect()
}

fn one(tx: &Connection, id: AgentId, names: &GroupNames) -> ControlResult<Option<AgentRow>> {
    let sql = format!("SELECT {AGENT_COLUMNS} FROM agent a WHERE a.id = ?1");
    let mut statement = tx.prepare_cached(&sql)?;
    statement.query_and_then([id.0], |row| rows::agent(row, names))?.next().transpose()
}

/// Returns the agent that was registered last, other than the server. Of those of one second, it is the
/// one with the highest number.
pub(super) fn last(tx: &Connection) -> ControlResult<Option<AgentRow>> {
    // With `id > 0` the planner would read all numbers and sort them.
    let sql = format!(
        "SELECT {AGENT_COLUMNS} FROM agent a WHERE a.id <> 0
         ORDER BY a.added_at_s DESC, a.id DESC LIMIT 1"
    );
    let mut statement = tx.prepare_cached(&sql)?;
    let names = groups::names(tx)?;
    statement.query_and_then([], |row| rows::agent(row, &names))?.next().transpose()
}

pub(super) fn client_key(tx: &Connection, id: AgentId) -> ControlResult<Option<String>> {
    tx.prepare_cached("SELECT client_key FROM agent WHERE id = ?1 AND id > 0")?
        .query_row([id.0], |r| r.get(0))
        .optional()?
        .ok_or_else(|| not_found(id))
}

/// Stores last scans. A missing time leaves the stored one unchanged.
fn save_last_scans(tx: &Connection, scans: &[(AgentId, LastScan)]) -> ControlResult<()> {
    let mut set = tx.prepare_cached(
        "UPDATE agent SET scan_started_at_s = coalesce(?2, scan_started_at_s),
         scan_ended_at_s = coalesce(?3, scan_ended_at_s) WHERE id = ?1",
    )?;
    for (id, scan) in scans {
        set.execute(params![id.0, scan.started_at_s, scan.ended_at_s])?;
    }
    Ok(())
}

pub(super) fn last_scan(tx: &Connection, id: AgentId) -> ControlResult<LastScan> {
    let sql = "SELECT scan_started_at_s, scan_ended_at_s FROM agent WHERE id = ?1";
    tx.prepare_cached(sql)?
        .query_row([id.0], |r| Ok(LastScan { started_at_s: r.get(0)?, ended_at_s: r.get(1)? }))
        .optional()?
        .ok_or_else(|| not_found(id))
}

fn not_found(id: AgentId) -> ControlError {
    ControlError::NotFound { what: "agent", name: id.to_string() }
}

pub(super) fn require(tx: &Connection, id: AgentId) -> ControlResult<()> {
    let there =
        tx.prepare_cached("SELECT 1 FROM agent WHERE id = ?1 AND id > 0")?.exists([id.0])?;
    there.then_some(()).ok_or_else(|| not_found(id))
}

/// Returns the agents with this name in any case, number or address. Each is looked up in its own
/// index. An agent that has this name and number keeps its place next to one whose name differs only
/// in case.
pub(super) fn rivals(
    tx: &Connection,
    name: &str,
    id: Option<AgentId>,
    register_ip: Option<&str>,
) -> ControlResult<Vec<AgentId>> {
    let mut statement = tx.prepare_cached(
        "SELECT id FROM agent WHERE name = ?1 COLLATE NOCASE AND id > 0
         AND NOT EXISTS (SELECT 1 FROM agent WHERE id = ?2 AND name = ?1)
         UNION SELECT id FROM agent WHERE id = ?2 AND id > 0
         UNION SELECT id FROM agent WHERE register_ip = ?3 COLLATE NOCASE AND id > 0
         ORDER BY 1",
    )?;
    let found = statement
        .query_map(params![name, id.map(|id| id.0), register_ip], |r| r.get(0).map(AgentId))?
        .collect::<Result<_, _>>()?;
    Ok(found)
}

/// Registers one agent. It gets the next number, or the number that it asks for if that was never
/// given or has been freed. `freed` are further numbers that the caller allows to be reused.
pub(super) fn add(tx: &Connection, new: &NewAgent, freed: &[AgentId]) -> ControlResult<AgentRow> {
    let taken = tx
        .prepare_cached("SELECT name, id FROM agent WHERE name = ?1 COLLATE NOCASE AND id > 0")?
        .query_row([&new.name], |r| Ok((r.get(0)?, AgentId(r.get(1)?))))
        .optional()?;
    if let Some((name, id)) = taken {
        return Err(ControlError::DuplicateName { name, id });
    }
    let id = match new.id {
        Some(id) if freed.contains(&id) && require(tx, id).is_err() => {
            rows::run(tx, "DELETE FROM free_number WHERE id = ?1", [id.0])?;
            commands::forget_former_agent(tx, id)?;
            id
        }
        wanted => draw_number(tx, wanted)?,
    };
    tx.prepare_cached(
        "INSERT INTO agent (id, incarnation, name, register_ip, status, added_at_s, client_key,
         ephemeral_s) VALUES (?1, ?2, ?3, ?4, 'never_connected', ?5, ?6, ?7)",
    )?
    .execute(params![
        id.0,
        bits(new.incarnation),
        new.name,
        new.register_ip,
        new.now_s,
        new.client_key,
        new.ephemeral_s.map(rows::signed)
    ])?;
    let groups = groups::assign(tx, id, &new.groups)?;
    let record = AgentRecord {
        id,
        incarnation: new.incarnation,
        name: new.name.clone(),
        register_ip: new.register_ip.clone(),
        ip: None,
        version: None,
        hostname: None,
        os: None,
        groups,
        status: AgentStatus::NeverConnected,
        added_at_s: new.now_s,
        keepalive_at_s: None,
        disconnected_at_s: None,
    };
    Ok(AgentRow {
        record,
        status_code: StatusCode::Ok,
        config: ConfigState::default(),
        ephemeral_s: new.ephemeral_s,
    })
}

/// Returns true if an agent with the same number and name exists.
pub(super) fn is_known(tx: &Connection, new: &NewAgent) -> ControlResult<bool> {
    let Some(id) = new.id else { return Ok(false) };
    let sql = "SELECT 1 FROM agent WHERE id = ?1 AND id > 0 AND name = ?2";
    Ok(tx.prepare_cached(sql)?.exists(params![id.0, new.name])?)
}

/// Replaces the key, address and date of an existing agent, and its groups if any are named.
/// Revokes its certificates; everything else remains.
pub(super) fn replace_key(tx: &Connection, new: &NewAgent) -> ControlResult<AgentRow> {
    let id = new.id.unwrap_or(AgentId::SERVER);
    tx.prepare_cached(
        "UPDATE agent SET client_key = ?2, register_ip = ?3, added_at_s = ?4, ephemeral_s = NULL
         WHERE id = ?1 AND id > 0",
    )?
    .execute(params![id.0, new.client_key, new.register_ip, new.now_s])?;
    certificates::revoke(tx, id, new.now_s)?;
    if !new.groups.is_empty() {
        groups::assign(tx, id, &new.groups)?;
    }
    one(tx, id, &groups::names(tx)?)?.ok_or_else(|| not_found(id))
}

/// Marks a number as free unless an agent has it.
fn free_number(tx: &Connection, id: AgentId) -> ControlResult<()> {
    let sql = "INSERT OR IGNORE INTO free_number
               SELECT ?1 WHERE NOT EXISTS (SELECT 1 FROM agent WHERE id = ?1)";
    rows::run(tx, sql, [id.0])?;
    Ok(())
}

/// Assigns a number. Numbers only grow: one below the next may have been another agent's, so it is
/// given only if it was freed.
fn draw_number(tx: &Connection, wanted: Option<AgentId>) -> ControlResult<AgentId> {
    let next = next_number(tx)?;
    let number = match wanted {
        Some(id) if id.0 < next => {
            if rows::run(tx, "DELETE FROM free_number WHERE id = ?1", [id.0])? > 0 {
                commands::forget_former_agent(tx, id)?;
                return Ok(id);
            }
            return Err(ControlError::NumberUsed { id, next: AgentId(next) });
        }
        Some(AgentId(id)) => id,
        None => next,
    };
    users::set_setting(tx, NEXT_AGENT, &after(number)?.to_string())?;
    Ok(AgentId(number))
}

fn next_number(tx: &Connection) -> ControlResult<u32> {
    users::setting(tx, NEXT_AGENT)?
        .and_then(|text| text.parse().ok())
        .ok_or_else(|| rows::corrupt("setting", NEXT_AGENT))
}

/// Returns the number after a number.
fn after(number: u32) -> ControlResult<u32> {
    let limit = ControlError::Limit { what: "agent numbers", max: u64::from(u32::MAX) };
    number.checked_add(1).ok_or(limit)
}

/// Removes an agent and returns its row. `names` ([`groups::names`]) are read once for many agents.
pub(super) fn remove(
    tx: &Connection,
    id: AgentId,
    names: &GroupNames,
) -> ControlResult<Option<AgentRow>> {
    if id == AgentId::SERVER {
        return Err(ControlError::Refused(
            "agent 000 is the server itself and cannot be removed".into(),
        ));
    }
    let row = one(tx, id, names)?;
    if row.is_some() {
        tx.prepare_cached("DELETE FROM membership WHERE agent = ?1")?.execute([id.0])?;
        tx.prepare_cached("DELETE FROM agent_watch WHERE agent = ?1")?.execute([id.0])?;
        tx.prepare_cached("DELETE FROM agent WHERE id = ?1")?.execute([id.0])?;
    }
    Ok(row)
}

/// Replaces the row of agent 000. Returns its date of registration.
///
/// The date of the first start is stored only in this row, so it is read before the row is deleted.
/// [`save_info`] updates an existing row, so it follows the insert. All steps are one transaction:
/// a crash leaves the old row or the new one.
fn save_server(tx: &Connection, server: &AgentRecord) -> ControlResult<i64> {
    let added = "SELECT added_at_s FROM agent WHERE id = 0";
    let added = tx.query_row(added, [], |row| row.get(0)).optional()?;
    let added_at_s = added.unwrap_or(server.added_at_s);
    rows::run(tx, "DELETE FROM agent WHERE id = 0", [])?;
    rows::run(
        tx,
        "INSERT INTO agent (id, incarnation, name, register_ip, ip, status, added_at_s,
         keepalive_at_s, config_synced) VALUES (0, ?1, ?2, ?3, ?4, ?5, ?6, ?7, 1)",
        params![
            bits(server.incarnation),
            server.name,
            server.register_ip,
            server.ip,
            server.status.name(),
            added_at_s,
            server.keepalive_at_s
        ],
    )?;
    save_info(
        tx,
        0,
        &InfoRow {
            version: server.version.clone(),
            hostname: server.hostname.clone(),
            ip: server.ip.clone(),
            os: server.os.clone(),
        },
    )?;
    Ok(added_at_s)
}

/// Stores the liveness of agents. Most rows change only the keepalive, which is in no index; the
/// other columns are written only if they differ.
fn save_liveness(tx: &Connection, rows: &[LivenessRow]) -> ControlResult<()> {
    let mut seen = tx.prepare_cached(
        "UPDATE agent SET keepalive_at_s = ?1
         WHERE id = ?2 AND incarnation = ?3 AND status = ?4 AND status_code = ?5
         AND disconnected_at_s IS ?6",
    )?;
    let mut status = tx.prepare_cached(
        "UPDATE agent SET keepalive_at_s = ?1, status = ?4, status_code = ?5,
         disconnected_at_s = ?6 WHERE id = ?2 AND incarnation = ?3",
    )?;
    for row in rows {
        let values = params![
            row.keepalive_at_s,
            row.id.0,
            bits(row.incarnation),
            row.status.name(),
            row.status_code.number(),
            row.disconnected_at_s
        ];
        let known = seen.execute(values)? > 0 || status.execute(values)? > 0;
        if let (true, Some(info)) = (known, &row.info) {
            save_info(tx, row.id.0, info)?;
        }
    }
    Ok(())
}

fn save_configs(tx: &Connection, rows: &[ConfigRow]) -> ControlResult<()> {
    let mut set = tx.prepare_cached(
        "UPDATE agent SET merged_sum = ?3, config_synced = ?4 WHERE id = ?1 AND incarnation = ?2",
    )?;
    for row in rows {
        let (id, incarnation) = (row.id.0, bits(row.incarnation));
        set.execute(params![id, incarnation, row.config.sum, row.config.synced])?;
    }
    Ok(())
}

fn save_info(tx: &Connection, id: u32, info: &InfoRow) -> ControlResult<()> {
    let os = info.os.as_ref();
    let version_key_of = |text: Option<&str>| text.and_then(version_key);
    tx.prepare_cached(
        "UPDATE agent SET version = ?2, version_key = ?3, hostname = ?4, ip = ?5, os_name = ?6,
         os_platform = ?7, os_family = ?8, os_version = ?9, os_version_key = ?10, os_arch = ?11,
         os_uname = ?12, os_codename = ?13 WHERE id = ?1",
    )?
    .execute(params![
        id,
        info.version,
        version_key_of(info.version.as_deref()),
        info.hostname,
        info.ip,
        os.map(|o| &o.name),
        os.map(|o| &o.platform),
        os.map(|o| &o.family),
        os.map(|o| &o.version),
        version_key_of(os.map(|o| o.version.as_str())),
        os.map(|o| &o.arch),
        os.map(|o| &o.uname),
        os.map(|o| &o.codename),
    ])?;
    Ok(())
}
