//! `holdfast up` as users run it: first start, changes, restart, changes while it was stopped,
//! backup and restore, a lost password.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::common::mounted::folder_to_watch;
use crate::common::{
    Api, Running, differences, disk, eventually, folder, login, run, run_with, stored,
};

struct Folders {
    data: PathBuf,
    tree: PathBuf,
    log: PathBuf,
}

impl Folders {
    fn new(name: &str) -> Self {
        let base = folder(name);
        // A mount cannot be renamed, so the tree is below it.
        let tree = folder_to_watch(base.join("watched")).join("tree");
        fs::create_dir_all(tree.join("sub")).unwrap();
        fs::write(tree.join("a"), b"one").unwrap();
        fs::write(tree.join("sub/b"), b"two").unwrap();
        Self { data: base.join("data"), tree, log: base.join("log") }
    }

    fn up(&self) -> Running {
        self.up_on(&self.data)
    }

    fn up_on(&self, data: &Path) -> Running {
        let words = [
            "up",
            "--data",
            data.to_str().unwrap(),
            "--watch",
            self.tree.to_str().unwrap(),
            "--api",
            "127.0.0.1:0",
            "--scan-interval",
            "1h",
            "--plain-http",
            "--log",
            "info",
        ];
        Running::start(&words, &self.log)
    }

    fn api(&self) -> Api {
        Api::of(&self.data)
    }
}

/// Returns kind and path of every change, oldest first.
fn history(api: &Api) -> Vec<(String, String)> {
    let mut items = api.history("/changes");
    items.reverse();
    let text = |v: &serde_json::Value| v.as_str().unwrap().to_owned();
    items.iter().map(|i| (text(&i["kind"]), text(&i["path"]))).collect()
}

#[test]
fn changes_on_disk_appear_in_the_history() {
    let place = Folders::new("up-change");
    let up = place.up();
    let password = up.line("log in: user admin, password ");
    assert!(password.contains("in ") && password.contains("admin-password (removed"), "{password}");
    assert!(up.line("ready: ").starts_with("http://127.0.0.1:"));
    assert!(up.line("synchronised: ").starts_with("4 documents durable"));
    let api = place.api();
    assert_eq!(history(&api), [], "the first scan is the baseline, not a change");

    fs::write(place.tree.join("new"), b"three").unwrap();
    fs::write(place.tree.join("a"), b"one more").unwrap();
    fs::set_permissions(place.tree.join("sub/b"), fs::Permissions::from_mode(0o600)).unwrap();
    api.rescan("001");
    fs::remove_file(place.tree.join("new")).unwrap();
    api.rescan("001");
    let path = |name: &str| place.tree.join(name).to_str().unwrap().to_owned();
    let mut expected = vec![
        ("created".to_owned(), path("new")),
        ("deleted".to_owned(), path("new")),
        ("modified".to_owned(), path("a")),
        ("modified".to_owned(), path("sub/b")),
    ];
    expected.sort();
    eventually("four changes", || {
        let mut found = history(&api);
        found.sort();
        if found == expected { Ok(()) } else { Err(format!("{found:?}")) }
    });
    let chmod = api.history(&format!("/changes?path={}", path("sub/b")));
    assert_eq!(chmod[0]["before"]["mode"], "0644");
    assert_eq!(chmod[0]["after"]["mode"], "0600");
    assert_eq!(chmod[0]["changed_fields"], serde_json::json!(["mode", "ctime"]));
    differences(&disk(&place.tree), &stored(&api, "001")).unwrap();

    let data = place.data.to_str().unwrap();
    let (code, printed, error) = run(&["changes", "--data", data]);
    assert_eq!((code, printed.lines().count()), (0, 4), "{printed}{error}");
    let unexplained = ["--cause", "unexplained", "--sort", "unexplained"];
    let (code, sorted, error) = run(&[&["changes", "--data", data], &unexplained[..]].concat());
    let newest_first: Vec<&str> = sorted.lines().rev().collect();
    assert_eq!((code, newest_first), (0, printed.lines().collect()), "{error}");
    let (_, printed, error) = run(&["changes", "--data", data, "--cause", "package,deployment"]);
    assert_eq!(printed, "", "{error}");
    assert_eq!(up.stop(), 0);
}

