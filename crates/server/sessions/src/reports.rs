//! `POST /stats` and `POST /config`: the last of each per agent, in memory.

use std::collections::HashMap;
use std::sync::Arc;

use axum::Extension;
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::response::Response;
use link::Answer;
use link::json::STATUS_OK;
use model::AgentId;
use parking_lot::Mutex;

use crate::answer::{Refusal, answered};
use crate::identity::Peer;
use crate::options::{REPORT_BYTES_MAX, SMALL_BODY_BYTES_MAX};
use crate::server::App;
use crate::{body, strict};

/// What an agent reports of itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ReportKind {
    /// Its counters.
    Stats,
    /// The configuration it runs with.
    Config,
}

/// The last report of each kind and agent.
#[derive(Default)]
pub(crate) struct Reports(Mutex<Kept>);

#[derive(Default)]
struct Kept {
    reports: HashMap<(AgentId, ReportKind), Vec<u8>>,
    bytes: usize,
}

impl Reports {
    /// Keep it; `false` when there is no room.
    fn put(&self, agent: AgentId, kind: ReportKind, report: Vec<u8>) -> bool {
        let mut kept = self.0.lock();
        let old = kept.reports.get(&(agent, kind)).map_or(0, Vec::len);
        let bytes = kept.bytes - old + report.len();
        if bytes > REPORT_BYTES_MAX {
            return false;
        }
        kept.bytes = bytes;
        kept.reports.insert((agent, kind), report);
        true
    }

    pub(crate) fn get(&self, agent: AgentId, kind: ReportKind) -> Option<Vec<u8>> {
        self.0.lock().reports.get(&(agent, kind)).cloned()
    }

    /// The agent was removed.
    pub(crate) fn forget(&self, agent: AgentId) {
        let mut kept = self.0.lock();
        for kind in [ReportKind::Stats, ReportKind::Config] {
            let freed = kept.reports.remove(&(agent, kind)).map_or(0, |r| r.len());
            kept.bytes -= freed;
        }
    }
}

pub(crate) async fn stats(
    State(app): State<Arc<App>>,
    Extension(peer): Extension<Peer>,
    request: Request,
) -> Result<Response, Refusal> {
    keep(&app, &peer, request, ReportKind::Stats).await
}

pub(crate) async fn config(
    State(app): State<Arc<App>>,
    Extension(peer): Extension<Peer>,
    request: Request,
) -> Result<Response, Refusal> {
    keep(&app, &peer, request, ReportKind::Config).await
}

async fn keep(
    app: &Arc<App>,
    peer: &Peer,
    request: Request,
    kind: ReportKind,
) -> Result<Response, Refusal> {
    let (parts, incoming) = request.into_parts();
    let caller = app.caller(peer, &parts.headers)?;
    app.seated(peer, &parts.headers, &caller).await?;
    let agent = caller.agent;
    let length = body::length(&parts.headers, SMALL_BODY_BYTES_MAX)?;
    let bytes = body::read(incoming, length, app.options.timeouts.body).await?;
    if !strict::is_object(&bytes) {
        return Err(Refusal::invalid("body is not a JSON object"));
    }
    if !app.reports.put(agent, kind, bytes) {
        return Err(app.busy("no room for further reports"));
    }
    let store = app.store.clone();
    let answer = Answer { status: STATUS_OK.to_owned(), store, ..Answer::default() };
    Ok(answered(StatusCode::OK, &answer))
}
