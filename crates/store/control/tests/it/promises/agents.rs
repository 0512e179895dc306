//! Registration, numbers and removal.

use model::{
    AgentId, AgentRecord, AgentStatus, CoverageState, Incarnation, Permitted, WatchReport,
    WatchedRoot,
};

use super::{add, by, new_agent, open, reader};
use control::{
    AgentQuery, ConfigRow, ConfigState, ControlError, InfoRow, LastScan, LivenessRow, NewAgent,
    StatusCode, WatchQuery, WatchRow,
};

#[test]
fn agent_numbers_ascend_and_are_not_reused() {
    let store = open();
    let first = add(&store, &["a", "b"]);
    assert_eq!(first, [AgentId(1), AgentId(2)]);
    let gone = store.remove_agent(&by(), AgentId(2), 200).unwrap().unwrap();
    assert_eq!(gone.record.name, "b");
    assert_eq!(store.remove_agent(&by(), AgentId(2), 200).unwrap(), None);
    assert_eq!(add(&store, &["b"]), [AgentId(3)], "the name is free again, the number is not");
    let own = NewAgent { id: Some(AgentId(2)), ..new_agent("c") };
    let error = store.add_agents(&by(), &[own]).unwrap_err();
    assert!(matches!(error, ControlError::NumberUsed { id: AgentId(2), next: AgentId(4) }));
    let ahead = NewAgent { id: Some(AgentId(10)), ..new_agent("c") };
    assert_eq!(store.add_agents(&by(), &[ahead]).unwrap()[0].record.id, AgentId(10));
    assert_eq!(add(&store, &["d"]), [AgentId(11)]);
}

#[test]
fn freed_number_is_given_once_on_request() {
    let store = open();
    let [a, b] = add(&store, &["a", "b"])[..] else { panic!("two agents") };
    store.remove_agent(&by(), a, 200).unwrap();
    store.free_numbers(&by(), &[a, b]).unwrap();
    assert_eq!(add(&store, &["c"]), [AgentId(3)], "a number is not drawn again");
    let wants = |name: &str, id| NewAgent { id: Some(id), ..new_agent(name) };
    assert_eq!(store.add_agents(&by(), &[wants("d", a)]).unwrap()[0].record.id, a);
    assert!(store.add_agents(&by(), &[wants("e", b)]).is_err(), "it is in use");
    store.remove_agent(&by(), a, 300).unwrap();
    assert!(store.add_agents(&by(), &[wants("f", a)]).is_err(), "it was freed once");
}

#[test]
fn names_that_differ_only_in_case_are_duplicates() {
    let store = open();
    assert_eq!(add(&store, &["web-1", "web-2"]), [AgentId(1), AgentId(2)]);
    let error = store.add_agents(&by(), &[new_agent("WEB-2")]).unwrap_err();
    let ControlError::DuplicateName { name, id } = error else { panic!("{error}") };
    assert_eq!((name.as_str(), id), ("web-2", AgentId(2)));
    let rivals = |name, id| store.rivals(&reader(), name, id, None).unwrap();
    assert_eq!(rivals("Web-1", None), [AgentId(1)]);
    assert_eq!(rivals("Web-1", Some(AgentId(2))), [AgentId(1), AgentId(2)]);
}

#[test]
fn adding_agents_is_all_or_nothing() {
    let store = open();
    let error = store.add_agents(&by(), &[new_agent("a"), new_agent("a")]).unwrap_err();
    assert!(matches!(error, ControlError::DuplicateName { id: AgentId(1), .. }));
    let stranger = NewAgent { groups: vec!["none".into()], ..new_agent("b") };
    let error = store.add_agents(&by(), &[new_agent("a"), stranger]).unwrap_err();
    assert!(matches!(error, ControlError::NotFound { what: "group", .. }));
    assert_eq!(store.overview(&reader()).unwrap().summary.status.total, 0);
    assert_eq!(add(&store, &["a"]), [AgentId(1)], "no number was used");
}

