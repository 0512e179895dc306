//! Failed writes and flushes of the journal and of `state.db`, each in turn: an error reaches the
//! caller, and everything acknowledged is there when the disk works again.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stderr,
    reason = "a test that cannot go on fails"
)]

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use commit::{Commit, CommitError, CommitOptions, Committed};
use device::{Device, DiskFault, FaultError, FaultyFolder, FaultyRequest, Fs, available};
use journal::{Journal, OpenError, Options};
use model::{AgentId, Dataset, EventBody, Incarnation, Overlay, Record, SessionRecord, Write};
use state::{ChangeQuery, Reader, StateOptions, StateStore};
use tempfile::TempDir;
use tokio::runtime::Runtime;
use tokio::task::JoinHandle;

/// Records of one run.
const RECORDS: usize = 8;
/// Longest wait on a busy machine.
const PATIENCE: Duration = Duration::from_mins(10);

/// Returns the distance between two requests that fail in turn: 1 in a soak.
fn step(usual: usize) -> usize {
    if std::env::var_os("HOLDFAST_SOAK").is_some() { 1 } else { usual }
}

type Submit = JoinHandle<Result<Committed, CommitError>>;

/// One data folder and the records submitted to it, by the ids of their events.
struct Submitted {
    journal: PathBuf,
    state: PathBuf,
    runtime: Runtime,
    /// The commit that had the fault, if it opened.
    open: Option<Arc<Commit>>,
    /// Records that wait until a full disk has space again.
    waiting: Vec<(String, Submit)>,
    acknowledged: BTreeSet<String>,
    failed: BTreeSet<String>,
    _journal_elsewhere: Option<TempDir>,
}

impl Submitted {
    /// Uses `folder`, for the state alone or for the journal, too.
    fn new(folder: &Path, journal_too: bool) -> Self {
        let elsewhere = (!journal_too).then(|| tempfile::tempdir().unwrap());
        let journal = elsewhere.as_ref().map_or(folder, |elsewhere| elsewhere.path());
        Self {
            journal: journal.join("journal"),
            state: folder.join("state.db"),
            runtime: tokio::runtime::Builder::new_multi_thread().worker_threads(2).build().unwrap(),
            open: None,
            waiting: Vec::new(),
            acknowledged: BTreeSet::new(),
            failed: BTreeSet::new(),
            _journal_elsewhere: elsewhere,
        }
    }

    fn try_open(&self) -> Result<(Arc<Commit>, Arc<StateStore>), String> {
        // Small segments: a checkpoint trims whole ones.
        let options = Options { segment_bytes: 64 * 1024, spares: 0, ..Options::default() };
        let until = Instant::now() + PATIENCE;
        let journal = loop {
            match Journal::open(&self.journal, options.clone()) {
                // A process forked by another test has the lock's descriptor until it calls exec.
                Err(OpenError::Locked(_)) if Instant::now() < until => std::thread::yield_now(),
                opened => break opened.map_err(|error| error.to_string())?.0,
            }
        };
        let state =
            StateStore::open(&self.state, StateOptions { readers: 1, ..StateOptions::default() });
        let state = Arc::new(state.map_err(|e| e.to_string())?);
        let options = CommitOptions::default();
        let opened = Commit::open(journal, Arc::<StateStore>::clone(&state), options);
        Ok((opened.map_err(|e| e.to_string())?.0, state))
    }

    /// Submits a record and waits for its outcome, or until the commit waits for space on the disk.
    fn submit(&mut self, commit: &Arc<Commit>, id: &str) {
        let (own, record) = (Arc::clone(commit), record(id));
        let submit = self.runtime.spawn(async move { own.submit(record).await });
        let deadline = Instant::now() + PATIENCE;
        while !submit.is_finished() {
            if matches!(commit.available(), Err(CommitError::Full(_))) {
                self.waiting.push((id.into(), submit));
                return;
            }
            assert!(Instant::now() < deadline, "no outcome");
            std::thread::yield_now();
        }
        self.settle(id.into(), submit);
    }

    fn settle(&mut self, id: String, submit: Submit) {
        match self.runtime.block_on(submit).unwrap() {
            Ok(committed) => {
                assert_eq!(committed.applied.quarantined, None);
                self.acknowledged.insert(id);
            }
            Err(_) => {
                self.failed.insert(id);
            }
        }
    }
}

/// Returns a session of one event and one document, both called `id`.
fn record(id: &str) -> Record {
    let body = format!("{{\"file\":{{\"path\":\"/{id}\"}}}}").into_bytes();
    let event = EventBody::default().to_json();
    Record::Session(SessionRecord {
        agent: AgentId(1),
        incarnation: Incarnation(1),
        received_at_us: 1,
        session: id.into(),
        overlay: Overlay::default(),
        writes: vec![
            Write::Event { id: id.into(), body: event },
            Write::Upsert { dataset: Dataset::fim_files(), id: id.into(), version: 1, body },
        ],
    })
}

