//! `POST /stateful`: receives one session and answers it.

use std::sync::Arc;

use axum::Extension;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use env::clock::Clock;
use link::json::{STATUS_CHECKSUM_MISMATCH, STATUS_OK};
use link::{Answer, HEADER_INSTANCE, HEADER_TIME};
use model::limits::CLOCK_OFF_US;
use model::{AgentId, Dataset, Incarnation, Overlay, Record, SessionRecord, Skipped, Write};
use registry::{Reader, WriteContext};
use tracing::{debug, warn};

use crate::admit::Charge;
use crate::agent_queues::{AgentLock, RequestPermit};
use crate::answer::{Refusal, session_answer};
use crate::app::App;
use crate::body;
use crate::identity::{Caller, Peer, session_id};
use crate::meter::add;
use crate::options::INLINE_BYTES_MAX;
use crate::plan::{Plan, PlannedWrites, Task, plan};
use crate::unread;

/// A session whose body has arrived.
struct ArrivedSession {
    peer: Peer,
    headers: HeaderMap,
    caller: Caller,
    session: String,
    bytes: Vec<u8>,
    permit: RequestPermit,
    charge: Charge,
}

pub(crate) async fn stateful(
    State(app): State<Arc<App>>,
    Extension(peer): Extension<Peer>,
    request: Request,
) -> Result<Response, Refusal> {
    let (parts, incoming) = request.into_parts();
    let headers = parts.headers;
    let caller = app.caller(&peer, &headers)?;
    app.admit_instance(&peer, &headers, &caller).await?;
    if caller.agent == AgentId::SERVER {
        return Err(Refusal::forbidden("server", "agent 000 is the server itself").closing());
    }
    let session = session_id(&headers)?;
    let length = body::length(&headers, app.options.limits.session_bytes_max)?;
    let permit = app.take_permit(caller.agent).map_err(Refusal::closing)?;
    let (bytes, charge) = body::read(&app, &caller, incoming, length).await?;
    let arrived = ArrivedSession { peer, headers, caller, session, bytes, permit, charge };
    // A separate task completes the session in its order even if the sender disconnects.
    tokio::spawn(async move { process_session(&app, arrived).await }).await?
}

/// Stores a session whose body has arrived. The head of [`crate::agent_queues`] explains the order.
///
/// The body is decoded before the lock is taken, so that this delays no other request of the agent.
/// The sender is identified and claims its lease again with the lock held: during the wait, the
/// agent may have been removed, or another instance may have taken the lease. The lock is held
/// until the store has applied the session, or a check has read the store.
async fn process_session(app: &Arc<App>, mut arrived: ArrivedSession) -> Result<Response, Refusal> {
    let bytes = std::mem::take(&mut arrived.bytes);
    let plan = decide(app, &arrived.caller, bytes).await?;
    let lock = arrived.permit.lock_agent().await;
    // The previous request may have removed the agent.
    let caller = app.caller(&arrived.peer, &arrived.headers)?;
    if caller.agent != arrived.caller.agent {
        return Err(Refusal::forbidden("identity_mismatch", "the sender has changed since"));
    }
    app.admit_instance(&arrived.peer, &arrived.headers, &caller).await?;
    if plan.scan {
        add(&app.meter.scans_skipped, 1);
    }
    let session = arrived.session;
    let from = Sender { peer: &arrived.peer, headers: &arrived.headers, caller: &caller };
    match plan.task {
        Task::Commit(mut writes) => {
            if !from.names_instance() {
                writes.clear_versions_of_deletes();
            }
            let work = SessionWork { session, writes, said: plan.said };
            let answer = commit(app, &from, work, &lock).await?;
            Ok(unread::session_response(&answer, arrived.charge, lock.release()))
        }
        Task::Check { dataset, checksum } => check(app, &from, dataset, &checksum).await,
        Task::Describe { subject, version, check, datasets } => {
            let mut writes = PlannedWrites::default();
            if caller.incarnation == Incarnation(0) {
                writes.list.push(Write::Describe { subject, version, check });
            }
            let raise = |dataset| Write::RaiseVersion { dataset, version };
            writes.list.extend(datasets.into_iter().map(raise));
            let work = SessionWork { session, writes, said: plan.said };
            Ok(session_answer(StatusCode::OK, &commit(app, &from, work, &lock).await?))
        }
    }
}

/// The sender of a session.
struct Sender<'a> {
    peer: &'a Peer,
    headers: &'a HeaderMap,
    caller: &'a Caller,
}

impl Sender<'_> {
    /// Returns true for an agent of Holdfast, whose versions are times of one clock.
    fn names_instance(&self) -> bool {
        self.headers.contains_key(HEADER_INSTANCE)
    }

    /// Completes an answer. A sender that names no instance gets the fields of the contract alone.
    async fn complete(&self, app: &App, answer: Answer) -> Result<Answer, Refusal> {
        if !self.names_instance() {
            return Ok(Answer { skipped: Vec::new(), ..answer });
        }
        let session = app.last_session(self.caller).await?.unwrap_or_default();
        Ok(Answer { store: app.store.clone(), session, ..answer })
    }

    /// Returns the refusal for an agent that the store no longer accepts, because it was removed
    /// while its session was in transit. If its removal stopped before the registry's row was
    /// deleted, this deletes the row.
    async fn refuse_removed_agent(&self, app: &App) -> Refusal {
        let Caller { agent, incarnation, .. } = *self.caller;
        if incarnation != Incarnation(0) {
            let removed = app.decide(move |registry| {
                match registry.agent(agent).filter(|known| known.incarnation == incarnation) {
                    Some(_) => registry.remove_agent(&WriteContext::server(), agent).map(|_| ()),
                    None => Ok(()),
                }
            });
            if let Err(refusal) = removed.await {
                return refusal;
            }
        }
        let removed = || format!("agent {agent} was removed or re-enrolled: enrol it again");
        app.caller(self.peer, self.headers)
            .err()
            .unwrap_or_else(|| Refusal::forbidden("unknown_agent", removed()))
    }
}

