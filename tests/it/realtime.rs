//! Realtime detection by `holdfast up`, without any scan after the first: editors and tools, moves,
//! the program's own data, and a kill in a storm. Needs root, for fanotify.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::common::{Api, Running, differences, disk, eventually, folder, run, stored};
use serde_json::Value;

struct Place {
    data: PathBuf,
    tree: PathBuf,
    log: PathBuf,
}

impl Place {
    /// Returns a place, or `None` where realtime detection is not available.
    fn new(name: &str) -> Option<Self> {
        if !needs::root("for fanotify") {
            return None;
        }
        let base = folder(name);
        let tree = base.join("tree");
        fs::create_dir_all(tree.join("sub")).unwrap();
        fs::write(tree.join("file"), "first\n").unwrap();
        fs::write(tree.join("sub/other"), "other\n").unwrap();
        Some(Self { data: base.join("data"), tree, log: base.join("log") })
    }

    fn words(&self) -> Vec<&str> {
        let (data, tree) = (self.data.to_str().unwrap(), self.tree.to_str().unwrap());
        let words = ["up", "--data", data, "--watch", tree, "--api", "127.0.0.1:0"];
        [&words[..], &["--scan-interval", "1h", "--plain-http"]].concat()
    }

    fn start(&self) -> Running {
        let running = Running::start(&self.words(), &self.log);
        running.line("ready: ");
        running
    }

    /// Starts, and waits until the first scan is on the server.
    fn up(&self) -> (Running, Api) {
        let running = self.start();
        running.line("synchronised: ");
        (running, Api::of(&self.data))
    }

    fn at(&self, name: &str) -> String {
        self.tree.join(name).to_str().unwrap().to_owned()
    }
}

/// Returns kind and path of each change, the oldest first.
fn told(api: &Api) -> Vec<(String, String)> {
    let mut items = api.history("/changes");
    items.reverse();
    let text = |v: &Value| v.as_str().unwrap().to_owned();
    items.iter().map(|i| (text(&i["kind"]), text(&i["path"]))).collect()
}

/// Waits until exactly these changes are on the server, in any order.
fn expect(api: &Api, expected: &[(&str, String)]) {
    let mut expected: Vec<_> =
        expected.iter().map(|(kind, path)| ((*kind).to_owned(), path.clone())).collect();
    expected.sort();
    eventually("the changes are on the server", || {
        let mut told = told(api);
        told.sort();
        if told == expected { Ok(()) } else { Err(format!("{told:#?}\nnot {expected:#?}")) }
    });
}

fn sh(place: &Place, script: &str) {
    let status = Command::new("sh").args(["-ec", script]).current_dir(&place.tree).status();
    assert!(status.unwrap().success(), "{script}");
}

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
fn name_that_becomes_a_directory_is_reported() {
    let Some(place) = Place::new("realtime-to-directory") else { return };
    fs::create_dir(place.at("empty")).unwrap();
    std::os::unix::fs::symlink("file", place.at("link")).unwrap();
    let (running, api) = place.up();
    let inode = |name: &str| fs::symlink_metadata(place.at(name)).unwrap().ino();
    let mut expected = Vec::new();
    let mut used_again = 0;
    for (name, remove) in [("file", "rm"), ("empty", "rmdir"), ("link", "rm")] {
        let before = inode(name);
        sh(&place, &format!("{remove} {name} && mkdir -m 777 {name} && echo x > {name}/below"));
        used_again += u32::from(inode(name) == before);
        expected.push(("modified", place.at(name)));
        expected.push(("created", place.at(&format!("{name}/below"))));
        expect(&api, &expected);
    }
    differences(&disk(&place.tree), &stored(&api, "001")).unwrap();
    if used_again == 0 {
        needs::skip("the file system of the test uses no inode number again");
    }
    assert_eq!(running.stop(), 0);
}

#[test]
fn contents_of_a_moved_directory_have_the_writer_of_the_move() {
    let Some(place) = Place::new("realtime-moved-along") else { return };
    let outside = place.tree.parent().unwrap().join("arrives");
    fs::create_dir_all(outside.join("deep")).unwrap();
    fs::write(outside.join("deep/file"), "x").unwrap();
    let (running, api) = place.up();
    let mut expected = Vec::new();
    for (script, kind, names) in [
        ("mv ../arrives .", "created", ["arrives", "arrives/deep", "arrives/deep/file"].as_slice()),
        ("mv sub ../left", "deleted", &["sub", "sub/other"]),
    ] {
        sh(&place, script);
        expected.extend(names.iter().map(|name| (kind, place.at(name))));
        expect(&api, &expected);
        let changes = api.history(&format!("/changes?kind={kind}"));
        let pid = |change: &Value| {
            let actor = &change["seen"]["actors"][0]["process"]["pid"];
            if actor.is_null() { change["process"]["pid"].clone() } else { actor.clone() }
        };
        let mover = pid(&changes[0]);
        assert!(mover.is_u64(), "{:#}", changes[0]);
        for change in &changes {
            assert_eq!(pid(change), mover, "{change:#}");
            assert_ne!(change["seen"]["attribution"], "uncertain", "{change:#}");
        }
    }
    sh(&place, "mkdir ../fresh && echo x > ../fresh/file && mv ../fresh .");
    expected.extend([("created", place.at("fresh")), ("created", place.at("fresh/file"))]);
    expect(&api, &expected);
    assert_eq!(running.stop(), 0);
}

