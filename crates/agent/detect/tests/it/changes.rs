//! Each change of a file is reported once, with the right fields.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::Command;

use crate::common::{self, Bench, Folder, assert_kind, field_names, only, sha2_of};
use detect::{Algorithm, Attribute, RootState, Rules, Watch};
use model::{ChangeKind, CoverageKind, Kind, Observation};

#[test]
fn first_scan_builds_the_baseline_and_reports_no_change() {
    let f = Folder::new();
    f.write("a/b/c.txt", "hello");
    symlink("c.txt", f.at("a/b/link")).unwrap();
    let b = Bench::of(&f.path);
    let report = b.scan();
    assert!(b.store.changes().is_empty());
    assert_eq!(b.store.gaps(), [CoverageKind::Baseline]);
    assert_eq!(report.roots[0].state, RootState::Baseline);
    let c = &report.counts;
    assert_eq!((c.files, c.directories, c.others, c.baseline), (1, 3, 1, 5));
    assert_eq!((c.hashed, c.bytes_hashed, c.skipped), (1, 5, 0));
    let file = b.store.get(&f.at("a/b/c.txt")).unwrap();
    assert_eq!(file.hashes.sha256.map(|h| h.to_vec()), Some(sha2_of(b"hello")));
    assert!(file.verified_at_s > 0);
    let link = b.store.get(&f.at("a/b/link")).unwrap();
    assert_eq!((link.kind, link.target.as_deref()), (Kind::Symlink, Some(&b"c.txt"[..])));
}

#[test]
fn rescan_of_an_unchanged_tree_reports_nothing() {
    let f = Folder::new();
    for i in 0..150 {
        f.write(&format!("d{}/f{i}", i % 7), format!("{i}"));
    }
    let b = Bench::of(&f.path);
    b.scan();
    b.store.coverage();
    let report = b.scan();
    assert_eq!(report.counts.changes(), 0);
    assert_eq!(report.roots[0].state, RootState::Covered);
    assert!(b.store.changes().is_empty() && b.store.coverage().is_empty());
    let kept = b.store.0.lock();
    assert_eq!(kept.puts, 158);
    assert!(kept.largest_batch <= 50);
    assert_eq!(kept.unsorted_batches, 0);
}

#[test]
fn created_file_is_reported_with_its_hash() {
    let f = Folder::new();
    let b = Bench::of(&f.path);
    b.scan();
    let path = f.write("new", "x");
    b.scan();
    let change = only(b.store.changes());
    assert_kind(&change, ChangeKind::Created, &path);
    assert!(change.before.is_none());
    assert_eq!(change.after.unwrap().hashes.sha256.map(|h| h.to_vec()), Some(sha2_of(b"x")));
}

#[test]
fn modified_file_is_reported_with_old_and_new_state() {
    let f = Folder::new();
    let path = f.write("a", "one");
    let b = Bench::of(&f.path);
    b.scan();
    fs::write(&path, "three").unwrap();
    let report = b.scan();
    assert_eq!(report.counts.modified, 1);
    let change = only(b.store.changes());
    assert_kind(&change, ChangeKind::Modified, &path);
    assert_eq!(field_names(&change), ["size", "hash", "mtime", "ctime"]);
    assert_eq!(change.before.unwrap().size, 3);
    assert_eq!(change.after.unwrap().size, 5);
}

#[test]
fn content_changed_behind_restored_times_is_still_found() {
    let f = Folder::new();
    let path = f.write("a", "one");
    let b = Bench::of(&f.path);
    b.scan();
    let times = fs::metadata(&path).unwrap().modified().unwrap();
    fs::write(&path, "two").unwrap();
    fs::File::options().write(true).open(&path).unwrap().set_modified(times).unwrap();
    b.scan();
    let change = only(b.store.changes());
    assert_eq!(field_names(&change), ["hash", "ctime"], "mtime was set back, ctime cannot be");
}

#[test]
fn chmod_is_reported_as_mode_and_ctime_only() {
    let f = Folder::new();
    let path = f.write("a", "one");
    let b = Bench::of(&f.path);
    b.scan();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o4711)).unwrap();
    b.scan();
    let change = only(b.store.changes());
    assert_eq!(field_names(&change), ["mode", "ctime"]);
    assert_eq!(change.after.unwrap().mode, 0o4711);
}

#[test]
fn directory_chmod_and_new_entry_are_reported_separately() {
    let f = Folder::new();
    f.write("d/a", "one");
    let b = Bench::of(&f.path);
    b.scan();
    fs::set_permissions(f.at("d"), fs::Permissions::from_mode(0o700)).unwrap();
    f.write("d/b", "two");
    b.scan();
    assert_eq!(b.store.reported_changes(), [("created", f.at("d/b")), ("modified", f.at("d"))]);
}

