//! A registry.db that is older than state.db: without a refusal, the number of an agent with a history
//! would be given to a new machine.

use std::fs;

use crate::common::deployment::Deployment;
use crate::common::{Api, Running, run};

/// Returns a deployment whose registry is from before agent 001 enrolled and sent its tree.
fn with_older_registry(name: &str) -> Deployment {
    let it = Deployment::new(name);
    let (server, _) = it.server();
    assert_eq!(server.stop(), 0);
    let older = it.base.join("older.db");
    fs::copy(it.data().join("registry.db"), &older).unwrap();
    let (server, api) = it.server();
    let (code, error) = it.enroll("first");
    assert_eq!(code, 0, "{error}");
    let agent = it.agent();
    agent.line("synchronised: ");
    it.equal(&api, "001");
    assert_eq!((agent.stop(), server.stop()), (0, 0));
    for log in ["registry.db-wal", "registry.db-shm"] {
        let _ = fs::remove_file(it.data().join(log));
    }
    fs::copy(older, it.data().join("registry.db")).unwrap();
    it
}

fn names(api: &Api) -> Vec<String> {
    api.all("/agents").iter().map(|agent| agent["id"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn older_registry_is_brought_up_from_the_journal() {
    let it = with_older_registry("older-registry-replayed");
    let (server, api) = it.server();
    assert_eq!(names(&api), ["000", "001"]);
    let agent = it.agent();
    agent.line("synchronised: ");
    it.equal(&api, "001");
    assert_eq!((agent.stop(), server.stop()), (0, 0));
}

#[test]
fn registry_whose_records_are_trimmed_is_refused_until_accepted() {
    let it = Deployment::new("registry-behind");
    let config = it.base.join("server.toml");
    let text = fs::read_to_string(&config).unwrap();
    fs::write(&config, format!("{text}[journal]\nsegment_mib = 1\n")).unwrap();
    let (server, _) = it.server();
    assert_eq!(server.stop(), 0);
    let (database, older) = (it.data().join("registry.db"), it.base.join("older.db"));
    fs::copy(&database, &older).unwrap();
    let (server, api) = it.server();
    // Each segment holds some of these records.
    for n in 0..16 {
        let body = format!("# {n} {}\n[scan]\nthreads = 1\n", "x".repeat(200_000));
        let (status, answer) = api.put("/groups/default/configuration", "application/toml", &body);
        assert_eq!(status, 200, "{answer}");
    }
    assert_eq!(server.stop(), 0);
    for log in ["registry.db-wal", "registry.db-shm"] {
        let _ = fs::remove_file(it.data().join(log));
    }
    fs::copy(&older, &database).unwrap();
    let (code, _, error) = run(&["server", "--config", config.to_str().unwrap()]);
    assert_eq!(code, 2, "{error}");
    for part in ["older than the journal next to it", "begins with record", "registry accept"] {
        assert!(error.contains(part), "{part}: {error}");
    }
    let data = it.data();
    let (code, out, error) = run(&["registry", "accept", "--data", data.to_str().unwrap()]);
    assert_eq!(code, 0, "{error}");
    assert!(out.contains("every token is revoked"), "{out}");
    let (server, api) = it.server();
    assert_eq!(names(&api), ["000"]);
    assert_eq!(server.stop(), 0);
}

#[test]
fn older_registry_is_refused_until_it_is_accepted() {
    let it = with_older_registry("older-registry");
    // An older version stored no position: its decisions are no records.
    let set = |sql| {
        let database = rusqlite::Connection::open(it.data().join("registry.db")).unwrap();
        database.execute_batch(sql).unwrap();
    };
    set("DELETE FROM progress");
    let server = it.base.join("server.toml");
    let (code, _, error) = run(&["server", "--config", server.to_str().unwrap()]);
    assert_eq!(code, 2, "{error}");
    assert!(error.contains("its decisions begin with record"), "{error}");
    // One that counts as having every record is judged by the numbers of agents.
    set("INSERT OR REPLACE INTO progress VALUES (0, -1)");
    let config = it.base.join("server.toml");
    let (code, _, error) = run(&["server", "--config", config.to_str().unwrap()]);
    assert_eq!(code, 2, "{error}");
    for part in ["knows agent 001", "the next new agent would be 001", "holdfast registry accept"] {
        assert!(error.contains(part), "{part}: {error}");
    }
    set("DELETE FROM progress");
    let data = it.data();
    let (code, out, error) = run(&["registry", "accept", "--data", data.to_str().unwrap()]);
    assert_eq!(code, 0, "{error}");
    assert!(out.contains("the next new agent is 002"), "{out}");
    let (server, api) = it.server();
    it.lose(&["agent.json", "cert", "key", "ca.pem"]);
    let (code, error) = it.enroll("second");
    assert_eq!(code, 0, "{error}");
    assert_eq!(names(&api), ["000", "002"], "the number of the first agent is given again");
    assert_eq!(server.stop(), 0);
}

#[test]
fn restore_revokes_enrolment_tokens() {
    let it = Deployment::new("older-backup");
    let (server, api) = it.server();
    let (code, error) = it.enroll("first");
    assert_eq!(code, 0, "{error}");
    let agent = it.agent();
    agent.line("synchronised: ");
    it.equal(&api, "001");
    let data = it.data();
    let data = data.to_str().unwrap();
    let (code, enrolment, error) = run(&["token", "--data", data, "--uses", "9"]);
    assert_eq!(code, 0, "{error}");
    let (saved, restored) = (it.base.join("saved"), it.base.join("restored"));
    let (saved, restored) = (saved.to_str().unwrap(), restored.to_str().unwrap());
    let (code, _, error) = run(&["backup", "--data", data, "--to", saved]);
    assert_eq!(code, 0, "{error}");
    assert_eq!((agent.stop(), server.stop()), (0, 0));
    let (code, _, error) = run(&["restore", "--from", saved, "--data", restored]);
    assert_eq!(code, 0, "{error}");
    let config = fs::read_to_string(it.base.join("server.toml")).unwrap();
    fs::write(it.base.join("restored.toml"), config.replace(data, restored)).unwrap();
    let words = ["server", "--config"];
    let file = it.base.join("restored.toml");
    let server = Running::start(
        &[&words[..], &[file.to_str().unwrap()]].concat(),
        &it.base.join("restored.log"),
    );
    server.line("ready: ");
    it.lose(&["agent.json", "cert", "key", "ca.pem"]);
    let agent = it.base.join("agent.toml");
    let words = ["enroll", "--config", agent.to_str().unwrap(), "--token", enrolment.trim()];
    let (code, _, error) = run(&words);
    assert!(code != 0 && error.contains("token"), "an enrolment token of before: {code} {error}");
    assert_eq!(server.stop(), 0);
}
