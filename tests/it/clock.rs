//! A wrong wall clock loses no data: real processes run under a shifted clock that is then
//! corrected.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use crate::common::mounted::folder_to_watch;
use crate::common::shifted::{DAY, HOUR, ShiftedClock, YEAR};
use crate::common::{
    Api, Running, differences, disk, eventually, folder, free_port, run, run_with, stored,
};
use reqwest::StatusCode;
use serde_json::Value;

const PASSWORD: &str = "Clock-Test-1";
const JUMPS: [i64; 7] = [-56 * YEAR, -2 * DAY, -HOUR, HOUR, 2 * DAY, 300 * DAY, 10 * YEAR];
/// Largest jump that is followed at once.
const STEP: i64 = DAY;

/// The process whose clock jumps.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Who {
    Server,
    Agent,
    Both,
    Up,
}

/// Server and agent, each with a clock of its own, or both in one process.
struct World {
    base: PathBuf,
    tree: PathBuf,
    url: String,
    who: Who,
    clocks: [ShiftedClock; 2],
    server: Option<Running>,
    agent: Option<Running>,
    written: usize,
}

impl World {
    fn new(name: &str, who: Who) -> Self {
        let base = folder(name);
        let tree = folder_to_watch(base.join("tree"));
        fs::write(tree.join("first"), "x").unwrap();
        let (agents, api) = (free_port(), free_port());
        let server = format!(
            "data = {:?}\n[api]\nlisten = \"127.0.0.1:{api}\"\nplain_http = true\n\
             max_request_per_minute = 0\n[agents]\nlisten = \"127.0.0.1:{agents}\"\n",
            base.join("server")
        );
        let agent = format!(
            "data = {:?}\nserver = \"https://127.0.0.1:{agents}\"\n[scan]\ninterval = \"1h\"\n\
             [inventory]\npackages = false\n[sync]\nheartbeat = \"200ms\"\n[metrics]\ninterval = \"100ms\"\n[[watch]]\npath = \
             {tree:?}\n",
            base.join("agent")
        );
        fs::write(base.join("server.toml"), server).unwrap();
        fs::write(base.join("agent.toml"), agent).unwrap();
        let clocks = ["server", "agent"].map(|name| ShiftedClock::new(&base, name));
        let url = format!("http://127.0.0.1:{api}/");
        Self { base, tree, url, who, clocks, server: None, agent: None, written: 0 }
    }

    fn data(&self) -> PathBuf {
        self.base.join("server")
    }

    fn api(&self) -> Api {
        Api::of(&self.data())
    }

    fn spawn(&self, role: &str, clock: usize) -> Running {
        let config = self.base.join(format!("{role}.toml"));
        let data = self.data();
        let api = self.url.trim_start_matches("http://").trim_end_matches('/');
        let (tree, data) = (self.tree.to_str().unwrap(), data.to_str().unwrap());
        let up = ["up", "--data", data, "--watch", tree, "--api", api, "--plain-http", "--agents"];
        let words: Vec<&str> = match role {
            "up" => up.into_iter().chain(["127.0.0.1:0", "--scan-interval", "1h"]).collect(),
            role => vec![role, "--config", config.to_str().unwrap()],
        };
        let mut env = self.clocks[clock].env().to_vec();
        env.push(("HOLDFAST_ADMIN_PASSWORD", PASSWORD));
        Running::start_with(&words, &self.base.join(format!("{role}.log")), &env)
    }

    /// Starts the processes that are not running.
    fn start(&mut self) {
        if self.server.is_none() {
            let server = self.spawn(if self.who == Who::Up { "up" } else { "server" }, 0);
            server.line("ready: ");
            self.server = Some(server);
        }
        if self.agent.is_none() && self.who != Who::Up {
            self.agent = Some(self.spawn("agent", 1));
        }
    }

    /// Stops the processes whose clock jumps.
    fn stop(&mut self) {
        if self.who != Who::Server
            && let Some(agent) = self.agent.take()
        {
            assert_eq!(agent.stop(), 0);
        }
        if self.who != Who::Agent
            && let Some(server) = self.server.take()
        {
            assert_eq!(server.stop(), 0);
        }
    }

    fn shift(&self, seconds: i64) {
        if self.who != Who::Agent {
            self.clocks[0].set(seconds);
        }
        if matches!(self.who, Who::Agent | Who::Both) {
            self.clocks[1].set(seconds);
        }
    }

