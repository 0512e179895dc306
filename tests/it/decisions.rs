//! Decisions under kills: four callers create groups, users, agents and memberships over the API while
//! the server is killed with SIGKILL, also during its start. After each restart every acknowledged
//! decision is stored exactly once, with exactly one audit row. One without an answer is stored with
//! its audit row or not at all, and stays so.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use serde_json::{Value, json};

use crate::common::{Api, Running, eventually, folder};
use env::random::{Random as _, SeededRandom, SystemRandom};

/// Default number of kills of one run; `HOLDFAST_KILLS` overrides it.
const KILLS: u64 = 8;
/// Number of kills after which a new folder is used.
const ERA: u64 = 8;
/// Number of callers at work at the same time.
const CALLERS: u64 = 4;
/// Fewest decisions to be acknowledged before a kill.
const ACKNOWLEDGED_MIN: u64 = 20;
/// Longest time from those to the kill, milliseconds.
const KILL_AFTER_MS_MAX: u64 = 300;

/// The order of the decisions of a caller. Few are users, because each hashes a password.
const ORDER: [Kind; 7] = [
    Kind::Group,
    Kind::Agent,
    Kind::Membership,
    Kind::User,
    Kind::Agent,
    Kind::Group,
    Kind::Membership,
];

#[derive(Clone, Copy)]
enum Kind {
    Group,
    User,
    Agent,
    Membership,
}

/// A decision, identified by its effects.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Decision {
    /// The thing it creates, as [`stored`] names it.
    creates: String,
    /// Action and detail of its audit row.
    audit: (String, String),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    Acknowledged,
    /// There was no answer.
    Unanswered,
    /// There was no answer, and it was found stored after a restart.
    Found,
    /// There was no answer, and it was not stored after a restart.
    Absent,
}

impl Fate {
    /// Returns true if a decision may be stored `here` times and audited with these outcomes.
    fn allows(self, here: u64, outcomes: &[String]) -> bool {
        match self {
            Self::Acknowledged => here == 1 && outcomes == ["done"],
            Self::Unanswered => here <= 1 && outcomes.len() as u64 == here,
            Self::Found => here == 1 && outcomes.len() == 1,
            Self::Absent => here == 0 && outcomes.is_empty(),
        }
    }

    /// Returns the fate of a decision that is stored `here` times after a restart.
    fn settled(self, here: u64) -> Self {
        match self {
            Self::Unanswered if here == 0 => Self::Absent,
            Self::Unanswered => Self::Found,
            settled => settled,
        }
    }
}

/// The decisions that a server was asked for.
#[derive(Default)]
struct Ledger {
    fates: BTreeMap<Decision, Fate>,
    /// Names of the acknowledged agents by their numbers.
    agents: BTreeMap<String, String>,
}

/// A thread that makes one decision after the other until there is no answer.
struct Caller {
    api: Api,
    /// Distinguishes the names of this caller from those of all others.
    suffix: String,
    /// The newest group.
    group: String,
    /// Number of the newest agent.
    agent: String,
    ledger: Ledger,
}

impl Caller {
    fn start(data: &Path, suffix: String, told: Arc<AtomicU64>) -> JoinHandle<Ledger> {
        let data = data.to_owned();
        std::thread::spawn(move || {
            let (group, agent, ledger) = Default::default();
            let mut caller = Self { api: Api::of(&data), suffix, group, agent, ledger };
            let mut kinds = ORDER.iter().cycle().enumerate();
            while kinds.next().is_some_and(|(number, kind)| caller.decide(*kind, number)) {
                told.fetch_add(1, Ordering::Relaxed);
            }
            caller.ledger
        })
    }

    /// Makes one decision. Returns false if there is no answer.
    fn decide(&mut self, kind: Kind, number: usize) -> bool {
        let name = format!("{number}-{}", self.suffix);
        let (path, body, shown) = match kind {
            Kind::Group => ("/groups", json!({"group_id": name}), None),
            Kind::Agent => ("/agents", json!({"name": name}), None),
            Kind::User => {
                // The audit log masks passwords.
                let body = |password| json!({"username": name, "password": password});
                ("/security/users", body("Secret-pass.1-xyz"), Some(body("****")))
            }
            Kind::Membership => return self.join_group(),
        };
        let (creates, action) = match kind {
            Kind::Group => ("group", "group:create"),
            Kind::Agent => ("agent", "agent:create"),
            Kind::User | Kind::Membership => ("user", "security:create_user"),
        };
        let audit = format!("POST {path}  {}", shown.as_ref().unwrap_or(&body));
        let decision =
            Decision { creates: format!("{creates} {name}"), audit: (action.into(), audit) };
        let Some(answer) = self.send(decision, "POST", path, &body.to_string()) else {
            return false;
        };
        match kind {
            Kind::Group => self.group = name,
            Kind::Agent => {
                answer["data"]["id"].as_str().unwrap().clone_into(&mut self.agent);
                self.ledger.agents.insert(self.agent.clone(), name);
            }
            Kind::User | Kind::Membership => {}
        }
        true
    }

