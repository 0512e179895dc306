//! The fleet in memory: the agents, their status, and the changes not yet in the database. No I/O.
//!
//! An agent's status follows its reports: startup makes it pending, a keepalive active, a goodbye
//! disconnected; silence for the disconnection time makes an active or pending one disconnected.
//! Silence is measured on the monotonic clock and only while the server listens: neither a jump of
//! the wall clock nor the server's own downtime disconnects an agent.
//!
//! The configuration that an agent should run is determined by its groups ([`Configs`]). The agent
//! reports the one that it runs. A flag that tells if both are equal is stored with them.

mod config;
mod presence;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use control::{AgentRow, ConfigState, InfoRow, LivenessRow, Permitted, StatusCode, StatusSummary};
use model::{AgentId, AgentOs, AgentRecord, AgentStatus, Overlay};

use crate::configs::Configs;
use crate::roll::{AgentTable, MovingColumns, Search};
use crate::types::{AgentInfo, ConfigProblem};

/// Longest text in an agent's description of itself, bytes. Longer ones are cut.
const INFO_BYTES_MAX: usize = 512;

struct LiveAgent {
    record: AgentRecord,
    status_code: StatusCode,
    heard: Duration,
    /// True if only the keepalive time changed since the row was written.
    seen: bool,
    /// True if the status changed since the row was written.
    changed: bool,
    /// True if its description of itself changed since the row was written.
    info: bool,
    /// Digest of its groups' configuration; `None` when that cannot be determined.
    wanted: Option<Arc<str>>,
    /// Digest of the configuration that it runs; `None` until its first report.
    runs: Option<Arc<str>>,
    /// The configuration that it refused, with the reason.
    problem: Option<Box<ConfigProblem>>,
    /// True if one of the two digests changed since the row was written.
    config: bool,
    /// Silence after which it is removed, seconds; `None` for an agent that stays.
    ephemeral_s: Option<u64>,
}

impl LiveAgent {
    fn synced(&self) -> bool {
        self.wanted.is_some() && self.runs == self.wanted
    }

    fn config_state(&self) -> ConfigState {
        ConfigState { sum: self.runs.as_deref().map(str::to_owned), synced: self.synced() }
    }
}

/// The time of a call.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Now {
    /// Guarded time, seconds since the epoch: for everything that expires, is forgotten or is
    /// compared with a stored time.
    pub(crate) s: i64,
    /// Wall clock, seconds since the epoch: for times that others compare with their own clocks.
    pub(crate) wall_s: i64,
    pub(crate) monotonic: Duration,
}

/// All agents but 000.
#[derive(Default)]
pub(crate) struct Fleet {
    agents: HashMap<AgentId, LiveAgent>,
    roll: AgentTable,
    /// Agents by status.
    status: StatusSummary,
    groups: HashMap<String, Members>,
    /// Silent agents, with the time since when, microseconds since the epoch.
    silent: BTreeMap<AgentId, u64>,
    seen: Vec<AgentId>,
    changed: Vec<AgentId>,
    /// Agents whose digests are to be written.
    configured: Vec<AgentId>,
    /// True while changed rows were taken that the database may not have yet.
    writing: bool,
    configs: Configs,
    /// Incremented with every change of a group's members.
    membership: u64,
}

/// The agents of a group.
#[derive(Default)]
struct Members {
    ids: BTreeSet<AgentId>,
    /// [`Fleet::membership`] at the last change of this group.
    moved: u64,
}

impl Fleet {
    pub(crate) fn load(rows: Vec<AgentRow>, configs: Configs, now: Now) -> Self {
        let mut fleet = Self { configs, ..Self::default() };
        for row in rows {
            fleet.insert(row, now);
        }
        fleet
    }

    pub(crate) fn insert(&mut self, row: AgentRow, now: Now) {
        let id = row.record.id;
        let wanted = self.configs.sum(&row.record.groups);
        let runs = row.config.sum.map(|sum| same(wanted.as_ref(), &sum));
        let live = LiveAgent {
            status_code: row.status_code,
            heard: now.monotonic,
            seen: false,
            changed: false,
            info: false,
            record: row.record,
            wanted,
            runs,
            problem: None,
            config: false,
            ephemeral_s: row.ephemeral_s,
        };
        // A kill between a group's change and the flush left the stored flag outdated.
        let stale = live.synced() != row.config.synced;
        self.remove(id);
        self.roll.put_agent(&live.record);
        self.status.add(live.record.status);
        self.status.synced += u64::from(live.synced());
        self.join(id, &live.record.groups.clone());
        self.agents.insert(id, live);
        if stale {
            self.configured(id);
        }
    }

