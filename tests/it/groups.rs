//! Distribution of group configurations to agents: a real server and two real agents; changes over
//! the API, among them a refused one and one while an agent is stopped; with kills in between.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use crate::common::mounted::folder_to_watch;
use crate::common::{Api, Running, disk, eventually, folder, free_port, run, stored};
use serde_json::Value;

const XML: &str = "application/xml";
const TOML: &str = "application/toml";
const RELOADED: &str = "the agent continues with its groups' configuration";

struct Deployment {
    base: PathBuf,
}

impl Deployment {
    fn new() -> Self {
        let base = folder("groups");
        let (api, agents) = (free_port(), free_port());
        let server = format!(
            "data = {:?}\n[api]\nlisten = \"127.0.0.1:{api}\"\nplain_http = true\n\
             [agents]\nlisten = \"127.0.0.1:{agents}\"\n",
            base.join("server")
        );
        fs::write(base.join("server.toml"), server).unwrap();
        for name in ["one", "two"] {
            let own = base.join(format!("{name}-own"));
            fs::create_dir_all(&own).unwrap();
            fs::write(own.join("file"), name).unwrap();
            let agent = format!(
                "data = {:?}\nserver = \"https://127.0.0.1:{agents}\"\n[scan]\ninterval = \"1h\"\n\
                 [inventory]\npackages = false\n[metrics]\nenabled = false\n\
                 [sync]\nheartbeat = \"500ms\"\n[[watch]]\npath = {own:?}\n",
                base.join(name)
            );
            fs::write(base.join(format!("{name}.toml")), agent).unwrap();
        }
        Self { base }
    }

    fn start(&self, role: &str, name: &str) -> Running {
        let config = self.base.join(format!("{name}.toml"));
        let log = self.base.join(format!("{name}.log"));
        Running::start(&[role, "--config", config.to_str().unwrap()], &log)
    }

    fn server(&self) -> (Running, Api) {
        let server = self.start("server", "server");
        server.line("ready: ");
        (server, Api::of(&self.base.join("server")))
    }

    fn enroll(&self, name: &str) {
        let data = self.base.join("server");
        let (code, token, error) = run(&["token", "--data", data.to_str().unwrap()]);
        assert_eq!(code, 0, "{error}");
        let config = self.base.join(format!("{name}.toml"));
        let config = config.to_str().unwrap();
        let words = ["enroll", "--config", config, "--name", name, "--token", token.trim()];
        let (code, _, error) = run(&words);
        assert_eq!(code, 0, "{error}");
    }

    /// Creates a folder with one file.
    fn tree(&self, name: &str) -> PathBuf {
        let tree = folder_to_watch(self.base.join(name));
        fs::write(tree.join("file"), name).unwrap();
        tree
    }
}

/// Waits until the server holds exactly these trees of the agent.
fn holds(api: &Api, agent: &str, trees: &[&Path]) {
    let wanted: Vec<String> = trees.iter().flat_map(|tree| disk(tree).into_keys()).collect();
    eventually("the server holds what the agent is to watch", || {
        let found: Vec<String> = stored(api, agent).into_keys().collect();
        let same = found.len() == wanted.len() && wanted.iter().all(|path| found.contains(path));
        if same { Ok(()) } else { Err(format!("{agent}: {found:?}, wanted {wanted:?}")) }
    });
}

fn is_sync(api: &Api, agent: &str) -> Value {
    api.get(&format!("/agents/{agent}/group/is_sync"))["data"]["affected_items"][0].clone()
}

/// Waits until these agents run their groups' configuration. Every endpoint must report the same.
fn synced(api: &Api, wanted: &[&str]) {
    let list = |word: &str| -> Vec<String> {
        let path = format!("/agents?group_config_status={word}&q=id!=000&select=id");
        api.all(&path).iter().map(|item| item["id"].as_str().unwrap().to_owned()).collect()
    };
    eventually("these agents are synced", || {
        let counts = api.get("/agents/summary/status")["data"]["configuration"].clone();
        let (yes, no) = (list("synced"), list("not%20synced"));
        let all = counts["total"] == 2 && yes.len() + no.len() == 2;
        if all && yes == wanted && counts["synced"] == wanted.len() as u64 {
            return Ok(());
        }
        Err(format!("{counts}, {yes:?}, {no:?}"))
    });
    for agent in ["001", "002"] {
        assert_eq!(is_sync(api, agent)["synced"], wanted.contains(&agent), "{agent}");
    }
}

fn put_configuration(api: &Api, group: &str, kind: &str, text: &str) {
    let (status, answer) = api.put(&format!("/groups/{group}/configuration"), kind, text);
    assert_eq!(status, 200, "{answer}");
}

