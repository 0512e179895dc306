//! Documents are missing from the server's database, or the agent's database or identity is lost.
//! The next start compares both sides; afterwards the server equals the disk, and changes made in
//! between are reported.

use std::fmt::Write as _;
use std::fs;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use crate::common::deployment::{Deployment, FILES, FOLDERS, has_packages, start};
use crate::common::{Api, differences, disk, eventually, run, stored};
use rusqlite::Connection;

/// Deletes the documents below a folder from the stopped server's database. Returns their number.
fn remove_documents(database: &Path, below: &Path) -> usize {
    let mut db = Connection::open(database).unwrap();
    let change = db.transaction().unwrap();
    let from = format!("{}/", below.display());
    let removed = change
        .execute("DELETE FROM document WHERE substr(path, 1, length(?1)) = ?1", [&from])
        .unwrap();
    // Adjust the counters too, so that only the comparison can detect the loss.
    for table in ["collection", "dataset"] {
        let count = format!("UPDATE {table} SET documents = documents - ?1 WHERE documents >= ?1");
        change.execute(&count, [removed as i64]).unwrap();
    }
    change.commit().unwrap();
    removed
}

/// Returns kind, path, and size before and after of every change of an agent, sorted.
fn changes(api: &Api, agent: &str) -> Vec<(String, String, Option<u64>, Option<u64>)> {
    let mut found: Vec<_> = api
        .history(&format!("/changes?agents_list={agent}"))
        .iter()
        .map(|change| {
            let size = |of: &str| change[of]["size"].as_u64();
            let text = |of: &str| change[of].as_str().unwrap().to_owned();
            (text("kind"), text("path"), size("before"), size("after"))
        })
        .collect();
    found.sort();
    found
}

