//! Cycles and heartbeats.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use env::clock::Clock;
use link::{Answer, ControlAction, ControlAnswer, ControlOutcome, ControlRequest, Mode, Start};
use model::{AgentOs, Dataset, Names, SkipReason};
use parking_lot::Mutex;
use queue::{Queue, Skip};
use reqwest::StatusCode;
use tracing::{debug, info, warn};

use crate::client::{self, Client};
use crate::session::{self, Draft, Room};
use crate::{IdentityFolder, SyncError, enroll};

/// Content type of a session.
const SESSION_TYPE: &str = "application/octet-stream";
/// Note under which the queue remembers which store it told.
const NOTE_STORE: &str = "sync.store";
/// Note under which the queue remembers the last session that was answered.
const NOTE_SESSION: &str = "sync.session";
/// Smallest session the halving goes down to, bytes.
const SESSION_BYTES_MIN: usize = 4 * 1024;

/// What this machine says of itself, and what is synchronised.
#[derive(Debug, Clone)]
pub struct SyncOptions {
    /// The part of the agent that sends: `module` of a session and prefix of its id.
    pub module: String,
    /// Version of the program.
    pub version: String,
    /// Host name.
    pub hostname: String,
    /// Operating system.
    pub os: AgentOs,
    /// Bytes aimed for in one session; the server's announcement bounds it further.
    pub session_bytes: usize,
}

/// What a cycle did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CycleReport {
    /// Sessions answered with 200.
    pub sessions: u64,
    /// Documents told, deletes included.
    pub documents: u64,
    /// Events told.
    pub events: u64,
    /// Values that the server left out.
    pub skipped: u64,
    /// Bytes of the sessions.
    pub bytes: u64,
}

/// What was learned from the server.
#[derive(Debug, Clone, Default)]
struct Facts {
    groups: Vec<String>,
    cluster_name: String,
    session_bytes_max: usize,
    session_values_max: usize,
    events: bool,
    greeted: bool,
    check_due: Option<&'static str>,
}

/// One agent's dialogue with its server. All calls take `&self`: a heartbeat may run while a
/// cycle does; of cycles and checks one at a time.
pub struct Syncer {
    pub(crate) queue: Queue,
    client: Mutex<Client>,
    folder: IdentityFolder,
    pub(crate) options: SyncOptions,
    pub(crate) names: Arc<dyn Names>,
    pub(crate) clock: Arc<dyn Clock>,
    facts: Mutex<Facts>,
    last_session: AtomicU64,
}

impl Syncer {
    /// Open with the identity in `folder`. Does not connect yet.
    ///
    /// # Errors
    /// When the agent is not enrolled or its identity cannot be used.
    pub fn open(
        queue: Queue,
        folder: IdentityFolder,
        options: SyncOptions,
        names: Arc<dyn Names>,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, SyncError> {
        let client = Client::open(&folder)?;
        let facts = Facts {
            cluster_name: client.identity().cluster_name.clone(),
            session_bytes_max: model::limits::SESSION_BYTES_MAX,
            session_values_max: model::limits::SESSION_VALUES_MAX,
            ..Facts::default()
        };
        Ok(Self {
            queue,
            client: Mutex::new(client),
            folder,
            options,
            names,
            clock,
            facts: Mutex::new(facts),
            last_session: AtomicU64::new(0),
        })
    }

    /// The line to the server.
    pub fn client(&self) -> Client {
        self.client.lock().clone()
    }

    /// Why agent and server must be compared before the next cycle, if they must.
    pub fn check_due(&self) -> Option<&'static str> {
        self.facts.lock().check_due
    }

    /// Ask for a check, or note that it was made.
    pub fn set_check_due(&self, reason: Option<&'static str>) {
        self.facts.lock().check_due = reason;
    }

    /// Tell the server that this agent is alive; learn its limits and orders, and renew the
    /// certificate when it is due.
    ///
    /// # Errors
    /// When there is no answer, or a refusal.
    pub async fn heartbeat(
        &self,
        action: ControlAction,
        outcomes: &[ControlOutcome],
    ) -> Result<ControlAnswer, SyncError> {
        let request = ControlRequest {
            action,
            version: self.options.version.clone(),
            hostname: self.options.hostname.clone(),
            os: self.options.os.clone(),
            outcomes: outcomes.to_vec(),
        };
        let client = self.client();
        let answer: ControlAnswer = client.call("/control", &request).await?;
        self.learn(&answer).await?;
        if answer.renew {
            let fresh = enroll::renew(&client, &self.folder).await?;
            info!(agent = %fresh.identity().id, "certificate renewed");
            *self.client.lock() = fresh;
        }
        Ok(answer)
    }

