//! Realtime detection by `holdfast up`, without any scan after the first: editors and tools, moves,
//! the program's own data, and a kill in a storm. Needs root, for fanotify.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;

use crate::common::place::{Place, expect, sh, told};
use crate::common::{Api, Running, differences, disk, eventually, run, stored};
use serde_json::Value;

#[test]
fn saves_by_editors_are_one_modification_each() {
    let Some(place) = Place::new("realtime-editors") else { return };
    let (running, api) = place.up();
    sh(&place, "echo appended >> file");
    expect(&api, &[("modified", place.at("file"))]);
    sh(&place, "sed -i s/first/second/ file");
    let file = || ("modified", place.at("file"));
    expect(&api, &[file(), file()]);
    let newest = &api.history("/changes")[0];
    assert!(newest["before"]["hash"]["sha256"] != newest["after"]["hash"]["sha256"], "{newest}");
    let vim = "vim -u NONE -es -c ':%s/second/third/' -c ':wq' sub/other </dev/null || true";
    sh(&place, "echo second > sub/other");
    let other = || ("modified", place.at("sub/other"));
    expect(&api, &[file(), file(), other()]);
    sh(&place, vim);
    expect(&api, &[file(), file(), other(), other()]);
    assert_eq!(running.stop(), 0);
}

#[test]
fn tools_yield_the_expected_changes() {
    let Some(place) = Place::new("realtime-tools") else { return };
    let (running, api) = place.up();
    let mut expected = Vec::new();
    for (script, changes) in [
        (
            "mkdir -p new/deep && echo x > new/deep/file",
            &["created new", "created new/deep", "created new/deep/file"][..],
        ),
        ("mv file sub/moved", &["moved sub/moved"]),
        ("mv new renamed", &["moved renamed"]),
        ("chmod 600 sub/moved", &["modified sub/moved"]),
        ("ln -s other sub/link", &["created sub/link"]),
        ("rm sub/link", &["deleted sub/link"]),
        (
            "rm -r renamed",
            &["deleted renamed", "deleted renamed/deep", "deleted renamed/deep/file"],
        ),
        ("truncate -s 3 sub/other", &["modified sub/other"]),
    ] {
        sh(&place, script);
        for change in changes {
            let (kind, name) = change.split_once(' ').unwrap();
            expected.push((kind, place.at(name)));
        }
        expect(&api, &expected);
    }
    let moved = api.history("/changes?kind=moved").pop().unwrap();
    assert_eq!(moved["from"], place.at("file"), "{moved}");
    let stored = stored(&api, "001");
    differences(&disk(&place.tree), &stored).unwrap();
    assert_eq!(running.stop(), 0);
}

#[test]
fn own_data_inside_the_watched_folder_is_not_reported() {
    let Some(mut place) = Place::new("realtime-own") else { return };
    place.data = place.tree.join("data");
    let (running, api) = place.up();
    for n in 0..5 {
        fs::write(place.tree.join("file"), format!("{n}")).unwrap();
        let modified = |n: usize| vec![("modified", place.at("file")); n + 1];
        expect(&api, &modified(n));
    }
    assert_eq!(running.stop(), 0);
}

/// Returns the capabilities that the packaged unit leaves to the agent, as `setpriv` takes them.
fn capabilities_of_the_unit() -> String {
    let unit = concat!(env!("CARGO_MANIFEST_DIR"), "/packaging/holdfast-agent.service");
    let unit = fs::read_to_string(unit).unwrap();
    let line = unit.lines().find_map(|line| line.strip_prefix("CapabilityBoundingSet=")).unwrap();
    let named =
        line.split(' ').map(|name| format!(",+{}", name.to_lowercase().replace("cap_", "")));
    format!("-all{}", named.collect::<String>())
}

