//! Heartbeats and their answers: limits, commands, and the reasons for a check, such as a server
//! with another store.
//!
//! State that must survive a restart is stored as notes in the queue: the server's store, the last
//! acknowledged session, and the reason of a check that is due. The note of the store changes only
//! when a check is done.
//!
//! **Locking.** `beating` is held during a heartbeat, before any other lock. `facts` and the mutex
//! of [`Reasons`] are not held at the same time.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use env::random::{Random as _, SystemRandom};
use link::json::ConfigAnswer;
use link::{ControlAction, ControlAnswer, ControlOutcome, ControlRequest};
use model::{Coverage, CoverageKind, Dataset};
use parking_lot::Mutex;
use queue::{Queue, QueueError, known_gaps};
use tracing::{info, warn};

use crate::syncer::{Syncer, blocking, session_number};
use crate::{SyncError, backoff, enroll};

/// Note: id of the store that this agent reports to.
const NOTE_STORE: &str = "sync.store";
/// Note: id of the last acknowledged session.
const NOTE_SESSION: &str = "sync.session";
/// Note: id of the last session that was sent, acknowledged or not. By this note the agent
/// recognises a session whose answer was lost as its own.
const NOTE_SENT: &str = "sync.sent";
/// Note: reason why a check is due; empty if none is.
const NOTE_CHECK: &str = "sync.check";
/// Reason for a check if the server has sessions of which this database has no record.
const UNKNOWN_SESSIONS: &str = "the server took sessions that this agent does not know";

/// The state learned from the server.
#[derive(Debug, Clone, Default)]
pub(crate) struct Facts {
    pub(crate) groups: Vec<String>,
    pub(crate) cluster_name: String,
    pub(crate) session_bytes_max: usize,
    pub(crate) session_values_max: usize,
    /// True if the server accepts events.
    pub(crate) events: bool,
    /// True once a heartbeat was answered.
    pub(crate) greeted: bool,
    check: Option<&'static str>,
    /// Reason found by the last heartbeats, until a check is done or it no longer applies. It
    /// prevents that the same reason is raised again by every heartbeat.
    raised: Option<&'static str>,
    /// Number of the last reason when the last finished check began.
    checked: u64,
    /// Set if the server lacks sessions that it acknowledged.
    behind: Option<SessionMismatch>,
}

/// The state of failed renewals.
#[derive(Debug, Default)]
pub(crate) struct Renewal {
    failures: u32,
    /// Monotonic time before which none is attempted.
    not_before: Option<Duration>,
}

/// The last session according to this agent and according to the server.
#[derive(Debug, Clone, PartialEq, Eq)]
struct SessionMismatch {
    own: String,
    theirs: String,
}

/// The reasons for checks. They are counted, so that a reason raised during a check stays, and
/// stored as a note, so that it survives restarts.
#[derive(Debug, Default)]
pub(crate) struct Reasons {
    count: AtomicU64,
    /// Held while the note is written.
    note: Mutex<()>,
}

impl Reasons {
    fn count(&self) -> u64 {
        self.count.load(Ordering::SeqCst)
    }

    /// Counts a reason. Call it before [`Reasons::note`], so that a check that ends in between does
    /// not clear the reason.
    fn raise(&self) {
        self.count.fetch_add(1, Ordering::SeqCst);
    }

    fn note(&self, queue: &Queue, reason: &str) -> Result<(), QueueError> {
        let _writing = self.note.lock();
        queue.meta_set(NOTE_CHECK, reason.as_bytes())
    }

    /// Clears the note, unless a reason after number `checked` was raised.
    fn clear_note(&self, queue: &Queue, checked: u64) -> Result<(), QueueError> {
        let _writing = self.note.lock();
        if self.count() == checked && text(queue, NOTE_CHECK)?.is_some() {
            queue.meta_set(NOTE_CHECK, b"")?;
        }
        Ok(())
    }
}

/// A check that has begun; see [`Syncer::begin_check`].
#[derive(Debug, Clone)]
pub struct StartedCheck {
    reasons: u64,
    behind: Option<SessionMismatch>,
}

impl Facts {
    /// Returns the state before the first heartbeat.
    pub(crate) fn initial(cluster_name: &str, check: Option<&'static str>) -> Self {
        Self {
            cluster_name: cluster_name.to_owned(),
            session_bytes_max: model::limits::SESSION_BYTES_MAX,
            session_values_max: model::limits::SESSION_VALUES_MAX,
            check,
            ..Self::default()
        }
    }
}

