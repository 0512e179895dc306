//! A real server behind a proxy, and agents with real queues that use TLS.

mod finding;
mod folders;
mod proxy;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use commit::{Commit, CommitOptions};
use env::clock::{Clock as _, ManualClock, SystemClock};
use env::random::SystemRandom;
use journal::Journal;
use model::document::NoNames;
use model::{
    AgentId, AgentOs, Change, ChangeKind, Dataset, Fields, FileDocument, Incarnation, ItemKey,
    Kind, Names, Observation, Op, Record, SessionRecord, Sink as _, Write,
};
use queue::{Queue, QueueOptions};
use registry::{ControlStore, Reader, Registry, RegistryOptions, TokenTerms, WriteContext};
use sessions::{Sessions, SessionsHandle, SessionsOptions};
use state::{ChangeQuery, DocumentQuery, StateOptions, StateStore, StoredDocument, StoredEvent};
use sync::{
    CycleReport, EnrollOptions, IdentityFolder, Machine, SyncError, SyncOptions, Syncer, enroll,
};
use tempfile::TempDir;

pub(crate) use finding::{Finding, Finds};
pub(crate) use folders::{copy, put_back};
pub(crate) use proxy::Proxy;

pub(crate) fn files() -> Dataset {
    Dataset::fim_files()
}

pub(crate) fn packages() -> Dataset {
    Dataset::new("inventory-packages")
}

/// A server that can be stopped and restarted with its folder. Agents reach it through the proxy.
pub(crate) struct Server {
    pub(crate) folder: TempDir,
    pub(crate) proxy: Proxy,
    /// The registry's clock, for the validity of certificates and tokens.
    pub(crate) clock: ManualClock,
    running: Option<Running>,
}

struct Running {
    handle: SessionsHandle,
    commit: Arc<Commit>,
    state: Arc<StateStore>,
    registry: Registry,
}

impl Server {
    pub(crate) async fn start() -> Self {
        Self::start_at(SystemClock::new().now_us()).await
    }

    pub(crate) async fn start_at(now_us: u64) -> Self {
        let mut server = Self {
            folder: tempfile::tempdir().unwrap(),
            proxy: Proxy::start().await,
            clock: ManualClock::at(now_us),
            running: None,
        };
        server.resume(|_| {});
        server
    }

    /// Starts the server with the data in the folder.
    pub(crate) fn resume(&mut self, edit: impl FnOnce(&mut SessionsOptions)) {
        let path = self.folder.path();
        let state: Arc<StateStore> =
            Arc::new(StateStore::open(&path.join("state.db"), StateOptions::default()).unwrap());
        let options = journal::Options { segment_bytes: 1024 * 1024, ..Default::default() };
        let (journal, _) = Journal::open(&path.join("journal"), options).unwrap();
        let (commit, _) =
            Commit::open(journal, Arc::clone(&state), CommitOptions::default()).unwrap();
        let registry = Registry::open(
            Arc::new(ControlStore::open(&path.join("registry.db")).unwrap()),
            path,
            Arc::new(self.clock.clone()),
            Arc::new(SystemRandom),
            RegistryOptions::default(),
        )
        .unwrap();
        let mut options = SessionsOptions {
            https: Some("127.0.0.1:0".parse().unwrap()),
            clock: Arc::new(self.clock.clone()),
            ..SessionsOptions::default()
        };
        edit(&mut options);
        let handle =
            Sessions::start(options, Arc::clone(&commit), Arc::clone(&state), registry.clone())
                .unwrap();
        self.proxy.lead_to(handle.local_addr());
        self.running = Some(Running { handle, commit, state, registry });
    }

    pub(crate) async fn stop(&mut self) {
        self.proxy.lead_to(None);
        let Running { handle, commit, state, registry } = self.running.take().unwrap();
        handle.shutdown().await;
        commit.close().await.unwrap();
        registry.close().unwrap();
        drop((commit, state, registry));
    }

    pub(crate) async fn restart(&mut self, edit: impl FnOnce(&mut SessionsOptions)) {
        self.stop().await;
        self.resume(edit);
    }

    pub(crate) fn registry(&self) -> &Registry {
        &self.running.as_ref().unwrap().registry
    }

    pub(crate) fn state(&self) -> &StateStore {
        &self.running.as_ref().unwrap().state
    }

    pub(crate) fn token(&self, uses: u32) -> String {
        self.registry()
            .create_enrolment_token(&WriteContext::server(), &TokenTerms::new(uses, 600))
            .unwrap()
    }