    fn start_enrolled(name: &str, who: Who) -> Self {
        let mut world = Self::new(name, who);
        if who != Who::Up {
            world.server = Some(world.spawn("server", 0));
            world.server.as_ref().unwrap().line("ready: ");
            let (code, token, error) = run(&["token", "--data", world.data().to_str().unwrap()]);
            assert_eq!(code, 0, "{error}");
            let config = world.base.join("agent.toml");
            let words = ["enroll", "--config", config.to_str().unwrap(), "--name", "one"];
            let token = ["--token", token.trim()];
            let (code, _, error) = run(&[&words[..], &token[..]].concat());
            assert_eq!(code, 0, "{error}");
        }
        world.start();
        world.settle();
        world
    }

    /// Returns the path of the last file written.
    fn path(&self) -> String {
        self.tree.join(format!("f{}", self.written)).to_str().unwrap().to_owned()
    }

    /// Makes a change and waits until the server has it.
    fn work(&mut self) {
        self.written += 1;
        fs::write(self.path(), "x").unwrap();
        self.api().rescan("001");
        self.settle();
    }

    /// Waits until the server equals the disk.
    fn settle(&self) {
        let api = self.api();
        eventually("the server equals the disk", || {
            match api.request("GET", "/syscheck/001?limit=1") {
                Some((200, _)) => differences(&disk(&self.tree), &stored(&api, "001")),
                other => Err(format!("{other:?}")),
            }
        });
    }

    fn changes(&self) -> Vec<Value> {
        self.api().history("/changes?agents_list=001")
    }

    fn ready(&self) -> String {
        http(|http| http.get(format!("{}readyz", self.url))).1
    }

    fn log_in(&self) -> String {
        let url = format!("{}security/user/authenticate?raw=true", self.url);
        let (status, token) = http(|http| http.post(url).basic_auth("admin", Some(PASSWORD)));
        assert_eq!(status, 200, "{token}");
        token
    }

    fn may(&self, token: &str) -> bool {
        let (status, text) =
            http(|http| http.get(format!("{}agents", self.url)).bearer_auth(token));
        assert!(status == 200 || status == 401, "{status} {text}");
        status == 200
    }

    fn log_out(&self, token: &str) {
        let url = format!("{}security/user/authenticate", self.url);
        let (status, text) = http(|http| http.delete(url).bearer_auth(token));
        assert_eq!(status, 200, "{text}");
    }

    /// Waits until the server has detected a jump and holds or follows its clock.
    fn noticed(&self, jump: i64) {
        let held = jump.abs() > STEP && self.who != Who::Agent;
        eventually("the server's clock is held or followed", || {
            let ready = self.ready();
            let fine = ready.trim() == if held { "clock_held" } else { "ok" };
            if fine { Ok(()) } else { Err(ready) }
        });
        if held {
            let clock = self.api().get("/clock");
            let detail = clock["data"]["held"]["detail"].as_str().unwrap();
            assert!(detail.contains("holdfast clock accept"), "{detail}");
        }
        let gauge = format!("\nholdfast_clock_held {}\n", u8::from(held));
        eventually("the metric says so", || {
            let (_, text) = http(|http| http.get(format!("{}metrics", self.url)));
            if text.contains(&gauge) { Ok(()) } else { Err(text) }
        });
    }

    /// Returns the number of metric rows that the server has stored since it started.
    fn rows(&self) -> u64 {
        let (status, text) = http(|http| http.get(format!("{}metrics", self.url)));
        assert_eq!(status, 200, "{text}");
        let name = "holdfast_series_samples_total{protocol=\"agent\"} ";
        text.lines().find_map(|line| line.strip_prefix(name)?.parse().ok()).unwrap_or(0)
    }

    /// Waits until further metrics of the agent are stored.
    fn metrics_go_on(&self) {
        let before = self.rows();
        eventually("rows of metrics are stored", || {
            let now = self.rows();
            if now > before { Ok(()) } else { Err(format!("{now} as before")) }
        });
    }

    fn certificate(&self) -> String {
        let of =
            if self.who == Who::Up { self.data().join("agent") } else { self.base.join("agent") };
        fs::read_to_string(of.join("cert.pem")).unwrap()
    }
}

/// Sends one request over TCP. Returns the status and the body.
fn http(request: impl FnOnce(&reqwest::Client) -> reqwest::RequestBuilder) -> (StatusCode, String) {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let answer = request(&reqwest::Client::new()).send().await.unwrap();
        (answer.status(), answer.text().await.unwrap())
    })
}

/// Returns true if an agent whose clock is so far off accepts the server's certificate: it begins a
/// day before the authority was made and ends after 397 days.
fn talks(who: Who, jump: i64) -> bool {
    who == Who::Server || (-DAY / 2..=380 * DAY).contains(&jump)
}

