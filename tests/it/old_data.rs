//! Data folders that earlier versions wrote (`tests/data/*.tar.gz`). This version must open them
//! and give the same answers as the earlier one.
//!
//! Before a release, `HOLDFAST_BLESS=NAME cargo test --test it old_data:: -- --ignored` writes
//! another archive. Server and agent are killed for it, so the journal holds records that no checkpoint
//! covers, and the agent's queue holds changes that the server has not received.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};

use crate::common::deployment::{self, Deployment};
use crate::common::shifted::ShiftedClock;
use crate::common::{Api, PATIENCE, Running, eventually, login, run, run_with};
use serde_json::{Value, json};

const PASSWORD: &str = "Old-Folder-26";
/// The expected answers in the archive, next to the folders `server` and `agent`.
const EXPECTED: &str = "expected.json";

fn archives() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data")
}

fn tar(words: &[&str]) {
    let status = Command::new("tar").args(words).status().expect("tar");
    assert!(status.success(), "tar {words:?}");
}

fn now_s() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs().cast_signed()
}

/// Starts a role with the environment given.
fn start(deployment: &Deployment, role: &str, env: &[(&str, &str)]) -> Running {
    let config = deployment.base.join(format!("{role}.toml"));
    let log = deployment.base.join(format!("{role}.log"));
    Running::start_with(&[role, "--config", config.to_str().unwrap()], &log, env)
}

/// Returns the server's content, in the parts that must be the same in every later version.
fn answers(api: &Api) -> Value {
    let pick = |path: &str, fields: &[&str]| -> Vec<Value> {
        let items = api.all(path).into_iter();
        let chosen = |item: Value| fields.iter().map(|field| item[*field].clone()).collect();
        items.map(chosen).map(Value::Array).collect()
    };
    let query = r#"{"select": "old.load", "range": {"from": 0, "to": "20990101T000000"},
        "output": {"format": "csv", "timestamp": "raw"}}"#;
    let (status, samples) = api.send("POST", "/series/query", "application/json", query);
    assert_eq!(status, 200, "{samples}");
    json!({
        "agents": pick("/agents?agents_list=001", &["id", "name", "dateAdd", "group"]),
        "users": pick("/security/users", &["id", "username", "allow_run_as", "roles"]),
        "roles": pick("/security/roles", &["id", "name", "policies", "users"]),
        "groups": pick("/groups", &["name", "count"]),
        "files": pick("/syscheck/001?sort=file", &["file", "type", "size", "sha256", "mtime"]),
        "packages": deployment::packages(api),
        "changes": api.history("/changes?agents_list=001"),
        "samples": samples,
    })
}

fn pending(deployment: &Deployment) -> Vec<String> {
    let config = deployment.base.join("agent.toml");
    let words = ["queue", "list", "--config", config.to_str().unwrap(), "--pending", "--json"];
    let (code, text, error) = run(&words);
    assert_eq!(code, 0, "{error}");
    text.lines().map(str::to_owned).collect()
}