#[test]
fn directory_that_moves_while_its_contents_change_is_one_move() {
    let Some(place) = Place::new("realtime-busy-move") else { return };
    let number = 12;
    for n in 0..number {
        fs::create_dir(place.at(&format!("d{n}"))).unwrap();
        fs::write(place.at(&format!("d{n}/old")), "x").unwrap();
    }
    let (running, api) = place.up();
    for n in 0..number {
        // The checks of both names are due 20 ms after the changes: before, between or after.
        sh(&place, &format!("echo x > d{n}/new; sleep 0.0{:02}; mv d{n} m{n}", n * 3));
    }
    eventually("every directory has moved", || {
        let told = told(&api);
        let of = |kind: &str| told.iter().filter(|(told, _)| told == kind).count();
        let counts = (of("moved"), of("created"), of("deleted"));
        if counts == (number, number, 0) { Ok(()) } else { Err(format!("{told:#?}")) }
    });
    differences(&disk(&place.tree), &stored(&api, "001")).unwrap();
    assert_eq!(running.stop(), 0);
}

/// Changes the file `file` through memory, passes its descriptor to `sh` and closes it first.
const PASS_ON: &str = r#"
import mmap, os, subprocess
fd = os.open("file", os.O_RDWR)
memory = mmap.mmap(fd, 0)
memory[0:5] = b"other"
memory.close()
last = subprocess.Popen(["sh", "-c", "read line"], stdin=subprocess.PIPE, pass_fds=[fd])
os.close(fd)
last.communicate(b"go\n")
"#;

#[test]
fn process_that_only_closed_a_file_is_no_certain_writer() {
    let Some(place) = Place::new("realtime-passed-on") else { return };
    let (running, api) = place.up();
    let status = Command::new("python3").args(["-c", PASS_ON]).current_dir(&place.tree).status();
    assert!(status.unwrap().success());
    expect(&api, &[("modified", place.at("file"))]);
    let change = api.history("/changes").pop().unwrap();
    assert_eq!(change["seen"]["attribution"], "uncertain", "{change}");
    let actor = &change["seen"]["actors"][0];
    assert_eq!(actor["reason"], "closed it; not seen writing");
    assert_eq!(change["process"], Value::Null, "no process is named as the writer");
    sh(&place, "echo x >> file");
    expect(&api, &[("modified", place.at("file")), ("modified", place.at("file"))]);
    assert_ne!(api.history("/changes")[0]["seen"]["attribution"], "uncertain");
    assert_eq!(running.stop(), 0);
}

/// Returns the states of the roots that the server has.
fn coverage(api: &Api) -> Vec<Value> {
    let state = api.get("/coverage/state");
    let agent = &state["data"]["affected_items"][0];
    agent["roots"].as_array().cloned().unwrap_or_default()
}

#[test]
fn root_of_another_kind_is_a_gap_until_the_former_is_back() {
    let Some(place) = Place::new("realtime-root-kind") else { return };
    let data = place.data.to_str().unwrap();
    let (file, sub) = (place.at("file"), place.at("sub"));
    let words = ["up", "--data", data, "--watch", &file, "--watch", &sub, "--api", "127.0.0.1:0"];
    let words = [&words[..], &["--scan-interval", "1h", "--plain-http"]].concat();
    let start = || {
        let running = Running::start(&words, &place.log);
        running.line("synchronised: ");
        (running, Api::of(&place.data))
    };
    let has_gaps = |api: &Api, expected: usize| {
        eventually("the open gaps are on the server", || {
            let open = api.get("/coverage?open=true");
            let items = open["data"]["affected_items"].as_array().unwrap().clone();
            let named = items.iter().all(|gap| gap.to_string().contains("accept_kind = true"));
            if items.len() == expected && named { Ok(()) } else { Err(open.to_string()) }
        });
        let roots = coverage(api);
        assert_eq!(roots.len(), 2, "{roots:#?}");
    };
    let (running, api) = start();
    sh(&place, "rm file && mkdir file && mv sub kept && echo x > sub");
    has_gaps(&api, 2);
    assert_eq!(running.stop(), 0);
    let (running, api) = start();
    has_gaps(&api, 2);
    sh(&place, "rmdir file && echo back > file && rm sub && mv kept sub");
    has_gaps(&api, 0);
    let mut expected = vec![("modified", file.clone())];
    expect(&api, &expected);
    sh(&place, "echo more >> file && echo more >> sub/other");
    expected.extend([("modified", file.clone()), ("modified", place.at("sub/other"))]);
    expect(&api, &expected);
    eventually("both roots are watched again", || {
        let roots = coverage(&api);
        let all = roots.len() == 2 && roots.iter().all(|root| root["state"] == "realtime");
        if all { Ok(()) } else { Err(format!("{roots:#?}")) }
    });
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
