//! Gaps of agents that fall silent, say goodbye and return; requests that name no instance.

use std::sync::Arc;
use std::time::Duration;

use crate::common::{Agent, EVENTS, Server, document};
use env::clock::{Clock, ManualClock};
use link::{ControlAction, ControlRequest, HEADER_INSTANCE, HEADER_SESSION, SessionValue, encode};
use model::document::NoNames;
use model::{
    AgentId, Change, ChangeKind, Coverage, CoverageKind, EventBody, Fields, ItemKey, Kind,
    LastingGap, Observation,
};
use registry::{AgentQuery, Permitted, Reader, SilentAgents, StatusCode, TokenTerms};
use sessions::SilenceOptions;
use state::{ChangeQuery, EventKind, StoredEvent};

const FIRST_START: &str = "aa.bb.01.20";
const SECOND_START: &str = "aa.bb.02.20";
const OTHER_MACHINE: &str = "cc.dd.03.20";

/// Starts a server on which 300 ms without a heartbeat are a silence.
fn server() -> Server {
    Server::with(quick)
}

fn quick(options: &mut sessions::SessionsOptions) {
    options.silence =
        SilenceOptions { silence_min: Duration::from_millis(300), quiet_start: Duration::ZERO };
}

async fn post(agent: &Agent, route: &str, instance: &str, session: &str, body: Vec<u8>) -> u16 {
    let request = agent.http.post(format!("{}{route}", agent.base())).body(body);
    let mut request = match instance {
        "" => request,
        instance => request.header(HEADER_INSTANCE, instance),
    };
    if !session.is_empty() {
        request = request.header(HEADER_SESSION, session);
    }
    request.send().await.unwrap().status().as_u16()
}

async fn control(agent: &Agent, instance: &str, action: ControlAction, pending: u64) -> u16 {
    let request = ControlRequest { action, pending: Some(pending), ..ControlRequest::default() };
    post(agent, "/control", instance, "", serde_json::to_vec(&request).unwrap()).await
}

/// Says that the agent leaves the fleet.
async fn leave(agent: &Agent, instance: &str) {
    let request = ControlRequest {
        action: ControlAction::Shutdown,
        leaves: true,
        ..ControlRequest::default()
    };
    let body = serde_json::to_vec(&request).unwrap();
    assert_eq!(post(agent, "/control", instance, "", body).await, 200);
}

fn silent(server: &Server) -> SilentAgents {
    server.registry.silent_agents(&Permitted::All)
}

async fn heartbeat(agent: &Agent, instance: &str, pending: u64) {
    assert_eq!(control(agent, instance, ControlAction::Notify, pending).await, 200);
}

/// Sends a session of the first start.
async fn send(agent: &Agent, number: u32, values: Vec<SessionValue>) {
    let session = format!("fim-aa.bb.01-{number}");
    let body = encode(&agent.delta(values));
    assert_eq!(post(agent, "/stateful", FIRST_START, &session, body).await, 200);
}

fn event(id: &str, body: &EventBody) -> SessionValue {
    SessionValue {
        id: id.into(),
        index: EVENTS.into(),
        version: 0,
        data: body.to_json(),
        ..document(id, 1, 'a')
    }
}

/// Returns the event of a file that was found modified just now.
fn change(id: &str) -> SessionValue {
    let change = Change {
        key: ItemKey::of_path(b"/etc/passwd"),
        kind: ChangeKind::Modified,
        before: Some(Observation::empty(Kind::File)),
        after: Some(Observation::empty(Kind::File)),
        fields: Fields::default(),
        found_at_us: now_us(),
        from: None,
        seen: None,
        cause: None,
    };
    event(id, &EventBody::of_change(&change, &NoNames))
}

fn now_us() -> u64 {
    use env::clock::{Clock as _, SystemClock};
    SystemClock::new().now_us()
}

fn events(server: &Server, agent: AgentId, kind: EventKind) -> Vec<StoredEvent> {
    let (agents, kinds) = (Some(vec![agent]), vec![kind]);
    let query = ChangeQuery { agents, kinds, ..ChangeQuery::default() };
    server.state.changes(&Reader::server(), &query).unwrap().items
}

async fn until_open(server: &Server, agent: AgentId) -> CoverageKind {
    let open = |server: &Server| !events(server, agent, EventKind::OpenGap).is_empty();
    server.until("a gap is open", open).await;
    let opening = &events(server, agent, EventKind::OpenGap)[0];
    let body: EventBody = serde_json::from_slice(&opening.body).unwrap();
    body.holdfast.open_gap.unwrap().kind
}