#[test]
#[ignore = "writes an archive into the tree; run before a release"]
fn write_old_data_archive() {
    let name = std::env::var("HOLDFAST_BLESS").expect("HOLDFAST_BLESS=NAME");
    let deployment = Deployment::looking("write-archive", "1s");
    for n in 20..deployment::FOLDERS * deployment::FILES {
        fs::remove_file(deployment.tree.join(format!("d{}/f{n}", n % deployment::FOLDERS)))
            .unwrap();
    }
    let server = start(&deployment, "server", &[("HOLDFAST_ADMIN_PASSWORD", PASSWORD)]);
    server.line("ready: ");
    let api = Api::of(&deployment.data());
    assert_eq!(deployment.enroll("old").0, 0);
    let agent = deployment.agent();
    deployment.equal(&api, "001");
    fs::write(deployment.tree.join("d1/f1"), "changed content").unwrap();
    fs::remove_file(deployment.tree.join("d2/f2")).unwrap();
    deployment.install(&[("bash", "2"), ("new", "1")]);
    deployment.equal(&api, "001");
    eventually("packages", || deployment::has_packages(&api, &[("bash", "2"), ("new", "1")]));

    let json = "application/json";
    let user = format!(r#"{{"username": "auditor", "password": {PASSWORD:?}}}"#);
    assert_eq!(api.send("POST", "/security/users", json, &user).0, 200);
    assert_eq!(api.send("POST", "/groups", json, r#"{"group_id": "web"}"#).0, 200);
    assert_eq!(api.request("PUT", "/agents/001/group/web").unwrap().0, 200);
    let lines: String =
        (0..50).map(|n| format!("old load={}.5 {}000000000\n", n, now_s() - 100 + n)).collect();
    assert_eq!(api.send("POST", "/series/write", "text/plain", &lines).0, 200);

    let mut expected = answers(&api);
    server.kill();
    fs::write(deployment.tree.join("d3/f3"), "changed while the server was off").unwrap();
    fs::write(deployment.tree.join("d3/new"), "new while the server was off").unwrap();
    eventually("changes are pending", || match pending(&deployment) {
        found if found.len() == 2 => Ok(()),
        found => Err(format!("{found:?}")),
    });
    agent.kill();
    expected["pending"] = json!(pending(&deployment));
    expected["made_at_s"] = json!(now_s());
    fs::write(deployment.base.join(EXPECTED), serde_json::to_string_pretty(&expected).unwrap())
        .unwrap();

    fs::create_dir_all(archives()).unwrap();
    let archive = archives().join(format!("{name}.tar.gz"));
    let base = deployment.base.to_str().unwrap();
    let parts = ["server", "agent", EXPECTED];
    let words = ["--exclude=*.sock", "-C", base, "-czSf", archive.to_str().unwrap()];
    tar(&[&words[..], &parts[..]].concat());
}

#[test]
fn data_folders_of_earlier_versions_open() {
    let mut found = 0;
    for entry in fs::read_dir(archives()).unwrap() {
        let archive = entry.unwrap().path();
        let name = archive.file_name().unwrap().to_str().unwrap();
        if let Some(name) = name.strip_suffix(".tar.gz") {
            opens(&archive, name);
            found += 1;
        }
    }
    assert!(found > 0, "tests/data holds no archive");
}

fn opens(archive: &Path, name: &str) {
    let deployment = Deployment::looking(&format!("old-data-{name}"), "1h");
    tar(&["-C", deployment.base.to_str().unwrap(), "-xzf", archive.to_str().unwrap()]);
    let expected: Value =
        serde_json::from_slice(&fs::read(deployment.base.join(EXPECTED)).unwrap()).unwrap();
    // Certificates expire after a year, so the clock is set to the time of the archive.
    let clock = ShiftedClock::new(&deployment.base, "clock");
    clock.set(expected["made_at_s"].as_i64().unwrap() + 60 - now_s());

    let config = deployment.base.join("agent.toml");
    let config = config.to_str().unwrap();
    let (code, text, error) = run_with(&["queue", "verify", "--config", config], &clock.env());
    assert_eq!(code, 0, "{text}{error}");
    assert_eq!(json!(pending(&deployment)), expected["pending"]);
    let data = deployment.data();
    let path = data.to_str().unwrap();
    let journal = data.join("journal");
    for words in [
        ["journal", "verify", journal.to_str().unwrap()].as_slice(),
        &["series", "verify", "--data", path],
    ] {
        let (code, text, error) = run_with(words, &clock.env());
        assert_eq!(code, 0, "{words:?}: {text}{error}");
    }

    let server = start(&deployment, "server", &clock.env());
    let url = server.line("ready: ");
    let api = Api::of(&data);
    let mut answered = answers(&api);
    answered["pending"] = expected["pending"].clone();
    answered["made_at_s"] = expected["made_at_s"].clone();
    for part in expected.as_object().unwrap().keys() {
        assert_eq!(answered[part], expected[part], "{part}");
    }
    assert_eq!(login(&url, "auditor", PASSWORD), 200);

    let agent = start(&deployment, "agent", &clock.env());
    let before = expected["changes"].as_array().unwrap().len();
    eventually("the pending changes arrive", || {
        let changes = api.history("/changes?agents_list=001");
        let text = serde_json::to_string(&changes).unwrap();
        let arrived = changes.len() >= before + 2 && text.contains("/tree/d3/new");
        if arrived { Ok(()) } else { Err(format!("after {PATIENCE:?}: {text}")) }
    });
    assert_eq!(agent.stop(), 0);
    assert_eq!(server.stop(), 0);
}
