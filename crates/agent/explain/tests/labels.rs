//! Labels of single changes, with a dpkg database made for the test.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::fs;
use std::os::unix::fs::{MetadataExt as _, symlink};
use std::path::Path;
use std::sync::Arc;

use env::clock::{Clock as _, SystemClock};
use explain::Explainer;
use md5::{Digest as _, Md5};
use model::notification::Detection;
use model::{
    Actor, Attribution, Cause, CauseKind, Change, ChangeKind, Executable, Fields, ItemKey, Kind,
    Observation, ProcessInfo,
};
use tempfile::TempDir;

/// A system with the package `tool`, version 2, upgraded from version 1.
struct System {
    folder: TempDir,
}

impl System {
    fn new() -> Self {
        let system = Self { folder: tempfile::tempdir().unwrap() };
        for folder in ["var/lib/dpkg/info", "var/log", "usr/bin", "etc"] {
            fs::create_dir_all(system.folder.path().join(folder)).unwrap();
        }
        symlink("usr/bin", system.folder.path().join("bin")).unwrap();
        let sum = |text: &str| format!("{:032x}", u128::from_be_bytes(Md5::digest(text).into()));
        let list = "/.\n/bin\n/bin/tool\n/bin/link\n/bin/diverted\n/etc\n/etc/tool.conf\n";
        system.write("var/lib/dpkg/info/tool.list", list);
        let sums = format!("{}  bin/tool\n{}  bin/diverted\n", sum("tool 2"), sum("diverted"));
        system.write("var/lib/dpkg/info/tool.md5sums", &sums);
        let status = format!(
            "Package: tool\nStatus: install ok installed\nVersion: 2\nArchitecture: all\n\
             Conffiles:\n /etc/tool.conf {}\n\n",
            sum("configuration 2")
        );
        system.write("var/lib/dpkg/status", &status);
        system.write("var/lib/dpkg/diversions", "/bin/diverted\n/bin/diverted.real\nother\n");
        system
    }

    fn write(&self, path: &str, text: &str) {
        fs::write(self.folder.path().join(path), text).unwrap();
    }

    /// Writes a log with lines of the present time.
    fn log(&self, lines: &[&str]) {
        let now = model::timestamp::micros(SystemClock::new().now_us());
        let time = now.get(..19).unwrap().replace('T', " ");
        let lines: Vec<_> = lines.iter().map(|line| format!("{time} {line}\n")).collect();
        self.write("var/log/dpkg.log", &lines.concat());
    }

    /// Returns the change that created an item as it is now.
    fn created(&self, path: &str, seen: Option<Detection>) -> Change {
        let path = self.folder.path().canonicalize().unwrap().join(path);
        let meta = fs::symlink_metadata(&path).unwrap();
        let kind = match (meta.is_dir(), meta.is_symlink()) {
            (true, _) => Kind::Directory,
            (_, true) => Kind::Symlink,
            _ => Kind::File,
        };
        let after = Observation {
            inode: meta.ino(),
            size: meta.size(),
            ctime_ns: meta.ctime() * 1_000_000_000 + meta.ctime_nsec(),
            ..Observation::empty(kind)
        };
        Change {
            key: ItemKey::of_path(path.as_os_str().as_encoded_bytes()),
            kind: ChangeKind::Created,
            before: None,
            after: Some(after),
            from: None,
            fields: Fields::default(),
            found_at_us: SystemClock::new().now_us(),
            seen: seen.map(Arc::new),
            cause: None,
        }
    }

    /// Returns the command line of a script of the package.
    fn script(&self, name: &str) -> String {
        let folder = self.folder.path().join("var/lib/dpkg/info");
        format!("/usr/bin/dash {}/tool.{name}", folder.display())
    }

    fn removed(&self, path: &str, seen: Detection) -> Change {
        let created = self.created(path, Some(seen));
        fs::remove_file(Path::new(&*String::from_utf8_lossy(&created.key.path()))).unwrap();
        Change { kind: ChangeKind::Deleted, before: created.after, after: None, ..created }
    }

    fn explain(&self, change: &Change) -> Cause {
        let clock = Arc::new(SystemClock::new());
        let mut explainer = Explainer::new(self.folder.path(), clock);
        explainer.begin();
        explainer.explain(change).unwrap_or_default()
    }
}

