//! Packages of a test system, from its package database to the server: installs, upgrades and
//! removals, with kills in between, a document lost by the server, and a missing database.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use crate::common::deployment::Deployment;
use crate::common::{Api, Running, differences, eventually, run};
use rusqlite::Connection;

/// Versions by package name.
type Versions = BTreeMap<String, String>;

struct PackageHost {
    deployment: Deployment,
    installed: Versions,
}

impl PackageHost {
    fn new(name: &str) -> Self {
        Self { deployment: Deployment::looking(name, "200ms"), installed: Versions::new() }
    }

    fn status(&self) -> PathBuf {
        self.deployment.base.join("system/var/lib/dpkg/status")
    }

    /// Installs, upgrades and removes packages. Writes the database as dpkg does: to a new file,
    /// which is then renamed.
    fn change(&mut self, put: &[(&str, &str)], removed: &[&str]) {
        for name in removed {
            self.installed.remove(*name).unwrap();
        }
        for (name, version) in put {
            self.installed.insert((*name).into(), (*version).into());
        }
        let mut text = String::new();
        for (name, version) in &self.installed {
            let head = format!("Package: {name}\nStatus: install ok installed\n");
            let tail = format!("Architecture: amd64\nVersion: {version}\nInstalled-Size: 3\n");
            write!(text, "{head}{tail}Description: {name}, for a test\n longer\n\n").unwrap();
        }
        let new = self.status().with_extension("new");
        fs::write(&new, text).unwrap();
        fs::rename(new, self.status()).unwrap();
    }

    /// Returns an error unless the server holds exactly the installed packages.
    fn is_told(&self, api: &Api) -> Result<(), String> {
        let mut told = Versions::new();
        for item in api.all("/states/inventory-packages") {
            let package = &item["document"]["package"];
            let name = package["name"].as_str().unwrap().to_owned();
            assert_eq!(item["id"], format!("{name}:amd64"));
            let (kind, size) = (package["type"].as_str(), package["size"].as_u64());
            assert_eq!((kind, size), (Some("deb"), Some(3072)));
            told.insert(name, package["version"].as_str().unwrap().to_owned());
        }
        differences(&self.installed, &told)
    }
}

/// Returns kind, key and changed fields of every change of a package, sorted.
fn history(api: &Api) -> Vec<(String, String, String)> {
    let text = |v: &serde_json::Value| v.as_str().unwrap().to_owned();
    let of = |c: &serde_json::Value| {
        (text(&c["kind"]), text(&c["path"]), c["changed_fields"].to_string())
    };
    let mut found: Vec<_> = api.history("/changes").iter().map(of).collect();
    found.retain(|(_, path, _)| !path.starts_with('/'));
    found.sort();
    found
}

fn expect(api: &Api, wanted: &[(&str, &str)]) -> Result<(), String> {
    let fields = |kind: &str| if kind == "modified" { "[\"version\"]" } else { "[]" };
    let mut wanted: Vec<(String, String, String)> = wanted
        .iter()
        .map(|(kind, name)| ((*kind).into(), format!("{name}:amd64"), fields(kind).into()))
        .collect();
    wanted.sort();
    let found = history(api);
    if found == wanted { Ok(()) } else { Err(format!("{found:?}")) }
}

/// Deletes a package's document from the stopped server's database.
fn lose(database: &Path, key: &str) {
    let mut db = Connection::open(database).unwrap();
    let change = db.transaction().unwrap();
    let lost = change.execute("DELETE FROM document WHERE path = ?1", [key]).unwrap();
    assert_eq!(lost, 1);
    let of = "(SELECT number FROM dataset WHERE name = 'inventory-packages')";
    for (table, column) in [("collection", "dataset"), ("dataset", "number")] {
        let count = format!("UPDATE {table} SET documents = documents - 1 WHERE {column} = {of}");
        assert_eq!(change.execute(&count, []).unwrap(), 1);
    }
    change.commit().unwrap();
}

