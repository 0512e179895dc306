//! Decisions as records of a log: random calls with failing appends, kills and power cuts, compared with a
//! model of what was answered and with a second database that has the records only.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use control::log::{EXCLUDED, RowLog as _};
use control::{
    AuditOutcome, CommandKind, ControlError, ControlResult, ControlStore, GroupConfig, LivenessRow,
    NewAgent, NewCommand, NewEnrolmentToken, OutcomeRow, OutcomeState, Reader, Revocation,
    RevocationTarget, StatusCode, WriteContext,
};
use model::{AgentId, AgentStatus, Incarnation};
use tempfile::TempDir;

use crate::memory_log::{Fault, MemoryLog, audited, open};

/// Number of random calls; `HOLDFAST_CALLS` overrides it.
const CALLS: u64 = 6_000;

/// Copies a database as a killed process leaves it.
fn copy(from: &Path, to: &Path) {
    for suffix in ["", "-wal"] {
        let name = |path: &Path| PathBuf::from(format!("{}{suffix}", path.display()));
        match std::fs::copy(name(from), name(to)) {
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => {
                let _ = std::fs::remove_file(name(to));
            }
            copied => drop(copied.unwrap()),
        }
    }
    let _ = std::fs::remove_file(format!("{}-shm", to.display()));
}

/// A generator of numbers (xorshift).
struct Dice(u64);

impl Dice {
    fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % n
    }
}

/// The answered decisions: users with their hash, groups with their configuration, agents with their name.
#[derive(Default, Clone, PartialEq, Debug)]
struct Answered {
    users: BTreeMap<String, String>,
    groups: BTreeMap<String, Vec<u8>>,
    agents: BTreeMap<u32, String>,
    /// Audited changes.
    audited: u64,
}

struct World {
    folder: TempDir,
    log: Arc<MemoryLog>,
    /// `None` only while it is opened again.
    store: Option<ControlStore>,
    dice: Dice,
    answered: Answered,
    number: u64,
}

fn revoked(user: u32) -> Revocation {
    let target = RevocationTarget::User(user);
    Revocation { target, issued_until_s: 5, expires_at_s: 1 << 40 }
}

impl World {
    fn new(seed: u64) -> Self {
        let folder = TempDir::new().unwrap();
        let log = Arc::new(MemoryLog::default());
        let store = Some(open(&folder.path().join("registry.db"), &log));
        let copied =
            Self { folder, log, store, dice: Dice(seed), answered: Answered::default(), number: 0 };
        copy(&copied.at("registry.db"), &copied.at("follower.db"));
        copy(&copied.at("registry.db"), &copied.at("older.db"));
        copied
    }