/// Returns a process, by its executable or by a command line.
fn process(line: &str) -> ProcessInfo {
    let arguments = line.split(' ').map(str::to_owned).collect();
    let path = line.split(' ').next().unwrap().to_owned();
    let executable = Some(Executable { path: path.clone(), ..Executable::default() });
    let (entity_id, command_line) = (format!("id of {path}"), path);
    ProcessInfo {
        pid: 1,
        entity_id,
        executable,
        command_line,
        arguments,
        is_root: true,
        ..ProcessInfo::default()
    }
}

/// Returns the notifications of a writer with these ancestors, the writer first.
fn seen(executables: &[&str]) -> Detection {
    let mut processes = executables.iter().map(|executable| process(executable));
    let process = processes.next();
    let attribution = Attribution::Exact;
    let actor = Actor { attribution, process, ancestors: processes.collect(), ..Actor::default() };
    Detection { notices: 1, actors: vec![actor], ..Detection::default() }
}

const PUPPET: &str = "/usr/bin/ruby /opt/none/bin/puppet";
const BY_DPKG: &[&str] = &["/usr/bin/dpkg", "/usr/bin/apt-get", "/usr/bin/bash"];

#[test]
fn content_and_writer_make_a_package() {
    let system = System::new();
    system.log(&["upgrade tool:all 1 2", "status installed tool:all 2"]);
    system.write("usr/bin/tool", "tool 2");
    let cause = system.explain(&system.created("usr/bin/tool", Some(seen(BY_DPKG))));
    assert_eq!(cause.kind, CauseKind::Package);
    assert_eq!((&*cause.tool, &*cause.id), ("apt-get", "id of /usr/bin/apt-get"));
    assert_eq!(cause.detail, "apt-get: tool 1 to 2");
    assert!(cause.content_matches && cause.writer_matches);
    let package = cause.package.unwrap();
    assert_eq!((&*package.version, &*package.previous_version), ("2", "1"));
}

#[test]
fn content_alone_is_unexplained_and_says_so() {
    let system = System::new();
    system.write("usr/bin/tool", "tool 2");
    let detail = |seen| {
        let cause = system.explain(&system.created("usr/bin/tool", seen));
        assert_eq!((cause.kind, cause.content_matches), (CauseKind::Unexplained, true));
        cause.detail
    };
    assert_eq!(detail(Some(seen(&["/usr/bin/cp"]))), "content of tool, writer is not dpkg");
    assert_eq!(detail(None), "content of tool, writer unknown", "no line in the log");
    let mut two = seen(BY_DPKG);
    two.actors.extend(seen(&["/usr/bin/cp"]).actors);
    assert_eq!(detail(Some(two)), "content of tool, writer is not dpkg");
    let more = Detection { more_actors: 1, ..seen(BY_DPKG) };
    assert_eq!(detail(Some(more)), "content of tool, writer unknown");
    let gone = Actor { reason: "gone before it was read".into(), ..Actor::default() };
    let gone = Detection { notices: 1, actors: vec![gone], ..Detection::default() };
    assert_eq!(detail(Some(gone)), "content of tool, writer unknown");
}

#[test]
fn other_content_by_dpkg_is_unexplained() {
    let system = System::new();
    system.write("usr/bin/tool", "tool 3");
    let cause = system.explain(&system.created("usr/bin/tool", Some(seen(BY_DPKG))));
    assert_eq!(cause.kind, CauseKind::Unexplained);
    assert_eq!(cause.detail, "content is not that of tool");
}

#[test]
fn links_directories_and_diverted_files_are_members() {
    let system = System::new();
    symlink("tool", system.folder.path().join("usr/bin/link")).unwrap();
    system.write("usr/bin/diverted.real", "diverted");
    system.write("usr/bin/diverted", "diverted");
    let kind = |path| system.explain(&system.created(path, Some(seen(BY_DPKG)))).kind;
    assert_eq!(kind("usr/bin/link"), CauseKind::Package);
    assert_eq!(kind("etc"), CauseKind::Package);
    assert_eq!(kind("usr/bin/diverted.real"), CauseKind::Package);
    assert_eq!(kind("usr/bin/diverted"), CauseKind::Unexplained, "the other package has no list");
}

#[test]
fn configuration_files_have_their_digest_in_the_status() {
    let system = System::new();
    system.write("etc/tool.conf", "configuration 2");
    system.write("etc/tool.conf.dpkg-dist", "configuration 2");
    let kind = |path| system.explain(&system.created(path, Some(seen(BY_DPKG)))).kind;
    assert_eq!(kind("etc/tool.conf"), CauseKind::Package);
    assert_eq!(kind("etc/tool.conf.dpkg-dist"), CauseKind::Package);
    system.write("etc/tool.conf", "changed");
    assert_eq!(kind("etc/tool.conf"), CauseKind::Unexplained);
}