#[test]
fn replacing_agent_takes_a_freed_number() {
    let store = open();
    let [a, b] = add(&store, &["a", "b"])[..] else { panic!("two agents") };
    let new = NewAgent { id: Some(a), ..new_agent("c") };
    let (gone, came) = store.replace_agents(&by(), &[a, b], &[a], &new).unwrap();
    let gone: Vec<AgentId> = gone.iter().map(|row| row.record.id).collect();
    assert_eq!((gone, came.record.id, came.record.name.as_str()), (vec![a, b], a, "c"));
    let refused = NewAgent { id: Some(b), ..new_agent("d") };
    assert!(store.replace_agents(&by(), &[a], &[], &refused).is_err(), "its number is not freed");
    assert_eq!(store.rivals(&reader(), "c", None, None).unwrap(), [a], "nothing was removed");
}

#[test]
fn reinserted_agent_keeps_groups_and_incarnation() {
    let store = open();
    store.create_group(&by(), "web", 1).unwrap();
    let a = add(&store, &["a"])[0];
    store.set_agent_groups(&by(), a, &["web".into()]).unwrap();
    let key = "k".repeat(64);
    let again = NewAgent {
        id: Some(a),
        incarnation: Incarnation(9),
        client_key: Some(key.clone()),
        register_ip: "192.0.2.1".into(),
        ..new_agent("a")
    };
    let (gone, row) = store.replace_agents(&by(), &[a], &[a], &again).unwrap();
    assert_eq!(gone, []);
    assert_eq!((row.record.incarnation, row.record.groups), (Incarnation(1), vec!["web".into()]));
    assert_eq!(row.record.register_ip, "192.0.2.1");
    assert_eq!(store.client_key(&reader(), a).unwrap(), Some(key));
    assert!(store.client_key(&reader(), AgentId(7)).is_err());
}

#[test]
fn try_replace_agents_changes_nothing() {
    let store = open();
    let [a, b] = add(&store, &["a", "b"])[..] else { panic!("two agents") };
    store.try_replace_agents(&reader(), &[a], &new_agent("a")).unwrap();
    assert!(store.try_replace_agents(&reader(), &[a], &new_agent("b")).is_err());
    assert_eq!(store.rivals(&reader(), "a", Some(b), None).unwrap(), [a, b]);
    assert_eq!(store.rivals(&reader(), "c", None, Some("ANY")).unwrap(), [a, b]);
    assert_eq!(add(&store, &["c"]), [AgentId(3)]);
}

#[test]
fn server_agent_is_not_counted_or_removable() {
    let store = open();
    let server = AgentRecord {
        id: AgentId::SERVER,
        incarnation: Incarnation(0),
        name: "server".into(),
        register_ip: "127.0.0.1".into(),
        ip: Some("127.0.0.1".into()),
        version: Some("v1.0.0".into()),
        hostname: Some("server".into()),
        os: None,
        groups: Vec::new(),
        status: AgentStatus::Active,
        added_at_s: 1,
        keepalive_at_s: Some(2),
        disconnected_at_s: None,
    };
    assert_eq!(store.save_server(&server).unwrap(), 1);
    let later = AgentRecord { added_at_s: 9, ..server.clone() };
    assert_eq!(store.save_server(&later).unwrap(), 1, "the date of the first start stays");
    assert_eq!(add(&store, &["server"]), [AgentId(1)], "an agent may have the server's name");
    let page = store.agents(&reader(), &AgentQuery::default(), 1).unwrap();
    assert_eq!((page.total, &page.items[0].record.name), (2, &server.name));
    assert_eq!(store.summary(&reader()).unwrap().status.total, 1);
    assert_eq!(store.load().unwrap().agents.len(), 1);
    for refused in [
        store.remove_agent(&by(), AgentId::SERVER, 1).map(drop),
        store.remove_agents(&by(), &[AgentId(1), AgentId::SERVER], 1).map(drop),
    ] {
        assert!(matches!(refused, Err(ControlError::Refused(_))));
    }
    assert_eq!(store.summary(&reader()).unwrap().status.total, 1, "all or none");
}

