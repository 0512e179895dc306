//! Cycles: sending everything that is pending, session by session.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use env::clock::Clock;
use link::json::{ControlConfig, ControlScan};
use link::{Answer, Instance, Mode, Start};
use model::{AgentOs, Dataset, Names, SkipReason};
use parking_lot::Mutex;
use queue::{Queue, Skip};
use reqwest::StatusCode;
use tracing::{debug, info, warn};

use crate::client::{self, Client, SessionHead};
use crate::control::{self, Facts, Reasons, Renewal};
use crate::pace::SessionSize;
use crate::report::WatchNote;
use crate::session::{self, Draft, Refused, SessionLimits, Skipped};
use crate::{IdentityFolder, Machine, SyncError};

/// Content type of a session.
const SESSION_TYPE: &str = "application/octet-stream";
/// Size of a session that every server must accept, bytes. If one of this size is refused as too
/// large, the cycle fails and no value is set aside.
const SESSION_BYTES_MIN: usize = 4 * 1024;
/// Most passes over the dataset in one cycle. The second one sends the items that a resumed first
/// pass had skipped, and the items for which the server asked for a higher version.
const ROUNDS_MAX: usize = 3;

/// The options of a syncer: this machine's description and the target size of sessions.
#[derive(Debug, Clone)]
pub struct SyncOptions {
    /// The part of the agent that sends: `module` of a session and prefix of its id.
    pub module: String,
    /// Version of the program.
    pub version: String,
    pub hostname: String,
    pub os: AgentOs,
    /// Machine that the agent runs on.
    pub machine: Machine,
    /// Interval of heartbeats, from which the server detects silence.
    pub heartbeat: Duration,
    /// Target size of a session, bytes; the server's limit applies as well.
    pub session_bytes: usize,
}

/// The result of a cycle.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CycleReport {
    /// Sessions answered with 200.
    pub sessions: u64,
    /// Documents reported, deletes included.
    pub documents: u64,
    pub events: u64,
    /// Values that the server skipped.
    pub skipped: u64,
    /// Bytes of the sessions.
    pub bytes: u64,
}

/// The client of an agent's server. All calls take `&self`. A heartbeat may run during a cycle or
/// check, but only one cycle or check may run at a time.
///
/// **Locking.** The mutexes of the fields are held for a short time and never across an await,
/// except `beating`. `facts` is taken before `client` and `pace`.
pub struct Syncer {
    pub(crate) queue: Queue,
    pub(crate) client: Mutex<Client>,
    pub(crate) folder: IdentityFolder,
    pub(crate) options: SyncOptions,
    pub(crate) names: Arc<dyn Names>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) facts: Mutex<Facts>,
    pub(crate) reasons: Arc<Reasons>,
    /// This start of the program.
    pub(crate) instance: Instance,
    pub(crate) renewal: Mutex<Renewal>,
    /// Held while a heartbeat is sent. No other lock is taken before it.
    pub(crate) beating: tokio::sync::Mutex<()>,
    /// Newest scan, until a heartbeat that reports it is acknowledged.
    pub(crate) scan: Mutex<Option<ControlScan>>,
    pub(crate) watch: Mutex<WatchNote>,
    /// True once the first scan after this start has ended.
    pub(crate) scanned: AtomicBool,
    /// State of the groups' configuration, as heartbeats report it.
    pub(crate) config: Mutex<ControlConfig>,
    /// Number of the newest session of this agent that is known here.
    pub(crate) last_session: AtomicU64,
    /// Session size that connection and server can handle, over all cycles.
    pub(crate) pace: Mutex<SessionSize>,
}

