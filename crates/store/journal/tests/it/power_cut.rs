//! A real file system on a block device that loses power: acknowledged records survive, in every
//! layout, with one writer and with eight. Also measures the cost of a commit at the device.
//! `HOLDFAST_POWER_CUTS` sets the number of cuts (default 6). Needs root and `/dev/fuse`.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use crate::common::Noise;
use device::{Device, Fs, Moment, PowerCut};
use journal::{Durability, Journal, Layout, Options};
use parking_lot::Mutex;

const LAYOUTS: [Layout; 3] = [Layout::Packed, Layout::Sparse, Layout::Ring];
const DEADLINE: Duration = Duration::from_mins(10);

/// Returns a device with ext4, or skips the test if there is none.
fn device(measure: bool) -> Option<Device> {
    let made =
        Device::with(device::DeviceOptions { bytes: 512 << 20, measure, ..Default::default() });
    let mut device = device::or_skip(made)?;
    device.mount(Fs::Ext4).unwrap();
    Some(device)
}

fn options(layout: Layout) -> Options {
    Options {
        layout,
        segment_bytes: 1 << 20,
        ring_bytes: 128 << 10,
        fill_ahead_bytes: 128 << 10,
        ..Options::default()
    }
}

fn record(id: u64) -> Vec<u8> {
    let bytes = 8 + (id as usize * 131) % 700;
    id.to_le_bytes().into_iter().cycle().take(bytes).collect()
}

/// Appends from `writers` threads until the device fails. Returns the acknowledged records by
/// position.
fn append_until_death(journal: &Journal, writers: u64, first_id: u64) -> BTreeMap<u64, u64> {
    let acknowledged = Mutex::new(BTreeMap::new());
    let until = Instant::now() + DEADLINE;
    thread::scope(|scope| {
        for writer in 0..writers {
            let acknowledged = &acknowledged;
            scope.spawn(move || {
                for n in 0.. {
                    assert!(Instant::now() < until, "the device does not die");
                    let id = first_id + (writer << 32) + n;
                    let Ok(outcome) = journal.append(&record(id), Durability::Persist) else {
                        return;
                    };
                    acknowledged.lock().insert(outcome.position, id);
                }
            });
        }
    });
    acknowledged.into_inner()
}

/// Checks that every acknowledged record is in the journal, intact and at its position.
fn check(journal: &Journal, acknowledged: &BTreeMap<u64, u64>, what: &str) {
    let mut found = BTreeMap::new();
    if journal.persisted_position() > 0 {
        for item in journal.read_from(0).unwrap() {
            let (position, bytes) = item.unwrap();
            let id = u64::from_le_bytes(bytes[..8].try_into().unwrap());
            assert_eq!(bytes, record(id), "{what}: position {position}");
            found.insert(position, id);
        }
    }
    let missing: Vec<_> =
        acknowledged.iter().filter(|(p, id)| found.get(p) != Some(id)).take(5).collect();
    assert!(missing.is_empty(), "{what}: acknowledged and lost: {missing:?}");
}

#[test]
fn acknowledged_records_survive_every_power_cut() {
    let Some(mut device) = device(false) else { return };
    let cuts: usize =
        std::env::var("HOLDFAST_POWER_CUTS").ok().and_then(|v| v.parse().ok()).unwrap_or(6);
    let seed: u64 = std::env::var("HOLDFAST_SEED").ok().and_then(|v| v.parse().ok()).unwrap_or(7);
    let mut noise = Noise(seed);
    let mut kept: [BTreeMap<u64, u64>; 3] = Default::default();
    let mut acknowledged = 0;
    for cut in 0..cuts {
        let which = cut % 3;
        let writers = if (cut / 3) % 2 == 0 { 8 } else { 1 };
        let how = match noise.below(3) {
            0 => PowerCut::ALL,
            1 => PowerCut::subset(noise.draw()),
            _ => PowerCut::torn(noise.draw()),
        };
        let what = format!("seed={seed} cut={cut} {:?} writers={writers} {how:?}", LAYOUTS[which]);
        let dir = device.folder().join(format!("journal-{which}"));
        let expected = kept[which].keys().last().copied().unwrap_or(0);
        let options = Options { position_expected: expected, ..options(LAYOUTS[which]) };
        let (journal, _) = Journal::open(&dir, options.clone()).unwrap();
        let blocks = device.counters().blocks;
        device.die_after(Moment::Blocks(40 + noise.below(3000)));
        let new = append_until_death(&journal, writers, (cut as u64 + 1) << 48);
        assert!(device.is_dead(), "{what}: appends failed before the power did");
        assert!(device.counters().blocks > blocks, "{what}: nothing was written");
        acknowledged += new.len();
        kept[which].extend(new);
        drop(journal);
        device.power_cut(&how).unwrap();
        device.remount().unwrap();
        let (journal, recovery) =
            Journal::open(&dir, options).unwrap_or_else(|e| panic!("{what}: {e}"));
        assert!(!recovery.clean, "{what}: it was not closed");
        check(&journal, &kept[which], &what);
        journal.close().unwrap();
    }
    assert!(acknowledged > 10 * cuts, "only {acknowledged} records acknowledged in {cuts} cuts");
    eprintln!("{cuts} power cuts, {acknowledged} acknowledged records, none missing");
}