#[test]
fn package_being_unpacked_is_known_by_its_new_lists() {
    let system = System::new();
    let new = "var/lib/dpkg/tmp.ci";
    fs::create_dir_all(system.folder.path().join(new)).unwrap();
    system.write("usr/bin/tool", "abc");
    system.write(&format!("{new}/control"), "Package: tool\nVersion: 3\nArchitecture: all\n");
    let sums = "900150983cd24fb0d6963f7d28e17f72  bin/tool\n";
    system.write(&format!("{new}/md5sums"), sums);
    let cause = system.explain(&system.created("usr/bin/tool", Some(seen(BY_DPKG))));
    assert_eq!(cause.kind, CauseKind::Package);
}

#[test]
fn scan_needs_a_line_of_the_log_near_the_change() {
    let system = System::new();
    system.write("usr/bin/tool", "tool 2");
    system.write("usr/bin/planted", "tool 2");
    system.log(&["upgrade tool:all 1 2"]);
    let cause = system.explain(&system.created("usr/bin/tool", None));
    assert_eq!((cause.kind, &*cause.tool), (CauseKind::Package, "dpkg"));
    assert!(cause.id.starts_with("dpkg-2"), "{}", cause.id);
    assert!(cause.content_matches && !cause.writer_matches, "no writer was seen");
    let cause = system.explain(&system.created("usr/bin/planted", None));
    assert_eq!(cause, Cause::default());
    system.log(&["upgrade other:all 1 2"]);
    let cause = system.explain(&system.created("usr/bin/tool", None));
    assert_eq!(cause.kind, CauseKind::Unexplained);
}

#[test]
fn log_does_not_explain_another_owner_or_mode() {
    let system = System::new();
    system.write("usr/bin/tool", "tool 2");
    system.log(&["upgrade tool:all 1 2"]);
    let modified = |edit: fn(&mut Observation)| {
        let created = system.created("usr/bin/tool", None);
        let mut before = created.after.clone().unwrap();
        before.inode += 1;
        edit(&mut before);
        let fields = before.difference(created.after.as_ref().unwrap());
        Change { kind: ChangeKind::Modified, before: Some(before), fields, ..created }
    };
    assert_eq!(system.explain(&modified(|_| {})).kind, CauseKind::Package);
    let edits: [fn(&mut Observation); 3] = [|o| o.mode = 0o4755, |o| o.uid = 7, |o| o.gid = 7];
    for edit in edits {
        let cause = system.explain(&modified(edit));
        assert_eq!(cause.kind, CauseKind::Unexplained);
        assert_eq!(cause.detail, "content of tool, writer unknown");
    }
}

#[test]
fn writer_decides_about_removed_items() {
    let system = System::new();
    system.log(&["remove tool:all 2 <none>"]);
    let removed = |writers: &[&str]| {
        system.write("usr/bin/tool", "tool 2");
        system.explain(&system.removed("usr/bin/tool", seen(writers)))
    };
    let cause = removed(BY_DPKG);
    assert_eq!((cause.kind, cause.content_matches), (CauseKind::Package, false));
    assert_eq!(cause.detail, "apt-get: tool 2 removed");
    assert_eq!(removed(&["/usr/bin/rm"]), Cause::default());
    system.write("etc/unlisted", "");
    let script = system.script("postrm");
    let script = seen(&["/usr/bin/rm", &script, "/usr/bin/dpkg"]);
    let cause = system.explain(&system.removed("etc/unlisted", script));
    assert_eq!(cause.kind, CauseKind::Deployment, "a script removed what is in no list");
}

