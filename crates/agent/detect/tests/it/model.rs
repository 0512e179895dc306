//! Model test with random edits of a real tree, scans and restarts. After each scan the baseline
//! equals an independent walk, and every edit is reported as exactly one change. The same holds for
//! checks of the edited names alone, in which a rename may be one move.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use crate::common::{self, Bench, Folder, Seen, independent_walk, path_of, stored_items};
use detect::Rules;
use proptest::prelude::*;

#[derive(Debug, Clone)]
enum Step {
    Write { at: u8, content: u8 },
    MakeDirectory { at: u8 },
    Link { at: u8, target: u8 },
    Remove { pick: u16 },
    Rename { pick: u16, at: u8 },
    Mode { pick: u16, mode: u8 },
    HardLink { pick: u16, at: u8 },
    Scan,
    Check,
    Restart,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (any::<u8>(), any::<u8>()).prop_map(|(at, content)| Step::Write { at, content }),
        3 => any::<u8>().prop_map(|at| Step::MakeDirectory { at }),
        1 => (any::<u8>(), any::<u8>()).prop_map(|(at, target)| Step::Link { at, target }),
        3 => any::<u16>().prop_map(|pick| Step::Remove { pick }),
        2 => (any::<u16>(), any::<u8>()).prop_map(|(pick, at)| Step::Rename { pick, at }),
        2 => (any::<u16>(), any::<u8>()).prop_map(|(pick, mode)| Step::Mode { pick, mode }),
        1 => (any::<u16>(), any::<u8>()).prop_map(|(pick, at)| Step::HardLink { pick, at }),
        2 => Just(Step::Scan),
        4 => Just(Step::Check),
        1 => Just(Step::Restart),
    ]
}

/// Returns one of a few paths (up to three levels of four names), so that edits often collide.
fn short_path(root: &Path, at: u8) -> PathBuf {
    let names = ["a", "b", "c", "d"];
    let mut path = root.join(names[usize::from(at & 3)]);
    for shift in [2, 4] {
        if at >> (shift + 2) & 1 == 1 {
            path.push(names[usize::from(at >> shift & 3)]);
        }
    }
    path
}

fn pick(root: &Path, pick: u16) -> Option<PathBuf> {
    let all: Vec<PathBuf> = independent_walk(root).into_keys().filter(|p| p != root).collect();
    if all.is_empty() { None } else { all.get(usize::from(pick) % all.len()).cloned() }
}

/// Applies a step to the disk. Errors of the file system are ignored.
fn edit(root: &Path, step: &Step) {
    match step {
        Step::Write { at, content } => {
            let path = short_path(root, *at);
            if !path.is_symlink() {
                let _ = fs::write(path, vec![*content; usize::from(*content)]);
            }
        }
        Step::MakeDirectory { at } => {
            let _ = fs::create_dir(short_path(root, *at));
        }
        Step::Link { at, target } => {
            let _ = symlink(short_path(root, *target), short_path(root, *at));
        }
        Step::Remove { pick: n } => {
            let Some(path) = pick(root, *n) else { return };
            let _ = fs::remove_dir_all(&path).or_else(|_| fs::remove_file(&path));
        }
        Step::Rename { pick: n, at } => {
            let Some(path) = pick(root, *n) else { return };
            let _ = fs::rename(path, short_path(root, *at));
        }
        Step::Mode { pick: n, mode } => {
            let Some(path) = pick(root, *n).filter(|p| !p.is_symlink()) else { return };
            let mode = fs::Permissions::from_mode(0o400 | u32::from(*mode));
            let _ = fs::set_permissions(path, mode);
        }
        Step::HardLink { pick: n, at } => {
            let Some(path) = pick(root, *n) else { return };
            let _ = fs::hard_link(path, short_path(root, *at));
        }
        Step::Scan | Step::Check | Step::Restart => {}
    }
}

/// Returns the changes that must be reported between two states of the disk, one per path at most.
fn expected(before: &Seen, after: &Seen) -> BTreeMap<PathBuf, &'static str> {
    let mut told = BTreeMap::new();
    for (path, then) in before {
        match after.get(path) {
            None => told.insert(path.clone(), "deleted"),
            Some(now) if now != then => told.insert(path.clone(), "modified"),
            Some(_) => None,
        };
    }
    for path in after.keys().filter(|p| !before.contains_key(*p)) {
        told.insert(path.clone(), "created");
    }
    told
}