#[test]
fn group_configuration_survives_kills_and_downtime() {
    let deployment = Deployment::new();
    let (one, two) = (deployment.base.join("one-own"), deployment.base.join("two-own"));
    let (shared, web, late) =
        (deployment.tree("shared"), deployment.tree("web"), deployment.tree("late"));
    let (server, api) = deployment.server();
    deployment.enroll("one");
    deployment.enroll("two");
    let (first, second) = (deployment.start("agent", "one"), deployment.start("agent", "two"));
    holds(&api, "001", &[&one]);
    holds(&api, "002", &[&two]);
    synced(&api, &["001", "002"]);

    // Both agents are in `default`. The first is in `web` too, which takes precedence.
    let text = format!(
        "<agent_config>\n<syscheck>\n<directories>{}</directories>\n</syscheck>\n</agent_config>",
        shared.display()
    );
    put_configuration(&api, "default", XML, &text);
    first.line(RELOADED);
    second.line(RELOADED);
    holds(&api, "001", &[&one, &shared]);
    holds(&api, "002", &[&two, &shared]);
    synced(&api, &["001", "002"]);
    let groups = api.get("/groups?groups_list=default&select=mergedSum");
    let merged = groups["data"]["affected_items"][0]["mergedSum"].clone();
    for agent in api.all("/agents?q=id!=000") {
        assert_eq!(agent["mergedSum"], merged, "one group alone: its sum is the agents'");
    }
    assert_eq!(api.request("POST", "/groups").unwrap().0, 400);
    let (status, answer) = create_group(&deployment, "web");
    assert_eq!(status, 200, "{answer}");
    assert_eq!(api.request("PUT", "/agents/001/group/web").unwrap().0, 200);
    put_configuration(&api, "web", TOML, &format!("[[watch]]\npath = {web:?}\n"));
    holds(&api, "001", &[&one, &shared, &web]);
    synced(&api, &["001", "002"]);

    refusals(&api, &web, &[&one, &shared, &web]);

    // Change the configuration while the second agent is stopped, then kill the server.
    second.kill();
    put_configuration(&api, "web", TOML, &format!("[[watch]]\npath = {web:?}\n"));
    let text = format!("[[watch]]\npath = {shared:?}\n[[watch]]\npath = {late:?}\n");
    put_configuration(&api, "default", TOML, &text);
    server.kill();
    // Without a server, the second agent runs the last configuration that it received.
    let second = deployment.start("agent", "two");
    let scanned = second.line("scan: ");
    assert!(scanned.starts_with("2 files, "), "{scanned}");
    let (server, api) = deployment.server();
    holds(&api, "001", &[&one, &shared, &web, &late]);
    holds(&api, "002", &[&two, &shared, &late]);
    synced(&api, &["001", "002"]);
    assert_eq!(is_sync(&api, "001").get("refused"), None);
    // The order changes nothing, and its outcome reports that.
    outcome(&api, order_reload(&api), "acknowledged", "already");
    // A killed agent restarts with the configuration that it ran.
    first.kill();
    let first = deployment.start("agent", "one");
    let scanned = first.line("scan: ");
    assert!(scanned.starts_with("5 files, "), "{scanned}");
    // Clear the configurations: the folders that the groups added are no longer watched.
    put_configuration(&api, "default", TOML, "# sets nothing\n");
    put_configuration(&api, "web", XML, "<agent_config/>");
    holds(&api, "001", &[&one]);
    holds(&api, "002", &[&two]);
    synced(&api, &["001", "002"]);
    for process in [first, second, server] {
        assert_eq!(process.stop(), 0);
    }
}

/// A configuration that the server refuses changes nothing. If the agent refuses one, the refusal
/// is shown and the agent keeps the old configuration.
fn refusals(api: &Api, web: &Path, trees: &[&Path]) {
    // An invalid configuration is refused with the line of the error and changes nothing.
    let bad = "[scan]\ninterval = \"1h\"\nserver = \"https://other\"\n";
    let (status, answer) = api.put("/groups/web/configuration", TOML, bad);
    assert_eq!((status, answer["error"].as_u64()), (400, Some(1114)));
    assert!(answer["detail"].as_str().unwrap().contains("line 3"), "{answer}");
    synced(api, &["001", "002"]);

    // Only the agent can refuse this one: together with its own path there are too many.
    let many = (0..999).fold(String::new(), |mut text, n| {
        let _ = writeln!(text, "[[watch]]\npath = \"/nowhere/{n}\"");
        text
    });
    put_configuration(api, "web", TOML, &many);
    eventually("the refusal is seen", || match is_sync(api, "001")["refused"]["detail"].as_str() {
        Some(detail) if detail.contains("watch") => Ok(()),
        other => Err(format!("{other:?}")),
    });
    synced(api, &["002"]);
    fs::write(web.join("more"), "still watched").unwrap();
    api.rescan("001");
    holds(api, "001", trees);
    outcome(api, order_reload(api), "failed", "watch");
}

/// Waits until the first agent's outcome of a command has this state and contains this word.
fn outcome(api: &Api, command: u64, state: &str, word: &str) {
    eventually("the order has its outcome", || {
        let answer = api.get(&format!("/commands/{command}"));
        let outcome = &answer["data"]["outcomes"][0];
        let says = outcome["detail"].as_str().is_some_and(|detail| detail.contains(word));
        if outcome["state"] == state && says { Ok(()) } else { Err(answer.to_string()) }
    });
}

/// Orders the first agent to reload its groups' configuration. Returns the command's number.
fn order_reload(api: &Api) -> u64 {
    let mut command = None;
    eventually("the order is taken", || {
        let (_, answer) = api.request("PUT", "/agents/reload?agents_list=001").unwrap();
        command = answer["data"]["command"].as_u64();
        command.map(drop).ok_or_else(|| answer.to_string())
    });
    command.unwrap()
}

fn create_group(deployment: &Deployment, name: &str) -> (u16, Value) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let http = reqwest::Client::builder()
        .unix_socket(deployment.base.join("server/holdfast.sock"))
        .build()
        .unwrap();
    let body = serde_json::json!({ "group_id": name });
    runtime.block_on(async {
        let request = http.post("http://localhost/groups").json(&body);
        let answer = request.send().await.unwrap();
        (answer.status().as_u16(), answer.json().await.unwrap())
    })
}
