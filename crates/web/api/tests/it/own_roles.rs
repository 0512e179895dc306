//! Effects of custom roles: role x action x resource, in both modes, by calling the operations.

use std::sync::Arc;

use crate::common::{TestFile, World, golden, world_with};
use axum::http::StatusCode;
use model::AgentId;
use registry::{LinkKind, Policy, RbacMode, Reader, SecurityChange, WriteContext};

const PASSWORD: &str = "Own-Roles-1";

/// Policies of a role, in their order: an effect and the resources.
type Own = &'static [(bool, &'static [&'static str])];

/// Lists of policies; each contains every action of the table.
const OWN: [(&str, Own); 11] = [
    ("nothing", &[]),
    ("one of each", &[(true, ONE)]),
    ("one group", &[(true, &["agent:group:web", "group:id:web"])]),
    ("all", &[(true, ALL)]),
    ("all but one of each", &[(true, ALL), (false, ONE)]),
    ("all but one group", &[(true, ALL), (false, &["agent:group:db", "group:id:db"])]),
    (
        "deny, then allow",
        &[(false, &["agent:group:db", "user:id:100", "rule:file:a.yml"]), (true, ALL)],
    ),
    ("in both groups", &[(true, &["agent:group:web&agent:group:db"])]),
    (
        "one agent while in a group",
        &[(true, &["agent:id:002&agent:group:web", "agent:id:003&agent:group:web"])],
    ),
    ("deny one of each", &[(false, ONE)]),
    ("deny a group", &[(false, &["agent:group:web", "group:id:web"])]),
];

const ONE: &[&str] = &[
    "agent:id:001",
    "group:id:web",
    "node:id:node01",
    "policy:id:100",
    "role:id:100",
    "rule:id:100",
    "rule:file:a.yml",
    "user:id:100",
];

const ALL: &[&str] = &[
    "agent:id:*",
    "group:id:*",
    "node:id:*",
    "policy:id:*",
    "role:id:*",
    "rule:id:*",
    "rule:file:*",
    "user:id:*",
];

/// An action on a type of resource, and the request that requires it: for all resources at once if it
/// contains `LIST`, else for each of them in place of `ONE`. Requests that remove something come last.
struct Asked {
    action: &'static str,
    kind: &'static str,
    ids: &'static [&'static str],
    request: (&'static str, &'static str, &'static str),
}

const fn action_request(
    action: &'static str,
    kind: &'static str,
    ids: &'static [&'static str],
    request: (&'static str, &'static str, &'static str),
) -> Asked {
    Asked { action, kind, ids, request }
}

const AGENTS: &[&str] = &["000", "001", "002", "003"];
const GROUPS: &[&str] = &["web", "db"];
const USERS: &[&str] = &["100", "101"];
const FILES: &[&str] = &["a.yml", "b.yml"];
const NODES: &[&str] = &["node01", "other"];

const ASKED: &[Asked] = &[
    action_request("agent:read", "agent:id", AGENTS, ("GET", "/agents?agents_list=LIST", "")),
    action_request(
        "agent:restart",
        "agent:id",
        AGENTS,
        ("PUT", "/agents/restart?agents_list=LIST", ""),
    ),
    action_request("syscheck:run", "agent:id", AGENTS, ("PUT", "/syscheck?agents_list=LIST", "")),
    action_request("group:read", "group:id", GROUPS, ("GET", "/groups?groups_list=LIST", "")),
    action_request(
        "group:update_config",
        "group:id",
        GROUPS,
        ("PUT", "/groups/ONE/configuration", "<agent_config/>"),
    ),
    action_request("security:read", "user:id", USERS, ("GET", "/security/users?user_ids=LIST", "")),
    action_request(
        "security:update",
        "user:id",
        USERS,
        ("PUT", "/security/users/ONE", r#"{"password":"Other-Word-2"}"#),
    ),
    action_request("security:read", "role:id", USERS, ("GET", "/security/roles?role_ids=LIST", "")),
    action_request(
        "security:update",
        "role:id",
        USERS,
        ("PUT", "/security/roles/ONE", r#"{"name":"renamed-ONE"}"#),
    ),
    action_request(
        "security:read",
        "policy:id",
        USERS,
        ("GET", "/security/policies?policy_ids=LIST", ""),
    ),
    action_request(
        "security:update",
        "policy:id",
        USERS,
        ("PUT", "/security/policies/ONE", r#"{"name":"renamed-ONE"}"#),
    ),
    action_request("security:read", "rule:id", USERS, ("GET", "/security/rules?rule_ids=LIST", "")),
    action_request(
        "security:update",
        "rule:id",
        USERS,
        ("PUT", "/security/rules/ONE", r#"{"name":"renamed-ONE"}"#),
    ),
    action_request("rules:read", "rule:file", FILES, ("GET", "/rules/files?filename=LIST", "")),
    action_request("cluster:read", "node:id", NODES, ("GET", "/cluster/nodes?nodes_list=LIST", "")),
    action_request(
        "cluster:update_config",
        "node:id",
        NODES,
        ("PUT", "/cluster/ONE/configuration", "# all as it is"),
    ),
    action_request("rules:delete", "rule:file", FILES, ("DELETE", "/rules/files/ONE", "")),
    action_request(
        "agent:delete",
        "agent:id",
        &["001", "002", "003"],
        ("DELETE", "/agents?agents_list=LIST&status=all&older_than=0s", ""),
    ),
    action_request("group:delete", "group:id", GROUPS, ("DELETE", "/groups?groups_list=LIST", "")),
];

const RULE: &str = "title: new
id: 1c6ddc5f-33ef-4b69-8e41-906ce0c34f00
logsource:
  product: linux
detection:
  one:
    file.path: /a
  condition: one
";

/// Creates a server with 001 in web, 002 in web and db, 003 in db; users, roles, policies and rules 100
/// and 101, files a.yml and b.yml.
async fn world() -> World {
    let world = world_with(|options| {
        options.requests_per_minute_max = 0;
        options.config = Some(Arc::new(TestFile::default()));
    });
    world.registry.create_group(&WriteContext::server(), "db").unwrap();
    for (agent, groups) in [(1, vec!["web"]), (2, vec!["web", "db"]), (3, vec!["db"])] {
        let groups: Vec<String> = groups.into_iter().map(str::to_owned).collect();
        world.registry.set_agent_groups(&WriteContext::server(), AgentId(agent), &groups).unwrap();
    }
    world
        .registry
        .create_user(&WriteContext::server(), "other", PASSWORD, false, &["readonly"])
        .unwrap();
    for name in ["some", "other"] {
        let role = SecurityChange::CreateRole { name: name.into() };
        world.registry.change_security(&WriteContext::server(), role).unwrap();
        let policy = Policy {
            id: 0,
            name: name.into(),
            actions: vec!["cluster:status".into()],
            resources: vec![format!("node:id:{name}")],
            allow: true,
        };
        world
            .registry
            .change_security(&WriteContext::server(), SecurityChange::CreatePolicy(policy))
            .unwrap();
        let body = format!("{{\"FIND\":{{\"a\":\"{name}\"}}}}");
        let rule = SecurityChange::CreateRule { name: name.into(), body };
        world.registry.change_security(&WriteContext::server(), rule).unwrap();
    }
    let admin = world.admin().await;
    for file in FILES {
        let rule = RULE.replace("1c6ddc5f", if *file == "a.yml" { "1c6ddc5f" } else { "2c6ddc5f" });
        let (status, body) =
            send(&world, ("PUT", &format!("/rules/files/{file}"), &rule), &admin).await;
        assert_eq!(status, StatusCode::OK, "{body}");
    }
    world
}

async fn send(
    world: &World,
    (method, path, body): (&str, &str, &str),
    token: &str,
) -> (StatusCode, serde_json::Value) {
    let bearer = format!("Bearer {token}");
    let kind = match body.get(..1) {
        Some("<") => "application/xml",
        Some("t" | "#") => "application/octet-stream",
        _ => "application/json",
    };
    let headers = [("authorization", bearer.as_str()), ("content-type", kind)];
    let answer = world.send(method, path, &headers, body.to_owned()).await;
    (answer.status, answer.json())
}

/// Returns a token of a user whose only role has these policies.
async fn who_has(world: &World, own: Own, mode: RbacMode) -> (String, u32) {
    let role = world.registry.change_security(
        &WriteContext::server(),
        SecurityChange::CreateRole { name: "own".into() },
    );
    let role = role.unwrap();
    for (at, (allow, resources)) in own.iter().enumerate() {
        let mut actions: Vec<String> = ASKED.iter().map(|asked| asked.action.to_owned()).collect();
        actions.sort_unstable();
        actions.dedup();
        let policy = Policy {
            id: 0,
            name: format!("own-{at}"),
            actions,
            resources: resources.iter().map(|text| (*text).to_owned()).collect(),
            allow: *allow,
        };
        let member = world
            .registry
            .change_security(&WriteContext::server(), SecurityChange::CreatePolicy(policy))
            .unwrap();
        let (kind, owner) = (LinkKind::RolePolicy, role);
        let link = SecurityChange::Link { kind, owner, member, position: None };
        world.registry.change_security(&WriteContext::server(), link).unwrap();
    }
    world.registry.change_security_config(&WriteContext::server(), None, Some(mode)).unwrap();
    // A token issued in the second of the revocation would be revoked as well.
    world.clock.advance(std::time::Duration::from_secs(2));
    world
        .registry
        .create_user(&WriteContext::server(), "owner", PASSWORD, false, &["own"])
        .unwrap();
    (world.login("owner", PASSWORD).await, role)
}

/// Returns the resources that the request reached; denied ones are reported with 4000.
async fn reached(world: &World, asked: &Asked, token: &str) -> Vec<&'static str> {
    let (method, path, body) = asked.request;
    if path.contains("LIST") {
        let path = path.replace("LIST", &asked.ids.join(","));
        let (status, answer) = send(world, (method, &path, body), token).await;
        if status == StatusCode::FORBIDDEN {
            assert_eq!(answer["error"], 4000, "{path}: {answer}");
            return Vec::new();
        }
        assert_eq!(status, StatusCode::OK, "{path}: {answer}");
        let failed = answer["data"]["failed_items"].as_array().unwrap();
        let denied = failed.iter().filter(|item| item["error"]["code"] == 4000);
        let denied = denied.flat_map(|item| item["id"].as_array().unwrap());
        // Ids of users, roles and policies are numbers.
        let denied: Vec<String> =
            denied.map(|id| id.to_string().trim_matches('"').to_owned()).collect();
        let held = |id: &&str| denied.iter().any(|denied| denied == id);
        return asked.ids.iter().copied().filter(|id| !held(id)).collect();
    }
    let mut reached = Vec::new();
    for id in asked.ids {
        let (path, body) = (path.replace("ONE", id), body.replace("ONE", id));
        let (status, answer) = send(world, (method, &path, &body), token).await;
        if status == StatusCode::FORBIDDEN {
            assert_eq!(answer["error"], 4000, "{path}: {answer}");
        } else {
            // The node does not exist.
            assert!(status == StatusCode::OK || *id == "other", "{path}: {answer}");
            reached.push(*id);
        }
    }
    reached
}

/// Returns the permitted resources according to the policies, without calling an operation.
fn permitted(world: &World, asked: &Asked, role: u32) -> Vec<&'static str> {
    let grants = world.registry.grants(&Reader::server(), &[role]).unwrap();
    let may = |id: &&str| match (asked.kind, id.parse::<AgentId>()) {
        ("agent:id", Ok(agent)) => world.registry.permits_agent(&grants, asked.action, agent),
        (kind, _) => grants.permit(asked.action, &[(kind, id)]),
    };
    asked.ids.iter().copied().filter(may).collect()
}

#[tokio::test]
async fn custom_role_permissions_match_the_golden_table() {
    let mut table = String::from(
        "# 001 is in web, 002 in web and db, 003 in db, 000 in none\n\
         # mode | role | action | resource | which of them it reaches\n",
    );
    for mode in [RbacMode::White, RbacMode::Black] {
        for (name, own) in OWN {
            let world = world().await;
            let (token, role) = who_has(&world, own, mode).await;
            for asked in ASKED {
                let expected = permitted(&world, asked, role);
                let reached = reached(&world, asked, &token).await;
                let Asked { action, kind, ids, .. } = asked;
                assert_eq!(reached, expected, "{mode:?}, {name}: {action} on {kind} of {ids:?}");
                let (mode, reached) = (mode.name(), reached.join(" "));
                let row = format!("{mode} | {name} | {action} | {kind} | {reached}");
                table.push_str(row.trim_end());
                table.push('\n');
            }
        }
    }
    golden("../../../openapi/rbac-own.txt", &table);
}

#[tokio::test]
async fn denied_node_is_refused_where_it_is_the_only_one() {
    for mode in [RbacMode::White, RbacMode::Black] {
        let world = world().await;
        let (token, _) = who_has(&world, &[(false, ONE)], mode).await;
        for path in ["/cluster/local/info", "/cluster/local/config"] {
            assert_eq!(world.get(path, &token).await.status, StatusCode::FORBIDDEN, "{path}");
        }
    }
}
