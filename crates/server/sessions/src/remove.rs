//! `DELETE /agents` and `POST /agents/delete`, on the unix socket only: removes an agent and its
//! documents. Its events are kept.

use std::sync::Arc;

use axum::Extension;
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::response::Response;
use link::json::STATUS_OK;
use link::{Answer, HEADER_AGENT};
use model::{AgentId, Incarnation, Record};
use registry::{AuditOutcome, Reader, WriteContext};
use tracing::info;

use crate::agent_queues::RequestPermit;
use crate::answer::{Refusal, session_answer};
use crate::app::App;
use crate::identity::{Caller, Peer};
use crate::local::hand_over;

pub(crate) async fn remove(
    State(app): State<Arc<App>>,
    Extension(peer): Extension<Peer>,
    request: Request,
) -> Result<Response, Refusal> {
    peer.local_only()?;
    if app.options.local.is_some() && !request.headers().contains_key(HEADER_AGENT) {
        // This is the operators' route of the same name.
        let refusal = Refusal::invalid(format!("header {HEADER_AGENT} is missing"));
        return Ok(hand_over(&app, &peer, request, refusal).await);
    }
    let caller = app.caller(&peer, request.headers())?;
    if caller.agent == AgentId::SERVER {
        return Err(Refusal::forbidden("server", "agent 000 is the server itself"));
    }
    let permit = app.take_permit(caller.agent)?;
    tokio::spawn(async move { remove_locked(&app, caller, &peer.name(), permit).await }).await?
}

/// Removes an agent with its lock held, so that no session of it is committed after its removal.
async fn remove_locked(
    app: &App,
    caller: Caller,
    who: &str,
    permit: RequestPermit,
) -> Result<Response, Refusal> {
    let lock = permit.lock_agent().await;
    let agent = caller.agent;
    let known = app.registry.agent(agent);
    let removed = match &known {
        Some(known) => {
            remove_registered(app, agent, known.incarnation, who).await?;
            true
        }
        None => remove_unregistered(app, agent).await?,
    };
    app.leases.remove(agent);
    lock.forget_last_session();
    info!(%agent, by = who, registered = known.is_some(), "agent removed");
    let answer = Answer { status: STATUS_OK.to_owned(), noop: !removed, ..Answer::default() };
    Ok(session_answer(StatusCode::OK, &answer))
}

/// Revokes the certificates, then writes the record, then deletes the registry's row. If a step
/// fails, the row still exists, and a repeated request does all steps again.
async fn remove_registered(
    app: &App,
    agent: AgentId,
    incarnation: Incarnation,
    who: &str,
) -> Result<(), Refusal> {
    app.decide(move |registry| registry.revoke(&WriteContext::server(), agent)).await?;
    let at_us = app.options.clock.guarded_us();
    app.commit.submit(Record::AgentRemoved { agent, incarnation, at_us }).await?;
    let who = who.to_owned();
    app.decide(move |registry| {
        let detail = format!("agent {agent}");
        let context = registry.audited(Reader::server(), &who, "agent:delete", &detail);
        registry.remove_agent(&context, agent)?;
        registry.end_audit(&context, AuditOutcome::Done)
    })
    .await
}

/// Removes an agent that the registry does not know: an agent of local callers, or one that the
/// registry has lost. Ends the incarnation to which the store's documents belong, so that a later
/// agent with this number starts without documents. Returns false if the store does not know it either.
async fn remove_unregistered(app: &App, agent: AgentId) -> Result<bool, Refusal> {
    let known = app.read(move |state| state.agent_counts(&Reader::server(), agent)).await?;
    let Some(incarnation) = known.life else { return Ok(false) };
    let at_us = app.options.clock.guarded_us();
    app.commit.submit(Record::AgentRemoved { agent, incarnation, at_us }).await?;
    Ok(true)
}
