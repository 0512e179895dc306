//! Documents vanish from the server's database, or the agent's database or identity is lost: the next
//! start compares both sides, the server ends equal to the disk, and what changed meanwhile is told.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::missing_panics_doc,
    clippy::unnecessary_debug_formatting,
    missing_docs,
    reason = "a test that cannot go on fails"
)]

mod common;

use std::fs;
use std::path::{Path, PathBuf};

use common::{
    Api, NO_PORTS, Running, differences, disk, eventually, folder, free_port, run, stored,
};
use rusqlite::Connection;

/// Directories of the tree.
const FOLDERS: usize = 8;
/// Files in each.
const FILES: usize = 25;

fn configure(base: &Path, tree: &Path) {
    let agents = free_port();
    let server = format!(
        "data = {:?}\n[api]\nlisten = \"127.0.0.1:0\"\nplain_http = true\n\
         max_request_per_minute = 0\n[agents]\nlisten = \"127.0.0.1:{agents}\"\n{NO_PORTS}",
        base.join("server")
    );
    // Neither a scan nor a check by the clock: what repairs is the check after the kill.
    let agent = format!(
        "data = {:?}\nserver = \"https://127.0.0.1:{agents}\"\n[scan]\ninterval = \"1h\"\n\
         background_priority = false\n[inventory]\nroot = {:?}\n[sync]\nheartbeat = \"200ms\"\n\
         [[watch]]\npath = {tree:?}\n",
        base.join("agent"),
        base.join("system")
    );
    fs::write(base.join("server.toml"), server).unwrap();
    fs::write(base.join("agent.toml"), agent).unwrap();
}

fn start(base: &Path, role: &str) -> Running {
    let config = base.join(format!("{role}.toml"));
    Running::start(&[role, "--config", config.to_str().unwrap()], &base.join(format!("{role}.log")))
}

/// Take the documents below a folder out of the stopped server's database; how many.
fn remove_documents(database: &Path, below: &Path) -> usize {
    let mut db = Connection::open(database).unwrap();
    let change = db.transaction().unwrap();
    let from = format!("{}/", below.display());
    let removed = change
        .execute("DELETE FROM document WHERE substr(path, 1, length(?1)) = ?1", [&from])
        .unwrap();
    // The counters beside them too, so that nothing but the comparison can find out.
    for table in ["collection", "dataset"] {
        let count = format!("UPDATE {table} SET documents = documents - ?1 WHERE documents > 0");
        change.execute(&count, [removed as i64]).unwrap();
    }
    change.commit().unwrap();
    removed
}

/// Some files, and server and agent on them as separate processes.
struct House {
    base: PathBuf,
    tree: PathBuf,
}

impl House {
    fn new(name: &str) -> Self {
        let base = folder(name);
        let tree = base.join("tree");
        for n in 0..FOLDERS * FILES {
            let path = tree.join(format!("d{}/f{n}", n % FOLDERS));
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, format!("content {n}")).unwrap();
        }
        configure(&base, &tree);
        let house = Self { base, tree };
        house.install(&[("bash", "1"), ("old", "1")]);
        house
    }

    /// These packages and no others are installed.
    fn install(&self, packages: &[(&str, &str)]) {
        let folder = self.base.join("system/var/lib/dpkg");
        fs::create_dir_all(folder.join("info")).unwrap();
        let stanza = |(name, version): &(&str, &str)| {
            let state = "Status: install ok installed\nArchitecture: amd64";
            format!("Package: {name}\n{state}\nVersion: {version}\nDescription: of a test\n\n")
        };
        let text: String = packages.iter().map(stanza).collect();
        fs::write(folder.join("new"), text).unwrap();
        fs::rename(folder.join("new"), folder.join("status")).unwrap();
    }

    fn data(&self) -> PathBuf {
        self.base.join("server")
    }

    fn server(&self) -> (Running, Api) {
        let server = start(&self.base, "server");
        server.line("ready: ");
        (server, Api::of(&self.data()))
    }

    fn agent(&self) -> Running {
        start(&self.base, "agent")
    }

    /// Enrol; exit code and what was printed as an error.
    fn enroll(&self, name: &str) -> (i32, String) {
        let (code, token, error) = run(&["token", "--data", self.data().to_str().unwrap()]);
        assert_eq!(code, 0, "{error}");
        let config = self.base.join("agent.toml");
        let config = config.to_str().unwrap();
        let words = ["enroll", "--config", config, "--name", name, "--token", token.trim()];
        let (code, _, error) = run(&words);
        (code, error)
    }

    /// Remove the agent's files whose names begin so.
    fn lose(&self, prefixes: &[&str]) {
        for entry in fs::read_dir(self.base.join("agent")).unwrap() {
            let entry = entry.unwrap();
            let name = entry.file_name().into_string().unwrap();
            if prefixes.iter().any(|prefix| name.starts_with(prefix)) {
                fs::remove_file(entry.path()).unwrap();
            }
        }
    }

    /// Wait until what the server holds of the agent is what is on the disk.
    fn equal(&self, api: &Api, agent: &str) {
        eventually("the server equals the disk", || {
            differences(&disk(&self.tree), &stored(api, agent))
        });
    }
}