fn ids(changes: &[Value]) -> Vec<String> {
    changes.iter().map(|change| change["event_id"].as_str().unwrap().to_owned()).collect()
}

/// Makes all jumps, one after the other. During a jump, changes are recorded unless the certificate
/// is out of its validity. After a jump, no earlier change is lost or doubled, and new ones arrive.
fn jumps(who: Who, restart: bool) {
    let mut world = World::start_enrolled(&format!("clock-{who:?}-{restart}").to_lowercase(), who);
    for _ in 0..5 {
        world.work();
    }
    let (certificate, kept, revoked) = (world.certificate(), world.log_in(), world.log_in());
    world.log_out(&revoked);
    // A logout may have ended the user's earlier tokens.
    let kept = if world.may(&kept) { kept } else { world.log_in() };
    // Paths changed while a clock was off by less than a day; their order follows that clock.
    let mut hour_off = BTreeSet::new();
    for jump in JUMPS {
        println!("{who:?}, restart {restart}: {} days", jump / DAY);
        let before = ids(&world.changes());
        if restart {
            world.stop();
        }
        world.shift(jump);
        world.start();
        world.noticed(jump);
        if talks(who, jump) {
            world.work();
            if jump.abs() <= STEP {
                hour_off.insert(world.path());
            }
        }
        assert!(!world.may(&revoked), "a revoked token is accepted");
        if restart {
            world.stop();
        }
        world.shift(0);
        world.start();
        eventually("the clock is followed again", || {
            let ready = world.ready();
            if ready.trim() == "ok" { Ok(()) } else { Err(ready) }
        });
        world.work();
        if who != Who::Up {
            world.metrics_go_on();
        }
        let changes = world.changes();
        let after = ids(&changes);
        let distinct: BTreeSet<&String> = after.iter().collect();
        assert_eq!(distinct.len(), after.len(), "a change is doubled: {after:?}");
        for id in &before {
            assert!(distinct.contains(id), "change {id} is gone");
        }
        let mut paths = changes.iter().map(|change| change["path"].as_str().unwrap());
        let newest = paths.find(|path| path.contains("/f") && !hour_off.contains(*path));
        assert_eq!(newest, Some(world.path().as_str()), "comes first");
        for gap in world.api().history("/coverage") {
            assert!(gap["to"].is_null() || gap["from"].as_str() <= gap["to"].as_str(), "{gap}");
            assert_ne!(gap["kind"], "retention", "{gap}");
        }
        assert!(!world.may(&revoked), "a revoked token is accepted");
        assert!(world.may(&kept), "a token in force is refused");
        assert_eq!(world.certificate(), certificate);
        world.log_in();
    }
    eventually("no gap stays open", || match &world.api().history("/coverage?open=true")[..] {
        [] => Ok(()),
        open => Err(format!("{open:?}")),
    });
    if who == Who::Agent {
        let gaps = world.api().history("/coverage?agents_list=001");
        let refused = gaps.iter().filter(|gap| gap["kind"] == "limit_reached");
        let refused: Vec<&str> = refused.filter_map(|gap| gap["detail"].as_str()).collect();
        assert!(refused.iter().any(|detail| detail.contains("rows of metrics")), "{gaps:?}");
    }
    world.who = if who == Who::Up { Who::Up } else { Who::Both };
    world.stop();
}

#[test]
fn clock_jumps_of_a_running_server_lose_nothing() {
    jumps(Who::Server, false);
}

#[test]
fn clock_jumps_over_a_server_restart_lose_nothing() {
    jumps(Who::Server, true);
}

#[test]
fn clock_jumps_of_a_running_agent_lose_nothing() {
    jumps(Who::Agent, false);
}

#[test]
fn clock_jumps_over_an_agent_restart_lose_nothing() {
    jumps(Who::Agent, true);
}

#[test]
fn clock_jumps_of_server_and_agent_lose_nothing() {
    jumps(Who::Both, false);
}

#[test]
fn clock_jumps_over_a_restart_of_both_lose_nothing() {
    jumps(Who::Both, true);
}

#[test]
fn clock_jumps_of_up_lose_nothing() {
    jumps(Who::Up, false);
}

#[test]
fn clock_jumps_over_a_restart_of_up_lose_nothing() {
    jumps(Who::Up, true);
}