    /// Records that the agent got another key. It counts as never connected until it connects.
    pub(crate) fn replace_key(&mut self, row: AgentRecord) {
        let id = row.id;
        let Some(live) = self.agents.get_mut(&id) else { return };
        live.record.register_ip = row.register_ip;
        live.record.added_at_s = row.added_at_s;
        live.record.keepalive_at_s = None;
        // An operator has inserted it.
        live.ephemeral_s = None;
        if live.record.groups != row.groups {
            self.set_groups(id, row.groups);
        }
        self.become_status(id, (AgentStatus::NeverConnected, StatusCode::Ok, None), true);
    }

    pub(crate) fn remove(&mut self, id: AgentId) {
        self.roll.remove(id);
        self.silent.remove(&id);
        if let Some(live) = self.agents.remove(&id) {
            self.status.remove_agent(live.record.status);
            self.status.synced = self.status.synced.saturating_sub(u64::from(live.synced()));
            self.leave(id, &live.record.groups);
        }
    }

    fn join(&mut self, id: AgentId, groups: &[String]) {
        self.membership += 1;
        for group in groups {
            // Most groups are known already, and then no name is copied.
            if !self.groups.contains_key(group) {
                self.groups.insert(group.clone(), Members::default());
            }
            if let Some(members) = self.groups.get_mut(group) {
                members.ids.insert(id);
                members.moved = self.membership;
            }
        }
    }

    fn leave(&mut self, id: AgentId, groups: &[String]) {
        self.membership += 1;
        for group in groups {
            let Some(members) = self.groups.get_mut(group) else { continue };
            members.ids.remove(&id);
            members.moved = self.membership;
            if members.ids.is_empty() {
                self.groups.remove(group);
            }
        }
    }

    /// Returns the agents by status.
    pub(crate) fn status(&self) -> StatusSummary {
        self.status
    }

    /// Returns the roll of every agent by number.
    pub(crate) fn roll(&self) -> &AgentTable {
        &self.roll
    }

    /// Returns the agents of a scope that match the search, ascending.
    pub(crate) fn found(&self, scope: &Permitted, search: &Search) -> Vec<AgentId> {
        self.roll.found(scope, search, |id| {
            let live = self.agents.get(&id)?;
            Some(MovingColumns {
                record: &live.record,
                code: live.status_code,
                sum: live.runs.as_deref(),
                synced: live.synced(),
            })
        })
    }

    /// Returns the agent as it is now, with the reason for its status.
    pub(crate) fn row(&self, id: AgentId) -> Option<(&AgentRecord, StatusCode)> {
        self.agents.get(&id).map(|live| (&live.record, live.status_code))
    }

    pub(crate) fn get(&self, id: AgentId) -> Option<&AgentRecord> {
        self.agents.get(&id).map(|live| &live.record)
    }

    /// Returns a number that changes with every change of the group's members; 0 while it has none.
    pub(crate) fn moved(&self, group: &str) -> u64 {
        self.groups.get(group).map_or(0, |members| members.moved)
    }

    /// Returns the agents of a group, ascending.
    pub(crate) fn members(&self, group: &str) -> Vec<AgentId> {
        let members = self.groups.get(group);
        members.map(|members| members.ids.iter().copied().collect()).unwrap_or_default()
    }

    /// Returns every agent with the reason for its status, in no order.
    pub(crate) fn rows(&self) -> impl Iterator<Item = (&AgentRecord, StatusCode)> {
        self.agents.values().map(|live| (&live.record, live.status_code))
    }

    pub(crate) fn set_groups(&mut self, id: AgentId, groups: Vec<String>) {
        let Some(live) = self.agents.get_mut(&id) else { return };
        let before = std::mem::take(&mut live.record.groups);
        self.leave(id, &before);
        self.join(id, &groups);
        if let Some(live) = self.agents.get_mut(&id) {
            live.record.groups = groups;
            self.roll.put_agent(&live.record);
        }
        self.update_wanted(id);
        self.configured(id);
    }

