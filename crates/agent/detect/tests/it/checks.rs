//! Checks of single names and directories compare exactly what they name.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::common::{Bench, Folder, assert_kind, check, field_names, only, path_of};
use detect::{Deferred, Rules, Watch};
use model::notification::Detection;
use model::{Attribution, ChangeKind, Check, CoverageKind, Depth};

fn watched(f: &Folder) -> Bench {
    let b = Bench::of(&f.path);
    b.scan();
    b.store.coverage();
    b
}

#[test]
fn check_of_a_name_leaves_other_names_alone() {
    let f = Folder::new();
    let (one, other) = (f.write("d/one", "1"), f.write("d/other", "1"));
    let b = watched(&f);
    fs::write(&one, "2").unwrap();
    fs::write(&other, "2").unwrap();
    let report = b.check([one.as_path()]);
    assert_eq!((report.counts.files, report.counts.modified), (1, 1));
    assert_kind(&only(b.store.changes()), ChangeKind::Modified, &one);
    b.check([other.as_path()]);
    assert_kind(&only(b.store.changes()), ChangeKind::Modified, &other);
    assert_eq!(b.scan().counts.changes(), 0);
}

/// Makes an item with `make`, watches it, and replaces it by a directory with the same inode number.
fn replaced_by_directory(make: fn(&Path)) -> Option<(Folder, Bench, PathBuf)> {
    for _ in 0..1_000 {
        let f = Folder::new();
        let path = f.at("item");
        make(&path);
        let b = watched(&f);
        let before = path.symlink_metadata().unwrap();
        if before.is_dir() {
            fs::remove_dir(&path).unwrap();
        } else {
            fs::remove_file(&path).unwrap();
        }
        fs::create_dir(&path).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o777)).unwrap();
        if path.symlink_metadata().unwrap().ino() == before.ino() {
            return Some((f, b, path));
        }
    }
    needs::skip("the file system of the temporary folder uses no inode number again");
    None
}

#[test]
fn directory_with_the_inode_number_of_what_it_replaced_is_found() {
    let makes: [fn(&Path); 3] = [
        |path| fs::write(path, "x").unwrap(),
        |path| symlink("target", path).unwrap(),
        |path| fs::create_dir(path).unwrap(),
    ];
    for make in makes {
        let Some((_folder, b, path)) = replaced_by_directory(make) else { return };
        let below = path.join("below");
        fs::write(&below, "x").unwrap();
        let seen = Detection { notices: 1, is_created: true, ..Detection::default() };
        b.run_checks(&[Check { seen: Some(Arc::new(seen)), ..check(&path, Depth::Below) }]);
        let changed: Vec<PathBuf> = b.store.changes().iter().map(|c| path_of(&c.key)).collect();
        let number = |path: &Path| changed.iter().filter(|changed| *changed == path).count();
        assert_eq!((number(&path), number(&below)), (1, 1), "{changed:?}");
        assert_eq!(b.scan().counts.changes(), 0, "a scan finds nothing more");
    }
}

#[test]
fn save_by_rename_is_one_modification_with_before_and_after() {
    let f = Folder::new();
    let path = f.write("file", "old");
    let b = watched(&f);
    let temporary = f.write("file.tmp", "new");
    fs::rename(&temporary, &path).unwrap();
    b.check([temporary.as_path(), path.as_path()]);
    let change = only(b.store.changes());
    assert_kind(&change, ChangeKind::Modified, &path);
    assert!(change.before.is_some() && field_names(&change).contains(&"hash"));
}

#[test]
fn rename_to_a_new_name_is_a_move() {
    let f = Folder::new();
    let old = f.write("a/old", "x");
    f.write("b/stays", "x");
    let b = watched(&f);
    let new = f.at("b/new");
    fs::rename(&old, &new).unwrap();
    b.check([old.as_path(), new.as_path()]);
    let change = only(b.store.changes());
    assert_kind(&change, ChangeKind::Moved, &new);
    assert_eq!(change.from.map(|key| path_of(&key)), Some(old));
    assert!(change.fields.is_empty(), "{:?}", change.fields);
    assert_eq!(b.scan().counts.changes(), 0);
}

#[test]
fn new_directory_is_compared_completely() {
    let f = Folder::new();
    let b = watched(&f);
    f.write("new/deep/file", "x");
    b.check([f.at("new").as_path()]);
    let created = |name: &str| ("created", f.at(name));
    let expected = [created("new"), created("new/deep"), created("new/deep/file")];
    assert_eq!(b.store.reported_changes(), expected);
}

