//! Liveness: the states, the sweep, and the rows that reach the database.

use crate::common::{self, Fixture, fixture, info};
use model::{AgentId, AgentStatus};
use registry::{AgentInfo, AgentQuery, Reader, StatusSummary};

fn status(fixture: &Fixture, id: AgentId) -> AgentStatus {
    fixture.registry.agent(id).unwrap().status
}

#[test]
fn agent_status_follows_startup_keepalive_and_goodbye() {
    let fixture = fixture();
    let id = fixture.enroll("web").agent;
    assert_eq!(status(&fixture, id), AgentStatus::NeverConnected);
    assert!(fixture.registry.startup(id, &info("debian", "Holdfast v0.1.0")));
    assert_eq!(status(&fixture, id), AgentStatus::Pending);
    assert!(fixture.registry.keepalive(id, &AgentInfo::default()));
    assert_eq!(status(&fixture, id), AgentStatus::Active);
    assert!(fixture.registry.goodbye(id));
    assert_eq!(status(&fixture, id), AgentStatus::Disconnected);
    let start_s = (common::START_US / 1_000_000) as i64;
    assert_eq!(fixture.disconnected_at_s(id), Some(start_s));
    assert!(fixture.registry.keepalive(id, &AgentInfo::default()));
    assert_eq!((status(&fixture, id), fixture.disconnected_at_s(id)), (AgentStatus::Active, None));
}

#[test]
fn unknown_agent_is_not_alive() {
    let fixture = fixture();
    let nobody = AgentId(9);
    assert!(!fixture.registry.startup(nobody, &AgentInfo::default()));
    assert!(!fixture.registry.keepalive(nobody, &AgentInfo::default()));
    assert!(!fixture.registry.goodbye(nobody));
    assert!(!fixture.registry.keepalive(AgentId::SERVER, &AgentInfo::default()));
    assert!(fixture.registry.overlay(nobody).is_none());
}

#[test]
fn silence_for_exactly_the_disconnection_time_disconnects() {
    let fixture = fixture();
    let (a, b) = (fixture.enroll("a1").agent, fixture.enroll("b1").agent);
    let never = fixture.enroll("c1").agent;
    fixture.registry.keepalive(a, &AgentInfo::default());
    fixture.registry.startup(b, &AgentInfo::default());
    fixture.after(899);
    assert_eq!(fixture.registry.tick().unwrap().disconnected, 0);
    fixture.registry.keepalive(a, &AgentInfo::default());
    fixture.after(1);
    assert_eq!(fixture.registry.tick().unwrap().disconnected, 1);
    assert_eq!(status(&fixture, a), AgentStatus::Active);
    assert_eq!(status(&fixture, b), AgentStatus::Disconnected);
    assert_eq!(status(&fixture, never), AgentStatus::NeverConnected);
    fixture.after(899);
    assert_eq!(fixture.registry.tick().unwrap().disconnected, 1);
    let expected = StatusSummary {
        active: 0,
        disconnected: 2,
        never_connected: 1,
        pending: 0,
        total: 3,
        synced: 2,
    };
    assert_eq!(fixture.registry.status_summary().unwrap(), expected);
}

#[test]
fn clock_jump_or_restart_disconnects_no_agent() {
    let fixture = fixture();
    let id = fixture.enroll("a1").agent;
    fixture.registry.keepalive(id, &AgentInfo::default());
    fixture.clock.jump_to(common::START_US + 86_400_000_000);
    assert_eq!(fixture.registry.tick().unwrap().disconnected, 0);
    fixture.registry.close().unwrap();
    fixture.after(100_000);
    let fixture = fixture.reopen();
    assert_eq!(fixture.registry.tick().unwrap().disconnected, 0);
    assert_eq!(status(&fixture, id), AgentStatus::Active);
    fixture.after(900);
    assert_eq!(fixture.registry.tick().unwrap().disconnected, 1);
}

#[test]
fn keepalives_are_written_in_batches_and_at_close() {
    let fixture = fixture();
    let id = fixture.enroll("a1").agent;
    let stored = |fixture: &Fixture| fixture.killed().registry.agent(id).unwrap().keepalive_at_s;
    fixture.registry.keepalive(id, &AgentInfo::default());
    assert_eq!(fixture.registry.tick().unwrap().written, 0, "the interval has not passed");
    assert_eq!(stored(&fixture), None);
    fixture.after(5);
    assert_eq!(fixture.registry.tick().unwrap().written, 1);
    let first = stored(&fixture);
    assert!(first.is_some());
    fixture.after(1);
    fixture.registry.keepalive(id, &AgentInfo::default());
    assert_eq!(stored(&fixture), first);
    fixture.registry.close().unwrap();
    assert_eq!(stored(&fixture), first.map(|s| s + 6));
    assert_eq!(fixture.registry.flush().unwrap(), 0, "nothing is left to write");
}

#[test]
fn lists_and_counters_reflect_changes_and_the_latest_keepalive() {
    let fixture = fixture();
    let id = fixture.enroll("a1").agent;
    fixture.registry.keepalive(id, &info("debian", "Holdfast v0.1.0"));
    assert_eq!(fixture.registry.status_summary().unwrap().active, 1);
    let summary = fixture.registry.summary(&Reader::server()).unwrap();
    assert_eq!(summary.os, [("debian".to_owned(), 1)]);
    assert_eq!(summary.versions, [("Holdfast v0.1.0".to_owned(), 1)]);
    fixture.after(3);
    fixture.registry.keepalive(id, &AgentInfo::default());
    let page = fixture.registry.agents(&Reader::server(), &AgentQuery::default()).unwrap();
    let listed = &page.items.iter().find(|a| a.record.id == id).unwrap().record;
    assert_eq!(Some(listed), fixture.registry.agent(id).as_ref());
    let old = AgentQuery { older_than_s: Some(1), ids: Some(vec![id]), ..AgentQuery::default() };
    assert_eq!(fixture.registry.agents(&Reader::server(), &old).unwrap().total, 0);
    fixture.after(2);
    assert_eq!(fixture.registry.agents(&Reader::server(), &old).unwrap().total, 1);
}

#[test]
fn agent_info_missing_from_a_keepalive_is_kept() {
    let fixture = fixture();
    let id = fixture.enroll("a1").agent;
    fixture.registry.startup(id, &info("debian", "Holdfast v0.1.0"));
    fixture.registry.keepalive(id, &AgentInfo::default());
    let longer = AgentInfo { hostname: Some("ü".repeat(1_000)), ..AgentInfo::default() };
    fixture.registry.keepalive(id, &longer);
    fixture.registry.close().unwrap();
    let fixture = fixture.reopen();
    let record = fixture.registry.agent(id).unwrap();
    assert_eq!(record.os.unwrap().platform, "debian");
    assert_eq!(record.version.as_deref(), Some("Holdfast v0.1.0"));
    assert_eq!(record.hostname.unwrap().len(), 512);
    let overlay = fixture.registry.overlay(id).unwrap();
    assert_eq!((overlay.agent_name.as_str(), overlay.cluster.as_str()), ("a1", "holdfast"));
    assert_eq!(overlay.os, ["DEBIAN", "debian", "linux", "12"]);
    assert_eq!((overlay.architecture.as_str(), overlay.groups[0].as_str()), ("x86_64", "default"));
}
