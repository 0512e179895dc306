//! Entries that cannot be read, are not mounted or are on another device are gaps, never deletions.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::common::{self, Bench, Folder, field_names, only};
use detect::{GapKind, RootState, Rules, ScanReport, Watch};
use model::{CoverageKind, ItemKey, Observation};

fn gap_of(report: &ScanReport) -> GapKind {
    match &report.roots[0].state {
        RootState::Gap { kind, .. } => *kind,
        other => panic!("not a gap: {other:?}"),
    }
}

#[test]
fn missing_root_is_reported_and_other_roots_are_scanned() {
    let f = Folder::new();
    f.write("there/a", "1");
    let b = Bench::new(Rules::of_paths([f.at("missing"), f.at("there")]));
    let report = b.scan();
    assert_eq!(gap_of(&report), GapKind::Missing);
    assert_eq!(report.roots[1].state, RootState::Baseline);
    assert_eq!(b.store.gaps(), [CoverageKind::RootGone, CoverageKind::Baseline]);
}

#[test]
fn missing_root_keeps_its_baseline_until_it_returns() {
    let f = Folder::new();
    let a = f.write("root/d/a", "1");
    let b = Bench::of(&f.at("root"));
    b.scan();
    b.store.coverage();
    fs::rename(f.at("root"), f.at("away")).unwrap();
    let before = b.store.len();
    assert_eq!(gap_of(&b.scan()), GapKind::Missing);
    assert_eq!(b.store.gaps(), [CoverageKind::RootGone]);
    b.scan();
    assert!(b.store.coverage().is_empty(), "told once");
    assert!(b.store.changes().is_empty());
    assert_eq!(b.store.len(), before);
    fs::rename(f.at("away"), f.at("root")).unwrap();
    fs::write(&a, "22").unwrap();
    assert_eq!(b.scan().roots[0].state, RootState::Covered);
    assert_eq!(b.store.reported_changes(), [("modified", a)]);
    let over = b.store.coverage();
    assert_eq!((over.len(), over[0].kind, over[0].found), (1, CoverageKind::RootGone, Some(1)));
    assert!(over[0].from_us < over[0].to_us);
}

#[test]
fn gaps_reported_before_a_restart_are_not_repeated() {
    let f = Folder::new();
    let b = Bench::of(&f.at("missing"));
    b.scan();
    assert_eq!(b.store.gaps(), [CoverageKind::RootGone]);
    let next = b.again(Rules::of_paths([f.at("missing")]));
    next.scanner.restore_gaps(b.scanner.gaps());
    next.scan();
    assert!(next.store.coverage().is_empty());
}

#[test]
fn root_replaced_by_file_keeps_its_baseline() {
    let f = Folder::new();
    f.write("root/a", "1");
    let b = Bench::of(&f.at("root"));
    b.scan();
    b.store.coverage();
    fs::remove_dir_all(f.at("root")).unwrap();
    fs::write(f.at("root"), "a file").unwrap();
    assert_eq!(gap_of(&b.scan()), GapKind::Missing);
    assert_eq!(b.store.gaps(), [CoverageKind::RootGone]);
    assert!(b.store.changes().is_empty());
    assert_eq!(b.store.len(), 2);
}

/// Changes every stored observation.
fn rewrite(b: &Bench, change: impl Fn(&ItemKey, &mut Observation)) {
    for (key, o) in &mut b.store.0.lock().items {
        change(key, o);
    }
}

#[test]
fn renumbered_device_is_noted_without_changes() {
    let f = Folder::new();
    f.write("d/a", "1");
    f.write("b", "2");
    let b = Bench::of(&f.path);
    b.scan();
    b.store.coverage();
    rewrite(&b, |_, o| o.device += 1000);
    let report = b.scan();
    assert_eq!(report.counts.changes(), 0);
    assert_eq!(b.store.gaps(), [CoverageKind::Renumbered]);
    assert_eq!(common::stored_items(&b.store), common::independent_walk(&f.path));
    fs::write(f.at("b"), "22").unwrap();
    rewrite(&b, |_, o| o.device += 1000);
    b.scan();
    let change = only(b.store.changes());
    assert!(!field_names(&change).contains(&"device"), "{change:?}");
}