    async fn learn(&self, answer: &ControlAnswer) -> Result<(), SyncError> {
        let queue = self.queue.clone();
        let store = answer.store.clone();
        let (known_store, own_session) = blocking(move || {
            let text = |note: Option<Vec<u8>>| note.and_then(|n| String::from_utf8(n).ok());
            let known = text(queue.meta_get(NOTE_STORE)?);
            if known.as_deref() != Some(store.as_str()) {
                queue.meta_set(NOTE_STORE, store.as_bytes())?;
            }
            Ok((known, text(queue.meta_get(NOTE_SESSION)?)))
        })
        .await?;
        let mut facts = self.facts.lock();
        facts.greeted = true;
        facts.groups.clone_from(&answer.agent.groups);
        facts.cluster_name.clone_from(&answer.cluster_name);
        let limit = |announced: u64, own: usize| match usize::try_from(announced) {
            Ok(0) | Err(_) => own,
            Ok(n) => n.min(own),
        };
        facts.session_bytes_max =
            limit(answer.limits.session_bytes_max, model::limits::SESSION_BYTES_MAX);
        facts.session_values_max =
            limit(answer.limits.session_values_max, model::limits::SESSION_VALUES_MAX);
        facts.events = answer.datasets.iter().any(|d| d == Dataset::EVENTS);
        let number = |id: Option<&str>| id.and_then(session_number).unwrap_or(0);
        if known_store.is_some_and(|known| known != answer.store) {
            facts.check_due = Some("the server's store is another one");
        } else if number(answer.last_session.as_deref()) < number(own_session.as_deref()) {
            facts.check_due = Some("the server is behind what it acknowledged");
        }
        Ok(())
    }

    /// Tell everything of the dataset that is pending now, and the queued events.
    ///
    /// # Errors
    /// When a session fails; what it carried is pending again, what was answered before is told.
    pub async fn cycle(&self, dataset: &Dataset) -> Result<CycleReport, SyncError> {
        if !self.facts.lock().greeted {
            self.heartbeat(ControlAction::Startup, &[]).await?;
        }
        let mut report = CycleReport::default();
        let mut bytes = self.options.session_bytes;
        let (queue, name) = (self.queue.clone(), dataset.clone());
        blocking(move || queue.begin_cycle(&name)).await?;
        while let Some(draft) = self.draft(dataset, &mut bytes).await? {
            let answer = match self.send(&draft).await {
                Ok(Some(answer)) => answer,
                Ok(None) => {
                    self.too_large(draft, &mut bytes).await?;
                    continue;
                }
                Err(error) => {
                    self.give_back(draft);
                    return Err(error);
                }
            };
            report.sessions += 1;
            report.documents += draft.documents() as u64;
            report.events += draft.events.items.len() as u64;
            report.bytes += draft.bytes.len() as u64;
            report.skipped += answer.skipped.len() as u64;
            self.acknowledge(draft, answer).await?;
        }
        let (queue, name) = (self.queue.clone(), dataset.clone());
        blocking(move || queue.end_cycle(&name)).await?;
        Ok(report)
    }

    async fn draft(
        &self,
        dataset: &Dataset,
        bytes: &mut usize,
    ) -> Result<Option<Draft>, SyncError> {
        let start = self.start(Mode::ModuleDelta);
        let room = {
            let facts = self.facts.lock();
            *bytes = (*bytes).min(facts.session_bytes_max);
            Room { bytes: *bytes, values: facts.session_values_max, events: facts.events }
        };
        let (queue, dataset) = (self.queue.clone(), dataset.clone());
        let names = Arc::clone(&self.names);
        blocking(move || session::draft(&queue, &dataset, room, &start, names.as_ref())).await
    }