    pub(crate) fn overlay(&self, id: AgentId, cluster: &str) -> Option<Overlay> {
        let record = self.get(id)?;
        let os = record.os.clone().unwrap_or_default();
        Some(Overlay {
            agent_name: record.name.clone(),
            agent_version: record.version.clone().unwrap_or_default(),
            groups: record.groups.clone(),
            hostname: record.hostname.clone().unwrap_or_default(),
            architecture: os.arch,
            os: [os.name, os.platform, os.family, os.version],
            cluster: cluster.to_owned(),
        })
    }

    pub(crate) fn startup(&mut self, id: AgentId, info: &AgentInfo, now: Now) -> bool {
        self.record_contact(id, info, AgentStatus::Pending, now)
    }

    pub(crate) fn keepalive(&mut self, id: AgentId, info: &AgentInfo, now: Now) -> bool {
        self.record_contact(id, info, AgentStatus::Active, now)
    }

    fn record_contact(
        &mut self,
        id: AgentId,
        info: &AgentInfo,
        status: AgentStatus,
        now: Now,
    ) -> bool {
        let Some(live) = self.agents.get_mut(&id) else { return false };
        live.heard = now.monotonic;
        live.record.keepalive_at_s = Some(now.s);
        let described = merge(&mut live.record, info);
        live.info |= described;
        self.become_status(id, (status, StatusCode::Ok, None), described);
        self.heard_first(id);
        true
    }

    /// Disconnects an agent that said goodbye, for the reason `code`.
    pub(crate) fn goodbye(&mut self, id: AgentId, code: StatusCode, now: Now) -> bool {
        let Some(live) = self.agents.get_mut(&id) else { return false };
        live.heard = now.monotonic;
        let leaves = code == StatusCode::Left && live.status_code != code;
        if live.record.status != AgentStatus::Disconnected || leaves {
            let to = (AgentStatus::Disconnected, code, Some(now.s));
            self.become_status(id, to, false);
        }
        self.heard_first(id);
        true
    }

    /// Sets the status of an agent and queues its row to be written: as changed, or as seen if
    /// neither its status nor its description changed. `described` is true if its description
    /// changed with this call, so that the roll must be updated.
    fn become_status(
        &mut self,
        id: AgentId,
        (status, code, disconnected_at_s): (AgentStatus, StatusCode, Option<i64>),
        described: bool,
    ) {
        let Some(live) = self.agents.get_mut(&id) else { return };
        let same = live.record.status == status
            && live.status_code == code
            && live.record.disconnected_at_s == disconnected_at_s;
        self.status.remove_agent(live.record.status);
        self.status.add(status);
        live.record.status = status;
        live.status_code = code;
        live.record.disconnected_at_s = disconnected_at_s;
        if described || !same {
            self.roll.put_agent(&live.record);
        }
        if same && !live.info {
            if !live.seen && !live.changed {
                live.seen = true;
                self.seen.push(id);
            }
        } else if !live.changed {
            live.changed = true;
            self.changed.push(id);
        }
    }

    /// Disconnects agents that were silent for `silence`; returns their number.
    pub(crate) fn sweep(&mut self, silence: Duration, now: Now) -> u64 {
        let silent: Vec<AgentId> = self
            .agents
            .values()
            .filter(|live| matches!(live.record.status, AgentStatus::Active | AgentStatus::Pending))
            .filter(|live| now.monotonic.saturating_sub(live.heard) >= silence)
            .map(|live| live.record.id)
            .collect();
        for id in &silent {
            let to = (AgentStatus::Disconnected, StatusCode::NoKeepalive, Some(now.s));
            self.become_status(*id, to, false);
        }
        silent.len() as u64
    }

    /// Returns true if the database's lists and counters may differ from memory, also while another
    /// thread is writing the difference.
    pub(crate) fn unsettled(&self) -> bool {
        self.writing || !self.changed.is_empty() || !self.configured.is_empty()
    }