#[test]
fn other_file_system_at_the_root_is_a_gap_until_accepted() {
    let f = Folder::new();
    f.write("d/a", "1");
    let b = Bench::of(&f.path);
    b.scan();
    b.store.coverage();
    rewrite(&b, |_, o| {
        o.device += 1000;
        o.inode += 77;
    });
    let report = b.scan();
    assert_eq!(gap_of(&report), GapKind::OtherDevice);
    assert_eq!(b.store.gaps(), [CoverageKind::RootGone]);
    assert!(b.store.changes().is_empty());
    let mut watch = Watch::new(&f.path);
    watch.accept_device = true;
    let b = b.again(Rules(vec![watch]));
    let report = b.scan();
    assert_eq!((report.counts.modified, report.counts.deleted), (3, 0));
    b.store.changes();
    let b = b.again(Rules::of_paths([&f.path]));
    assert_eq!(b.scan().counts.changes(), 0);
}

#[test]
fn other_file_system_with_the_same_root_inode_is_a_gap() {
    let f = Folder::new();
    f.write("a", "1");
    f.write("b", "1");
    let b = Bench::of(&f.path);
    b.scan();
    let root = ItemKey::of_path(f.path.as_os_str().as_encoded_bytes());
    rewrite(&b, |key, o| {
        o.device += 1000;
        o.inode += if *key == root { 0 } else { 500 };
    });
    assert_eq!(gap_of(&b.scan()), GapKind::OtherDevice);
    assert!(b.store.changes().is_empty());
}

/// Runs a closure as an unprivileged user, on a separate thread.
#[expect(unsafe_code, reason = "setfsuid has no safe wrapper")]
fn as_nobody<T: Send>(run: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| {
        let run = move || {
            // SAFETY: takes an integer and changes the file-system identity of this thread only.
            unsafe { libc::setfsuid(65534) };
            run()
        };
        scope.spawn(run).join().unwrap()
    })
}

fn mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

/// Returns a directory that every user may enter, or `None` if this process cannot switch users.
fn open_folder() -> Option<Folder> {
    if !needs::root("to become another user") {
        return None;
    }
    let f = Folder::new();
    mode(&f.path, 0o755);
    Some(f)
}

#[test]
fn unreadable_directory_keeps_baseline_and_is_reported_once() {
    let Some(f) = open_folder() else { return };
    f.write("d/e/a", "1");
    f.write("b", "2");
    let b = Bench::of(&f.path);
    as_nobody(|| b.scan());
    b.store.coverage();
    mode(&f.at("d"), 0o700);
    let report = as_nobody(|| b.scan());
    assert_eq!(report.counts.errors.get("permission denied"), Some(&1));
    assert_eq!(b.store.gaps(), [CoverageKind::Unreadable]);
    let told = b.store.changes();
    assert!(told.iter().all(|c| c.key.name == b"d"), "{told:#?}");
    assert_eq!(told.iter().map(field_names).collect::<Vec<_>>(), [vec!["mode"], vec!["error"]]);
    assert!(b.store.get(&f.at("d/e/a")).is_some());
    assert_eq!(as_nobody(|| b.scan()).counts.changes(), 0);
    assert!(b.store.coverage().is_empty());
    mode(&f.at("d"), 0o755);
    as_nobody(|| b.scan());
    let fields: Vec<_> = b.store.changes().iter().map(field_names).collect();
    assert_eq!(fields, [vec!["mode"], vec!["error"]]);
    assert_eq!(b.store.gaps(), [CoverageKind::Unreadable], "told that it is over");
    assert_eq!(common::stored_items(&b.store), common::independent_walk(&f.path));
}

#[test]
fn new_unreadable_directory_is_one_change_and_one_gap() {
    let Some(f) = open_folder() else { return };
    let b = Bench::of(&f.path);
    as_nobody(|| b.scan());
    b.store.coverage();
    fs::create_dir(f.at("d")).unwrap();
    mode(&f.at("d"), 0o700);
    as_nobody(|| b.scan());
    assert_eq!(b.store.reported_changes(), [("created", f.at("d"))]);
    assert_eq!(b.store.gaps(), [CoverageKind::Unreadable]);
    assert_eq!(as_nobody(|| b.scan()).counts.changes(), 0);
}

