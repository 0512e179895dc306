//! A real file system on the device: flushed data survives, other data does not, and writes are
//! counted.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::FileExt;

use device::{Device, DeviceOptions, Fs, Moment, PowerCut, available};

/// Returns a mounted device, or skips the test if there is none.
fn mounted(fs: Fs, options: DeviceOptions) -> Option<Device> {
    device::or_skip(available(fs))?;
    let mut device = Device::with(options).unwrap();
    device.mount(fs).unwrap();
    Some(device)
}

const SMALL: DeviceOptions = DeviceOptions { bytes: 64 << 20, ..DEFAULT };
const DEFAULT: DeviceOptions =
    DeviceOptions { bytes: 0, flush_time: std::time::Duration::ZERO, measure: false };

#[test]
fn power_cut_loses_unflushed_data_only() {
    let Some(mut device) = mounted(Fs::Ext4, SMALL) else { return };
    let folder = device.folder().to_owned();
    let kept = folder.join("kept");
    fs::write(&kept, b"flushed").unwrap();
    let file = File::open(&kept).unwrap();
    file.sync_all().unwrap();
    File::open(&folder).unwrap().sync_all().unwrap();
    fs::write(folder.join("lost"), b"not flushed").unwrap();
    let rewritten = File::options().write(true).open(&kept).unwrap();
    rewritten.write_all_at(b"changed", 0).unwrap();
    device.power_cut(&PowerCut::ALL).unwrap();
    assert!(rewritten.sync_all().is_err(), "the old mount still answers");
    assert!(!kept.exists());
    device.remount().unwrap();
    assert_eq!(fs::read(&kept).unwrap(), b"flushed");
    assert!(!folder.join("lost").exists());
    fs::write(&kept, b"again").unwrap();
    device.unmount().unwrap();
    device.remount().unwrap();
    assert_eq!(fs::read(&kept).unwrap(), b"again");
}

#[test]
fn dead_device_refuses_all_requests() {
    let Some(mut device) = mounted(Fs::Ext4, SMALL) else { return };
    let path = device.folder().join("log");
    let mut file = File::create(&path).unwrap();
    file.sync_all().unwrap();
    File::open(device.folder()).unwrap().sync_all().unwrap();
    device.die_after(Moment::Flushes(7));
    let mut acknowledged = 0;
    while file.write_all(&[7; 100]).and_then(|()| file.sync_data()).is_ok() {
        acknowledged += 1;
        assert!(acknowledged < 7, "the device outlived its moment");
    }
    assert!(device.is_dead() && acknowledged > 0);
    device.power_cut(&PowerCut::ALL).unwrap();
    device.remount().unwrap();
    assert!(fs::read(&path).unwrap().len() >= 100 * acknowledged);
}

#[test]
fn subset_cut_keeps_blocks_and_torn_cut_keeps_sectors() {
    for (cut, whole) in [(PowerCut::subset(3), true), (PowerCut::torn(3), false)] {
        let Some(mut device) = mounted(Fs::Ext4, SMALL) else { return };
        let path = device.folder().join("file");
        fs::write(&path, vec![1; 256 << 10]).unwrap();
        let file = File::options().write(true).open(&path).unwrap();
        file.sync_all().unwrap();
        File::open(device.folder()).unwrap().sync_all().unwrap();
        // Past the cache: the writes reach the device and nothing flushes them.
        let flushes = device.counters().flushes;
        write_direct(&path, 256 << 10);
        assert_eq!(device.counters().flushes, flushes);
        device.power_cut(&cut).unwrap();
        device.remount().unwrap();
        let bytes = fs::read(&path).unwrap();
        let grain = if whole { 4096 } else { 512 };
        let grains: Vec<u8> = bytes
            .chunks(grain)
            .map(|c| {
                assert!(c.iter().all(|b| *b == c[0]), "torn within {grain} bytes");
                c[0]
            })
            .collect();
        assert!(grains.contains(&1) && grains.contains(&2), "nothing lost, or nothing kept");
        let blocks_torn = bytes.chunks(4096).any(|c| c.iter().any(|b| *b != c[0]));
        assert_eq!(blocks_torn, !whole);
    }
}

fn write_direct(path: &std::path::Path, bytes: usize) {
    use std::os::unix::fs::OpenOptionsExt;
    let file = File::options().write(true).custom_flags(libc::O_DIRECT).open(path).unwrap();
    let buffer = vec![2_u8; bytes + 4096];
    let skip = buffer.as_ptr().align_offset(4096);
    file.write_all_at(buffer.get(skip..skip + bytes).unwrap(), 0).unwrap();
}

#[test]
fn report_classifies_blocks_by_location() {
    let Some(device) = mounted(Fs::Ext4, DeviceOptions { measure: true, ..SMALL }) else { return };
    let path = device.folder().join("log");
    let mut file = File::create(&path).unwrap();
    file.write_all(&vec![0; 64 << 10]).unwrap();
    file.sync_all().unwrap();
    device.start_measuring();
    // A growing file needs the journal, an existing one does not.
    for _ in 0..10 {
        file.write_all(&[3; 4096]).unwrap();
        file.sync_data().unwrap();
    }
    let growing = device.report(&[&path]).unwrap();
    assert_eq!(growing.files.blocks, 10);
    assert!(growing.journal.blocks >= 20, "{growing:?}");
    device.start_measuring();
    for block in 0..10 {
        file.write_all_at(&[4; 4096], block * 4096).unwrap();
        file.sync_data().unwrap();
    }
    let inside = device.report(&[&path]).unwrap();
    assert_eq!((inside.files.blocks, inside.flushes), (10, 10));
    assert_eq!(inside.journal.blocks, 0, "{inside:?}");
    assert!(inside.files.zlib_bytes < 10 * 100, "{inside:?}");
}

#[test]
fn xfs_and_btrfs_recover_after_power_cut() {
    for fs in [Fs::Xfs, Fs::Btrfs] {
        let Some(mut device) = mounted(fs, DeviceOptions { bytes: 512 << 20, ..DEFAULT }) else {
            continue;
        };
        let kept = device.folder().join("kept");
        fs::write(&kept, b"flushed").unwrap();
        File::open(&kept).unwrap().sync_all().unwrap();
        File::open(device.folder()).unwrap().sync_all().unwrap();
        device.power_cut(&PowerCut::ALL).unwrap();
        device.remount().unwrap();
        assert_eq!(fs::read(&kept).unwrap(), b"flushed", "{fs:?}");
    }
}
