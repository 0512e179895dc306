//! Agents taken over from a `client.keys`, agents that take another's place, and their keys.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)]

mod common;

use std::sync::{Arc, Mutex};

use common::{house, named};
use model::{AgentId, Incarnation};
use registry::limits::AGENT_NUMBER_MAX;
use registry::{EnrollError, EnrollRequest, ForceRules, InsertAgent, LastScan};

#[test]
fn a_key_that_is_asked_for_is_the_same_each_time_and_nothing_is_written() {
    let world = house();
    world.registry.add_agents(&[(None, named("one")), (None, named("two"))]).unwrap();
    let key = |id| world.registry.client_key(AgentId(id)).unwrap();
    let rows = || {
        let db = rusqlite::Connection::open(world.folder.path().join("registry.db")).unwrap();
        let sql = "SELECT count(*) FROM agent WHERE client_key IS NOT NULL";
        db.query_row(sql, [], |row| row.get::<_, i64>(0)).unwrap()
    };
    let before = rows();
    assert_eq!((key(1), key(1).len()), (key(1), 64));
    assert_ne!(key(1), key(2));
    assert_eq!(rows(), before);
    assert!(world.registry.client_key(AgentId(9)).is_err());
}

#[test]
fn an_import_keeps_numbers_names_addresses_and_keys_or_takes_nothing() {
    let world = house();
    let (a, b) = ("a".repeat(64), "b".repeat(64));
    let text = format!("007 web 192.0.2.7 {a}\n012 db any {b}\n\n009 !gone any {a}\n# note\n");
    let report = world.registry.import_client_keys(&text).unwrap();
    assert_eq!((report.added, report.passed_over), (2, 3));
    let web = world.registry.agent(AgentId(7)).unwrap();
    assert_eq!((web.name.as_str(), web.register_ip.as_str()), ("web", "192.0.2.7"));
    assert_eq!(world.registry.client_key(AgentId(12)).unwrap(), b);
    let next = world.registry.add_agents(&[(None, named("next"))]).unwrap();
    assert_eq!(next, [AgentId(13)], "numbers go on behind the highest");

    for (line, why) in [
        (format!("020 new any {}", "c".repeat(63)), "short key"),
        ("021 new".to_owned(), "two words"),
        (format!("000 new any {a}"), "the server's number"),
        (format!("022 web any {a}"), "a name that is taken"),
    ] {
        let text = format!("030 fine any {a}\n{line}\n");
        assert!(world.registry.import_client_keys(&text).is_err(), "{why}");
        assert!(world.registry.agent(AgentId(30)).is_none(), "{why}: nothing was taken over");
    }
}

#[test]
fn a_silent_agent_gives_way_and_a_living_one_does_not() {
    let world = house();
    let old = world.registry.add_agents(&[(None, named("web"))]).unwrap()[0];
    let rules = ForceRules { enabled: true, disconnected_s: Some(60), registered_s: 60 };
    let new = InsertAgent { request: named("web"), force: Some(rules), ..InsertAgent::default() };
    let mut record = |_: &[(AgentId, Incarnation)]| Ok(());
    let refused = world.registry.insert_agent(&new, &mut record).unwrap_err();
    assert!(matches!(refused, EnrollError::DuplicateName { .. }), "registered just now: {refused}");
    world.after(61);
    let (id, key, removed) = world.registry.insert_agent(&new, &mut record).unwrap();
    assert_eq!((removed[0].0, key.len()), (old, 64));
    assert!(world.registry.agent(old).is_none() && world.registry.agent(id).is_some());
    let off = InsertAgent { force: None, ..new };
    world.after(600);
    assert!(world.registry.insert_agent(&off, &mut record).is_err());
}

#[test]
fn a_refused_insert_removes_nobody() {
    let world = house();
    let name = world.registry.add_agents(&[(None, named("web"))]).unwrap()[0];
    world.after(61);
    let at = EnrollRequest { ip: "192.0.2.7".into(), ..named("db") };
    let young = world.registry.add_agents(&[(None, at)]).unwrap()[0];
    let force = Some(ForceRules { enabled: true, disconnected_s: Some(60), registered_s: 60 });
    let request = EnrollRequest { ip: "192.0.2.7".into(), ..named("web") };
    let both = InsertAgent { request, force, ..InsertAgent::default() };
    let mut told = Vec::new();
    let mut record = |gone: &[(AgentId, Incarnation)]| {
        told.extend(gone.iter().map(|(id, _)| *id));
        Ok(())
    };
    let refused = world.registry.insert_agent(&both, &mut record).unwrap_err();
    assert!(matches!(refused, EnrollError::DuplicateIp { id, .. } if id == young), "{refused}");
    // A number below the next, which nobody has.
    let low =
        InsertAgent { id: Some(young), request: named("web"), force, ..InsertAgent::default() };
    assert!(world.registry.insert_agent(&low, &mut record).is_err(), "the number is another's");
    let unrecorded = InsertAgent { request: named("web"), force, ..InsertAgent::default() };
    let full = |_: &[(AgentId, Incarnation)]| Err("the disk is full".to_owned());
    let refused = world.registry.insert_agent(&unrecorded, &mut { full }).unwrap_err();
    assert!(refused.to_string().contains("the disk is full"), "{refused}");
    assert!(world.registry.agent(name).is_some() && told.is_empty(), "nobody had to go");
}

