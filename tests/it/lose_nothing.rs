//! Agent and server as real processes on a changing tree with deletes. They are killed with SIGKILL
//! at random instants, and the network between them is cut, half closed and paused. In the end the
//! server's state equals the disk, and every acknowledged event is stored.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::common::mounted::folder_to_watch;
use crate::common::proxy::{Fault, Proxy};
use crate::common::{Api, Running, differences, disk, eventually, folder, free_port, run, stored};
use env::random::{Random as _, SeededRandom, SystemRandom};

/// Default number of kills and cuts of one run; `HOLDFAST_KILLS` overrides it.
const KILLS: u64 = 200;
/// Longest pause of the network, milliseconds.
const PAUSE_MS_MAX: u64 = 300;
/// Maximum number of files in the tree.
const FILES: u64 = 200;

fn below(random: &SeededRandom, n: u64) -> u64 {
    random.next_u64().unwrap() % n
}

/// Changes the tree until stopped.
fn churn(root: &Path, seed: u64, stop: &AtomicBool) -> u64 {
    let random = SeededRandom::new(seed);
    let mut steps = 0;
    while !stop.load(Ordering::Relaxed) {
        let name = |i: u64| root.join(format!("d{}/f{i}", i % 7));
        let path = name(below(&random, FILES));
        let _ = fs::create_dir_all(path.parent().unwrap());
        // Each operation may fail, because the file or its directory does not exist.
        let _ = match below(&random, 8) {
            0..=2 => fs::write(&path, vec![b'x'; below(&random, 5_000) as usize]),
            3 => fs::remove_file(&path),
            4 => fs::set_permissions(
                &path,
                fs::Permissions::from_mode(0o600 + below(&random, 8) as u32),
            ),
            5 => fs::rename(&path, name(below(&random, FILES))),
            6 => std::os::unix::fs::symlink("nowhere", &path),
            _ if below(&random, 40) == 0 => fs::remove_dir_all(path.parent().unwrap()),
            _ => Ok(()),
        };
        steps += 1;
        std::thread::sleep(Duration::from_millis(1 + below(&random, 3)));
    }
    steps
}

struct Fleet {
    base: PathBuf,
    tree: PathBuf,
    network: Proxy,
    server: Option<Running>,
    agent: Option<Running>,
}

impl Fleet {
    fn start(base: &Path) -> Self {
        let tree = folder_to_watch(base.join("tree"));
        let agents = free_port();
        let network = Proxy::to(([127, 0, 0, 1], agents).into());
        let server_toml = format!(
            "data = {:?}\n[api]\nlisten = \"127.0.0.1:0\"\nplain_http = true\n\
             max_request_per_minute = 0\n[agents]\nlisten = \"127.0.0.1:{agents}\"\n\
             [journal]\nsegment_mib = 1\n",
            base.join("server")
        );
        fs::write(base.join("server.toml"), server_toml).unwrap();
        let mut fleet = Self { base: base.to_owned(), tree, network, server: None, agent: None };
        fleet.configure_agent("group");
        fleet.start_server();
        fleet.server.as_ref().unwrap().line("ready: ");
        let data = base.join("server");
        let (code, token, error) = run(&["token", "--data", data.to_str().unwrap()]);
        assert_eq!(code, 0, "{error}");
        let (code, _, error) = run(&[
            "enroll",
            "--config",
            &fleet.file("agent.toml"),
            "--token",
            token.trim(),
            "--name",
            "churn",
        ]);
        assert_eq!(code, 0, "{error}");
        fleet.start_agent();
        fleet
    }

    fn configure_agent(&self, transaction: &str) {
        let agent_toml = format!(
            "data = {:?}\nserver = \"https://127.0.0.1:{}\"\n[scan]\ninterval = \"150ms\"\n\
             background_priority = false\n[sync]\nheartbeat = \"200ms\"\n[queue]\n\
             transaction = {transaction:?}\n[[watch]]\npath = {:?}\n",
            self.base.join("agent"),
            self.network.port,
            self.tree
        );
        fs::write(self.base.join("agent.toml"), agent_toml).unwrap();
    }

    fn file(&self, name: &str) -> String {
        self.base.join(name).to_str().unwrap().to_owned()
    }

