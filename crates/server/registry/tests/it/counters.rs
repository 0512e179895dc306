//! Compares stored counters with counted ones under random operations: agents enrol, leave, report,
//! become silent and change groups; the server is killed in between.

use std::collections::BTreeMap;

use crate::common::{Fixture, fixture, info, named};
use model::{AgentId, AgentStatus};
use proptest::prelude::*;
use registry::{
    AgentColumn, AgentCondition, AgentInfo, AgentQuery, AgentRow, ControlStore, GroupConfig,
    Permitted, Reader, ReportedConfig, StatusSummary, WriteContext,
};

#[derive(Debug, Clone)]
enum Step {
    Add,
    Remove(u32),
    Startup(u32, u8),
    Keepalive(u32, u8),
    Goodbye(u32),
    Groups(u32, Vec<u8>),
    DeleteGroup(u8),
    Configure(u8, u8),
    Told(u32, u8),
    Wait(u16),
    Tick,
    Check,
    Kill,
}

const PLATFORMS: [&str; 3] = ["debian", "rocky", "alpine"];
const GROUPS: [&str; 3] = ["web", "db", "default"];
const CONFIGS: [&str; 3] = ["", "[scan]\nthreads = 1\n", "[[watch]]\npath = \"/srv\"\n"];

fn step() -> impl Strategy<Value = Step> {
    let id = 0..8_u32;
    prop_oneof![
        4 => Just(Step::Add),
        1 => id.clone().prop_map(Step::Remove),
        3 => (id.clone(), 0..3_u8).prop_map(|(a, b)| Step::Startup(a, b)),
        6 => (id.clone(), 0..4_u8).prop_map(|(a, b)| Step::Keepalive(a, b)),
        2 => id.clone().prop_map(Step::Goodbye),
        2 => (id, prop::collection::vec(0..3_u8, 0..3)).prop_map(|(a, b)| Step::Groups(a, b)),
        1 => (0..2_u8).prop_map(Step::DeleteGroup),
        2 => (0..3_u8, 0..3_u8).prop_map(|(a, b)| Step::Configure(a, b)),
        4 => (0..8_u32, 0..6_u8).prop_map(|(a, b)| Step::Told(a, b)),
        2 => (1..1_200_u16).prop_map(Step::Wait),
        3 => Just(Step::Tick),
        3 => Just(Step::Check),
        1 => Just(Step::Kill),
    ]
}

fn info_with_platform(platform: u8) -> AgentInfo {
    PLATFORMS.get(usize::from(platform)).map_or_else(AgentInfo::default, |platform| {
        info(platform, if *platform == "rocky" { "Holdfast v2" } else { "Holdfast v1" })
    })
}

fn apply(mut fixture: Fixture, step: &Step, made: &mut u32) -> Fixture {
    let registry = &fixture.registry;
    let pick = |n: &u32| AgentId(n % 8 + 1);
    match step {
        Step::Add => {
            *made += 1;
            registry
                .add_agents(&WriteContext::server(), &[(None, named(&format!("agent-{made}")))])
                .unwrap();
        }
        Step::Remove(n) => drop(registry.remove_agent(&WriteContext::server(), pick(n)).unwrap()),
        Step::Startup(n, p) => drop(registry.startup(pick(n), &info_with_platform(*p))),
        Step::Keepalive(n, p) => drop(registry.keepalive(pick(n), &info_with_platform(*p))),
        Step::Goodbye(n) => drop(registry.goodbye(pick(n))),
        Step::Groups(n, groups) => {
            let groups: Vec<_> =
                groups.iter().map(|g| GROUPS[usize::from(*g)].to_owned()).collect();
            for group in &groups {
                let _ = registry.create_group(&WriteContext::server(), group);
            }
            let _ = registry.set_agent_groups(&WriteContext::server(), pick(n), &groups);
        }
        Step::DeleteGroup(g) => {
            drop(registry.delete_group(&WriteContext::server(), GROUPS[usize::from(*g)]));
        }
        Step::Configure(g, n) => {
            drop(registry.set_group_config(
                &WriteContext::server(),
                GROUPS[usize::from(*g)],
                CONFIGS[usize::from(*n)],
            ));
        }
        // Usually reports the configuration that the agent should run.
        Step::Told(n, what) => {
            let wanted = registry.wanted_config(pick(n)).unwrap_or_default();
            let sum = if *what < 4 { wanted.as_ref().to_owned() } else { what.to_string() };
            registry.config_reported(pick(n), ReportedConfig { sum, problem: None });
        }
        Step::Wait(seconds) => fixture.after(u64::from(*seconds)),
        Step::Tick => drop(registry.tick().unwrap()),
        Step::Check => check(&fixture),
        Step::Kill => {
            check(&fixture);
            fixture = fixture.killed();
        }
    }
    fixture
}