#[test]
fn changes_during_downtime_are_recorded_with_a_gap() {
    let place = Folders::new("up-down");
    let up = place.up();
    up.line("synchronised: ");
    assert_eq!(up.stop(), 0);
    fs::remove_file(place.tree.join("a")).unwrap();
    fs::write(place.tree.join("sub/c"), b"new").unwrap();

    let up = place.up();
    up.line("log in: user admin, with the password set at first start");
    let scan = up.line("scan: ");
    assert!(scan.contains("1 created, 0 modified, 1 deleted"), "{scan}");
    let api = place.api();
    eventually("both changes and the gap", || {
        let mut kinds: Vec<_> = history(&api).into_iter().map(|(kind, _)| kind).collect();
        kinds.sort();
        let gaps = api.history("/coverage");
        let down = gaps.iter().any(|g| g["kind"] == "agent_down" && g["found"] == 2);
        if kinds == ["created", "deleted"] && down {
            Ok(())
        } else {
            Err(format!("{kinds:?} {gaps:?}"))
        }
    });
    assert_eq!(up.stop(), 0);
}

#[test]
fn second_process_on_a_data_folder_is_refused() {
    let place = Folders::new("up-twice");
    let up = place.up();
    up.line("ready: ");
    let (code, _, error) =
        run(&["up", "--data", place.data.to_str().unwrap(), "--api", "127.0.0.1:0"]);
    assert_eq!(code, 2);
    assert!(error.contains("in use by another holdfast"), "{error}");
    assert_eq!(up.stop(), 0);
}

#[test]
fn local_agent_recovers_its_key_but_lost_registry_fails_start() {
    let place = Folders::new("up-lost-key");
    let up = place.up();
    up.line("synchronised: ");
    assert_eq!(up.stop(), 0);
    let told = |name: &str, path: &str| {
        fs::write(place.tree.join(name), b"while it was down").unwrap();
        let up = place.up();
        up.line(path);
        up.line("synchronised: ");
        let api = place.api();
        let wanted = place.tree.join(name).to_str().unwrap().to_owned();
        eventually("the change", || {
            let found = history(&api);
            if found.iter().any(|(_, p)| *p == wanted) { Ok(()) } else { Err(format!("{found:?}")) }
        });
        assert_eq!(up.stop(), 0);
    };
    fs::remove_file(place.data.join("agent/key.pem")).unwrap();
    told("no-key", "the local agent's key or certificate was lost: recreated");
    fs::write(place.data.join("agent/cert.pem"), b"garbage").unwrap();
    told("no-certificate", "the local agent's key or certificate was lost: recreated");
    // Make the agent unknown to the registry, as after restoring an older backup.
    let registry = rusqlite::Connection::open(place.data.join("registry.db")).unwrap();
    registry.execute("DELETE FROM agent WHERE id = 1", []).unwrap();
    drop(registry);
    told("no-row", "agent 001 ");
    let kept = fs::read(place.data.join("registry.db")).unwrap();
    for lost in [false, true] {
        fs::write(place.data.join("registry.db"), "").unwrap();
        if lost {
            fs::remove_file(place.data.join("registry.db")).unwrap();
        }
        let (code, out, error) =
            run(&["up", "--data", place.data.to_str().unwrap(), "--api", "127.0.0.1:0"]);
        assert_eq!((code, error.contains("`holdfast restore`")), (2, true), "{out}{error}");
        assert!(error.contains("registry.db: missing or empty, but "), "{error}");
    }
    fs::write(place.data.join("registry.db"), kept).unwrap();
    told("registry-back", "ready: ");
}

