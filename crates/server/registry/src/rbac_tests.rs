use proptest::prelude::*;

use super::*;

/// A fleet with 001 in web, 002 in web and db, 003 in db, and 000 in no group.
struct Fleet;

const GROUPS: [(u32, &[&str]); 4] = [(0, &[]), (1, &["web"]), (2, &["web", "db"]), (3, &["db"])];

impl Members for Fleet {
    fn generation(&self, _: &str) -> u64 {
        0
    }
    fn of_group(&self, group: &str) -> Vec<AgentId> {
        GROUPS.iter().filter(|(_, g)| g.contains(&group)).map(|(id, _)| AgentId(*id)).collect()
    }
    fn is_in(&self, id: AgentId, group: &str) -> bool {
        GROUPS.iter().any(|(own, g)| *own == id.0 && g.contains(&group))
    }
}

fn policy(allow: bool, resources: &[&str]) -> Policy {
    Policy {
        id: 1,
        name: "p".into(),
        actions: vec!["agent:read".into()],
        resources: resources.iter().map(|r| (*r).to_owned()).collect(),
        allow,
    }
}

fn grants(mode: RbacMode, policies: Vec<Policy>) -> Grants {
    Grants::new(mode, Arc::new(policies))
}

/// Returns the permitted numbers, determined as for lists.
fn scope(grants: &Grants) -> Vec<u32> {
    let scope = grants.agents("agent:read", &Fleet);
    GROUPS.iter().map(|(id, _)| *id).filter(|id| scope.holds(AgentId(*id))).collect()
}

/// Returns the permitted numbers, determined one by one.
fn one_by_one(grants: &Grants) -> Vec<u32> {
    let may = |(id, groups): &(u32, &[&str])| {
        let number = AgentId(*id).to_string();
        let mut asked = vec![("agent:id", number.as_str())];
        asked.extend(groups.iter().map(|group| ("agent:group", *group)));
        grants.permit("agent:read", &asked)
    };
    GROUPS.iter().filter(|row| may(row)).map(|(id, _)| *id).collect()
}

#[test]
fn last_policy_that_matches_an_agent_decides() {
    use RbacMode::{Black, White};
    type Case = (RbacMode, &'static [(bool, &'static [&'static str])], &'static [u32]);
    let cases: &[Case] = &[
        (White, &[], &[]),
        (Black, &[], &[0, 1, 2, 3]),
        (White, &[(true, &["agent:id:*"])], &[0, 1, 2, 3]),
        (White, &[(true, &["agent:group:*"])], &[1, 2, 3]),
        (White, &[(true, &["agent:id:*"]), (false, &["agent:id:002"])], &[0, 1, 3]),
        (White, &[(false, &["agent:id:002"]), (true, &["agent:id:*"])], &[0, 1, 2, 3]),
        (White, &[(true, &["agent:group:web"])], &[1, 2]),
        (White, &[(true, &["agent:group:web"]), (false, &["agent:group:db"])], &[1]),
        (White, &[(true, &["agent:group:web&agent:group:db"])], &[2]),
        (White, &[(true, &["agent:id:001&agent:group:web"])], &[1]),
        (White, &[(true, &["agent:id:003&agent:group:web"])], &[]),
        (White, &[(true, &["agent:id:*&agent:group:db"])], &[2, 3]),
        (White, &[(true, &["agent:id:01"])], &[1]),
        (Black, &[(false, &["agent:group:db"])], &[0, 1]),
        (Black, &[(false, &["agent:group:*"])], &[0]),
        (Black, &[(false, &["agent:id:*"]), (true, &["agent:id:003"])], &[3]),
        (White, &[(true, &["*:*:*", "group:id:*", "nonsense", "agent:id"])], &[]),
    ];
    for (mode, policies, expected) in cases {
        let list = policies.iter().map(|(allow, resources)| policy(*allow, resources)).collect();
        let grants = grants(*mode, list);
        assert_eq!(scope(&grants), *expected, "{mode:?} {policies:?}");
        assert_eq!(one_by_one(&grants), *expected, "{mode:?} {policies:?}");
    }
}

#[test]
fn wildcard_resources_are_permitted_as_a_whole() {
    let grants = grants(RbacMode::White, vec![policy(true, &["*:*:*"])]);
    assert!(grants.permit("agent:read", &[("*:*", "*")]));
    assert!(grants.permit_some("agent:read", "*:*"));
    assert!(!grants.permit("agent:delete", &[("*:*", "*")]));
    assert!(!grants.permit_some("agent:read", "agent:id"));
}

#[test]
fn permit_some_respects_the_order_of_policies() {
    use RbacMode::{Black, White};
    for (mode, policies, expected) in [
        (White, vec![policy(true, &["agent:id:*"]), policy(false, &["agent:id:*"])], false),
        (White, vec![policy(false, &["agent:id:*"]), policy(true, &["agent:id:009"])], true),
        (White, vec![policy(true, &["agent:id:*"]), policy(false, &["agent:id:001"])], true),
        (White, vec![policy(true, &["agent:group:web"])], true),
        (Black, vec![policy(false, &["agent:id:*"])], false),
        (Black, vec![policy(false, &["group:id:*"])], true),
    ] {
        assert_eq!(grants(mode, policies).permit_some("agent:read", "agent:id"), expected);
    }
}

const RESOURCES: [&str; 12] = [
    "agent:id:*",
    "agent:id:000",
    "agent:id:001",
    "agent:id:002",
    "agent:id:003",
    "agent:group:*",
    "agent:group:web",
    "agent:group:db",
    "agent:id:002&agent:group:db",
    "agent:id:*&agent:group:*",
    "agent:group:db&agent:group:web",
    "group:id:web",
];

proptest! {
    #[test]
    fn list_scope_agrees_with_single_permission_checks(
        black in any::<bool>(),
        policies in prop::collection::vec((any::<bool>(), 0..RESOURCES.len()), 0..8),
    ) {
        let mode = if black { RbacMode::Black } else { RbacMode::White };
        let list = policies.iter().map(|(allow, at)| policy(*allow, &[RESOURCES[*at]])).collect();
        let grants = grants(mode, list);
        prop_assert_eq!(scope(&grants), one_by_one(&grants));
        if !scope(&grants).is_empty() {
            prop_assert!(grants.permit_some("agent:read", "agent:id"));
        }
    }
}

/// A fleet that counts the lookups of a group's agents.
struct MovingColumns {
    web: u64,
    db: u64,
    asked: std::cell::Cell<u32>,
}

impl Members for MovingColumns {
    fn generation(&self, group: &str) -> u64 {
        if group == "web" { self.web } else { self.db }
    }
    fn of_group(&self, group: &str) -> Vec<AgentId> {
        self.asked.set(self.asked.get() + 1);
        Fleet.of_group(group)
    }
    fn is_in(&self, id: AgentId, group: &str) -> bool {
        Fleet.is_in(id, group)
    }
}

#[test]
fn scope_is_resolved_again_only_when_a_group_it_names_changes() {
    let grants = grants(RbacMode::White, vec![policy(true, &["agent:group:web"])]);
    let mut fleet = MovingColumns { web: 1, db: 1, asked: std::cell::Cell::default() };
    grants.agents("agent:read", &fleet);
    fleet.db += 1;
    assert!(grants.agents("agent:read", &fleet).holds(AgentId(2)));
    assert_eq!(fleet.asked.get(), 1, "agents that come into another group are nothing to it");
    fleet.web += 1;
    grants.agents("agent:read", &fleet);
    assert_eq!(fleet.asked.get(), 2);
}
