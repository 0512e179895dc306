//! An interval without notifications is reported, and its roots are checked completely. These
//! tests need root and fanotify with file handles; where either is missing, leave them out with
//! `--skip privileged`.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::Write as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::Duration;

use crate::common::{self, Checker, Mount, folder, root};
use model::Depth;
use rustix::thread::{CapabilitySet, CapabilitySets};
use watch::{IncidentKind, Level, Options, WakeCallback, Watcher, monotonic_ns};

fn now(path: PathBuf) -> (PathBuf, u64) {
    (path, monotonic_ns())
}

#[test]
fn privileged_long_queue_is_dropped_and_the_root_checked() {
    let folder = folder();
    let top = folder.path().join("mount");
    // Other tests do not fill the queue of this file system.
    let _mount = Mount::new("tmpfs", "size=16m", &top);
    fs::create_dir(top.join("d")).unwrap();
    let options =
        Options { queue_max: 100, queue_check_interval: Duration::from_millis(20), ..root(&top) };
    let checker = Checker::start(options);
    let pause = checker.watcher.pause_reader();
    let mut changes = Vec::new();
    for number in 0..200 {
        let path = top.join(format!("d/f{number}"));
        fs::write(&path, b"x").unwrap();
        changes.push(now(path));
    }
    let incident = checker.wait_for_incident();
    drop(pause);
    assert_eq!(incident.kind, IncidentKind::Overflow);
    assert_eq!(incident.roots, [top.as_os_str().as_encoded_bytes()]);
    assert!(incident.from_us <= incident.to_us && incident.from_us > 0);
    checker.wait_for(&changes);
    // The new group is complete after the check of the root.
    fs::write(top.join("d/f7"), b"again").unwrap();
    checker.wait_for(&[now(top.join("d/f7"))]);
    assert!(checker.watcher.counters().overflows > 0);
    assert_eq!(checker.level(), Level::FileSystem);
}

/// Without capabilities the kernel limits the queue, usually to 16,384 notifications.
#[test]
fn privileged_full_queue_of_the_kernel_makes_the_root_due() {
    let folder = folder();
    let top = folder.path().join("mount");
    let _mount = Mount::new("tmpfs", "size=16m", &top);
    let limit = fs::read_to_string("/proc/sys/fs/fanotify/max_queued_events").unwrap();
    let limit: usize = limit.trim().parse().unwrap();
    std::thread::scope(|scope| {
        let dropped = scope.spawn(|| {
            let none = CapabilitySet::empty();
            let none = CapabilitySets { effective: none, permitted: none, inheritable: none };
            rustix::thread::set_capabilities(None, none).unwrap();
            let checker = Checker::start(root(&top));
            let pause = checker.watcher.pause_reader();
            for number in 0..=limit {
                fs::write(top.join(format!("f{number}")), b"").unwrap();
            }
            drop(pause);
            let incident = checker.wait_for_incident();
            assert_eq!(incident.kind, IncidentKind::Overflow);
            assert_eq!(incident.detail, "the kernel's queue was full");
            checker.wait_for(&[now(top.clone())]);
        });
        dropped.join().unwrap();
    });
}

#[test]
fn privileged_unmount_works_while_marked() {
    let folder = folder();
    let top = folder.path();
    let path = top.join("mount");
    for level in [Level::FileSystem, Level::Directories] {
        let mount = Mount::new("tmpfs", "size=16m", &path);
        fs::create_dir(path.join("d")).unwrap();
        let checker = Checker::start(Options { best_level: level, ..root(top) });
        fs::write(path.join("d/f"), b"x").unwrap();
        checker.wait_for(&[now(path.join("d/f"))]);
        mount.end();
        let incident = checker.wait_for_incident();
        assert_eq!(incident.kind, IncidentKind::MountChanged);
        checker.wait_for(&[now(path.clone())]);
    }
}

#[test]
fn privileged_mount_below_a_root_is_watched_at_once() {
    let folder = folder();
    let top = folder.path();
    let path = top.join("mount");
    fs::create_dir_all(path.join("d")).unwrap();
    let checker = Checker::start(root(top));
    for _ in 0..2 {
        let mount = Mount::new("tmpfs", "size=16m", &path);
        let incident = checker.wait_for_incident();
        assert_eq!(incident.kind, IncidentKind::MountChanged);
        checker.wait_for(&[now(path.clone())]);
        fs::create_dir(path.join("d")).unwrap();
        fs::write(path.join("d/f"), b"x").unwrap();
        let changed = monotonic_ns();
        checker.wait_for_path(&path.join("d/f"), changed);
        checker.settle(top);
        fs::write(path.join("d/f"), b"again").unwrap();
        let changed = monotonic_ns();
        checker.wait_for_path(&path.join("d/f"), changed);
        mount.end();
        checker.wait_for_incident();
    }
    fs::write(path.join("d/below"), b"x").unwrap();
    checker.wait_for(&[now(path.join("d/below"))]);
}

