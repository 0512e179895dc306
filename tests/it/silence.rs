//! An agent that loses its network, is stopped, and returns, as real processes.

use std::fs;

use crate::common::deployment::{Deployment, has_packages};
use crate::common::proxy::{Fault, Proxy};
use crate::common::{Api, eventually, run};
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

    assert_eq!((agent.stop(), server.stop()), (0, 0));
}
