//! A second folder that follows a server, with real processes. Whichever process is killed, the
//! follower keeps every record that it acknowledged, its records equal those of the server, and it
//! can be promoted.

use std::collections::BTreeMap;
use std::fs;
use std::ops::ControlFlow;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use crate::common::{Api, PATIENCE, Running, eventually, folder, run, run_with};
use env::random::{Random as _, SeededRandom, SystemRandom};
use journal::{Durability, Journal, Options};
use link::{Mode, Operation, Payload, Session, SessionValue, Start};
use serde_json::json;

/// Default number of kills of one run; `HOLDFAST_KILLS` overrides it.
const KILLS: u64 = 50;
/// Number of kills after which both sides are compared, stopped cleanly and started again.
const TRIM_EVERY: u64 = 10;
const FILES: &str = "wazuh-states-fim-files";
const EVENTS: &str = "holdfast-events";
/// Log options of the follower; the test reads the acknowledged positions from its log.
const LOG: [&str; 4] = ["--log", "info,holdfast::follow=debug", "--log-format", "json"];

fn below(random: &SeededRandom, n: u64) -> u64 {
    random.next_u64().unwrap() % n
}

/// Writes a server's configuration in `base`; its data folder is `base/NAME`.
pub(crate) fn configure(base: &Path, name: &str, api: &str) -> String {
    let file = base.join(format!("{name}.toml"));
    let text = format!(
        "data = {:?}\n[api]\nlisten = \"127.0.0.1:0\"\nmax_request_per_minute = 0\n{api}[agents]\n\
         listen = \"127.0.0.1:0\"\n",
        base.join(name)
    );
    fs::write(&file, text).unwrap();
    file.to_str().unwrap().to_owned()
}

pub(crate) fn start_server(base: &Path, name: &str) -> Running {
    let config = base.join(format!("{name}.toml"));
    let words = ["server", "--config", config.to_str().unwrap()];
    let server = Running::start(&words, &base.join(format!("{name}.log")));
    server.line("ready: ");
    server
}

/// Registers agent 001. The test then sends that agent's requests over the socket.
pub(crate) fn register(base: &Path, server: &Running) {
    let config = base.join("agent.toml");
    fs::write(&config, format!("data = {:?}\n", base.join("agent"))).unwrap();
    let (code, token, error) = run(&["token", "--data", text(&base.join("first"))]);
    assert_eq!(code, 0, "{error}");
    let url = server.line("agents: ");
    let words = ["enroll", "--config", text(&config), "--server", &url, "--token", token.trim()];
    let (code, _, error) = run(&[&words[..], &["--name", "teller"]].concat());
    assert_eq!(code, 0, "{error}");
}

pub(crate) fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

pub(crate) fn socket_of(data: &Path) -> String {
    format!("unix:{}", text(&data.join("holdfast.sock")))
}

/// Returns the number in the line of a follower that has caught up.
fn caught_up(out: &str) -> u64 {
    let number = out.lines().find_map(|line| line.strip_prefix("caught up: record "));
    number.expect(out).parse().unwrap()
}

fn start_follower(base: &Path) -> Running {
    let (from, to) = (socket_of(&base.join("first")), base.join("second"));
    let words = ["journal", "follow", "--from", &from, "--to", text(&to)];
    Running::start(&[&words[..], &LOG].concat(), &base.join("follow.log"))
}

/// A client that sends an agent's requests to a server.
pub(crate) struct Teller {
    runtime: tokio::runtime::Runtime,
    http: reqwest::Client,
}

impl Teller {
    pub(crate) fn of(data: &Path) -> Self {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let http = reqwest::Client::builder()
            .unix_socket(data.join("holdfast.sock"))
            .timeout(PATIENCE)
            .build()
            .unwrap();
        Self { runtime, http }
    }

    /// Reads the metrics of a server without TLS.
    fn metrics(&self, url: &str) -> String {
        let asking = async { reqwest::get(format!("{url}metrics")).await.unwrap().text().await };
        self.runtime.block_on(asking).unwrap()
    }