/// The same file system has the same identifier after it is mounted again, but no mark.
#[test]
fn privileged_disk_that_is_mounted_again_is_watched_again() {
    let folder = folder();
    let top = folder.path().join("root");
    let (image, path) = (folder.path().join("image"), top.join("mount"));
    fs::create_dir(&top).unwrap();
    File::create(&image).unwrap().set_len(8 << 20).unwrap();
    common::run("mkfs.ext4", &[OsStr::new("-q"), image.as_os_str()]);
    let mount = Mount::image(&image, &path);
    fs::create_dir(path.join("d")).unwrap();
    let checker = Checker::start(root(&top));
    fs::write(path.join("d/f"), b"x").unwrap();
    checker.wait_for(&[now(path.join("d/f"))]);
    mount.end();
    checker.wait_for_incident();
    checker.settle(&top);
    let _mount = Mount::image(&image, &path);
    checker.wait_for_incident();
    // The check of the whole root is over.
    checker.settle(&top);
    fs::write(path.join("d/f"), b"again").unwrap();
    checker.wait_for(&[now(path.join("d/f"))]);
    File::options().append(true).open(path.join("d/f")).unwrap().write_all(b"more").unwrap();
    checker.wait_for(&[now(path.join("d/f"))]);
}

#[test]
fn privileged_mount_elsewhere_concerns_no_root() {
    let (top, elsewhere) = (folder(), folder());
    let checker = Checker::start(root(top.path()));
    drop(Mount::new("tmpfs", "size=1m", &elsewhere.path().join("mount")));
    checker.settle(top.path());
    assert!(checker.incidents().is_empty());
}

#[test]
fn privileged_canary_passes_and_a_stalled_reader_is_noticed() {
    let (top, own) = (folder(), folder());
    let options = Options {
        canary: Some(own.path().to_owned()),
        canary_interval: Duration::from_millis(150),
        canary_delay_max: Duration::from_millis(100),
        excluded: vec![own.path().to_owned()],
        ..root(top.path())
    };
    let checker = Checker::start(options);
    let passed = || checker.watcher.counters().canary_us;
    let first = wait_for_change(&passed);
    assert!(wait_for_change(&|| passed().saturating_sub(first)) > 0, "it passes again and again");
    let pause = checker.watcher.pause_reader();
    fs::write(top.path().join("f"), b"x").unwrap();
    let changed = monotonic_ns();
    let incident = checker.wait_for_incident();
    assert_eq!(incident.kind, IncidentKind::CanaryMissed);
    checker.wait_for_path(top.path(), changed);
    drop(pause);
    let names = checker.batches().concat();
    assert!(
        names.iter().all(|due| !common::path_of(&due.key).starts_with(own.path())),
        "{names:?}"
    );
}

/// Waits until a number is above zero, and returns it.
fn wait_for_change(number: &dyn Fn() -> u64) -> u64 {
    loop {
        match number() {
            0 => std::thread::yield_now(),
            now => return now,
        }
    }
}

#[test]
fn privileged_loop_is_woken_without_waiting() {
    let top = folder();
    let (sender, wakes) = channel();
    let wake = WakeCallback(Arc::new(move || sender.send(()).unwrap_or_default()));
    let watcher = Watcher::start(Options { wake: Some(wake), ..root(top.path()) }).unwrap();
    common::scan(&mut watcher.handles(), top.path());
    watcher.end_first_scan();
    let path = top.path().join("f");
    fs::write(&path, b"x").unwrap();
    wakes.recv().unwrap();
    let next = watcher.next_due_ns().unwrap();
    assert!(watcher.due(next - 1, 10).is_empty(), "not due yet");
    let due = watcher.due(next, 10);
    let [name] = due.as_slice() else { panic!("{due:?}") };
    assert_eq!((common::path_of(&name.key), name.depth), (path, Depth::Name));
    assert_eq!(watcher.next_due_ns(), None);
    // A result that is not stable is due again, with the same notices.
    watcher.recheck(name.clone());
    wakes.recv().unwrap();
    let again = watcher.due(watcher.next_due_ns().unwrap(), 10);
    assert_eq!(again, due);
    watcher.interrupt_wait();
    assert!(watcher.wait(Duration::ZERO), "a poke ends the next wait");
    assert!(!watcher.wait(Duration::ZERO));
}
