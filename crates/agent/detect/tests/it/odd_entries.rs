//! Unusual names, links and entries.

use std::ffi::OsStr;
use std::fs;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;
use std::path::PathBuf;

use crate::common::{self, Bench, Folder, independent_walk, only, stored_items};
use detect::Watch;
use model::{CoverageKind, Kind};
use rustix::fs::{AtFlags, CWD, Mode, OFlags};

#[test]
fn longest_and_non_utf8_names_are_stored_exactly() {
    let f = Folder::new();
    let long = "n".repeat(255);
    f.write(&long, "1");
    let odd = f.path.join(OsStr::from_bytes(b"\xff\xfe \n\x1b[2J"));
    fs::write(&odd, "2").unwrap();
    fs::create_dir(f.path.join(OsStr::from_bytes(b"d\x80"))).unwrap();
    fs::write(f.path.join(OsStr::from_bytes(b"d\x80/f\xc3")), "3").unwrap();
    let b = Bench::of(&f.path);
    b.scan();
    assert_eq!(stored_items(&b.store), independent_walk(&f.path));
    fs::write(&odd, "22").unwrap();
    b.scan();
    assert_eq!(only(b.store.changes()).key.name, b"\xff\xfe \n\x1b[2J");
}

/// Creates nested directories with 200-byte names, without using a long path.
fn deep(f: &Folder, levels: usize) -> PathBuf {
    let name = "d".repeat(200);
    let mut fd = rustix::fs::open(&f.path, OFlags::RDONLY, Mode::empty()).unwrap();
    let mut path = f.path.clone();
    for _ in 0..levels {
        rustix::fs::mkdirat(&fd, &name, Mode::from_raw_mode(0o755)).unwrap();
        let file = rustix::fs::openat(
            &fd,
            "file",
            OFlags::CREATE | OFlags::WRONLY,
            Mode::from_raw_mode(0o644),
        );
        rustix::io::write(file.unwrap(), b"x").unwrap();
        fd = rustix::fs::openat(&fd, &name, OFlags::RDONLY, Mode::empty()).unwrap();
        path.push(&name);
    }
    path
}

/// Removes the deep tree, because the temporary directory's own removal may fail on it.
fn remove_deep(f: &Folder, levels: usize) {
    let name = "d".repeat(200);
    for level in (0..levels).rev() {
        let mut fd = rustix::fs::open(&f.path, OFlags::RDONLY, Mode::empty()).unwrap();
        for _ in 0..level {
            fd = rustix::fs::openat(fd.as_fd(), &name, OFlags::RDONLY, Mode::empty()).unwrap();
        }
        rustix::fs::unlinkat(&fd, &name, AtFlags::REMOVEDIR).unwrap();
        rustix::fs::unlinkat(&fd, "file", AtFlags::empty()).unwrap();
    }
}

#[test]
fn path_over_the_limit_is_reported_and_its_parents_are_scanned() {
    let f = Folder::new();
    let levels = 25;
    deep(&f, levels);
    let b = Bench::of(&f.path);
    let report = b.scan();
    let longest = b.store.0.lock().items.keys().map(|k| k.path().len()).max().unwrap_or_default();
    assert!(longest <= model::limits::PATH_BYTES_MAX);
    assert!(longest > model::limits::PATH_BYTES_MAX - 220, "{longest}");
    let expected = (model::limits::PATH_BYTES_MAX - f.path.as_os_str().len()) / 201;
    assert_eq!(report.counts.directories, expected as u64 + 1);
    assert_eq!(b.store.gaps(), [CoverageKind::LimitReached, CoverageKind::Baseline]);
    let again = b.scan();
    assert_eq!(again.counts.changes(), 0);
    assert!(b.store.coverage().is_empty(), "told once");
    remove_deep(&f, levels);
    b.scan();
    assert_eq!(b.store.gaps(), [CoverageKind::LimitReached], "and once when it is over");
}

#[test]
fn path_of_exactly_max_length_is_watched() {
    let f = Folder::new();
    // Directories until a name of at most 255 bytes completes 4,096.
    let mut path = f.path.clone();
    let mut fd = rustix::fs::open(&f.path, OFlags::RDONLY, Mode::empty()).unwrap();
    loop {
        let left = model::limits::PATH_BYTES_MAX - path.as_os_str().len() - 1;
        let name = "p".repeat(if left <= 255 { left } else { 100 });
        if left <= 255 {
            let flags = OFlags::CREATE | OFlags::WRONLY;
            let file = rustix::fs::openat(&fd, &name, flags, Mode::from_raw_mode(0o644)).unwrap();
            rustix::io::write(file, b"at the limit").unwrap();
            path.push(&name);
            break;
        }
        rustix::fs::mkdirat(&fd, &name, Mode::from_raw_mode(0o755)).unwrap();
        fd = rustix::fs::openat(fd.as_fd(), &name, OFlags::RDONLY, Mode::empty()).unwrap();
        path.push(&name);
    }
    assert_eq!(path.as_os_str().len(), 4096);
    let b = Bench::of(&f.path);
    b.scan();
    assert_eq!(b.store.gaps(), [CoverageKind::Baseline]);
    let o = b.store.get(&path).unwrap();
    assert_eq!(o.hashes.sha256.map(|h| h.to_vec()), Some(common::sha2_of(b"at the limit")));
}

