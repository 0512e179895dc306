//! Changes are due under their right names: new trees, removed trees, links, exchanges and mounts.
//! These tests need root and fanotify with file handles; where either is missing, leave them out
//! with `--skip privileged`.

use std::fs::{self, File, OpenOptions};
use std::io::Write as _;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::common::{self, Checker, Mount, folder, root};
use model::Depth;
use rustix::fs::{AtFlags, CWD, RenameFlags};
use watch::{Options, monotonic_ns};

fn now(path: PathBuf) -> (PathBuf, u64) {
    (path, monotonic_ns())
}

#[test]
fn privileged_nested_new_directories_are_all_found() {
    let folder = folder();
    let top = folder.path().join("mount");
    let _mount = Mount::new("tmpfs", "size=64m", &top);
    let checker = Checker::start(root(&top));
    let mut changes = Vec::new();
    for number in 0..5_000 {
        let outer = top.join(format!("n{number}"));
        let inner = outer.join("s");
        let file = inner.join("f");
        fs::create_dir(&outer).unwrap();
        fs::create_dir(&inner).unwrap();
        fs::write(&file, b"x").unwrap();
        changes.extend([now(outer), now(inner), now(file)]);
    }
    checker.wait_for(&changes);
    assert_eq!(checker.watcher.counters().overflows, 0);
    // The handles of all 10,000 new directories are known: removals have their paths.
    let pause = checker.watcher.pause_reader();
    let mut changes = Vec::new();
    for number in 0..5_000 {
        let outer = top.join(format!("n{number}"));
        let paths = [outer.join("s/f"), outer.join("s"), outer.clone()];
        fs::remove_dir_all(&outer).unwrap();
        changes.extend(paths.map(now));
    }
    drop(pause);
    checker.wait_for(&changes);
    let lost = changes.iter().filter(|(path, changed)| !checker.saw_name(path, *changed)).count();
    assert_eq!(lost, 0, "each removed entry is due by its name");
    checker.settle(&top);
    let directories = checker.watcher.counters().directories;
    assert!(directories < 20, "{directories} directories are left in the index");
}

#[test]
fn privileged_writes_without_a_close_are_found() {
    let top = folder();
    let path = top.path().join("f");
    fs::write(&path, b"before").unwrap();
    let checker = Checker::start(root(top.path()));
    let mut open = OpenOptions::new().append(true).open(&path).unwrap();
    for content in [b"a", b"b"] {
        open.write_all(content).unwrap();
        checker.wait_for(&[now(path.clone())]);
    }
    drop(open);
    checker.settle(top.path());
    let name = std::ffi::CString::new(path.to_str().unwrap()).unwrap();
    #[expect(unsafe_code, reason = "the standard library only truncates open files")]
    // SAFETY: the path ends with a zero byte.
    let result = unsafe { libc::truncate(name.as_ptr(), 3) };
    assert_eq!(result, 0);
    checker.wait_for(&[now(path)]);
}

#[test]
fn privileged_nameless_file_is_found_under_its_later_name() {
    let top = folder();
    let checker = Checker::start(root(top.path()));
    let mut file =
        OpenOptions::new().write(true).custom_flags(libc::O_TMPFILE).open(top.path()).unwrap();
    file.write_all(b"one").unwrap();
    let linked = top.path().join("linked");
    let own = format!("/proc/self/fd/{}", file.as_raw_fd());
    rustix::fs::linkat(CWD, own, CWD, &linked, AtFlags::SYMLINK_FOLLOW).unwrap();
    checker.wait_for(&[now(linked.clone())]);
    file.write_all(b"two").unwrap();
    checker.wait_for(&[now(linked.clone())]);
    drop(file);
    checker.wait_for(&[now(linked)]);
}

#[test]
fn privileged_write_through_a_link_outside_is_found() {
    let folder = folder();
    let (top, outside) = (folder.path().join("root"), folder.path().join("outside"));
    fs::create_dir(&top).unwrap();
    fs::write(top.join("f"), b"x").unwrap();
    fs::hard_link(top.join("f"), &outside).unwrap();
    let checker = Checker::start(root(&top));
    fs::write(&outside, b"changed").unwrap();
    checker.wait_for(&[now(top.join("f"))]);
    // A rename inside keeps the file known.
    fs::rename(top.join("f"), top.join("g")).unwrap();
    checker.wait_for(&[now(top.join("g"))]);
    fs::set_permissions(&outside, fs::Permissions::from_mode(0o600)).unwrap();
    checker.wait_for(&[now(top.join("g"))]);
}

