//! Silence is an event: the server opens a gap for an agent that it no longer hears, and ends the
//! gap when the agent is heard again.
//!
//! Such a gap is two events of the agent. The first one opens it: `agent_silent` after three heartbeats
//! were missed, at least [`SilenceOptions::silence_min`]; `agent_stopped` at a goodbye. The second
//! one ends it:
//!
//! - If the same start of the agent's program is heard again, the server writes it once the agent
//!   has reported everything: the agent was running, and N changes arrived late.
//! - If another start is heard, the agent's own `agent_down` ends the gap, so that one interval
//!   shows one gap. The server writes the end only if the agent reports no such gap.
//!
//! # Invariants
//! - An agent has at most one open gap of this kind. Those that it reports itself are not of it.
//! - No `agent_silent` is opened in the first minute after a start of the server or after a pause
//!   of the process: all agents would look silent. An agent that was connected before and is not heard
//!   since then is silent after 15 minutes.
//! - No ephemeral agent is removed in the first minute after a start or a pause, before its gap is
//!   open, or before its time has passed since this process heard it last.
//! - All gaps that one sweep opens are one record, in parts of [`RECORD_EVENTS_MAX`].
//!
//! # What survives
//! Gaps are events in the state store and survive every restart. The rest is in memory.
//!
//! # Silent agents
//! An agent with an open `agent_silent` is silent until it is heard again; the gap itself ends later, once
//! everything has arrived. The registry gets the set of silent agents whenever it changes. An agent
//! that leaves for good says so: its gap ends at once, and it is forgotten here. An ephemeral agent
//! has gaps as any other, but is not in the set; it is removed after its time of silence.
//!
//! # Locking
//! `watch` guards the presence of all agents. It is held for one decision and never while a record
//! is submitted or the store is read, so it comes last in every lock order. `published` is held while
//! the registry gets the set; `watch` is not taken under it.
//! `removal_from` is taken alone.

mod ephemeral;
mod watch;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use commit::Commit;
use env::clock::Clock;
use model::timestamp::micros;
use model::{
    AgentEvent, AgentId, AgentStatus, Coverage, CoverageKind, EventBody, OpenGap, Permitted, Record,
};
use parking_lot::Mutex;
use registry::{Reader, Registry};
use state::{StateError, StateStore};
use tokio::sync::{Notify, watch as stop};
use tracing::{info, warn};

pub use watch::Report;
use watch::{Gap, GapChange, Now, Watch};

/// Interval between two sweeps.
const SWEEP_EVERY: Duration = Duration::from_secs(1);
/// A sweep that is this late shows that the process did not run.
const PAUSE_MIN: Duration = Duration::from_secs(10);
/// Most events of one record.
pub const RECORD_EVENTS_MAX: usize = 10_000;
/// Most gaps that one sweep ends. Each needs a query.
const ENDED_MAX: usize = 1_000;
/// Events of one page while open absences are read.
const PAGE_ITEMS: usize = 1_000;
/// Agents that one line of the log names.
const NAMED_MAX: usize = 20;

/// The limits of silence.
#[derive(Debug, Clone, Copy)]
pub struct SilenceOptions {
    /// Shortest silence that opens a gap.
    pub silence_min: Duration,
    /// Time after the server's start in which no silence opens a gap.
    pub quiet_start: Duration,
}

impl Default for SilenceOptions {
    fn default() -> Self {
        Self { silence_min: Duration::from_secs(30), quiet_start: Duration::from_mins(1) }
    }
}

/// The gaps of agents that are not heard. Clones share one state.
#[derive(Clone)]
pub struct Silence(Arc<Inner>);

struct Inner {
    options: SilenceOptions,
    clock: Arc<dyn Clock>,
    commit: Arc<Commit>,
    state: Arc<StateStore>,
    registry: Registry,
    watch: Mutex<Watch>,
    /// A gap is due to open or to end.
    due: Notify,
    /// True while records cannot be submitted.
    failing: AtomicBool,
    /// The silent agents that the registry knows.
    published: Mutex<BTreeMap<AgentId, u64>>,
    /// Monotonic time before which no ephemeral agent is removed, because a removal failed.
    removal_from: Mutex<Duration>,
}

impl fmt::Debug for Silence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Silence").field("options", &self.0.options).finish_non_exhaustive()
    }
}

