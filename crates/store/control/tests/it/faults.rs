//! Failed writes and flushes of `registry.db` and of its log, each in turn: a decision that was answered with `Ok`
//! is there when the disk works again, a failed one is there as a whole or not at all, and nothing
//! panics.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use commit::JournalLog;
use control::{
    AgentQuery, ControlError, ControlResult, ControlStore, GroupConfig, NewAgent, NewCertificate,
    NewEnrolmentToken, Reader, WriteContext,
};
use device::{Device, DiskFault, FaultError, FaultyFolder, FaultyRequest, Fs, available};
use journal::{Journal, Options};
use model::{AgentId, Incarnation};

const NOW_S: i64 = 1_795_287_122;
/// Decisions of each kind in one run.
const DECISIONS: u8 = 6;

/// Returns the distance between two requests that fail in turn: 1 in a soak.
fn step(usual: usize) -> usize {
    if std::env::var_os("HOLDFAST_SOAK").is_some() { 1 } else { usual }
}

/// Decisions by number, and whether they were answered with `Ok`.
#[derive(Default)]
struct Decided {
    groups: BTreeMap<u8, bool>,
    agents: BTreeMap<u8, bool>,
    /// The store of the last check, if the power is to fail while it is open.
    open: Option<ControlStore>,
}

impl Decided {
    /// Makes the decisions of one number: a group, and an agent that registers in it.
    fn decide(&mut self, store: &ControlStore, n: u8) {
        let by = WriteContext::server();
        let created = store.create_group(&by, &format!("g{n}"), NOW_S);
        self.groups.insert(n, created.is_ok());
        self.agents.insert(n, enroll(store, n).is_ok());
    }
}

/// Registers an agent with a token for one use.
fn enroll(store: &ControlStore, n: u8) -> ControlResult<()> {
    let token = NewEnrolmentToken {
        digest: [n; 32],
        groups: vec!["default".into()],
        uses: 1,
        expires_at_s: NOW_S + 60,
        ephemeral_s: None,
        now_s: NOW_S,
    };
    store.add_enrolment_token(&WriteContext::server(), &token)?;
    let agent = NewAgent {
        id: None,
        name: format!("a{n}"),
        register_ip: "any".into(),
        groups: Vec::new(),
        incarnation: Incarnation(1),
        client_key: None,
        ephemeral_s: None,
        now_s: NOW_S,
    };
    let mut sign = |_: AgentId| {
        Ok(NewCertificate {
            fingerprint: [n; 32],
            key_digest: [n; 32],
            not_before_s: NOW_S,
            not_after_s: NOW_S + 1_000,
            pem: String::new(),
        })
    };
    store.enroll(&[n; 32], &agent, &mut sign).map(drop)
}

/// The numbers of the groups, agents, unused tokens and certificates that a store has.
#[derive(Debug)]
struct Found {
    groups: BTreeSet<u8>,
    agents: BTreeSet<u8>,
    unused: BTreeSet<u8>,
    certified: BTreeSet<u8>,
}

fn found(store: &ControlStore) -> Found {
    let reader = Reader::server();
    let numbers = |names: Vec<String>, kind: char| -> BTreeSet<u8> {
        names.iter().filter_map(|name| name.strip_prefix(kind)?.parse().ok()).collect()
    };
    let groups = store.groups(&reader).unwrap();
    let page = store.agents(&reader, &AgentQuery::default(), NOW_S).unwrap();
    let tokens = store.enrolment_tokens(&reader, NOW_S).unwrap();
    let image = store.load().unwrap();
    // Counters change in the transaction that changes what they count.
    let summary = store.status_summary(&reader).unwrap();
    assert_eq!(summary.total, page.items.iter().filter(|a| a.record.id.0 > 0).count() as u64);
    Found {
        groups: numbers(groups.into_iter().map(|group| group.name).collect(), 'g'),
        agents: numbers(page.items.into_iter().map(|agent| agent.record.name).collect(), 'a'),
        unused: tokens.iter().filter_map(|token| token.digest.first().copied()).collect(),
        certified: image
            .certificates
            .iter()
            .filter_map(|c| c.fingerprint.first().copied())
            .collect(),
    }
}

