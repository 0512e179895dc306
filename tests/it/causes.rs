//! Causes of changes with the real dpkg, in a system of its own: packages are installed, upgraded
//! and purged while other processes plant files. Needs root, for fanotify, and dpkg.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use crate::common::mounted::folder_to_watch;
use crate::common::{Api, Running, eventually, folder};
use serde_json::Value;

/// A system with a dpkg database of its own.
struct System {
    base: PathBuf,
    root: PathBuf,
}

/// Commands of hooks, and programs that pretend to be dpkg. `$ROOT` is the system's root.
const IMPOSTORS: &[(&str, &str)] = &[
    (
        "hooked-by-dpkg",
        "dpkg --root=$ROOT --log=$ROOT/var/log/dpkg.log --pre-invoke='echo x > $ROOT/usr/bin/$NAME' --purge none",
    ),
    (
        "hooked-by-apt",
        "mkdir -p $ROOT/lists/partial; apt-get -qq -o Dir::State::Lists=$ROOT/lists \\
         -o Dir::Etc::SourceList=/dev/null -o Dir::Etc::SourceParts=/dev/null \\
         -o APT::Update::Pre-Invoke::='echo x > $ROOT/usr/bin/$NAME' update",
    ),
    (
        "other-mount-namespace",
        "cp /bin/bash $ROOT/copy; unshare -m sh -ec 'mount --bind $ROOT/copy /usr/bin/dpkg; \\
         exec /usr/bin/dpkg -c \"echo x > $ROOT/usr/bin/$NAME\"'",
    ),
    (
        "below-another-mount-namespace",
        "cp /bin/bash $ROOT/copy; unshare -m sh -ec 'mount --bind $ROOT/copy /usr/bin/dpkg; \\
         exec /usr/bin/dpkg -c \"touch $ROOT/usr/bin/$NAME; true\"'",
    ),
    (
        "program-given-to-a-shell",
        "echo 'echo x > $ROOT/usr/bin/$NAME; exit' > $ROOT/env; \\
         BASH_ENV=$ROOT/env bash /usr/bin/dpkg -i none.deb",
    ),
    (
        "shell-elsewhere-with-a-script-of-a-package",
        "cp /bin/bash $ROOT/bash; echo 'echo x > $ROOT/usr/bin/$NAME; exit' > $ROOT/env; \\
         dpkg --root=$ROOT --log=$ROOT/var/log/dpkg.log --pre-invoke='BASH_ENV=$ROOT/env \\
         exec $ROOT/bash $ROOT/var/lib/dpkg/info/none.postinst' --purge none",
    ),
    (
        "other-database",
        "cd $ROOT; mkdir -p other/tree/usr/bin other/tree/DEBIAN other/info other/updates other/triggers; \\
         : > other/status; echo x > other/tree/usr/bin/$NAME; \\
         printf 'Package: none\nVersion: 1\nArchitecture: all\nMaintainer: a\nDescription: a\n' \\
         > other/tree/DEBIAN/control; dpkg-deb -b other/tree other/none.deb; \\
         dpkg --admindir=$ROOT/other --instdir=$ROOT --log=$ROOT/var/log/dpkg.log -i other/none.deb",
    ),
    ("copy-of-the-shell", "cp /bin/bash $ROOT/dpkg; $ROOT/dpkg -c 'echo x > $ROOT/usr/bin/$NAME'"),
    (
        "script-elsewhere",
        "mkdir -p $ROOT/x/var/lib/dpkg/info; f=$ROOT/x/var/lib/dpkg/info/a.postinst; \\
         echo 'echo x > $ROOT/usr/bin/$NAME' > $f; \\
         dpkg --root=$ROOT --log=$ROOT/var/log/dpkg.log --pre-invoke=\"sh $f\" --purge none",
    ),
];

/// A change as the server has it.
#[derive(Debug, PartialEq)]
struct Told {
    kind: String,
    /// Path below the system's root.
    path: String,
    cause: String,
    detail: String,
}

impl System {
    /// Returns a system without packages, or `None` where the test cannot run.
    fn new(name: &str) -> Option<Self> {
        if !rustix::process::geteuid().is_root() || !Path::new("/usr/bin/dpkg").exists() {
            needs::skip("needs root, for fanotify, and dpkg");
            return None;
        }
        let base = folder(name);
        let root = folder_to_watch(base.join("system"));
        for folder in ["info", "updates", "triggers"] {
            fs::create_dir_all(root.join("var/lib/dpkg").join(folder)).unwrap();
        }
        for folder in ["var/log", "usr/bin", "etc"] {
            fs::create_dir_all(root.join(folder)).unwrap();
        }
        fs::write(root.join("var/lib/dpkg/status"), "").unwrap();
        // dpkg removes folders that become empty.
        fs::write(root.join("usr/bin/kept"), "").unwrap();
        fs::write(root.join("etc/kept"), "").unwrap();
        Some(Self { base, root })
    }