/// A jump of two days over a restart is reported as `clock_jump`, and not as two days in which the
/// agent was not running.
#[test]
fn clock_jump_over_a_restart_is_not_reported_as_downtime() {
    let mut world = World::start_enrolled("clock-absence", Who::Agent);
    world.stop();
    world.shift(2 * DAY);
    world.start();
    world.work();
    let gaps = world.api().history("/coverage?agents_list=001");
    let of =
        |kind: &str| -> Vec<&Value> { gaps.iter().filter(|gap| gap["kind"] == kind).collect() };
    assert_eq!(of("clock_jump").len(), 1, "{gaps:?}");
    let down = of("agent_down");
    assert_eq!(down.len(), 1, "{gaps:?}");
    assert_eq!(day(&down[0]["from"]), day(&down[0]["to"]), "{down:?}");
    // The agent's clock is wrong: the change has its time too, and is ordered by the server's.
    let change = &world.changes()[0];
    assert!(change["agent_time"].as_str().is_some(), "{change}");
    assert_eq!(change["time"], change["received"], "{change}");
}

fn day(time: &Value) -> String {
    time.as_str().unwrap().chars().take(10).collect()
}

#[test]
fn clock_accept_releases_a_held_clock() {
    let mut world = World::start_enrolled("clock-accept", Who::Server);
    let data = world.data();
    let data = data.to_str().unwrap();
    let clock = |world: &World, word: &str| {
        run_with(&["clock", word, "--data", data], &world.clocks[0].env())
    };
    let (code, text, error) = clock(&world, "show");
    assert_eq!((code, text.contains("held: no")), (0, true), "{text}{error}");
    world.shift(300 * DAY);
    world.noticed(300 * DAY);
    let (code, text, _) = clock(&world, "show");
    assert_eq!((code, text.contains("held: The server's wall clock")), (1, true), "{text}");
    let jumps = || {
        let gaps = world.api().history("/coverage?agents_list=000");
        let details = gaps.iter().filter(|gap| gap["kind"] == "clock_jump");
        details.map(|gap| gap["detail"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    eventually("the hold is an event", || match &jumps()[..] {
        [held] if held.contains(" days ahead of") => Ok(()),
        other => Err(format!("{other:?}")),
    });
    let (code, text, error) = clock(&world, "accept");
    assert_eq!((code, text.contains("accepted")), (0, true), "{text}{error}");
    world.noticed(0);
    // A jump over a restart is held too; without a server the commands read the folder.
    world.stop();
    world.shift(0);
    let (code, text, error) = clock(&world, "show");
    assert_eq!((code, text.contains("behind the last time")), (1, true), "{text}{error}");
    let (code, text, error) = clock(&world, "accept");
    assert_eq!((code, text.contains("accepted")), (0, true), "{text}{error}");
    world.start();
    world.noticed(0);
    world.work();
}

/// A folder of an earlier version has no stored time; its newest file gives the time of last use.
#[test]
fn clock_without_a_stored_time_is_held_by_the_newest_file() {
    let mut world = World::start_enrolled("clock-unstored", Who::Server);
    world.work();
    let before = ids(&world.changes());
    world.stop();
    fs::remove_file(world.data().join("clock.json")).unwrap();
    world.shift(10 * YEAR);
    world.start();
    world.noticed(10 * YEAR);
    world.work();
    assert!(before.iter().all(|id| ids(&world.changes()).contains(id)));
}

#[test]
fn authority_created_at_a_wrong_time_can_be_reissued() {
    let mut world = World::new("clock-authority", Who::Server);
    world.shift(10 * YEAR);
    world.start();
    let warned = |world: &World| {
        let log = fs::read_to_string(world.base.join("server.log")).unwrap();
        log.matches("holdfast authority reissue").count()
    };
    assert_eq!(warned(&world), 0);
    world.stop();
    world.shift(0);
    world.start();
    assert_eq!(warned(&world), 1);
    world.stop();
    let data = world.data();
    let data = data.to_str().unwrap();
    let (code, _, error) = run(&["clock", "accept", "--data", data]);
    assert_eq!(code, 0, "{error}");
    let (code, text, error) = run(&["authority", "reissue", "--data", data]);
    assert_eq!((code, text.starts_with("valid: 20")), (0, true), "{text}{error}");
    world.start();
    assert_eq!(warned(&world), 1, "no warning after it was reissued");
}

/// The agent enrolled before the authority's certificate was reissued.
#[test]
fn enrolled_agents_continue_after_authority_reissue() {
    let mut world = World::start_enrolled("clock-reissued", Who::Server);
    world.stop();
    let data = world.data();
    let (code, _, error) = run(&["authority", "reissue", "--data", data.to_str().unwrap()]);
    assert_eq!(code, 0, "{error}");
    world.start();
    world.work();
    assert!(Path::new(&data).join("keys/ca.pem").exists());
}