/// Checks that a store has every decision that was answered with `Ok`, and none that was not made.
fn assert_kept(store: &ControlStore, decided: &Decided) {
    let found = found(store);
    for (made, found) in [(&decided.groups, &found.groups), (&decided.agents, &found.agents)] {
        let lost: Vec<_> = made.iter().filter(|(n, ok)| **ok && !found.contains(n)).collect();
        assert!(lost.is_empty(), "{lost:?} were answered with Ok and are gone");
        assert!(found.iter().all(|n| made.contains_key(n)), "{found:?} of {made:?}");
    }
    assert_eq!(found.certified, found.agents, "agent and certificate are one transaction");
    assert!(
        found.unused.is_disjoint(&found.agents),
        "agent and use are one transaction: {found:?}"
    );
}

/// Opens a database.
type Open = fn(&Path) -> ControlResult<ControlStore>;

fn alone(path: &Path) -> ControlResult<ControlStore> {
    ControlStore::open_with(path, 1)
}

/// Opens a database with the journal next to it as its log, as a server does.
fn logged(path: &Path) -> ControlResult<ControlStore> {
    let position = if path.exists() { ControlStore::position_of(path)? } else { None };
    let options = Options {
        segment_bytes: 1 << 20,
        spares: 0,
        background: false,
        position_expected: position.unwrap_or_default(),
        ..Options::default()
    };
    let opened = Journal::open(&path.with_file_name("journal"), options);
    let (journal, _) = opened.map_err(|e| ControlError::Journal(e.to_string()))?;
    ControlStore::open_logged(path, 1, Arc::new(JournalLog(journal)))
}

fn prepare(path: &Path, open: Open) -> Decided {
    let mut decided = Decided::default();
    decided.decide(&open(path).unwrap(), 1);
    decided
}

/// Makes decisions, with checkpoints between them. Any of that may fail.
fn work(path: &Path, open: Open, decided: &mut Decided) {
    let Ok(store) = open(path) else { return };
    for n in 2..2 + DECISIONS {
        decided.decide(&store, n);
        if n % 2 == 0 {
            let _ = store.checkpoint();
            let _ = store.floor();
        }
    }
    assert_kept(&store, decided);
}

/// Opens the database on a working disk: it has every decision, and takes further ones. Leaves the
/// store open.
fn check(path: &Path, open: Open, decided: &mut Decided) {
    drop(decided.open.take());
    let store = open(path).unwrap();
    assert_kept(&store, decided);
    let next = decided.groups.keys().max().map_or(1, |last| last + 1);
    decided.decide(&store, next);
    assert_eq!((decided.groups.get(&next), decided.agents.get(&next)), (Some(&true), Some(&true)));
    assert_kept(&store, decided);
    decided.open = Some(store);
}

fn check_and_close(path: &Path, open: Open, decided: &mut Decided) {
    check(path, open, decided);
    let store = decided.open.take().unwrap();
    store.checkpoint().unwrap();
    assert_kept(&store, decided);
    drop(store);
    let db = rusqlite::Connection::open(path).unwrap();
    let sound: String = db.query_row("PRAGMA integrity_check", [], |row| row.get(0)).unwrap();
    assert_eq!(sound, "ok");
}

fn db(folder: &Path) -> PathBuf {
    folder.join("registry.db")
}

/// Lets requests to the disk of the database, and of its log, fail in turn.
fn fail_requests(open: Open, step: usize) {
    let Some(folder) = device::or_skip(FaultyFolder::new()) else { return };
    let work = |folder: &Path, decided: &mut Decided| work(&db(folder), open, decided);
    let check = |folder: &Path, decided: &mut Decided| check_and_close(&db(folder), open, decided);
    let runs = folder.fail_each(step, |folder| prepare(&db(folder), open), work, check);
    assert!(runs > 20, "{runs} runs");
    let runs = folder.fail_each(step, |_| Decided::default(), work, check);
    assert!(runs > 20, "{runs} runs of a new database");
}

#[test]
fn decisions_survive_failed_requests() {
    fail_requests(alone, step(17));
}