#[test]
fn each_durability_level_survives_its_power_cut() {
    let Some(mut device) = device(false) else { return };
    for layout in LAYOUTS {
        let dir = device.folder().join(format!("{layout:?}"));
        let (journal, _) = Journal::open(&dir, options(layout)).unwrap();
        let mut acknowledged = BTreeMap::new();
        for id in 0..20 {
            let outcome = journal.append(&record(id), Durability::Flush).unwrap();
            acknowledged.insert(outcome.position, id);
        }
        // Persisting a record persists those before it.
        let outcome = journal.append(&record(20), Durability::Persist).unwrap();
        acknowledged.insert(outcome.position, 20);
        let within = Durability::Within(Duration::from_millis(20));
        let outcome = journal.append(&record(21), within).unwrap();
        acknowledged.insert(outcome.position, 21);
        let until = Instant::now() + DEADLINE;
        while journal.persisted_position() < outcome.position {
            assert!(
                Instant::now() < until,
                "{layout:?}: the deadline passed and nothing persisted"
            );
            thread::sleep(Duration::from_millis(2));
        }
        // Only this record may be lost.
        let last = journal.append(&record(22), Durability::Flush).unwrap().position;
        device.power_cut(&PowerCut::ALL).unwrap();
        drop(journal);
        device.remount().unwrap();
        let (journal, recovery) = Journal::open(&dir, options(layout)).unwrap();
        check(&journal, &acknowledged, &format!("{layout:?}"));
        assert!(recovery.last_position >= last - 1, "{layout:?}: {recovery:?}");
        journal.close().unwrap();
    }
}

#[test]
fn commit_to_a_recycled_segment_costs_one_block_and_no_metadata() {
    const COMMITS: u64 = 400;
    let Some(device) = device(true) else { return };
    let dir = device.folder().join("journal");
    let options = Options { segment_bytes: 4 << 20, ..options(Layout::Sparse) };
    let (journal, _) = Journal::open(&dir, options).unwrap();
    // Three segments are used and trimmed, so that later ones are recycled.
    let filler = vec![5_u8; 512 << 10];
    let mut position = 0;
    for _ in 0..26 {
        position = journal.append(&filler, Durability::Persist).unwrap().position;
    }
    journal.trim(position).unwrap();
    let until = Instant::now() + DEADLINE;
    while journal.stats().segments_recycled == 0 {
        assert!(Instant::now() < until, "no segment is recycled");
        position = journal.append(&filler, Durability::Persist).unwrap().position;
        journal.trim(position).unwrap();
    }
    sync(device.folder());
    device.start_measuring();
    let began = Instant::now();
    for id in 0..COMMITS {
        journal.append(&record(id)[..8], Durability::Persist).unwrap();
    }
    let files: Vec<_> = fs::read_dir(&dir).unwrap().map(|e| e.unwrap().path()).collect();
    let report = device.report(&files).unwrap();
    assert_eq!(report.files.blocks + report.files.zero_blocks, COMMITS, "{report:?}");
    // The file system writes its own journal every 5 seconds, independent of commits.
    let ticks = began.elapsed().as_secs() / 5 + 1;
    assert!(report.journal.written <= 12 * ticks, "{report:?}");
    assert!(report.flushes <= COMMITS + 4 * ticks, "{report:?}");
    let amplification = report.files.zlib_bytes as f64 / (8 * COMMITS) as f64;
    assert!(amplification < 9.0, "{amplification}");

    // This measures the same with a growing file, as most logs use.
    let path = device.folder().join("growing");
    let file = fs::File::create(&path).unwrap();
    sync(device.folder());
    device.start_measuring();
    for block in 0..20 {
        std::os::unix::fs::FileExt::write_all_at(&file, &[1; 4096], block * 4096).unwrap();
        file.sync_data().unwrap();
    }
    let growing = device.report(&[&path]).unwrap();
    assert!(growing.journal.blocks >= 40, "{growing:?}");
    journal.close().unwrap();
}

/// Syncs the file system, so that delayed writes reach the device.
fn sync(folder: &Path) {
    let status = std::process::Command::new("sync").arg("-f").arg(folder).status().unwrap();
    assert!(status.success());
}