/// Makes a data folder with one record.
fn prepare(folder: &Path, journal_too: bool) -> Submitted {
    let mut it = Submitted::new(folder, journal_too);
    let (commit, _) = it.try_open().unwrap();
    it.submit(&commit, "first");
    it.runtime.block_on(commit.close()).unwrap();
    it
}

/// Submits records, with checkpoints between them. Any of that may fail.
fn work(it: &mut Submitted) {
    let Ok((commit, _)) = it.try_open() else { return };
    for n in 0..RECORDS {
        it.submit(&commit, &format!("r{n}"));
        if n % 3 == 2 {
            let _ = commit.checkpoint();
        }
    }
    it.open = Some(commit);
}

/// Ends the commit on a working disk, opens the folder again, and compares. Leaves it open.
fn check(it: &mut Submitted) {
    if let Some(commit) = it.open.take() {
        for (id, submit) in std::mem::take(&mut it.waiting) {
            it.settle(id, submit);
        }
        // Every other run ends as a killed process does.
        if it.acknowledged.len().is_multiple_of(2) {
            let _ = it.runtime.block_on(commit.close());
        }
    }
    let (commit, state) = it.try_open().unwrap();
    assert_kept(it, &state);
    it.submit(&commit, "last");
    assert!(it.acknowledged.contains("last"), "the folder takes no more records");
    it.open = Some(commit);
}

fn check_and_close(it: &mut Submitted) {
    check(it);
    let commit = it.open.take().unwrap();
    commit.checkpoint().unwrap();
    it.runtime.block_on(commit.close()).unwrap();
    drop(commit);
    let db = rusqlite::Connection::open(&it.state).unwrap();
    let sound: String = db.query_row("PRAGMA integrity_check", [], |row| row.get(0)).unwrap();
    assert_eq!(sound, "ok");
}

fn assert_kept(it: &Submitted, state: &StateStore) {
    let all = ChangeQuery { limit: 1_000, ..ChangeQuery::default() };
    let events = state.changes(&Reader::server(), &all).unwrap().items;
    let found: BTreeSet<String> = events.into_iter().map(|event| event.id).collect();
    let lost: Vec<_> = it.acknowledged.difference(&found).collect();
    assert!(lost.is_empty(), "{lost:?} were acknowledged and are gone");
    let odd: Vec<_> = found.difference(&it.acknowledged).collect();
    assert!(odd.iter().all(|id| it.failed.contains(*id)), "{odd:?} were never submitted");
    let counts = state.counts(&Reader::server()).unwrap();
    let documents: u64 = counts.documents.iter().map(|(_, documents, _)| documents).sum();
    assert_eq!(documents, found.len() as u64, "event and document are one record");
}

#[test]
fn acknowledged_records_survive_faults_of_the_state() {
    let Some(folder) = device::or_skip(FaultyFolder::new()) else { return };
    let work = |_: &Path, it: &mut Submitted| work(it);
    let check = |_: &Path, it: &mut Submitted| check_and_close(it);
    let runs = folder.fail_each(step(31), |folder| prepare(folder, false), work, check);
    assert!(runs > 20, "{runs} runs");
    let runs = folder.fail_each(step(31), |folder| Submitted::new(folder, false), work, check);
    assert!(runs > 20, "{runs} runs of a new database");
}

#[test]
fn acknowledged_records_survive_faults_of_the_data_folder() {
    let Some(folder) = device::or_skip(FaultyFolder::new()) else { return };
    let runs = folder.fail_each(
        step(17),
        |folder| prepare(folder, true),
        |_, it| work(it),
        |_, it| check_and_close(it),
    );
    assert!(runs > 20, "{runs} runs");
}

/// A flush that succeeds after a failed one does not cover what the failed one did not write.
#[test]
fn failed_checkpoint_refuses_records_until_a_restart() {
    let Some(folder) = device::or_skip(FaultyFolder::new()) else { return };
    let mut it = prepare(folder.path(), false);
    let (commit, _) = it.try_open().unwrap();
    it.submit(&commit, "before");
    folder.fail(DiskFault {
        request: FaultyRequest::Flush,
        number: 1,
        error: FaultError::Io,
        lasting: false,
    });
    let failed = commit.checkpoint().unwrap_err();
    assert!(matches!(failed, CommitError::State(_)), "{failed}");
    assert_eq!(folder.failed_requests(), 1);
    it.submit(&commit, "after");
    assert!(it.failed.contains("after"), "a record was acknowledged after a failed flush");
    commit.checkpoint().unwrap_err();
    it.open = Some(commit);
    check_and_close(&mut it);
}

#[test]
fn acknowledged_records_survive_device_faults_and_a_power_cut() {
    if device::or_skip(available(Fs::Ext4)).is_none() {
        return;
    }
    let mut device = Device::new(64 << 20).unwrap();
    device.mount(Fs::Ext4).unwrap();
    let runs = device.fail_each(
        step(5),
        |folder| prepare(folder, true),
        |_, it| work(it),
        |_, it| check(it),
    );
    assert!(runs > 20, "{runs} runs");
}