#[test]
fn directory_without_search_permission_keeps_its_baseline() {
    let Some(f) = open_folder() else { return };
    f.write("d/a", "1");
    let b = Bench::of(&f.path);
    as_nobody(|| b.scan());
    b.store.coverage();
    mode(&f.at("d"), 0o744);
    as_nobody(|| b.scan());
    assert_eq!(b.store.reported_changes(), [("modified", f.at("d"))]);
    assert_eq!(b.store.gaps(), [CoverageKind::Unreadable]);
    assert!(b.store.get(&f.at("d/a")).is_some());
}

#[test]
fn unreadable_file_is_stored_with_its_error_and_retried() {
    let Some(f) = open_folder() else { return };
    let path = f.write("secret", "1");
    mode(&path, 0o600);
    let b = Bench::of(&f.path);
    let report = as_nobody(|| b.scan());
    assert_eq!(report.counts.errors.get("permission denied"), Some(&1));
    let o = b.store.get(&path).unwrap();
    assert_eq!(o.error, Some(model::ObserveError::Os(libc::EACCES)));
    assert!(o.hashes.is_empty() && o.size == 1);
    assert_eq!(as_nobody(|| b.scan()).counts.errors.get("permission denied"), Some(&1));
    assert!(b.store.changes().is_empty());
    mode(&path, 0o644);
    as_nobody(|| b.scan());
    assert_eq!(field_names(&only(b.store.changes())), ["mode", "ctime", "error"]);
    assert!(b.store.get(&path).unwrap().hashes.sha256.is_some());
}

#[test]
fn unreadable_root_is_a_gap() {
    let Some(f) = open_folder() else { return };
    f.write("root/a", "1");
    let b = Bench::of(&f.at("root"));
    as_nobody(|| b.scan());
    b.store.coverage();
    mode(&f.at("root"), 0o700);
    assert_eq!(gap_of(&as_nobody(|| b.scan())), GapKind::Unreadable);
    assert_eq!(b.store.gaps(), [CoverageKind::Unreadable]);
    assert!(b.store.changes().is_empty());
    assert_eq!(b.store.len(), 2);
}

#[test]
fn read_error_is_stored_in_observation() {
    // The memory of this process: it can be opened, but reading address zero fails.
    let path = PathBuf::from("/proc/self/mem").canonicalize().unwrap();
    let b = Bench::of(&path);
    let report = b.scan();
    assert_eq!(report.counts.errors.get("input/output error"), Some(&1), "{report:?}");
    let o = b.store.get(&path).unwrap();
    assert_eq!(o.error, Some(model::ObserveError::Os(libc::EIO)));
}

/// A tmpfs that is unmounted on drop.
struct Mount(PathBuf);

impl Mount {
    fn at(path: &Path) -> Option<Self> {
        let done = Command::new("mount").args(["-t", "tmpfs", "none"]).arg(path).output();
        if done.is_ok_and(|o| o.status.success()) {
            return Some(Self(path.to_path_buf()));
        }
        needs::skip("no right to mount");
        None
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        // Lazy unmount: a process started by another test may still use it.
        let _ = Command::new("umount").arg("-l").arg(&self.0).output();
    }
}

#[test]
fn unmounted_root_is_a_gap_not_a_deletion() {
    let f = Folder::new();
    fs::create_dir(f.at("m")).unwrap();
    let Some(mount) = Mount::at(&f.at("m")) else { return };
    f.write("m/d/a", "1");
    let b = Bench::of(&f.at("m"));
    b.scan();
    b.store.coverage();
    drop(mount);
    assert_eq!(gap_of(&b.scan()), GapKind::OtherDevice);
    assert_eq!(b.store.gaps(), [CoverageKind::RootGone]);
    assert!(b.store.changes().is_empty());
    assert_eq!(b.store.len(), 3);
}

