//! Rows of the agent's database that cannot be decoded, found by each reader. Only these rows are
//! dropped; they are reported as a gap and found again, and the server keeps their documents.

use std::fs;

use crate::common::deployment::{Deployment, has_packages};
use crate::common::{self, eventually};
use rusqlite::Connection;

#[test]
fn undecodable_item_makes_the_agent_recreate_its_database() {
    let deployment = Deployment::new("undecodable");
    let (server, api) = deployment.server();
    assert_eq!(deployment.enroll("undecodable").0, 0);
    let agent = deployment.agent();
    agent.line("synchronised: ");
    deployment.equal(&api, "001");
    let damage = || {
        let db = Connection::open(deployment.base.join("agent/agent.db")).unwrap();
        let sql = "UPDATE item SET observation = x'ff00' WHERE name = CAST('f9' AS BLOB)";
        assert_eq!(db.execute(sql, []).unwrap(), 1);
    };
    // The running agent finds this damage.
    damage();
    fs::write(deployment.tree.join("d1/f1"), "now longer content").unwrap();
    // The order is refused until the agent's first heartbeat has arrived.
    eventually("the order is taken", || match api.request("PUT", "/syscheck?agents_list=001") {
        Some((200, answer)) if answer["error"] == 0 => Ok(()),
        other => Err(format!("{other:?}")),
    });
    agent.line("agent.db is damaged; restarting");
    agent.line("agent.db: items that could not be decoded were dropped (1, the first of them ");
    deployment.equal(&api, "001");
    // The server has the dropped item all the time; the agent has it after its next scan.
    eventually("the item is found again", || {
        let db = Connection::open(deployment.base.join("agent/agent.db")).unwrap();
        let sql = "SELECT count(*) FROM item WHERE name = CAST('f9' AS BLOB)";
        let found: i64 = db.query_row(sql, [], |row| row.get(0)).unwrap();
        if found == 1 { Ok(()) } else { Err("it is not in agent.db".to_owned()) }
    });
    assert_eq!(agent.stop(), 0);
    // The agent finds this damage when it starts.
    damage();
    fs::write(deployment.tree.join("d2/f2"), "now longer content").unwrap();
    let agent = deployment.agent();
    agent.line("agent.db: items that could not be decoded were dropped (1, the first of them ");
    deployment.equal(&api, "001");
    assert_eq!(agent.stop(), 0);
    assert_eq!(server.stop(), 0);
}

/// Returns the time of the last such line in the agent's log, microseconds since the epoch.
fn logged_us(deployment: &Deployment, what: &str) -> u64 {
    let log = fs::read_to_string(deployment.base.join("agent.log")).unwrap();
    let line = log.lines().rfind(|line| line.contains(what)).unwrap_or_else(|| panic!("{log}"));
    model::timestamp::parse_micros(line.split_whitespace().next().unwrap()).unwrap()
}

/// The row is damaged after the scan, so the agent reads it only when it prepares a session.
#[test]
fn undecodable_item_found_while_sending_recreates_after_a_pause() {
    let deployment = Deployment::new("undecodable-pending");
    let (server, api) = deployment.server();
    assert_eq!(deployment.enroll("pending").0, 0);
    let agent = deployment.agent();
    agent.line("synchronised: ");
    deployment.equal(&api, "001");
    assert_eq!((agent.stop(), server.stop()), (0, 0));
    fs::write(deployment.tree.join("d1/f1"), "now longer content").unwrap();
    let agent = deployment.agent();
    agent.line("scan: ");
    let damaged = Connection::open(deployment.base.join("agent/agent.db"))
        .unwrap()
        .execute("UPDATE item SET observation = x'ff00' WHERE name = CAST('f1' AS BLOB)", []);
    assert_eq!(damaged.unwrap(), 1);
    let (server, api) = deployment.server();
    agent.line("agent.db is damaged; restarting");
    let met_us = logged_us(&deployment, "content of ");
    agent.line("agent.db: items that could not be decoded were dropped (1, the first of them ");
    deployment.equal(&api, "001");
    // The pause keeps repeated damage from causing restarts in a tight loop.
    let paused_us = logged_us(&deployment, "items that cannot be decoded dropped") - met_us;
    assert!(paused_us >= 10_000_000, "after {paused_us} us");
    assert_eq!(agent.stop(), 0);
    assert_eq!(server.stop(), 0);
}

/// The package database has not changed, but the agent must read it again before the next check.
#[test]
fn undecodable_package_is_found_again_and_stays_on_the_server() {
    let deployment = Deployment::new("undecodable-package");
    let (server, api) = deployment.server();
    assert_eq!(deployment.enroll("packages").0, 0);
    let agent = deployment.agent();
    let installed = [("bash", "1"), ("old", "1")];
    eventually("packages are reported", || has_packages(&api, &installed));
    // Wait until the database's time of change is in the past, so that no further look is due.
    let settled = || {
        let db = Connection::open(deployment.base.join("agent/agent.db")).unwrap();
        let query = "SELECT value FROM note WHERE name = 'packages.last'";
        let note: Vec<u8> = db.query_row(query, [], |row| row.get(0)).unwrap();
        let note: serde_json::Value = serde_json::from_slice(&note).unwrap();
        if note["stamp"] == "" { Err(note.to_string()) } else { Ok(()) }
    };
    eventually("the look has settled", || {
        settled().or_else(|_| {
            api.rescan("001");
            settled()
        })
    });
    assert_eq!(agent.stop(), 0);
    let db = Connection::open(deployment.base.join("agent/agent.db")).unwrap();
    // Change the first byte of the row.
    let flip = "UPDATE item SET observation = CAST(x'01' || substr(observation, 2) AS BLOB) \
                WHERE name = CAST('bash:amd64' AS BLOB)";
    assert_eq!(db.execute(flip, []).unwrap(), 1);
    drop(db);
    let agent = deployment.agent();
    agent.line("agent.db: items that could not be decoded were dropped (1, the first of them ");
    let checked = || {
        assert_eq!(has_packages(&api, &installed), Ok(()), "it is gone from the server");
        let db = Connection::open(deployment.base.join("agent/agent.db")).unwrap();
        db.busy_timeout(common::PATIENCE).unwrap();
        let due = "SELECT count(*) FROM note WHERE name = 'sync.check' AND length(value) > 0";
        let due: i64 = db.query_row(due, [], |row| row.get(0)).unwrap();
        if due == 0 { Ok(()) } else { Err("a check is due".into()) }
    };
    eventually("both sides are compared", checked);
    assert_eq!(has_packages(&api, &installed), Ok(()));
    assert_eq!(agent.stop(), 0);
    assert_eq!(server.stop(), 0);
}
