//! Lists of agents.

use model::{AgentId, AgentOs, AgentStatus, Incarnation};

use super::{add, by, except, ids, only, open, reader};
use control::{
    AgentColumn, AgentCondition, AgentQuery, CompareOp, ControlStore, InfoRow, LivenessRow, Sort,
    StatusCode,
};

/// Registers agents 1 to 4 with versions and systems; 4 is never heard from.
fn fleet(store: &ControlStore) -> Vec<AgentId> {
    let agents = add(store, &["alpha", "beta", "gamma", "delta"]);
    store.create_group(&by(), "web", 1).unwrap();
    store.set_agent_groups(&by(), agents[1], &["web".into(), "default".into()]).unwrap();
    let heard = |id, version: &str, platform: &str, at_s| LivenessRow {
        id,
        incarnation: Incarnation(1),
        status: AgentStatus::Active,
        status_code: StatusCode::Ok,
        keepalive_at_s: Some(at_s),
        disconnected_at_s: None,
        info: Some(InfoRow {
            version: Some(version.into()),
            hostname: None,
            ip: Some(format!("192.0.2.{at_s}")),
            os: Some(AgentOs { platform: platform.into(), ..AgentOs::default() }),
        }),
    };
    store
        .save_liveness(&[
            heard(agents[0], "v1.9.0", "debian", 10),
            heard(agents[1], "v1.10.0", "debian", 20),
            heard(agents[2], "v2.0.0", "ubuntu", 30),
        ])
        .unwrap();
    agents
}

fn texts(values: &[&str]) -> Vec<String> {
    values.iter().map(|value| (*value).to_owned()).collect()
}

fn is(column: AgentColumn, op: CompareOp, value: &str) -> AgentCondition {
    AgentCondition::Compare { column, op, value: value.into() }
}

#[test]
fn agent_filters_and_conditions_select_agents() {
    use AgentColumn as C;
    use CompareOp::{Contains, Equal, Greater, Less, NotEqual};
    let store = open();
    let agents = fleet(&store);
    let all = AgentQuery::default;
    let asked = |condition| AgentQuery { condition: Some(condition), ..all() };
    let numbers: [(AgentQuery, &[u32]); 15] = [
        (AgentQuery { status: vec![AgentStatus::NeverConnected], ..all() }, &[4]),
        (AgentQuery { name: texts(&["ALPHA", "beta"]), ..all() }, &[1, 2]),
        (AgentQuery { ip: texts(&["192.0.2.20"]), ..all() }, &[2]),
        (AgentQuery { group: texts(&["web"]), ..all() }, &[2]),
        (AgentQuery { os_platform: texts(&["Debian"]), ..all() }, &[1, 2]),
        (AgentQuery { version: texts(&["v2.0.0"]), ..all() }, &[3]),
        (AgentQuery { ids: Some(vec![agents[2], agents[0]]), ..all() }, &[1, 3]),
        (AgentQuery { ids: Some(Vec::new()), ..all() }, &[]),
        (AgentQuery { search: Some("ALPH".into()), ..all() }, &[1]),
        (asked(is(C::Version, Less, "v1.10.0")), &[1]),
        (asked(is(C::Version, Greater, "v1.9.0")), &[2, 3]),
        (asked(is(C::OsPlatform, NotEqual, "debian")), &[3]),
        (asked(AgentCondition::IsNull(C::Version)), &[4]),
        (
            asked(AgentCondition::And(vec![
                is(C::Name, Contains, "A"),
                AgentCondition::Or(vec![
                    is(C::Group, Equal, "web"),
                    is(C::OsPlatform, Equal, "ubuntu"),
                ]),
            ])),
            &[2, 3],
        ),
        (asked(is(C::Name, Equal, "' OR 1=1 --")), &[]),
    ];
    for (query, expected) in numbers {
        assert_eq!(ids(&store, &query), expected, "{query:?}");
    }
    let old = AgentQuery { older_than_s: Some(975), ..all() };
    assert_eq!(ids(&store, &old), [1, 2], "at second 1000, heard from at 10, 20 and 30");
}

#[test]
fn agent_pages_have_order_total_and_missing_ids() {
    let store = open();
    fleet(&store);
    let sort = vec![
        Sort { column: AgentColumn::OsPlatform, descending: true },
        Sort { column: AgentColumn::Name, descending: true },
    ];
    let query = AgentQuery { sort, limit: 2, offset: 0, ..AgentQuery::default() };
    let page = |offset| {
        let query = AgentQuery { offset, ..query.clone() };
        let page = store.agents(&reader(), &query, 1).unwrap();
        assert_eq!(page.total, 4);
        page.items.iter().map(|item| item.record.name.clone()).collect::<Vec<_>>()
    };
    assert_eq!(page(0), ["gamma", "beta"]);
    assert_eq!(page(2)[0], "alpha");
    assert_eq!(page(4), Vec::<String>::new());
    let named = Some([9, 7, 2, 9].map(AgentId).to_vec());
    let page = store.agents(&reader(), &AgentQuery { ids: named, ..AgentQuery::default() }, 1);
    let page = page.unwrap();
    assert_eq!((page.total, page.missing), (1, vec![AgentId(7), AgentId(9)]));
}

#[test]
fn distinct_values_have_agent_counts() {
    let store = open();
    fleet(&store);
    let columns = [AgentColumn::OsPlatform];
    let page = store.distinct(&reader(), &AgentQuery::default(), &columns, 1).unwrap();
    assert_eq!(page.total, page.items.len() as u64);
    assert_eq!(page.items[0], (vec![Some("debian".to_owned())], 2), "most agents first");
    let groups = [AgentColumn::Group];
    let query = AgentQuery { ids: Some(vec![AgentId(2)]), ..AgentQuery::default() };
    let page = store.distinct(&reader(), &query, &groups, 1).unwrap();
    assert_eq!(page.items.iter().map(|item| item.1).sum::<u64>(), 1, "{:?}", page.items);
}

#[test]
fn agent_list_contains_only_permitted_agents() {
    let store = open();
    let agents = fleet(&store);
    let seen = |permitted| ids(&store, &AgentQuery { permitted, ..AgentQuery::default() });
    assert_eq!(seen(only(&agents[..2])), [1, 2]);
    assert_eq!(seen(except(&agents[..2])), [3, 4]);
    assert_eq!(seen(only(&[])), Vec::<u32>::new());
    let named = AgentQuery {
        permitted: only(&agents[..1]),
        name: texts(&["alpha", "beta"]),
        ..AgentQuery::default()
    };
    assert_eq!(ids(&store, &named), [1]);
}