/// Kind, path and size before and after of every change of an agent, sorted.
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

/// The kinds of all gaps of an agent.
fn gaps(api: &Api, agent: &str) -> Vec<String> {
    let all = api.history(&format!("/coverage?agents_list={agent}"));
    all.iter().map(|gap| gap["kind"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn documents_lost_by_the_server_are_found_and_sent_again_after_a_kill_of_the_agent() {
    let house = House::new("repair");
    let (base, tree, data) = (house.base.clone(), house.tree.clone(), house.data());
    let (server, _) = house.server();
    let (code, error) = house.enroll("repaired");
    assert_eq!(code, 0, "{error}");

    let agent = start(&base, "agent");
    let api = Api::of(&data);
    eventually("the first scan arrives", || differences(&disk(&tree), &stored(&api, "001")));
    assert_eq!(server.stop(), 0);
    agent.kill();

    let removed = remove_documents(&data.join("state.db"), &tree.join("d3"));
    assert_eq!(removed, FILES);
    // And while nobody watches, the disk goes on.
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

    // What was repaired is no change: the history tells of the two real ones alone.
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
fn what_changed_while_agent_db_was_lost_is_told_as_changes_from_what_the_server_held() {
    let house = House::new("lost-database");
    let (server, api) = house.server();
    assert_eq!(house.enroll("forgetful").0, 0);
    let agent = house.agent();
    agent.line("synchronised: ");
    agent.line("synchronised packages: ");
    house.equal(&api, "001");
    assert_eq!(agent.stop(), 0);
    assert_eq!(changes(&api, "001"), []);

    house.lose(&["agent.db"]);
    house.install(&[("bash", "2"), ("new", "1")]);
    fs::write(house.tree.join("d1/f1"), "now longer content").unwrap();
    fs::write(house.tree.join("d5/new"), "new").unwrap();
    fs::remove_file(house.tree.join("d6/f6")).unwrap();
    let agent = house.agent();
    agent.line("compared with what the server was told before: 1 created, ");
    agent
        .line("compared packages with what the server was told before: 1 created, 1 modified, 1 d");
    house.equal(&api, "001");
    let shown = |name: &str| house.tree.join(name).to_str().unwrap().to_owned();
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

    // The same database again is no lost one.
    let told = changes(&api, "001").len();
    let agent = house.agent();
    agent.line("synchronised: ");
    api.rescan("001");
    house.equal(&api, "001");
    assert_eq!(changes(&api, "001").len(), told);
    assert_eq!(agent.stop(), 0);
    assert_eq!(server.stop(), 0);
}

/// Files of the agent's database.
fn database(house: &House) -> Vec<PathBuf> {
    let entries = fs::read_dir(house.base.join("agent")).unwrap().map(|e| e.unwrap().path());
    let is_one = |p: &PathBuf| p.file_name().unwrap().to_str().unwrap().starts_with("agent.db");
    entries.filter(is_one).collect()
}

#[test]
fn an_older_database_put_back_takes_nothing_away_before_the_disk_was_scanned() {
    let house = House::new("put-back");
    let (server, api) = house.server();
    assert_eq!(house.enroll("older").0, 0);
    let agent = house.agent();
    agent.line("synchronised: ");
    house.equal(&api, "001");
    assert_eq!(agent.stop(), 0);
    let older: Vec<_> =
        database(&house).into_iter().map(|p| (p.clone(), fs::read(p).unwrap())).collect();

    for n in 0..20 {
        fs::write(house.tree.join(format!("d5/new{n}")), "new").unwrap();
    }
    // What is read for so long that heartbeats come in between.
    fs::File::create(house.tree.join("large")).unwrap().set_len(128 << 20).unwrap();
    let agent = house.agent();
    house.equal(&api, "001");
    assert_eq!(agent.stop(), 0);
    let held = stored(&api, "001").len();

    house.lose(&["agent.db"]);
    for (path, content) in &older {
        fs::write(path, content).unwrap();
    }
    fs::write(house.tree.join("d1/f1"), "now longer content").unwrap();
    let agent = house.agent();
    let (mut fewest, disk) = (held, disk(&house.tree));
    eventually("the gap is told and the server equals the disk", || {
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
fn an_item_that_cannot_be_decoded_makes_the_agent_begin_anew_by_itself() {
    let house = House::new("undecodable");
    let (server, api) = house.server();
    assert_eq!(house.enroll("undecodable").0, 0);
    let agent = house.agent();
    agent.line("synchronised: ");
    house.equal(&api, "001");
    let damage = || {
        let db = Connection::open(house.base.join("agent/agent.db")).unwrap();
        let sql = "UPDATE item SET observation = x'ff00' WHERE name = CAST('f9' AS BLOB)";
        assert_eq!(db.execute(sql, []).unwrap(), 1);
    };
    // Found by the running agent.
    damage();
    fs::write(house.tree.join("d1/f1"), "now longer content").unwrap();
    let (status, answer) = api.request("PUT", "/syscheck?agents_list=001").unwrap();
    assert_eq!(status, 200, "{answer}");
    agent.line("agent.db is damaged; starting anew");
    agent.line("agent.db: items that could not be decoded were dropped (1, the first of them ");
    house.equal(&api, "001");
    assert_eq!(agent.stop(), 0);
    // Found at its start.
    damage();
    fs::write(house.tree.join("d2/f2"), "now longer content").unwrap();
    let agent = house.agent();
    agent.line("agent.db: items that could not be decoded were dropped (1, the first of them ");
    house.equal(&api, "001");
    assert_eq!(agent.stop(), 0);
    assert_eq!(server.stop(), 0);
}

#[test]
fn an_agent_that_lost_its_identity_is_refused_its_old_name_and_told_whole_under_a_new_one() {
    let house = House::new("lost-identity");
    let (server, api) = house.server();
    assert_eq!(house.enroll("lost").0, 0);
    let agent = house.agent();
    agent.line("synchronised: ");
    house.equal(&api, "001");
    assert_eq!(agent.stop(), 0);

    // The database stays: it was told to another agent number.
    house.lose(&["agent.json", "key.pem", "cert.pem", "ca.pem"]);
    fs::write(house.tree.join("d5/new"), "new").unwrap();
    let (code, error) = house.enroll("lost");
    assert_ne!(code, 0);
    assert!(error.contains("named lost is already") && error.contains("remove it"), "{error}");
    assert_eq!(house.enroll("lost-2").0, 0);
    let agent = house.agent();
    house.equal(&api, "002");
    assert_eq!(agent.stop(), 0);

    // As the refusal says: the old one removed, its name is free again.
    let data = house.data();
    let (code, _, error) = run(&["remove", "001", "--data", data.to_str().unwrap()]);
    assert_eq!(code, 0, "{error}");
    house.lose(&["agent.json", "key.pem", "cert.pem", "ca.pem"]);
    fs::remove_file(house.tree.join("d6/f6")).unwrap();
    let (code, error) = house.enroll("lost");
    assert_eq!(code, 0, "{error}");
    let agent = house.agent();
    house.equal(&api, "003");
    assert_eq!(agent.stop(), 0);
    assert_eq!(server.stop(), 0);
}