#[test]
fn nested_unmount_is_a_gap_and_the_rest_is_compared() {
    let f = Folder::new();
    fs::create_dir(f.at("m")).unwrap();
    let Some(mount) = Mount::at(&f.at("m")) else { return };
    f.write("m/d/a", "1");
    let b = Bench::of(&f.path);
    b.scan();
    b.store.coverage();
    drop(mount);
    f.write("other", "2");
    b.scan();
    assert_eq!(b.store.reported_changes(), [("created", f.at("other"))]);
    assert_eq!(b.store.gaps(), [CoverageKind::RootGone]);
    assert!(b.store.get(&f.at("m/d/a")).is_some());
    // The same if the mount point itself is removed.
    fs::remove_dir(f.at("m")).unwrap();
    b.scan();
    assert!(b.store.changes().is_empty());
    let mut watch = Watch::new(&f.path);
    watch.accept_device = true;
    let b = b.again(Rules(vec![watch]));
    assert_eq!(b.scan().counts.deleted, 3);
}

#[test]
fn mount_over_known_files_is_a_gap_but_over_empty_dir_is_not() {
    let f = Folder::new();
    f.write("known/a", "1");
    fs::create_dir(f.at("empty")).unwrap();
    let b = Bench::of(&f.path);
    b.scan();
    b.store.coverage();
    let Some(_one) = Mount::at(&f.at("known")) else { return };
    let Some(_two) = Mount::at(&f.at("empty")) else { return };
    f.write("empty/new", "2");
    b.scan();
    let told = b.store.reported_changes();
    assert_eq!(told, [("created", f.at("empty/new")), ("modified", f.at("empty"))]);
    assert_eq!(b.store.gaps(), [CoverageKind::RootGone]);
    assert!(b.store.get(&f.at("known/a")).is_some());
}

#[test]
fn one_file_system_skips_mounts_and_pseudo_fs_is_never_entered() {
    let f = Folder::new();
    fs::create_dir(f.at("m")).unwrap();
    fs::create_dir(f.at("proc")).unwrap();
    let Some(_mount) = Mount::at(&f.at("m")) else { return };
    let proc = Command::new("mount").args(["-t", "proc", "none"]).arg(f.at("proc")).output();
    let _proc = proc.is_ok_and(|o| o.status.success()).then(|| Mount(f.at("proc")));
    f.write("m/a", "1");
    let b = Bench::of(&f.path);
    b.scan();
    assert!(b.store.get(&f.at("m/a")).is_some());
    assert_eq!(b.store.len(), 4, "nothing below proc");
    let mut watch = Watch::new(&f.path);
    watch.one_file_system = true;
    let b = b.again(Rules(vec![watch]));
    let report = b.scan();
    assert_eq!((report.counts.forgotten, report.counts.changes()), (1, 0));
    assert!(b.store.get(&f.at("m")).is_some() && b.store.get(&f.at("m/a")).is_none());
}

#[test]
fn optional_root_is_no_gap_and_what_appears_there_is_created() {
    let f = Folder::new();
    let (optional, other) = (f.at("optional"), f.write("other/file", "x"));
    let watch = |path: &Path, optional| Watch { optional, ..Watch::new(path) };
    let rules = Rules(vec![watch(&optional, true), watch(other.parent().unwrap(), true)]);
    let b = Bench::new(rules.clone());
    b.scan();
    assert_eq!(b.store.gaps(), [CoverageKind::Baseline], "what is there is the baseline");
    assert_eq!(b.scanner.gaps()[0].kind, GapKind::Absent);
    let next = b.again(rules);
    next.scanner.restore_gaps(b.scanner.gaps());
    let inside = f.write("optional/inside", "x");
    next.scan();
    let expected = [("created", optional.clone()), ("created", inside.clone())];
    assert_eq!(next.store.reported_changes(), expected);
    assert_eq!((next.store.gaps(), next.scanner.gaps()), (Vec::new(), Vec::new()));
    fs::remove_dir_all(&optional).unwrap();
    next.scan();
    let expected = [("deleted", optional), ("deleted", inside)];
    assert_eq!(next.store.reported_changes(), expected);
    assert_eq!(next.store.gaps(), []);
}