#[test]
fn rows_of_another_incarnation_are_skipped() {
    let store = open();
    let a = add(&store, &["a"])[0];
    let liveness = |incarnation, at_s| LivenessRow {
        id: a,
        incarnation: Incarnation(incarnation),
        status: AgentStatus::Active,
        status_code: StatusCode::Reset,
        keepalive_at_s: Some(at_s),
        disconnected_at_s: None,
        info: (at_s == 5).then(|| InfoRow {
            version: Some("v1.2.3".into()),
            hostname: None,
            ip: None,
            os: None,
        }),
    };
    let config = |incarnation, sum: &str| ConfigRow {
        id: a,
        incarnation: Incarnation(incarnation),
        config: ConfigState { sum: Some(sum.into()), synced: true },
    };
    store.save_liveness(&[liveness(1, 5), liveness(2, 6), liveness(1, 7)]).unwrap();
    store.save_configs(&[config(1, "one"), config(2, "two")]).unwrap();
    let page = store.agents(&reader(), &AgentQuery::default(), 1).unwrap();
    let agent = page.items.iter().find(|item| item.record.id == a).unwrap();
    let record = &agent.record;
    assert_eq!((record.status, record.keepalive_at_s), (AgentStatus::Active, Some(7)));
    assert_eq!(record.version.as_deref(), Some("v1.2.3"), "a row without it leaves it");
    assert_eq!(agent.status_code, StatusCode::Reset);
    assert_eq!(agent.config.sum.as_deref(), Some("one"));
}

#[test]
fn last_scan_keeps_times_that_are_not_reported() {
    let store = open();
    let a = add(&store, &["a"])[0];
    assert_eq!(store.last_scan(&reader(), a).unwrap(), LastScan::default());
    let began = LastScan { started_at_s: Some(5), ended_at_s: None };
    let ended = LastScan { started_at_s: None, ended_at_s: Some(9) };
    store.save_last_scans(&[(a, began), (a, ended), (AgentId(7), ended)]).unwrap();
    let both = LastScan { started_at_s: Some(5), ended_at_s: Some(9) };
    assert_eq!(store.last_scan(&reader(), a).unwrap(), both);
    assert!(store.last_scan(&reader(), AgentId(7)).is_err());
}

#[test]
fn watch_reports_are_selected_by_state_and_permission() {
    let store = open();
    let ids = add(&store, &["a", "b", "c"]);
    let row = |reported_s, states: &[CoverageState]| {
        let root = |state: &CoverageState| WatchedRoot { state: *state, ..WatchedRoot::default() };
        let roots = states.iter().map(root).collect();
        WatchRow { reported_s, report: WatchReport { roots, ..WatchReport::default() } }
    };
    let first = row(1, &[CoverageState::Realtime]);
    let mixed = row(2, &[CoverageState::Scan, CoverageState::Realtime]);
    store.save_watch_reports(&[(ids[0], row(0, &[CoverageState::Gap])), (ids[0], first)]).unwrap();
    store.save_watch_reports(&[(ids[1], mixed.clone()), (AgentId(99), mixed.clone())]).unwrap();
    let found = |permitted: Permitted, state, offset, limit| {
        let query = WatchQuery { permitted, state, offset, limit };
        let page = store.watch_reports(&reader(), &query).unwrap();
        (page.items.iter().map(|(id, _)| *id).collect::<Vec<_>>(), page.total)
    };
    assert_eq!(found(Permitted::All, None, 0, 9), (ids[..2].to_vec(), 2));
    assert_eq!(found(Permitted::All, None, 1, 9), (vec![ids[1]], 2));
    assert_eq!(found(Permitted::All, None, 0, 1), (vec![ids[0]], 2));
    assert_eq!(found(Permitted::All, Some(CoverageState::Scan), 0, 9), (vec![ids[1]], 1));
    assert_eq!(found(Permitted::All, Some(CoverageState::Gap), 0, 9), (vec![], 0), "replaced");
    assert_eq!(found(Permitted::Only(vec![ids[1]].into()), None, 0, 9), (vec![ids[1]], 1));
    assert_eq!(found(Permitted::Except(vec![ids[1]].into()), None, 0, 9), (vec![ids[0]], 1));
    let query = WatchQuery { permitted: Permitted::All, state: None, offset: 1, limit: 1 };
    assert_eq!(store.watch_reports(&reader(), &query).unwrap().items, [(ids[1], mixed)]);
    store.remove_agent(&by(), ids[1], 200).unwrap();
    assert_eq!(found(Permitted::All, None, 0, 9), (vec![ids[0]], 1));
}