    /// Sends a report of one file. Returns true if it was acknowledged.
    pub(crate) fn send_report(&self, n: u64) -> bool {
        let request = self
            .http
            .post("http://localhost/stateful")
            .header(link::HEADER_AGENT, "1")
            .body(link::encode(&session(n)));
        let answer = self.runtime.block_on(async { request.send().await });
        answer.is_ok_and(|a| a.status().is_success())
    }
}

fn session(n: u64) -> Session {
    let name = format!("f{}", n % 500);
    let sha1 = format!("{n:040x}");
    let document = json!({
        "file": {"path": format!("/t/{name}"), "name": name, "directory": "/t", "type": "file",
            "mode": "0644", "uid": "0", "gid": "0", "inode": "1", "device": "1", "size": n},
        "checksum": {"hash": {"sha1": sha1}},
        "state": {"document_version": n, "modified_at": model::timestamp::micros(n)},
    });
    let event = model::EventBody::of_coverage(model::Coverage {
        kind: model::CoverageKind::Baseline,
        path: format!("/t/{name}"),
        from_us: n,
        to_us: n,
        found: None,
        lasting: None,
        // Vary the length of the records, and make them large enough to fill a segment's blocks.
        detail: "x".repeat((n * 37 % 3_000) as usize),
    });
    let value = |index: &str, id: String, version, data| SessionValue {
        operation: Operation::Upsert,
        id,
        index: index.into(),
        version,
        data,
    };
    Session {
        start: Start {
            module: "fim".into(),
            mode: Mode::ModuleDelta,
            index: vec![FILES.into(), EVENTS.into()],
            agentid: "001".into(),
            agentname: "teller".into(),
            cluster_name: "holdfast".into(),
            ..Start::default()
        },
        payload: Payload::Sync {
            values: vec![
                value(FILES, name, n, document.to_string().into_bytes()),
                value(EVENTS, format!("e-{n}"), 0, event.to_json()),
            ],
            contexts: Vec::new(),
        },
    }
}