/// Returns the kinds of all gaps of an agent.
fn gaps(api: &Api, agent: &str) -> Vec<String> {
    let all = api.history(&format!("/coverage?agents_list={agent}"));
    all.iter().map(|gap| gap["kind"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn documents_lost_by_the_server_are_resent_after_an_agent_kill() {
    let deployment = Deployment::new("repair");
    let (base, tree, data) = (deployment.base.clone(), deployment.tree.clone(), deployment.data());
    let (server, _) = deployment.server();
    let (code, error) = deployment.enroll("repaired");
    assert_eq!(code, 0, "{error}");

    let agent = start(&base, "agent");
    let api = Api::of(&data);
    eventually("the first scan arrives", || differences(&disk(&tree), &stored(&api, "001")));
    assert_eq!(server.stop(), 0);
    agent.kill();

    let removed = remove_documents(&data.join("state.db"), &tree.join("d3"));
    assert_eq!(removed, FILES);
    // Change the disk while no agent runs.
    fs::write(tree.join("d5/new"), "new").unwrap();
    fs::remove_file(tree.join("d6/f6")).unwrap();

    let server = start(&base, "server");
    server.line("ready: ");
    let api = Api::of(&data);
    assert_eq!(stored(&api, "001").len(), 1 + FOLDERS + FOLDERS * FILES - FILES);
    let agent = start(&base, "agent");
    let found = agent.line("check: ");
    assert!(found.starts_with(&format!("{FILES} documents differed")), "{found}");
    assert!(found.ends_with(" 0 were too many"), "{found}");
    eventually("the server equals the disk", || differences(&disk(&tree), &stored(&api, "001")));

    // Repaired documents are not changes: the history has the two real changes only.
    let kinds = |kind: &str| {
        let changes = api.history("/changes?agents_list=001");
        changes.iter().filter(|c| c["kind"] == kind).count()
    };
    eventually("both changes are in the history", || {
        let found = (kinds("created"), kinds("deleted"));
        if found == (1, 1) { Ok(()) } else { Err(format!("{found:?}")) }
    });
    assert_eq!(agent.stop(), 0);
    assert_eq!(server.stop(), 0);
}

#[test]
fn changes_while_agent_db_was_lost_are_reported_as_changes() {
    let deployment = Deployment::new("lost-database");
    let (server, api) = deployment.server();
    assert_eq!(deployment.enroll("forgetful").0, 0);
    let agent = deployment.agent();
    agent.line("synchronised: ");
    agent.line("synchronised packages: ");
    deployment.equal(&api, "001");
    assert_eq!(agent.stop(), 0);
    assert_eq!(changes(&api, "001"), []);

    deployment.lose(&["agent.db"]);
    deployment.install(&[("bash", "2"), ("new", "1")]);
    fs::write(deployment.tree.join("d1/f1"), "now longer content").unwrap();
    fs::write(deployment.tree.join("d5/new"), "new").unwrap();
    fs::remove_file(deployment.tree.join("d6/f6")).unwrap();
    let agent = deployment.agent();
    agent.line("compared with what the server already had: 1 created, ");
    agent.line("compared packages with what the server already had: 1 created, 1 modified, 1 d");
    deployment.equal(&api, "001");
    let shown = |name: &str| deployment.tree.join(name).to_str().unwrap().to_owned();
    let expected = [
        ("created".to_owned(), shown("d5/new"), None, Some(3)),
        ("deleted".to_owned(), shown("d6/f6"), Some(9), None),
        ("modified".to_owned(), shown("d1/f1"), Some(9), Some(18)),
    ];
    let packages = [
        ("created".to_owned(), "new:amd64".to_owned(), None, None),
        ("deleted".to_owned(), "old:amd64".to_owned(), None, None),
        ("modified".to_owned(), "bash:amd64".to_owned(), None, None),
    ];
    let mut expected = [expected, packages].concat();
    expected.sort();
    eventually("the changes are in the history", || {
        let found = changes(&api, "001");
        if found == expected { Ok(()) } else { Err(format!("{found:?}")) }
    });
    assert!(gaps(&api, "001").contains(&"database_rebuilt".to_owned()));
    assert_eq!(agent.stop(), 0);

    // The next start finds the same database and reports nothing as lost.
    let told = changes(&api, "001").len();
    let agent = deployment.agent();
    agent.line("synchronised: ");
    api.rescan("001");
    deployment.equal(&api, "001");
    assert_eq!(changes(&api, "001").len(), told);
    assert_eq!(agent.stop(), 0);
    assert_eq!(server.stop(), 0);
}

/// The agent no longer knows which gaps it reported. One of them is over, the other is not.
#[test]
fn open_gaps_are_right_after_agent_db_was_lost() {
    let deployment = Deployment::new("lost-gaps");
    let config = deployment.base.join("agent.toml");
    let mut text = fs::read_to_string(&config).unwrap();
    let root = |name: &str| deployment.base.join(name);
    for name in ["over", "gone"] {
        fs::create_dir(root(name)).unwrap();
        writeln!(text, "[[watch]]\npath = {:?}", root(name)).unwrap();
    }
    fs::write(&config, text).unwrap();
    let (server, api) = deployment.server();
    assert_eq!(deployment.enroll("lost").0, 0);
    let agent = deployment.agent();
    agent.line("synchronised: ");
    let open = || -> Vec<String> {
        let gaps = api.history("/coverage?open=true");
        gaps.iter().map(|gap| gap["path"].as_str().unwrap().to_owned()).collect()
    };
    for name in ["over", "gone"] {
        fs::rename(root(name), root(&format!("{name}-away"))).unwrap();
    }
    api.rescan("001");
    eventually("two gaps are open", || {
        let open = open();
        if open.len() == 2 { Ok(()) } else { Err(format!("{open:?}")) }
    });
    assert_eq!(agent.stop(), 0);

    deployment.lose(&["agent.db"]);
    fs::rename(root("over-away"), root("over")).unwrap();
    let agent = deployment.agent();
    eventually("the one that is not over is open", || {
        let open = open();
        let rebuilt = gaps(&api, "001").contains(&"database_rebuilt".to_owned());
        let right = rebuilt && open == [root("gone").to_str().unwrap()];
        if right { Ok(()) } else { Err(format!("{rebuilt} {open:?}")) }
    });
    assert_eq!((agent.stop(), server.stop()), (0, 0));
}

/// Returns the files of the agent's database.
fn database(deployment: &Deployment) -> Vec<PathBuf> {
    let entries = fs::read_dir(deployment.base.join("agent")).unwrap().map(|e| e.unwrap().path());
    let is_one = |p: &PathBuf| p.file_name().unwrap().to_str().unwrap().starts_with("agent.db");
    entries.filter(is_one).collect()
}

#[test]
fn restored_older_database_deletes_nothing_before_a_scan() {
    let deployment = Deployment::new("put-back");
    let (server, api) = deployment.server();
    assert_eq!(deployment.enroll("older").0, 0);
    let agent = deployment.agent();
    agent.line("synchronised: ");
    deployment.equal(&api, "001");
    assert_eq!(agent.stop(), 0);
    let older: Vec<_> =
        database(&deployment).into_iter().map(|p| (p.clone(), fs::read(p).unwrap())).collect();

    for n in 0..20 {
        fs::write(deployment.tree.join(format!("d5/new{n}")), "new").unwrap();
    }
    // Reading this file takes so long that heartbeats are sent during the scan.
    fs::File::create(deployment.tree.join("large")).unwrap().set_len(128 << 20).unwrap();
    let agent = deployment.agent();
    deployment.equal(&api, "001");
    assert_eq!(agent.stop(), 0);
    let held = stored(&api, "001").len();

    deployment.lose(&["agent.db"]);
    for (path, content) in &older {
        fs::write(path, content).unwrap();
    }
    fs::write(deployment.tree.join("d1/f1"), "now longer content").unwrap();
    let agent = deployment.agent();
    let (mut fewest, disk) = (held, disk(&deployment.tree));
    eventually("the gap is reported and the server equals the disk", || {
        fewest = fewest.min(stored(&api, "001").len());
        if !gaps(&api, "001").contains(&"database_rebuilt".to_owned()) {
            return Err("no gap".into());
        }
        differences(&disk, &stored(&api, "001"))
    });
    assert_eq!(fewest, held);
    assert_eq!(agent.stop(), 0);
    assert_eq!(server.stop(), 0);
}

#[test]
fn unwatched_packages_are_deleted_even_if_the_database_is_lost() {
    let deployment = Deployment::new("unwatched-packages");
    let (server, api) = deployment.server();
    assert_eq!(deployment.enroll("unwatched").0, 0);
    let agent = deployment.agent();
    eventually("packages are reported", || has_packages(&api, &[("bash", "1"), ("old", "1")]));
    deployment.equal(&api, "001");
    assert_eq!(agent.stop(), 0);
    deployment.lose(&["agent.db"]);
    let config = deployment.base.join("agent.toml");
    let text = fs::read_to_string(&config).unwrap();
    fs::write(&config, text.replace("[inventory]\n", "[inventory]\npackages = false\n")).unwrap();
    let agent = deployment.agent();
    eventually("they go", || has_packages(&api, &[]));
    deployment.equal(&api, "001");
    assert_eq!(agent.stop(), 0);
    assert_eq!(server.stop(), 0);
}

#[test]
fn agent_without_identity_needs_a_new_name_and_resends_all() {
    let deployment = Deployment::new("lost-identity");
    let (server, api) = deployment.server();
    assert_eq!(deployment.enroll("lost").0, 0);
    let agent = deployment.agent();
    agent.line("synchronised: ");
    deployment.equal(&api, "001");
    assert_eq!(agent.stop(), 0);

    // The database is kept, although its items were reported under another agent number.
    deployment.lose(&["agent.json", "key.pem", "cert.pem", "ca.pem"]);
    fs::write(deployment.tree.join("d5/new"), "new").unwrap();
    let (code, error) = deployment.enroll("lost");
    assert_ne!(code, 0);
    assert!(error.contains("named lost is already") && error.contains("remove it"), "{error}");
    assert_eq!(deployment.enroll("lost-2").0, 0);
    let agent = deployment.agent();
    deployment.equal(&api, "002");
    assert_eq!(agent.stop(), 0);

    // Follow the advice of the error: after the old agent is removed, its name is free.
    let data = deployment.data();
    let (code, _, error) = run(&["agents", "remove", "001", "--data", data.to_str().unwrap()]);
    assert_eq!(code, 0, "{error}");
    deployment.lose(&["agent.json", "key.pem", "cert.pem", "ca.pem"]);
    fs::remove_file(deployment.tree.join("d6/f6")).unwrap();
    let (code, error) = deployment.enroll("lost");
    assert_eq!(code, 0, "{error}");
    let agent = deployment.agent();
    deployment.equal(&api, "003");
    assert_eq!(agent.stop(), 0);
    assert_eq!(server.stop(), 0);
}

#[test]
fn failed_enrolment_is_completed_by_the_same_command() {
    let deployment = Deployment::new("failed-enrolment");
    let (server, api) = deployment.server();
    let (code, token, error) = run(&["token", "--data", deployment.data().to_str().unwrap()]);
    assert_eq!(code, 0, "{error}");
    let config = deployment.base.join("agent.toml");
    let words = ["enroll", "--config", config.to_str().unwrap(), "--name", "web", "--token"];
    let enroll = || run(&[&words[..], &[token.trim()]].concat());
    // The last file of the enrolment cannot be written.
    let obstacle = deployment.base.join("agent/agent.json.new");
    fs::create_dir_all(&obstacle).unwrap();
    let (code, _, error) = enroll();
    assert_eq!(code, 2, "{error}");
    assert!(error.contains("agent.json.new") && error.contains("run the same command"), "{error}");
    fs::remove_dir(&obstacle).unwrap();
    let (code, output, error) = enroll();
    assert_eq!((code, output.as_str()), (0, "enrolled: agent 001 web\n"), "{error}");
    assert_eq!(api.all("/agents?agents_list=001").len(), 1);
    assert_eq!(enroll().0, 2, "enrolled already");
    let agent = deployment.agent();
    deployment.equal(&api, "001");
    assert_eq!(agent.stop(), 0);
    assert_eq!(server.stop(), 0);
}

/// Flips a byte of the newest record that contains this text. Returns its position.
fn damage_record(journal: &Path, text: &str) -> u64 {
    let mut found = None;
    journal::dump(journal, 1, |group| {
        let contains = |record: &Vec<u8>| record.windows(text.len()).any(|w| w == text.as_bytes());
        if group.records.iter().any(contains) {
            assert_eq!(group.records.len(), 1, "{group:?}");
            found = Some((group.file, group.offset, group.first_position));
        }
        ControlFlow::Continue(())
    })
    .unwrap();
    let (file, offset, position) = found.unwrap();
    let file = journal.join(file);
    let mut bytes = fs::read(&file).unwrap();
    bytes[offset as usize + 20] ^= 1;
    fs::write(&file, bytes).unwrap();
    position
}

#[test]
fn journal_repair_keeps_sessions_after_a_lost_one() {
    let deployment = Deployment::new("journal-repair");
    let (server, api) = deployment.server();
    assert_eq!(deployment.enroll("repaired").0, 0);
    let agent = deployment.agent();
    agent.line("synchronised: ");
    deployment.equal(&api, "001");
    assert_eq!((agent.stop(), server.stop()), (0, 0));
    // With the state of this moment, the sessions after it are not applied.
    let (data, state) = (deployment.data(), deployment.base.join("state.db"));
    fs::copy(data.join("state.db"), &state).unwrap();
    let (server, api) = deployment.server();
    let agent = deployment.agent();
    agent.line("synchronised: ");
    let changed = ["d0/f0", "d1/f1", "d2/f2"].map(|name| deployment.tree.join(name));
    for (n, path) in changed.iter().enumerate() {
        fs::write(path, "longer than it was before").unwrap();
        api.rescan("001");
        eventually("the change", || match changes(&api, "001").len() {
            found if found == n + 1 => Ok(()),
            found => Err(format!("{found} changes")),
        });
    }
    agent.kill();
    server.kill();
    for log in ["state.db-wal", "state.db-shm"] {
        let _ = fs::remove_file(data.join(log));
    }
    fs::copy(&state, data.join("state.db")).unwrap();
    let lost = damage_record(&data.join("journal"), changed[1].to_str().unwrap());

    let words =
        ["journal", "repair", data.join("journal").to_str().unwrap(), "--json"].map(str::to_owned);
    let (code, out, error) = run(&words.each_ref().map(String::as_str));
    assert_eq!(code, 1, "{out}{error}");
    let report: serde_json::Value = serde_json::from_str(&out).unwrap();
    let position = serde_json::json!([lost.to_string()]);
    assert_eq!((&report["lost"], &report["lost_unapplied"]), (&position, &position), "{out}");
    assert_eq!(
        (&report["cut"], &report["agents_compared"]),
        (&false.into(), &true.into()),
        "{out}"
    );

    let (server, api) = deployment.server();
    let agent = deployment.agent();
    deployment.equal(&api, "001");
    let kept: Vec<_> = changes(&api, "001").into_iter().map(|(_, path, ..)| path).collect();
    for (path, is_kept) in changed.iter().zip([true, false, true]) {
        let found = kept.iter().any(|kept| kept == path.to_str().unwrap());
        assert_eq!(found, is_kept, "{}: {kept:?}", path.display());
    }
    let coverage = api.history("/coverage");
    let named =
        |event: &serde_json::Value| event["event_id"].as_str().unwrap().starts_with("quarantine-");
    assert_eq!(coverage.iter().filter(|event| named(event)).count(), 1, "{coverage:?}");
    assert_eq!((agent.stop(), server.stop()), (0, 0));
}