    /// Adds the newest agent to the newest group. Returns false if there is no answer.
    fn join_group(&mut self) -> bool {
        let path = format!("/agents/{}/group/{}", self.agent, self.group);
        let decision = Decision {
            creates: format!("membership {} {}", self.agent, self.group),
            audit: ("agent:modify_group".into(), format!("PUT {path}")),
        };
        self.send(decision, "PUT", &path, "").is_some()
    }

    /// Sends the request of a decision, which must not be refused, and notes its fate.
    fn send(&mut self, decision: Decision, method: &str, path: &str, body: &str) -> Option<Value> {
        let Some((status, text)) = self.api.try_send(method, path, "application/json", body) else {
            self.ledger.fates.insert(decision, Fate::Unanswered);
            return None;
        };
        let answer: Value = serde_json::from_str(&text).unwrap();
        assert_eq!((status, &answer["error"]), (200, &json!(0)), "{decision:?}: {text}");
        self.ledger.fates.insert(decision, Fate::Acknowledged);
        Some(answer)
    }
}

/// Returns how often each thing that a decision creates is stored.
fn stored(api: &Api) -> BTreeMap<String, u64> {
    let mut found = BTreeMap::new();
    let mut add = |what: String| *found.entry(what).or_default() += 1;
    let text = |item: &Value, name: &str| item[name].as_str().unwrap().to_owned();
    for group in api.all("/groups") {
        add(format!("group {}", text(&group, "name")));
    }
    for user in api.all("/security/users") {
        add(format!("user {}", text(&user, "username")));
    }
    for agent in api.all("/agents").iter().filter(|agent| agent["id"] != "000") {
        let number = text(agent, "id");
        add(format!("agent {}", text(agent, "name")));
        for group in agent["group"].as_array().into_iter().flatten().filter(|g| *g != "default") {
            add(format!("membership {number} {}", group.as_str().unwrap()));
        }
    }
    found
}

/// Returns the names of all agents by their numbers.
fn numbers(api: &Api) -> BTreeMap<String, String> {
    let text = |item: &Value, name: &str| item[name].as_str().unwrap().to_owned();
    api.all("/agents").iter().map(|agent| (text(agent, "id"), text(agent, "name"))).collect()
}

/// Returns the outcomes of all audit rows by action and detail.
fn audited(api: &Api) -> BTreeMap<(String, String), Vec<String>> {
    const PAGE: usize = 1_000;
    let mut found = BTreeMap::<_, Vec<String>>::new();
    let mut before = String::new();
    loop {
        let page = api.get(&format!("/audit?limit={PAGE}{before}"));
        let rows = page["data"]["affected_items"].as_array().unwrap();
        for row in rows {
            let text = |name: &str| row[name].as_str().unwrap().to_owned();
            found.entry((text("action"), text("detail"))).or_default().push(text("outcome"));
        }
        match rows.last() {
            Some(last) if rows.len() == PAGE => before = format!("&before={}", last["id"]),
            _ => return found,
        }
    }
}

/// A server that is killed repeatedly, and all decisions that it was asked for.
struct Era {
    base: PathBuf,
    ledger: Ledger,
}

impl Era {
    fn new(base: PathBuf) -> Self {
        fs::create_dir_all(&base).unwrap();
        let config = format!(
            "data = {:?}\n[api]\nlisten = \"127.0.0.1:0\"\nplain_http = true\n\
             max_request_per_minute = 0\n[agents]\nlisten = \"127.0.0.1:0\"\n",
            base.join("data")
        );
        fs::write(base.join("server.toml"), config).unwrap();
        Self { base, ledger: Ledger::default() }
    }

    fn start(&self) -> Running {
        let config = self.base.join("server.toml");
        Running::start(
            &["server", "--config", config.to_str().unwrap()],
            &self.base.join("server.log"),
        )
    }