async fn until_ended(server: &Server, agent: AgentId) -> Coverage {
    let ended = |server: &Server| {
        events(server, agent, EventKind::OpenGap).is_empty()
            && !events(server, agent, EventKind::Coverage).is_empty()
    };
    server.until("the gap has ended", ended).await;
    let end = &events(server, agent, EventKind::Coverage)[0];
    let body: EventBody = serde_json::from_slice(&end.body).unwrap();
    body.holdfast.coverage.unwrap()
}

#[tokio::test]
async fn gap_of_silence_ends_with_the_number_of_late_changes() {
    let server = server();
    let agent = server.enroll("web").await;
    heartbeat(&agent, FIRST_START, 0).await;
    assert_eq!(until_open(&server, agent.id).await, CoverageKind::AgentSilent);
    server.until("the agent is silent", |server| silent(server).names == ["web"]).await;

    let late = vec![change("1-1"), change("1-2"), change("1-3")];
    heartbeat(&agent, FIRST_START, 3).await;
    send(&agent, 1, late).await;
    assert_eq!(events(&server, agent.id, EventKind::OpenGap).len(), 1, "it has reported nothing");
    heartbeat(&agent, FIRST_START, 0).await;
    let end = until_ended(&server, agent.id).await;
    assert_eq!((end.kind, end.found), (CoverageKind::AgentSilent, Some(3)));
    assert!(end.detail.contains("the agent was running"), "{}", end.detail);
    assert!(end.from_us < end.to_us);
    server.stop().await;
}

#[tokio::test]
async fn restarted_agent_ends_the_gap_with_its_own_event() {
    let server = server();
    let agent = server.enroll("web").await;
    heartbeat(&agent, FIRST_START, 0).await;
    assert_eq!(control(&agent, FIRST_START, ControlAction::Shutdown, 0).await, 200);
    assert_eq!(until_open(&server, agent.id).await, CoverageKind::AgentStopped);

    heartbeat(&agent, SECOND_START, 1).await;
    let down = Coverage {
        kind: CoverageKind::AgentDown,
        path: String::new(),
        from_us: now_us() - 1_000,
        to_us: now_us(),
        found: Some(0),
        lasting: None,
        detail: "own".into(),
    };
    let body = encode(&agent.delta(vec![event("2-1", &EventBody::of_coverage(down))]));
    assert_eq!(post(&agent, "/stateful", SECOND_START, "fim-aa.bb.02-1", body).await, 200);
    heartbeat(&agent, SECOND_START, 0).await;
    let end = until_ended(&server, agent.id).await;
    assert_eq!((end.kind, end.detail.as_str()), (CoverageKind::AgentDown, "own"));
    assert_eq!(events(&server, agent.id, EventKind::Coverage).len(), 1);
    server.stop().await;
}

#[tokio::test]
async fn agent_that_leaves_is_neither_silent_nor_stopped() {
    let server = server();
    let agent = server.enroll("web").await;
    heartbeat(&agent, FIRST_START, 0).await;
    assert_eq!(control(&agent, FIRST_START, ControlAction::Shutdown, 0).await, 200);
    until_open(&server, agent.id).await;
    leave(&agent, SECOND_START).await;
    let end = until_ended(&server, agent.id).await;
    assert_eq!((end.kind, end.found), (CoverageKind::AgentStopped, None));
    assert!(end.detail.contains("has left the fleet"), "{}", end.detail);
    let all = server.registry.agents(&Reader::server(), &AgentQuery::default()).unwrap();
    assert_eq!(all.items.last().unwrap().status_code, StatusCode::Left);

    heartbeat(&agent, SECOND_START, 0).await;
    let all = server.registry.agents(&Reader::server(), &AgentQuery::default()).unwrap();
    assert_eq!(all.items.last().unwrap().status_code, StatusCode::Ok, "it is back");
    server.stop().await;
}

#[tokio::test]
async fn ephemeral_agent_is_removed_after_its_time_of_silence() {
    let clock = ManualClock::at(now_us());
    let shared: Arc<dyn Clock> = Arc::new(clock.clone());
    let server = Server::with(|options| {
        quick(options);
        options.clock = Arc::clone(&shared);
    });
    let terms = TokenTerms { ephemeral_s: Some(60), ..TokenTerms::new(1, 600) };
    let machine = server.enroll_under("cloud-1", &terms).await;
    let stays = server.enroll("web").await;
    for agent in [&machine, &stays] {
        heartbeat(agent, FIRST_START, 0).await;
    }
    clock.advance(Duration::from_secs(59));
    assert_eq!(until_open(&server, machine.id).await, CoverageKind::AgentSilent);
    server.until("one of them is silent", |server| silent(server).names == ["web"]).await;
    assert!(server.registry.agent(machine.id).is_some());
    clock.advance(Duration::from_secs(1));
    server.until("it is removed", |server| server.registry.agent(machine.id).is_none()).await;
    assert!(server.registry.agent(stays.id).is_some());
    let log = server.registry.audit_log(&Reader::server(), None, 1).unwrap();
    assert_eq!((log[0].user.as_str(), log[0].action.as_str()), ("server", "agent:delete"));
    assert!(log[0].detail.contains("cloud-1"), "{log:?}");
    assert_eq!(control(&machine, FIRST_START, ControlAction::Notify, 0).await, 401);
    server.stop().await;
}

