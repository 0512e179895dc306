use std::collections::BTreeSet;

use super::*;

fn path(name: &str) -> PathBuf {
    Path::new("/j").join(name)
}

fn dsync() -> Access {
    Access { dsync: true, ..Access::CREATE }
}

#[test]
fn persisted_data_survives_every_power_cut() {
    let disk = SimDisk::new(1);
    let file = disk.open(&path("a"), Access::CREATE).unwrap();
    file.write_all_at(&[1; 3000], 0).unwrap();
    file.persist().unwrap();
    disk.persist_dir(Path::new("/j")).unwrap();
    for seed in 0..100 {
        assert_eq!(disk.crash(seed).content(&path("a")).unwrap(), [1; 3000]);
    }
}

#[test]
fn unpersisted_name_may_be_lost_in_power_cut() {
    let disk = SimDisk::new(1);
    disk.open(&path("a"), Access::CREATE).unwrap().persist().unwrap();
    let found = |seed| disk.crash(seed).content(&path("a")).is_some();
    assert!((0..100).any(found) && !(0..100).all(found));
}

#[test]
fn folder_entries_wait_for_other_folders_unless_scattered() {
    for scattered in [false, true] {
        let disk = SimDisk::new(1);
        if scattered {
            disk.scatter_names();
        }
        let other = Path::new("/k/b");
        disk.open(&path("a"), Access::CREATE).unwrap();
        disk.open(other, Access::CREATE).unwrap();
        let later_alone = |seed| {
            let image = disk.crash(seed);
            image.content(&path("a")).is_none() && image.content(other).is_some()
        };
        assert_eq!((0..100).any(later_alone), scattered);
        disk.persist_dir(Path::new("/k")).unwrap();
        assert!((0..100).all(|seed| disk.crash(seed).content(other).is_some()));
        assert_eq!((0..100).any(later_alone), scattered);
    }
}

#[test]
fn unflushed_writes_survive_in_any_subset_of_sectors() {
    let disk = SimDisk::new(1);
    let file = disk.open(&path("a"), dsync()).unwrap();
    file.write_all_at(&[0; 4 * SECTOR_BYTES], 0).unwrap();
    disk.persist_dir(Path::new("/j")).unwrap();
    let file = disk.open(&path("a"), Access::WRITE).unwrap();
    file.write_all_at(&[1; 4 * SECTOR_BYTES], 0).unwrap();
    let outcomes: BTreeSet<Vec<u8>> = (0..400)
        .map(|seed| {
            let content = disk.crash(seed).content(&path("a")).unwrap();
            content.chunks(SECTOR_BYTES).map(|s| s[0]).collect()
        })
        .collect();
    assert_eq!(outcomes.len(), 16);
    assert_eq!(disk.kill().content(&path("a")).unwrap(), [1; 4 * SECTOR_BYTES]);
}

#[test]
fn power_cut_tears_write_and_fails_later_calls() {
    let disk = SimDisk::new(1);
    let file = disk.open(&path("a"), dsync()).unwrap();
    file.write_all_at(&[0; 2 * SECTOR_BYTES], 0).unwrap();
    disk.persist_dir(Path::new("/j")).unwrap();
    disk.fail(&[Fault { call: disk.calls() + 1, failure: Failure::PowerCut }]);
    assert!(file.write_at(&[1; 2 * SECTOR_BYTES], 0).is_err());
    assert!(disk.is_off() && file.read_at(&mut [0], 0).is_err() && file.persist().is_err());
    let torn = |seed| {
        let content = disk.crash(seed).content(&path("a")).unwrap();
        content[0] != content[SECTOR_BYTES]
    };
    assert!((0..50).any(torn));
}

#[test]
fn data_of_a_failed_flush_may_or_may_not_survive() {
    let disk = SimDisk::new(1);
    let file = disk.open(&path("a"), dsync()).unwrap();
    file.write_all_at(&[0; SECTOR_BYTES], 0).unwrap();
    disk.persist_dir(Path::new("/j")).unwrap();
    let file = disk.open(&path("a"), Access::WRITE).unwrap();
    file.write_all_at(&[1; SECTOR_BYTES], 0).unwrap();
    disk.fail(&[Fault { call: disk.calls() + 1, failure: Failure::Io }]);
    assert!(file.persist().is_err());
    file.persist().unwrap();
    assert_eq!(disk.content(&path("a")).unwrap()[0], 1);
    assert!((0..50).any(|seed| disk.crash(seed).content(&path("a")).unwrap()[0] == 0));
}

#[test]
fn lasting_fault_fails_every_call_until_it_is_cleared() {
    for failure in [Failure::Io, Failure::Full] {
        let disk = SimDisk::new(1);
        let file = disk.open(&path("a"), Access::CREATE).unwrap();
        disk.fail_from(Fault { call: disk.calls() + 2, failure });
        file.write_all_at(&[1; 10], 0).unwrap();
        for _ in 0..3 {
            assert!(file.write_at(&[2; 10], 10).is_err() && file.persist().is_err());
            assert!(disk.open(&path("b"), Access::CREATE).is_err());
        }
        disk.clear_faults();
        file.write_all_at(&[2; 10], 10).unwrap();
        file.persist().unwrap();
        assert!(disk.open(&path("b"), Access::CREATE).is_ok());
    }
}

#[test]
fn full_disk_short_write_and_misaligned_direct_io_are_refused() {
    let disk = SimDisk::new(1);
    disk.set_capacity(Some(1000));
    let file = disk.open(&path("a"), Access::CREATE).unwrap();
    let full = file.write_at(&[1; 2000], 0).unwrap_err();
    assert_eq!(full.kind(), io::ErrorKind::StorageFull);
    disk.fail(&[Fault { call: disk.calls() + 1, failure: Failure::Short }]);
    file.write_all_at(&[1; 900], 0).unwrap();
    assert_eq!(disk.content(&path("a")).unwrap(), [1; 900]);
    let direct = disk.open(&path("a"), Access { direct: true, ..Access::WRITE }).unwrap();
    assert_eq!(direct.write_at(&[1; 100], 0).unwrap_err().kind(), io::ErrorKind::InvalidInput);
    disk.refuse_direct();
    assert!(disk.open(&path("a"), Access { direct: true, ..Access::WRITE }).is_err());
}

#[test]
fn simulated_lock_is_exclusive_until_dropped() {
    let disk = SimDisk::new(1);
    let lock = disk.lock(&path("lock")).unwrap();
    assert!(lock.is_some() && disk.lock(&path("lock")).unwrap().is_none());
    drop(lock);
    assert!(disk.lock(&path("lock")).unwrap().is_some());
}
