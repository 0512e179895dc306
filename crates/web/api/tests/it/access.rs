//! Access to every operation of the description: without a token, as a reader and as an
//! administrator.

use std::fmt::Write as _;

use crate::common::{World, described, golden, world_with};
use axum::body::Body;
use axum::http::StatusCode;
use listener::Source;
use registry::{AuditOutcome, Reader};

/// Fills in the parameters of a path of the description.
fn filled(path: &str) -> String {
    path.replace("{agent_id}", "001")
        .replace("{command_id}", "1")
        .replace("{group_id}", "web")
        .replace("{node_id}", "node01")
        .replace("{user_id}", "100")
        .replace("{role_id}", "100")
        .replace("{policy_id}", "100")
        .replace("{rule_id}", "100")
        .replace("{filename}", "new.yml")
        .replace("{dataset}", "fim-files")
        .replace("{id}", "001-1-1")
        .replace("{kind}", "stats")
}

async fn request_status(
    world: &World,
    method: &str,
    path: &str,
    token: Option<&str>,
) -> StatusCode {
    let bearer = token.map(|t| format!("Bearer {t}"));
    let mut headers = vec![("content-type", "application/json")];
    if let Some(bearer) = &bearer {
        headers.push(("authorization", bearer));
    }
    world.send(method, &filled(path), &headers, Body::from("{}")).await.status
}

/// Operations that every user may call: on their own account, or on the catalogues.
const OWN: &[&str] = &[
    "/security/user/renew",
    "/security/users/me",
    "/security/users/me/policies",
    "/security/users/me/password",
    "/security/actions",
    "/security/resources",
];

/// Paths for reading that require a role of their own.
const KEPT: &[&str] = &["/audit", "/enrolment/tokens", "/manager/api/config"];

/// Queries that are sent with POST because they are too long for a path.
const ASKED: &[&str] = &["/series/query", "/series/search", "/series/suggest"];

/// Operations on lists that are reduced to what the caller may access; nothing is left for the reader.
const NARROWS: &[&str] = &[
    "DELETE /agents",
    "DELETE /agents/group",
    "DELETE /groups",
    "DELETE /security/policies",
    "DELETE /security/roles",
    "DELETE /security/rules",
    "DELETE /security/users",
    "GET /security/policies",
    "GET /security/roles",
    "GET /security/rules",
    "GET /security/users",
    "PUT /agents/group",
    "PUT /agents/group/{group_id}/restart",
    "PUT /agents/node/{node_id}/restart",
    "PUT /agents/reconnect",
    "PUT /agents/restart",
    "PUT /syscheck",
];

/// The operation that only programs on the unix socket may call.
const LOCAL: &str = "/v1/agents/sync";

/// Returns the access decision that the status shows.
fn verdict(status: StatusCode) -> &'static str {
    match status {
        StatusCode::UNAUTHORIZED => "401",
        StatusCode::FORBIDDEN => "403",
        StatusCode::INTERNAL_SERVER_ERROR => "500",
        _ => "may",
    }
}

/// Checks the rule for a row of the table, independently of the golden file.
fn check(method: &str, path: &str, row: &[String], described_as_open: bool) {
    if ["/healthz", "/readyz"].contains(&path) {
        return;
    }
    assert_eq!(&row[1..3], ["401", "401"], "{method} {path} answers without a login");
    assert!(!described_as_open, "{method} {path} is described as open");
    if path.starts_with("/security/user/authenticate") && method != "DELETE" {
        return;
    }
    let may = if path == LOCAL && method == "POST" { "403" } else { "may" };
    assert_eq!(row[4], may, "{method} {path} for the administrator");
    // Every user may change their own account.
    let own = path.starts_with("/security/user/authenticate") || OWN.contains(&path);
    let kept = (path.starts_with("/security/") && !own) || KEPT.contains(&path);
    let asks = path.starts_with("/v1/") && path != "/v1/agents/sync";
    let reads = method == "GET" || asks || ASKED.contains(&path);
    let narrows = NARROWS.contains(&format!("{method} {path}").as_str());
    let allowed = own || (reads && !kept);
    let expected = match (narrows, allowed) {
        (true, _) => "empty",
        (false, true) => "may",
        (false, false) => "403",
    };
    assert_eq!(row[3], expected, "{method} {path} for the role readonly");
}

#[tokio::test]
async fn access_rule_of_every_operation_matches_the_table() {
    let mut table = String::from(
        "# operation | nobody | forged token | readonly | administrator\n\
            # empty: allowed, on the resources that the caller may access, of which there are none\n",
    );
    for (method, path, security) in described() {
        // A separate server, because some operations end the session.
        let world = world_with(|options| options.requests_per_minute_max = 0);
        let (reader, admin) = (world.reader().await, world.admin().await);
        let mut row = vec![format!("{method} {path}")];
        for token in [None, Some("a.b.c"), Some(reader.as_str()), Some(admin.as_str())] {
            row.push(verdict(request_status(&world, &method, &path, token).await).to_owned());
        }
        if NARROWS.contains(&row[0].as_str()) && row[3] == "may" {
            row[3] = "empty".into();
        }
        writeln!(table, "{}", row.join(" | ")).unwrap();
        check(&method, &path, &row, security.is_empty());
    }
    golden("../../../openapi/access.txt", &table);
}

#[tokio::test]
async fn denied_write_names_the_resource_and_changes_nothing() {
    let world = world_with(|_| {});
    let reader = world.reader().await;
    let answer = world.put("/agents/restart?agents_list=001", &reader).await;
    assert_eq!(answer.status, StatusCode::FORBIDDEN);
    let body = answer.json();
    assert_eq!(body["error"], 4000);
    assert_eq!(body["detail"], "Permission denied: Resource type: agent:id, ids: 001");
    assert_eq!(
        world.registry.commands(&Reader::server(), 10, &registry::Permitted::All).unwrap(),
        []
    );
    let log = world.registry.audit_log(&Reader::server(), None, 10).unwrap();
    let said: Vec<_> = log.iter().map(|row| (row.user.as_str(), row.outcome)).collect();
    assert_eq!(said, [("reader", AuditOutcome::Refused), ("system", AuditOutcome::Done)]);
}

#[tokio::test]
async fn metrics_need_no_token_on_loopback_only() {
    let world = world_with(|_| {});
    let local = Some(Source::Tcp("127.0.0.1:9".parse().unwrap()));
    let here = world.send_from(local, "GET", "/metrics", &[], Body::empty()).await;
    assert_eq!(here.status, StatusCode::OK);
    let text = String::from_utf8(here.body).unwrap();
    assert!(text.contains("holdfast_agents{status=\"active\"} 1"), "{text}");
    assert_eq!(request_status(&world, "GET", "/metrics", None).await, StatusCode::UNAUTHORIZED);
    let none = world.send_from(None, "GET", "/metrics", &[], Body::empty()).await;
    assert_eq!(none.status, StatusCode::UNAUTHORIZED, "an unknown source is not this machine");
    let reader = world.reader().await;
    assert_eq!(request_status(&world, "GET", "/metrics", Some(&reader)).await, StatusCode::OK);
}

#[test]
fn generated_openapi_equals_the_committed_one() {
    golden("../../../openapi/openapi.json", &api::openapi_json());
}
