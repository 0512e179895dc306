//! The table of each role's permissions, and a row in the audit log for every operation that
//! changes something.

use std::fmt::Write as _;

use crate::common::{self, World, described, golden, world_with};
use axum::http::StatusCode;
use listener::Source;
use registry::{
    AuditEntry, AuditOutcome, CommandKind, LinkKind, Policy, Reader, SecurityChange, WriteContext,
};
use serde_json::{Value, json};

fn world() -> World {
    world_with(|options| options.requests_per_minute_max = 0)
}

#[tokio::test]
async fn role_permissions_match_the_golden_table() {
    let world = world();
    let admin = world.admin().await;
    let actions = world.ok("/security/actions", &admin).await;
    let roles = world.ok("/security/roles", &admin).await;
    let mut table = String::from("# action on resource | roles that may\n");
    for (action, about) in actions["data"].as_object().unwrap() {
        for kind in about["resources"].as_array().unwrap() {
            let kind = kind.as_str().unwrap();
            let may = |role: &&Value| {
                let id = u32::try_from(role["id"].as_u64().unwrap()).unwrap();
                world
                    .registry
                    .grants(&Reader::server(), &[id])
                    .unwrap()
                    .permit(action, &[(kind, "*")])
            };
            let roles = roles["data"]["affected_items"].as_array().unwrap();
            let names: Vec<&str> =
                roles.iter().filter(may).map(|role| role["name"].as_str().unwrap()).collect();
            assert!(names.contains(&"administrator"), "{action} on {kind} is nobody's");
            writeln!(table, "{action} {kind} | {}", names.join(" ")).unwrap();
        }
    }
    golden("../../../openapi/rbac.txt", &table);
}

#[tokio::test]
async fn every_policy_action_is_required_by_an_operation() {
    let world = world();
    let admin = world.admin().await;
    let asked = world.ok("/security/actions", &admin).await;
    let policies = world.ok("/security/policies", &admin).await;
    for item in policies["data"]["affected_items"].as_array().unwrap() {
        for action in item["policy"]["actions"].as_array().unwrap() {
            let asked = asked["data"].get(action.as_str().unwrap());
            assert!(asked.is_some(), "{action} of {} opens nothing", item["name"]);
        }
    }
}

/// The permissions of one policy: actions on resources.
type Allowed = (&'static [&'static str], &'static [&'static str]);

/// A request, its first required permission, and its further ones.
const FURTHER: &[(&str, &str, Allowed, Allowed)] = &[
    ("PUT", "/agents/001/group/web", MODIFY, ASSIGN),
    ("DELETE", "/agents/001/group/web", MODIFY, ASSIGN),
    ("DELETE", "/agents/001/group?groups_list=web", MODIFY, ASSIGN),
    ("PUT", "/agents/group?group_id=web&agents_list=002", MODIFY, ASSIGN),
    ("DELETE", "/agents/group?group_id=web&agents_list=001", MODIFY, ASSIGN),
    ("PUT", "/agents/group/web/restart", RESTART, GROUP),
    ("GET", "/groups/web/agents", (&["agent:read"], &["agent:id:*"]), GROUP),
    ("PUT", "/agents/node/node01/restart", RESTART, (&["cluster:read"], &["node:id:node01"])),
    ("DELETE", "/commands/1", CANCEL, RESTART),
    ("DELETE", "/commands/2", CANCEL, (&["syscheck:run"], &["agent:id:*"])),
    ("DELETE", "/commands/3", CANCEL, (&["agent:reconnect"], &["agent:id:*"])),
    ("GET", "/commands/1", (&["command:read"], &["*:*:*"]), (&["agent:read"], &["agent:id:*"])),
    (
        "PUT",
        "/rules/files/new.yml?overwrite=true",
        (&["rules:update"], &["*:*:*"]),
        (&["rules:delete"], &["rule:file:new.yml"]),
    ),
    (
        "POST",
        "/security/users/100/roles?role_ids=2",
        (&["security:update"], &["user:id:100"]),
        (&["security:update"], &["role:id:2"]),
    ),
    (
        "DELETE",
        "/security/users/100/roles?role_ids=2",
        (&["security:delete"], &["user:id:100"]),
        (&["security:delete"], &["role:id:2"]),
    ),
    (
        "POST",
        "/security/roles/100/policies?policy_ids=1",
        (&["security:update"], &["role:id:100"]),
        (&["security:update"], &["policy:id:1"]),
    ),
    (
        "POST",
        "/security/roles/100/rules?rule_ids=1",
        (&["security:update"], &["role:id:100"]),
        (&["security:update"], &["rule:id:1"]),
    ),
];