#[test]
fn directory_and_below_differ_in_depth() {
    let f = Folder::new();
    let (upper, lower) = (f.write("d/upper", "1"), f.write("d/e/lower", "1"));
    let b = watched(&f);
    fs::write(&upper, "2").unwrap();
    fs::write(&lower, "2").unwrap();
    b.run_checks(&[check(&f.at("d"), Depth::Directory)]);
    assert_eq!(b.store.reported_changes(), [("modified", upper)]);
    b.run_checks(&[check(&f.path, Depth::Below)]);
    assert_eq!(b.store.reported_changes(), [("modified", lower)]);
}

#[test]
fn name_in_a_removed_directory_deletes_the_directory() {
    let f = Folder::new();
    let inside = f.write("gone/deep/file", "x");
    let b = watched(&f);
    fs::remove_dir_all(f.at("gone")).unwrap();
    b.check([inside.as_path()]);
    let deleted = |name: &str| ("deleted", f.at(name));
    let expected = [deleted("gone"), deleted("gone/deep"), deleted("gone/deep/file")];
    assert_eq!(b.store.reported_changes(), expected);
}

#[test]
fn replaced_directory_is_compared_completely() {
    let f = Folder::new();
    f.write("d/old", "x");
    f.write("spare/new", "x");
    let b = watched(&f);
    rustix::fs::renameat_with(
        rustix::fs::CWD,
        f.at("d"),
        rustix::fs::CWD,
        f.at("spare"),
        rustix::fs::RenameFlags::EXCHANGE,
    )
    .unwrap();
    b.check([f.at("d").as_path(), f.at("spare").as_path()]);
    b.store.changes();
    assert!(b.store.get(&f.at("d/new")).is_some() && b.store.get(&f.at("d/old")).is_none());
    assert!(b.store.get(&f.at("spare/old")).is_some());
    assert_eq!(b.scan().counts.changes(), 0);
}

#[test]
fn name_outside_the_rules_is_skipped() {
    let f = Folder::new();
    f.write("in/d/file", "x");
    let watch = Watch {
        ignore: vec!["*.swp".into(), "/cache/".into()],
        max_depth: Some(2),
        ..Watch::new(f.at("in"))
    };
    let b = Bench::of_watch(watch);
    b.scan();
    let names = ["in/d/x.swp", "in/cache/deep/file", "in/d/e/deeper", "out"];
    let paths: Vec<PathBuf> = names.iter().map(|name| f.write(name, "x")).collect();
    b.check(paths.iter().map(PathBuf::as_path));
    // The directory is within the depth, what it contains is not.
    assert_eq!(b.store.reported_changes(), [("created", f.at("in/d/e"))]);
    assert_eq!(b.scan().counts.changes(), 0);
}

#[test]
fn root_itself_is_checked_by_its_name() {
    let f = Folder::new();
    f.write("root/file", "x");
    let root = f.at("root");
    let b = Bench::of(&root);
    b.scan();
    fs::set_permissions(&root, fs::Permissions::from_mode(0o711)).unwrap();
    b.check([root.as_path()]);
    let change = only(b.store.changes());
    assert_kind(&change, ChangeKind::Modified, &root);
    assert_eq!(field_names(&change), ["mode"]);
}

#[test]
fn missing_root_is_a_gap_and_deletes_nothing() {
    let f = Folder::new();
    let inside = f.write("root/file", "x");
    let b = Bench::of(&f.at("root"));
    b.scan();
    b.store.coverage();
    fs::remove_dir_all(f.at("root")).unwrap();
    b.check([inside.as_path()]);
    assert!(b.store.changes().is_empty());
    assert_eq!(b.store.gaps(), [CoverageKind::RootGone]);
    f.write("root/file", "y");
    b.run_checks(&[check(&f.at("root"), Depth::Below)]);
    let paths: Vec<PathBuf> = b.store.reported_changes().into_iter().map(|c| c.1).collect();
    assert!(paths.contains(&inside), "{paths:?}");
    assert_eq!(b.store.gaps(), [CoverageKind::RootGone], "the gap is closed");
}

#[test]
fn file_as_root_is_checked() {
    let f = Folder::new();
    let path = f.write("single", "1");
    let b = Bench::of(&path);
    b.scan();
    fs::write(&path, "2").unwrap();
    b.check([path.as_path()]);
    assert_kind(&only(b.store.changes()), ChangeKind::Modified, &path);
    fs::rename(f.write("tmp", "3"), &path).unwrap();
    b.check([path.as_path()]);
    assert_kind(&only(b.store.changes()), ChangeKind::Modified, &path);
}

#[test]
fn name_behind_a_followed_link_is_checked() {
    let f = Folder::new();
    f.write("out/file", "1");
    f.write("in/x", "x");
    symlink(f.at("out"), f.at("in/link")).unwrap();
    let watch = Watch { follow_symlinks: true, ..Watch::new(f.at("in")) };
    let b = Bench::of_watch(watch);
    b.scan();
    f.write("out/file", "2");
    let path = f.at("in/link/file");
    b.check([path.as_path()]);
    assert_kind(&only(b.store.changes()), ChangeKind::Modified, &path);
}

