//! Answers to a user whose role permits nothing: empty lists in operations of the 4.x API that name no
//! items, and refusals where items are named and in our own operations.

use crate::common::world;
use axum::http::StatusCode;
use registry::{Reader, WriteContext};
use serde_json::json;

const PASSWORD: &str = "No-Rights-1";

/// Requests that name no items.
const EMPTY: &[(&str, &str)] = &[
    ("GET", "/agents"),
    ("GET", "/agents/no_group"),
    ("GET", "/agents/summary/os"),
    ("GET", "/agents/stats/distinct?fields=os.name"),
    ("GET", "/groups"),
    ("GET", "/cluster/nodes"),
    ("GET", "/cluster/healthcheck"),
    ("GET", "/cluster/api/config"),
    ("GET", "/cluster/configuration/validation"),
    ("GET", "/rules/files"),
    ("GET", "/security/users"),
    ("GET", "/security/roles"),
    ("GET", "/security/policies"),
    ("GET", "/security/rules"),
    ("PUT", "/agents/restart"),
    ("PUT", "/agents/reconnect"),
    ("PUT", "/syscheck"),
    ("DELETE", "/agents?agents_list=all&status=all&older_than=0s"),
    ("DELETE", "/groups?groups_list=all"),
    ("DELETE", "/security/users?user_ids=all"),
];

/// Requests that name items, and operations that the 4.x API does not have.
const REFUSED: &[(&str, &str)] = &[
    ("GET", "/agents?agents_list=001"),
    ("GET", "/groups?groups_list=web"),
    ("GET", "/groups/web/agents"),
    ("GET", "/cluster/nodes?nodes_list=node01"),
    ("GET", "/cluster/healthcheck?nodes_list=node01,gone"),
    ("GET", "/cluster/api/config?nodes_list=node01"),
    ("GET", "/cluster/node01/info"),
    ("GET", "/cluster/local/info"),
    ("GET", "/rules/files?filename=one.yml,two.yml"),
    ("GET", "/rules/files/one.yml"),
    ("GET", "/security/users?user_ids=1"),
    ("PUT", "/agents/restart?agents_list=001,002"),
    ("DELETE", "/groups?groups_list=web"),
    ("GET", "/changes"),
    ("GET", "/coverage"),
    ("GET", "/coverage/state"),
    ("GET", "/states/fim-files"),
    ("PUT", "/agents/reload"),
];

#[tokio::test]
async fn caller_without_rights_gets_empty_lists_of_the_4x_api() {
    let world = world();
    let context = WriteContext::server();
    world.registry.create_user(&context, "nobody", PASSWORD, false, &[]).unwrap();
    let token = world.login("nobody", PASSWORD).await;
    let bearer = format!("Bearer {token}");
    let headers = [("authorization", bearer.as_str())];
    for (method, path) in EMPTY {
        let answer = world.send(method, path, &headers, "").await;
        assert_eq!(answer.status, StatusCode::OK, "{method} {path}: {}", answer.json());
        let body = answer.json();
        let data = &body["data"];
        let seen = (&body["error"], &data["affected_items"], &data["total_affected_items"]);
        assert_eq!(seen, (&json!(0), &json!([]), &json!(0)), "{method} {path}");
        assert_eq!(data["failed_items"], json!([]), "{method} {path}");
    }
    for (method, path) in REFUSED {
        let answer = world.send(method, path, &headers, "").await;
        let seen = (answer.status, answer.json()["error"].clone());
        assert_eq!(seen, (StatusCode::FORBIDDEN, json!(4000)), "{method} {path}");
    }
    let counts = world.ok("/agents/summary/status", &token).await;
    assert_eq!(counts["data"]["connection"]["total"], 0);
    assert_eq!(world.registry.groups(&Reader::server()).unwrap().len(), 2, "nothing was deleted");
    assert_eq!(
        world.registry.commands(&Reader::server(), 9, &registry::Permitted::All).unwrap(),
        []
    );
}