#[test]
fn logged_decisions_survive_failed_requests() {
    fail_requests(logged, step(71));
}

/// A flush that succeeds after a failed one does not cover what the failed one did not write.
#[test]
fn failed_flush_refuses_decisions_until_the_registry_is_opened() {
    let Some(folder) = device::or_skip(FaultyFolder::new()) else { return };
    let path = db(folder.path());
    let by = WriteContext::server();
    let flush = DiskFault {
        request: FaultyRequest::Flush,
        number: 1,
        error: FaultError::Io,
        lasting: false,
    };
    for checkpoint in [false, true] {
        let mut decided = prepare(&path, alone);
        let store = ControlStore::open(&path).unwrap();
        store.create_group(&by, "before", NOW_S).unwrap();
        folder.fail(flush);
        if checkpoint {
            store.checkpoint().unwrap_err();
        } else {
            store.create_group(&by, "g2", NOW_S).unwrap_err();
            decided.groups.insert(2, false);
        }
        assert_eq!(folder.failed_requests(), 1);
        let refused = store.create_group(&by, "after", NOW_S).unwrap_err();
        assert!(matches!(refused, ControlError::Poisoned(_)), "{refused}");
        assert_kept(&store, &decided);
        drop(store);
        assert!(path.with_extension("db-wal").exists(), "the log was copied at the end");
        check_and_close(&path, alone, &mut decided);
        std::fs::remove_file(&path).unwrap();
    }
}

/// A commit that leaves more than 64 MiB in the log checkpoints by itself. The commit is durable by then.
#[test]
fn failed_flush_of_an_automatic_checkpoint_refuses_decisions() {
    let Some(folder) = device::or_skip(FaultyFolder::new()) else { return };
    let path = db(folder.path());
    let by = WriteContext::server();
    let large = GroupConfig { body: vec![b' '; 70 << 20], sum: String::new(), at_s: NOW_S };
    // The first flush is that of the commit, the next two are those of the log and the database.
    for number in [2, 3] {
        let mut decided = prepare(&path, alone);
        let store = ControlStore::open(&path).unwrap();
        // The first write to a new log flushes its folder as well.
        store.create_group(&by, "before", NOW_S).unwrap();
        let (request, error) = (FaultyRequest::Flush, FaultError::Io);
        folder.fail(DiskFault { request, number, error, lasting: false });
        assert_eq!(store.failure(), None);
        store.set_group_config(&by, "default", &large).unwrap();
        assert_eq!(folder.failed_requests(), 1);
        let failure = store.failure().expect("a failure");
        assert!(failure.at_us > 0 && !failure.cause.is_empty(), "{failure:?}");
        let refused = store.create_group(&by, "after", NOW_S).unwrap_err();
        assert!(matches!(refused, ControlError::Poisoned(_)), "{refused}");
        drop(store);
        let log = std::fs::metadata(path.with_extension("db-wal")).unwrap().len();
        assert!(log > 70 << 20, "the log was copied at the end: {log} bytes");
        check_and_close(&path, alone, &mut decided);
        let store = ControlStore::open(&path).unwrap();
        let config = store.group_config(&Reader::server(), "default").unwrap().unwrap();
        assert!(config.body == large.body, "{} bytes", config.body.len());
        drop(store);
        std::fs::remove_file(&path).unwrap();
    }
}

fn fail_device(open: Open, step: usize) {
    if device::or_skip(available(Fs::Ext4)).is_none() {
        return;
    }
    let mut device = Device::new(64 << 20).unwrap();
    device.mount(Fs::Ext4).unwrap();
    let runs = device.fail_each(
        step,
        |folder| prepare(&db(folder), open),
        |folder, decided| work(&db(folder), open, decided),
        |folder, decided| check(&db(folder), open, decided),
    );
    assert!(runs > 20, "{runs} runs");
}

#[test]
fn decisions_survive_device_faults_and_a_power_cut() {
    fail_device(alone, step(5));
}

#[test]
fn logged_decisions_survive_device_faults_and_a_power_cut() {
    fail_device(logged, step(13));
}