#[test]
fn rights_of_the_unit_detect_and_attribute_a_change() {
    let Some(place) = Place::new("realtime-unit") else { return };
    let rights = capabilities_of_the_unit();
    let through = ["setpriv", "--bounding-set", &rights, "--inh-caps", "-all", "--"];
    let running = Running::start_through(&through, &place.words(), &place.log);
    running.line("synchronised: ");
    let api = Api::of(&place.data);
    // The shell lives on after the change, so that nothing depends on the priority of the agent.
    let mut shell = Command::new("sh")
        .args(["-c", "echo x > new; read line"])
        .current_dir(&place.tree)
        .stdin(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    expect(&api, &[("created", place.at("new"))]);
    let change = &api.history("/changes")[0];
    assert_eq!(change["process"]["pid"], shell.id(), "{change:#}");
    assert_eq!(change["user"]["id"], "0", "{change:#}");
    drop(shell.stdin.take());
    shell.wait().unwrap();
    let words = ["queue", "status", "--json", "--data", place.data.to_str().unwrap()];
    eventually("the state is stored", || {
        let (_, status, error) = run(&words);
        let status: Value = serde_json::from_str(&status).unwrap_or_else(|_| panic!("{error}"));
        let realtime = &status["realtime"];
        let root = &realtime["roots"][0];
        let good = root["state"] == "realtime" && realtime["attribution"]["on"] == true;
        if good { Ok(()) } else { Err(realtime.to_string()) }
    });
    eventually("the server has the state", || {
        let state = api.get("/coverage/state?state=realtime");
        let item = &state["data"]["affected_items"][0];
        let root = &item["roots"][0];
        let good = root["root"] == place.tree.to_str().unwrap()
            && item["attribution"] == true
            && item["scan_interval_s"] == 3600;
        if good { Ok(()) } else { Err(state.to_string()) }
    });
    assert_eq!(running.stop(), 0);
}

#[test]
fn files_that_exist_for_a_moment_are_counted() {
    let Some(place) = Place::new("realtime-transient") else { return };
    let (running, api) = place.up();
    for n in 0..100 {
        fs::write(place.at(&format!("t{n}")), "x").unwrap();
        fs::remove_file(place.at(&format!("t{n}"))).unwrap();
    }
    // A file that gets another name is not counted.
    sh(&place, "echo y > kept.tmp; mv kept.tmp kept");
    let is_kept = |c: &Value| c["path"] == place.at("kept");
    eventually("the names before it were checked too", || {
        let changes = api.history("/changes?limit=1000");
        if changes.iter().any(is_kept) { Ok(()) } else { Err(format!("{changes:#?}")) }
    });
    // The end of the agent reports what it has counted.
    assert_eq!(running.stop(), 0);
    let (running, api) = place.up();
    eventually("every file is counted", || {
        let changes = api.history("/changes?limit=1000");
        let of = |kind: &str| changes.iter().filter(|c| c["kind"] == kind).collect::<Vec<_>>();
        let transient = of("transient");
        let counted = transient.iter().filter_map(|c| c["transient"]["count"].as_u64());
        // A slow machine may see some of them.
        let all = counted.sum::<u64>() + of("deleted").len() as u64;
        let places = transient.iter().all(|c| c["path"] == place.tree.to_str().unwrap());
        let good = all == 100 && places && !transient.is_empty();
        if good { Ok(()) } else { Err(format!("{changes:#?}")) }
    });
    assert_eq!(running.stop(), 0);
}

/// Changes every file of the tree again and again, in processes of their own, until stopped.
fn storm(tree: &Path, round: u32) {
    let script = format!(
        "for n in $(seq 40); do echo {round} > s$n; chmod 600 s$n; mv s$n t$n; rm -f t$((n-7)); \
         mkdir -p d$n/e; echo {round} > d$n/e/f; done"
    );
    let status = Command::new("sh").args(["-c", &script]).current_dir(tree).status();
    assert!(status.unwrap().success());
}

/// `HOLDFAST_SOAK` is the number of kills.
#[test]
fn kills_in_a_storm_lose_no_change_and_report_none_twice() {
    let Some(place) = Place::new("realtime-kill") else { return };
    let (running, _) = place.up();
    running.kill();
    let kills = std::env::var("HOLDFAST_SOAK").ok().and_then(|n| n.parse().ok()).unwrap_or(5);
    for round in 0..kills {
        let running = place.start();
        storm(&place.tree, round);
        running.kill();
    }
    let running = place.start();
    let api = Api::of(&place.data);
    storm(&place.tree, 99);
    eventually("server and disk are equal", || {
        differences(&disk(&place.tree), &stored(&api, "001"))
    });
    // Per path, each change begins where the one before ended.
    let mut states: BTreeMap<String, Value> = BTreeMap::new();
    let mut items = api.history("/changes");
    items.reverse();
    for item in &items {
        let path = item["path"].as_str().unwrap().to_owned();
        let from = item["from"].as_str().map_or_else(|| path.clone(), str::to_owned);
        let hash = |file: &Value| file["hash"]["sha256"].clone();
        if let Some(known) = states.remove(&from) {
            let before = if item["before"].is_null() { Value::Null } else { hash(&item["before"]) };
            assert_eq!(before, known, "{item:#}");
        }
        let after = if item["after"].is_null() { Value::Null } else { hash(&item["after"]) };
        states.insert(path, after);
    }
    assert_eq!(running.stop(), 0);
}

#[test]
fn scan_below_prints_what_differs_from_the_baseline() {
    let Some(place) = Place::new("scan-below") else { return };
    // Its own data is not watched, so it does not differ.
    let place = Place { data: place.tree.join("data"), ..place };
    let (running, _) = place.up();
    assert_eq!(running.stop(), 0);
    let compare = |names: &[&str]| {
        let paths: Vec<_> = names.iter().map(|name| place.at(name)).collect();
        let mut words = vec!["scan", "--below", "--json", "--data", place.data.to_str().unwrap()];
        words.extend(paths.iter().map(String::as_str));
        let (code, out, error) = run(&words);
        let lines = out.lines().map(|line| serde_json::from_str(line).unwrap());
        let mut found: Vec<_> = lines
            .filter(|line: &Value| !line["change"].is_null())
            .map(|line| {
                let text = |value: &Value| value.as_str().unwrap().to_owned();
                let change = &line["change"];
                (text(&change["event"]["action"]), text(&change["file"]["path"]))
            })
            .collect();
        found.sort();
        (code, found, error)
    };
    assert_eq!(compare(&["", "file"]), (0, vec![], String::new()));
    sh(&place, "echo more >> file; echo new > sub/new; mv sub/other sub/moved; mkdir -p sub/d");
    let change = |kind: &str, name: &str| (kind.to_owned(), place.at(name));
    let below_sub = vec![
        change("created", "sub/d"),
        change("created", "sub/new"),
        change("moved", "sub/moved"),
    ];
    // Nothing was stored, so each comparison finds the same.
    for _ in 0..2 {
        assert_eq!(compare(&["sub"]), (0, below_sub.clone(), String::new()));
    }
    assert_eq!(compare(&["file"]).1, [change("modified", "file")]);
    fs::remove_dir_all(place.at("sub")).unwrap();
    assert_eq!(compare(&["sub"]).1, [change("deleted", "sub"), change("deleted", "sub/other")]);
    let (code, _, error) = compare(&["../elsewhere"]);
    assert_eq!(code, 2);
    assert!(error.contains("elsewhere") && error.contains("does not watch it"), "{error}");
}

/// Large files are read one after the other. Other changes are reported between two of them.
#[test]
fn change_does_not_wait_for_the_large_files_of_another() {
    const LARGE_FILES: usize = 40;
    let Some(place) = Place::new("realtime-large-files") else { return };
    let (up, api) = place.up();
    sh(&place, &format!("for i in $(seq {LARGE_FILES}); do truncate -s 128M large$i; done"));
    let large = || told(&api).iter().filter(|(_, path)| path.contains("/large")).count();
    eventually("a large file is on the server", || {
        if large() > 0 { Ok(()) } else { Err("none".into()) }
    });
    sh(&place, "echo second > file");
    let modified = ("modified".to_owned(), place.at("file"));
    eventually("the change is on the server", || {
        let told = told(&api);
        if told.contains(&modified) { Ok(()) } else { Err(format!("{told:?}")) }
    });
    assert!(large() < LARGE_FILES, "the change waited for the large files");
    eventually("the large files are on the server", || {
        if large() == LARGE_FILES { Ok(()) } else { Err(format!("{}", large())) }
    });
    assert_eq!(up.stop(), 0);
}

/// Runs a script as another user than root.
fn as_nobody(place: &Place, script: &str) {
    let through = ["--reuid=65534", "--regid=65534", "--clear-groups", "--", "sh", "-ec", script];
    let status = Command::new("setpriv").args(through).current_dir(&place.tree).status();
    assert!(status.unwrap().success(), "{script}");
}

/// Lets another user make many changes, then changes a file, and waits until that is on the server.
/// Returns true if the last of the many changes is there as well.
fn is_last_of_a_flood_reported_first(name: &str, flood: &str, last: &str) -> Option<bool> {
    let place = Place::new(name)?;
    let everyone = || fs::Permissions::from_mode(0o777);
    for directory in ["theirs", "../outside"] {
        fs::create_dir(place.at(directory)).unwrap();
        fs::set_permissions(place.at(directory), everyone()).unwrap();
    }
    let fill = "cd ../outside && mkdir d && for i in $(seq 80); do mkdir d/s$i; \
                for k in $(seq 100); do echo $i $k > d/s$i/f$k; done; done";
    as_nobody(&place, fill);
    let (running, api) = place.up();
    as_nobody(&place, flood);
    sh(&place, "echo x >> sub/other");
    let changed =
        |path: &str| !api.history(&format!("/changes?file={}", place.at(path))).is_empty();
    eventually("the change is on the server", || {
        if changed("sub/other") { Ok(()) } else { Err("not yet".into()) }
    });
    let is_first = changed(last);
    let change = &api.history(&format!("/changes?file={}", place.at("sub/other")))[0];
    assert_eq!(change["user"]["id"], "0", "{change:#}");
    eventually("the flood is on the server", || {
        if changed(last) { Ok(()) } else { Err("not yet".into()) }
    });
    let open = api.get("/coverage?open=true");
    assert_eq!(open["data"]["total_affected_items"], 0, "{open:#}");
    assert_eq!(running.stop(), 0);
    Some(is_first)
}

#[test]
fn change_does_not_wait_for_the_many_names_of_another_user() {
    let flood = "cd theirs && for i in $(seq 8000); do echo x > f$i; done";
    let first = is_last_of_a_flood_reported_first("realtime-names", flood, "theirs/f8000");
    assert_ne!(first, Some(true));
}

#[test]
fn change_does_not_wait_for_the_tree_of_another_user() {
    let flood = "mv ../outside/d theirs/d";
    let first = is_last_of_a_flood_reported_first("realtime-tree", flood, "theirs/d/s9/f100");
    assert_ne!(first, Some(true));
}

#[test]
fn stop_does_not_wait_for_the_end_of_a_flood() {
    let Some(place) = Place::new("realtime-stop") else { return };
    let (running, api) = place.up();
    // While the large files are read, the names fill the queue of commands.
    let files = "for i in $(seq 200); do truncate -s 1023M large$i; done; \
                 i=0; while :; do i=$((i + 1)); echo x > f$i; sleep 0.01; done";
    let mut flood =
        Command::new("sh").args(["-c", files]).current_dir(&place.tree).spawn().unwrap();
    eventually("the flood has begun", || {
        let number = told(&api).len();
        if number > 100 { Ok(()) } else { Err(number.to_string()) }
    });
    let stopped = running.stop();
    flood.kill().unwrap();
    flood.wait().unwrap();
    assert_eq!(stopped, 0);
}
