//! Documents vanish from the server's database, and the agent dies: its next start compares both
//! sides, and the server ends equal to the disk without being told everything again.

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
use std::path::Path;

use common::{Api, Running, differences, disk, eventually, folder, free_port, run, stored};
use rusqlite::Connection;

/// Directories of the tree.
const FOLDERS: usize = 8;
/// Files in each.
const FILES: usize = 25;

fn configure(base: &Path, tree: &Path) {
    let agents = free_port();
    let server = format!(
        "data = {:?}\n[api]\nlisten = \"127.0.0.1:0\"\nplain_http = true\n\
         max_request_per_minute = 0\n[agents]\nlisten = \"127.0.0.1:{agents}\"\n",
        base.join("server")
    );
    // Neither a scan nor a check by the clock: what repairs is the check after the kill.
    let agent = format!(
        "data = {:?}\nserver = \"https://127.0.0.1:{agents}\"\n[scan]\ninterval = \"1h\"\n\
         background_priority = false\n[sync]\nheartbeat = \"200ms\"\n[[watch]]\npath = {tree:?}\n",
        base.join("agent")
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

#[test]
fn documents_lost_by_the_server_are_found_and_sent_again_after_a_kill_of_the_agent() {
    let base = folder("repair");
    let (tree, data) = (base.join("tree"), base.join("server"));
    for n in 0..FOLDERS * FILES {
        let path = tree.join(format!("d{}/f{n}", n % FOLDERS));
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, format!("content {n}")).unwrap();
    }
    configure(&base, &tree);
    let server = start(&base, "server");
    server.line("ready: ");
    let (code, token, error) = run(&["token", "--data", data.to_str().unwrap()]);
    assert_eq!(code, 0, "{error}");
    let config = base.join("agent.toml");
    let words = ["enroll", "--config", config.to_str().unwrap(), "--name", "repaired", "--token"];
    let (code, _, error) = run(&[&words[..], &[token.trim()]].concat());
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