fn text(queue: &Queue, note: &str) -> Result<Option<String>, QueueError> {
    let bytes = queue.meta_get(note)?;
    Ok(bytes.and_then(|b| String::from_utf8(b).ok()).filter(|t| !t.is_empty()))
}

/// Returns the last acknowledged session according to the queue's notes.
pub(crate) fn session_noted(queue: &Queue) -> Result<Option<String>, QueueError> {
    text(queue, NOTE_SESSION)
}

pub(crate) fn note_session(queue: &Queue, session: &str) -> Result<(), QueueError> {
    queue.meta_set(NOTE_SESSION, session.as_bytes())
}

/// Returns the reason of the check that an earlier run left due, if any.
pub(crate) fn check_noted(queue: &Queue) -> Result<Option<&'static str>, QueueError> {
    Ok(text(queue, NOTE_CHECK)?.map(|_| "a check was due when the agent stopped"))
}

impl Syncer {
    /// Returns the reason why agent and server must be compared after the next cycle, if they must.
    pub fn check_due(&self) -> Option<&'static str> {
        self.facts.lock().check
    }

    /// Requests a check. It stays due until a check is done, also after a restart. `None` clears
    /// the request, unless a reason was raised since the last finished check began.
    pub fn set_check_due(&self, reason: Option<&'static str>) {
        {
            let mut facts = self.facts.lock();
            match reason {
                Some(_) => self.reasons.raise(),
                None if self.reasons.count() > facts.checked => return,
                None => {}
            }
            facts.check = reason;
        }
        let noted = self.reasons.note(&self.queue, reason.unwrap_or_default());
        if let Err(error) = noted {
            warn!(%error, "could not record that a check is due: a restart will forget it");
        }
    }

    /// Fetches the configuration of this agent's groups.
    ///
    /// # Errors
    /// Returns an error if there is no answer, or a refusal.
    pub async fn fetch_config(&self) -> Result<ConfigAnswer, SyncError> {
        self.client().get("/configuration").await
    }

    /// Drops the connections to the server. The next request opens a new one with the identity that
    /// is in the folder now.
    ///
    /// # Errors
    /// Returns an error if the identity cannot be used. Then nothing changes.
    pub fn reconnect(&self) -> Result<(), SyncError> {
        let fresh = self.client().reopened(&self.folder)?;
        *self.client.lock() = fresh;
        Ok(())
    }

    /// Sends a heartbeat, stores the server's limits and commands, and renews the certificate if it
    /// is due. A renewal that fails is retried after a delay.
    ///
    /// # Errors
    /// Returns an error if there is no answer, or a refusal.
    pub async fn heartbeat(
        &self,
        action: ControlAction,
        outcomes: &[ControlOutcome],
    ) -> Result<ControlAnswer, SyncError> {
        let pending = self.pending().await?;
        let scan = *self.scan.lock();
        let watch = self.watch.lock().due(action);
        let request = ControlRequest {
            action,
            version: self.options.version.clone(),
            hostname: self.options.hostname.clone(),
            os: self.options.os.clone(),
            outcomes: outcomes.to_vec(),
            scan,
            watch: watch.clone(),
            config: Some(self.config.lock().clone()),
            pending: Some(pending),
            leaves: false,
        };
        // Read before the request, so that a session acknowledged during it does not look lost.
        let queue = self.queue.clone();
        let own_session = blocking(move || session_noted(&queue)).await?;
        let result = self.beat(&request).await;
        let groups = result.as_ref().map(|answer| answer.agent.groups.clone());
        if let Err(error) = self.note_contact(groups).await {
            warn!(%error, "the answer is not recorded: `holdfast agent status` shows an older one");
        }
        let answer = result?;
        {
            // A scan recorded during the request is a different one; the next heartbeat reports it.
            let mut newest = self.scan.lock();
            if *newest == scan {
                *newest = None;
            }
        }
        self.watch.lock().note_sent(watch.as_ref());
        self.apply_answer(&answer, own_session).await?;
        if answer.renew && action != ControlAction::Shutdown {
            // The outcomes were acknowledged.
            let again = ControlRequest {
                action: ControlAction::Notify,
                outcomes: Vec::new(),
                scan: None,
                watch: None,
                ..request
            };
            self.renew(&again).await;
        }
        Ok(answer)
    }

    /// Returns the number of changes and events that the server has not acknowledged.
    pub(crate) async fn pending(&self) -> Result<u64, SyncError> {
        let queue = self.queue.clone();
        let status = blocking(move || queue.status()).await?;
        let items: u64 = status.datasets.iter().map(|dataset| dataset.pending).sum();
        Ok(status.events + items + u64::from(!self.scanned.load(Ordering::Acquire)))
    }

    /// Records that the first scan after this start has ended. Until then heartbeats report that
    /// something is pending.
    pub fn note_scanned(&self) {
        self.scanned.store(true, Ordering::Release);
    }

    /// Sends a heartbeat. If a renewed pair is pending, it is used, and replaces the present pair
    /// after the server has answered. If the server refuses it, the present pair is used. Only an
    /// answer to the present pair proves that the server never saw the renewed one, which is
    /// deleted then.
    pub(crate) async fn beat(&self, request: &ControlRequest) -> Result<ControlAnswer, SyncError> {
        // Two concurrent heartbeats could each delete or replace the pair that the other one uses.
        let _beating = self.beating.lock().await;
        let client = self.client();
        if !self.folder.has_next() {
            return client.call("/control", request).await;
        }
        let answer = match client.with_next(&self.folder) {
            Ok(next) => next.call("/control", request).await.map(|answer| (answer, next)),
            Err(unreadable) => Err(SyncError::Identity(unreadable.to_string())),
        };
        let refused = match answer {
            Ok((answer, next)) => {
                // From now on the server refuses the old pair.
                *self.client.lock() = next;
                match self.folder.take_next() {
                    Ok(()) => info!(agent = %client.identity().id, "certificate renewed"),
                    Err(error) => warn!(%error, "the renewed certificate is not installed yet"),
                }
                return Ok(answer);
            }
            Err(error) if error.refuses_certificate() => error,
            // The server may have seen it, so the next heartbeat tries it again.
            Err(error) => return Err(error),
        };
        let answer = client.call("/control", request).await?;
        warn!(error = %refused, "the renewed certificate is refused: the one before is kept");
        if let Err(error) = self.folder.drop_next() {
            warn!(%error, "the refused certificate could not be removed");
        }
        Ok(answer)
    }

    /// Renews the certificate unless that failed a short while ago, and sends `request` with it.
    async fn renew(&self, request: &ControlRequest) {
        let now = self.clock.monotonic();
        if self.renewal.lock().not_before.is_some_and(|at| now < at) {
            return;
        }
        let renewed = match enroll::renew(&self.client(), &self.folder).await {
            Ok(()) => self.beat(request).await.map(drop),
            Err(error) => Err(error),
        };
        match renewed {
            Ok(()) if !self.folder.has_next() => *self.renewal.lock() = Renewal::default(),
            Ok(()) => {}
            Err(error) => {
                let random = SystemRandom.next_u64().unwrap_or(u64::MAX);
                let mut renewal = self.renewal.lock();
                let wait = backoff::renewal(renewal.failures, random, error.retry_after());
                renewal.failures = renewal.failures.saturating_add(1);
                renewal.not_before = Some(now.saturating_add(wait));
                warn!(%error, again_in_s = wait.as_secs(), "the certificate was not renewed");
            }
        }
    }

    /// Returns the gap of a database that lacks sessions that the server has. Changes in that time
    /// cannot be derived from a new baseline.
    fn memory_lost(&self, own: u64) -> Coverage {
        let to_us = self.clock.now_us();
        Coverage {
            kind: CoverageKind::DatabaseRebuilt,
            path: String::new(),
            // A session's number begins with its time.
            from_us: (own >> 12).min(to_us),
            to_us,
            found: None,
            lasting: None,
            detail: "the server knows sessions of this agent that its database does not: agent.db \
                     was lost or an older copy was put back, or this identity runs on a second \
                     machine too; of changes in between at most the first and the last state are \
                     reported, as far as the server can compare"
                .into(),
        }
    }

    /// Stores the id of a session before it is sent.
    pub(crate) async fn note_sent(&self, id: &str) -> Result<(), SyncError> {
        let (queue, id) = (self.queue.clone(), id.to_owned());
        blocking(move || queue.meta_set(NOTE_SENT, id.as_bytes())).await
    }

    /// Sends the first heartbeat if there was none yet, for the server's limits and commands.
    ///
    /// # Errors
    /// Returns an error if there is no answer, or a refusal.
    pub async fn send_startup(&self) -> Result<(), SyncError> {
        if !self.facts.lock().greeted {
            self.heartbeat(ControlAction::Startup, &[]).await?;
        }
        Ok(())
    }

    /// Applies the answer to a heartbeat: stores its limits, moves the session counter to the
    /// server's last session, and requests a check if the server has another store, lacks sessions
    /// that it acknowledged, or has sessions of which this database has no record. In the last case
    /// a gap is reported as well. A reason is not raised again until a check is done.
    async fn apply_answer(
        &self,
        answer: &ControlAnswer,
        own_session: Option<String>,
    ) -> Result<(), SyncError> {
        let (queue, store) = (self.queue.clone(), answer.store.clone());
        let other_store = blocking(move || match text(&queue, NOTE_STORE)? {
            Some(known) => Ok(known != store),
            None => queue.meta_set(NOTE_STORE, store.as_bytes()).map(|()| false),
        })
        .await?;
        if other_store {
            self.watch.lock().forget_sent();
        }
        let number = |id: Option<&str>| id.and_then(session_number).unwrap_or(0);
        let (own, theirs) =
            (number(own_session.as_deref()), number(answer.last_session.as_deref()));
        let known = self.last_session.fetch_max(theirs, Ordering::SeqCst);
        let reason = if other_store {
            Some("the server's store is another one")
        } else if theirs < own {
            Some("the server is behind what it acknowledged")
        } else if theirs > known {
            Some(UNKNOWN_SESSIONS)
        } else {
            None
        };
        let raised = {
            let mut facts = self.facts.lock();
            facts.take_over(answer);
            facts.behind = (theirs < own).then(|| SessionMismatch {
                own: own_session.unwrap_or_default(),
                theirs: answer.last_session.clone().unwrap_or_default(),
            });
            facts.raised = facts.raised.filter(|raised| Some(*raised) == reason);
            facts.raised
        };
        match reason {
            Some(reason) if raised.is_none() => {
                let (queue, reasons) = (self.queue.clone(), Arc::clone(&self.reasons));
                let gap = (reason == UNKNOWN_SESSIONS).then(|| self.memory_lost(own));
                reasons.raise();
                let note = move || {
                    let appended = gap.map(|gap| queue.append_coverage(&Dataset::fim_files(), gap));
                    appended.transpose()?;
                    known_gaps::set_unknown(&queue)?;
                    reasons.note(&queue, reason)
                };
                blocking(note).await?;
                let mut facts = self.facts.lock();
                facts.check = Some(reason);
                facts.raised = Some(reason);
            }
            _ => {}
        }
        Ok(())
    }

    /// Begins a check of all datasets.
    pub fn begin_check(&self) -> StartedCheck {
        let facts = self.facts.lock();
        StartedCheck { reasons: self.reasons.count(), behind: facts.behind.clone() }
    }

    /// Ends a check after which all differences are removed or pending, and stores the id of the
    /// compared store. Only reasons raised since the check began stay due.
    ///
    /// # Errors
    /// Returns an error if the note cannot be written.
    pub async fn end_check(&self, begun: StartedCheck, store: String) -> Result<(), SyncError> {
        let (queue, reasons, checked) =
            (self.queue.clone(), Arc::clone(&self.reasons), begun.reasons);
        blocking(move || {
            if !store.is_empty() && text(&queue, NOTE_STORE)?.as_deref() != Some(store.as_str()) {
                queue.meta_set(NOTE_STORE, store.as_bytes())?;
            }
            if let Some(behind) = begun.behind
                && session_noted(&queue)?.as_deref() == Some(behind.own.as_str())
            {
                note_session(&queue, &behind.theirs)?;
            }
            reasons.clear_note(&queue, checked)
        })
        .await?;
        let mut facts = self.facts.lock();
        facts.checked = checked;
        if self.reasons.count() == checked {
            (facts.check, facts.raised) = (None, None);
        }
        Ok(())
    }
}

/// Returns the number of the newest session in the notes; 0 if there is none.
pub(crate) fn last_session_known(queue: &Queue) -> Result<u64, QueueError> {
    let sent = text(queue, NOTE_SENT)?;
    let numbers = [sent, session_noted(queue)?].map(|id| id.as_deref().and_then(session_number));
    Ok(numbers.into_iter().flatten().max().unwrap_or(0))
}

impl Facts {
    fn take_over(&mut self, answer: &ControlAnswer) {
        let limit = |announced: u64, own: usize| match usize::try_from(announced) {
            Ok(0) | Err(_) => own,
            Ok(n) => n.min(own),
        };
        let limits = &answer.limits;
        self.greeted = true;
        self.groups.clone_from(&answer.agent.groups);
        self.cluster_name.clone_from(&answer.cluster_name);
        self.session_bytes_max = limit(limits.session_bytes_max, model::limits::SESSION_BYTES_MAX);
        self.session_values_max =
            limit(limits.session_values_max, model::limits::SESSION_VALUES_MAX);
        self.events = answer.datasets.iter().any(|d| d == Dataset::EVENTS);
    }
}
