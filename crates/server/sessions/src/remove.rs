//! `DELETE /agents` and `POST /agents/delete`, on the unix socket only: an agent goes, with its
//! documents. Its events stay.

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

use crate::answer::{Refusal, answered};
use crate::identity::{Caller, Peer};
use crate::lanes::Place;
use crate::router::hand_over;
use crate::server::App;

pub(crate) async fn remove(
    State(app): State<Arc<App>>,
    Extension(peer): Extension<Peer>,
    request: Request,
) -> Result<Response, Refusal> {
    peer.local_only()?;
    if app.options.local.is_some() && !request.headers().contains_key(HEADER_AGENT) {
        // Not the agents' route but its namesake.
        let refusal = Refusal::invalid(format!("header {HEADER_AGENT} is missing"));
        return Ok(hand_over(&app, &peer, request, refusal).await);
    }
    let caller = app.caller(&peer, request.headers())?;
    if caller.agent == AgentId::SERVER {
        return Err(Refusal::forbidden("server", "agent 000 is the server itself"));
    }
    let place = app
        .lanes
        .join(caller.agent)
        .ok_or_else(|| app.busy("too many requests of this agent at once"))?;
    tokio::spawn(async move { take(&app, caller, &peer.name(), place).await }).await?
}

/// In the agent's own lane, so that no session of it is committed behind its removal.
async fn take(app: &App, caller: Caller, who: &str, place: Place) -> Result<Response, Refusal> {
    let turn = place.turn().await;
    let agent = caller.agent;
    let known = app.registry.agent(agent);
    let removed = match &known {
        Some(known) => registered(app, agent, known.incarnation, who).await.map(|()| true)?,
        None => unregistered(app, agent).await?,
    };
    app.reports.forget(agent);
    app.seats.forget(agent);
    turn.applied(None);
    info!(%agent, by = who, registered = known.is_some(), "agent removed");
    let answer = Answer {
        status: STATUS_OK.to_owned(),
        store: app.store.clone(),
        noop: !removed,
        ..Answer::default()
    };
    Ok(answered(StatusCode::OK, &answer))
}

/// Revoked first, then the record, then the registry's row. If one step fails the row is still
/// there, and asking again does all of them again.
async fn registered(
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

/// The registry knows no such agent. Whatever life of the number the store holds documents of ends:
/// that of local callers, or one that the registry has lost. Whoever speaks for it again begins
/// anew. Whether there was such a life.
async fn unregistered(app: &App, agent: AgentId) -> Result<bool, Refusal> {
    let known = app.read(move |state| state.agent_counts(&Reader::server(), agent)).await?;
    let Some(incarnation) = known.life else { return Ok(false) };
    let at_us = app.options.clock.guarded_us();
    app.commit.submit(Record::AgentRemoved { agent, incarnation, at_us }).await?;
    Ok(true)
}