    pub(crate) fn enrolment(&self, token: &str, name: &str, folder: &Path) -> EnrollOptions {
        EnrollOptions {
            server_url: self.proxy.url(),
            token: token.into(),
            name: name.into(),
            groups: Vec::new(),
            folder: IdentityFolder::new(folder),
        }
    }

    /// Returns an enrolled agent with an empty queue.
    pub(crate) async fn agent(&self, name: &str) -> Agent {
        let folder = tempfile::tempdir().unwrap();
        let identity = enroll(&self.enrolment(&self.token(1), name, folder.path())).await.unwrap();
        let clock = ManualClock::at(SystemClock::new().now_us());
        Agent::open(folder, identity.id, clock, SESSION_BYTES)
    }

    /// Like [`Server::agent`], with this target size of a session in bytes.
    pub(crate) async fn agent_of(&self, name: &str, session_bytes: usize) -> Agent {
        let Agent { folder, id, clock, queue, .. } = self.agent(name).await;
        queue.close().unwrap();
        Agent::open(folder, id, clock, session_bytes)
    }

    /// Returns one of the server's counters.
    pub(crate) fn counter(&self, name: &str) -> u64 {
        let all = self.running.as_ref().unwrap().handle.counters();
        let found = all["metrics"].as_array().unwrap().iter().find(|m| m["name"] == name);
        found.unwrap_or_else(|| panic!("no counter {name}"))["value"].as_u64().unwrap()
    }

    /// Returns the number of requests answered so far, whatever the answer.
    pub(crate) fn requests(&self) -> u64 {
        let all = self.running.as_ref().unwrap().handle.counters();
        let of = |m: &serde_json::Value| {
            let name = m["name"].as_str().unwrap();
            name.starts_with("sync.requests.total.").then(|| m["value"].as_u64().unwrap())
        };
        all["metrics"].as_array().unwrap().iter().filter_map(of).sum()
    }

    /// Returns the documents of an agent's dataset.
    pub(crate) fn documents(&self, agent: AgentId, dataset: Dataset) -> Vec<StoredDocument> {
        let mut query = DocumentQuery::new(agent, dataset);
        let mut found = Vec::new();
        loop {
            let page = self.state().documents(&Reader::server(), &query).unwrap();
            found.extend(page.items);
            match page.next {
                Some(next) => query.after = Some(next),
                None => return found,
            }
        }
    }

    /// Returns the checksums of an agent's files by id.
    pub(crate) fn stored_checksums(&self, agent: &Agent) -> BTreeMap<String, String> {
        let documents = self.documents(agent.id, files());
        documents.into_iter().map(|d| (d.id, d.checksum)).collect()
    }

    /// Returns the version of an agent's file.
    pub(crate) fn version(&self, agent: &Agent, path: &str) -> u64 {
        let id = ItemKey::of_path(path.as_bytes()).document_id();
        self.state().document(&Reader::server(), agent.id, &files(), &id).unwrap().unwrap().version
    }

    /// Returns the details of the server's own coverage events of this kind.
    pub(crate) fn coverage_bodies(&self, kind: &str) -> Vec<String> {
        let page = self.state().changes(&Reader::server(), &ChangeQuery::default()).unwrap();
        let bodies = page.items.into_iter().map(|e| String::from_utf8(e.body).unwrap());
        bodies.filter(|b| b.contains(kind)).collect()
    }

    /// Ends every connection. New ones lead to the same server.
    pub(crate) fn cut_connections(&self) {
        self.proxy.lead_to(self.running.as_ref().unwrap().handle.local_addr());
    }

    /// Returns all events of an agent, newest first; fails on a duplicate.
    pub(crate) fn history(&self, agent: &Agent) -> Vec<StoredEvent> {
        let mut query = ChangeQuery { agents: Some(vec![agent.id]), ..ChangeQuery::default() };
        let mut found = Vec::new();
        loop {
            let page = self.state().changes(&Reader::server(), &query).unwrap();
            found.extend(page.items);
            match page.next {
                Some(next) => query.cursor = Some(next),
                None => break,
            }
        }
        let ids: BTreeSet<_> = found.iter().map(|e: &StoredEvent| e.id.clone()).collect();
        assert_eq!(ids.len(), found.len(), "an event is there twice");
        found
    }