#[test]
fn the_number_of_an_agent_that_gives_way_may_be_taken_over() {
    let world = house();
    let old = world.registry.add_agents(&[(None, named("web"))]).unwrap()[0];
    let life = world.registry.agent(old).unwrap().incarnation;
    world.after(61);
    let force = Some(ForceRules { enabled: true, disconnected_s: Some(60), registered_s: 60 });
    let new =
        InsertAgent { id: Some(old), request: named("next"), force, ..InsertAgent::default() };
    let mut told = Vec::new();
    let mut record = |gone: &[(AgentId, Incarnation)]| {
        told.extend_from_slice(gone);
        Ok(())
    };
    let (id, _, removed) = world.registry.insert_agent(&new, &mut record).unwrap();
    assert_eq!((id, removed, told), (old, vec![(old, life)], vec![(old, life)]));
    let now = world.registry.agent(old).unwrap();
    assert_eq!(now.name, "next");
    assert_ne!(now.incarnation, life);
    // The removal of a life that is over removes nobody.
    assert_eq!(world.registry.remove_agents(&[(old, life)], false).unwrap(), []);
    assert_eq!(world.registry.remove_agents(&[(old, now.incarnation)], false).unwrap(), [old]);
}

#[test]
fn a_number_that_would_end_enrolment_is_refused() {
    let world = house();
    for id in [AGENT_NUMBER_MAX + 1, u32::MAX - 1, u32::MAX] {
        let new =
            InsertAgent { id: Some(AgentId(id)), request: named("far"), ..InsertAgent::default() };
        assert!(world.registry.insert_agent(&new, &mut |_| Ok(())).is_err(), "{id}");
        let line = format!("{id} far any {}", "k".repeat(64));
        assert!(world.registry.import_client_keys(&line).is_err(), "{id}");
    }
    let new = InsertAgent {
        id: Some(AgentId(AGENT_NUMBER_MAX)),
        request: named("last"),
        ..InsertAgent::default()
    };
    world.registry.insert_agent(&new, &mut |_| Ok(())).unwrap();
    let next = world.registry.add_agents(&[(None, named("next"))]).unwrap();
    assert_eq!(next, [AgentId(AGENT_NUMBER_MAX + 1)], "drawn ones go on");
}

#[test]
fn a_scan_that_began_keeps_the_end_of_the_one_before_until_it_ends() {
    let world = house();
    let id = world.registry.add_agents(&[(None, named("web"))]).unwrap()[0];
    let scan = |start, end| LastScan { started_at_s: start, ended_at_s: end };
    assert_eq!(world.registry.last_scan(id).unwrap(), scan(None, None));
    world.registry.scanned(id, scan(Some(10), Some(20)));
    world.registry.scanned(id, scan(Some(30), None));
    assert_eq!(world.registry.last_scan(id).unwrap(), scan(Some(30), Some(20)));
}

#[test]
fn whoever_keeps_something_of_agents_is_told_of_each_that_is_removed_by_whatever_way() {
    let house = house();
    let told = Arc::new(Mutex::new(Vec::new()));
    let list = Arc::clone(&told);
    house.registry.when_removed(move |id| list.lock().unwrap().push(id));
    let ids = house
        .registry
        .add_agents(&["one", "two", "three"].map(|name| (None, named(name))))
        .unwrap();
    house.registry.remove_agent(ids[0]).unwrap();
    house.registry.remove_agent(ids[0]).unwrap();
    let lives = house.registry.revoke_agents(&ids).unwrap();
    assert_eq!(told.lock().unwrap()[..], ids[..1], "revoked is not removed");
    house.registry.remove_agents(&lives[..1], false).unwrap();
    let force = ForceRules { enabled: true, disconnected_s: None, registered_s: 0 };
    let new = InsertAgent { id: None, request: named("three"), key: None, force: Some(force) };
    house.registry.insert_agent(&new, &mut |_| Ok(())).unwrap();
    assert_eq!(told.lock().unwrap()[..], ids[..], "replaced is removed");
}

#[test]
fn what_an_agent_told_of_its_scan_is_not_the_next_ones_of_its_number() {
    let house = house();
    let ids = house.registry.add_agents(&[(None, named("one"))]).unwrap();
    let scan = LastScan { started_at_s: Some(7), ended_at_s: Some(8) };
    house.registry.scanned(ids[0], scan);
    let force = ForceRules { enabled: true, disconnected_s: None, registered_s: 0 };
    let (id, request) = (Some(ids[0]), named("two"));
    let new = InsertAgent { id, request, key: None, force: Some(force) };
    house.registry.insert_agent(&new, &mut |_| Ok(())).unwrap();
    assert_eq!(house.registry.last_scan(ids[0]).unwrap(), LastScan::default());
}