/// The writes of a session to store.
struct SessionWork {
    session: String,
    writes: PlannedWrites,
    said: Overlay,
}

async fn decide(app: &Arc<App>, caller: &Caller, bytes: Vec<u8>) -> Result<Plan, Refusal> {
    let (limits, agent) = (app.session_limits(), caller.agent);
    if bytes.len() <= INLINE_BYTES_MAX {
        return plan(&bytes, &limits, agent, app.cluster());
    }
    let app = Arc::clone(app);
    tokio::task::spawn_blocking(move || plan(&bytes, &limits, agent, app.cluster())).await?
}

async fn commit(
    app: &App,
    from: &Sender<'_>,
    work: SessionWork,
    lock: &AgentLock,
) -> Result<Answer, Refusal> {
    let SessionWork { session, writes, said } = work;
    let PlannedWrites { list: mut writes, places, mut skipped } = writes;
    let caller = from.caller;
    let noop = writes.is_empty();
    if !noop {
        let values = writes.len() as u64;
        let received_at_us = app.options.clock.guarded_us();
        if let Some(agent_us) = clock_off(from.headers, &*app.options.clock) {
            warn!(agent = %caller.agent, agent_us, "the agent's clock is wrong by more than a day");
            writes.push(Write::ClockOff { agent_us });
        }
        let record = Record::Session(SessionRecord {
            agent: caller.agent,
            incarnation: caller.incarnation,
            received_at_us,
            session: session.clone(),
            overlay: app.registry.overlay(caller.agent).unwrap_or(said),
            writes,
        });
        let applied = app.commit.submit(record).await?.applied;
        if let Some(reason) = applied.quarantined {
            return Err(Refusal::internal(format!("session was set aside: {reason}")));
        }
        if applied.refused {
            return Err(from.refuse_removed_agent(app).await);
        }
        if applied.outdated {
            add(&app.meter.outdated, 1);
            return Err(Refusal::new(
                StatusCode::BAD_REQUEST,
                "session_outdated",
                format!(
                    "the id {session:?} is older than the ids that the server remembers, so this session \
                     may have been applied before: nothing was stored; send what still holds under a \
                     new id"
                ),
            ));
        }
        if applied.replayed {
            add(&app.meter.replayed, 1);
        } else {
            lock.set_last_session(caller.incarnation, &session);
            add(&app.meter.sessions, 1);
            add(&app.meter.values, values);
        }
        if applied.changed == 0 {
            add(&app.meter.unchanged, 1);
        }
        skipped.extend(PlannedWrites::at_values(&places, applied.skipped));
        skipped.sort_by_key(|s| s.index);
    }
    add(&app.meter.skipped, skipped.len() as u64);
    log_skipped(caller, &session, &skipped);
    let answer = Answer { status: STATUS_OK.into(), noop, skipped, ..Answer::default() };
    from.complete(app, answer).await
}

/// Returns the time that the sender's clock shows if it is wrong. While the server's own wall clock
/// is held, an agent that agrees with either of its times is accepted.
fn clock_off(headers: &HeaderMap, clock: &dyn Clock) -> Option<u64> {
    let agent_us: u64 = headers.get(HEADER_TIME)?.to_str().ok()?.parse().ok()?;
    let is_off = |server_us: u64| agent_us.abs_diff(server_us) > CLOCK_OFF_US;
    (is_off(clock.guarded_us()) && is_off(clock.now_us())).then_some(agent_us)
}

fn log_skipped(caller: &Caller, session: &str, skipped: &[Skipped]) {
    let agent = caller.agent;
    if let Some(first) = skipped.first() {
        let id = model::path::show_terminal(first.id.as_bytes());
        let (count, reason) = (skipped.len(), first.reason);
        warn!(%agent, session, count, id, ?reason, "values left out; the first is named");
    }
    for s in skipped {
        let id = model::path::show_terminal(s.id.as_bytes());
        debug!(%agent, session, index = s.index, id, reason = ?s.reason, "value left out");
    }
}

async fn check(
    app: &App,
    from: &Sender<'_>,
    dataset: Dataset,
    checksum: &str,
) -> Result<Response, Refusal> {
    app.commit.barrier().await?;
    let agent = from.caller.agent;
    let ours = app.read(move |state| state.checksum(&Reader::server(), agent, &dataset)).await?;
    let same = ours.eq_ignore_ascii_case(checksum);
    let status = if same { STATUS_OK } else { STATUS_CHECKSUM_MISMATCH };
    let code = if same { StatusCode::OK } else { StatusCode::CONFLICT };
    let answer = Answer { status: status.into(), ..Answer::default() };
    Ok(session_answer(code, &from.complete(app, answer).await?))
}
