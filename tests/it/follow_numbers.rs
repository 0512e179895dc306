//! The numbers of events at a follower, with real processes: they are those of its server, also after
//! the server's retention has run.

use std::fs;
use std::path::Path;

use rusqlite::Connection;
use serde_json::Value;

use crate::common::{eventually, folder, run};
use crate::follow::{Teller, configure, register, socket_of, start_server, text};

/// Returns number, agent, id and body of every event.
fn events(data: &Path) -> Vec<(i64, i64, String, Vec<u8>)> {
    let db = Connection::open(data.join("state.db")).unwrap();
    let mut select = db.prepare("SELECT number, agent, id, body FROM event").unwrap();
    let rows = select.query_map([], |r| Ok((r.get(0)?, r.get(1)?, r.get(2)?, r.get(3)?)));
    rows.unwrap().map(Result::unwrap).collect()
}

fn set(data: &Path, sql: &str) {
    Connection::open(data.join("state.db")).unwrap().execute_batch(sql).unwrap();
}

/// Follows into `second` until it has everything.
fn follow_once(first: &Path, second: &Path) -> (i32, String) {
    let from = socket_of(first);
    let (code, _, error) =
        run(&["journal", "follow", "--from", &from, "--to", text(second), "--once"]);
    (code, error)
}

/// Waits until the server's retention has run.
fn expect_retention(data: &Path) {
    eventually("the retention has run", || {
        let found = events(data).into_iter().filter(|(_, _, id, _)| id.starts_with("retention-"));
        if found.count() == 1 { Ok(()) } else { Err("no event of it".to_owned()) }
    });
}

fn send_reports(server: &Path, from: u64, to: u64) {
    let teller = Teller::of(server);
    (from..to).for_each(|n| assert!(teller.send_report(n)));
}

#[test]
fn follower_has_the_servers_event_numbers_after_retention() {
    let base = folder("follow-numbers");
    configure(&base, "first", "plain_http = true\n");
    let (first, second) = (base.join("first"), base.join("second"));
    let server = start_server(&base, "first");
    register(&base, &server);
    send_reports(&first, 1, 20);
    assert_eq!(follow_once(&first, &second).0, 0);
    assert_eq!(server.stop(), 0);
    // A power cut later loses what is not in this copy, as the checkpoint at the stop was the last.
    fs::copy(first.join("state.db"), base.join("state.db")).unwrap();

    // The first retention after a start deletes what seems to be very old.
    set(&first, "UPDATE event SET received_us = 1 WHERE number <= 10");
    let server = start_server(&base, "first");
    expect_retention(&first);
    send_reports(&first, 20, 40);
    assert_eq!(follow_once(&first, &second).0, 0);
    server.kill();
    let numbered = events(&first);
    assert_eq!(numbered.len(), 39 - 10 + 1, "the run's event is one of them");
    assert_eq!(events(&second), numbered);
    let (code, out, error) = run(&["journal", "dump", text(&second.join("journal"))]);
    assert_eq!(code, 0, "{error}");
    let line = out.lines().find(|line| line.contains("retain")).unwrap_or_else(|| panic!("{out}"));
    let dumped: Value = serde_json::from_str(line).unwrap();
    assert_eq!((&dumped["kind"], &dumped["through"]), (&"retain".into(), &10.into()), "{line}");

    for suffix in ["-wal", "-shm"] {
        let _ = fs::remove_file(first.join(format!("state.db{suffix}")));
    }
    fs::copy(base.join("state.db"), first.join("state.db")).unwrap();
    let server = start_server(&base, "first");
    assert_eq!(events(&first), numbered, "the replay gives the same numbers");
    assert_eq!(server.stop(), 0);
}

#[test]
fn follower_of_an_older_version_begins_again() {
    let base = folder("follow-older");
    configure(&base, "first", "plain_http = true\n");
    let (first, second) = (base.join("first"), base.join("second"));
    let server = start_server(&base, "first");
    register(&base, &server);
    send_reports(&first, 1, 10);
    assert_eq!(follow_once(&first, &second).0, 0);
    // The version before it numbered events apart from the journal, and had no decisions.
    let marker = second.join("following");
    let mut json: Value = serde_json::from_slice(&fs::read(&marker).unwrap()).unwrap();
    json.as_object_mut().unwrap().remove("version");
    fs::write(&marker, json.to_string()).unwrap();
    set(&second, "UPDATE event SET number = number + 100");
    let from = socket_of(&first);
    let follow = ["journal", "follow", "--from", &from, "--to", text(&second), "--once"];
    let (code, out, error) = run(&follow);
    assert_eq!(code, 0, "{error}");
    assert!(
        out.contains("copying state and registry") && error.contains("sends decisions"),
        "{out}"
    );
    assert_eq!(events(&second), events(&first));
    let (code, out, error) = run(&follow);
    assert!(code == 0 && !out.contains("copying state"), "once only: {out}{error}");
    assert_eq!(server.stop(), 0);
}