    /// Kills one of the two and restarts it, or disturbs the network.
    fn strike(&mut self, random: &SeededRandom) {
        match below(random, 9) {
            0..=2 => {
                self.agent.take().unwrap().kill();
                // The database must open in both modes, whichever mode wrote it.
                let transactions = ["group", "per_event"];
                self.configure_agent(transactions[below(random, 2) as usize]);
                self.start_agent();
            }
            3..=5 => {
                self.server.take().unwrap().kill();
                self.start_server();
                // Without the wait, the next strike hits the process during its start.
                if below(random, 4) > 0 {
                    self.server.as_ref().unwrap().line("ready: ");
                }
            }
            6 => self.network.fault(Fault::Cut),
            7 if below(random, 2) == 0 => self.network.fault(Fault::RequestsEnd),
            7 => self.network.fault(Fault::AnswersEnd),
            _ => {
                self.network.pause(true);
                std::thread::sleep(Duration::from_millis(below(random, PAUSE_MS_MAX)));
                self.network.pause(false);
            }
        }
    }

    fn start_server(&mut self) {
        let config = self.file("server.toml");
        let server =
            Running::start(&["server", "--config", &config], &self.base.join("server.log"));
        self.server = Some(server);
    }

    fn start_agent(&mut self) {
        let config = self.file("agent.toml");
        let words =
            ["agent", "--config", &config, "--log", "info,sync=debug", "--log-format", "json"];
        self.agent = Some(Running::start(&words, &self.base.join("agent.log")));
    }
}

/// Returns the ids of all acknowledged events in the agent's log.
fn acknowledged(log: &Path) -> BTreeSet<String> {
    let text = String::from_utf8_lossy(&fs::read(log).unwrap()).into_owned();
    text.lines()
        // A kill may cut the last line of a run.
        .filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok())
        .filter(|line| line["message"] == "events acknowledged")
        .flat_map(|line| {
            let ids = line["ids"].as_str().unwrap().to_owned();
            ids.split(',').map(String::from).collect::<Vec<_>>()
        })
        .collect()
}

#[test]
fn nothing_acknowledged_is_lost_over_two_hundred_kills_and_cuts() {
    let seed = match std::env::var("HOLDFAST_SEED") {
        Ok(seed) => seed.parse().unwrap(),
        Err(_) => SystemRandom.next_u64().unwrap(),
    };
    println!("HOLDFAST_SEED={seed}");
    let random = SeededRandom::new(seed);
    let base = folder("lose-nothing");
    let mut fleet = Fleet::start(&base);

    let stop = Arc::new(AtomicBool::new(false));
    let (root, flag) = (fleet.tree.clone(), stop.clone());
    let churning = std::thread::spawn(move || churn(&root, seed, &flag));
    let kills = std::env::var("HOLDFAST_KILLS").map_or(KILLS, |n| n.parse().unwrap());
    for _ in 0..kills {
        // This is no wait for an event: the next kill or cut is at a random instant.
        std::thread::sleep(Duration::from_millis(5 + below(&random, 150)));
        fleet.strike(&random);
    }
    stop.store(true, Ordering::Relaxed);
    let steps = churning.join().unwrap();

    fleet.server.as_ref().unwrap().line("ready: ");
    let api = Api::of(&base.join("server"));
    api.rescan("001");
    let on_disk = disk(&fleet.tree);
    eventually("the server's documents equal the disk", || {
        differences(&on_disk, &stored(&api, "001"))
    });
    let told = acknowledged(&base.join("agent.log"));
    let history: BTreeSet<String> = ["/changes", "/coverage"]
        .iter()
        .flat_map(|path| api.history(&format!("{path}?agents_list=001")))
        .map(|item| item["event_id"].as_str().unwrap().to_owned())
        .collect();
    let missing: Vec<_> = told.difference(&history).take(10).collect();
    assert!(missing.is_empty(), "acknowledged but not there, for example {missing:?}");
    assert!(told.len() > 100, "only {} events were told: the test is too tame", told.len());
    println!(
        "{steps} changes made, {} files at the end, {} events acknowledged, {} in the history",
        on_disk.len(),
        told.len(),
        history.len()
    );
    assert_eq!(fleet.agent.take().unwrap().stop(), 0);
    assert_eq!(fleet.server.take().unwrap().stop(), 0);
}
