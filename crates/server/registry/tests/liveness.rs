//! Liveness: the states, the sweep, and the rows that reach the database.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

mod common;

use common::{House, house, info};
use model::{AgentId, AgentStatus};
use registry::{AgentInfo, AgentQuery, Reader, StatusSummary};

fn status(house: &House, id: AgentId) -> AgentStatus {
    house.registry.agent(id).unwrap().status
}

#[test]
fn an_agent_goes_from_never_connected_over_pending_to_active_and_says_goodbye() {
    let house = house();
    let id = house.enroll("web").agent;
    assert_eq!(status(&house, id), AgentStatus::NeverConnected);
    assert!(house.registry.startup(id, &info("debian", "Holdfast v0.1.0")));
    assert_eq!(status(&house, id), AgentStatus::Pending);
    assert!(house.registry.keepalive(id, &AgentInfo::default()));
    assert_eq!(status(&house, id), AgentStatus::Active);
    assert!(house.registry.goodbye(id));
    assert_eq!(status(&house, id), AgentStatus::Disconnected);
    let start_s = (common::START_US / 1_000_000) as i64;
    assert_eq!(house.disconnected_at_s(id), Some(start_s));
    assert!(house.registry.keepalive(id, &AgentInfo::default()));
    assert_eq!((status(&house, id), house.disconnected_at_s(id)), (AgentStatus::Active, None));
}

#[test]
fn what_is_unknown_is_not_alive() {
    let house = house();
    let nobody = AgentId(9);
    assert!(!house.registry.startup(nobody, &AgentInfo::default()));
    assert!(!house.registry.keepalive(nobody, &AgentInfo::default()));
    assert!(!house.registry.goodbye(nobody));
    assert!(!house.registry.keepalive(AgentId::SERVER, &AgentInfo::default()));
    assert!(house.registry.overlay(nobody).is_none());
}

#[test]
fn silence_for_the_disconnection_time_disconnects_and_not_a_second_less() {
    let house = house();
    let (a, b) = (house.enroll("a1").agent, house.enroll("b1").agent);
    let never = house.enroll("c1").agent;
    house.registry.keepalive(a, &AgentInfo::default());
    house.registry.startup(b, &AgentInfo::default());
    house.after(899);
    assert_eq!(house.registry.tick().unwrap().disconnected, 0);
    house.registry.keepalive(a, &AgentInfo::default());
    house.after(1);
    assert_eq!(house.registry.tick().unwrap().disconnected, 1);
    assert_eq!(status(&house, a), AgentStatus::Active);
    assert_eq!(status(&house, b), AgentStatus::Disconnected);
    assert_eq!(status(&house, never), AgentStatus::NeverConnected);
    house.after(899);
    assert_eq!(house.registry.tick().unwrap().disconnected, 1);
    let expected = StatusSummary {
        active: 0,
        disconnected: 2,
        never_connected: 1,
        pending: 0,
        total: 3,
        synced: 2,
    };
    assert_eq!(house.registry.status_summary().unwrap(), expected);
}

#[test]
fn neither_a_jump_of_the_clock_nor_a_restart_disconnects_anybody() {
    let house = house();
    let id = house.enroll("a1").agent;
    house.registry.keepalive(id, &AgentInfo::default());
    house.clock.jump_to(common::START_US + 86_400_000_000);
    assert_eq!(house.registry.tick().unwrap().disconnected, 0);
    house.registry.close().unwrap();
    house.after(100_000);
    let house = house.reopen();
    assert_eq!(house.registry.tick().unwrap().disconnected, 0);
    assert_eq!(status(&house, id), AgentStatus::Active);
    house.after(900);
    assert_eq!(house.registry.tick().unwrap().disconnected, 1);
}

#[test]
fn keepalives_are_written_in_batches_and_at_close() {
    let house = house();
    let id = house.enroll("a1").agent;
    let stored = |house: &House| house.killed().registry.agent(id).unwrap().keepalive_at_s;
    house.registry.keepalive(id, &AgentInfo::default());
    assert_eq!(house.registry.tick().unwrap().written, 0, "the interval has not passed");
    assert_eq!(stored(&house), None);
    house.after(5);
    assert_eq!(house.registry.tick().unwrap().written, 1);
    let first = stored(&house);
    assert!(first.is_some());
    house.after(1);
    house.registry.keepalive(id, &AgentInfo::default());
    assert_eq!(stored(&house), first);
    house.registry.close().unwrap();
    assert_eq!(stored(&house), first.map(|s| s + 6));
    assert_eq!(house.registry.flush().unwrap(), 0, "nothing is left to write");
}

#[test]
fn lists_and_counters_show_a_change_at_once_and_the_latest_keepalive() {
    let house = house();
    let id = house.enroll("a1").agent;
    house.registry.keepalive(id, &info("debian", "Holdfast v0.1.0"));
    assert_eq!(house.registry.status_summary().unwrap().active, 1);
    let summary = house.registry.summary(&Reader::server()).unwrap();
    assert_eq!(summary.os, [("debian".to_owned(), 1)]);
    assert_eq!(summary.versions, [("Holdfast v0.1.0".to_owned(), 1)]);
    house.after(3);
    house.registry.keepalive(id, &AgentInfo::default());
    let page = house.registry.agents(&Reader::server(), &AgentQuery::default()).unwrap();
    let listed = page.items.iter().find(|a| a.id == id).unwrap();
    assert_eq!(Some(listed), house.registry.agent(id).as_ref());
    let old = AgentQuery { older_than_s: Some(1), ids: Some(vec![id]), ..AgentQuery::default() };
    assert_eq!(house.registry.agents(&Reader::server(), &old).unwrap().total, 0);
    house.after(2);
    assert_eq!(house.registry.agents(&Reader::server(), &old).unwrap().total, 1);
}

#[test]
fn an_agent_keeps_what_it_does_not_say_again() {
    let house = house();
    let id = house.enroll("a1").agent;
    house.registry.startup(id, &info("debian", "Holdfast v0.1.0"));
    house.registry.keepalive(id, &AgentInfo::default());
    let longer = AgentInfo { hostname: Some("ü".repeat(1_000)), ..AgentInfo::default() };
    house.registry.keepalive(id, &longer);
    house.registry.close().unwrap();
    let house = house.reopen();
    let record = house.registry.agent(id).unwrap();
    assert_eq!(record.os.unwrap().platform, "debian");
    assert_eq!(record.version.as_deref(), Some("Holdfast v0.1.0"));
    assert_eq!(record.hostname.unwrap().len(), 512);
    let overlay = house.registry.overlay(id).unwrap();
    assert_eq!((overlay.agent_name.as_str(), overlay.cluster.as_str()), ("a1", "holdfast"));
    assert_eq!(overlay.os, ["DEBIAN", "debian", "linux", "12"]);
    assert_eq!((overlay.architecture.as_str(), overlay.groups[0].as_str()), ("x86_64", "default"));
}