#[tokio::test]
async fn gap_that_was_open_at_a_restart_of_the_server_ends_after_it() {
    let server = server();
    let agent = server.enroll("web").await;
    heartbeat(&agent, FIRST_START, 0).await;
    until_open(&server, agent.id).await;
    let server = server.again_with(quick).await;
    assert_eq!(silent(&server).names, ["web"], "before the first sweep");
    let agent = server.agent(agent.id, agent.certificate, agent.key);
    assert_eq!(events(&server, agent.id, EventKind::OpenGap).len(), 1);
    heartbeat(&agent, FIRST_START, 0).await;
    let end = until_ended(&server, agent.id).await;
    assert_eq!((end.kind, end.found), (CoverageKind::AgentSilent, Some(0)));
    assert!(end.detail.contains("the agent was running"), "{}", end.detail);
    server.stop().await;
}

#[tokio::test]
async fn open_gap_of_an_agent_is_no_absence_and_outlasts_one() {
    let server = server();
    let agent = server.enroll("web").await;
    heartbeat(&agent, FIRST_START, 0).await;
    let start = Coverage {
        kind: CoverageKind::RootGone,
        path: "/srv".into(),
        from_us: now_us(),
        to_us: now_us(),
        found: None,
        lasting: Some(LastingGap::start("srv")),
        detail: String::new(),
    };
    send(&agent, 1, vec![event("1-1", &EventBody::of_coverage(start))]).await;
    let open = |server: &Server| events(server, agent.id, EventKind::OpenGap).len();
    server.until("the agent is silent too", |server| open(server) == 2).await;
    heartbeat(&agent, FIRST_START, 0).await;
    server.until("the agent is heard again", |server| open(server) == 1).await;

    // The server takes no gap of a root for an absence, which a heartbeat would end.
    let server = server.again_with(|options| {
        quick(options);
        options.silence.silence_min = Duration::from_mins(5);
    });
    let server = server.await;
    let agent = server.agent(agent.id, agent.certificate, agent.key);
    heartbeat(&agent, FIRST_START, 0).await;
    assert_eq!(control(&agent, FIRST_START, ControlAction::Shutdown, 0).await, 200);
    let kinds = |server: &Server| events(server, agent.id, EventKind::OpenGap).len() == 2;
    server.until("the goodbye opened another gap", kinds).await;
    server.stop().await;
}

#[tokio::test]
async fn copied_identity_is_an_event_of_its_agent() {
    let server = Server::start();
    let agent = server.enroll("web").await;
    heartbeat(&agent, FIRST_START, 0).await;
    assert_eq!(control(&agent, OTHER_MACHINE, ControlAction::Notify, 0).await, 403);
    let end = until_ended(&server, agent.id).await;
    assert_eq!(end.kind, CoverageKind::IdentityCloned);
    assert!(end.detail.contains("holdfast enroll"), "{}", end.detail);
    server.stop().await;
}

#[tokio::test]
async fn request_without_instance_is_refused_once_the_agent_named_one() {
    let server = Server::start();
    let agent = server.enroll("web").await;
    assert_eq!(control(&agent, "", ControlAction::Notify, 0).await, 200, "a stock agent");
    heartbeat(&agent, FIRST_START, 0).await;
    send(&agent, 1, vec![document("a", 1, 'a')]).await;
    assert_eq!(control(&agent, "", ControlAction::Notify, 0).await, 403);
    let end = until_ended(&server, agent.id).await;
    assert_eq!(end.kind, CoverageKind::IdentityCloned);

    // The last applied session says so even to a server that was restarted.
    let server = server.again().await;
    let agent = server.agent(agent.id, agent.certificate, agent.key);
    let body = encode(&agent.delta(vec![document("b", 1, 'a')]));
    assert_eq!(post(&agent, "/stateful", "", "fim-2", body).await, 403);
    let body = serde_json::to_vec(&ControlRequest::default()).unwrap();
    let answered = agent.post("/control", body).await;
    assert_eq!((answered.status, answered.error().as_str()), (403, "instance_required"));
    server.stop().await;
}