#[test]
fn first_password_lies_in_a_file_until_it_is_changed() {
    let place = Folders::new("up-password");
    let up = place.up();
    let url = up.line("ready: ");
    let file = place.data.join("admin-password");
    let mode = fs::metadata(&file).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let password = fs::read_to_string(&file).unwrap();
    assert_eq!(login(&url, "admin", password.trim()), 200);
    assert!(!up.printed().join("\n").contains(password.trim()), "it is in the log too");
    let data = place.data.to_str().unwrap();
    let (code, _, error) = run(&["users", "create", "other", "--data", data]);
    assert_eq!(code, 0, "{error}");
    assert!(file.exists());
    let (code, _, error) = run(&["users", "password", "admin", "--data", data]);
    assert_eq!(code, 0, "{error}");
    assert!(!file.exists(), "the old password is still there");
    assert_eq!(up.stop(), 0);
}

#[test]
fn failed_first_start_keeps_the_initial_password() {
    let place = Folders::new("up-port-taken");
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let (code, out, error) =
        run(&["up", "--data", place.data.to_str().unwrap(), "--api", &address]);
    assert_eq!((code, error.contains(&address)), (2, true), "{out}{error}");
    let up = place.up();
    assert!(up.line("log in: user admin, password in ").contains("admin-password"));
    assert_eq!(up.stop(), 0);
}

#[test]
fn missing_root_is_reported_as_a_gap_without_deletes() {
    let place = Folders::new("up-gap");
    let up = place.up();
    up.line("synchronised: ");
    let api = place.api();
    let before = stored(&api, "001");
    let away = place.tree.with_extension("away");
    fs::rename(&place.tree, &away).unwrap();
    api.rescan("001");
    eventually("a gap", || {
        let gaps = api.history("/coverage");
        let there = gaps.iter().any(|g| g["kind"] == "root_gone" && g["to"].is_null());
        if there { Ok(()) } else { Err(format!("{gaps:?}")) }
    });
    assert_eq!(open_gaps(&api), ["root_gone"]);
    assert_eq!(stored(&api, "001"), before, "nothing was deleted");
    assert_eq!(history(&api), []);
    assert_eq!(up.stop(), 0);

    let up = place.up();
    up.line("scan: ");
    let api = place.api();
    eventually("only the root's gap is open", || {
        let open = open_gaps(&api);
        if open == ["root_gone"] { Ok(()) } else { Err(format!("{open:?}")) }
    });
    fs::rename(&away, &place.tree).unwrap();
    api.rescan("001");
    assert_eq!(history(&api), [], "back as it was");
    eventually("the gap is one that has ended", || {
        let mut gaps = api.history("/coverage");
        gaps.retain(|g| g["kind"] == "root_gone");
        let one = gaps.len() == 1 && gaps[0]["to"].is_string();
        if one { Ok(()) } else { Err(format!("{gaps:?}")) }
    });
    assert!(open_gaps(&api).is_empty());
    assert_eq!(up.stop(), 0);
}

