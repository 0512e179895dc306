//! An agent that loses its network, is stopped, and returns, as real processes.

use std::fs;

use crate::common::deployment::{Deployment, has_packages};
use crate::common::proxy::{Fault, Proxy};
use crate::common::series::request;
use crate::common::{Api, Running, eventually, run};
use serde_json::Value;

/// Returns the gaps of agents that are or were not heard, the newest first.
fn absences(api: &Api) -> Vec<Value> {
    let words = ["agent_silent", "agent_stopped", "agent_down"];
    let all = api.history("/coverage");
    all.into_iter().filter(|gap| words.contains(&gap["kind"].as_str().unwrap())).collect()
}

fn open(api: &Api) -> Vec<Value> {
    api.history("/coverage?open=true")
}

/// Waits until the only gap that is open is of this kind.
fn until_open(api: &Api, kind: &str) {
    eventually("a gap is open", || match &open(api)[..] {
        [gap] if gap["kind"] == kind && gap["to"].is_null() => Ok(()),
        other => Err(format!("{other:?}")),
    });
}

/// Waits until no gap is open, and returns the one that ended last.
fn until_ended(api: &Api) -> Value {
    eventually("no gap is open", || match &open(api)[..] {
        [] => Ok(()),
        other => Err(format!("{other:?}")),
    });
    absences(api).remove(0)
}

/// Directs the agent's requests through a proxy.
fn interpose(deployment: &Deployment) -> Proxy {
    let file = deployment.base.join("agent.toml");
    let text = fs::read_to_string(&file).unwrap();
    let after = text.split("https://127.0.0.1:").nth(1).unwrap();
    let port: u16 = after.split('"').next().unwrap().parse().unwrap();
    let network = Proxy::to(([127, 0, 0, 1], port).into());
    let text = text.replace(&format!(":{port}\""), &format!(":{}\"", network.port));
    fs::write(&file, text).unwrap();
    network
}

/// Waits until page, commands and metrics name as many silent agents: none, or the only one.
fn named_as_silent(deployment: &Deployment, server: &Running, api: &Api, agents: u64) {
    eventually("the silent agents are named", || {
        let summary = api.get("/agents/summary")["data"]["silent"].clone();
        if summary["agents"] == agents { Ok(()) } else { Err(summary.to_string()) }
    });
    let names: Vec<&str> = ["web"].into_iter().take(agents as usize).collect();
    let summary = api.get("/agents/summary")["data"]["silent"].clone();
    assert_eq!(summary["names"], serde_json::json!(names));
    assert_eq!(summary["since"].is_string(), agents > 0);
    let listed = api.get("/agents?silent=true&select=name,status,state,silent_since");
    assert_eq!(listed["data"]["total_affected_items"], agents, "{listed}");
    for agent in listed["data"]["affected_items"].as_array().unwrap() {
        assert_eq!((&agent["state"], &agent["status"]), (&"silent".into(), &"active".into()));
    }
    let others = api.get("/agents?silent=false")["data"]["total_affected_items"].clone();
    assert_eq!(others, 2 - agents, "the server, and who is not silent");
    let data = deployment.base.join("server");
    let words = ["agents", "--silent", "--data", data.to_str().unwrap()];
    let (_, output, error) = run(&words);
    assert_eq!(output.contains("active, silent"), agents > 0, "{output}{error}");
    let page = server.line("page: http://");
    let page = page.trim_end_matches('/').parse().unwrap();
    let metrics = request("GET", page, "/metrics", &[], b"").unwrap().2;
    assert!(metrics.contains(&format!("\nholdfast_agents_silent {agents}\n")), "{metrics}");
    assert!(metrics.contains("\nholdfast_open_gaps{kind=\"agent_silent\"} "), "{metrics}");
}

#[test]
fn absence_of_an_agent_is_one_gap_that_ends_with_true_counts() {
    let deployment = Deployment::looking("silence", "300ms");
    let network = interpose(&deployment);
    let (server, api) = deployment.server();
    assert_eq!(deployment.enroll("web").0, 0);
    let agent = deployment.agent();
    deployment.equal(&api, "001");

    // A gap opens once three heartbeats, and at least 30 s, were missed.
    network.pause(true);
    until_open(&api, "agent_silent");
    named_as_silent(&deployment, &server, &api, 1);
    for n in 0..3 {
        fs::write(deployment.tree.join(format!("new{n}")), "new").unwrap();
    }
    eventually("the agent has found them", || {
        let config = deployment.base.join("agent.toml");
        let words = ["agent", "status", "--json", "--config", config.to_str().unwrap()];
        let (_, status, error) = run(&words);
        let status: Value = serde_json::from_str(&status).unwrap_or_else(|_| panic!("{error}"));
        if status["queue"]["events"].as_u64() >= Some(3) { Ok(()) } else { Err(status.to_string()) }
    });
    network.fault(Fault::Cut);
    network.pause(false);
    named_as_silent(&deployment, &server, &api, 0);
    let gap = until_ended(&api);
    assert_eq!(gap["kind"], "agent_silent", "{gap}");
    let (from, to) = (gap["from"].as_str().unwrap(), gap["to"].as_str().unwrap());
    let late = api.history(&format!("/changes?from={from}&to={to}")).len();
    assert!(late >= 3 && gap["found"] == late, "{late} changes: {gap}");
    assert!(gap["detail"].as_str().unwrap().contains("the agent was running"), "{gap}");
    deployment.equal(&api, "001");

    assert_eq!(agent.stop(), 0);
    until_open(&api, "agent_stopped");
    deployment.install(&[("bash", "2"), ("new", "1"), ("old", "1")]);
    fs::write(deployment.tree.join("new0"), "changed").unwrap();
    let agent = deployment.agent();
    let gap = until_ended(&api);
    assert_eq!((&gap["kind"], &gap["found"]), (&"agent_down".into(), &3.into()), "{gap}");
    let detail = gap["detail"].as_str().unwrap();
    assert!(detail.ends_with("changes: files 1, packages 2"), "{gap}");
    eventually("the packages are on the server", || {
        has_packages(&api, &[("bash", "2"), ("new", "1"), ("old", "1")])
    });
    assert_eq!(absences(&api).len(), 2, "one interval shows one gap");

    let config = deployment.base.join("agent.toml");
    let leave = ["agent", "leave", "--config", config.to_str().unwrap()];
    let (code, _, error) = run(&leave);
    assert!(code == 2 && error.contains("stop the other agent first"), "{error}");
    assert_eq!(agent.stop(), 0);
    until_open(&api, "agent_stopped");
    let (code, output, error) = run(&leave);
    assert!(code == 0 && output.starts_with("left: agent 001 web"), "{output}{error}");
    let gap = until_ended(&api);
    assert!(gap["detail"].as_str().unwrap().contains("has left the fleet"), "{gap}");
    let web = api.get("/agents?agents_list=001");
    let web = &web["data"]["affected_items"][0];
    let states = (&web["state"], &web["status"], &web["status_code"]);
    assert_eq!(states, (&"left".into(), &"disconnected".into(), &6.into()));
    named_as_silent(&deployment, &server, &api, 0);
    assert!(!api.history("/changes").is_empty(), "its history stays");
    assert_eq!(server.stop(), 0);
}