    /// Starts the server, lets the callers work and kills it.
    fn live(&mut self, life: u64, random: &SeededRandom) {
        let data = self.base.join("data");
        let server = self.start();
        if life > 0 && random.next_u64().unwrap().is_multiple_of(4) {
            // This is no wait for an event: the start is interrupted at a random instant.
            let instant = random.next_u64().unwrap() % KILL_AFTER_MS_MAX;
            std::thread::sleep(Duration::from_millis(instant));
            server.kill();
            return;
        }
        server.line("ready: ");
        self.check(&Api::of(&data));
        let told = Arc::new(AtomicU64::new(0));
        let callers: Vec<_> = (0..CALLERS)
            .map(|caller| Caller::start(&data, format!("{life}-{caller}"), told.clone()))
            .collect();
        eventually("decisions are acknowledged", || {
            let told = told.load(Ordering::Relaxed);
            // A refusal ends its caller.
            let failed = callers.iter().any(JoinHandle::is_finished);
            if told >= ACKNOWLEDGED_MIN || failed { Ok(()) } else { Err(told.to_string()) }
        });
        // This is no wait for an event: the process is killed at a random instant.
        let instant = random.next_u64().unwrap() % KILL_AFTER_MS_MAX;
        std::thread::sleep(Duration::from_millis(instant));
        server.kill();
        for caller in callers {
            let ledger = caller.join().unwrap();
            self.ledger.fates.extend(ledger.fates);
            for (number, name) in ledger.agents {
                let before = self.ledger.agents.insert(number.clone(), name);
                assert_eq!(before, None, "the number {number} was given twice");
            }
        }
    }

    /// Asserts that what is stored agrees with what was acknowledged and with what was found after
    /// earlier restarts. Then settles the decisions that had no answer.
    fn check(&mut self, api: &Api) {
        let (stored, audited, numbers) = (stored(api), audited(api), numbers(api));
        let mut wrong = Vec::new();
        for (decision, fate) in &mut self.ledger.fates {
            let here = stored.get(&decision.creates).copied().unwrap_or_default();
            let outcomes = audited.get(&decision.audit).map(Vec::as_slice).unwrap_or_default();
            if !fate.allows(here, outcomes) {
                wrong.push(format!("{decision:?} {fate:?}: stored {here} times, {outcomes:?}"));
            }
            *fate = fate.settled(here);
        }
        for (number, name) in &self.ledger.agents {
            let found = numbers.get(number);
            if found != Some(name) {
                wrong.push(format!("agent {number} {name}: {found:?}"));
            }
        }
        let twice = stored.iter().filter(|(_, count)| **count > 1);
        wrong.extend(twice.map(|(what, count)| format!("{what}: stored {count} times")));
        let examples: Vec<_> = wrong.iter().take(5).collect();
        assert!(wrong.is_empty(), "{} wrong, for example {examples:#?}", wrong.len());
    }

    /// Asserts that everything is there after the last kill and after a clean stop. Returns the number
    /// of acknowledged decisions, and the number of those that were stored without an answer.
    fn end(mut self) -> (usize, usize) {
        for _ in 0..2 {
            let server = self.start();
            server.line("ready: ");
            self.check(&Api::of(&self.base.join("data")));
            assert_eq!(server.stop(), 0);
        }
        let count = |wanted| self.ledger.fates.values().filter(|fate| **fate == wanted).count();
        let (told, found) = (count(Fate::Acknowledged), count(Fate::Found));
        fs::remove_dir_all(&self.base).unwrap();
        (told, found)
    }
}

#[test]
fn acknowledged_decisions_survive_kills_exactly_once() {
    let seed = std::env::var("HOLDFAST_SEED")
        .map_or_else(|_| SystemRandom.next_u64().unwrap(), |seed| seed.parse().unwrap());
    println!("HOLDFAST_SEED={seed}");
    let random = SeededRandom::new(seed);
    let kills = std::env::var("HOLDFAST_KILLS").map_or(KILLS, |n| n.parse().unwrap());
    let base = folder("decisions-kills");
    let (mut told, mut unanswered) = (0, 0);
    for first in (0..kills).step_by(ERA as usize) {
        let mut era = Era::new(base.join(format!("era{first}")));
        for life in 0..ERA.min(kills - first) {
            era.live(life, &random);
        }
        let (acknowledged, found) = era.end();
        (told, unanswered) = (told + acknowledged, unanswered + found);
    }
    println!(
        "{kills} kills, {told} decisions acknowledged and each stored once, {unanswered} stored without an answer"
    );
}