#[test]
fn deleted_file_is_reported_with_its_last_state() {
    let f = Folder::new();
    let path = f.write("a", "one");
    let b = Bench::of(&f.path);
    b.scan();
    fs::remove_file(&path).unwrap();
    b.scan();
    let change = only(b.store.changes());
    assert_kind(&change, ChangeKind::Deleted, &path);
    assert_eq!(change.before.unwrap().size, 3);
    assert!(change.after.is_none());
    assert!(b.store.get(&path).is_none());
}

#[test]
fn every_item_below_a_deleted_directory_is_reported() {
    let f = Folder::new();
    f.write("top/d/e/a", "1");
    f.write("top/d/b", "2");
    f.write("top/dx", "a neighbour with the same beginning");
    let b = Bench::of(&f.path);
    b.scan();
    fs::remove_dir_all(f.at("top/d")).unwrap();
    let report = b.scan();
    assert_eq!(report.counts.deleted, 4);
    assert_eq!(
        b.store.reported_changes(),
        [
            ("deleted", f.at("top/d")),
            ("deleted", f.at("top/d/b")),
            ("deleted", f.at("top/d/e")),
            ("deleted", f.at("top/d/e/a")),
        ]
    );
    b.scan();
    assert!(b.store.changes().is_empty());
}

#[test]
fn directory_swapped_with_a_file_is_reported_per_item() {
    let f = Folder::new();
    f.write("x/a", "1");
    let b = Bench::of(&f.path);
    b.scan();
    fs::remove_dir_all(f.at("x")).unwrap();
    f.write("x", "now a file");
    b.scan();
    assert_eq!(b.store.reported_changes(), [("deleted", f.at("x/a")), ("modified", f.at("x"))]);
    fs::remove_file(f.at("x")).unwrap();
    f.write("x/a", "1");
    b.scan();
    assert_eq!(b.store.reported_changes(), [("created", f.at("x/a")), ("modified", f.at("x"))]);
}

#[test]
fn renamed_file_is_reported_as_delete_and_create() {
    let f = Folder::new();
    let old = f.write("old", "1");
    let b = Bench::of(&f.path);
    b.scan();
    fs::rename(&old, f.at("new")).unwrap();
    b.scan();
    assert_eq!(b.store.reported_changes(), [("created", f.at("new")), ("deleted", old)]);
}

#[test]
fn retargeted_symlink_is_reported() {
    let f = Folder::new();
    symlink("one", f.at("l")).unwrap();
    let b = Bench::of(&f.path);
    b.scan();
    fs::remove_file(f.at("l")).unwrap();
    symlink("two", f.at("l")).unwrap();
    b.scan();
    let change = only(b.store.changes());
    assert!(field_names(&change).contains(&"target_path"));
    assert_eq!(change.after.unwrap().target.unwrap(), b"two");
}

#[test]
fn extended_attributes_are_observed_sorted_and_bounded() {
    let f = Folder::new();
    let path = f.write("a", "1");
    let set = |name: &str, value: &[u8]| {
        rustix::fs::setxattr(&path, name, value, rustix::fs::XattrFlags::empty())
    };
    if set("user.b", b"2").is_err() {
        return needs::skip("this file system has no user attributes");
    }
    set("user.a", &[7; 300]).unwrap();
    let b = Bench::of(&f.path);
    b.scan();
    let o = b.store.get(&path).unwrap();
    let names: Vec<_> = o.xattrs.iter().map(|x| x.name.clone()).collect();
    assert_eq!(names, [b"user.a".to_vec(), b"user.b".to_vec()]);
    assert!(o.xattrs[0].value.starts_with(b"sha256:") && o.xattrs[0].value.len() == 7 + 64);
    assert_eq!(o.xattrs[1].value, b"2");
    set("user.b", b"3").unwrap();
    b.scan();
    let change = only(b.store.changes());
    assert_eq!(field_names(&change), ["ctime", "xattrs"]);
}

#[test]
fn directory_xattrs_beyond_the_stored_limit_are_compared() {
    let f = Folder::new();
    fs::create_dir(f.at("d")).unwrap();
    let set = |i: usize, value: &[u8]| {
        let flags = rustix::fs::XattrFlags::empty();
        rustix::fs::setxattr(f.at("d"), format!("user.n{i:03}"), value, flags)
    };
    if (0..70).any(|i| set(i, b"v").is_err()) {
        return needs::skip("this file system has no room for 70 user attributes");
    }
    let b = Bench::of(&f.path);
    b.scan();
    assert_eq!(b.store.get(&f.at("d")).unwrap().xattrs.len(), model::limits::XATTRS_MAX + 1);
    set(69, b"w").unwrap();
    b.scan();
    assert_eq!(field_names(&only(b.store.changes())), ["xattrs"]);
}