#[test]
fn programs_below_a_tool_are_a_deployment() {
    let system = System::new();
    system.write("etc/generated", "x");
    let explain =
        |writers: &[&str]| system.explain(&system.created("etc/generated", Some(seen(writers))));
    let script = system.script("postinst");
    let cause = explain(&["/usr/sbin/ldconfig", &script, "/usr/bin/dpkg", "/usr/bin/apt"]);
    assert_eq!((cause.kind, &*cause.id), (CauseKind::Deployment, "id of /usr/bin/apt"));
    assert_eq!(cause.detail, "apt: script tool.postinst");
    let hooks: [&[&str]; 2] =
        [&["/usr/bin/touch", "/usr/bin/dpkg", "/usr/bin/apt"], &["/usr/bin/touch", "/usr/bin/apt"]];
    for hook in hooks {
        assert_eq!(explain(hook), Cause::default(), "a hook can be any command");
    }
    let cause = explain(&["/usr/bin/cp", "/usr/bin/python3 /opt/none/bin/salt-minion"]);
    assert_eq!((cause.kind, &*cause.tool), (CauseKind::Deployment, "salt"));
    assert_eq!(explain(&["/usr/bin/cp", "/usr/bin/bash"]), Cause::default());
}

#[test]
fn package_managers_write_only_their_own_files() {
    let system = System::new();
    for folder in ["var/lib/apt/lists/partial", "var/lib/dpkg/tmp.ci", "run", "usr/lib"] {
        fs::create_dir_all(system.folder.path().join(folder)).unwrap();
    }
    let kind = |path: &str, writer: &str| {
        system.write(path, "x");
        let writers: Vec<&str> = writer.split(" < ").collect();
        system.explain(&system.created(path, Some(seen(&writers)))).kind
    };
    let unattended = "/usr/bin/python3 /usr/bin/unattended-upgrade";
    for (path, writer) in [
        ("var/lib/dpkg/available", "/usr/bin/dpkg"),
        ("var/log/dpkg.log", "/usr/bin/dpkg"),
        ("etc/tool.conf.dpkg-old", "/usr/bin/dpkg"),
        ("var/lib/apt/extended_states", "/usr/bin/apt-get"),
        ("var/lib/apt/extended_states", "/usr/bin/apt-mark"),
        ("var/lib/dpkg/lock-frontend", "/usr/bin/apt-get"),
        ("run/unattended-upgrades.lock", unattended),
        ("var/lib/dpkg/tmp.ci/control", "/usr/bin/tar < /usr/bin/dpkg-deb < /usr/bin/dpkg"),
        ("var/lib/apt/lists/partial/x", "/usr/lib/apt/methods/http < /usr/bin/apt-get"),
    ] {
        assert_eq!(kind(path, writer), CauseKind::Deployment, "{path}");
    }
    // A library of LD_PRELOAD, a database of its own, or an option that names the file.
    for (path, writer) in [
        ("usr/lib/unlisted", "/usr/bin/dpkg"),
        ("etc/unlisted.dpkg-old", "/usr/bin/dpkg"),
        ("usr/lib/unlisted", "/usr/bin/apt-get"),
        ("var/lib/dpkg/info/x.postinst", "/usr/bin/dpkg --admindir=/srv/x -i a.deb"),
        ("var/lib/dpkg/info/x.postinst", "/usr/bin/apt-get"),
        ("var/lib/dpkg/info/x.postinst", "/usr/bin/tar < /usr/bin/dpkg-deb < /usr/bin/dpkg"),
        ("var/lib/dpkg/tmp.ci/x", "/usr/bin/tar < /usr/bin/bash < /usr/bin/dpkg"),
        ("usr/lib/unlisted", "/usr/lib/apt/methods/http < /usr/bin/apt-get"),
    ] {
        assert_eq!(kind(path, writer), CauseKind::Unexplained, "{path} by {writer}");
    }
}

#[test]
fn files_of_a_moment_have_the_cause_of_their_writers() {
    let cause = |path: &str, writers: &[&str]| {
        let key = ItemKey::of_path(format!("/none{path}").as_bytes());
        let cause = explain::transient_cause(&key, &seen(writers), Path::new("/none"));
        cause.map(|cause| (cause.tool, cause.attention))
    };
    let explained = |tool: &str, attention| Some((tool.to_owned(), attention));
    let script = "/usr/bin/dash /none/var/lib/dpkg/info/tool.postinst";
    let by_script = ["/usr/bin/sed", script, "/usr/bin/dpkg", "/usr/bin/apt-get"];
    assert_eq!(cause("/etc/sedx", &by_script), explained("apt-get", false));
    assert_eq!(cause("/etc/cron.d/sedx", &by_script), explained("apt-get", true));
    assert_eq!(cause("/etc/cron.d/x.dpkg-tmp", BY_DPKG), explained("apt-get", false));
    assert_eq!(cause("/etc/x", BY_DPKG), None, "dpkg has no such file");
    assert_eq!(cause("/etc/x.dpkg-tmp", &["/usr/bin/touch", "/usr/bin/dpkg"]), None, "a hook");
    assert_eq!(cause("/etc/x", &["/usr/bin/touch", PUPPET]), explained("puppet", false));
}