    fn at(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn store(&self) -> &ControlStore {
        self.store.as_ref().unwrap()
    }

    fn name(&mut self, kind: &str) -> String {
        format!("{kind}{}", self.dice.below(25))
    }

    /// Makes one random call. Returns an error if it was refused by the log.
    fn call(&mut self) -> Result<(), ControlError> {
        self.number += 1;
        let n = self.number;
        let context = if n.is_multiple_of(3) { audited(n) } else { WriteContext::server() };
        let done = self.change(n, &context);
        let counted = matches!(context.pending(), control::PendingAudit::Written { .. });
        if done.is_ok() && counted && n.is_multiple_of(6) {
            self.store().end_audit(&context, AuditOutcome::Done)?;
        }
        if let Err(error @ (ControlError::NotLogged(_) | ControlError::Poisoned(_))) = done {
            return Err(error);
        }
        // Otherwise the call itself was wrong: another user of that name, for example.
        self.answered.audited += u64::from(counted);
        Ok(())
    }

    #[expect(clippy::too_many_lines, reason = "one arm for each method")]
    fn change(&mut self, n: u64, by: &WriteContext) -> ControlResult<()> {
        let (user, group) = (self.name("user"), self.name("group"));
        let agent = AgentId(u32::try_from(1 + self.dice.below(30)).unwrap());
        let now_s = i64::try_from(n).unwrap();
        let answered = &mut self.answered;
        let store = self.store.as_ref().unwrap();
        let life = |id: &AgentId| answered_life(store, *id);
        match self.dice.below(16) {
            0 | 1 => {
                store.create_user(by, &user, &format!("hash{n}"), n.is_multiple_of(2), &[1, 2])?;
                answered.users.insert(user, format!("hash{n}"));
            }
            2 => {
                store.set_password_hash(by, &user, &format!("hash{n}"), &revoked(agent.0))?;
                answered.users.insert(user, format!("hash{n}"));
            }
            3 => {
                store.delete_user(by, &user, &revoked(agent.0))?;
                answered.users.remove(&user);
            }
            4 | 5 => {
                store.create_group(by, &group, now_s)?;
                answered.groups.insert(group, Vec::new());
            }
            6 => {
                let body = format!("# {n}\n").into_bytes();
                let config = GroupConfig { body: body.clone(), sum: format!("{n}"), at_s: now_s };
                store.set_group_config(by, &group, &config)?;
                answered.groups.insert(group, body);
            }
            7 => {
                store.delete_group(by, &group)?;
                answered.groups.remove(&group);
            }
            8 | 9 => {
                let new = NewAgent {
                    id: None,
                    name: format!("agent{n}"),
                    register_ip: "any".into(),
                    groups: answered.groups.keys().take(2).cloned().collect(),
                    incarnation: Incarnation(n),
                    client_key: None,
                    ephemeral_s: None,
                    now_s,
                };
                for row in store.add_agents(by, &[new])? {
                    answered.agents.insert(row.record.id.0, row.record.name);
                }
            }
            10 => {
                store.remove_agents(by, &[agent], now_s)?;
                answered.agents.remove(&agent.0);
            }
            11 => {
                let groups = answered.groups.keys().skip(1).take(2).cloned().collect();
                store.set_groups_of(by, &[(agent, groups)])?;
            }
            12 => {
                let row = LivenessRow {
                    id: agent,
                    incarnation: life(&agent),
                    status: AgentStatus::Active,
                    status_code: StatusCode::default(),
                    keepalive_at_s: Some(now_s),
                    disconnected_at_s: None,
                    info: None,
                };
                store.save_liveness(&[row])?;
            }
            13 => {
                let agents: Vec<AgentId> = answered.agents.keys().map(|id| AgentId(*id)).collect();
                let kind = CommandKind::Rescan;
                let (user, expires_at_s) = (user, now_s + 100);
                let command = NewCommand { kind, agents, user, now_s, expires_at_s };
                let id = store.create_command(by, &command)?;
                let state = OutcomeState::Acknowledged;
                let detail = String::new();
                store.save_outcomes(&[OutcomeRow {
                    command: id,
                    agent,
                    state,
                    detail,
                    at_s: now_s,
                }])?;
            }
            14 => {
                let token = NewEnrolmentToken {
                    digest: [u8::try_from(n % 251).unwrap(); 32],
                    groups: Vec::new(),
                    uses: 2,
                    expires_at_s: now_s + 50,
                    ephemeral_s: None,
                    now_s,
                };
                store.add_enrolment_token(by, &token)?;
            }
            _ => drop(store.forget_expired(now_s - 20)?),
        }
        Ok(())
    }

    /// Lets the process die, or the power fail, and opens the database again.
    fn crash(&mut self) {
        let (own, killed) = (self.at("registry.db"), self.at("killed.db"));
        copy(&own, &killed);
        drop(self.store.take());
        match self.dice.below(3) {
            0 => {}
            1 => copy(&killed, &own),
            // A power cut leaves any state between the last flush and the end.
            _ => copy(&self.at("older.db"), &own),
        }
        self.store = Some(open(&own, &self.log));
        if self.dice.below(2) == 0 {
            copy(&own, &self.at("older.db"));
        }
        self.expect_answered();
        self.expect_follower();
    }

    /// Compares the database with what was answered.
    fn expect_answered(&self) {
        let (reader, store) = (Reader::server(), self.store());
        let users = store.users(&reader).unwrap();
        let users: BTreeMap<_, _> = users.into_iter().map(|u| (u.name, u.password_hash)).collect();
        assert_eq!(users, self.answered.users);
        let mut groups = BTreeMap::new();
        for group in store.groups(&reader).unwrap().iter().filter(|group| group.name != "default") {
            let config = store.group_config(&reader, &group.name).unwrap();
            groups.insert(group.name.clone(), config.map(|config| config.body).unwrap_or_default());
        }
        assert_eq!(groups, self.answered.groups);
        let agents = store.load().unwrap().agents;
        let agents = agents.into_iter().map(|row| (row.record.id.0, row.record.name)).collect();
        assert_eq!(self.answered.agents, agents);
        let rows = store.audit_log(&reader, None, 1 << 20).unwrap().len() as u64;
        assert_eq!(rows, self.answered.audited, "rows of the audit log");
    }

    /// Brings the follower up to the log's end, and compares all tables.
    fn expect_follower(&self) {
        self.store().log_reports().unwrap();
        let follower = self.at("follower.db");
        ControlStore::catch_up(&follower, &*self.log).unwrap();
        let of = |path: &Path| {
            let conn = rusqlite::Connection::open(path).unwrap();
            rows::contents(&conn, &EXCLUDED).unwrap()
        };
        let (own, followed) = (of(&self.at("registry.db")), of(&follower));
        for (table, rows) in own {
            assert_eq!(Some(&rows), followed.get(&table), "table {table}");
        }
    }
}

fn answered_life(store: &ControlStore, id: AgentId) -> Incarnation {
    let agents = store.load().unwrap().agents;
    let found = agents.iter().find(|row| row.record.id == id);
    found.map_or(Incarnation(0), |row| row.record.incarnation)
}

#[test]
fn random_decisions_survive_crashes_and_reach_a_follower() {
    let number = std::env::var("HOLDFAST_CALLS").ok().and_then(|n| n.parse().ok());
    let seed = std::env::var("HOLDFAST_SEED").ok().and_then(|n| n.parse().ok()).unwrap_or(11);
    println!("HOLDFAST_SEED={seed}");
    let mut world = World::new(seed);
    let (mut refused, mut unknown) = (0, 0);
    for n in 0..number.unwrap_or(CALLS) {
        let fault = match world.dice.below(120) {
            0 => Some(Fault::Refused),
            1 => Some(Fault::Stored),
            2 => Some(Fault::Lost),
            _ => None,
        };
        *world.log.fault.lock() = fault;
        let before = world.answered.clone();
        let end = world.log.end();
        let done = world.call();
        *world.log.fault.lock() = None;
        match done {
            Ok(()) => {}
            Err(ControlError::NotLogged(_)) => {
                refused += 1;
                world.answered = before;
            }
            Err(_) => {
                // The outcome was not known. Only opening the database again says so.
                unknown += 1;
                world.answered = before;
                let stored = world.log.end() > end;
                drop(world.store.take());
                world.store = Some(open(&world.at("registry.db"), &world.log));
                if stored {
                    world.adopt();
                }
                world.expect_answered();
            }
        }
        if n % 97 == 0 {
            world.crash();
        }
    }
    world.crash();
    assert!(refused > 10 && unknown > 20, "{refused} refused, {unknown} unknown");
}

impl World {
    /// Takes over what a record did that was stored although its caller got an error.
    fn adopt(&mut self) {
        let (reader, store) = (Reader::server(), self.store.as_ref().unwrap());
        let users = store.users(&reader).unwrap();
        self.answered.users = users.into_iter().map(|u| (u.name, u.password_hash)).collect();
        self.answered.groups.clear();
        for group in store.groups(&reader).unwrap().iter().filter(|group| group.name != "default") {
            let config = store.group_config(&reader, &group.name).unwrap();
            let body = config.map(|config| config.body).unwrap_or_default();
            self.answered.groups.insert(group.name.clone(), body);
        }
        let agents = store.load().unwrap().agents;
        self.answered.agents =
            agents.into_iter().map(|row| (row.record.id.0, row.record.name)).collect();
        self.answered.audited = store.audit_log(&reader, None, 1 << 20).unwrap().len() as u64;
    }
}
