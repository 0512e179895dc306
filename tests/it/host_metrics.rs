//! The agent's host metrics over an offline period: all samples of that period arrive once the
//! server is back, and they survive a kill of the server.

use std::collections::BTreeSet;
use std::fs;
use std::net::SocketAddr;
use std::path::Path;

use crate::common::mounted::folder_to_watch;
use crate::common::series::post;
use crate::common::{self, Running, eventually, folder, free_port, run};

struct Fleet {
    server_toml: String,
    agent_toml: String,
}

impl Fleet {
    fn new(base: &Path) -> Self {
        let tree = folder_to_watch(base.join("tree"));
        fs::write(tree.join("watched"), "x").unwrap();
        let agents = free_port();
        let server_toml = base.join("server.toml");
        let agent_toml = base.join("agent.toml");
        fs::write(
            &server_toml,
            format!(
                "data = {:?}\n[api]\nlisten = \"127.0.0.1:0\"\nplain_http = true\n[agents]\n\
                 listen = \"127.0.0.1:{agents}\"\n[series]\nresp = \"off\"\n\
                 udp = \"off\"\nopentsdb = \"off\"\nhttp = \"127.0.0.1:0\"\nown_metrics = \"200ms\"\n",
                base.join("server")
            ),
        )
        .unwrap();
        fs::write(
            &agent_toml,
            format!(
                "data = {:?}\nserver = \"https://127.0.0.1:{agents}\"\n[scan]\ninterval = \"1h\"\n\
                 [sync]\nheartbeat = \"200ms\"\n[metrics]\ninterval = \"100ms\"\nprocesses = \
                 [\"holdfast\"]\nown = true\n[[watch]]\npath = {tree:?}\n",
                base.join("agent")
            ),
        )
        .unwrap();
        let text = |path: &Path| path.to_str().unwrap().to_owned();
        Self { server_toml: text(&server_toml), agent_toml: text(&agent_toml) }
    }

    fn server(&self, base: &Path) -> (Running, SocketAddr) {
        let server =
            Running::start(&["server", "--config", &self.server_toml], &base.join("server.log"));
        server.line("ready: ");
        let http = server.line("listening: http ").parse().unwrap();
        (server, http)
    }

    fn agent(&self, base: &Path) -> Running {
        Running::start(&["agent", "--config", &self.agent_toml], &base.join("agent.log"))
    }
}

/// Returns the times of the samples of a metric of agent 001, and the number of samples.
fn times(http: SocketAddr, metric: &str) -> (BTreeSet<i64>, usize) {
    let body = format!(
        r#"{{"select": "{metric}", "where": {{"agent": "001"}}, "range": {{"from": 0, "to":
        "20990101T000000"}}, "output": {{"format": "csv", "timestamp": "raw"}}}}"#
    );
    let (status, answer) = post(http, "/api/query", &[], body.as_bytes()).unwrap();
    assert_eq!(status, 200, "{answer}");
    let times = answer.lines().map(|line| line.split(',').nth(1).unwrap().parse().unwrap());
    (times.collect(), answer.lines().count())
}

/// Returns the values of a metric of agent 001 with a tag.
fn values(http: SocketAddr, metric: &str, tag: &str) -> Vec<f64> {
    let body = format!(
        r#"{{"select": "{metric}", "where": {{"agent": "001"}}, "range": {{"from": 0, "to":
        "20990101T000000"}}, "output": {{"format": "csv", "timestamp": "raw"}}}}"#
    );
    let (status, answer) = post(http, "/api/query", &[], body.as_bytes()).unwrap();
    assert_eq!(status, 200, "{answer}");
    let lines = answer.lines().filter(|line| line.split([' ', ',']).any(|word| word == tag));
    lines.map(|line| line.rsplit(',').next().unwrap().parse().unwrap()).collect()
}

fn at_least(http: SocketAddr, metric: &str, samples: usize) -> BTreeSet<i64> {
    let mut found = BTreeSet::new();
    eventually("metrics arrive", || {
        found = times(http, metric).0;
        if found.len() >= samples { Ok(()) } else { Err(format!("{} of {samples}", found.len())) }
    });
    found
}

