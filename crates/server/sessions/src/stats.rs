//! `POST /stats` and `POST /config`: an agent reports its counters and the configuration that it
//! runs with.

use std::sync::Arc;

use axum::Extension;
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::response::Response;
use link::Answer;
use link::json::STATUS_OK;

use crate::answer::{Refusal, session_answer};
use crate::app::App;
use crate::identity::Peer;
use crate::options::SMALL_BODY_BYTES_MAX;
use crate::reports::ReportKind;
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

/// Stores a report. The sender is identified again with the agent's lock held, so that a report in
/// transit is not stored after its agent was removed.
async fn store_report(
    app: &Arc<App>,
    peer: &Peer,
    request: Request,
    kind: ReportKind,
) -> Result<Response, Refusal> {
    let (parts, incoming) = request.into_parts();
    let caller = app.caller(peer, &parts.headers)?;
    app.admit_instance(peer, &parts.headers, &caller).await?;
    let length = body::length(&parts.headers, SMALL_BODY_BYTES_MAX)?;
    let (bytes, _charge) = body::read(app, &caller, incoming, length).await?;
    if !strict::is_object(&bytes) {
        return Err(Refusal::invalid("body is not a JSON object"));
    }
    let permit = app.take_permit(caller.agent)?;
    let _lock = permit.lock_agent().await;
    let now = app.caller(peer, &parts.headers)?;
    if (now.agent, now.incarnation) != (caller.agent, caller.incarnation) {
        return Err(Refusal::forbidden("identity_mismatch", "the sender has changed since"));
    }
    app.reports.store_report_text(now.agent, now.incarnation, kind, bytes);
    let store = app.store.clone();
    let answer = Answer { status: STATUS_OK.to_owned(), store, ..Answer::default() };
    Ok(session_answer(StatusCode::OK, &answer))
}
