//! The commands for everyday work, on a real server: over its unix socket and over HTTPS.

use std::fs;
use std::path::{Path, PathBuf};

use crate::common::mounted::folder_to_watch;
use crate::common::{Running, eventually, folder, run_with};
use serde_json::Value;

const PASSWORD: &str = "Everyday-work-1";

/// A server with one agent, and how its commands reach it.
struct Fleet {
    base: PathBuf,
    data: String,
    url: String,
    up: Running,
}

impl Fleet {
    fn start(name: &str) -> Self {
        let base = folder(name);
        let (data, tree) = (base.join("data"), folder_to_watch(base.join("tree")));
        fs::create_dir_all(tree.join("etc")).unwrap();
        fs::create_dir_all(tree.join("etc2")).unwrap();
        fs::write(tree.join("etc/passwd"), "root").unwrap();
        fs::write(tree.join("etc2/other"), "other").unwrap();
        let system = base.join("system");
        fs::create_dir_all(system.join("var/lib/dpkg")).unwrap();
        let package = |name: &str| {
            format!(
                "Package: {name}\nStatus: install ok installed\nArchitecture: amd64\nVersion: 1.2\n\n"
            )
        };
        let status = [package("one"), package("two")].concat();
        fs::write(system.join("var/lib/dpkg/status"), status).unwrap();
        let [data, tree, system] = [data, tree, system].map(|p| p.to_str().unwrap().to_owned());
        let words = ["up", "--data", &data, "--api", "127.0.0.1:0", "--watch", &tree];
        let words = [&words[..], &["--system", &system]].concat();
        let env = [("HOLDFAST_ADMIN_PASSWORD", PASSWORD)];
        let up = Running::start_with(&words, &base.join("log"), &env);
        let url = up.line("ready: ").trim_end_matches('/').to_owned();
        up.line("synchronised: ");
        up.line("synchronised packages: ");
        let url = url.strip_prefix("ready: ").unwrap_or(&url).to_owned();
        Self { base, data, url, up }
    }

    fn tree(&self, name: &str) -> String {
        self.base.join("tree").join(name).to_str().unwrap().to_owned()
    }

    fn run_with(&self, words: &str, env: &[(&str, &str)]) -> (i32, String, String) {
        let words: Vec<_> = words.split_whitespace().collect();
        run_with(&words, &[env, &[("HOLDFAST_DATA", self.data.as_str())]].concat())
    }

    /// Runs a command over the socket that must succeed, and returns what it prints.
    fn run(&self, words: &str) -> String {
        let (code, out, error) = self.run_with(words, &[]);
        assert_eq!(code, 0, "{words}: {out}{error}");
        out
    }