/// Checks that every counter equals the count of the list, and that the list equals the memory.
fn check(fixture: &Fixture) {
    let mut page = fixture.registry.agents(&Reader::server(), &AgentQuery::default()).unwrap();
    let mut status = StatusSummary::default();
    for AgentRow { record: agent, config, .. } in &page.items {
        if agent.id == AgentId::SERVER {
            assert!(config.synced);
            continue;
        }
        let wanted = fixture.registry.wanted_config(agent.id).unwrap();
        assert_eq!(*wanted, fixture.registry.merged_config(&agent.groups).unwrap().sum);
        assert_eq!(config.synced, config.sum.as_deref() == Some(&*wanted), "{agent:?}");
        assert_eq!(fixture.registry.agent_config(agent.id).unwrap().0, *config);
        assert!(config.sum.is_some() || agent.status == AgentStatus::NeverConnected);
        status.synced += u64::from(config.synced);
    }
    let only_synced = AgentCondition::any_of(AgentColumn::ConfigStatus, ["synced"]);
    let query = AgentQuery { condition: Some(only_synced), ..AgentQuery::default() };
    assert_eq!(
        fixture.registry.agents(&Reader::server(), &query).unwrap().total,
        status.synced + 1
    );
    assert_eq!(fixture.registry.status_of(&Permitted::All).synced, status.synced);
    page.items.retain(|a| a.record.id != AgentId::SERVER);
    let mut os: BTreeMap<String, u64> = BTreeMap::new();
    let mut versions: BTreeMap<String, u64> = BTreeMap::new();
    let groups = fixture.registry.groups(&Reader::server()).unwrap();
    let mut groups: BTreeMap<String, u64> = groups.into_iter().map(|g| (g.name, 0)).collect();
    for AgentRow { record: agent, .. } in &page.items {
        assert_eq!(fixture.registry.agent(agent.id).as_ref(), Some(agent));
        status.total += 1;
        match agent.status {
            AgentStatus::Active => status.active += 1,
            AgentStatus::Disconnected => status.disconnected += 1,
            AgentStatus::NeverConnected => status.never_connected += 1,
            AgentStatus::Pending => status.pending += 1,
        }
        if let Some(os_of) = &agent.os {
            *os.entry(os_of.platform.clone()).or_default() += 1;
        }
        if let Some(version) = &agent.version {
            *versions.entry(version.clone()).or_default() += 1;
        }
        for group in &agent.groups {
            *groups.get_mut(group).expect("a listed group exists") += 1;
        }
    }
    assert_eq!(page.total, status.total + 1);
    let summary = fixture.registry.summary(&Reader::server()).unwrap();
    assert_eq!(fixture.registry.status_summary().unwrap(), status);
    assert_eq!(summary.status, status);
    assert_eq!(summary.os.into_iter().collect::<BTreeMap<_, _>>(), os);
    assert_eq!(summary.versions.into_iter().collect::<BTreeMap<_, _>>(), versions);
    assert_eq!(summary.groups.into_iter().collect::<BTreeMap<_, _>>(), groups);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn stored_counters_equal_counted_agents(steps in prop::collection::vec(step(), 1..60)) {
        let mut fixture = fixture();
        let mut made = 0;
        for step in &steps {
            fixture = apply(fixture, step, &mut made);
        }
        check(&fixture);
        fixture.registry.close().unwrap();
        check(&fixture.reopen());
    }
}

