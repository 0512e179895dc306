//! The fleet in memory: who there is, who is alive, what is not yet in the database. No I/O.
//!
//! An agent's status follows what it says: startup makes it pending, a keepalive active, a goodbye
//! disconnected; silence for the disconnection time makes an active or pending one disconnected.
//! Silence is measured on the monotone clock and only while the server listens: neither a jump of
//! the wall clock nor the server's own downtime disconnects anybody.

use std::collections::HashMap;
use std::time::Duration;

use model::{AgentId, AgentOs, AgentRecord, AgentStatus, Overlay};
use state::registry::{AgentRow, InfoRow, LivenessRow, StatusCode};

use crate::types::AgentInfo;

/// Longest text that an agent says of itself, bytes; longer ones are cut.
const INFO_BYTES_MAX: usize = 512;

struct Live {
    record: AgentRecord,
    status_code: StatusCode,
    heard: Duration,
    /// Only the keepalive moved since it was written.
    seen: bool,
    /// Its status changed since it was written.
    changed: bool,
    /// What it says of itself changed since it was written.
    info: bool,
}

/// The instant of a call on both clocks.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Now {
    pub(crate) s: i64,
    pub(crate) monotonic: Duration,
}

/// All agents but 000.
#[derive(Default)]
pub(crate) struct Fleet {
    agents: HashMap<AgentId, Live>,
    seen: Vec<AgentId>,
    changed: Vec<AgentId>,
    /// Moves on with every change of who is in which group.
    membership: u64,
}

impl Fleet {
    pub(crate) fn load(rows: Vec<AgentRow>, now: Now) -> Self {
        let mut fleet = Self::default();
        for row in rows {
            fleet.insert(row, now);
        }
        fleet
    }

    pub(crate) fn insert(&mut self, row: AgentRow, now: Now) {
        let live = Live {
            status_code: row.status_code,
            heard: now.monotonic,
            seen: false,
            changed: false,
            info: false,
            record: row.record,
        };
        self.membership += 1;
        self.agents.insert(live.record.id, live);
    }

    pub(crate) fn remove(&mut self, id: AgentId) {
        self.membership += 1;
        self.agents.remove(&id);
    }

    pub(crate) fn get(&self, id: AgentId) -> Option<&AgentRecord> {
        self.agents.get(&id).map(|live| &live.record)
    }

    /// Every agent, in no order.
    pub(crate) fn records(&self) -> impl Iterator<Item = &AgentRecord> {
        self.agents.values().map(|live| &live.record)
    }

    /// Moves on with every change of who is in which group.
    pub(crate) fn membership(&self) -> u64 {
        self.membership
    }

    /// The agents whose groups are as wanted.
    pub(crate) fn members(&self, wanted: impl Fn(&[String]) -> bool) -> Vec<AgentId> {
        let members = self.agents.values().filter(|live| wanted(&live.record.groups));
        members.map(|live| live.record.id).collect()
    }

    pub(crate) fn set_groups(&mut self, id: AgentId, groups: Vec<String>) {
        if let Some(live) = self.agents.get_mut(&id) {
            live.record.groups = groups;
            self.membership += 1;
        }
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
        self.heard(id, info, AgentStatus::Pending, now)
    }

    pub(crate) fn keepalive(&mut self, id: AgentId, info: &AgentInfo, now: Now) -> bool {
        self.heard(id, info, AgentStatus::Active, now)
    }

    fn heard(&mut self, id: AgentId, info: &AgentInfo, status: AgentStatus, now: Now) -> bool {
        let Some(live) = self.agents.get_mut(&id) else { return false };
        live.heard = now.monotonic;
        live.record.keepalive_at_s = Some(now.s);
        live.info |= merge(&mut live.record, info);
        let to = (status, StatusCode::Ok, None);
        self.become_status(id, to);
        true
    }

    pub(crate) fn goodbye(&mut self, id: AgentId, now: Now) -> bool {
        let Some(live) = self.agents.get_mut(&id) else { return false };
        live.heard = now.monotonic;
        if live.record.status != AgentStatus::Disconnected {
            let to = (AgentStatus::Disconnected, StatusCode::Shutdown, Some(now.s));
            self.become_status(id, to);
        }
        true
    }

    /// Put a status on an agent and note what has to be written.
    fn become_status(
        &mut self,
        id: AgentId,
        (status, code, disconnected_at_s): (AgentStatus, StatusCode, Option<i64>),
    ) {
        let Some(live) = self.agents.get_mut(&id) else { return };
        let same = live.record.status == status
            && live.status_code == code
            && live.record.disconnected_at_s == disconnected_at_s;
        live.record.status = status;
        live.status_code = code;
        live.record.disconnected_at_s = disconnected_at_s;
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

    /// Disconnect who was silent for `silence`; how many.
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
            self.become_status(*id, to);
        }
        silent.len() as u64
    }

    /// Whether lists and counters would differ from memory.
    pub(crate) fn unsettled(&self) -> bool {
        !self.changed.is_empty()
    }

    /// Take up to `max` rows to write: those whose status or words changed first, then, with
    /// `all`, those that were only heard from.
    pub(crate) fn take(&mut self, max: usize, all: bool) -> Vec<LivenessRow> {
        let mut ids = drain(&mut self.changed, max);
        if all {
            ids.append(&mut drain(&mut self.seen, max - ids.len()));
        }
        ids.iter().filter_map(|id| self.agents.get_mut(id)?.take()).collect()
    }

    /// The rows could not be written: they are due again.
    pub(crate) fn put_back(&mut self, rows: &[LivenessRow]) {
        for row in rows {
            let Some(live) = self.agents.get_mut(&row.id) else { continue };
            live.info |= row.info.is_some();
            if !std::mem::replace(&mut live.changed, true) {
                self.changed.push(row.id);
            }
        }
    }
}

fn drain(ids: &mut Vec<AgentId>, max: usize) -> Vec<AgentId> {
    ids.split_off(ids.len().saturating_sub(max))
}

impl Live {
    /// The row to write; `None` when it was written meanwhile.
    fn take(&mut self) -> Option<LivenessRow> {
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

/// Take over what the agent says; whether anything is new.
fn merge(record: &mut AgentRecord, info: &AgentInfo) -> bool {
    let os = info.os.as_ref().map(|os| AgentOs {
        name: cut(&os.name),
        platform: cut(&os.platform),
        family: cut(&os.family),
        version: cut(&os.version),
        arch: cut(&os.arch),
        uname: cut(&os.uname),
    });
    let text = |text: &Option<String>| text.as_deref().map(cut);
    let mut new = replace(&mut record.version, text(&info.version));
    new |= replace(&mut record.hostname, text(&info.hostname));
    new |= replace(&mut record.ip, text(&info.ip));
    new | replace(&mut record.os, os)
}

fn replace<T: PartialEq>(known: &mut Option<T>, said: Option<T>) -> bool {
    let new = said.is_some() && *known != said;
    if new {
        *known = said;
    }
    new
}

fn cut(text: &str) -> String {
    let mut end = text.len().min(INFO_BYTES_MAX);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text.get(..end).unwrap_or_default().to_owned()
}