/// Asserts that the metrics of the named process are stored, and that the agent's own metrics have
/// more samples than `looks`, the number that was queued while it was offline.
fn processes_and_agent(http: SocketAddr, looks: usize) {
    for metric in ["process.resident_bytes", "process.read_bytes", "process.written_bytes"] {
        let samples = values(http, metric, "name=holdfast");
        assert!(!samples.is_empty() && samples.iter().all(|v| *v >= 0.0), "{metric}: {samples:?}");
    }
    // Nothing changes here.
    assert!(values(http, "agent.names_checked", "watch=files").len() > looks);
    for (metric, tag) in [
        ("agent.resident_bytes", "process=self"),
        ("agent.cpu_seconds", "process=self"),
        ("agent.queue_bytes", "queue=agent"),
        ("agent.items", "dataset=fim-files"),
        ("agent.rows_stored", "queue=metrics"),
    ] {
        let samples = values(http, metric, tag);
        assert!(samples.len() > looks, "{metric}: {} looks", samples.len());
        assert!(samples.iter().any(|v| *v > 0.0), "{metric}: {samples:?}");
    }
}

#[test]
fn offline_metrics_arrive_completely_and_once() {
    let base = folder("host-metrics");
    let fleet = Fleet::new(&base);
    let (server, http) = fleet.server(&base);
    let data = base.join("server");
    let (code, token, error) = run(&["token", "--data", data.to_str().unwrap()]);
    assert_eq!(code, 0, "{error}");
    let (code, _, error) = run(&["enroll", "--config", &fleet.agent_toml, "--token", token.trim()]);
    assert_eq!(code, 0, "{error}");
    let agent = fleet.agent(&base);
    let before = at_least(http, "cpu.user", 3);
    server.kill();

    // While the server is down, the queue grows; a kill of the agent loses none of it.
    let queue = base.join("agent/metrics.db");
    let queued = || {
        let connection = rusqlite::Connection::open(&queue).unwrap();
        connection.busy_timeout(common::PATIENCE).unwrap();
        let mut all = connection.prepare("SELECT body FROM event").unwrap();
        let bodies = all.query_map([], |row| row.get::<_, Vec<u8>>(0)).unwrap();
        let time = |body: Vec<u8>| {
            let look: serde_json::Value = serde_json::from_slice(&body).unwrap();
            look["time_ns"].as_i64()
        };
        bodies.filter_map(|body| time(body.unwrap())).collect::<BTreeSet<i64>>()
    };
    let wait = |looks: usize| {
        eventually("looks are kept", || match queued().len() {
            found if found >= looks => Ok(()),
            found => Err(format!("{found} looks")),
        });
    };
    wait(5);
    agent.kill();
    let kept = queued();
    let agent = fleet.agent(&base);
    wait(kept.len() + 3);
    let offline = queued();
    assert!(offline.is_superset(&kept), "the agent's kill lost looks");

    let (server, http) = fleet.server(&base);
    eventually("what was seen offline is there", || {
        let (found, rows) = times(http, "cpu.user");
        assert_eq!(found.len(), rows, "a row is there twice");
        let missing = before.union(&offline).filter(|time| !found.contains(time)).count();
        if missing == 0 { Ok(()) } else { Err(format!("{missing} looks are missing")) }
    });
    let all = times(http, "cpu.user").0;
    server.kill();
    let (server, http) = fleet.server(&base);
    assert!(times(http, "cpu.user").0.is_superset(&all), "a kill of the server lost rows");
    for metric in ["load.1", "memory.available", "network.received_bytes", "process.cpu_seconds"] {
        at_least(http, metric, 1);
    }
    processes_and_agent(http, offline.len());
    let own =
        r#"{"select": "holdfast_series_samples", "range": {"from": 0, "to": "20990101T000000"}}"#;
    eventually("the server's own metrics are there", || {
        let (_, answer) = post(http, "/api/query", &[], own.as_bytes()).unwrap();
        if answer.contains("source=server") { Ok(()) } else { Err(answer) }
    });
    assert_eq!(agent.stop(), 0);
    assert_eq!(server.stop(), 0);
}
