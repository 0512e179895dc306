//! Decisions that share a transaction and its record.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use control::log::RowLog as _;
use control::{ControlError, ControlStore, NewAgent, NewEnrolmentToken, Reader, WriteContext};
use model::Incarnation;
use parking_lot::Mutex;
use tempfile::TempDir;

use crate::memory_log::{MemoryLog, audited, open};

/// Creates a user, and notes whether it was made. Each third name is one that is there already, so that
/// members of a transaction fail alone.
fn decide(store: &ControlStore, answered: &Mutex<BTreeMap<String, bool>>, thread: u64, n: u64) {
    let name = if n.is_multiple_of(3) { "admin".into() } else { format!("user{thread}-{n}") };
    match store.create_user(&audited(n), &name, "hash", false, &[]) {
        Ok(_) => drop(answered.lock().insert(name, true)),
        Err(ControlError::NotLogged(_)) => {
            answered.lock().entry(name).or_insert(false);
        }
        Err(ControlError::Exists { .. }) => {}
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn decisions_that_share_a_transaction_are_all_there_or_refused() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("registry.db");
    let log = Arc::new(MemoryLog::default());
    let store = open(&path, &log);
    log.refuse_each.store(7, Ordering::Relaxed);
    let answered: Mutex<BTreeMap<String, bool>> = Mutex::default();
    std::thread::scope(|scope| {
        for thread in 0..8 {
            let (store, answered) = (&store, &answered);
            scope.spawn(move || (0..100).for_each(|n| decide(store, answered, thread, n)));
        }
    });
    log.refuse_each.store(0, Ordering::Relaxed);
    let records = log.end();
    drop(store);
    let store = open(&path, &log);
    let users = store.users(&Reader::server()).unwrap();
    let users: Vec<String> = users.into_iter().map(|user| user.name).collect();
    let answered = answered.into_inner();
    let there = |wanted: bool| answered.iter().filter(move |(_, made)| **made == wanted);
    assert!(there(true).all(|(name, _)| users.contains(name)));
    assert!(there(false).all(|(name, _)| name == "admin" || !users.contains(name)));
    assert!(there(false).count() > 5 && there(true).count() > 100, "{answered:?}");
    let audited = store.audit_log(&Reader::server(), None, 10_000).unwrap().len();
    assert_eq!(audited, users.len(), "a row for each decision, none for another");
    assert!(records < users.len() as u64, "{records} records of {} decisions", users.len());
}

#[test]
fn decision_that_panics_refuses_only_its_own_transaction() {
    let folder = TempDir::new().unwrap();
    let log = Arc::new(MemoryLog::default());
    let store = open(&folder.path().join("registry.db"), &log);
    let (digest, agent) = (
        [7; 32],
        NewAgent {
            id: None,
            name: "web".into(),
            register_ip: "any".into(),
            groups: Vec::new(),
            incarnation: Incarnation(1),
            client_key: None,
            ephemeral_s: None,
            now_s: 1,
        },
    );
    let token = NewEnrolmentToken {
        digest,
        groups: Vec::new(),
        uses: 1,
        expires_at_s: 100,
        ephemeral_s: None,
        now_s: 1,
    };
    store.add_enrolment_token(&WriteContext::server(), &token).unwrap();
    let end = log.end();
    let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        store.enroll(&digest, &agent, &mut |_| panic!("no certificate"))
    }));
    assert!(panicked.is_err());
    assert_eq!(log.end(), end, "nothing was logged");
    store.create_user(&WriteContext::server(), "later", "hash", false, &[]).unwrap();
    assert_eq!(store.enrolment_tokens(&Reader::server(), 1).unwrap().len(), 1, "it was not used");
    assert_eq!(log.end(), end + 1);
}

#[test]
fn floor_flushes_also_if_the_position_is_stored_already() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("registry.db");
    let log = Arc::new(MemoryLog::default());
    let store = open(&path, &log);
    store.create_user(&WriteContext::server(), "somebody", "hash", false, &[]).unwrap();
    assert_eq!(ControlStore::position_of(&path).unwrap(), Some(log.end()), "its own record");
    // SQLite flushes a transaction only if it writes a page.
    let log_bytes = || std::fs::metadata(format!("{}-wal", path.display())).unwrap().len();
    let before = log_bytes();
    assert_eq!(store.floor().unwrap(), log.end());
    assert!(log_bytes() > before, "nothing was written, so nothing was flushed");
    // Records of another kind follow.
    log.records.lock().push(Vec::new());
    assert_eq!(store.floor().unwrap(), log.end());
    assert_eq!((store.last_floor(), ControlStore::position_of(&path).unwrap()), (2, Some(2)));
}

#[test]
fn database_from_before_the_first_record_is_refused() {
    let folder = TempDir::new().unwrap();
    let (path, older) = (folder.path().join("registry.db"), folder.path().join("older.db"));
    drop(ControlStore::open(&older).unwrap());
    let log = Arc::new(MemoryLog::default());
    let store = open(&path, &log);
    store.create_user(&WriteContext::server(), "somebody", "hash", false, &[]).unwrap();
    drop(store);
    let refused = ControlStore::open_logged(&older, 1, log.clone()).err().unwrap();
    assert!(matches!(refused, ControlError::BeforeJournal { first: 1 }), "{refused}");
    // Unless an administrator says that it has everything.
    ControlStore::forget_position(&older).unwrap();
    assert_eq!(ControlStore::position_of(&older).unwrap(), None);
    drop(open(&older, &log));
    assert_eq!(ControlStore::position_of(&older).unwrap(), Some(log.end()));
}

#[test]
fn changes_without_the_log_are_logged_once_it_is_there() {
    let folder = TempDir::new().unwrap();
    let (path, copy) = (folder.path().join("registry.db"), folder.path().join("copy.db"));
    let log = Arc::new(MemoryLog::default());
    drop(open(&path, &log));
    std::fs::copy(&path, &copy).unwrap();
    let alone = ControlStore::open_without_log(&path).unwrap();
    alone.create_user(&audited(1), "somebody", "hash", false, &[1]).unwrap();
    drop(alone);
    assert_eq!(log.end(), 0);
    open(&path, &log).log_reports().unwrap();
    ControlStore::catch_up(&copy, &*log).unwrap();
    let copied = ControlStore::open(&copy).unwrap();
    assert_eq!(copied.users(&Reader::server()).unwrap().len(), 1);
    assert_eq!(copied.audit_log(&Reader::server(), None, 9).unwrap().len(), 1);
}

#[test]
fn record_has_the_documented_bytes() {
    let document = include_str!("../../../../../docs/format/registry-rows.md");
    let example = document.split("```").nth(1).expect("an example");
    let is_hex = |word: &&str| {
        word.len().is_multiple_of(2) && word.bytes().all(|b| b"0123456789abcdef".contains(&b))
    };
    let hex: String =
        example.lines().flat_map(|line| line.split_whitespace().take_while(is_hex)).collect();
    let folder = TempDir::new().unwrap();
    let log = Arc::new(MemoryLog::default());
    let store = open(&folder.path().join("registry.db"), &log);
    store.create_group(&WriteContext::server(), "a", 5).unwrap();
    let record = log.records.lock().last().unwrap().clone();
    let made: Vec<_> = record.iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(made.concat(), hex);
    let tables: Vec<_> = control::log::describe(&record).into_iter().collect();
    assert_eq!(tables, [("agent_group".to_owned(), 1)]);
}