const MODIFY: Allowed = (&["agent:modify_group"], &["agent:id:*"]);
const ASSIGN: Allowed = (&["group:modify_assignments"], &["group:id:web"]);
const GROUP: Allowed = (&["group:read"], &["group:id:web"]);
const RESTART: Allowed = (&["agent:restart"], &["agent:id:*"]);
const CANCEL: Allowed = (&["command:cancel"], &["*:*:*"]);

/// Returns a token of a user with these permissions.
async fn who_may(world: &World, name: &str, allowed: &[Allowed]) -> String {
    let policies: Vec<u32> = allowed
        .iter()
        .enumerate()
        .map(|(at, (actions, resources))| {
            let texts = |list: &[&str]| list.iter().map(|text| (*text).to_owned()).collect();
            let policy = Policy {
                id: 0,
                name: format!("{name}-{at}"),
                actions: texts(actions),
                resources: texts(resources),
                allow: true,
            };
            // Two policies with the same body cannot exist.
            let kept = world
                .registry
                .security(&Reader::server())
                .unwrap()
                .policies
                .into_iter()
                .map(|row| row.policy);
            let same = |other: &Policy| {
                (&other.actions, &other.resources) == (&policy.actions, &policy.resources)
            };
            if let Some(known) = kept.into_iter().find(same) {
                return known.id;
            }
            world
                .registry
                .change_security(&WriteContext::server(), SecurityChange::CreatePolicy(policy))
                .unwrap()
        })
        .collect();
    let role = SecurityChange::CreateRole { name: name.into() };
    let owner = world.registry.change_security(&WriteContext::server(), role).unwrap();
    for member in policies {
        let (kind, position) = (LinkKind::RolePolicy, None);
        let link = SecurityChange::Link { kind, owner, member, position };
        world.registry.change_security(&WriteContext::server(), link).unwrap();
    }
    world
        .registry
        .create_user(&WriteContext::server(), name, "Further-Asked-1", false, &[name])
        .unwrap();
    world.login(name, "Further-Asked-1").await
}

#[tokio::test]
async fn further_permissions_of_an_operation_are_required() {
    for (method, path, first, further) in FURTHER {
        let world = world();
        let agents = [model::AgentId(1)];
        for kind in [CommandKind::Restart, CommandKind::Rescan, CommandKind::Reconnect] {
            world.registry.create_command(&WriteContext::server(), kind, &agents, "admin").unwrap();
        }
        // Role 100, of user 100, is created so that it can be changed.
        let role = SecurityChange::CreateRole { name: "some".into() };
        world.registry.change_security(&WriteContext::server(), role).unwrap();
        let (less, enough) = (
            who_may(&world, "less", &[*first]).await,
            who_may(&world, "enough", &[*first, *further]).await,
        );
        for (token, may) in [(less, false), (enough, true)] {
            let bearer = format!("Bearer {token}");
            let kind = ("content-type", "application/octet-stream");
            let headers = [("authorization", bearer.as_str()), kind];
            let answer = world.send(method, path, &headers, RULE).await;
            let (status, body) = (answer.status, answer.json());
            let code = &body["data"]["failed_items"][0]["error"]["code"];
            let denied = status == StatusCode::FORBIDDEN || *code == 4000;
            assert_eq!(denied, !may, "{method} {path}: {body}");
            assert!(!may || status == StatusCode::OK, "{method} {path}: {body}");
        }
    }
}