/// Returns the kinds of the open gaps.
fn open_gaps(api: &Api) -> Vec<String> {
    let gaps = api.history("/coverage?open=true");
    gaps.iter().map(|gap| gap["kind"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn backup_under_load_restores_to_a_working_server() {
    let place = Folders::new("up-backup");
    let up = place.up();
    up.line("synchronised: ");
    let api = place.api();
    let stop = Arc::new(AtomicBool::new(false));
    let (tree, flag) = (place.tree.clone(), stop.clone());
    let writing = std::thread::spawn(move || {
        let mut n = 0;
        while !flag.load(Ordering::Relaxed) {
            fs::write(tree.join(format!("w{}", n % 50)), format!("{n}")).unwrap();
            n += 1;
        }
    });
    for _ in 0..3 {
        api.rescan("001");
    }
    let to = place.data.with_extension("backup");
    let (code, out, error) =
        run(&["backup", "--data", place.data.to_str().unwrap(), "--to", to.to_str().unwrap()]);
    assert_eq!(code, 0, "{out}{error}");
    let mode = fs::metadata(&to).unwrap().permissions().mode();
    assert_eq!(mode & 0o077, 0, "a backup is for its owner alone: {mode:o}");
    api.rescan("001");
    stop.store(true, Ordering::Relaxed);
    writing.join().unwrap();
    assert_eq!(up.stop(), 0);

    let restored = place.data.with_extension("restored");
    let (code, out, error) =
        run(&["restore", "--from", to.to_str().unwrap(), "--data", restored.to_str().unwrap()]);
    assert_eq!(code, 0, "{out}{error}");
    let up = place.up_on(&restored);
    up.line("log in: user admin, with the password set at first start");
    up.line("synchronised: ");
    let api = Api::of(&restored);
    api.rescan("001");
    eventually("the restored server equals the disk", || {
        differences(&disk(&place.tree), &stored(&api, "001"))
    });
    assert_eq!(up.stop(), 0);

    let (code, _, error) =
        run(&["restore", "--from", place.tree.to_str().unwrap(), "--data", "/nonexistent/x"]);
    assert_eq!(code, 2);
    assert!(error.contains("not a complete backup"), "{error}");
}

#[test]
fn password_can_be_reset_on_the_host() {
    let place = Folders::new("up-password");
    let up = place.up();
    let url = up.line("ready: ");
    assert_eq!(login(&url, "admin", "wrong"), 401);
    assert_eq!(up.stop(), 0);
    let data = place.data.to_str().unwrap();
    let (code, out, error) = run_with(
        &["users", "password", "admin", "--data", data],
        &[("HOLDFAST_NEW_PASSWORD", "Fresh-start-77")],
    );
    assert_eq!(code, 0, "{out}{error}");
    let up = place.up();
    let url = up.line("ready: ");
    assert_eq!(login(&url, "admin", "Fresh-start-77"), 200);
    assert_eq!(up.stop(), 0);
}

#[test]
fn damaged_queue_is_moved_aside_and_the_server_repaired() {
    let place = Folders::new("up-corrupt");
    let up = place.up();
    up.line("synchronised: ");
    assert_eq!(up.stop(), 0);
    let db = place.data.join("agent/agent.db");
    fs::write(&db, vec![0x5a; fs::metadata(&db).unwrap().len() as usize]).unwrap();
    fs::remove_file(place.tree.join("a")).unwrap();

    let up = place.up();
    up.line("agent.db was damaged");
    up.line("synchronised: ");
    let api = place.api();
    eventually("the server equals the disk, the vanished file gone", || {
        differences(&disk(&place.tree), &stored(&api, "001"))
    });
    let gaps = api.history("/coverage");
    assert!(gaps.iter().any(|g| g["kind"] == "database_rebuilt"), "{gaps:?}");
    assert_eq!(up.stop(), 0);
}

#[test]
fn damaged_journal_is_refused_and_repair_keeps_the_history() {
    journal_loses(&Folders::new("up-journal"), 0, |segment| {
        // This byte is in the first session, after the segment's header.
        segment[4096 + 300] ^= 1;
    });
}

#[test]
fn trimmed_journal_without_its_end_is_repaired() {
    journal_loses(&Folders::new("up-trimmed"), 3, |segment| {
        // Damage the last block with data: the journal alone cannot tell it from a torn tail.
        let end = segment.iter().rposition(|byte| *byte != 0).unwrap();
        segment[end - 8] ^= 1;
    });
}

/// Stops the server cleanly `stops` times, which trims the journal; makes three changes and waits
/// until they are applied; kills the server and damages the last segment. Asserts that the start
/// fails and that after a repair the history and the documents are complete.
fn journal_loses(place: &Folders, stops: u32, damage: impl Fn(&mut [u8])) {
    for _ in 0..stops {
        let up = place.up();
        up.line("synchronised: ");
        assert_eq!(up.stop(), 0);
    }
    let up = place.up();
    up.line("synchronised: ");
    let api = place.api();
    for content in ["1", "2", "3"] {
        fs::write(place.tree.join("a"), content).unwrap();
        api.rescan("001");
    }
    eventually("three changes", || match history(&api).len() {
        3 => Ok(()),
        n => Err(format!("{n}")),
    });
    up.kill();
    let journal = place.data.join("journal");
    let shown = journal.to_str().unwrap();
    let segment = fs::read_dir(&journal)
        .unwrap()
        .map(|e| e.unwrap().path())
        .filter(|p| p.file_name().unwrap().to_string_lossy().starts_with("segment"))
        .max()
        .unwrap();
    let mut bytes = fs::read(&segment).unwrap();
    damage(&mut bytes);
    fs::write(&segment, bytes).unwrap();

    let (code, out, _) = run(&["journal", "verify", shown, "--json"]);
    assert_eq!(code, 1, "{out}");
    if stops > 0 {
        let alone = place.data.with_file_name("alone");
        fs::create_dir(&alone).unwrap();
        for file in fs::read_dir(&journal).unwrap().map(|e| e.unwrap().path()) {
            fs::copy(&file, alone.join(file.file_name().unwrap())).unwrap();
        }
        let (code, out, _) = run(&["journal", "verify", alone.to_str().unwrap()]);
        let cut = out.lines().find_map(|line| line.strip_prefix("torn tail: file segment-"));
        assert!(code == 0 && cut.is_some_and(|cut| cut.contains(", offset ")), "{out}");
    }
    let data = place.data.to_str().unwrap();
    let (code, _, error) = run(&["up", "--data", data, "--api", "127.0.0.1:0"]);
    assert_eq!(code, 2);
    assert!(error.contains("journal repair"), "{error}");
    let (code, out, error) = run(&["journal", "repair", shown, "--json"]);
    assert_eq!(code, 1, "{out}{error}");
    let report: serde_json::Value = serde_json::from_str(&out).unwrap();
    // Records follow the damaged first session: they stay, and the state had applied it.
    let inside = stops == 0;
    let lost = report["lost"].as_array().unwrap().len();
    assert_eq!((report["cut"] == false, lost == 1), (inside, inside), "{out}");
    assert_eq!(report["agents_compared"], !inside, "{out}");
    let (code, out, error) = run(&["journal", "repair", shown]);
    assert_eq!(code, 0, "nothing is left to repair: {out}{error}");

    let up = place.up();
    up.line("synchronised: ");
    assert_eq!(history(&place.api()).len(), 3, "the state kept what it had applied");
    eventually("the server equals the disk", || {
        differences(&disk(&place.tree), &stored(&place.api(), "001"))
    });
    assert_eq!(up.stop(), 0);
    let (code, out, _) = run(&["journal", "verify", shown]);
    assert_eq!(code, 0, "{out}");
}

#[test]
fn lost_queue_is_reported_as_a_gap() {
    let place = Folders::new("up-memory");
    let up = place.up();
    up.line("synchronised: ");
    assert_eq!(up.stop(), 0);
    for file in ["agent.db", "agent.db-wal", "agent.db-shm"] {
        let _ = fs::remove_file(place.data.join("agent").join(file));
    }
    fs::write(place.tree.join("a"), b"behind its back").unwrap();
    let up = place.up();
    up.line("ready: ");
    let api = place.api();
    eventually("the lost memory is a gap", || {
        let gaps = api.history("/coverage");
        let named = gaps.iter().any(|g| g["kind"] == "database_rebuilt");
        if named { Ok(()) } else { Err(format!("{gaps:?}")) }
    });
    eventually("the server equals the disk", || {
        differences(&disk(&place.tree), &stored(&api, "001"))
    });
    assert_eq!(up.stop(), 0);
}