#[test]
fn tools_of_other_users_explain_nothing() {
    let system = System::new();
    system.write("usr/bin/tool", "tool 2");
    let mut forged = seen(BY_DPKG);
    let actor = forged.actors.first_mut().unwrap();
    actor.ancestors.iter_mut().chain(&mut actor.process).for_each(|p| p.is_root = false);
    let cause = system.explain(&system.created("usr/bin/tool", Some(forged)));
    assert_eq!(cause.kind, CauseKind::Unexplained);
}

#[test]
fn temporary_names_are_reported_without_a_transaction() {
    let system = System::new();
    system.write("usr/bin/tool.dpkg-new", "x");
    let clock = Arc::new(SystemClock::new());
    let mut explainer = Explainer::new(system.folder.path(), clock);
    let change = system.created("usr/bin/tool.dpkg-new", Some(seen(BY_DPKG)));
    assert!(!explainer.is_temporary(&change), "no process holds the lock");
}

#[test]
fn event_of_a_package_has_the_id_of_its_transaction() {
    let system = System::new();
    system.log(&["upgrade tool:all 1 2", "install other:all <none> 3"]);
    let mut explainer = Explainer::new(system.folder.path(), Arc::new(SystemClock::new()));
    let other = explainer.cause_of_package("other", "3").unwrap();
    assert!(other.id.starts_with("dpkg-2"), "{}", other.id);
    system.write("usr/bin/tool", "tool 2");
    let change = system.created("usr/bin/tool", Some(seen(BY_DPKG)));
    let file = explainer.explain(&change).unwrap();
    let of_package = Cause { writer_matches: false, ..file.clone() };
    assert_eq!(explainer.cause_of_package("tool", "2"), Some(of_package), "no writer was seen");
    let other = explainer.cause_of_package("other", "3").unwrap();
    assert_eq!((&*other.id, &*other.detail), (&*file.id, "apt-get: other 3"));
    assert_eq!(explainer.cause_of_package("tool", "9"), None, "another version");
}

#[test]
fn package_of_another_run_of_dpkg_has_a_transaction_of_its_own() {
    let system = System::new();
    system.log(&[
        "startup archives unpack",
        "install alone:all <none> 3",
        "startup archives unpack",
        "upgrade tool:all 1 2",
    ]);
    let explainer = || Explainer::new(system.folder.path(), Arc::new(SystemClock::new()));
    let mut explain = explainer();
    system.write("usr/bin/tool", "tool 2");
    let change = system.created("usr/bin/tool", Some(seen(BY_DPKG)));
    let file = explain.explain(&change).unwrap();
    let alone = explain.cause_of_package("alone", "3").unwrap();
    assert_eq!((&*file.tool, &*alone.tool), ("apt-get", "dpkg"), "by hand, in the same second");
    assert_ne!(file.id, alone.id);
    // Both runs of dpkg are of one run of apt, which its history shows.
    let now = model::timestamp::micros(SystemClock::new().now_us() - 5_000_000);
    let begin = now.get(..19).unwrap().replace('T', "  ");
    fs::create_dir_all(system.folder.path().join("var/log/apt")).unwrap();
    let history = format!("Start-Date: {begin}\nCommandline: apt-get upgrade\n");
    system.write("var/log/apt/history.log", &history);
    let of_apt = explain.cause_of_package("alone", "3").unwrap();
    assert_eq!((of_apt.tool, of_apt.id), (file.tool, file.id));
    let by_history = explainer().cause_of_package("alone", "3").unwrap();
    assert!(by_history.id.starts_with("apt-get-2"), "{by_history:?}");
}