/// Makes a link of a watched file in another place, writes through it, and removes it, without a pause
/// and then with pauses.
fn write_through_new_links(top: &Path) {
    let (root_path, outside) = (top.join("root"), top.join("outside"));
    fs::create_dir_all(root_path.join("sub")).unwrap();
    fs::create_dir(&outside).unwrap();
    let files = ["a", "b", "sub/c"].map(|name| root_path.join(name));
    for file in &files {
        fs::write(file, b"x").unwrap();
    }
    let checker = Checker::start(root(&root_path));
    for file in &files {
        let link = outside.join("link");
        fs::hard_link(file, &link).unwrap();
        fs::write(&link, b"changed at once").unwrap();
        fs::remove_file(&link).unwrap();
        checker.wait_for(&[now(file.clone())]);
    }
    let (file, link) = (&files[2], outside.join("kept"));
    fs::hard_link(file, &link).unwrap();
    checker.wait_for(&[now(file.clone())]);
    let moved = root_path.join("moved");
    fs::rename(file, &moved).unwrap();
    checker.wait_for(&[now(moved.clone())]);
    fs::write(&link, b"changed later").unwrap();
    checker.wait_for(&[now(moved)]);
    let created = root_path.join("created");
    fs::write(&created, b"x").unwrap();
    fs::hard_link(&created, outside.join("at once")).unwrap();
    fs::write(outside.join("at once"), b"changed").unwrap();
    checker.wait_for(&[now(created)]);
    let pids = checker.batches().concat().into_iter().flat_map(|due| due.notices.writers);
    assert!(pids.into_iter().all(|writer| writer.pid == std::process::id()));
}

#[test]
fn privileged_write_through_a_new_link_is_found() {
    write_through_new_links(folder().path());
}

#[test]
fn privileged_write_through_a_new_link_on_tmpfs_is_found() {
    let folder = folder();
    let top = folder.path().join("mount");
    let _mount = Mount::new("tmpfs", "size=16m", &top);
    write_through_new_links(&top);
}

#[test]
fn privileged_write_through_a_new_link_on_xfs_is_found() {
    if Command::new("mkfs.xfs").arg("-V").output().is_err() {
        needs::skip("mkfs.xfs is not installed");
        return;
    }
    let folder = folder();
    let (image, top) = (folder.path().join("image"), folder.path().join("mount"));
    File::create(&image).unwrap().set_len(400 << 20).unwrap();
    common::run("mkfs.xfs", &["-q".as_ref(), image.as_os_str()]);
    let _mount = Mount::image(&image, &top);
    write_through_new_links(&top);
}

#[test]
fn privileged_exchanged_directories_are_compared_completely() {
    let top = folder();
    let (one, other) = (top.path().join("one"), top.path().join("other"));
    for directory in [&one, &other] {
        fs::create_dir_all(directory.join("s")).unwrap();
        fs::write(directory.join("s/f"), b"x").unwrap();
    }
    let checker = Checker::start(root(top.path()));
    rustix::fs::renameat_with(CWD, &one, CWD, &other, RenameFlags::EXCHANGE).unwrap();
    checker.wait_for(&[now(one.clone()), now(other.clone())]);
    let trees = checker.batches().concat();
    let trees: Vec<_> = trees.iter().filter(|due| due.depth == Depth::Below).collect();
    assert!(trees.iter().any(|due| common::path_of(&due.key) == one), "{trees:?}");
    assert!(trees.iter().any(|due| common::path_of(&due.key) == other), "{trees:?}");
    for path in [one.join("s/f"), other.join("s/f")] {
        fs::write(&path, b"changed").unwrap();
        let changed = monotonic_ns();
        checker.wait_for_path(&path, changed);
        assert!(checker.saw_name(&path, changed));
    }
}