impl Syncer {
    /// Opens a syncer with the identity in `folder`. It does not connect yet.
    ///
    /// # Errors
    /// Returns an error if the agent is not enrolled, its identity cannot be used, or the folder is
    /// a copy of one that a running process uses.
    pub fn open(
        queue: Queue,
        folder: IdentityFolder,
        options: SyncOptions,
        names: Arc<dyn Names>,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, SyncError> {
        let instance = options.machine.instance()?;
        let client = Client::open(&folder)?.speaking_as(&instance, options.heartbeat);
        options.machine.claim(&queue)?;
        let facts = Facts::initial(&client.identity().cluster_name, control::check_noted(&queue)?);
        // Numbers continue above those of earlier runs, even if the clock was set back.
        let last_session = control::last_session_known(&queue)?;
        let pace = Mutex::new(SessionSize::new(options.session_bytes));
        Ok(Self {
            queue,
            client: Mutex::new(client),
            folder,
            options,
            names,
            clock,
            facts: Mutex::new(facts),
            reasons: Arc::default(),
            instance,
            renewal: Mutex::default(),
            beating: tokio::sync::Mutex::default(),
            scan: Mutex::default(),
            watch: Mutex::default(),
            scanned: AtomicBool::new(false),
            config: Mutex::default(),
            last_session: AtomicU64::new(last_session),
            pace,
        })
    }

    /// Returns the client of the server.
    pub fn client(&self) -> Client {
        self.client.lock().clone()
    }

    /// Sends everything of the dataset that is pending now, and the events queued now.
    ///
    /// # Errors
    /// Returns an error if a session fails; its items are pending again, and earlier sessions stay
    /// acknowledged.
    pub async fn cycle(&self, dataset: &Dataset) -> Result<CycleReport, SyncError> {
        self.send_startup().await?;
        let queue = self.queue.clone();
        let events = blocking(move || Ok(queue.status()?.events)).await?;
        let mut run = Run {
            report: CycleReport::default(),
            events: usize::try_from(events).unwrap_or(usize::MAX),
        };
        for _ in 0..ROUNDS_MAX {
            let (queue, name) = (self.queue.clone(), dataset.clone());
            let begun = blocking(move || queue.begin_cycle(&name)).await?;
            let restamped = self.round(dataset, &mut run).await?;
            let (queue, name) = (self.queue.clone(), dataset.clone());
            blocking(move || queue.end_cycle(&name)).await?;
            if !begun.resumed && !restamped {
                break;
            }
        }
        Ok(run.report)
    }

    /// Makes one pass. Returns true if the server had higher versions of some items, which are
    /// pending again.
    async fn round(&self, dataset: &Dataset, run: &mut Run) -> Result<bool, SyncError> {
        let mut restamped = false;
        while let Some(draft) = self.draft(dataset, run).await? {
            match self.send(&draft).await {
                Ok(answer) => {
                    run.report.sessions += 1;
                    run.report.documents += draft.documents() as u64;
                    run.report.events += draft.events.items.len() as u64;
                    run.report.bytes += draft.bytes.len() as u64;
                    run.report.skipped += answer.skipped.len() as u64;
                    self.pace.lock().record_accepted();
                    restamped |= self.acknowledge(dataset, draft, answer, run).await?;
                }
                Err(error) if error.is_too_large() => {
                    self.too_large(dataset, draft, run, error).await?;
                }
                Err(error) => {
                    self.slow_down(draft.values(), draft.bytes.len(), &error);
                    self.give_back(draft);
                    return Err(error);
                }
            }
        }
        Ok(restamped)
    }

    async fn draft(&self, dataset: &Dataset, run: &Run) -> Result<Option<Draft>, SyncError> {
        let start = self.start(Mode::ModuleDelta);
        let limits = {
            let (facts, pace) = (self.facts.lock(), self.pace.lock());
            SessionLimits {
                bytes: pace.bytes().min(facts.session_bytes_max),
                values: pace.values_max().min(facts.session_values_max),
                events: if facts.events { run.events } else { 0 },
            }
        };
        let (queue, dataset) = (self.queue.clone(), dataset.clone());
        let names = Arc::clone(&self.names);
        blocking(move || session::draft(&queue, &dataset, limits, &start, names.as_ref())).await
    }

    /// Posts one session.
    async fn send(&self, draft: &Draft) -> Result<Answer, SyncError> {
        let id = self.session_id();
        self.note_sent(&id).await?;
        let client = self.client();
        let url = format!("{}/stateful", client.identity().server_url);
        let head = SessionHead { id: &id, now_us: self.clock.now_us() };
        let reply = client.post("/stateful", Some(head), SESSION_TYPE, draft.bytes.clone()).await?;
        if reply.status != StatusCode::OK {
            return Err(client::refused(&url, &reply));
        }
        let answer: Answer = serde_json::from_slice(&reply.body)
            .map_err(|e| client::protocol(&url, &e.to_string()))?;
        if answer.status != link::json::STATUS_OK {
            let what = format!("it answered 200 with the status {:?}", answer.status);
            return Err(client::protocol(&url, &what));
        }
        Self::log_acknowledged(&id, draft);
        Ok(Answer { session: id, ..answer })
    }

    /// Logs what an auditor compares with the server: one line per acknowledged session, and at
    /// debug level the ids of its events.
    fn log_acknowledged(id: &str, draft: &Draft) {
        let events = &draft.events.items;
        info!(
            session = id,
            documents = draft.documents(),
            events = events.len(),
            "session acknowledged"
        );
        if tracing::enabled!(tracing::Level::DEBUG) && !events.is_empty() {
            let ids: Vec<&str> = events.iter().map(|e| e.id.as_str()).collect();
            debug!(session = id, ids = ids.join(","), "events acknowledged");
        }
    }

    /// Handles a 413: halves the size. A single value that is still too large is set aside and
    /// named in a coverage event, so that it cannot block the others.
    async fn too_large(
        &self,
        dataset: &Dataset,
        draft: Draft,
        run: &mut Run,
        error: SyncError,
    ) -> Result<(), SyncError> {
        let sent = draft.bytes.len();
        if draft.values() > 1 {
            self.pace.lock().halve(sent);
            self.give_back(draft);
            return Ok(());
        }
        if sent <= SESSION_BYTES_MIN {
            self.give_back(draft);
            return Err(error);
        }
        let mut refused = Refused::default();
        let mut skips = Vec::new();
        if draft.documents() > 0 {
            refused.document(&draft, 0, SkipReason::TooLarge);
            skips.push(Skip { index: 0, reason: SkipReason::TooLarge, version: 0 });
        } else {
            run.events = run.events.saturating_sub(draft.events.items.len());
            refused.event(&draft, 0, SkipReason::TooLarge);
        }
        warn!(bytes = sent, "the server accepts no session with one value of this size: set aside");
        run.events += self.acknowledge_session(dataset, draft, skips, refused, None).await?.gaps;
        Ok(())
    }

    /// Reduces the size of sessions if the failed one may have been too large for the connection.
    pub(crate) fn slow_down(&self, values: usize, bytes: usize, error: &SyncError) {
        if values <= 1 || !error.is_slow() {
        } else if error.is_broken() {
            self.pace.lock().broken(bytes);
        } else {
            self.pace.lock().slow(bytes);
        }
    }

    fn give_back(&self, draft: Draft) {
        if let Some(lease) = draft.lease {
            self.queue.return_(lease);
        }
    }

    /// Applies the acknowledgement of a session. Returns true if the server held higher versions of
    /// some items.
    async fn acknowledge(
        &self,
        dataset: &Dataset,
        draft: Draft,
        answer: Answer,
        run: &mut Run,
    ) -> Result<bool, SyncError> {
        run.events = run.events.saturating_sub(draft.events.items.len());
        let Skipped { skips, refused } = session::skips(&draft, &answer.skipped);
        // The server does not remember a session without effect.
        let session = (!answer.noop).then_some(answer.session);
        let settled = self.acknowledge_session(dataset, draft, skips, refused, session).await?;
        run.events += settled.gaps;
        Ok(settled.restamped)
    }

    async fn acknowledge_session(
        &self,
        dataset: &Dataset,
        draft: Draft,
        skips: Vec<Skip>,
        refused: Refused,
        session: Option<String>,
    ) -> Result<AnswerOutcome, SyncError> {
        let (queue, dataset) = (self.queue.clone(), dataset.clone());
        let now_us = self.clock.now_us();
        blocking(move || {
            // The gaps come first: after a kill, a gap may be reported twice but is not lost.
            let gaps = refused.into_gaps(now_us);
            let mut settled = AnswerOutcome { gaps: gaps.len(), restamped: false };
            for gap in gaps {
                queue.append_coverage(&dataset, gap)?;
                queue::known_gaps::set_unknown(&queue)?;
            }
            if let Some(lease) = draft.lease {
                settled.restamped = queue.ack(lease, &skips)?.restamped > 0;
            }
            if !draft.events.items.is_empty() {
                queue.ack_events(draft.events)?;
            }
            if let Some(session) = session {
                control::note_session(&queue, &session)?;
            }
            Ok(settled)
        })
        .await
    }

    /// Returns the head of a session.
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

    /// Returns a new session id, `module-INSTANCE-N`. N is the maximum of the time in microseconds
    /// << 12 and the last N + 1 (`docs/reference/wire.md`, "Sessions: size and id").
    pub(crate) fn session_id(&self) -> String {
        let now = self.clock.now_us() << 12;
        let before = self
            .last_session
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, |last| Some((last + 1).max(now)))
            .unwrap_or(now);
        format!("{}-{}-{}", self.options.module, self.instance, (before + 1).max(now))
    }
}

/// A cycle in progress.
struct Run {
    report: CycleReport,
    /// Events of this cycle still to be sent. Events queued later belong to the next cycle, since
    /// otherwise a cycle during a busy scan would never end.
    events: usize,
}

/// The result of applying an answer.
struct AnswerOutcome {
    /// Coverage events appended.
    gaps: usize,
    /// The server held higher versions of some items: they are pending again.
    restamped: bool,
}

/// Returns the number at the end of a session id.
pub(crate) fn session_number(id: &str) -> Option<u64> {
    id.rsplit('-').next()?.parse().ok()
}

/// Runs a function on a thread that may block.
pub(crate) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, queue::QueueError> + Send + 'static,
) -> Result<T, SyncError> {
    match tokio::task::spawn_blocking(work).await {
        Ok(result) => Ok(result?),
        Err(_) => Err(SyncError::Stopping),
    }
}