#[test]
fn symlink_loops_are_recorded_and_not_followed() {
    let f = Folder::new();
    f.write("d/a", "1");
    symlink(".", f.at("d/self")).unwrap();
    symlink("..", f.at("d/up")).unwrap();
    symlink("loop2", f.at("loop1")).unwrap();
    symlink("loop1", f.at("loop2")).unwrap();
    let b = Bench::of(&f.path);
    let report = b.scan();
    assert_eq!(report.counts.others, 4);
    assert_eq!(stored_items(&b.store), independent_walk(&f.path));
}

#[test]
fn followed_symlinks_terminate_without_duplicates() {
    let f = Folder::new();
    let outside = Folder::new();
    outside.write("o/file", "outside");
    symlink(outside.at("o"), outside.at("o/again")).unwrap();
    f.write("d/a", "1");
    symlink("..", f.at("d/up")).unwrap();
    symlink("d", f.at("inside")).unwrap();
    symlink(outside.at("o"), f.at("out1")).unwrap();
    symlink(outside.at("o"), f.at("out2")).unwrap();
    symlink(outside.at("o/file"), f.at("file")).unwrap();
    symlink("nowhere", f.at("dangling")).unwrap();
    let mut watch = Watch::new(&f.path);
    watch.follow_symlinks = true;
    let b = Bench::of_watch(watch);
    b.scan();
    let files: Vec<_> = b
        .store
        .0
        .lock()
        .items
        .iter()
        .filter(|(_, o)| o.kind == Kind::File)
        .map(|(k, _)| common::path_of(k))
        .collect();
    assert_eq!(files, [f.at("file"), f.at("d/a"), f.at("out1/file")]);
    assert!(b.store.get(&f.at("inside/a")).is_none(), "watched at its own place");
    assert_eq!(
        b.store.get(&f.at("file")).unwrap().target.unwrap(),
        outside.at("o/file").as_os_str().as_bytes()
    );
    outside.write("o/file", "outside, changed");
    b.scan();
    let told = b.store.reported_changes();
    assert_eq!(told, [("modified", f.at("file")), ("modified", f.at("out1/file"))]);
    fs::remove_file(f.at("out1")).unwrap();
    fs::remove_file(f.at("out2")).unwrap();
    b.scan();
    let gone: Vec<_> = b.store.reported_changes().into_iter().map(|(_, p)| p).collect();
    assert_eq!(gone, [f.at("out1"), f.at("out1/again"), f.at("out1/file"), f.at("out2")]);
}

#[test]
fn pipes_sockets_and_devices_are_observed_and_never_opened() {
    let f = Folder::new();
    // Opening a pipe without a writer for blocking reading would block this test forever.
    let fifo = rustix::fs::FileType::Fifo;
    rustix::fs::mknodat(CWD, f.at("pipe"), fifo, Mode::from_raw_mode(0o600), 0).unwrap();
    let _socket = std::os::unix::net::UnixListener::bind(f.at("socket")).unwrap();
    let device = rustix::fs::FileType::CharacterDevice;
    let null = rustix::fs::makedev(1, 3);
    let made =
        rustix::fs::mknodat(CWD, f.at("null"), device, Mode::from_raw_mode(0o600), null).is_ok();
    let b = Bench::of(&f.path);
    let report = b.scan();
    assert_eq!(b.store.get(&f.at("pipe")).unwrap().kind, Kind::Fifo);
    assert_eq!(b.store.get(&f.at("socket")).unwrap().kind, Kind::Socket);
    if made {
        assert_eq!(b.store.get(&f.at("null")).unwrap().kind, Kind::CharDevice);
    }
    assert_eq!((report.counts.hashed, report.counts.bytes_hashed), (0, 0));
    assert!(report.counts.errors.is_empty());
    assert_eq!(b.scan().counts.changes(), 0);
}

#[test]
fn file_replaced_by_a_fifo_is_reported_as_a_type_change() {
    let f = Folder::new();
    let path = f.write("x", "1");
    let b = Bench::of(&f.path);
    b.scan();
    fs::remove_file(&path).unwrap();
    let fifo = rustix::fs::FileType::Fifo;
    rustix::fs::mknodat(CWD, &path, fifo, Mode::from_raw_mode(0o600), 0).unwrap();
    b.scan();
    let change = only(b.store.changes());
    assert!(common::field_names(&change).contains(&"type"));
    assert!(change.after.unwrap().hashes.is_empty());
}