/// Sends reports until stopped. Counts those acknowledged in `told`.
fn load(data: &Path, stop: &AtomicBool, told: &AtomicU64) {
    let teller = Teller::of(data);
    let mut n = 1;
    while !stop.load(Ordering::Relaxed) {
        if teller.send_report(n) {
            told.store(n, Ordering::Relaxed);
            n += 1;
        } else {
            // The server is not running; limit the rate of the attempts.
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

/// Returns the records of a journal from a position on. A process may have the journal open.
fn records(data: &Path, from: u64) -> BTreeMap<u64, Vec<u8>> {
    let mut found = BTreeMap::new();
    journal::dump(&data.join("journal"), from, |group| {
        found.extend((group.first_position..).zip(group.records));
        ControlFlow::Continue(())
    })
    .unwrap();
    found.retain(|position, _| *position >= from);
    found
}

/// Returns the highest acknowledged position in the follower's log.
fn acknowledged(base: &Path) -> u64 {
    let log = String::from_utf8_lossy(&fs::read(base.join("follow.log")).unwrap()).into_owned();
    log.lines()
        // A kill may cut the last line of a run.
        .filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok())
        .filter(|line| line["message"] == "acknowledged")
        .filter_map(|line| line["position"].as_u64())
        .max()
        .unwrap_or(0)
}

/// Asserts that the stopped follower has every record it acknowledged, and that its records equal
/// those of the server. Returns its last position.
fn expect_prefix(base: &Path, from: u64) -> u64 {
    let second = records(&base.join("second"), from);
    let first = records(&base.join("first"), from);
    let last = second.keys().next_back().copied().unwrap_or(from - 1);
    assert!(last >= acknowledged(base), "acknowledged {}, has {last}", acknowledged(base));
    let kept = first.keys().next().copied().unwrap_or(u64::MAX);
    for (position, record) in &second {
        if *position >= kept {
            assert!(first.get(position) == Some(record), "record {position} differs");
        }
    }
    last
}

fn copy(from: &Path, to: &Path) {
    assert!(Command::new("cp").args(["-a", text(from), text(to)]).status().unwrap().success());
}

fn seed() -> u64 {
    match std::env::var("HOLDFAST_SEED") {
        Ok(seed) => seed.parse().unwrap(),
        Err(_) => SystemRandom.next_u64().unwrap(),
    }
}

/// Kills one side or the other at random instants. Returns the last position compared.
fn kill_again_and_again(
    base: &Path,
    server: Running,
    random: &SeededRandom,
    kills: u64,
    told: &AtomicU64,
) -> [Running; 2] {
    let mut server = Some(server);
    let mut follower = Some(start_follower(base));
    follower.as_ref().unwrap().line("following ");
    let (mut compared, mut seen) = (0, 0);
    for kill in 0..kills {
        // This is no wait for an event: the process is killed at a random instant.
        std::thread::sleep(Duration::from_millis(10 + below(random, 250)));
        // On a slow machine too, each kill must have a session that it could lose.
        eventually("a session since the last kill", || {
            let before = std::mem::replace(&mut seen, told.load(Ordering::Relaxed));
            if before < seen { Ok(()) } else { Err(format!("{seen} sessions, {kill} kills")) }
        });
        if kill % TRIM_EVERY == TRIM_EVERY - 1 {
            follower.take().unwrap().kill();
            compared = expect_prefix(base, compared + 1);
            // On a clean stop both trim their journals.
            let again = start_follower(base);
            again.line("following ");
            assert_eq!(again.stop(), 0);
            assert_eq!(server.take().unwrap().stop(), 0);
            server = Some(start_server(base, "first"));
            follower = Some(start_follower(base));
        } else if below(random, 2) == 0 {
            server.take().unwrap().kill();
            server = Some(start_server(base, "first"));
        } else {
            follower.take().unwrap().kill();
            follower = Some(start_follower(base));
        }
    }
    [server.unwrap(), follower.unwrap()]
}

#[test]
fn follower_keeps_a_promotable_prefix_through_fifty_kills() {
    let kills = std::env::var("HOLDFAST_KILLS").map_or(KILLS, |k| k.parse().unwrap());
    let seed = seed();
    println!("HOLDFAST_SEED={seed}");
    let random = SeededRandom::new(seed);
    let base = folder("follow-kills");
    configure(&base, "first", "plain_http = true\n");
    let (first, second) = (base.join("first"), base.join("second"));
    let server = start_server(&base, "first");
    register(&base, &server);
    let (stop, told) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let loading = {
        let (first, stop, told) = (first.clone(), stop.clone(), told.clone());
        std::thread::spawn(move || load(&first, &stop, &told))
    };
    let [server, follower] = kill_again_and_again(&base, server, &random, kills, &told);
    stop.store(true, Ordering::Relaxed);
    loading.join().unwrap();

    let api = Api::of(&first);
    eventually("the follower has everything", || {
        let all = api.get("/journal/followers");
        let one = &all["followers"][0];
        let done = one["lag_records"] == 0 && one["connected"] == true;
        if done { Ok(()) } else { Err(all.to_string()) }
    });
    let told = told.load(Ordering::Relaxed);
    let documents = api.all("/syscheck/001");
    let history = api.history("/coverage?agents_list=001");
    assert!(history.len() as u64 >= told, "{told} acknowledged, {} told", history.len());
    // Kill both, so that nothing is cleaned up before the comparison.
    follower.kill();
    server.kill();
    let last = expect_prefix(&base, 1);
    for side in [&first, &second] {
        let kept = *records(side, 1).keys().next().unwrap();
        assert!(kept > 1 || kills < 2 * TRIM_EVERY, "{}: nothing was ever trimmed", side.display());
    }
    println!("{kills} kills, {told} sessions told, {last} records followed");

    let stale = base.join("stale");
    copy(&second, &stale);
    let (code, out, error) = run(&["journal", "promote", text(&second)]);
    assert_eq!(code, 0, "{error}");
    assert!(out.contains(&format!("every record up to {last}")), "{out}");
    configure(&base, "second", "plain_http = true\n");
    let server = start_server(&base, "second");
    let api = Api::of(&second);
    assert!(api.all("/syscheck/001") == documents, "other documents");
    assert!(api.history("/coverage?agents_list=001") == history, "another history");
    assert!(Teller::of(&second).send_report(told + 1), "it takes new sessions");

    // A folder that followed the old store must not follow the new one.
    let from = socket_of(&second);
    let (code, _, error) =
        run(&["journal", "follow", "--from", &from, "--to", text(&stale), "--once"]);
    assert_eq!(code, 2, "{error}");
    assert!(error.contains("restored or promoted; follow into a new folder"), "{error}");
    assert_eq!(server.stop(), 0);
}

#[test]
fn network_follower_sends_its_token_and_verifies_the_server() {
    let base = folder("follow-network");
    configure(&base, "first", "");
    let first = base.join("first");
    let server = start_server(&base, "first");
    let url = server.line("page: ");
    let teller = Teller::of(&first);
    register(&base, &server);
    (1..50).for_each(|n| assert!(teller.send_report(n)));
    let ca = first.join("keys/ca.pem");
    let token = fs::read_to_string(first.join("keys/follower")).unwrap();
    let second = base.join("second");
    let words =
        ["journal", "follow", "--from", url.trim_end_matches('/'), "--to", text(&second), "--once"];
    let with_ca = [&words[..], &["--ca", text(&ca)]].concat();
    let (code, _, error) = run(&with_ca);
    assert_eq!(code, 2, "{error}");
    assert!(error.contains("HOLDFAST_FOLLOW_TOKEN"), "{error}");
    let wrong = [("HOLDFAST_FOLLOW_TOKEN", "0000000000000000000000000000000000000000")];
    let (code, _, error) = run_with(&with_ca, &wrong);
    assert_eq!(code, 2, "{error}");
    assert!(error.contains("a follower's token is needed"), "{error}");
    let right = [("HOLDFAST_FOLLOW_TOKEN", token.as_str())];
    let (code, out, error) = run_with(&with_ca, &right);
    assert_eq!(code, 0, "{error}");
    let first_end = caught_up(&out);
    assert!(first_end > 49, "49 sessions, and what was decided: {out}");
    // The folder now has copies of the token and the CA, so they need not be passed again.
    (50..80).for_each(|n| assert!(teller.send_report(n)));
    let (code, out, error) = run(&words);
    assert_eq!(code, 0, "{error}");
    assert!(out.contains(&format!("from record {}", first_end + 1)), "{out}");
    let end = caught_up(&out);
    assert!(end >= first_end + 30, "{out}");

    let journal = second.join("journal");
    let (code, out, _) = run(&["journal", "stat", text(&journal), "--json"]);
    assert_eq!(code, 0);
    let stat: serde_json::Value = serde_json::from_str(&out).unwrap();
    assert_eq!(stat["following"]["following"], url.trim_end_matches('/'));
    let (_, out, _) = run(&["journal", "stat", text(&first.join("journal")), "--json"]);
    let stat: serde_json::Value = serde_json::from_str(&out).unwrap();
    assert_eq!(stat["following"]["followers"][0]["acknowledged"], end, "{out}");
    assert_eq!(server.stop(), 0);
}

#[test]
fn following_folder_cannot_be_served_until_promoted() {
    let base = folder("follow-lock");
    configure(&base, "first", "plain_http = true\n");
    let second_config = configure(&base, "second", "plain_http = true\n");
    let (first, second) = (base.join("first"), base.join("second"));
    let server = start_server(&base, "first");
    let url = server.line("page: ");
    let teller = Teller::of(&first);
    register(&base, &server);
    (1..20).for_each(|n| assert!(teller.send_report(n)));
    let follower = start_follower(&base);
    follower.line("caught up: ");
    eventually("the lag is a metric", || {
        let text = teller.metrics(&url);
        let of = |name: &str| text.lines().find(|l| l.starts_with(name)).unwrap_or_default();
        let connected = of("holdfast_follow_connected{").ends_with("} 1");
        let caught_up = of("holdfast_follow_lag_records{").ends_with("} 0");
        let both = [of("holdfast_follow_lag_bytes{"), of("holdfast_follow_lag_seconds{")];
        if connected && caught_up && both.iter().all(|line| line.ends_with("} 0")) {
            return Ok(());
        }
        Err(text)
    });
    let refused = |words: &[&str], expected: &str| {
        let (code, _, error) = run(words);
        assert_eq!(code, 2, "{words:?}: {error}");
        assert!(error.contains(expected), "{words:?}: {error}");
    };
    let from = socket_of(&first);
    refused(&["journal", "promote", text(&second)], "in use by another holdfast");
    refused(&["journal", "follow", "--from", &from, "--to", text(&second)], "in use by another");
    refused(&["journal", "promote", text(&first)], "follows no server");
    assert_eq!(follower.stop(), 0);
    refused(&["server", "--config", &second_config], "holdfast journal promote");
    refused(&["journal", "follow", "--from", "ftp://x", "--to", text(&second)], "--from");
    let other = base.join("other");
    fs::create_dir_all(&other).unwrap();
    fs::write(other.join("state.db"), b"").unwrap();
    refused(&["journal", "follow", "--from", &from, "--to", text(&other)], "name an empty one");

    // Append a record that the server never had.
    let (journal, _) = Journal::open(&second.join("journal"), Options::default()).unwrap();
    let own = model::Record::ServerEvent { id: "own".into(), at_us: 1, body: b"{}".to_vec() };
    journal.append(&own.encode(), Durability::Persist).unwrap();
    journal.close().unwrap();
    let follow = ["journal", "follow", "--from", &from, "--to", text(&second), "--once"];
    refused(&follow, "the server lost records");
    assert!(teller.send_report(20) && teller.send_report(21));
    refused(&follow, "their histories differ");
    assert_eq!(server.stop(), 0);
}

#[test]
fn restored_backup_follows_from_its_backup_position() {
    let base = folder("follow-restored");
    configure(&base, "first", "plain_http = true\n");
    let (first, second, saved) = (base.join("first"), base.join("second"), base.join("saved"));
    let server = start_server(&base, "first");
    let teller = Teller::of(&first);
    register(&base, &server);
    (1..20).for_each(|n| assert!(teller.send_report(n)));
    let (code, _, error) = run(&["backup", "--data", text(&first), "--to", text(&saved)]);
    assert_eq!(code, 0, "{error}");
    (20..40).for_each(|n| assert!(teller.send_report(n)));
    let body = r#"{"group_id": "later"}"#;
    assert_eq!(Api::of(&first).send("POST", "/groups", "application/json", body).0, 200);
    let (code, _, error) = run(&["restore", "--from", text(&saved), "--data", text(&second)]);
    assert_eq!(code, 0, "{error}");
    let from = socket_of(&first);
    let (code, out, error) =
        run(&["journal", "follow", "--from", &from, "--to", text(&second), "--once"]);
    assert_eq!(code, 0, "{error}");
    assert!(!out.contains("copying state"), "{out}");
    assert!(caught_up(&out) >= 39, "{out}");
    let groups = Api::of(&first).all("/groups");
    assert!(groups.iter().any(|group| group["name"] == "later"), "{groups:?}");
    let documents = Api::of(&first).all("/syscheck/001");
    assert_eq!(server.stop(), 0);
    assert_eq!(run(&["journal", "promote", text(&second)]).0, 0);
    configure(&base, "second", "plain_http = true\n");
    let server = start_server(&base, "second");
    assert!(Api::of(&second).all("/syscheck/001") == documents);
    assert_eq!(Api::of(&second).all("/groups"), groups, "decided after the backup");
    assert_eq!(server.stop(), 0);
}
