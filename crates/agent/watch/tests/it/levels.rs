//! Each file system is watched at the best level that it allows, and the state says why. These
//! tests need root and fanotify with file handles; where either is missing, leave them out with
//! `--skip privileged`.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use crate::common::{Checker, Mount, folder, root};
use rustix::thread::{CapabilitySet, CapabilitySets};
use watch::{IncidentKind, Level, Options, monotonic_ns};

fn now(path: PathBuf) -> (PathBuf, u64) {
    (path, monotonic_ns())
}

/// Changes files in each way, and waits for each change.
fn change_everything(checker: &Checker, top: &Path) {
    let (file, moved) = (top.join("old/f"), top.join("new/g"));
    fs::write(&file, b"changed").unwrap();
    checker.wait_for(&[now(file.clone())]);
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
    checker.wait_for(&[now(file.clone())]);
    fs::create_dir_all(top.join("new/deep")).unwrap();
    fs::write(top.join("new/deep/f"), b"x").unwrap();
    checker.wait_for(&[now(top.join("new")), now(top.join("new/deep/f"))]);
    fs::rename(&file, &moved).unwrap();
    checker.wait_for(&[now(file), now(moved.clone())]);
    fs::set_permissions(top.join("new"), fs::Permissions::from_mode(0o700)).unwrap();
    checker.wait_for(&[now(top.join("new"))]);
    fs::remove_file(&moved).unwrap();
    checker.wait_for(&[now(moved)]);
    fs::rename(top.join("new/deep"), top.join("old/deep")).unwrap();
    fs::write(top.join("old/deep/f"), b"changed").unwrap();
    checker.wait_for(&[now(top.join("old/deep/f"))]);
    fs::remove_dir_all(top.join("old")).unwrap();
    checker.wait_for(&[now(top.join("old/deep/f")), now(top.join("old"))]);
}

fn prepare(top: &Path) {
    fs::create_dir_all(top.join("old")).unwrap();
    fs::write(top.join("old/f"), b"x").unwrap();
}

#[test]
fn privileged_file_system_mark_finds_every_change() {
    let top = folder();
    prepare(top.path());
    let checker = Checker::start(root(top.path()));
    change_everything(&checker, top.path());
    let state = checker.state();
    let file_system = &state.file_systems[0];
    assert_eq!((file_system.level, &*file_system.reason), (Level::FileSystem, ""));
    assert!(state.exists && state.is_realtime());
}

#[test]
fn privileged_directory_marks_find_every_change() {
    let top = folder();
    prepare(top.path());
    let options = Options { best_level: Level::Directories, ..root(top.path()) };
    let checker = Checker::start(options);
    change_everything(&checker, top.path());
    let file_system = checker.state().file_systems.remove(0);
    assert_eq!(file_system.level, Level::Directories);
    let reason = "limited by the settings; a write through a new hard link in another place is \
                  found by the next scan";
    assert_eq!(file_system.reason, reason);
}

/// The threads of a watcher have the capabilities of the thread that starts it.
#[test]
fn privileged_watcher_without_capabilities_marks_directories() {
    let top = folder();
    prepare(top.path());
    std::thread::scope(|scope| {
        let dropped = scope.spawn(|| {
            let none = CapabilitySets {
                effective: CapabilitySet::empty(),
                permitted: CapabilitySet::empty(),
                inheritable: CapabilitySet::empty(),
            };
            rustix::thread::set_capabilities(None, none).unwrap();
            let checker = Checker::start(root(top.path()));
            change_everything(&checker, top.path());
            let file_system = checker.state().file_systems.remove(0);
            assert_eq!(file_system.level, Level::Directories);
            assert_eq!(file_system.remedy, "run the agent with CAP_SYS_ADMIN");
            checker.batches().concat()
        });
        let due = dropped.join().unwrap();
        // Without privileges the kernel reports no process except this one.
        let own = std::process::id();
        assert!(due.iter().flat_map(|due| &due.notices.writers).all(|writer| writer.pid == own));
    });
}

#[test]
fn privileged_scan_only_root_has_no_notifications() {
    let top = folder();
    prepare(top.path());
    let other = folder();
    let roots = vec![top.path().to_owned(), other.path().to_owned()];
    let options = Options { roots, best_level: Level::ScanOnly, ..Options::default() };
    let checker = Checker::start(options);
    fs::write(top.path().join("old/f"), b"changed").unwrap();
    let state = checker.state();
    assert!(!state.is_realtime());
    assert_eq!(state.file_systems[0].level, Level::ScanOnly);
    assert_eq!(
        checker.watcher.counters().directories,
        1 + state.path.split(|b| *b == b'/').count()
    );
}

#[test]
fn privileged_overlay_is_watched_by_directory_marks() {
    let folder = folder();
    let top = folder.path();
    // An overlay of an overlay would be refused as upper layer.
    let _tmpfs = Mount::new("tmpfs", "size=16m", &top.join("layers"));
    for name in ["lower/old", "upper", "work"] {
        fs::create_dir_all(top.join("layers").join(name)).unwrap();
    }
    fs::write(top.join("layers/lower/old/f"), b"x").unwrap();
    let layer = |name: &str| top.join("layers").join(name).to_str().unwrap().to_owned();
    let options = format!(
        "lowerdir={},upperdir={},workdir={}",
        layer("lower"),
        layer("upper"),
        layer("work")
    );
    let path = top.join("merged");
    let _overlay = Mount::new("overlay", &options, &path);
    let checker = Checker::start(root(&path));
    let file_system = checker.state().file_systems.remove(0);
    assert_eq!((&*file_system.kind, file_system.level), ("overlay", Level::Directories));
    assert!(file_system.reason.contains("refuses a mark"), "{}", file_system.reason);
    change_everything(&checker, &path);
}

#[test]
fn privileged_second_file_system_of_a_root_has_its_own_state() {
    let folder = folder();
    let top = folder.path();
    let path = top.join("below/mount");
    let _mount = Mount::new("tmpfs", "size=16m", &path);
    prepare(&path);
    let checker = Checker::start(root(top));
    change_everything(&checker, &path);
    let kinds: Vec<String> =
        checker.state().file_systems.into_iter().map(|state| state.kind).collect();
    assert_eq!((kinds.len(), &*kinds[1]), (2, "tmpfs"));
}

#[test]
fn privileged_limit_of_directories_is_reported_once() {
    let top = folder();
    for number in 0..100 {
        fs::create_dir(top.path().join(format!("d{number}"))).unwrap();
    }
    let checker = Checker::start(Options { directories_max: 50, ..root(top.path()) });
    let incident = checker.wait_for_incident();
    assert_eq!(incident.kind, IncidentKind::LimitReached);
    assert!(incident.detail.contains("limit of 50 directories"), "{}", incident.detail);
    let state = checker.state();
    assert!(!state.is_realtime());
    assert_eq!(state.file_systems[0].remedy, "raise realtime.directories_max");
    assert_eq!(checker.watcher.counters().directories, 50);
    // Directories in the index are still notified.
    fs::write(top.path().join("f"), b"x").unwrap();
    checker.wait_for(&[now(top.path().join("f"))]);
    assert!(checker.incidents().is_empty());
}