#[test]
fn packages_are_reported_through_kills_losses_and_gaps() {
    let mut place = PackageHost::new("packages");
    place.change(&[("bash", "1"), ("coreutils", "1"), ("dpkg", "1"), ("old", "1")], &[]);
    let (server, api) = place.deployment.server();
    assert_eq!(place.deployment.enroll("packages").0, 0);
    let agent = place.deployment.agent();
    eventually("the first look arrives", || place.is_told(&api));
    // The first look creates documents and no events.
    assert!(history(&api).is_empty());

    place.change(&[("bash", "2"), ("new", "1")], &["old"]);
    let mut changes = vec![("modified", "bash"), ("created", "new"), ("deleted", "old")];
    eventually("a running system's changes", || {
        place.is_told(&api)?;
        expect(&api, &changes)
    });
    let data = place.deployment.data();
    let (code, printed, error) = run(&["changes", "--data", data.to_str().unwrap()]);
    assert_eq!(code, 0, "{error}");
    for line in [
        "modified bash:amd64 (version) version 1 to 2, architecture amd64",
        "created  new:amd64 version 1, architecture amd64",
        "deleted  old:amd64 version 1, architecture amd64",
    ] {
        assert!(printed.contains(line), "{line}: {printed}");
    }
    let one = &api.history("/changes?file=bash:amd64")[0];
    let version = |when: &str| one[when]["version"].as_str();
    assert_eq!((version("before"), version("after")), (Some("1"), Some("2")));

    // Kill both at once, while these changes may be anywhere between the database and the server.
    place.change(&[("coreutils", "2"), ("later", "1")], &["new"]);
    agent.kill();
    server.kill();
    place.change(&[("coreutils", "3")], &[]);
    lose(&data.join("state.db"), "bash:amd64");
    let (server, api) = place.deployment.server();
    let agent = place.deployment.agent();
    let found = agent.line("check packages: ");
    assert!(found.starts_with("1 documents differed"), "{found}");
    assert!(found.ends_with(" 0 were too many"), "{found}");
    eventually("what happened around the kill", || place.is_told(&api));
    // A repaired document is not a change. The upgrade in two steps was seen as one or two changes.
    changes.extend([("created", "later"), ("deleted", "new"), ("modified", "coreutils")]);
    eventually("the changes around the kill", || {
        let twice = [&changes[..], &[("modified", "coreutils")]].concat();
        expect(&api, &changes).or_else(|_| expect(&api, &twice))
    });
    let before = history(&api);

    // A missing or truncated database is reported as a gap, and not as removals.
    let gaps = |kind: &str| -> Vec<serde_json::Value> {
        let gaps = api.history("/coverage");
        let path = place.status().to_str().unwrap().to_owned();
        gaps.into_iter().filter(|g| g["kind"] == kind && g["path"] == path.as_str()).collect()
    };
    let whole = fs::read(place.status()).unwrap();
    fs::remove_file(place.status()).unwrap();
    let met = |kind: &str| {
        if gaps(kind).is_empty() { Err("no gap".into()) } else { Ok(()) }
    };
    eventually("the missing database is a gap", || met("root_gone"));
    fs::write(place.status(), &whole[..whole.len() - 1]).unwrap();
    eventually("the cut database is a gap", || met("unreadable"));
    assert_eq!(place.is_told(&api), Ok(()));
    assert_eq!(history(&api), before);

    // Restore the database with a change, which must be found.
    place.change(&[("dpkg", "2")], &[]);
    eventually("the database is back", || place.is_told(&api));
    let path = place.status().to_str().unwrap().to_owned();
    eventually("the gap is over", || {
        let gaps = api.history("/coverage");
        let over = gaps.iter().any(|g| g["path"] == path.as_str() && g["found"] == 1);
        if over { Ok(()) } else { Err(format!("{gaps:?}")) }
    });
    assert_eq!((agent.stop(), server.stop()), (0, 0));
}

#[test]
fn up_reports_the_packages_of_the_given_system_root() {
    let mut place = PackageHost::new("packages-up");
    place.change(&[("bash", "1"), ("dpkg", "1")], &[]);
    let path = |name: &str| place.deployment.base.join(name).to_str().unwrap().to_owned();
    let (data, tree, system) = (path("data"), path("tree"), path("system"));
    let folders = ["up", "--data", &data, "--watch", &tree, "--system", &system];
    let rest = ["--api", "127.0.0.1:0", "--plain-http", "--scan-interval", "200ms"];
    let up = Running::start(&[&folders[..], &rest].concat(), &place.deployment.base.join("up.log"));
    up.line("ready: ");
    let api = Api::of(Path::new(&data));
    eventually("the first look arrives", || place.is_told(&api));
    place.change(&[("bash", "2")], &["dpkg"]);
    eventually("what changed arrives", || place.is_told(&api));
    assert_eq!(up.stop(), 0);
}

#[test]
fn first_list_of_packages_is_no_change() {
    let place = Deployment::looking("packages-first", "200ms");
    let config = place.base.join("agent.toml");
    let with = fs::read_to_string(&config).unwrap();
    let without = with.replace("[inventory]\n", "[inventory]\npackages = false\n");
    assert_ne!(with, without);
    fs::write(&config, without).unwrap();
    let (server, api) = place.server();
    assert_eq!(place.enroll("first").0, 0);
    let agent = place.agent();
    agent.line("synchronised: ");
    assert_eq!(agent.stop(), 0);

    fs::write(&config, with).unwrap();
    let agent = place.agent();
    eventually("the gap of the restart is told", || {
        let gaps = api.history("/coverage");
        let down = gaps.iter().find(|gap| gap["kind"] == "agent_down");
        let found = down.map(|gap| gap["found"].as_u64());
        if found == Some(Some(0)) { Ok(()) } else { Err(format!("{found:?}")) }
    });
    eventually("the packages are on the server", || {
        let number = api.all("/states/inventory-packages").len();
        if number == 2 { Ok(()) } else { Err(format!("{number}")) }
    });
    assert_eq!((agent.stop(), server.stop()), (0, 0));
}
