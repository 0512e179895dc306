//! `POST /stats` and `POST /config`: an agent reports its counters and the configuration that it
//! runs with. The last report of each kind is kept.

use std::sync::Arc;

use axum::Extension;
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::response::Response;
use link::Answer;
use link::json::STATUS_OK;
use model::limits::DOCUMENT_BYTES_MAX;
use model::{AgentId, AgentReport, Record, ReportKind};

use crate::answer::{Refusal, session_answer};
use crate::app::App;
use crate::identity::{Caller, Peer};
use crate::{body, strict};

pub(crate) async fn stats(
    State(app): State<Arc<App>>,
    Extension(peer): Extension<Peer>,
    request: Request,
) -> Result<Response, Refusal> {
    store_report(&app, &peer, request, ReportKind::Stats).await
}

pub(crate) async fn config(
    State(app): State<Arc<App>>,
    Extension(peer): Extension<Peer>,
    request: Request,
) -> Result<Response, Refusal> {
    store_report(&app, &peer, request, ReportKind::Config).await
}

/// Stores a report like a session. The sender is identified again with the agent's lock held, so
/// that a report in transit is not stored after its agent was removed.
async fn store_report(
    app: &Arc<App>,
    peer: &Peer,
    request: Request,
    kind: ReportKind,
) -> Result<Response, Refusal> {
    let (parts, incoming) = request.into_parts();
    let caller = app.caller(peer, &parts.headers)?;
    app.admit_instance(peer, &parts.headers, &caller).await?;
    if caller.agent == AgentId::SERVER {
        return Err(Refusal::forbidden("server", "agent 000 is the server itself").closing());
    }
    let length = body::length(&parts.headers, DOCUMENT_BYTES_MAX)?;
    let (body, _charge) = body::read(app, &caller, incoming, length).await?;
    if !strict::is_object(&body) {
        return Err(Refusal::invalid("body is not a JSON object"));
    }
    let permit = app.take_permit(caller.agent)?;
    let _lock = permit.lock_agent().await;
    let Caller { agent, incarnation, .. } = app.caller(peer, &parts.headers)?;
    if (agent, incarnation) != (caller.agent, caller.incarnation) {
        return Err(Refusal::forbidden("identity_mismatch", "the sender has changed since"));
    }
    let at_us = app.options.clock.guarded_us();
    let report = AgentReport { agent, incarnation, at_us, kind, body };
    let applied = app.commit.submit(Record::Report(report)).await?.applied;
    if let Some(reason) = applied.quarantined {
        return Err(Refusal::internal(format!("report was set aside: {reason}")));
    }
    if applied.refused {
        let detail = format!("agent {agent} was removed or re-enrolled: enrol it again");
        return Err(Refusal::forbidden("unknown_agent", detail));
    }
    let store = app.store.clone();
    let answer = Answer { status: STATUS_OK.to_owned(), store, ..Answer::default() };
    Ok(session_answer(StatusCode::OK, &answer))
}
