//! Planned faults, and the errors that reach a program: directly from a [`FaultyFolder`], and
//! through ext4 from a [`Device`].

use std::fs::{self, File};
use std::io::{self, ErrorKind, Write};
use std::path::Path;

use device::{Device, DiskFault, FaultError, FaultyFolder, FaultyRequest, Fs, available};

/// Returns the name of an error: `EIO`, `ENOSPC` or `EROFS`.
fn name(error: &io::Error) -> &'static str {
    match error.raw_os_error() {
        Some(libc::EIO) => "EIO",
        Some(libc::ENOSPC) => "ENOSPC",
        Some(libc::EROFS) => "EROFS",
        _ => panic!("{error}"),
    }
}

fn name_of(result: &io::Result<()>) -> &'static str {
    result.as_ref().map_or_else(name, |()| "ok")
}

/// Writes and flushes a file twice; returns the four outcomes.
fn write_twice(path: &Path) -> [&'static str; 4] {
    let mut file = File::create(path).unwrap();
    let mut step = || [name_of(&file.write_all(&[1; 100])), name_of(&file.sync_all())];
    let ([write, flush], [next_write, next_flush]) = (step(), step());
    [write, flush, next_write, next_flush]
}

#[test]
fn folder_fails_the_planned_request_once_or_from_then_on() {
    use FaultyRequest::{Any, Flush, Write};
    let Some(folder) = device::or_skip(FaultyFolder::new()) else { return };
    let path = folder.path().join("file");
    for (error, e) in [(FaultError::Io, "EIO"), (FaultError::Full, "ENOSPC")] {
        // Creating the file is the first write.
        for (request, number, lasting, outcomes) in [
            (Write, 2, false, [e, "ok", "ok", "ok"]),
            (Write, 2, true, [e, "ok", e, "ok"]),
            (Flush, 1, false, ["ok", e, "ok", "ok"]),
            (Flush, 2, true, ["ok", "ok", "ok", e]),
            (Any, 3, false, ["ok", e, "ok", "ok"]),
            (Any, 3, true, ["ok", e, e, e]),
        ] {
            let _ = fs::remove_file(&path);
            folder.fail(DiskFault { request, number, error, lasting });
            assert_eq!(write_twice(&path), outcomes, "{request:?} {number} {lasting}");
            let failed = outcomes.iter().filter(|outcome| **outcome == e).count();
            assert_eq!(folder.failed_requests(), failed as u64);
            folder.clear_fault();
            assert_eq!(write_twice(&path), ["ok"; 4]);
        }
    }
}

#[test]
fn folder_reads_back_names_and_contents() {
    let Some(folder) = device::or_skip(FaultyFolder::new()) else { return };
    let inner = folder.path().join("a/b");
    fs::create_dir_all(&inner).unwrap();
    let path = inner.join("file");
    fs::write(&path, [7; 10_000]).unwrap();
    let open = File::open(&path).unwrap();
    fs::rename(&path, inner.join("other")).unwrap();
    fs::write(inner.join("third"), b"x").unwrap();
    let mut names: Vec<_> =
        fs::read_dir(&inner).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(names, ["other", "third"]);
    fs::remove_file(inner.join("other")).unwrap();
    assert_eq!(io::read_to_string(open).unwrap(), "\u{7}".repeat(10_000), "an open file is kept");
    assert_eq!(fs::remove_dir(&inner).unwrap_err().kind(), ErrorKind::DirectoryNotEmpty);
    fs::remove_dir_all(folder.path().join("a")).unwrap();
    assert!(fs::read_dir(folder.path()).unwrap().next().is_none());
}

/// A failed write leaves a part of its data; a full disk still lets files be removed.
#[test]
fn folder_keeps_half_of_a_failed_write_and_frees_space() {
    let Some(folder) = device::or_skip(FaultyFolder::new()) else { return };
    let path = folder.path().join("file");
    let mut file = File::create(&path).unwrap();
    let all = DiskFault {
        request: FaultyRequest::Any,
        number: 1,
        error: FaultError::Full,
        lasting: true,
    };
    folder.fail(all);
    assert_eq!(name_of(&file.write_all(&[5; 100])), "ENOSPC");
    assert_eq!(fs::read(&path).unwrap(), [5; 50]);
    file.set_len(10).unwrap();
    assert_eq!(name_of(&file.set_len(20)), "ENOSPC");
    fs::remove_file(&path).unwrap();
    folder.fail(DiskFault { error: FaultError::Io, ..all });
    assert_eq!(name_of(&file.set_len(5)), "EIO");
    assert_eq!(name_of(&File::open(folder.path()).unwrap().sync_all()), "EIO");
}

/// A failed write of data arrives at the next `fsync`. After a failed write of its own journal, or
/// a failed flush, ext4 is read-only until it is mounted again.
#[test]
fn device_faults_arrive_through_ext4() {
    use FaultyRequest::{Flush, Write};
    if device::or_skip(available(Fs::Ext4)).is_none() {
        return;
    }
    let mut device = Device::new(64 << 20).unwrap();
    let folder = device.mount(Fs::Ext4).unwrap();
    for (request, error, lasting, outcomes) in [
        (Write, FaultError::Io, false, ["ok", "EIO", "ok", "ok"]),
        (Write, FaultError::Io, true, ["ok", "EIO", "ok", "EIO"]),
        (Write, FaultError::Full, false, ["ok", "ENOSPC", "ok", "ok"]),
        (Write, FaultError::Full, true, ["ok", "ENOSPC", "ok", "ENOSPC"]),
        (Flush, FaultError::Io, false, ["ok", "EIO", "EROFS", "EROFS"]),
        (Flush, FaultError::Io, true, ["ok", "EIO", "EROFS", "EROFS"]),
    ] {
        // Nothing but the test's file is left to write.
        rewrite(&folder.join("file"));
        device.fail(DiskFault { request, number: 1, error, lasting });
        assert_eq!(write_twice(&folder.join("file")), outcomes, "{request:?} {error:?} {lasting}");
        assert!(device.failed_requests() > 0);
        device.clear_fault();
        device.unmount().unwrap();
        device.remount().unwrap();
        rewrite(&folder.join("file"));
    }
}

fn rewrite(path: &Path) {
    let _ = fs::remove_file(path);
    let mut file = File::create(path).unwrap();
    file.write_all(b"whole").unwrap();
    file.sync_all().unwrap();
    assert_eq!(fs::read(path).unwrap(), b"whole");
}