    fn at(&self, path: &str) -> PathBuf {
        self.root.join(path)
    }

    /// Builds a package with files below `usr`, a configuration file and a script that writes a
    /// file, after it has waited for the pipe `wait` if there is one.
    fn build(&self, version: &str, files: &[&str]) -> PathBuf {
        let tree = self.base.join(format!("package-{version}"));
        let write = |path: &str, text: &str| {
            let path = tree.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        for file in files {
            write(file, &format!("{file} {version}\n"));
        }
        std::os::unix::fs::symlink(files[0].rsplit('/').next().unwrap(), tree.join("usr/bin/link"))
            .unwrap();
        write("etc/tool.conf", &format!("configuration {version}\n"));
        write("DEBIAN/conffiles", "/etc/tool.conf\n");
        let control = format!(
            "Package: tool\nVersion: {version}\nArchitecture: all\n\
             Maintainer: a <a@example.org>\nDescription: for a test\n"
        );
        write("DEBIAN/control", &control);
        let root = self.root.display();
        let script = format!(
            "#!/bin/sh\nif [ -p {root}/wait ]; then read line < {root}/wait; fi\n\
             echo {version} > {root}/etc/generated\n\
             if [ -f {root}/extra ]; then sh -e {root}/extra; fi\n"
        );
        write("DEBIAN/postinst", &script);
        let script = "chmod 755 DEBIAN/postinst && md5sum $(find usr -type f) > DEBIAN/md5sums";
        sh(&tree, script);
        let package = self.base.join(format!("{version}.deb"));
        let made = Command::new("dpkg-deb").arg("--build").args([&tree, &package]).output();
        assert!(made.unwrap().status.success());
        package
    }

    fn dpkg(&self, words: &[&str]) -> Child {
        self.run(Command::new("dpkg"), words)
    }

    fn run(&self, mut command: Command, words: &[&str]) -> Child {
        command.arg(format!("--root={}", self.root.display()));
        command.arg(format!("--log={}", self.at("var/log/dpkg.log").display()));
        command.args(["--force-not-root", "--force-script-chrootless"]).args(words);
        // Test runners set it, and it would let dpkg load code.
        command.env_remove("LD_LIBRARY_PATH");
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        command.spawn().unwrap()
    }

    fn run_dpkg(&self, words: &[&str]) {
        assert!(self.dpkg(words).wait().unwrap().success(), "{words:?}");
    }

    /// Starts server and agent, and waits until the first scan is on the server.
    fn up(&self) -> (Running, Api) {
        self.up_with(&["usr", "etc"])
    }

    /// The same for these folders.
    fn up_with(&self, watched: &[&str]) -> (Running, Api) {
        let data = self.base.join("data").to_str().unwrap().to_owned();
        let watched: Vec<PathBuf> = watched.iter().map(|folder| self.at(folder)).collect();
        let mut words = vec!["up", "--data", &data];
        words.extend(watched.iter().flat_map(|folder| ["--watch", folder.to_str().unwrap()]));
        let system = self.root.to_str().unwrap();
        let more = ["--system", system, "--api", "127.0.0.1:0", "--scan-interval", "1h"];
        let words = [&words[..], &more, &["--plain-http"]].concat();
        let running = Running::start(&words, &self.base.join("log"));
        running.line("synchronised: ");
        (running, Api::of(&self.base.join("data")))
    }

    /// Returns the changes of files, the oldest first.
    fn told(&self, api: &Api) -> Vec<Told> {
        let mut items = api.history("/changes");
        items.reverse();
        let text = |v: &Value| v.as_str().unwrap_or_default().to_owned();
        let root = format!("{}/", self.root.display());
        let told = items.iter().filter_map(|item| {
            Some(Told {
                kind: text(&item["kind"]),
                path: item["path"].as_str()?.strip_prefix(&root)?.to_owned(),
                cause: text(&item["cause"]["kind"]),
                detail: text(&item["cause"]["detail"]),
            })
        });
        told.collect()
    }

    /// Waits until exactly these changes follow the first `known` ones, in any order. Each is
    /// `KIND PATH CAUSE DETAIL`; a star at the end of the detail stands for any text. Returns the
    /// number of changes.
    fn expect(&self, api: &Api, known: usize, expected: &[&str]) -> usize {
        let matches = |told: &Told, expected: &str| {
            let Told { kind, path, cause, detail } = told;
            let told = format!("{kind} {path} {cause} {detail}");
            expected
                .strip_suffix('*')
                .map_or(told.trim_end() == expected, |start| told.starts_with(start))
        };
        eventually("the changes are on the server", || {
            let told = self.told(api);
            assert!(told.iter().all(|told| !told.path.contains(".dpkg-")), "{told:#?}");
            let new = &told[known.min(told.len())..];
            let all = expected.iter().all(|line| new.iter().any(|told| matches(told, line)));
            if all && new.len() == expected.len() {
                Ok(())
            } else {
                Err(format!("{new:#?}\nnot {expected:#?}"))
            }
        });
        known + expected.len()
    }
}

fn sh(folder: &Path, script: &str) {
    let status = Command::new("sh").args(["-ec", script]).current_dir(folder).status();
    assert!(status.unwrap().success(), "{script}");
}

#[test]
fn changes_by_dpkg_are_explained_from_install_to_purge() {
    let Some(system) = System::new("causes-dpkg") else { return };
    let first = system.build("1.0", &["usr/bin/tool", "usr/share/tool/data", "usr/share/tool/old"]);
    let second = system.build("2.0", &["usr/bin/tool", "usr/share/tool/data"]);
    let (running, api) = system.up();
    system.run_dpkg(&["-i", first.to_str().unwrap()]);
    let known = system.expect(
        &api,
        0,
        &[
            "created usr/bin/tool package dpkg: tool 1.0",
            "created usr/bin/link package dpkg: tool 1.0",
            "created usr/share package dpkg: tool 1.0",
            "created usr/share/tool package dpkg: tool 1.0",
            "created usr/share/tool/data package dpkg: tool 1.0",
            "created usr/share/tool/old package dpkg: tool 1.0",
            "created etc/tool.conf package dpkg: tool 1.0",
            "created etc/generated deployment dpkg: *",
        ],
    );
    system.run_dpkg(&["-i", second.to_str().unwrap()]);
    let known = system.expect(
        &api,
        known,
        &[
            "modified usr/bin/tool package dpkg: tool 1.0 to 2.0",
            "modified usr/bin/link package dpkg: tool 1.0 to 2.0",
            "modified usr/share/tool/data package dpkg: tool 1.0 to 2.0",
            "deleted usr/share/tool/old package dpkg: tool 1.0 to 2.0",
            "modified etc/tool.conf package dpkg: tool 1.0 to 2.0",
            "modified etc/generated deployment dpkg: *",
        ],
    );
    system.run_dpkg(&["-P", "tool"]);
    system.expect(
        &api,
        known,
        &[
            "deleted usr/bin/tool package dpkg: tool 2.0 removed",
            "deleted usr/bin/link package dpkg: tool 2.0 removed",
            "deleted usr/share package dpkg: tool 2.0 removed",
            "deleted usr/share/tool package dpkg: tool 2.0 removed",
            "deleted usr/share/tool/data package dpkg: tool 2.0 removed",
            "deleted etc/tool.conf package dpkg: tool 2.0 removed",
        ],
    );
    assert_eq!(running.stop(), 0);
}

#[test]
fn files_planted_during_a_transaction_are_unexplained() {
    let Some(system) = System::new("causes-planted") else { return };
    let package = system.build("1.0", &["usr/bin/tool", "usr/bin/other"]);
    sh(&system.root, "mkfifo wait");
    let (running, api) = system.up();
    let mut dpkg = system.dpkg(&["-i", package.to_str().unwrap()]);
    // Opening the pipe waits for the script: everything is unpacked then.
    let mut wait = fs::OpenOptions::new().write(true).open(system.at("wait")).unwrap();
    let root = &system.root;
    sh(root, "echo planted > usr/bin/planted");
    sh(root, "cp usr/bin/tool copy && cp copy usr/bin/tool");
    let at_once = [
        "created usr/bin/planted unexplained",
        "created usr/bin/tool unexplained content of tool, writer is not dpkg",
    ];
    system.expect(&api, 0, &at_once);
    std::io::Write::write_all(&mut wait, b"\n").unwrap();
    assert!(dpkg.wait().unwrap().success());
    // The changes that waited have the time of their first notification.
    let later = [
        "created usr/bin/other package dpkg: tool 1.0",
        "created usr/bin/link package dpkg: tool 1.0",
        "created etc/tool.conf package dpkg: tool 1.0",
        "created etc/generated deployment dpkg: *",
    ];
    system.expect(&api, 0, &[&at_once[..], &later].concat());
    assert_eq!(running.stop(), 0);
}

#[test]
fn upgrade_while_the_agent_was_down_is_explained_by_the_log() {
    let Some(system) = System::new("causes-down") else { return };
    let first = system.build("1.0", &["usr/bin/tool"]);
    let second = system.build("2.0", &["usr/bin/tool"]);
    system.run_dpkg(&["-i", first.to_str().unwrap()]);
    let (running, _) = system.up();
    assert_eq!(running.stop(), 0);
    system.run_dpkg(&["-i", second.to_str().unwrap()]);
    sh(&system.root, "echo planted > usr/bin/planted");
    let (running, api) = system.up();
    system.expect(
        &api,
        0,
        &[
            "modified usr/bin/tool package dpkg: tool 1.0 to 2.0",
            "modified usr/bin/link package dpkg: tool 1.0 to 2.0",
            "modified etc/tool.conf package dpkg: tool 1.0 to 2.0",
            "modified etc/generated unexplained",
            "created usr/bin/planted unexplained",
        ],
    );
    assert_eq!(running.stop(), 0);
}

#[test]
fn hooks_and_impostors_explain_nothing() {
    let Some(system) = System::new("causes-impostors") else { return };
    let (running, api) = system.up();
    let mut expected = Vec::new();
    for (name, script) in IMPOSTORS {
        let script = script.replace("$ROOT", system.root.to_str().unwrap()).replace("$NAME", name);
        let words = ["-c", &script];
        // dpkg does not know the package, which is no reason to leave its hooks out.
        let mut sh = Command::new("sh");
        sh.env_remove("LD_LIBRARY_PATH").args(words).stderr(Stdio::null());
        sh.status().unwrap();
        expected.push(format!("created usr/bin/{name} unexplained*"));
    }
    let expected: Vec<&str> = expected.iter().map(String::as_str).collect();
    system.expect(&api, 0, &expected);
    let foreign = |change: &Value| {
        let process = &change["process"];
        [process, &process["parent"]].iter().any(|process| process["foreign"] == true)
    };
    for change in api.history("/changes") {
        let path = change["path"].as_str().unwrap();
        assert_eq!(foreign(&change), path.contains("mount-namespace"), "{change:#}");
    }
    assert_eq!(running.stop(), 0);
}

#[test]
fn scripts_of_packages_are_written_by_the_dpkg_of_the_system() {
    let Some(system) = System::new("causes-info") else { return };
    let package = system.build("1.0", &["usr/bin/tool"]);
    let (running, api) = system.up_with(&["var/lib/dpkg/info"]);
    system.run_dpkg(&["-i", package.to_str().unwrap()]);
    let written = ["conffiles", "list", "md5sums", "postinst"]
        .map(|end| format!("created var/lib/dpkg/info/tool.{end} deployment dpkg: *"));
    let written: Vec<&str> = written.iter().map(String::as_str).collect();
    // dpkg writes the file `format` into a new database.
    let format = "created var/lib/dpkg/info/format deployment dpkg: *";
    let known = system.expect(&api, 0, &[&written[..], &[format]].concat());
    let plant = "cd $ROOT; plant() { rm -rf other/tree; \
         mkdir -p other/tree/$1 other/tree/DEBIAN other/info other/updates other/triggers; \
         : > other/status; echo 'echo x' > other/tree/$1/$2.postinst; \
         printf 'Package: none\nVersion: 1\nArchitecture: all\nMaintainer: a\nDescription: a\n' \
         > other/tree/DEBIAN/control; dpkg-deb -b other/tree other/none.deb; shift 2; \
         dpkg --log=$ROOT/var/log/dpkg.log --force-not-root --force-script-chrootless \
         \"$@\" -i other/none.deb; }; \
         plant var/lib/dpkg/info database --instdir=$ROOT --admindir $ROOT/other; \
         plant var/lib/dpkg/info hidden --root=$ROOT $(yes -- --force-all | head -n 40) \
         --admindir=$ROOT/other; \
         plant dpkg/info folder --root=$ROOT --instdir=$ROOT/var/lib; \
         DPKG_ADMINDIR=$ROOT/other plant var/lib/dpkg/info variable --instdir=$ROOT";
    sh(&system.root, &plant.replace("$ROOT", system.root.to_str().unwrap()));
    let planted = ["database", "hidden", "folder", "variable"]
        .map(|name| format!("created var/lib/dpkg/info/{name}.postinst unexplained*"));
    let mut planted: Vec<&str> = planted.iter().map(String::as_str).collect();
    // The third package is in the system's own database.
    planted.extend([
        "created var/lib/dpkg/info/none.list unexplained*",
        "created var/lib/dpkg/info/none.md5sums unexplained*",
    ]);
    system.expect(&api, known, &planted);
    assert_eq!(running.stop(), 0);
}

#[test]
fn dpkg_whose_environment_loads_code_explains_nothing() {
    let Some(system) = System::new("causes-environment") else { return };
    let package = system.build("1.0", &["usr/bin/tool"]);
    let (running, api) = system.up();
    let mut dpkg = Command::new("dpkg");
    dpkg.env("BASH_ENV", "/dev/null");
    assert!(system.run(dpkg, &["-i", package.to_str().unwrap()]).wait().unwrap().success());
    system.expect(
        &api,
        0,
        &[
            "created usr/bin/tool unexplained content of tool, writer is not dpkg",
            "created usr/bin/link unexplained",
            "created etc/tool.conf unexplained content of tool, writer is not dpkg",
            "created etc/generated unexplained",
        ],
    );
    assert!(api.history("/changes").iter().all(|change| change["cause"]["writer_matches"] != true));
    assert_eq!(running.stop(), 0);
}

#[test]
fn doors_that_a_script_opens_are_listed_with_the_unexplained() {
    let Some(system) = System::new("causes-doors") else { return };
    fs::create_dir_all(system.at("etc/cron.d")).unwrap();
    fs::copy("/bin/true", system.at("usr/bin/kept")).unwrap();
    let package = system.build("1.0", &["usr/bin/tool", "usr/bin/own"]);
    let extra = "chmod 4755 ROOT/usr/bin/kept ROOT/usr/bin/own; echo x > ROOT/etc/cron.d/x";
    fs::write(system.at("extra"), extra.replace("ROOT", system.root.to_str().unwrap())).unwrap();
    let (running, api) = system.up();
    system.run_dpkg(&["-i", package.to_str().unwrap()]);
    system.expect(
        &api,
        0,
        &[
            "created usr/bin/tool package dpkg: tool 1.0",
            "created usr/bin/own package dpkg: tool 1.0",
            "created usr/bin/link package dpkg: tool 1.0",
            "created etc/tool.conf package dpkg: tool 1.0",
            "created etc/generated deployment dpkg: script tool.postinst",
            "modified usr/bin/kept unexplained adds setuid, although dpkg: script tool.postinst",
            "created etc/cron.d/x deployment dpkg: script tool.postinst",
        ],
    );
    let unexplained = api.history("/changes?cause=unexplained");
    let mut listed: Vec<_> = unexplained
        .iter()
        .map(|change| (change["path"].as_str().unwrap(), change["cause"]["attention"] == true))
        .collect();
    listed.sort_unstable();
    let [kept, job] = ["usr/bin/kept", "etc/cron.d/x"].map(|path| system.at(path));
    let expected = [(job.to_str().unwrap(), true), (kept.to_str().unwrap(), false)];
    assert_eq!(listed, expected);
    assert_eq!(running.stop(), 0);
}

#[test]
fn package_that_dpkg_left_half_configured_is_reported() {
    let Some(system) = System::new("causes-half") else { return };
    let [first, package] = ["1.0", "2.0"].map(|version| system.build(version, &["usr/bin/tool"]));
    system.run_dpkg(&["-i", first.to_str().unwrap()]);
    fs::write(system.at("extra"), "exit 1\n").unwrap();
    let (running, api) = system.up();
    running.line("synchronised packages: ");
    let expect = |fields: &str, state: Option<&str>| {
        eventually("the package's state is on the server", || {
            let changes = api.history("/changes?file=tool:all");
            let newest = changes.first().cloned().unwrap_or_default();
            let found = (newest["changed_fields"].to_string(), newest["after"]["state"].as_str());
            if found == (fields.to_owned(), state) { Ok(()) } else { Err(format!("{newest:#}")) }
        });
    };
    assert!(!system.dpkg(&["-i", package.to_str().unwrap()]).wait().unwrap().success());
    expect(r#"["version","installed","state"]"#, Some("half-configured"));
    fs::remove_file(system.at("extra")).unwrap();
    system.run_dpkg(&["--configure", "tool"]);
    expect(r#"["state"]"#, None);
    assert_eq!(running.stop(), 0);
}
