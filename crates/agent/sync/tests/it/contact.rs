//! The note of an agent about the answers to its heartbeats, against a real server.

use crate::common::{Agent, Server};
use link::ControlAction;
use model::{CoverageState, Permitted, WatchReport, WatchedRoot};
use registry::{Reader, WatchQuery, WriteContext};
use sync::OwnView;

fn view(agent: &Agent) -> OwnView {
    OwnView::read(agent.folder.path()).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn own_view_shows_acceptance_removal_and_silence() {
    let mut server = Server::start().await;
    let agent = server.agent("web").await;
    let before = view(&agent);
    assert!(!before.contact.is_accepted());
    assert!(before.to_string().contains("connection: not connected yet"), "{before}");
    assert!(before.to_string().contains("last answer: none yet"), "{before}");

    agent.syncer.heartbeat(ControlAction::Startup, &[]).await.unwrap();
    let connected = view(&agent);
    assert!(connected.contact.is_accepted());
    let text = connected.to_string();
    assert!(text.starts_with(&format!("agent: {} web\nserver: https://", agent.id)), "{text}");
    assert!(text.contains("connection: connected\ngroups: default\n"), "{text}");
    assert!(text.contains("last answer: status 200 at 20"), "{text}");
    assert!(text.contains("certificate: ends 20") && text.ends_with('Z'), "{text}");

    server.registry().remove_agent(&WriteContext::server(), agent.id).unwrap().unwrap();
    let refusal = agent.syncer.heartbeat(ControlAction::Notify, &[]).await.unwrap_err();
    let removed = view(&agent);
    assert!(!removed.contact.is_accepted(), "{refusal}");
    assert!(removed.to_string().contains("connection: refused: "), "{removed}");
    assert!(removed.to_string().contains("last answer: status 401"), "{removed}");

    server.stop().await;
    agent.syncer.heartbeat(ControlAction::Notify, &[]).await.unwrap_err();
    let silent = view(&agent);
    assert!(silent.to_string().contains("connection: not connected since 20"), "{silent}");
    assert!(silent.to_string().contains("last answer: status 401"), "{silent}");
}

fn report(state: CoverageState) -> WatchReport {
    let root = WatchedRoot { root: "/etc".into(), state, ..WatchedRoot::default() };
    WatchReport { roots: vec![root], ..WatchReport::default() }
}

fn reported(server: &Server) -> Vec<WatchReport> {
    let query = WatchQuery { permitted: Permitted::All, state: None, offset: 0, limit: 9 };
    let page = server.registry().watch_reports(&Reader::server(), &query).unwrap();
    page.items.into_iter().map(|(_, row)| row.report).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn state_of_the_roots_is_reported_until_it_is_acknowledged() {
    let mut server = Server::start().await;
    let agent = server.agent("web").await;
    agent.syncer.heartbeat(ControlAction::Startup, &[]).await.unwrap();
    assert_eq!(reported(&server), []);
    let (scan, realtime) = (report(CoverageState::Scan), report(CoverageState::Realtime));
    assert!(agent.syncer.note_watch(scan.clone()), "it is due");
    agent.syncer.heartbeat(ControlAction::Notify, &[]).await.unwrap();
    assert_eq!(reported(&server), std::slice::from_ref(&scan));
    assert!(!agent.syncer.note_watch(scan), "it is acknowledged");

    assert!(agent.syncer.note_watch(realtime.clone()));
    server.stop().await;
    agent.syncer.heartbeat(ControlAction::Notify, &[]).await.unwrap_err();
    assert!(agent.syncer.note_watch(realtime.clone()), "no answer arrived");
    server.resume(|_| {});
    agent.syncer.heartbeat(ControlAction::Notify, &[]).await.unwrap();
    assert_eq!(reported(&server), std::slice::from_ref(&realtime));
    assert!(!agent.syncer.note_watch(realtime));
}