    /// Takes up to `max` rows to write: first those whose status or description changed, then, with
    /// `all`, those with a new keepalive only. Sorted by number, so that each page of the table is
    /// written once, from one end to the other. The rows that were taken before are written.
    pub(crate) fn take_unwritten(&mut self, max: usize, all: bool) -> Vec<LivenessRow> {
        let mut ids = drain(&mut self.changed, max);
        self.writing = !ids.is_empty();
        if all {
            ids.append(&mut drain(&mut self.seen, max - ids.len()));
        }
        ids.sort_unstable();
        ids.iter().filter_map(|id| self.agents.get_mut(id)?.take_row()).collect()
    }

    /// Marks rows that could not be written as due again.
    pub(crate) fn put_back(&mut self, rows: &[LivenessRow]) {
        self.writing = false;
        for row in rows {
            let Some(live) = self.agents.get_mut(&row.id) else { continue };
            live.info |= row.info.is_some();
            if !std::mem::replace(&mut live.changed, true) {
                self.changed.push(row.id);
            }
        }
    }
}

/// Returns the text, sharing `known` if it is equal.
fn same(known: Option<&Arc<str>>, text: &str) -> Arc<str> {
    known.filter(|known| ***known == *text).map_or_else(|| cut(text).into(), Arc::clone)
}

fn drain(ids: &mut Vec<AgentId>, max: usize) -> Vec<AgentId> {
    // The remaining ones are adjacent as well; sorting a sorted list costs little.
    ids.sort_unstable();
    ids.split_off(ids.len().saturating_sub(max))
}

impl LiveAgent {
    /// Takes the row to write; `None` when it was written in the meantime.
    fn take_row(&mut self) -> Option<LivenessRow> {
        if !(self.seen || self.changed || self.info) {
            return None;
        }
        (self.seen, self.changed) = (false, false);
        let info = std::mem::take(&mut self.info).then(|| InfoRow {
            version: self.record.version.clone(),
            hostname: self.record.hostname.clone(),
            ip: self.record.ip.clone(),
            os: self.record.os.clone(),
        });
        Some(LivenessRow {
            id: self.record.id,
            incarnation: self.record.incarnation,
            status: self.record.status,
            status_code: self.status_code,
            keepalive_at_s: self.record.keepalive_at_s,
            disconnected_at_s: self.record.disconnected_at_s,
            info,
        })
    }
}

/// Merges the agent's description of itself; returns true if anything is new. Most heartbeats
/// contain nothing new, and then nothing is copied.
fn merge(record: &mut AgentRecord, info: &AgentInfo) -> bool {
    let mut new = replace(&mut record.version, info.version.as_deref());
    new |= replace(&mut record.hostname, info.hostname.as_deref());
    new |= replace(&mut record.ip, info.ip.as_deref());
    let Some(os) = &info.os else { return new };
    let known = record.os.get_or_insert_with(|| {
        new = true;
        AgentOs::default()
    });
    for (known, said) in [
        (&mut known.name, &os.name),
        (&mut known.platform, &os.platform),
        (&mut known.family, &os.family),
        (&mut known.version, &os.version),
        (&mut known.arch, &os.arch),
        (&mut known.uname, &os.uname),
        (&mut known.codename, &os.codename),
    ] {
        let said = cut(said);
        if known != said {
            said.clone_into(known);
            new = true;
        }
    }
    new
}

fn replace(known: &mut Option<String>, said: Option<&str>) -> bool {
    let said = said.map(cut);
    let new = said.is_some() && known.as_deref() != said;
    if new {
        *known = said.map(str::to_owned);
    }
    new
}

fn cut(text: &str) -> &str {
    let mut end = text.len().min(INFO_BYTES_MAX);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text.get(..end).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fleet_is_unsettled_until_taken_rows_are_written() {
        let mut fleet = Fleet::default();
        fleet.changed.push(AgentId(1));
        drop(fleet.take_unwritten(10, false));
        assert!(fleet.unsettled(), "a list would read the rows of before");
        assert!(fleet.take_unwritten(10, false).is_empty());
        assert!(!fleet.unsettled());
        fleet.configured.push(AgentId(1));
        drop(fleet.take_configs(10));
        assert!(fleet.unsettled(), "a list would read the rows of before");
        fleet.put_back_configs(&[]);
        assert!(!fleet.unsettled());
    }
}
