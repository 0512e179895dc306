//! Groups, their configuration and the counters.

use model::{AgentId, AgentOs, AgentStatus, Incarnation};

use super::{add, by, new_agent, open, reader};
use control::limits::GROUPS_PER_AGENT_MAX;
use control::{ControlError, GroupConfig, InfoRow, LivenessRow, NewAgent, StatusCode};

fn texts(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

#[test]
fn agent_groups_are_ordered_and_default_when_empty() {
    let store = open();
    for name in ["web", "db"] {
        store.create_group(&by(), name, 1).unwrap();
    }
    let again = store.create_group(&by(), "web", 1).unwrap_err();
    assert!(matches!(again, ControlError::Exists { what: "group", .. }));
    for name in ["", "..", "all", "a b", "ä"] {
        let refused = store.create_group(&by(), name, 1).unwrap_err();
        assert!(matches!(refused, ControlError::Refused(_)), "{name}");
    }
    let [a, b] = add(&store, &["a", "b"])[..] else { panic!("two agents") };
    let groups = store.set_agent_groups(&by(), a, &texts(&["web", "db", "web"])).unwrap();
    assert_eq!(groups, ["web", "db"], "each once");
    assert_eq!(store.set_agent_groups(&by(), a, &[]).unwrap(), ["default"]);
    let many: Vec<String> = (0..=GROUPS_PER_AGENT_MAX).map(|n| format!("g{n}")).collect();
    let error = store.set_agent_groups(&by(), a, &many).unwrap_err();
    assert!(matches!(error, ControlError::Limit { .. }));
    assert!(store.set_agent_groups(&by(), AgentId(9), &[]).is_err());
    let both = [(a, texts(&["db"])), (b, texts(&["web", "db"]))];
    assert_eq!(store.set_groups_of(&by(), &both).unwrap(), both);
    let one_fails = [(a, texts(&["web"])), (b, texts(&["none"]))];
    assert!(store.set_groups_of(&by(), &one_fails).is_err());
    let image = store.load().unwrap();
    assert_eq!(image.agents[0].record.groups, ["db"], "all or none");
}

#[test]
fn deleting_a_group_removes_it_from_its_agents() {
    let store = open();
    for name in ["web", "db"] {
        store.create_group(&by(), name, 1).unwrap();
    }
    let [a, b] = add(&store, &["a", "b"])[..] else { panic!("two agents") };
    store.set_groups_of(&by(), &[(a, texts(&["web"])), (b, texts(&["web", "db"]))]).unwrap();
    let changed = store.delete_group(&by(), "web").unwrap();
    assert_eq!(changed, [(a, texts(&["default"])), (b, texts(&["db"]))]);
    assert!(matches!(
        store.delete_group(&by(), "web"),
        Err(ControlError::NotFound { what: "group", .. })
    ));
    assert!(matches!(store.delete_group(&by(), "default"), Err(ControlError::Refused(_))));
}

#[test]
fn group_configuration_is_deleted_with_its_group() {
    let store = open();
    store.create_group(&by(), "web", 1).unwrap();
    assert_eq!(store.group_config(&reader(), "web").unwrap(), None);
    let config = GroupConfig { body: vec![0, 255], sum: "5d41".into(), at_s: 7 };
    store.set_group_config(&by(), "web", &config).unwrap();
    assert_eq!(store.group_config(&reader(), "web").unwrap(), Some(config.clone()));
    let counted = store.groups(&reader()).unwrap();
    assert_eq!(
        counted.iter().map(|group| group.name.as_str()).collect::<Vec<_>>(),
        ["default", "web"]
    );
    assert_eq!(counted[1].config_sum, config.sum);
    assert!(store.group_config(&reader(), "none").is_err());
    assert!(store.set_group_config(&by(), "none", &config).is_err());
    store.delete_group(&by(), "web").unwrap();
    store.create_group(&by(), "web", 2).unwrap();
    assert_eq!(store.group_config(&reader(), "web").unwrap(), None);
}

#[test]
fn fleet_counters_follow_every_change() {
    let store = open();
    let [a, b] = add(&store, &["a", "b"])[..] else { panic!("two agents") };
    store.create_group(&by(), "web", 1).unwrap();
    store.set_agent_groups(&by(), a, &texts(&["web"])).unwrap();
    let os = |platform: &str| AgentOs {
        name: "Debian".into(),
        platform: platform.into(),
        version: "12".into(),
        ..AgentOs::default()
    };
    let heard = |platform: &str, status| LivenessRow {
        id: a,
        incarnation: Incarnation(1),
        status,
        status_code: StatusCode::Ok,
        keepalive_at_s: Some(5),
        disconnected_at_s: None,
        info: Some(InfoRow {
            version: Some("v1.0.0".into()),
            hostname: Some("host".into()),
            ip: Some("192.0.2.1".into()),
            os: Some(os(platform)),
        }),
    };
    store.save_liveness(&[heard("debian", AgentStatus::Active)]).unwrap();
    store.save_liveness(&[heard("ubuntu", AgentStatus::Disconnected)]).unwrap();
    let overview = store.overview(&reader()).unwrap();
    let summary = store.summary(&reader()).unwrap();
    let status = summary.status;
    assert_eq!((status.disconnected, status.never_connected, status.total), (1, 1, 2));
    assert_eq!((overview.summary.status, &overview.summary.versions), (status, &summary.versions));
    assert_eq!(summary.versions, [("v1.0.0".to_owned(), 1)]);
    assert_eq!(summary.os, [("ubuntu".to_owned(), 1)]);
    assert!(summary.groups.contains(&("web".to_owned(), 1)), "{:?}", summary.groups);
    assert_eq!(overview.groups, store.groups(&reader()).unwrap());
    assert_eq!(overview.last.unwrap().record.id, b);
    let system = ["Debian", "ubuntu", "12"].map(str::to_owned);
    assert!(overview.systems.contains(&(system, 1)), "{:?}", overview.systems);
    store.remove_agents(&by(), &[a, b], 9).unwrap();
    let empty = store.overview(&reader()).unwrap();
    assert_eq!((empty.summary.status.total, empty.systems, empty.last), (0, Vec::new(), None));
    assert_eq!(empty.summary.versions, []);
}

#[test]
fn newest_agent_may_have_a_lower_number() {
    let store = open();
    let [a, _] = add(&store, &["a", "b"])[..] else { panic!("two agents") };
    let again = NewAgent { id: Some(a), now_s: 200, ..new_agent("a") };
    store.replace_agents(&by(), &[a], &[a], &again).unwrap();
    assert_eq!(store.overview(&reader()).unwrap().last.unwrap().record.id, a);
    let c = NewAgent { now_s: 200, ..new_agent("c") };
    let c = store.add_agents(&by(), &[c]).unwrap()[0].record.id;
    let last = store.overview(&reader()).unwrap().last.unwrap().record.id;
    assert_eq!(last, c, "of one second, the higher number");
}
