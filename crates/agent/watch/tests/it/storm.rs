//! Storms of changes lose nothing. These tests need root and fanotify with file handles; where
//! either is missing, leave them out with `--skip privileged`.

use std::collections::BTreeSet;
use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;

use crate::common::{self, Checker, Mount, folder, root};
use watch::{Level, Options, monotonic_ns};

const FILES: usize = 10_000;
const DIRECTORIES: usize = 100;

/// A change of a file: the paths that must be due, and the time before its last system call.
type Change = (Vec<PathBuf>, u64);

/// Runs the phases in a root. Each name must be due after its last change of each phase. A stalled
/// reader does not read before the end of a phase; otherwise names are taken during the phase.
fn storm(options: Options, files: usize, stalled: bool) -> Checker {
    let top = options.roots[0].clone();
    for number in 0..DIRECTORIES {
        fs::create_dir(top.join(format!("d{number}"))).unwrap();
    }
    let mut checker = Checker::start(options);
    if !stalled {
        checker.keep_open();
    }
    let path = |number: usize| top.join(format!("d{}/f{number}", number % DIRECTORIES));
    let renamed = |number: usize| top.join(format!("d{}/g{number}", number % DIRECTORIES));
    let write = |options: &mut OpenOptions, path: PathBuf| {
        let mut file = options.open(&path).unwrap();
        file.write_all(b"written").unwrap();
        let changed = monotonic_ns();
        drop(file);
        (vec![path], changed)
    };
    let phases: [&dyn Fn(usize) -> Change; 5] = [
        &|number| write(OpenOptions::new().write(true).create_new(true), path(number)),
        &|number| write(OpenOptions::new().append(true), path(number)),
        &|number| {
            let changed = monotonic_ns();
            fs::set_permissions(path(number), fs::Permissions::from_mode(0o600)).unwrap();
            (vec![path(number)], changed)
        },
        &|number| {
            let changed = monotonic_ns();
            fs::rename(path(number), renamed(number)).unwrap();
            (vec![path(number), renamed(number)], changed)
        },
        &|number| {
            let changed = monotonic_ns();
            fs::remove_file(renamed(number)).unwrap();
            (vec![renamed(number)], changed)
        },
    ];
    for phase in phases {
        let pause = stalled.then(|| checker.watcher.pause_reader());
        let mut changes = Vec::new();
        for number in 0..files {
            let (paths, changed) = phase(number);
            changes.extend(paths.into_iter().map(|path| (path, changed)));
        }
        if stalled {
            let end = monotonic_ns();
            for (_, changed) in &mut changes {
                *changed = end;
            }
        }
        drop(pause);
        checker.wait_for(&changes);
    }
    checker
}

fn assert_nothing_lost(checker: &Checker, level: Level) {
    assert_eq!(checker.watcher.counters().overflows, 0);
    assert!(checker.incidents().is_empty());
    assert_eq!(checker.level(), level);
}

/// Asserts that the names of each rename were due in one batch.
fn assert_renames_are_whole(checker: &Checker, renames: usize) {
    let mut whole = BTreeSet::new();
    for batch in checker.batches() {
        let names: Vec<PathBuf> = batch.iter().map(|due| common::path_of(&due.key)).collect();
        let pairs = names.iter().filter(|new| {
            let name = new.file_name().unwrap().to_str().unwrap();
            let old = name.strip_prefix('g').map(|number| format!("f{number}"));
            old.is_some_and(|old| names.contains(&new.with_file_name(old)))
        });
        whole.extend(pairs.cloned());
    }
    assert_eq!(whole.len(), renames);
}

#[test]
fn privileged_storm_on_the_disk_loses_nothing() {
    let top = folder();
    let checker = storm(root(top.path()), FILES, true);
    assert_nothing_lost(&checker, Level::FileSystem);
}

#[test]
fn privileged_storm_on_tmpfs_loses_nothing() {
    let top = folder();
    let path = top.path().join("mount");
    let _mount = Mount::new("tmpfs", "size=64m", &path);
    let checker = storm(root(&path), FILES, true);
    assert_nothing_lost(&checker, Level::FileSystem);
}

#[test]
fn privileged_storm_with_directory_marks_loses_nothing() {
    let top = folder();
    let options = Options { best_level: Level::Directories, ..root(top.path()) };
    let checker = storm(options, 2_000, false);
    assert_nothing_lost(&checker, Level::Directories);
}

#[test]
fn privileged_storm_with_a_small_set_covers_every_change() {
    let top = folder();
    let options = Options { dirty_max: 100, ..root(top.path()) };
    let checker = storm(options, FILES, false);
    assert_nothing_lost(&checker, Level::FileSystem);
}

#[test]
fn privileged_names_of_a_rename_are_due_together() {
    let top = folder();
    let checker = storm(root(top.path()), 200, true);
    assert_renames_are_whole(&checker, 200);
}