impl Silence {
    /// Reads the open gaps and the agents that are expected to connect. Blocks.
    ///
    /// # Errors
    /// Returns an error if the state store cannot be read.
    pub fn open(
        options: SilenceOptions,
        clock: Arc<dyn Clock>,
        commit: Arc<Commit>,
        state: Arc<StateStore>,
        registry: Registry,
    ) -> Result<Self, StateError> {
        let mut watch = Watch::new(options.silence_min);
        let now = now(&*clock);
        for (agent, gap) in open_absences(&state)? {
            if let Some(record) = registry.agent(agent) {
                watch.restore(agent, record.incarnation, gap, registry.has_left(agent), now);
            }
        }
        registry.for_each_agent(&Permitted::All, |record| {
            let connected = matches!(record.status, AgentStatus::Active | AgentStatus::Pending);
            if let Some(heard_s) = record.keepalive_at_s.filter(|_| connected) {
                let heard_us = u64::try_from(heard_s).unwrap_or_default() * 1_000_000;
                watch.expect(record.id, record.incarnation, heard_us, now);
            }
        });
        let inner = Inner {
            options,
            clock,
            commit,
            state,
            registry,
            watch: Mutex::new(watch),
            due: Notify::new(),
            failing: AtomicBool::new(false),
            published: Mutex::default(),
            removal_from: Mutex::default(),
        };
        inner.publish_silent();
        Ok(Self(Arc::new(inner)))
    }

    /// Records that a request of the agent arrived.
    pub fn heard(&self, agent: AgentId) {
        self.0.watch.lock().heard(agent, now(&*self.0.clock));
    }

    /// Records a heartbeat or a goodbye.
    pub fn report(&self, report: &Report<'_>) {
        if self.0.watch.lock().report(report, now(&*self.0.clock)) {
            self.0.due.notify_one();
        }
    }

    /// Forgets an agent that was removed.
    pub fn remove(&self, agent: AgentId) {
        self.0.watch.lock().remove(agent);
    }

    /// Opens and ends gaps until stopped, and once more then, for the last goodbyes.
    pub async fn run(self, mut stopped: stop::Receiver<bool>) {
        let clock = Arc::clone(&self.0.clock);
        let mut before = clock.monotonic();
        let mut quiet_until = before + self.0.options.quiet_start;
        loop {
            let last = tokio::select! {
                () = tokio::time::sleep(SWEEP_EVERY) => false,
                () = self.0.due.notified() => false,
                _ = stopped.wait_for(|stop| *stop) => true,
            };
            let now = clock.monotonic();
            if now.saturating_sub(before) > PAUSE_MIN {
                quiet_until = now + self.0.options.quiet_start;
            }
            self.0.end_gaps().await;
            self.0.open_gaps(now < quiet_until).await;
            self.0.publish_silent();
            if now >= quiet_until {
                self.0.remove_ephemeral().await;
            }
            // A sweep that took long is no pause of the process.
            before = clock.monotonic();
            if last {
                return;
            }
        }
    }
}

fn now(clock: &dyn Clock) -> Now {
    Now { monotonic: clock.monotonic(), wall_us: clock.guarded_us() }
}

/// Reads all open absences.
fn open_absences(state: &StateStore) -> Result<Vec<(AgentId, Gap)>, StateError> {
    let mut gaps = Vec::new();
    let mut after = 0;
    loop {
        let page = state.open_absences(&Reader::server(), after, PAGE_ITEMS)?;
        let Some(last) = page.last() else { return Ok(gaps) };
        after = last.number;
        gaps.extend(page.iter().filter(|event| !event.former).filter_map(|event| {
            let body: EventBody = serde_json::from_slice(&event.body).ok()?;
            let OpenGap { kind, from_us, .. } = body.holdfast.open_gap?;
            let nonce = event.id.rsplit('-').next().unwrap_or_default().to_owned();
            Some((event.agent, Gap { kind, from_us, nonce }))
        }));
    }
}

impl Inner {
    /// Opens the gaps that are due: only those of goodbyes if `quiet`.
    async fn open_gaps(&self, quiet: bool) {
        let mut due = self.watch.lock().due_to_open(now(&*self.clock));
        due.retain(|due| !quiet || due.gap.kind == CoverageKind::AgentStopped);
        for part in due.chunks(RECORD_EVENTS_MAX) {
            let events = part.iter().map(opening).collect();
            if self.submit(events).await {
                self.watch.lock().opened(part);
                self.log_opened(part);
            }
        }
    }

    fn log_opened(&self, opened: &[GapChange]) {
        let (stopped, silent): (Vec<&GapChange>, Vec<&GapChange>) =
            opened.iter().partition(|due| due.gap.kind == CoverageKind::AgentStopped);
        if !silent.is_empty() {
            let names = self.describe_all(silent.iter().map(|due| due.agent));
            warn!(agents = silent.len(), %names, "agents are no longer heard");
        }
        if !stopped.is_empty() {
            let names = self.describe_all(stopped.iter().map(|due| due.agent));
            info!(agents = stopped.len(), %names, "agents were stopped");
        }
    }