/// A user who may add agents can neither replace an agent that they may not remove nor assign
/// groups.
#[tokio::test]
async fn agent_create_permits_neither_replacing_nor_group_joins() {
    let world = world();
    let create: Allowed = (&["agent:create", "enrolment:create"], &["*:*:*"]);
    let delete: Allowed = (&["agent:delete"], &["agent:id:002"]);
    let less = who_may(&world, "less", &[create]).await;
    let enough = who_may(&world, "enough", &[create, delete, ASSIGN]).await;
    let force = |id: &str| {
        format!(
            r#"{{"name":"x-{id}","ip":"any","id":"{id}","force":{{"enabled":true,
            "disconnected_time":{{"enabled":false}},"after_registration_time":"0"}}}}"#
        )
    };
    let token = r#"{"groups":["web"]}"#;
    for (who, path, body, may) in [
        (&less, "/agents/insert", force("002"), false),
        (&enough, "/agents/insert", force("001"), false),
        (&enough, "/agents/insert", force("002"), true),
        (&less, "/enrolment/tokens", token.to_owned(), false),
        (&enough, "/enrolment/tokens", token.to_owned(), true),
    ] {
        let (status, answer, rows) = try_write(&world, ("POST", path, &body), who).await;
        let wanted = if may { StatusCode::OK } else { StatusCode::FORBIDDEN };
        assert_eq!(status, wanted, "{path} {body}: {answer}");
        let [row] = &rows[..] else { panic!("{path}: {rows:?}") };
        let removes = may && path == "/agents/insert";
        assert_eq!(row.detail.ends_with("(removes 002)"), removes, "{}", row.detail);
    }
    let name = |id| world.registry.agent(model::AgentId(id)).unwrap().name;
    assert_eq!((name(1), name(2)), ("web-1".to_owned(), "x-002".to_owned()));
}

const RULE: &str = "title: new
id: 1c6ddc5f-33ef-4b69-8e41-906ce0c34f00
logsource:
  product: linux
detection:
  one:
    file.path: /a
  condition: one
";