#[test]
fn overlapping_checks_report_each_change_once() {
    let f = Folder::new();
    let inside = f.write("d/e/file", "1");
    let b = watched(&f);
    fs::write(&inside, "2").unwrap();
    let created = f.write("d/e/new/x", "1");
    b.run_checks(&[
        check(&inside, Depth::Name),
        check(&created, Depth::Name),
        check(&f.at("d/e"), Depth::Directory),
        check(&f.at("d"), Depth::Below),
    ]);
    let expected = [("created", f.at("d/e/new")), ("created", created), ("modified", inside)];
    assert_eq!(b.store.reported_changes(), expected);
}

#[test]
fn writer_is_named_only_for_the_name_that_it_changed() {
    let f = Folder::new();
    let b = watched(&f);
    let directory = f.at("new");
    f.write("new/by someone else", "x");
    let actor = model::Actor { attribution: Attribution::Exact, ..model::Actor::default() };
    let seen = Detection {
        first_us: 5,
        last_us: 7,
        notices: 2,
        actors: vec![actor],
        ..Detection::default()
    };
    let mut named = check(&directory, Depth::Name);
    named.seen = Some(Arc::new(seen.clone()));
    b.run_checks(&[named]);
    for change in b.store.changes() {
        let told = change.seen.expect("found by a check");
        if path_of(&change.key) == directory {
            assert_eq!(*told, seen);
        } else {
            assert!(told.actors.is_empty(), "the writer of the entry is not known");
        }
    }
}

#[test]
fn large_file_waits_for_a_check_of_its_own() {
    let f = Folder::new();
    let (small, large) = (f.write("small", "1"), f.write("large", "1"));
    let b = watched(&f);
    fs::write(&small, "2").unwrap();
    fs::File::options().write(true).open(&large).unwrap().set_len(9 << 20).unwrap();
    let report = b.check([small.as_path(), large.as_path()]);
    assert_eq!(b.store.reported_changes(), [("modified", small)]);
    assert_eq!(report.large.len(), 1);
    b.run_large_checks(&report.large);
    assert_eq!(b.store.reported_changes(), [("modified", large)]);
}

#[test]
fn nested_root_answers_for_its_own_names() {
    let f = Folder::new();
    let inner = f.write("in/inner/file.log", "1");
    let outer = Watch { ignore: vec!["*.log".into()], ..Watch::new(f.at("in")) };
    let b = Bench::new(Rules(vec![outer, Watch::new(f.at("in/inner"))]));
    b.scan();
    fs::write(&inner, "2").unwrap();
    b.check([inner.as_path(), Path::new("/not/watched")]);
    assert_kind(&only(b.store.changes()), ChangeKind::Modified, &inner);
}

#[test]
fn created_and_removed_name_is_transient() {
    let f = Folder::new();
    let known = f.write("known", "x");
    let watch = Watch { ignore: vec!["*.swp".into()], ..Watch::new(f.path.clone()) };
    let b = Bench::of_watch(watch);
    b.scan();
    let there = f.write("there", "x");
    fs::remove_file(&known).unwrap();
    let (gone, ignored, unnoticed) = (f.at("gone"), f.at("gone.swp"), f.at("unnoticed"));
    let seen = Detection { first_us: 5, notices: 2, is_transient: true, ..Detection::default() };
    let noticed = |path: &PathBuf| {
        let mut check = check(path, Depth::Name);
        check.seen = Some(Arc::new(seen.clone()));
        check
    };
    let mut checks: Vec<_> = [&known, &there, &gone, &ignored].map(noticed).to_vec();
    checks.push(check(&unnoticed, Depth::Name));
    let report = b.run_checks(&checks);
    let [transient] = <[_; 1]>::try_from(report.transient).unwrap();
    assert_eq!((path_of(&transient.key), transient.seen.unwrap().first_us), (gone, 5));
    assert_eq!(b.store.reported_changes(), [("created", there), ("deleted", known)]);
}