    /// Ends the gaps of agents that were heard again.
    async fn end_gaps(&self) {
        let due = self.watch.lock().due_to_end(ENDED_MAX);
        if due.is_empty() {
            return;
        }
        let state = Arc::clone(&self.state);
        let counted = tokio::task::spawn_blocking(move || {
            due.into_iter().map(|due| Ok((late_changes(&state, &due)?, due))).collect()
        });
        let counted: Result<Vec<(Option<u64>, GapChange)>, StateError> = match counted.await {
            Ok(counted) => counted,
            Err(panicked) => return warn!(%panicked, "gaps of agents could not be ended"),
        };
        let counted = match counted {
            Ok(counted) => counted,
            Err(error) => return warn!(%error, "gaps of agents could not be ended"),
        };
        let ends = counted.iter().filter_map(|(late, due)| Some(ending(due, (*late)?)));
        let events: Vec<AgentEvent> = ends.collect();
        if !events.is_empty() && !self.submit(events).await {
            return;
        }
        for (late, due) in &counted {
            let (agent, late) = (self.describe(due.agent), late.unwrap_or_default());
            let from = micros(due.gap.from_us);
            if due.left {
                info!(%agent, from, "the agent has left");
            } else {
                info!(%agent, late, from, "the agent is heard again");
            }
        }
        let ended: Vec<GapChange> = counted.into_iter().map(|(_, due)| due).collect();
        self.watch.lock().ended(&ended);
    }

    /// Submits the events as one record; returns false if that failed and must be retried.
    async fn submit(&self, events: Vec<AgentEvent>) -> bool {
        let record = Record::AgentEvents { at_us: self.clock.guarded_us(), events };
        match self.commit.submit(record).await {
            Ok(_) => {
                self.failing.store(false, Ordering::Relaxed);
                true
            }
            Err(error) => {
                if !self.failing.swap(true, Ordering::Relaxed) {
                    warn!(%error, "gaps of agents could not be stored; trying every second");
                }
                false
            }
        }
    }

    /// Gives the registry the set of silent agents, if it changed.
    fn publish_silent(&self) {
        let silent = self.watch.lock().silent();
        let mut published = self.published.lock();
        if *published != silent {
            published.clone_from(&silent);
            self.registry.set_silent(silent);
        }
    }

    fn describe_all(&self, mut agents: impl Iterator<Item = AgentId>) -> String {
        let named = agents.by_ref().take(NAMED_MAX).map(|agent| self.describe(agent));
        let mut names = named.collect::<Vec<String>>().join(", ");
        if agents.next().is_some() {
            names.push_str(", ...");
        }
        names
    }

    fn describe(&self, agent: AgentId) -> String {
        let name = self.registry.agent(agent).map(|record| record.name).unwrap_or_default();
        format!("{agent} ({name})")
    }
}

/// Returns the number of changes that arrived after the gap opened and were found before it ended;
/// `None` if another start of the agent has ended the gap itself. An event of the same start that
/// ended it is of an earlier absence.
fn late_changes(state: &StateStore, due: &GapChange) -> Result<Option<u64>, StateError> {
    let opening = gap_id(&due.gap);
    let late = state.late_changes(&Reader::server(), due.agent, &opening, due.returned_us)?;
    Ok(late.filter(|late| due.same_start || late.is_open).map(|late| late.changes))
}

fn opening(due: &GapChange) -> AgentEvent {
    let Gap { kind, from_us, .. } = due.gap;
    let detail = match kind {
        CoverageKind::AgentStopped => {
            "the agent was stopped: nothing is watched until it is started".into()
        }
        _ => "the server does not hear from the agent: run `holdfast agent status` on its machine"
            .into(),
    };
    event(due, gap_id(&due.gap), &EventBody::of_open_gap(OpenGap { kind, from_us, detail }))
}

fn ending(due: &GapChange, late: u64) -> AgentEvent {
    let changes = match late {
        1 => "1 change".to_owned(),
        late => format!("{late} changes"),
    };
    let detail = if due.left {
        "the agent has left the fleet: nothing is watched until it is started again".to_owned()
    } else if due.same_start {
        format!("the agent was running and could not reach the server: {changes} arrived late")
    } else {
        format!("the agent was restarted and does not know since when: {changes} arrived late")
    };
    let Gap { kind, from_us, .. } = due.gap;
    let coverage = Coverage {
        kind,
        path: String::new(),
        from_us,
        to_us: due.returned_us,
        found: (!due.left).then_some(late),
        lasting: None,
        detail,
    };
    event(due, format!("end-{}", gap_id(&due.gap)), &EventBody::of_coverage(coverage))
}

/// Returns the id of a gap's first event. Its last part names the start of the agent's program.
fn gap_id(gap: &Gap) -> String {
    format!("gap-{}-{}", gap.from_us, gap.nonce)
}

fn event(due: &GapChange, id: String, body: &EventBody) -> AgentEvent {
    AgentEvent { agent: due.agent, incarnation: due.incarnation, id, body: body.to_json() }
}
