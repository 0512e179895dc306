//! The table of what each role may do, and that every operation which changes something leaves a
//! row in the audit log.

#![allow(clippy::indexing_slicing, clippy::excessive_nesting, reason = "helpers of tests")]

mod common;

use std::fmt::Write as _;

use api::Source;
use axum::http::StatusCode;
use common::{World, described, golden, world_with};
use serde_json::Value;

fn world() -> World {
    world_with(|options| options.requests_per_minute_max = 0)
}

#[tokio::test]
async fn every_role_may_do_what_the_table_says() {
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
                world.registry.grants(&[id]).unwrap().permit(action, &[(kind, "*")])
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

const RULE: &str = "title: new
id: 1c6ddc5f-33ef-4b69-8e41-906ce0c34f00
logsource:
  product: linux
detection:
  one:
    file.path: /a
  condition: one
";

/// A request of each operation that changes something, in an order in which each succeeds.
const WRITES: &[(&str, &str, &str)] = &[
    ("POST", "/security/users", r#"{"username":"worker","password":"Working-Hard-1"}"#),
    ("POST", "/security/roles", r#"{"name":"work"}"#),
    (
        "POST",
        "/security/policies",
        r#"{"name":"some","policy":{"actions":["a:b"],"resources":["agent:id:*"],"effect":"allow"}}"#,
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
    ("POST", "/security/user/renew", ""),
    ("POST", "/enrolment/tokens", "{}"),
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
    ("POST", "/series/write?precision=s", "cpu,host=a user=1 1700000000"),
    ("POST", "/series/delete", r#"{"metric":"cpu_user"}"#),
    ("DELETE", "/agents?agents_list=003&status=all&older_than=0s", ""),
    (
        "PUT",
        "/security/users/me/password",
        r#"{"current_password":"Correct-Horse-9","password":"Correct-Horse-9"}"#,
    ),
    ("DELETE", "/security/config", ""),
    ("PUT", "/security/config", r#"{"rbac_mode":"white"}"#),
    ("PUT", "/security/user/revoke", ""),
    ("DELETE", "/security/user/authenticate", ""),
];

/// Operations that read although their method is one of those that write.
const READS: &[&str] = &[
    "/v1/agents/summary",
    "/v1/agents/restartinfo",
    "/series/query",
    "/series/search",
    "/series/suggest",
];

/// Whether a path with values is one of a description's path with names.
fn fits(described: &str, path: &str) -> bool {
    let path = path.split('?').next().unwrap_or_default();
    let (described, path): (Vec<&str>, Vec<&str>) =
        (described.split('/').collect(), path.split('/').collect());
    described.len() == path.len()
        && described.iter().zip(&path).all(|(d, p)| d.starts_with('{') || d == p)
}

#[tokio::test]
async fn every_operation_that_changes_something_leaves_a_row_in_the_audit_log() {
    let world = world();
    for (method, path, body) in WRITES {
        let token = world.admin().await;
        let newest = || world.registry.audit_log(None, 1).unwrap()[0].clone();
        let before = newest().id;
        let bearer = format!("Bearer {token}");
        let kind = match body.get(..1) {
            Some("<") => "application/xml",
            Some("t") => "application/octet-stream",
            Some("c") => "text/plain",
            _ => "application/json",
        };
        let headers = [("authorization", bearer.as_str()), ("content-type", kind)];
        let answer = world.send(method, path, &headers, *body).await;
        let text = String::from_utf8_lossy(&answer.body).into_owned();
        assert_eq!(answer.status, StatusCode::OK, "{method} {path}: {text}");
        // What the 4.x operation clears there is of old agents only.
        let nothing = *path == "/syscheck/001";
        assert!(answer.json()["error"] != 1 || nothing, "{method} {path}: {text}");
        let row = newest();
        assert_eq!((row.id > before, row.user.as_str()), (true, "admin"), "{method} {path}");
        let path = path.split('?').next().unwrap();
        assert!(row.detail.starts_with(&format!("{method} {path}")), "{}", row.detail);
        assert!(!row.detail.contains("Working-") && !row.detail.contains("Correct-"), "{row:?}");
    }
    for (method, path, security) in described() {
        let reads = method == "GET" || security.iter().any(|name| name == "basic");
        let tried = WRITES.iter().any(|(m, p, _)| *m == method && fits(&path, p));
        let exempt = reads || READS.contains(&path.as_str());
        assert!(tried || exempt, "{method} {path} has no request in the table");
    }
    let source = Some(Source::Unix { uid: 0 });
    let log = world.send_from(source, "GET", "/audit?limit=2", &[], "").await.json();
    let items = log["data"]["affected_items"].as_array().unwrap();
    assert_eq!(items[0]["action"], "security.logout");
    let before = items[1]["id"].to_string();
    let path = format!("/audit?limit=1&before={before}");
    let older = world.send_from(source, "GET", &path, &[], "").await.json();
    assert!(older["data"]["affected_items"][0]["id"].as_u64() < items[1]["id"].as_u64());
}
