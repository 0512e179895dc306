//! `POST /control`: startup, heartbeat, goodbye; receives outcomes, returns commands. `GET
//! /configuration`: the configuration of the agent's groups.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Request, State};
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use axum::{Extension, Json};
use link::json::{ConfigAnswer, ControlAgent, ControlCommand, ControlConfig};
use link::{ControlAction, ControlAnswer, ControlLimits, ControlOutcome, ControlRequest};
use model::limits::DOCUMENT_BYTES_MAX;
use model::{AgentId, AgentOs, Dataset};
use registry::{AgentInfo, CommandOutcome, ConfigProblem, LastScan, OutcomeState, ReportedConfig};
use silence::Report;

use crate::answer::Refusal;
use crate::app::App;
use crate::body;
use crate::identity::{Caller, Peer};
use crate::unread;

/// Indices that an agent may write to, as announced to it.
const INDICES: [&str; 5] = [
    "wazuh-states-inventory-*",
    "wazuh-states-fim-*",
    "wazuh-states-sca",
    "wazuh-states-sca-*",
    Dataset::EVENTS,
];
/// Longest text that is accepted from an agent, characters.
const TEXT_CHARS_MAX: usize = 256;
/// Longest detail of an outcome that is kept, characters.
const DETAIL_CHARS_MAX: usize = 1024;

pub(crate) async fn control(
    State(app): State<Arc<App>>,
    Extension(peer): Extension<Peer>,
    request: Request,
) -> Result<Response, Refusal> {
    let (parts, incoming) = request.into_parts();
    let caller = app.caller(&peer, &parts.headers)?;
    let instance = app.admit_instance(&peer, &parts.headers, &caller).await?;
    let request: ControlRequest = body::json(&app, &caller, incoming, &parts.headers).await?;
    record_liveness(&app, &peer, &caller, &request)?;
    let nonce = instance.as_ref().map(|header| header.instance.nonce.as_str());
    let goodbye = request.action == ControlAction::Shutdown;
    let leaves = goodbye && request.leaves;
    if let (true, Some(nonce)) = (goodbye, nonce) {
        app.leases.release(caller.agent, nonce);
    }
    app.silence.report(&Report {
        agent: caller.agent,
        incarnation: caller.incarnation,
        nonce,
        heartbeat: instance.as_ref().map_or(Duration::ZERO, |header| header.heartbeat),
        goodbye,
        leaves,
        drained: request.pending.is_none_or(|pending| pending == 0),
    });
    for outcome in &request.outcomes {
        app.registry.command_outcome(caller.agent, outcome.id, &reported(outcome));
    }
    if let Some(scan) = request.scan {
        let started_at_s = Some(scan.started_at_s);
        app.registry.scanned(caller.agent, LastScan { started_at_s, ended_at_s: scan.ended_at_s });
    }
    if let Some(watch) = request.watch {
        app.registry.watched(caller.agent, watch);
    }
    // An agent that reports no configuration, for example after a downgrade, runs none.
    let config = request.config.as_ref().map(config_report).unwrap_or_default();
    app.registry.config_reported(caller.agent, config);
    let mut response = Json(build_answer(&app, &caller, request.action).await?).into_response();
    if app.leases.has_candidate(caller.agent) {
        response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    }
    Ok(response)
}

/// Records the startup, keepalive or goodbye of an agent.
fn record_liveness(
    app: &App,
    peer: &Peer,
    caller: &Caller,
    request: &ControlRequest,
) -> Result<(), Refusal> {
    let agent = caller.agent;
    let known = match request.action {
        ControlAction::Startup => app.registry.startup(agent, &info(peer, request)),
        ControlAction::Notify => app.registry.keepalive(agent, &info(peer, request)),
        ControlAction::Shutdown if request.leaves => app.registry.leave(agent),
        ControlAction::Shutdown => app.registry.goodbye(agent),
    };
    if known { Ok(()) } else { Err(unknown(agent)) }
}

/// Converts the agent's description of itself; empty fields leave the stored values unchanged.
fn info(peer: &Peer, request: &ControlRequest) -> AgentInfo {
    let cut = |t: &str| t.chars().take(TEXT_CHARS_MAX).collect::<String>();
    let text = |t: &str| (!t.is_empty()).then(|| cut(t));
    let os = &request.os;
    AgentInfo {
        version: text(&request.version),
        hostname: text(&request.hostname),
        os: (*os != AgentOs::default()).then(|| AgentOs {
            name: cut(&os.name),
            platform: cut(&os.platform),
            family: cut(&os.family),
            version: cut(&os.version),
            arch: cut(&os.arch),
            uname: cut(&os.uname),
            codename: cut(&os.codename),
        }),
        ip: peer.ip().map(|ip| ip.to_string()),
    }
}

