//! The server's reports on an agent's scans, and commands to a running agent.

use std::fs;

use crate::common::mounted::folder_to_watch;
use crate::common::{Api, Running, eventually, folder};

#[test]
fn scan_times_are_reported_and_commands_acknowledged() {
    let base = folder("orders");
    let (data, tree) = (base.join("data"), folder_to_watch(base.join("tree")));
    fs::write(tree.join("a"), b"one").unwrap();
    let words = [
        "up",
        "--data",
        data.to_str().unwrap(),
        "--watch",
        tree.to_str().unwrap(),
        "--api",
        "127.0.0.1:0",
        "--scan-interval",
        "1h",
        "--plain-http",
    ];
    let up = Running::start(&words, &base.join("log"));
    up.line("ready: ");
    // After this line the agent is enrolled.
    up.line("synchronised: ");
    let api = Api::of(&data);
    let times = || {
        let answer = api.get("/syscheck/001/last_scan");
        let item = &answer["data"]["affected_items"][0];
        let text = |name: &str| item[name].as_str().map(str::to_owned);
        (text("start"), text("end"))
    };
    eventually("the first scan has begun and ended", || match times() {
        (Some(start), Some(end)) if start <= end => Ok(()),
        other => Err(format!("{other:?}")),
    });
    for path in ["/agents/reconnect?agents_list=001", "/syscheck?agents_list=001"] {
        // The order needs an active agent, so retry until its first heartbeat has arrived.
        let mut command = 0;
        eventually("the order is taken", || match api.request("PUT", path) {
            Some((200, answer)) if answer["error"] == 0 => {
                command = answer["data"]["command"].as_u64().unwrap();
                Ok(())
            }
            other => Err(format!("{other:?}")),
        });
        eventually("the order is acknowledged", || {
            let answer = api.get(&format!("/commands/{command}"));
            match answer["data"]["command"]["counts"]["acknowledged"].as_u64() {
                Some(1) => Ok(()),
                _ => Err(answer.to_string()),
            }
        });
    }
    assert!(data.join("rules/cron_changed.yml").exists());
    assert_eq!(api.get("/rules/files")["data"]["total_affected_items"], 10);
    assert_eq!(up.stop(), 0);
}