    /// Post one session; `None` when the server finds it too large.
    async fn send(&self, draft: &Draft) -> Result<Option<Answer>, SyncError> {
        let id = self.session_id();
        let client = self.client();
        let url = format!("{}/stateful", client.identity().server_url);
        let body = Bytes::copy_from_slice(&draft.bytes);
        let reply = client.post("/stateful", Some(&id), SESSION_TYPE, body).await?;
        match reply.status {
            StatusCode::OK => {
                let answer: Answer = serde_json::from_slice(&reply.body)
                    .map_err(|e| client::protocol(&url, &e.to_string()))?;
                Self::log_acknowledged(&id, draft);
                Ok(Some(Answer { session: id, ..answer }))
            }
            StatusCode::PAYLOAD_TOO_LARGE => Ok(None),
            _ => Err(client::refused(&url, &reply)),
        }
    }

    /// What an auditor holds against the server: one line per acknowledged session, and on debug
    /// the ids of its events.
    fn log_acknowledged(id: &str, draft: &Draft) {
        let events = &draft.events.items;
        info!(session = id, documents = draft.documents(), events = events.len(),
            "session acknowledged");
        if tracing::enabled!(tracing::Level::DEBUG) && !events.is_empty() {
            let ids: Vec<&str> = events.iter().map(|e| e.id.as_str()).collect();
            debug!(session = id, ids = ids.join(","), "events acknowledged");
        }
    }

    /// 413: try half as much; a single value that is still too large is set aside, so that it
    /// cannot block the others.
    async fn too_large(&self, draft: Draft, bytes: &mut usize) -> Result<(), SyncError> {
        let values = draft.values();
        if values > 1 && *bytes > SESSION_BYTES_MIN {
            *bytes = (*bytes / 2).max(SESSION_BYTES_MIN);
            self.give_back(draft);
            return Ok(());
        }
        warn!(bytes = draft.bytes.len(), "the server takes no session of one value of this size");
        let queue = self.queue.clone();
        blocking(move || {
            if let Some(lease) = draft.lease {
                let all = (0..lease.items().len())
                    .map(|index| Skip { index, reason: SkipReason::TooLarge, version: 0 })
                    .collect::<Vec<_>>();
                queue.ack(lease, &all)?;
            } else {
                queue.ack_events(draft.events)?;
            }
            Ok(())
        })
        .await
    }

    fn give_back(&self, draft: Draft) {
        if let Some(lease) = draft.lease {
            self.queue.return_(lease);
        }
    }

    async fn acknowledge(&self, draft: Draft, answer: Answer) -> Result<(), SyncError> {
        let queue = self.queue.clone();
        blocking(move || {
            let skips = session::skips(&draft, &answer.skipped);
            if let Some(lease) = draft.lease {
                queue.ack(lease, &skips)?;
            }
            if !draft.events.items.is_empty() {
                queue.ack_events(draft.events)?;
            }
            queue.meta_set(NOTE_SESSION, answer.session.as_bytes())
        })
        .await
    }

    /// The head of a session.
    pub(crate) fn start(&self, mode: Mode) -> Start {
        let facts = self.facts.lock();
        let client = self.client.lock();
        let o = &self.options;
        Start {
            module: o.module.clone(),
            mode,
            architecture: o.os.arch.clone(),
            hostname: o.hostname.clone(),
            osname: o.os.name.clone(),
            osplatform: o.os.platform.clone(),
            ostype: o.os.family.clone(),
            osversion: o.os.version.clone(),
            agentversion: o.version.clone(),
            agentname: client.identity().name.clone(),
            agentid: client.identity().id.to_string(),
            groups: facts.groups.clone(),
            cluster_name: facts.cluster_name.clone(),
            ..Start::default()
        }
    }

    /// `module-N` with N = (microseconds << 12) | counter, growing (`spec/sync.md` 1.3).
    pub(crate) fn session_id(&self) -> String {
        let now = self.clock.now_us() << 12;
        let before = self
            .last_session
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, |last| Some((last + 1).max(now)))
            .unwrap_or(now);
        format!("{}-{}", self.options.module, (before + 1).max(now))
    }
}

/// The number at the end of a session id.
fn session_number(id: &str) -> Option<u64> {
    id.rsplit('-').next()?.parse().ok()
}

/// Run on a thread that may block.
pub(crate) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, queue::QueueError> + Send + 'static,
) -> Result<T, SyncError> {
    match tokio::task::spawn_blocking(work).await {
        Ok(result) => Ok(result?),
        Err(_) => Err(SyncError::Stopping),
    }
}