    /// Runs a list with `--json`.
    fn json(&self, words: &str) -> Vec<Value> {
        let out = self.run(&format!("{words} --json"));
        out.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    /// Runs a command that must fail, and returns its error.
    fn refused(&self, words: &str) -> String {
        let (code, out, error) = self.run_with(words, &[]);
        assert_eq!(code, 2, "{words}: {out}{error}");
        error
    }
}

#[test]
fn agents_groups_and_commands_are_managed_by_name() {
    let fleet = Fleet::start("everyday-agents");
    let agents = fleet.json("agents");
    assert_eq!(agents.len(), 1, "the server itself is not listed");
    let name = agents[0]["name"].as_str().unwrap();
    let table = fleet.run("agents --status active");
    assert!(table.starts_with("id   name"), "{table}");
    assert!(table.lines().nth(1).unwrap().starts_with("001  "), "{table}");
    for given in [name, "1", "001"] {
        let shown = fleet.run(&format!("agents show {given}"));
        assert!(shown.contains("id: 001\n") && shown.contains("realtime"), "{shown}");
    }
    assert_eq!(fleet.json("agents show 1")[0]["last_scan"]["end"].as_str().unwrap().len(), 20);

    assert_eq!(fleet.run("groups create web"), "created: group web\n");
    assert_eq!(fleet.run(&format!("groups add web {name}")), format!("added: {name}\n"));
    assert!(fleet.run("groups").contains("web      1"));
    assert_eq!(fleet.json("groups show web")[0]["name"], name);
    let file = fleet.base.join("web.toml");
    fs::write(&file, "[scan]\ninterval = \"2h\"\n").unwrap();
    let configure = format!("groups configure web {}", file.display());
    assert_eq!(fleet.run(&configure), "configured: group web\n");
    assert!(fleet.run("groups configure web").contains("2h"));
    fs::write(&file, "[scan]\nintervall = \"2h\"\n").unwrap();
    assert!(fleet.refused(&configure).contains("intervall"), "the error names the field");
    assert!(fleet.refused("groups create a,b").contains("letters, digits"));
    assert!(fleet.refused("groups delete all").contains("not the name of a group"));

    let out = fleet.run("rescan --group web --wait");
    assert!(out.contains("for 1 agent(s)\n") && out.contains(&format!("001    {name}")), "{out}");
    assert!(out.contains("acknowledged"), "{out}");
    let command = fleet.json("commands")[0]["id"].to_string();
    assert_eq!(fleet.json(&format!("commands {command}"))[0]["state"], "acknowledged");
    // The agent is not active while it starts again with the configuration of its group.
    eventually("the agent takes the order", || {
        let (code, out, error) = fleet.run_with("restart 1 77", &[]);
        assert!(code == 2 && error.contains("077: agent does not exist"), "{out}{error}");
        let taken = out.contains("for 1 agent") && error.contains("1 of 2 failed");
        if taken { Ok(()) } else { Err(error) }
    });

    assert_eq!(fleet.run(&format!("groups remove web {name}")), format!("removed: {name}\n"));
    assert_eq!(fleet.run("groups delete web"), "deleted: web\n");
    assert!(fleet.refused("rescan nobody").contains("no agent of this name"));
    assert!(fleet.refused("files nobody").contains("no agent of this name"));
    assert!(fleet.refused("files 77").contains("077: agent does not exist"));
    assert!(fleet.refused("packages 77").contains("077: agent does not exist"));
    let removed = fleet.run(&format!("agents remove {name}"));
    assert_eq!(removed, format!("removed, their history is kept: {name}\n"));
    assert!(fleet.json("agents").is_empty());
}

#[test]
fn files_packages_rules_and_audit_are_printed() {
    let fleet = Fleet::start("everyday-files");
    let files = fleet.json(&format!("files 1 --path {}", fleet.tree("etc/")));
    let found: Vec<_> = files.iter().map(|file| file["file"].as_str().unwrap()).collect();
    assert_eq!(found, [fleet.tree("etc"), fleet.tree("etc/passwd")]);
    assert_eq!(fleet.json("files 1 --path /").len(), 5);
    let digest = files[1]["sha256"].as_str().unwrap();
    assert_eq!(fleet.json(&format!("files 1 --hash {digest}")).len(), 1);
    let (code, out, error) = fleet.run_with("files 1 --limit 1", &[]);
    assert!(code == 0 && out.lines().count() == 2, "{out}");
    assert_eq!(error, "1 of 5 shown; --limit sets how many\n");
    let packages = fleet.json("packages --name one");
    assert_eq!(packages.len(), 1);
    assert_eq!(packages[0]["document"]["package"]["version"], "1.2");
    assert!(fleet.run("packages 1").contains("two"));
    let (code, out, error) = fleet.run_with("packages --name three", &[]);
    assert_eq!((code, out.as_str(), error.as_str()), (0, "", "nothing found\n"));
    let at = fleet.tree("etc/passwd");
    assert_eq!(fleet.json(&format!("changes --agent 1 --path {at}")).len(), 0);

    let rules = fleet.json("rules").len();
    let listed = fleet.run("rules");
    assert!(
        listed.contains("stored") && !listed.contains("enabled"),
        "none is evaluated: {listed}"
    );
    let shown = fleet.run("rules show cron_changed.yml");
    let file = fleet.base.join("mine.yml");
    fs::write(&file, shown.replace("805f7d7f", "805f7d70")).unwrap();
    let add = format!("rules add {}", file.display());
    assert_eq!(fleet.run(&add), "stored: rules/mine.yml\n");
    assert!(fleet.refused(&add).contains("use --replace"));
    fleet.run(&format!("{add} --replace"));
    assert_eq!(fleet.json("rules").len(), rules + 1);
    assert_eq!(fleet.run("rules delete mine.yml"), "deleted: rules/mine.yml\n");
    fs::write(&file, "title: [\n").unwrap();
    assert!(fleet.refused(&add).contains("mine.yml"), "the error names the file");

    let audit = fleet.json("audit --limit 2");
    let actions: Vec<_> = audit.iter().map(|row| row["action"].as_str().unwrap()).collect();
    assert_eq!(actions, ["rules:delete", "rules:update"], "newest last");
}

#[test]
fn history_is_selected_by_agent_group_writer_and_time() {
    let fleet = Fleet::start("everyday-history");
    let name = fleet.json("agents")[0]["name"].as_str().unwrap().to_owned();
    fleet.run("groups create web");
    fleet.run("groups create none");
    fleet.run("groups add web 1");
    let file = fleet.tree("etc/passwd");
    fs::write(&file, "changed content").unwrap();
    eventually("the agent scans", || match fleet.run_with("rescan 1 --wait", &[]) {
        (0, ..) => Ok(()),
        other => Err(format!("{other:?}")),
    });
    // The program prints the change as the command does.
    let printed = fleet.up.line_with(&format!(" {name} modified {file} ("));
    eventually("the change is listed", || {
        let found = fleet.run("changes");
        if found.contains(&printed) { Ok(()) } else { Err(format!("{printed}: {found}")) }
    });
    for (words, count) in [
        ("--group web", 1),
        ("--group none", 0),
        ("--since 2026-01-01", 1),
        ("--until 2026-01-01", 0),
        ("--since 1h --until 2099-12-31T23:00:00Z", 1),
        ("--user no-such-user", 0),
        ("--process no-such-program", 0),
    ] {
        let words = format!("changes --path {file} {words}");
        assert_eq!(fleet.json(&words).len(), count, "{words}");
    }
    assert!(fleet.refused("changes --group nowhere").contains("`holdfast groups` lists"));
    assert!(fleet.refused("changes --follow --until 1h").contains("cannot be used with"));
    fleet.run("coverage --open --group web --since 2026-01-01");
    assert_eq!(fleet.json("coverage --until 2026-01-01").len(), 0);
}

#[test]
fn refusals_are_in_the_words_of_the_command_line() {
    let fleet = Fleet::start("everyday-words");
    for (words, expected) in [
        ("agents remove 999", "999: agent does not exist: `holdfast agents` lists the agents"),
        ("agents remove 99999999999", "99999999999: agent does not exist"),
        ("agents show web*", "web*: the server has no agent of this name; name one agent"),
        ("users delete admin", "admin: the user belongs to the program"),
        ("users grant admin administrator", "administrator: "),
        ("groups show nowhere", "`holdfast groups` lists the groups"),
        ("rules show none.yml", "none.yml: no such rules file: `holdfast rules` lists"),
        ("files 1 --hash zz", "64 of SHA-256, 40 of SHA-1 or 32 of MD5"),
        ("agents --limit abc", "not a whole number of 1 or more"),
        ("changes --limit 0", "not a whole number from 1 to 100000"),
        ("token --ttl forever", "write a number with a unit, such as 30s"),
        ("up --scan-interval abc", "write a number with a unit, such as 30s"),
        ("changes --since yesterday", "a day such as 2026-01-31"),
        ("agents --search a;b*", "a;b*: not usable as search; an example is"),
        ("agents --group we*", "we*: not usable as group; an example is web"),
    ] {
        let error = fleet.refused(words);
        assert!(error.contains(expected), "{words}: {error}");
        assert!(!error.contains("GET /"), "{words}: {error}");
    }
    let (code, _, error) = fleet.run_with("agents remove", &[("HOLDFAST_CA", "ca.pem")]);
    assert!(code == 2 && error.contains("Usage: holdfast agents remove <AGENT>..."), "{error}");
    let shown = fleet.run("agents show 000");
    assert!(shown.contains("last heard: -\n"), "{shown}");
}

#[test]
fn unknown_number_fails_alone() {
    let fleet = Fleet::start("everyday-unknown");
    let (code, out, error) = fleet.run_with("packages 1 77", &[]);
    assert!(code == 2 && out.contains("two") && error.contains("077: agent does not"), "{error}");
    fleet.run("users create alice");
    let (code, out, error) = fleet.run_with("users grant alice readonly 999", &[]);
    assert_eq!((code, out.as_str()), (2, "granted: readonly for user alice\n"), "{error}");
    assert!(error.contains("999: role does not exist: `holdfast users roles` lists"), "{error}");
    let (code, out, error) = fleet.run_with("users delete 999 alice", &[]);
    assert_eq!((code, out.as_str()), (2, "deleted: user alice\n"), "{error}");
    let (code, out, error) = fleet.run_with("groups add default 77 99999999999", &[]);
    assert!(code == 2 && out.is_empty() && error.contains("2 of 2 failed"), "{error}");
}

#[test]
fn server_elsewhere_is_managed_with_a_token() {
    let fleet = Fleet::start("everyday-remote");
    let ca = Path::new(&fleet.data).join("keys/ca.pem");
    let address = [("HOLDFAST_URL", fleet.url.as_str())];
    let login = |password: &'static str| {
        let ca = ca.to_str().unwrap();
        let env = [&address[..], &[("HOLDFAST_CA", ca), ("HOLDFAST_PASSWORD", password)]].concat();
        fleet.run_with("login --user admin", &env)
    };
    let (code, _, error) = login("Wrong-password-1");
    assert!(code == 2 && error.contains("Invalid credentials"), "{error}");
    let (code, token, error) = login(PASSWORD);
    assert_eq!(code, 0, "{error}");
    let remote = |words: &str, ca: &str, token: &str| {
        let more = [("HOLDFAST_CA", ca), ("HOLDFAST_API_TOKEN", token.trim())];
        let more = [&more[..], &[("HOLDFAST_NEW_PASSWORD", "Another-password-2")]].concat();
        fleet.run_with(words, &[&address[..], &more].concat())
    };
    let trusted = ca.to_str().unwrap();
    let (code, out, error) = remote("agents --json", trusted, &token);
    assert_eq!((code, out.lines().count()), (0, 1), "{error}");
    let (code, _, error) = remote("agents", trusted, "");
    assert!(code == 2 && error.contains("no token; `holdfast login"), "{error}");
    let (code, _, error) = remote("agents", trusted, "forged");
    assert!(code == 2 && error.contains("the token is not valid"), "{error}");
    // A data folder that is named wins over the address in the environment.
    let (code, _, error) = remote("agents --data /nowhere", trusted, &token);
    assert!(code == 2 && error.contains("/nowhere/holdfast.sock: no server"), "{error}");
    let (code, _, error) = remote("agents --data d --url https://localhost", trusted, &token);
    assert!(code == 2 && error.contains("cannot be used with"), "{error}");
    let (code, _, error) = remote("agents", "", &token);
    assert!(code == 2 && error.contains("--ca"), "{error}");

    let (code, out, error) = remote("users create alice --role readonly", trusted, &token);
    assert_eq!((code, out.as_str()), (0, "created: user alice\n"), "{error}");
    let users = fleet.json("users");
    assert_eq!(users[1]["role_names"], serde_json::json!(["readonly"]));
    fleet.run("users grant alice agents_admin");
    fleet.run("users revoke alice readonly");
    assert!(fleet.run("users").contains("agents_admin"));
    let (code, out, error) = remote("users password alice", trusted, &token);
    assert_eq!((code, out.as_str()), (0, "password of alice set\n"), "{error}");
    assert!(fleet.refused("users create bob").contains("4 to 64 characters"));
    assert!(fleet.refused("users create bobby --role nothing").contains("no such role"));
    assert_eq!(fleet.json("users").len(), 2, "a user without the role is not created");
    assert!(fleet.run("users roles").contains("readonly"));
    assert_eq!(fleet.run("users delete alice"), "deleted: user alice\n");
    assert!(fleet.refused("users delete alice").contains("no such user"));
}