#[test]
fn added_digest_algorithms_are_computed_without_a_change() {
    let f = Folder::new();
    let path = f.write("a", "abc");
    let b = Bench::of(&f.path);
    b.scan();
    let mut watch = Watch::new(&f.path);
    watch.hashes = vec![Algorithm::Sha256, Algorithm::Sha1, Algorithm::Md5, Algorithm::Blake3];
    let b = b.again(Rules(vec![watch]));
    let report = b.scan();
    assert_eq!((report.counts.hashed, report.counts.changes()), (1, 0));
    let hashes = b.store.get(&path).unwrap().hashes;
    assert_eq!(hashes.sha1.map(|h| h.to_vec()), Some(common::sha1_of(b"abc")));
    assert!(hashes.md5.is_some() && hashes.blake3.is_some());
    assert_eq!(b.scan().counts.changes(), 0);
}

#[test]
fn only_selected_attributes_are_changes_but_state_is_updated() {
    let f = Folder::new();
    let path = f.write("a", "abc");
    let mut watch = Watch::new(&f.path);
    watch.attributes = vec![Attribute::Hash];
    let b = Bench::of_watch(watch);
    b.scan();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    b.scan();
    assert!(b.store.changes().is_empty());
    assert_eq!(b.store.get(&path).unwrap().mode, 0o600);
    fs::write(&path, "abd").unwrap();
    b.scan();
    assert_eq!(field_names(&only(b.store.changes())), ["hash"]);
}

#[test]
fn empty_hashes_disable_content_reads() {
    let f = Folder::new();
    let path = f.write("a", "abc");
    let mut watch = Watch::new(&f.path);
    watch.hashes = Vec::new();
    let b = Bench::of_watch(watch);
    let report = b.scan();
    assert_eq!((report.counts.hashed, report.counts.bytes_hashed), (0, 0));
    assert!(b.store.get(&path).unwrap().hashes.is_empty());
    fs::write(&path, "abcd").unwrap();
    b.scan();
    assert_eq!(field_names(&only(b.store.changes())), ["size", "mtime", "ctime"]);
}

#[test]
fn oversized_file_is_not_hashed_and_a_new_limit_is_no_change() {
    let f = Folder::new();
    let path = f.write("a", [1u8; 100]);
    let mut watch = Watch::new(&f.path);
    watch.hash_bytes_max = 99;
    let b = Bench::of_watch(watch.clone());
    let report = b.scan();
    assert_eq!(report.counts.errors.get("too large"), Some(&1));
    assert_eq!(report.counts.bytes_hashed, 0);
    let o = b.store.get(&path).unwrap();
    assert_eq!((o.error, o.size), (Some(model::ObserveError::TooLarge), 100));
    watch.hash_bytes_max = 100;
    let b = b.again(Rules(vec![watch]));
    assert_eq!(b.scan().counts.changes(), 0);
    assert!(b.store.get(&path).unwrap().hashes.sha256.is_some());
}

/// Runs `chattr`, which needs root. Returns false where the file system has no flags.
fn chattr(flag: &str, path: &Path) -> bool {
    Command::new("chattr").arg(flag).arg(path).status().is_ok_and(|status| status.success())
}

#[test]
fn flags_are_compared_from_the_first_scan_that_knows_them() {
    let f = Folder::new();
    let (path, other) = (f.write("file", "x"), f.write("other", "x"));
    let b = Bench::of(&f.path);
    b.scan();
    if b.store.get(&path).unwrap().flags.is_none() || !chattr("+i", &path) {
        needs::skip("chattr needs root and a file system with flags");
        return;
    }
    b.scan();
    let change = only(b.store.changes());
    assert_eq!(field_names(&change), ["ctime", "flags"]);
    let names = |o: Option<Observation>| o.unwrap().flags.unwrap().names();
    assert_eq!((names(change.before), names(change.after)), (vec![], vec!["immutable".into()]));
    // As an earlier version of the agent observed them.
    b.store.0.lock().items.values_mut().for_each(|o| o.flags = None);
    assert_eq!(b.scan().counts.changes(), 0);
    assert_eq!(names(b.store.get(&path)), ["immutable"]);
    assert_eq!(names(b.store.get(&other)), Vec::<String>::new());
    assert!(chattr("-i", &path));
    b.scan();
    assert_eq!(field_names(&only(b.store.changes())), ["ctime", "flags"]);
}