#[test]
fn added_privileges_need_dpkg_or_a_script_of_the_package() {
    let system = System::new();
    system.log(&["install tool:all <none> 2"]);
    system.write("usr/bin/tool", "tool 2");
    let (own, hook) = (system.script("postinst"), "/usr/bin/dash -c x");
    let other = own.replace("tool.postinst", "other.postinst");
    let explain = |writers: Option<&[&str]>, before: u32, after: u32| {
        let mut change = system.created("usr/bin/tool", writers.map(seen));
        change.after.as_mut().unwrap().mode = after;
        let mut before_it = change.after.clone().unwrap();
        before_it.mode = before;
        change.fields = before_it.difference(change.after.as_ref().unwrap());
        change.before = Some(before_it);
        system.explain(&change)
    };
    let by_script = |script: &str, before, after| {
        explain(Some(&["/usr/bin/chmod", script, "/usr/bin/dpkg"]), before, after)
    };
    assert_eq!(explain(Some(BY_DPKG), 0o755, 0o4755).kind, CauseKind::Package);
    assert_eq!(by_script(&own, 0o755, 0o4755).kind, CauseKind::Package);
    assert_eq!(by_script(&other, 0o4755, 0o4755).kind, CauseKind::Package, "it had the bit");
    for (script, after, privilege) in [
        (other.as_str(), 0o4755, "setuid"),
        (other.as_str(), 0o2755, "setgid"),
        (other.as_str(), 0o6755, "setuid"),
    ] {
        let cause = by_script(script, 0o755, after);
        assert_eq!(cause.kind, CauseKind::Unexplained);
        assert_eq!(cause.detail, format!("adds {privilege}, although dpkg: tool 2"));
    }
    let unnamed = own.replace("info/tool.postinst", "tmp.ci/preinst");
    assert_eq!(by_script(&unnamed, 0o755, 0o4755).kind, CauseKind::Unexplained);
    system.write("usr/bin/foreign", "of no package");
    let mut foreign =
        system.created("usr/bin/foreign", Some(seen(&["/usr/bin/cp", &unnamed, "/usr/bin/dpkg"])));
    assert_eq!(system.explain(&foreign).kind, CauseKind::Deployment);
    foreign.after.as_mut().unwrap().mode = 0o4755;
    assert_eq!(system.explain(&foreign).kind, CauseKind::Unexplained, "neither has a package");
    let mut both = seen(&["/usr/bin/tee", &own, "/usr/bin/dpkg"]);
    both.actors.extend(seen(BY_DPKG).actors);
    let both = system.created("usr/bin/foreign", Some(both));
    assert_eq!(system.explain(&both).kind, CauseKind::Unexplained, "dpkg itself wrote it too");
    system.write("usr/bin/tool.dpkg-old", "x");
    let mut replaced = system.created("usr/bin/tool.dpkg-old", Some(seen(BY_DPKG)));
    assert_eq!(system.explain(&replaced).kind, CauseKind::Deployment);
    replaced.after.as_mut().unwrap().mode = 0o4755;
    assert_eq!(system.explain(&replaced).kind, CauseKind::Unexplained, "no package delivered it");
    assert_eq!(by_script(hook, 0o755, 0o4755).detail, "content of tool, writer is not dpkg");
    assert_eq!(explain(None, 0o755, 0o4755).kind, CauseKind::Unexplained);
    system.write("var/lib/dpkg/statoverride", "root root 4755 /usr/bin/tool\n");
    assert_eq!(by_script(&other, 0o755, 0o4755).kind, CauseKind::Package, "it is listed");
    assert_eq!(by_script(&other, 0o755, 0o2755).kind, CauseKind::Unexplained);
}

#[test]
fn doors_keep_their_cause_with_attention() {
    let system = System::new();
    fs::create_dir_all(system.folder.path().join("etc/sudoers.d")).unwrap();
    system.write("etc/sudoers.d/x", "x");
    let explain = |writers: &[&str]| {
        let cause = system.explain(&system.created("etc/sudoers.d/x", Some(seen(writers))));
        (cause.kind, cause.attention)
    };
    let script = system.script("postinst");
    let attention = (CauseKind::Deployment, true);
    assert_eq!(explain(&["/usr/bin/tee", &script, "/usr/bin/dpkg"]), attention);
    assert_eq!(explain(&["/usr/bin/cp", PUPPET]), attention);
    assert_eq!(explain(&["/usr/bin/dpkg", "/usr/bin/apt"]), (CauseKind::Unexplained, false));
    assert_eq!(explain(&["/usr/bin/apt-get"]), (CauseKind::Unexplained, false));
    assert_eq!(explain(&["/usr/bin/tee", "/usr/bin/apt-get"]), (CauseKind::Unexplained, false));
    system.write("var/lib/dpkg/info/tool.list", "/etc/sudoers.d/x\n");
    assert_eq!(explain(&["/usr/bin/dpkg", "/usr/bin/apt"]), (CauseKind::Deployment, false));
}
