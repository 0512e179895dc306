//! Power cuts at every call that changes the disk, in all layouts: acknowledged records survive,
//! nothing else appears, appends are atomic, and recovering twice gives the same result.
//!
//! `HOLDFAST_CRASHES` sets the number of cuts (default: a hundred thousand in all layouts),
//! `HOLDFAST_CRASH_SEED` the first seed. A failure reports seed and call.

use std::path::Path;
use std::sync::Arc;
use std::thread;

use crate::common::{DIR, Model, Noise, append, check, layout, open, options, work};
use env::files::{Failure, Fault, SimDisk};
use journal::{Durability, Journal, Options};

/// Default number of crashes.
const CRASHES: u64 = 100_000;

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|v| v.parse().ok()).unwrap_or(default)
}

/// Creates a journal with some history, closed or killed, with which every scenario begins.
fn history(noise: &mut Noise) -> (SimDisk, Model) {
    let disk = SimDisk::new(noise.draw());
    let mut model = Model::new();
    for _ in 0..noise.below(3) {
        let journal = open(&disk, layout(noise), "history").0;
        let steps = noise.below(14);
        work(&journal, &mut model, noise, steps);
        journal.close().unwrap();
        (model.persisted, model.flushed) = (model.records.len() as u64, model.records.len() as u64);
    }
    (disk, model)
}

/// Runs until the power cut at call number `call`, or to the end if it is 0. Returns the number of
/// calls.
fn run(disk: &SimDisk, model: &mut Model, noise: &mut Noise, call: u64, steps: u64) -> u64 {
    let before = disk.calls();
    if call > 0 {
        disk.fail(&[Fault { call: before + call, failure: Failure::PowerCut }]);
    }
    let layout = layout(noise);
    if let Ok((journal, _)) = Journal::open(Path::new(DIR), options(disk, layout)) {
        work(&journal, model, noise, steps);
        if noise.below(2) == 0 {
            let _ = journal.close();
        }
    }
    disk.calls() - before
}

/// Cuts the power of `disk` and recovers twice. Returns the disk to continue with.
fn recover(disk: &SimDisk, model: &mut Model, noise: &mut Noise, what: &str) -> SimDisk {
    let after = disk.crash(noise.draw());
    let layout = layout(noise);
    let (mut first, mut second) = (model.clone(), model.clone());
    let least = model.persisted;
    let once = {
        let (journal, recovery) = open(&after, layout, what);
        check(&journal, &recovery, &mut first, least, what);
        recovery
    };
    let again = after.crash(noise.draw());
    let (journal, recovery) = open(&again, layout, what);
    check(&journal, &recovery, &mut second, once.last_position, what);
    assert_eq!(recovery.last_position, once.last_position, "{what}: recovered differently");
    *model = second;
    drop(journal);
    again
}

fn scenario(seed: u64) -> u64 {
    let steps = 3 + Noise(seed).below(12);
    let mut dry = Noise(seed);
    let (disk, mut model) = history(&mut dry);
    let calls = run(&disk, &mut model, &mut dry, 0, steps);
    let mut crashes = 0;
    for call in 1..=calls {
        let mut noise = Noise(seed);
        let (disk, mut model) = history(&mut noise);
        run(&disk, &mut model, &mut noise, call, steps);
        for image in 0..2 {
            let what = format!("seed={seed} call={call} image={image}");
            let mut model = model.clone();
            let mut noise = Noise(seed ^ (call << 20) ^ (image << 50));
            let disk = recover(&disk, &mut model, &mut noise, &what);
            let second = 1 + noise.below(30);
            run(&disk, &mut model, &mut noise, second, 6);
            let disk = recover(&disk, &mut model, &mut noise, &format!("{what} again"));
            run(&disk, &mut model, &mut noise, 0, 3);
            let last = model.records.len() as u64;
            let (journal, recovery) = open(&disk, layout(&mut noise), &what);
            check(&journal, &recovery, &mut model, last, &what);
            crashes += 4;
        }
    }
    crashes
}

#[test]
fn acknowledged_records_survive_a_power_cut_at_every_call() {
    let wanted = number("HOLDFAST_CRASHES", CRASHES);
    let begin = number("HOLDFAST_CRASH_SEED", 0);
    let threads: Vec<_> = (0..2u64)
        .map(|t| {
            thread::spawn(move || {
                let (mut crashes, mut seed) = (0, begin + t);
                while crashes < wanted / 2 {
                    crashes += scenario(seed);
                    seed += 2;
                }
                crashes
            })
        })
        .collect();
    let crashes: u64 = threads.into_iter().map(|t| t.join().unwrap()).sum();
    assert!(crashes >= wanted);
}