    /// Changes the server's documents without the agent. A write of version 0 leaves no trace of
    /// it.
    pub(crate) async fn meddle(&self, agent: &Agent, writes: Vec<Write>) {
        // The session has the agent's last number, so that it causes no check, but another id.
        let last = self
            .state()
            .last_session(&Reader::server(), agent.id)
            .unwrap()
            .filter(|id| !id.is_empty());
        let session = last.map(|id| format!("m{id}")).unwrap_or_default();
        let incarnation = self.registry().agent(agent.id).map_or(Incarnation(0), |a| a.incarnation);
        let record = Record::Session(SessionRecord {
            agent: agent.id,
            incarnation,
            received_at_us: 1,
            session,
            overlay: self.registry().overlay(agent.id).unwrap(),
            writes,
        });
        let commit = &self.running.as_ref().unwrap().commit;
        let committed = commit.submit(record).await.unwrap();
        assert!(committed.applied.quarantined.is_none());
    }
}

/// Returns the options of an agent of these tests.
pub(crate) fn sync_options(machine: &Machine, session_bytes: usize) -> SyncOptions {
    SyncOptions {
        module: "fim".into(),
        version: "Holdfast test".into(),
        hostname: "host".into(),
        os: AgentOs { platform: "debian".into(), ..AgentOs::default() },
        machine: machine.clone(),
        heartbeat: std::time::Duration::from_secs(10),
        session_bytes,
    }
}

/// Returns the machine of this number, on its first boot.
pub(crate) fn machine(number: u8) -> Machine {
    Machine { id: format!("{number:02x}aa"), boot: format!("{number:02x}b1") }
}

/// Target size of a session in tests, bytes: a few dozen documents.
pub(crate) const SESSION_BYTES: usize = 32 * 1024;

/// An enrolled agent.
pub(crate) struct Agent {
    pub(crate) folder: TempDir,
    pub(crate) id: AgentId,
    pub(crate) clock: ManualClock,
    pub(crate) queue: Queue,
    pub(crate) syncer: Syncer,
    session_bytes: usize,
    pub(crate) machine: Machine,
    /// Files on its disk: path to content.
    pub(crate) disk: BTreeMap<String, u64>,
}

impl Agent {
    pub(crate) fn open(
        folder: TempDir,
        id: AgentId,
        clock: ManualClock,
        session_bytes: usize,
    ) -> Self {
        Self::open_on(&machine(1), folder, id, clock, session_bytes)
    }

    pub(crate) fn open_on(
        machine: &Machine,
        folder: TempDir,
        id: AgentId,
        clock: ManualClock,
        session_bytes: usize,
    ) -> Self {
        let (queue, _) = Queue::open(
            &folder.path().join("agent.db"),
            QueueOptions::default(),
            Arc::new(clock.clone()),
            Arc::new(SystemRandom),
        )
        .unwrap();
        let options = sync_options(machine, session_bytes);
        let syncer = Syncer::open(
            queue.clone(),
            IdentityFolder::new(folder.path()),
            options,
            Arc::new(NoNames),
            Arc::new(clock.clone()),
        )
        .unwrap();
        let (machine, disk) = (machine.clone(), BTreeMap::new());
        Self { folder, id, clock, queue, syncer, session_bytes, machine, disk }
    }

    /// Replaces the names of users and groups.
    pub(crate) fn speak_through(&mut self, names: Arc<dyn Names>) {
        let options = sync_options(&self.machine, self.session_bytes);
        let folder = IdentityFolder::new(self.folder.path());
        let clock = Arc::new(self.clock.clone());
        self.syncer = Syncer::open(self.queue.clone(), folder, options, names, clock).unwrap();
    }

    /// Stops cleanly and starts again.
    pub(crate) fn restart(self) -> Self {
        self.restart_after(|_| {})
    }

    /// Stops cleanly, changes the folder with `between`, and starts again.
    pub(crate) fn restart_after(self, between: impl FnOnce(&Path)) -> Self {
        let Self { folder, id, clock, queue, syncer, session_bytes, machine, disk } = self;
        drop(syncer);
        queue.close().unwrap();
        drop(queue);
        between(folder.path());
        Self { disk, ..Self::open_on(&machine, folder, id, clock, session_bytes) }
    }

    /// Returns an agent on a copy of this folder, opened on that machine; its disk is empty.
    pub(crate) fn copy_on(&self, machine: &Machine) -> Self {
        let clock = ManualClock::at(self.clock.now_us());
        Self::open_on(machine, copy(self.folder.path()), self.id, clock, self.session_bytes)
    }

    fn op(&mut self, op: Op) {
        self.clock.advance(std::time::Duration::from_millis(1));
        self.queue.sink(&files(), Arc::new(NoNames)).unwrap().apply(&mut vec![op]).unwrap();
    }

