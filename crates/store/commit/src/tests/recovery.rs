//! Replay when a commit is opened, and journals that are rejected.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use env::files::SimDisk;
use journal::{Durability, Journal, Options};
use model::{Position, Record};
use state::{ChangeQuery, EventKind, Reader, Retention};

use super::{
    DataFolder, Open, copy_folder, copy_state, event_ids, eventually, one, open, small_segments,
};
use crate::{CommitError, CommitOptions};

/// Submits the records `from..to`, which are small.
async fn submit(open: &Open, from: u64, to: u64) {
    let tasks: Vec<_> = (from..to)
        .map(|n| {
            let commit = open.commit.clone();
            tokio::spawn(async move { commit.submit(one(&format!("{n:06}"))).await })
        })
        .collect();
    for task in tasks {
        task.await.unwrap().unwrap();
    }
}

fn names(to: u64) -> Vec<String> {
    (0..to).map(|n| format!("{n:06}")).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn replay_applies_each_missing_record_exactly_once() {
    let place = DataFolder::new();
    let first = place.open();
    let images = DataFolder::new();
    let mut stops = vec![0, 1, 7, 60, 61, 150];
    for pair in stops.clone().windows(2) {
        copy_state(&place.state(), &images.dir.join(format!("{}/state.db", pair[0])));
        submit(&first, pair[0], pair[1]).await;
    }
    let end = stops.pop().unwrap();
    drop(first);
    for at in stops {
        let dir = images.dir.join(at.to_string());
        copy_folder(&place.journal(), &dir.join("journal"));
        let again = open(
            &dir.join("journal"),
            &dir.join("state.db"),
            small_segments(),
            CommitOptions::default(),
        )
        .unwrap();
        assert_eq!((again.report.from, again.report.to), (Position(at), Position(end)));
        assert_eq!(again.report.records, end - at);
        assert_eq!(event_ids(&again.state), names(end));
        let counts = again.state.counts(&Reader::server()).unwrap();
        assert_eq!((counts.events, counts.documents[0].1), (end, end));
        let next = again.commit.submit(one("next")).await.unwrap();
        assert_eq!(next.position, Position(end + 1));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn answered_submits_survive_a_power_cut() {
    for seed in 0..12 {
        let place = DataFolder::new();
        let disk = SimDisk::new(seed);
        let options = || Options { files: Arc::new(disk.clone()), ..small_segments() };
        let path = place.journal();
        let first = open(&path, &place.state(), options(), CommitOptions::default()).unwrap();
        submit(&first, 0, 40).await;
        first.commit.checkpoint().unwrap();
        // The copy lacks the state's write-ahead log, as after a power cut.
        let cut = DataFolder::new();
        std::fs::copy(place.state(), cut.state()).unwrap();
        submit(&first, 40, 40 + seed * 9).await;
        let crashed = disk.crash(seed);
        let options = Options { files: Arc::new(crashed), ..small_segments() };
        let again = open(&path, &cut.state(), options, CommitOptions::default()).unwrap();
        assert_eq!(again.report.from, Position(40));
        assert_eq!(event_ids(&again.state), names(40 + seed * 9), "seed={seed}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn checkpoint_trims_the_journal_only_below_its_position() {
    let place = DataFolder::new();
    let first = place.open();
    for round in 0..6 {
        submit(&first, round * 200, round * 200 + 200).await;
        let position = first.commit.checkpoint().unwrap();
        assert_eq!(position, Position(round * 200 + 200));
        assert_eq!(first.commit.stats().checkpointed, position);
        let kept = first.commit.shared.journal.first_position();
        assert!(kept <= position.0, "the record at the checkpoint itself stays");
        assert!(round < 2 || kept > 1, "kept={kept}");
    }
    submit(&first, 1200, 1210).await;
    drop(first);
    let again = place.open();
    assert_eq!((again.report.records, again.report.to), (0, Position(1210)));
    assert_eq!(event_ids(&again.state), names(1210));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn checkpoint_runs_after_checkpoint_records_are_applied() {
    let place = DataFolder::new();
    let options = CommitOptions { checkpoint_records: 50, ..CommitOptions::default() };
    let first = place.try_open(options).unwrap();
    submit(&first, 0, 120).await;
    eventually("a checkpoint", || first.commit.stats().checkpointed.0 >= 50);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn journal_missing_records_the_state_needs_is_rejected() {
    let place = DataFolder::new();
    let first = place.open();
    submit(&first, 0, 600).await;
    first.commit.checkpoint().unwrap();
    submit(&first, 600, 1200).await;
    first.commit.close().await.unwrap();
    let kept = first.commit.shared.journal.first_position();
    drop(first);
    assert!(kept > 1);
    for suffix in ["", "-wal", "-shm"] {
        let _ = std::fs::remove_file(place.dir.join(format!("state.db{suffix}")));
    }
    let error = place.try_open(CommitOptions::default()).map(|_| ()).unwrap_err();
    assert!(matches!(error, CommitError::Gap { applied: Position(0), .. }), "{error}");
    let text = error.to_string();
    assert!(text.contains(&kept.to_string()) && text.contains("restore"), "{text}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn open_fails_if_the_journal_ends_before_the_state() {
    let place = DataFolder::new();
    let first = place.open();
    submit(&first, 0, 10).await;
    first.commit.close().await.unwrap();
    drop(first);
    std::fs::remove_dir_all(place.journal()).unwrap();
    let error = place.try_open(CommitOptions::default()).map(|_| ()).unwrap_err();
    assert!(matches!(error, CommitError::Behind { end: 0, applied: Position(10) }), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lost_state_is_rebuilt_from_a_complete_journal() {
    let place = DataFolder::new();
    let first = place.open();
    submit(&first, 0, 100).await;
    drop(first);
    for suffix in ["", "-wal", "-shm"] {
        let _ = std::fs::remove_file(place.dir.join(format!("state.db{suffix}")));
    }
    let again = place.open();
    assert_eq!(again.report.records, 100);
    assert_eq!(event_ids(&again.state), names(100));
}

/// Returns the number of each event, by its id.
fn event_numbers(state_db: &Path) -> BTreeMap<String, i64> {
    let db = rusqlite::Connection::open(state_db).unwrap();
    let mut select = db.prepare("SELECT id, number FROM event").unwrap();
    let rows = select.query_map([], |r| Ok((r.get(0)?, r.get(1)?))).unwrap();
    rows.map(Result::unwrap).collect()
}

/// After a power cut the state is that of the last checkpoint.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn replay_after_a_retention_gives_the_same_event_numbers() {
    let place = DataFolder::new();
    let first = place.open();
    submit(&first, 0, 20).await;
    first.commit.checkpoint().unwrap();
    let image = DataFolder::new();
    copy_state(&place.state(), &image.state());
    let policy = Retention { event_bytes_max: 0, ..Retention::default() };
    let submit_part = |part| {
        let commit = &first.commit;
        let done = tokio::task::block_in_place(|| commit.submit_blocking(part))?;
        Ok::<_, Box<dyn std::error::Error>>(done.applied)
    };
    let retained = first.state.retain(&policy, 2, submit_part).unwrap();
    assert_eq!(retained.events, 20);
    submit(&first, 20, 40).await;
    let numbers = event_numbers(&place.state());
    assert_eq!(numbers.len(), 21, "the run's own event and those after it");
    drop(first);
    copy_folder(&place.journal(), &image.journal());
    let again = image.open();
    assert_eq!(again.report.from, Position(20));
    assert_eq!(event_numbers(&image.state()), numbers);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn damaged_journal_segment_fails_open_with_its_file_name() {
    let place = DataFolder::new();
    let first = place.open();
    let empty = DataFolder::new();
    submit(&first, 0, 1).await;
    copy_state(&place.state(), &empty.state());
    for n in 1..300 {
        first.commit.submit(one(&format!("{n:06}"))).await.unwrap();
    }
    first.commit.close().await.unwrap();
    drop(first);
    copy_folder(&place.journal(), &empty.journal());
    let mut files: Vec<_> = std::fs::read_dir(empty.journal())
        .unwrap()
        .map(|e| e.unwrap().path())
        .filter(|p| std::fs::metadata(p).unwrap().len() >= 64 * 1024)
        .collect();
    files.sort();
    let mut bytes = std::fs::read(&files[0]).unwrap();
    for byte in &mut bytes[20_000..20_100] {
        *byte ^= 0xff;
    }
    std::fs::write(&files[0], bytes).unwrap();
    let opened = Journal::open(&empty.journal(), small_segments());
    let error = match opened {
        Err(error) => error.to_string(),
        Ok(_) => match empty.try_open(CommitOptions::default()) {
            Err(error) => error.to_string(),
            Ok(again) => panic!("opened with {} records", again.report.records),
        },
    };
    let name = files[0].file_name().unwrap().to_string_lossy();
    assert!(error.contains(&*name), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn undecodable_record_is_quarantined_and_the_rest_applied() {
    let place = DataFolder::new();
    {
        let (journal, _) = Journal::open(&place.journal(), small_segments()).unwrap();
        let good: Vec<Record> = ["a", "b"].into_iter().map(one).collect();
        journal.append(&good[0].encode(), Durability::Persist).unwrap();
        journal.append(b"\x01\xffrubbish", Durability::Persist).unwrap();
        journal.append(&good[1].encode(), Durability::Persist).unwrap();
        journal.close().unwrap();
    }
    let again = place.open();
    assert_eq!((again.report.records, again.report.quarantined), (3, 1));
    let ids = event_ids(&again.state);
    assert_eq!(ids[..2], ["a", "b"]);
    assert!(ids[2].starts_with("quarantine-") && ids[2].ends_with("-2"), "{ids:?}");
    let query = ChangeQuery { kinds: vec![EventKind::Coverage], ..ChangeQuery::default() };
    let told = again.state.changes(&Reader::server(), &query).unwrap().items;
    let body = String::from_utf8_lossy(&told[0].body).into_owned();
    assert!(body.contains("record 2 of agent 000 was set aside"), "{body}");
    let db = rusqlite::Connection::open(place.state()).unwrap();
    let reason: String = db.query_row("SELECT reason FROM quarantine", [], |r| r.get(0)).unwrap();
    assert!(reason.contains("not a record"), "{reason}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn newer_version_record_fails_startup_and_stays_in_the_journal() {
    let place = DataFolder::new();
    {
        let (journal, _) = Journal::open(&place.journal(), small_segments()).unwrap();
        journal.append(&one("a").encode(), Durability::Persist).unwrap();
        journal.append(b"\x7fwhat a newer program wrote", Durability::Persist).unwrap();
        journal.append(&one("b").encode(), Durability::Persist).unwrap();
        journal.close().unwrap();
    }
    for _ in 0..2 {
        let Err(error) = place.try_open(CommitOptions::default()) else { panic!("it started") };
        let (position, known) = (Position(2), Record::VERSION);
        let newer = CommitError::NewerRecord { position, found: 127, known };
        assert_eq!(error.to_string(), newer.to_string());
        assert!(error.to_string().contains("start the newer program"), "{error}");
    }
    let (journal, _) = Journal::open(&place.journal(), small_segments()).unwrap();
    let kept = journal.read_from(2).unwrap().next().unwrap().unwrap();
    assert_eq!(kept, (2, b"\x7fwhat a newer program wrote".to_vec()));
    let state = state::StateStore::open(&place.state(), state::StateOptions::default()).unwrap();
    assert!(state.applied().unwrap() < Position(2), "nothing was set aside");
}

#[test]
fn catch_up_applies_only_new_records() {
    let place = DataFolder::new();
    let (journal, _) = Journal::open(&place.journal(), small_segments()).unwrap();
    let state = state::StateStore::open(&place.state(), state::StateOptions::default()).unwrap();
    let mut names = Vec::new();
    for round in 0..3 {
        for n in 0..5 {
            names.push(format!("{round}{n}"));
            journal.append(&one(&names[names.len() - 1]).encode(), Durability::Persist).unwrap();
        }
        let report = crate::catch_up(&journal, &state, &CommitOptions::default()).unwrap();
        assert_eq!(report.records, 5);
        assert_eq!(
            crate::catch_up(&journal, &state, &CommitOptions::default()).unwrap().records,
            0
        );
    }
    assert_eq!(event_ids(&state), names);
}

#[test]
fn catch_up_continues_while_the_journal_grows() {
    const RECORDS: u64 = 2_000;
    let place = DataFolder::new();
    let (journal, _) = Journal::open(&place.journal(), small_segments()).unwrap();
    let state = state::StateStore::open(&place.state(), state::StateOptions::default()).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for n in 0..RECORDS {
                journal.append(&one(&format!("{n:06}")).encode(), Durability::Persist).unwrap();
            }
        });
        while state.applied().unwrap() < Position(RECORDS) {
            crate::catch_up(&journal, &state, &CommitOptions::default()).unwrap();
        }
    });
    assert_eq!(event_ids(&state), names(RECORDS));
}