/// A request of each operation that changes something, in an order in which all succeed.
const WRITES: &[(&str, &str, &str)] = &[
    ("POST", "/security/users", r#"{"username":"worker","password":"Working-Hard-1"}"#),
    ("POST", "/security/roles", r#"{"name":"work"}"#),
    (
        "POST",
        "/security/policies",
        r#"{"name":"some","policy":{"actions":["agent:read"],"resources":["agent:id:*"],"effect":"allow"}}"#,
    ),
    ("POST", "/security/rules", r#"{"name":"rule","rule":{"FIND":{"a":"b"}}}"#),
    ("PUT", "/security/users/101", r#"{"password":"Working-More-2"}"#),
    ("PUT", "/security/users/101/run_as?allow_run_as=true", ""),
    ("PUT", "/security/roles/100", r#"{"name":"other"}"#),
    ("PUT", "/security/policies/100", r#"{"name":"other"}"#),
    ("PUT", "/security/rules/100", r#"{"name":"other"}"#),
    ("POST", "/security/users/101/roles?role_ids=100", ""),
    ("POST", "/security/roles/100/policies?policy_ids=100", ""),
    ("POST", "/security/roles/100/rules?rule_ids=100", ""),
    ("DELETE", "/security/users/101/roles?role_ids=100", ""),
    ("DELETE", "/security/roles/100/policies?policy_ids=100", ""),
    ("DELETE", "/security/roles/100/rules?rule_ids=100", ""),
    ("DELETE", "/security/users?user_ids=101", ""),
    ("DELETE", "/security/roles?role_ids=100", ""),
    ("DELETE", "/security/policies?policy_ids=100", ""),
    ("DELETE", "/security/rules?rule_ids=100", ""),
    ("POST", "/enrolment/tokens", "{}"),
    ("DELETE", "/enrolment/tokens?tokens_list=all", ""),
    ("POST", "/agents", r#"{"name":"new-2","ip":"any"}"#),
    (
        "POST",
        "/agents/insert",
        r#"{"name":"new-3","ip":"any","key":"0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"}"#,
    ),
    ("POST", "/agents/insert/quick?agent_name=new-4", ""),
    ("PUT", "/agents/restart", ""),
    ("PUT", "/agents/001/restart", ""),
    ("PUT", "/agents/group/web/restart", ""),
    ("PUT", "/agents/node/node01/restart", ""),
    ("PUT", "/agents/reconnect", ""),
    ("PUT", "/agents/reload", ""),
    ("PUT", "/syscheck", ""),
    ("DELETE", "/syscheck/001", ""),
    ("POST", "/groups", r#"{"group_id":"db"}"#),
    ("PUT", "/groups/db/configuration", "<agent_config/>"),
    ("PUT", "/agents/002/group/db", ""),
    ("DELETE", "/agents/002/group/db", ""),
    ("PUT", "/agents/group?group_id=db&agents_list=002,003", ""),
    ("DELETE", "/agents/group?group_id=db&agents_list=002", ""),
    ("DELETE", "/agents/003/group", ""),
    ("DELETE", "/groups?groups_list=db", ""),
    ("DELETE", "/commands/1", ""),
    ("PUT", "/rules/files/new.yml", RULE),
    ("DELETE", "/rules/files/new.yml", ""),
    ("POST", "/series/delete", r#"{"metric":"cpu_user"}"#),
    ("PUT", "/manager/configuration", "# all as it is"),
    ("PUT", "/cluster/node01/configuration", "# all as it is"),
    ("PUT", "/clock/accept", ""),
    ("DELETE", "/agents?agents_list=003&status=all&older_than=0s", ""),
    (
        "PUT",
        "/security/users/me/password",
        r#"{"current_password":"Correct-Horse-9","password":"Correct-Horse-9"}"#,
    ),
    ("DELETE", "/security/user/authenticate", ""),
    ("DELETE", "/security/config", ""),
    ("PUT", "/security/config", r#"{"rbac_mode":"white"}"#),
    ("PUT", "/security/user/revoke", ""),
];

/// Parts of the paths of operations that may leave everything unchanged.
const SAME: &[&str] = &["/restart", "/reload", "/reconnect", "/user/authenticate"];

/// The operation that no user may call.
const LOCAL: &str = "/v1/agents/sync";

/// Operations that only read despite a method for writing, or that change nothing other users see.
const READS: &[&str] = &[
    "/security/user/renew",
    "/series/write",
    "/v1/agents/summary",
    "/v1/agents/restartinfo",
    "/series/query",
    "/series/search",
    "/series/suggest",
];

/// Returns true if a path with values matches a path of the description.
fn fits(described: &str, path: &str) -> bool {
    let path = path.split('?').next().unwrap_or_default();
    let (described, path): (Vec<&str>, Vec<&str>) =
        (described.split('/').collect(), path.split('/').collect());
    described.len() == path.len()
        && described.iter().zip(&path).all(|(d, p)| d.starts_with('{') || d == p)
}

/// Sends a request of the table; returns the answer's status, its `error`, and its audit log rows.
async fn try_write(
    world: &World,
    (method, path, body): (&str, &str, &str),
    token: &str,
) -> (StatusCode, Value, Vec<AuditEntry>) {
    let newest = world.registry.audit_log(&Reader::server(), None, 1).unwrap()[0].id;
    let bearer = format!("Bearer {token}");
    let kind = match body.get(..1) {
        Some("<") => "application/xml",
        Some("t" | "#") => "application/octet-stream",
        Some("c") => "text/plain",
        _ => "application/json",
    };
    let headers = [("authorization", bearer.as_str()), ("content-type", kind)];
    let answer = world.send(method, path, &headers, body.to_owned()).await;
    let mut log = world.registry.audit_log(&Reader::server(), None, 100).unwrap();
    log.retain(|row| row.id > newest);
    (answer.status, serde_json::from_slice(&answer.body).unwrap_or_default(), log)
}

#[tokio::test]
async fn every_changing_operation_writes_one_audit_row() {
    let world = world_with_file();
    for write in WRITES {
        let (method, path, _) = write;
        let token = world.admin().await;
        let (status, body, rows) = try_write(&world, *write, &token).await;
        assert_eq!(status, StatusCode::OK, "{method} {path}: {body}");
        // The 4.x operation clears old agents only, and there are none.
        let nothing = *path == "/syscheck/001";
        assert!(body["error"] != 1 || nothing, "{method} {path}: {body}");
        let [row] = &rows[..] else { panic!("{method} {path}: {rows:?}") };
        // The command is already pending, or the request is the user's own logout.
        let same = row.outcome == AuditOutcome::Unchanged && SAME.iter().any(|s| path.contains(s));
        let outcome = match (nothing, same) {
            (true, _) => AuditOutcome::Refused,
            (_, true) => AuditOutcome::Unchanged,
            _ => AuditOutcome::Done,
        };
        assert_eq!((row.user.as_str(), row.outcome), ("admin", outcome), "{method} {path}");
        let path = path.split('?').next().unwrap();
        assert!(row.detail.starts_with(&format!("{method} {path}")), "{}", row.detail);
        assert!(!row.detail.contains("Working-") && !row.detail.contains("Correct-"), "{row:?}");
    }
    for (method, path, security) in described() {
        let login = path == "/security/user/authenticate" && method != "DELETE";
        let reads = method == "GET" || login || security.iter().any(|name| name == "basic");
        let tried = WRITES.iter().any(|(m, p, _)| *m == method && fits(&path, p));
        let exempt = reads || READS.contains(&path.as_str()) || path == LOCAL;
        assert!(tried || exempt, "{method} {path} has no request in the table");
    }
    let source = Some(Source::Unix { uid: 0 });
    let log = world.send_from(source, "GET", "/audit?limit=2", &[], "").await.json();
    let told = r#"{"syncreq_keepalive":[1]}"#;
    let kind = [("content-type", "application/json")];
    assert_eq!(world.send_from(source, "POST", LOCAL, &kind, told).await.status, StatusCode::OK);
    let newest = world.registry.audit_log(&Reader::server(), None, 1).unwrap().remove(0);
    assert_eq!((newest.user.as_str(), newest.outcome), ("uid:0", AuditOutcome::Done));
    assert!(newest.detail.starts_with(&format!("POST {LOCAL}")), "{newest:?}");
    let items = log["data"]["affected_items"].as_array().unwrap();
    assert_eq!(items[0]["action"], "security:revoke");
    let before = items[1]["id"].to_string();
    let path = format!("/audit?limit=1&before={before}");
    let older = world.send_from(source, "GET", &path, &[], "").await.json();
    assert!(older["data"]["affected_items"][0]["id"].as_u64() < items[1]["id"].as_u64());
}

/// Creates a server that was started with a configuration file.
fn world_with_file() -> World {
    world_with(|options| {
        options.requests_per_minute_max = 0;
        options.config = Some(std::sync::Arc::new(common::TestFile::default()));
    })
}

#[tokio::test]
async fn refused_operation_writes_one_audit_row() {
    let world = world_with_file();
    for write in WRITES {
        let (method, path, body) = write;
        // Every user may change their own account.
        if path.starts_with("/security/user/") || path.starts_with("/security/users/me") {
            continue;
        }
        let (reader, admin) = (world.reader().await, world.admin().await);
        let wrong = format!("{path}{}nonsense=1", if path.contains('?') { "&" } else { "?" });
        for (token, user, path) in [(&reader, "reader", *path), (&admin, "admin", wrong.as_str())] {
            let (status, _, rows) = try_write(&world, (method, path, body), token).await;
            let [row] = &rows[..] else { panic!("{method} {path}: {rows:?}") };
            // A list that names no agents is reduced to those that the caller may restart.
            let narrows = status == StatusCode::OK && row.outcome == AuditOutcome::Unchanged;
            let failed = path == "/agents/group/web/restart" && status == StatusCode::OK;
            assert!(status.is_client_error() || narrows || failed, "{method} {path}: {status}");
            let outcome = if narrows { AuditOutcome::Unchanged } else { AuditOutcome::Refused };
            assert_eq!((row.user.as_str(), row.outcome), (user, outcome), "{method} {path}");
        }
    }
}

#[tokio::test]
async fn operation_that_fails_midway_writes_one_row_saying_so() {
    let world = world();
    let admin = world.admin().await;
    for name in ["a", "b", "c"] {
        world.registry.create_group(&WriteContext::server(), name).unwrap();
    }
    let spoil = "CREATE TRIGGER spoilt BEFORE DELETE ON agent_group WHEN OLD.name = 'b' BEGIN
         SELECT RAISE(ABORT, 'spoilt'); END";
    let db = rusqlite::Connection::open(world.folder.path().join("registry.db")).unwrap();
    db.execute_batch(spoil).unwrap();
    let twice = ("DELETE", "/groups?groups_list=a,a,gone", "");
    let (status, answer, rows) = try_write(&world, twice, &admin).await;
    assert_eq!((status, &answer["data"]["affected_items"]), (StatusCode::OK, &json!(["a"])));
    assert_eq!(rows.iter().map(|row| row.outcome).collect::<Vec<_>>(), [AuditOutcome::Partly]);
    world.registry.create_group(&WriteContext::server(), "a").unwrap();
    let write = ("DELETE", "/groups?groups_list=a,b,c", "");
    let (status, _, rows) = try_write(&world, write, &admin).await;
    assert_eq!(status, StatusCode::INTERNAL_SERVER_ERROR);
    let names: Vec<String> = world
        .registry
        .groups(&Reader::server())
        .unwrap()
        .into_iter()
        .map(|group| group.name)
        .collect();
    assert_eq!(names, ["b", "c", "default", "web"], "what was done before stays");
    assert_eq!(rows.iter().map(|row| row.outcome).collect::<Vec<_>>(), [AuditOutcome::Failed]);
}