    /// Creates or changes a file, with its event.
    pub(crate) fn write(&mut self, path: &str, content: u64) {
        self.found(path, Some(content), true);
    }

    /// Adds files of the baseline, without events.
    pub(crate) fn base(&mut self, folder: &str, count: u64) {
        let mut batch = Vec::new();
        for n in 0..count {
            let path = format!("{folder}/f{n}");
            let key = ItemKey::of_path(path.as_bytes());
            batch.push(Op::Put { key, observation: file(n), change: None });
            self.disk.insert(path, n);
        }
        self.queue.sink(&files(), Arc::new(NoNames)).unwrap().apply(&mut batch).unwrap();
    }

    /// Removes a file, with its event.
    pub(crate) fn remove(&mut self, path: &str) {
        self.found(path, None, true);
    }

    /// Records that a scan found a file in this state, or deleted; with an event if `told`.
    pub(crate) fn found(&mut self, path: &str, now: Option<u64>, told: bool) {
        let before = match now {
            Some(content) => self.disk.insert(path.into(), content),
            None => self.disk.remove(path),
        };
        let kind = match (before, now) {
            (_, None) => ChangeKind::Deleted,
            (None, Some(_)) => ChangeKind::Created,
            _ => ChangeKind::Modified,
        };
        let key = ItemKey::of_path(path.as_bytes());
        let (before, after) = (before.map(file), now.map(file));
        let found_at_us = self.clock.now_us();
        let change = told.then(|| {
            let (key, after) = (key.clone(), after.clone());
            Box::new(Change {
                key,
                kind,
                before,
                after,
                fields: Fields::default(),
                found_at_us,
                from: None,
                seen: None,
                cause: None,
            })
        });
        self.op(match after {
            Some(observation) => Op::Put { key, observation, change },
            None => Op::Delete { key, change },
        });
    }

    pub(crate) async fn cycle(&self) -> CycleReport {
        self.syncer.cycle(&files()).await.unwrap()
    }

    pub(crate) async fn failing_cycle(&self) -> SyncError {
        self.syncer.cycle(&files()).await.unwrap_err()
    }

    /// Sends a heartbeat. As the running agent does, sends it once more if its connection ended.
    pub(crate) async fn beat(&self) -> link::ControlAnswer {
        let beat = || self.syncer.heartbeat(link::ControlAction::Notify, &[]);
        match beat().await {
            Err(SyncError::Interrupted { .. }) => beat().await.unwrap(),
            answered => answered.unwrap(),
        }
    }

    /// Runs cycle, check and cycle, as the running agent does when a check is due.
    pub(crate) async fn repair(&self) -> sync::CheckReport {
        assert!(self.syncer.check_due().is_some(), "no check is due");
        self.cycle().await;
        let report = self.syncer.check(&files()).await.unwrap();
        self.cycle().await;
        assert_eq!(self.syncer.check_due(), None);
        report
    }

    /// Returns the documents that the server should hold, in the shape of [`Server::stored_checksums`].
    pub(crate) fn expected(&self) -> BTreeMap<String, String> {
        let one = |(path, content): (&String, &u64)| {
            let key = ItemKey::of_path(path.as_bytes());
            let document = FileDocument::new(&key, &file(*content), 1, &NoNames);
            (key.document_id(), document.checksum.hash.sha1)
        };
        self.disk.iter().map(one).collect()
    }

    pub(crate) fn pending(&self) -> u64 {
        self.queue.status().unwrap().datasets.iter().map(|d| d.pending).sum()
    }

    pub(crate) fn events(&self) -> u64 {
        self.queue.status().unwrap().events
    }
}

/// Returns an observation whose content is identified by `content`.
pub(crate) fn file(content: u64) -> Observation {
    let mut observation = Observation::empty(Kind::File);
    observation.size = content;
    observation.hashes.sha256 = Some([content as u8; 32]);
    observation
}

/// Returns the document of a file as a write of this version.
pub(crate) fn planted(path: &str, content: u64, version: u64) -> Write {
    let key = ItemKey::of_path(path.as_bytes());
    let document = FileDocument::new(&key, &file(content), version, &NoNames);
    Write::Upsert {
        dataset: files(),
        id: key.document_id(),
        version,
        body: serde_json::to_vec(&document).unwrap(),
    }
}

/// Returns the removal of a file as a write of version 0.
pub(crate) fn torn(path: &str) -> Write {
    let id = ItemKey::of_path(path.as_bytes()).document_id();
    Write::Delete { dataset: files(), id, version: 0 }
}
