//! Ways past the watcher that were tried, with `holdfast up` and no scan after the first: each change is
//! reported, and no process is named that did not make it. Needs root, for fanotify.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::process::Command;

use crate::common::deployment::Deployment;
use crate::common::place::{Place, coverage, expect, sh, told};
use crate::common::{Api, Running, differences, disk, eventually, stored};
use serde_json::Value;

/// Waits until the server has what is on the disk.
fn expect_equal(place: &Place, api: &Api) {
    eventually("the server has the tree", || differences(&disk(&place.tree), &stored(api, "001")));
}

#[test]
fn name_that_becomes_a_directory_is_reported() {
    let Some(place) = Place::new("realtime-to-directory") else { return };
    // Other tests on the same file system may take a number between the two calls.
    let rounds = 20;
    for n in 0..rounds {
        fs::write(place.at(&format!("file{n}")), "x").unwrap();
        fs::create_dir(place.at(&format!("empty{n}"))).unwrap();
        std::os::unix::fs::symlink("target", place.at(&format!("link{n}"))).unwrap();
    }
    let (running, api) = place.up();
    let inode = |name: &str| fs::symlink_metadata(place.at(name)).unwrap().ino();
    let mut expected = Vec::new();
    let mut used_again = false;
    for n in 0..rounds {
        for (kind, remove) in [("file", "rm"), ("empty", "rmdir"), ("link", "rm")] {
            let name = format!("{kind}{n}");
            let before = inode(&name);
            sh(&place, &format!("{remove} {name} && mkdir -m 777 {name} && echo x > {name}/below"));
            used_again |= inode(&name) == before;
            expected.push(("modified", place.at(&name)));
            expected.push(("created", place.at(&format!("{name}/below"))));
            expect(&api, &expected);
        }
        if used_again {
            break;
        }
    }
    expect_equal(&place, &api);
    if !used_again {
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
            assert_eq!(change["seen"]["renamed"], true, "{change:#}");
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
    expect_equal(&place, &api);
    assert_eq!(running.stop(), 0);
}

#[test]
fn optional_path_is_watched_from_the_moment_it_appears() {
    if !needs::root("for fanotify") {
        return;
    }
    let deployment = Deployment::new("realtime-optional");
    let home = deployment.base.join("home");
    fs::create_dir(&home).unwrap();
    let keys = home.join(".ssh");
    let config = deployment.base.join("agent.toml");
    let section = format!("[[watch]]\npath = {keys:?}\noptional = true\n");
    fs::write(&config, fs::read_to_string(&config).unwrap() + &section).unwrap();
    let (server, api) = deployment.server();
    assert_eq!(deployment.enroll("one").0, 0);
    let agent = deployment.agent();
    agent.line("synchronised: ");
    let path = |name: &str| home.join(name).to_str().unwrap().to_owned();
    let open = api.get("/coverage?open=true");
    assert_eq!(open["data"]["total_affected_items"], 0, "{open:#}");
    eventually("the absent path is shown as watched", || {
        let roots = coverage(&api);
        let shown = roots.iter().find(|root| root["root"] == path(".ssh"));
        let shown = shown.ok_or("not listed")?;
        let good = shown["reason"] == "not there; watched from the moment it appears"
            && shown["state"] == "realtime";
        if good { Ok(()) } else { Err(shown.to_string()) }
    });
    let mut shell = Command::new("sh")
        .args(["-c", "mkdir .ssh && echo key > .ssh/authorized_keys; read line"])
        .current_dir(&home)
        .stdin(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let file = || path(".ssh/authorized_keys");
    let mut expected = vec![("created", path(".ssh")), ("created", file())];
    expect(&api, &expected);
    let created = api.history("/changes?kind=created");
    let own = created.iter().find(|change| change["path"] == path(".ssh")).unwrap();
    // mkdir is a program of its own.
    let parent = &own["seen"]["actors"][0]["ancestors"][0]["pid"];
    let parent = if parent.is_null() { &own["process"]["parent"]["pid"] } else { parent };
    assert_eq!(parent, shell.id(), "{own:#}");
    drop(shell.stdin.take());
    shell.wait().unwrap();
    fs::remove_dir_all(&keys).unwrap();
    expected.extend([("deleted", file()), ("deleted", path(".ssh"))]);
    expect(&api, &expected);
    let open = api.get("/coverage?open=true");
    assert_eq!(open["data"]["total_affected_items"], 0, "{open:#}");
    assert_eq!((agent.stop(), server.stop()), (0, 0));
}

#[test]
fn write_through_a_new_hard_link_is_reported_with_its_writer() {
    let Some(place) = Place::new("realtime-new-link") else { return };
    // A file that is linked already when the agent starts again.
    fs::write(place.at("linked"), "x").unwrap();
    fs::hard_link(place.at("linked"), place.tree.parent().unwrap().join("former")).unwrap();
    let (running, _) = place.up();
    assert_eq!(running.stop(), 0);
    let (running, api) = place.up();
    for (name, script) in [
        ("file", "ln file ../new && echo evil >> ../new && rm ../new; read line"),
        ("sub/other", "ln sub/other ../new && echo evil >> ../new; read line"),
        ("linked", "echo evil >> ../former; read line"),
    ] {
        let mut shell = Command::new("sh")
            .args(["-c", script])
            .current_dir(&place.tree)
            .stdin(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let evil = || {
            let changes = api.history("/changes?kind=modified");
            let hash = |c: &Value| c["changed_fields"].to_string().contains("hash");
            changes.into_iter().find(|c| c["path"] == place.at(name) && hash(c))
        };
        eventually("the write is reported", || evil().map(drop).ok_or_else(|| name.to_owned()));
        let pids = evil().unwrap();
        let pids = [&pids["process"], &pids["seen"]["actors"]].map(Value::to_string).concat();
        assert!(pids.contains(&format!("\"pid\":{}", shell.id())), "{name}: {pids}");
        drop(shell.stdin.take());
        shell.wait().unwrap();
    }
    expect_equal(&place, &api);
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