fn reported(outcome: &ControlOutcome) -> CommandOutcome {
    let state = match outcome.outcome.as_str() {
        "done" | "acknowledged" => OutcomeState::Acknowledged,
        _ => OutcomeState::Failed,
    };
    CommandOutcome { state, detail: outcome.detail.chars().take(DETAIL_CHARS_MAX).collect() }
}

/// Converts the agent's report on its groups' configuration.
fn config_report(config: &ControlConfig) -> ReportedConfig {
    let cut = |text: &str, max: usize| text.chars().take(max).collect::<String>();
    let problem = (!config.refused.is_empty()).then(|| ConfigProblem {
        sum: cut(&config.refused, TEXT_CHARS_MAX),
        detail: cut(&config.detail, DETAIL_CHARS_MAX),
    });
    ReportedConfig { sum: cut(&config.sum, TEXT_CHARS_MAX), problem }
}

/// Handles `GET /configuration`: returns the configuration of the agent's groups.
pub(crate) async fn configuration(
    State(app): State<Arc<App>>,
    Extension(peer): Extension<Peer>,
    request: Request,
) -> Result<Response, Refusal> {
    let (parts, _) = request.into_parts();
    let caller = app.caller(&peer, &parts.headers)?;
    app.admit_instance(&peer, &parts.headers, &caller).await?;
    // The agent's lock is not taken, because nothing is changed. The answer may have megabytes, so
    // it keeps its permit and its charge of the bytes in flight until it is read.
    let permit = app.take_permit(caller.agent)?;
    let groups = app.registry.agent(caller.agent).map(|record| record.groups);
    let groups = groups.ok_or_else(|| unknown(caller.agent))?;
    let merge = move |r: &registry::Registry| Ok::<_, Refusal>(r.merged_config(&groups).ok());
    let Some(merged) = app.decide(merge).await? else {
        let detail = "the configuration of the agent's groups cannot be read: keep the present one";
        return Err(Refusal::new(StatusCode::CONFLICT, "no_configuration", detail));
    };
    let mut charge = app.reserve(&caller, merged.text.len())?;
    let answer = ConfigAnswer { sum: merged.sum.clone(), text: merged.text.clone() };
    let bytes = serde_json::to_vec(&answer)
        .map_err(|e| Refusal::internal(format!("configuration: {e}")))?;
    charge.resize(bytes.len());
    Ok(unread::json(bytes, charge, permit))
}

fn unknown(agent: AgentId) -> Refusal {
    Refusal::forbidden("unknown_agent", format!("agent {agent} is not registered here: enrol it"))
}

/// Builds the answer to a heartbeat: who the agent is, the limits of sessions, pending commands,
/// and the checksum of its groups' configuration.
async fn build_answer(
    app: &App,
    caller: &Caller,
    action: ControlAction,
) -> Result<ControlAnswer, Refusal> {
    let agent = caller.agent;
    let record = app.registry.agent(agent);
    let commands = match action {
        ControlAction::Shutdown => Vec::new(),
        _ => app.registry.pending_commands(agent),
    };
    let now_s = i64::try_from(app.options.clock.guarded_us() / 1_000_000).unwrap_or(i64::MAX);
    Ok(ControlAnswer {
        agent: ControlAgent {
            id: agent.to_string(),
            name: record.as_ref().map(|r| r.name.clone()).unwrap_or_default(),
            groups: record.map(|r| r.groups).unwrap_or_default(),
        },
        cluster_name: app.cluster().to_owned(),
        store: app.store.clone(),
        last_session: app.last_session(caller).await?,
        datasets: INDICES.map(String::from).to_vec(),
        limits: ControlLimits {
            session_bytes_max: app.options.limits.session_bytes_max as u64,
            session_values_max: app.options.limits.session_values_max as u64,
            document_bytes_max: DOCUMENT_BYTES_MAX as u64,
        },
        commands: commands
            .into_iter()
            .map(|c| ControlCommand { id: c.id, kind: c.kind.name().to_owned() })
            .collect(),
        renew: caller.renew_at_s.is_some_and(|at| now_s >= at),
        config: (!app.options.contract_only)
            .then(|| app.registry.wanted_config(agent))
            .flatten()
            .map(|sum| sum.as_ref().to_owned()),
    })
}