#[test]
fn names_of_a_vanished_directory_wait_for_its_own_name() {
    let f = Folder::new();
    let (inner, outer) = (f.write("d/e/inner", "x"), f.write("d/outer", "x"));
    let b = watched(&f);
    fs::remove_dir_all(f.at("d")).unwrap();
    let noticed = |path: &Path| {
        let actor = model::Actor { attribution: Attribution::Exact, ..model::Actor::default() };
        let seen = Detection { notices: 1, actors: vec![actor], ..Detection::default() };
        Check { seen: Some(Arc::new(seen)), ..check(path, Depth::Name) }
    };
    let report = b.run_checks(&[noticed(&inner), noticed(&outer)]);
    assert_eq!(b.store.changes(), []);
    let waiting = |(directory, names): (&str, &[&Path])| Deferred {
        directory: check(&f.at(directory), Depth::Name).key,
        names: names.iter().map(|path| check(path, Depth::Name).key).collect(),
    };
    let expected: [(&str, &[&Path]); 2] = [("d/e", &[&inner]), ("d", &[&inner, &outer])];
    assert_eq!(report.deferred, expected.map(waiting));
    let directories = [noticed(&f.at("d/e")), noticed(&f.at("d"))];
    let together = [noticed(&inner), noticed(&outer)].into_iter().chain(directories);
    let report = b.run_checks(&together.collect::<Vec<_>>());
    assert_eq!(report.deferred, []);
    let changes = b.store.changes();
    assert_eq!(changes.len(), 4);
    for change in changes {
        let actors = change.seen.map_or(0, |seen| seen.actors.len());
        assert_eq!(actors, 1, "{:?} has its writer", path_of(&change.key));
    }
    let report = b.run_checks(&[check(&inner, Depth::Name)]);
    assert_eq!(report.deferred, [], "what no notification named does not wait");
}

#[test]
fn name_in_a_directory_that_moved_waits_for_the_move() {
    let f = Folder::new();
    f.write("d/old", "x");
    let b = watched(&f);
    fs::rename(f.at("d"), f.at("moved")).unwrap();
    let new = f.write("moved/new", "x");
    let noticed = |path: &Path| {
        let seen = Detection { notices: 1, ..Detection::default() };
        Check { seen: Some(Arc::new(seen)), ..check(path, Depth::Name) }
    };
    let report = b.run_checks(&[noticed(&new)]);
    assert_eq!((report.deferred.len(), b.store.changes().len()), (1, 0));
    b.run_checks(&[noticed(&new), noticed(&f.at("d")), noticed(&f.at("moved"))]);
    let expected = [("created", new), ("moved", f.at("moved"))];
    assert_eq!(b.store.reported_changes(), expected);
}

#[test]
fn what_moved_along_has_the_writer_of_its_directory() {
    let f = Folder::new();
    f.write("leaves/file", "x");
    let b = watched(&f);
    fs::rename(f.at("leaves"), f.path.with_extension("away")).unwrap();
    f.write("arrives/file", "x");
    let ctime = |path: &Path| path.metadata().unwrap().ctime() as u64 * 1_000_000;
    let moved = |path: &Path, depth, moved_after_us| {
        let actor = model::Actor { attribution: Attribution::Exact, ..model::Actor::default() };
        let moved_after_us = Some(moved_after_us);
        let actors = vec![actor];
        let seen = Detection { notices: 1, moved_after_us, actors, ..Detection::default() };
        Check { seen: Some(Arc::new(seen)), ..check(path, depth) }
    };
    let attributions = |checks: &[Check]| {
        b.run_checks(checks);
        let seen = b.store.changes().into_iter().map(|change| change.seen.unwrap().actors.clone());
        seen.map(|actors| actors[0].attribution).collect::<Vec<_>>()
    };
    let exact = vec![Attribution::Exact; 2];
    assert_eq!(attributions(&[moved(&f.at("leaves"), Depth::Name, 1)]), exact);
    let arrives = f.at("arrives");
    let later = ctime(&arrives.join("file")) + 60_000_000;
    assert_eq!(attributions(&[moved(&arrives, Depth::Below, later)]), exact);
    let other = f.write("other/file", "x");
    let before = ctime(&other) - 60_000_000;
    let doubtful = [Attribution::Uncertain, Attribution::Exact];
    let mut found = attributions(&[moved(&f.at("other"), Depth::Below, before)]);
    found.sort();
    assert_eq!(found, [doubtful[1], doubtful[0]], "it may have been made there since");
    fs::remove_dir_all(f.path.with_extension("away")).unwrap();
}

#[test]
fn rule_without_attribution_names_no_writer() {
    let f = Folder::new();
    let b = Bench::of_watch(Watch { attribution: false, ..Watch::new(f.path.clone()) });
    b.scan();
    let path = f.write("new", "x");
    let actor = model::Actor { attribution: Attribution::Exact, ..model::Actor::default() };
    let seen = Detection { first_us: 5, notices: 2, actors: vec![actor], ..Detection::default() };
    let mut named = check(&path, Depth::Name);
    named.seen = Some(Arc::new(seen.clone()));
    b.run_checks(&[named]);
    let told = only(b.store.changes()).seen.unwrap();
    assert_eq!(*told, Detection { actors: Vec::new(), ..seen });
}