#[test]
fn privileged_changes_below_a_moved_directory_have_new_paths() {
    let top = folder();
    fs::create_dir_all(top.path().join("a/b/c")).unwrap();
    fs::create_dir(top.path().join("x")).unwrap();
    let checker = Checker::start(root(top.path()));
    let moved = top.path().join("x/y");
    fs::rename(top.path().join("a/b"), &moved).unwrap();
    fs::write(moved.join("c/f"), b"x").unwrap();
    let changed = monotonic_ns();
    checker.wait_for_path(&moved.join("c/f"), changed);
    // Back and forth within one read: the kernel merges the first and the third rename.
    let pause = checker.watcher.pause_reader();
    let away = top.path().join("a/z");
    for (from, to) in [(&moved, &away), (&away, &moved), (&moved, &away)] {
        fs::rename(from, to).unwrap();
    }
    drop(pause);
    checker.wait_for(&[now(moved), now(away.clone())]);
    fs::write(away.join("c/f"), b"changed").unwrap();
    checker.wait_for(&[now(away.join("c/f"))]);
}

#[test]
fn privileged_excluded_folder_delivers_nothing() {
    let top = folder();
    let own = top.path().join("own");
    fs::create_dir_all(own.join("deep")).unwrap();
    let options = Options { excluded: vec![own.clone()], ..root(top.path()) };
    let checker = Checker::start(options);
    let write = |path: &Path| {
        fs::write(path.join("f"), b"x").unwrap();
        fs::create_dir(path.join("d")).unwrap();
        fs::rename(path.join("f"), path.join("d/g")).unwrap();
        fs::set_permissions(path, fs::Permissions::from_mode(0o700)).unwrap();
    };
    write(&own);
    write(&own.join("deep"));
    // An own folder that is created again is still excluded.
    fs::remove_dir_all(&own).unwrap();
    fs::create_dir_all(own.join("deep")).unwrap();
    write(&own.join("deep"));
    checker.settle(top.path());
    let below = |path: PathBuf| path.starts_with(&own);
    let wrong: Vec<_> =
        checker.batches().concat().into_iter().filter(|d| below(common::path_of(&d.key))).collect();
    assert!(wrong.is_empty(), "{wrong:?}");
}

#[test]
fn privileged_bind_mounted_directory_has_both_paths() {
    let top = folder();
    let (real, bound) = (top.path().join("real"), top.path().join("bound"));
    fs::create_dir_all(real.join("sub")).unwrap();
    let _mount = Mount::bind(&real, &bound);
    let checker = Checker::start(root(top.path()));
    for directory in [&real, &bound] {
        fs::write(directory.join("sub/f"), b"x").unwrap();
        let changed = monotonic_ns();
        for path in [real.join("sub/f"), bound.join("sub/f")] {
            checker.wait_for_path(&path, changed);
            assert!(checker.saw_name(&path, changed));
        }
    }
    fs::create_dir(bound.join("sub/new")).unwrap();
    checker.wait_for(&[now(real.join("sub/new")), now(bound.join("sub/new"))]);
    fs::rename(real.join("sub/new"), real.join("moved")).unwrap();
    checker.wait_for(&[now(real.join("moved")), now(bound.join("moved"))]);
    fs::write(real.join("moved/f"), b"x").unwrap();
    checker.wait_for(&[now(real.join("moved/f")), now(bound.join("moved/f"))]);
}

#[test]
fn privileged_root_that_appears_later_is_watched() {
    let top = folder();
    let path = top.path().join("not/yet");
    let checker = Checker::start(root(&path));
    assert!(!checker.state().exists);
    for _ in 0..2 {
        fs::create_dir_all(&path).unwrap();
        fs::write(path.join("f"), b"x").unwrap();
        checker.wait_for(&[now(path.join("f"))]);
        File::options().append(true).open(path.join("f")).unwrap().write_all(b"y").unwrap();
        checker.wait_for(&[now(path.join("f"))]);
        assert!(checker.state().exists);
        fs::remove_dir_all(top.path().join("not")).unwrap();
        checker.wait_for(&[now(path.clone())]);
    }
}

#[test]
fn privileged_writer_and_times_are_known() {
    let top = folder();
    let checker = Checker::start(root(top.path()));
    let path = top.path().join("f");
    let before = monotonic_ns();
    fs::write(&path, b"x").unwrap();
    let after = monotonic_ns();
    checker.wait_for_path(&path, after);
    let due = checker.batches().concat();
    let due = due.iter().find(|due| common::path_of(&due.key) == path).unwrap();
    let [writer] = due.notices.writers.as_slice() else { panic!("{due:?}") };
    assert_eq!(writer.pid, std::process::id());
    // A read may fall between the first time and the change.
    let whole = writer.whole();
    assert!(whole.from_ns <= after && whole.to_ns >= before, "{writer:?} {before} {after}");
    assert!(due.notices.first_us <= due.notices.last_us && due.notices.count > 0);
}