#[test]
fn systems_are_counted_on_change_and_dropped_with_last_agent() {
    let fixture = fixture();
    let ids = fixture
        .registry
        .add_agents(&WriteContext::server(), &[(None, named("one")), (None, named("two"))])
        .unwrap();
    let systems = || fixture.registry.overview(&Reader::server()).unwrap().systems;
    assert_eq!(systems(), []);
    let system = |platform: &str| [platform.to_uppercase(), platform.into(), "12".into()];
    fixture.registry.keepalive(ids[0], &info("debian", "v1"));
    fixture.registry.keepalive(ids[1], &info("debian", "v1"));
    assert_eq!(systems(), [(system("debian"), 2)]);
    fixture.registry.keepalive(ids[1], &info("fedora", "v1"));
    assert_eq!(systems(), [(system("debian"), 1), (system("fedora"), 1)]);
    assert_eq!(
        fixture.registry.overview(&Reader::server()).unwrap().last.unwrap().record.id,
        ids[1]
    );
    let lives = fixture.registry.revoke_agents(&WriteContext::server(), &ids).unwrap();
    fixture.registry.remove_agents(&WriteContext::server(), &lives).unwrap();
    assert_eq!(systems(), []);
}

#[test]
fn kill_between_group_change_and_agent_flags_leaves_none_stale() {
    let fixture = fixture();
    let ids = fixture
        .registry
        .add_agents(&WriteContext::server(), &[(None, named("one")), (None, named("two"))])
        .unwrap();
    for id in &ids {
        fixture.registry.keepalive(*id, &info("debian", "v1"));
    }
    assert_eq!(fixture.registry.status_summary().unwrap().synced, 2);
    // The change is durable, but nothing after it is.
    let store = ControlStore::open(&fixture.folder.path().join("registry.db")).unwrap();
    let body = b"[scan]\nthreads = 1\n".to_vec();
    let config = GroupConfig { body, sum: String::new(), at_s: 1 };
    store.set_group_config(&WriteContext::server(), "default", &config).unwrap();
    let fixture = fixture.reopen();
    assert_eq!(fixture.registry.status_summary().unwrap().synced, 0);
    let sum = fixture.registry.wanted_config(ids[0]).unwrap().as_ref().to_owned();
    fixture.registry.config_reported(ids[0], ReportedConfig { sum, problem: None });
    check(&fixture);
    assert_eq!(fixture.registry.status_summary().unwrap().synced, 1);
}

#[test]
fn settings_of_the_last_group_take_precedence() {
    let fixture = fixture();
    let id =
        fixture.registry.add_agents(&WriteContext::server(), &[(None, named("one"))]).unwrap()[0];
    for (group, text) in [("web", "[scan]\nthreads = 1\n"), ("db", "[scan]\nthreads = 2\n")] {
        fixture.registry.create_group(&WriteContext::server(), group).unwrap();
        fixture.registry.set_group_config(&WriteContext::server(), group, text).unwrap();
    }
    let wanted = || fixture.registry.wanted_config(id).unwrap();
    for (groups, last) in [(["web", "db"], "db"), (["db", "web"], "web")] {
        fixture
            .registry
            .set_agent_groups(&WriteContext::server(), id, &groups.map(String::from))
            .unwrap();
        assert_eq!(wanted(), fixture.registry.merged_sum(last), "{groups:?}");
    }
    fixture.registry.delete_group(&WriteContext::server(), "web").unwrap();
    assert_eq!(wanted(), fixture.registry.merged_sum("db"));
    assert_eq!(
        fixture.registry.merged_sum("web").as_ref(),
        "",
        "a group that is gone sets nothing"
    );
    let error = fixture
        .registry
        .set_group_config(&WriteContext::server(), "db", "[scan]\nthreads = 99\n")
        .unwrap_err();
    assert!(error.to_string().contains("line 2"), "{error}");
    assert_eq!(wanted(), fixture.registry.merged_sum("db"), "what is refused changes nothing");
}