/// Checks that these tests detect a disk that does not persist what it confirms.
#[test]
fn crash_tests_detect_lost_flushes_and_renames() {
    for (flushes, names) in [(true, false), (false, true)] {
        let found_out = (0..200).any(|seed| {
            std::panic::catch_unwind(|| {
                let mut noise = Noise(seed);
                let disk = SimDisk::new(seed);
                disk.ignore_flushes(flushes, names);
                let mut model = Model::new();
                run(&disk, &mut model, &mut noise, 0, 8);
                recover(&disk, &mut model, &mut noise, "a lie");
            })
            .is_err()
        });
        assert!(found_out, "lies about flushes={flushes} names={names} went unnoticed");
    }
}

#[test]
fn flushed_records_survive_a_kill() {
    for seed in 0..number("HOLDFAST_CRASHES", CRASHES) / 20 {
        let what = format!("seed={seed}");
        let mut noise = Noise(seed ^ 0x6b69_6c6c);
        let (disk, mut model) = history(&mut noise);
        let journal = open(&disk, layout(&mut noise), &what).0;
        let steps = noise.below(20);
        work(&journal, &mut model, &mut noise, steps);
        let after = disk.kill();
        let (journal, recovery) = open(&after, layout(&mut noise), &what);
        let flushed = model.flushed;
        check(&journal, &recovery, &mut model, flushed, &what);
        // Recovery has persisted what it returned.
        let after = after.crash(noise.draw());
        let (journal, recovery) = open(&after, layout(&mut noise), &what);
        check(&journal, &recovery, &mut model, flushed, &what);
    }
}

#[test]
fn failed_call_poisons_or_rejects_and_loses_nothing() {
    for seed in 0..number("HOLDFAST_CRASHES", CRASHES) / 10 {
        let mut noise = Noise(seed ^ 0x6661_696c);
        let (disk, mut model) = history(&mut noise);
        let failures = [Failure::Io, Failure::Full, Failure::Short];
        let failure = failures[noise.below(3) as usize];
        let faults: Vec<_> = (0..=noise.below(2))
            .map(|_| Fault { call: disk.calls() + 1 + noise.below(40), failure })
            .collect();
        let lasting = noise.below(3) == 0;
        let what = format!("seed={seed} faults={faults:?} lasting={lasting}");
        if lasting {
            disk.fail_from(faults[0]);
        } else {
            disk.fail(&faults);
        }
        run(&disk, &mut model, &mut noise, 0, 12);
        let after = if noise.below(2) == 0 { disk.kill() } else { disk.crash(noise.draw()) };
        let (journal, recovery) = open(&after, layout(&mut noise), &what);
        let persisted = model.persisted;
        check(&journal, &recovery, &mut model, persisted, &what);
        // A failed flush may have left pages in the cache that are marked clean: they must not be
        // trusted.
        for _ in 0..2 {
            append(&journal, &mut model, &mut noise, true);
        }
        let after = after.crash(noise.draw());
        let (journal, recovery) = open(&after, layout(&mut noise), &what);
        let persisted = model.persisted;
        check(&journal, &recovery, &mut model, persisted, &what);
    }
}

#[test]
fn acknowledged_records_of_many_writers_survive_a_power_cut() {
    for seed in 0..number("HOLDFAST_CRASHES", CRASHES) / 40 {
        let mut noise = Noise(seed ^ 0x7468_7265);
        let disk = SimDisk::new(seed);
        let call = 1 + noise.below(150);
        disk.fail(&[Fault { call, failure: Failure::PowerCut }]);
        let layout = layout(&mut noise);
        let options = Options { background: seed % 2 == 0, ..options(&disk, layout) };
        let Ok((journal, _)) = Journal::open(Path::new(DIR), options) else { continue };
        let journal = Arc::new(journal);
        let writers: Vec<_> = (0..4u64)
            .map(|w| {
                let journal = Arc::clone(&journal);
                thread::spawn(move || {
                    let mut acknowledged = Vec::new();
                    for n in 0..25u64 {
                        let mut record = vec![w as u8; 40 + (n as usize * 397) % 2000];
                        record[..8].copy_from_slice(&n.to_le_bytes());
                        match journal.append(&record, Durability::Persist) {
                            Ok(outcome) => acknowledged.push((outcome.position, record)),
                            Err(_) => break,
                        }
                    }
                    acknowledged
                })
            })
            .collect();
        let acknowledged: Vec<_> = writers.into_iter().flat_map(|w| w.join().unwrap()).collect();
        let after = disk.crash(noise.draw());
        let what = format!("seed={seed} call={call}");
        let (recovered, _) = open(&after, layout, &what);
        let found: Vec<_> = recovered.read_from(0).unwrap().map(Result::unwrap).collect();
        for (position, record) in acknowledged {
            assert_eq!(found[position as usize - 1], (position, record), "{what}");
        }
    }
}