/// Returns the names that a kernel would notify for an edit: those that differ between two states
/// of the disk, and every name of an inode that was touched. A rename names only the directory, not
/// what lies below it; a removal removes each entry.
fn notified_names(step: &Step, before: &Seen, after: &Seen) -> BTreeSet<PathBuf> {
    let all = matches!(step, Step::Remove { .. });
    let differing: Vec<&PathBuf> = before
        .keys()
        .chain(after.keys())
        .filter(|path| before.get(*path) != after.get(*path))
        .collect();
    let inode = |seen: &Seen, path: &PathBuf| seen.get(path).map(|item| (item.1, item.2));
    let inodes: BTreeSet<_> = differing
        .iter()
        .flat_map(|path| [inode(before, path), inode(after, path)])
        .flatten()
        .collect();
    let is_new_or_gone = |path: &Path| before.contains_key(path) != after.contains_key(path);
    after
        .keys()
        .chain(differing.iter().copied())
        .filter(|path| {
            before.get(*path) != after.get(*path)
                || inode(after, path).is_some_and(|inode| inodes.contains(&inode))
        })
        .filter(|path| all || !(is_new_or_gone(path) && path.parent().is_some_and(is_new_or_gone)))
        .cloned()
        .collect()
}

/// Removes from the expected changes those that a move reports. What lies below a moved directory
/// and was changed too is reported on its own.
fn take_move(
    expected: &mut BTreeMap<PathBuf, &'static str>,
    told: &BTreeMap<PathBuf, &'static str>,
    from: &Path,
    to: &Path,
) {
    let old: Vec<PathBuf> =
        expected.keys().filter(|path| path.starts_with(from)).cloned().collect();
    for old in old {
        let new = to.join(old.strip_prefix(from).unwrap());
        let new = if old == from { to.to_path_buf() } else { new };
        let pair = |of: &BTreeMap<_, _>| {
            of.get(&old) == Some(&"deleted") && of.get(&new) == Some(&"created")
        };
        if pair(expected) && !pair(told) {
            expected.remove(&old);
            expected.remove(&new);
        }
    }
}

fn check(
    b: &Bench,
    root: &Path,
    before: &mut Seen,
    names: Option<&BTreeSet<PathBuf>>,
) -> Result<(), TestCaseError> {
    let now = independent_walk(root);
    match names {
        None => drop(b.scan()),
        Some(names) => drop(b.check(names.iter().map(PathBuf::as_path))),
    }
    prop_assert_eq!(&stored_items(&b.store), &now);
    let mut expected = expected(before, &now);
    let mut moved: Vec<(PathBuf, PathBuf)> = Vec::new();
    let mut told = BTreeMap::new();
    for change in b.store.changes() {
        let fields = common::field_names(&change);
        // A change of link count or ctime alone is correct, but the walk here does not compare
        // them.
        let beside = !fields.is_empty() && fields.iter().all(|f| matches!(*f, "links" | "ctime"));
        let path = path_of(&change.key);
        if let Some(from) = &change.from {
            prop_assert!(names.is_some(), "a scan reports no moves");
            moved.push((path_of(from), path));
            continue;
        }
        if !(beside && before.get(&path) == now.get(&path)) {
            let twice = told.insert(path, change.kind.name());
            prop_assert_eq!(twice, None, "told twice: {:?}", change.key);
        }
    }
    // The entries of a moved directory may have moved on: deepest first.
    moved.sort();
    for (from, to) in moved.iter().rev() {
        take_move(&mut expected, &told, from, to);
    }
    prop_assert_eq!(told, expected);
    *before = now;
    Ok(())
}

fn run(steps: &[Step]) -> Result<(), TestCaseError> {
    let f = Folder::new();
    f.write("a/b", "first");
    let mut b = Bench::of(&f.path);
    b.scan();
    let mut before = independent_walk(&f.path);
    let mut names = BTreeSet::new();
    for step in steps {
        match step {
            Step::Scan => {
                check(&b, &f.path, &mut before, None)?;
                names.clear();
            }
            Step::Check => {
                check(&b, &f.path, &mut before, Some(&names))?;
                names.clear();
            }
            Step::Restart => b = b.again(Rules::of_paths([&f.path])),
            step => {
                let was = independent_walk(&f.path);
                edit(&f.path, step);
                names.extend(notified_names(step, &was, &independent_walk(&f.path)));
            }
        }
    }
    check(&b, &f.path, &mut before, Some(&names))?;
    check(&b, &f.path, &mut before, None)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn baseline_equals_the_disk_and_every_edit_is_reported_once(
        steps in prop::collection::vec(step(), 1..60)
    ) {
        run(&steps)?;
    }
}
