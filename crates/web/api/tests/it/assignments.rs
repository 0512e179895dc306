//! Adding agents to groups and taking them out: rights on the groups that an agent leaves, and the
//! shapes of the answers.

use crate::common::{World, world};
use axum::http::StatusCode;
use model::AgentId;
use registry::WriteContext;
use serde_json::{Value, json};

async fn send(world: &World, method: &str, path: &str, token: &str) -> (StatusCode, Value) {
    let headers = [("authorization", &*format!("Bearer {token}"))];
    let answer = world.send(method, path, &headers, "").await;
    (answer.status, answer.json())
}

/// Returns the affected items, and the code and ids of each failed item.
fn outcome(answer: &Value) -> Value {
    let failed = answer["data"]["failed_items"].as_array().unwrap();
    let failed: Vec<Value> =
        failed.iter().map(|item| json!([item["error"]["code"], item["id"]])).collect();
    json!([answer["data"]["affected_items"], failed])
}

fn groups(world: &World, agent: u32) -> Vec<String> {
    world.registry.agent(AgentId(agent)).unwrap().groups
}

#[tokio::test]
async fn only_group_needs_rights_on_the_groups_left() {
    let world = world();
    world.registry.create_group(&WriteContext::server(), "edge").unwrap();
    let policies: [(&[&str], &str, &str); 2] = [
        (&["agent:modify_group"], "agent:id:*", "allow"),
        (&["group:read", "group:modify_assignments"], "group:id:edge", "allow"),
    ];
    let token = world.user_with(&policies, "100,101").await;
    for path in ["/agents/001/group/edge?", "/agents/group?group_id=edge&agents_list=001&"] {
        let path = format!("{path}force_single_group=true");
        let (status, answer) = send(&world, "PUT", &path, &token).await;
        assert_eq!(status, StatusCode::OK, "{path}: {answer}");
        assert_eq!(outcome(&answer), json!([[], [[1752, ["001"]]]]), "{path}");
        assert_eq!(groups(&world, 1), ["default", "web"], "{path}");
    }
    let admin = world.admin().await;
    let path = "/agents/001/group/edge?force_single_group=true";
    let (_, answer) = send(&world, "PUT", path, &admin).await;
    assert_eq!(outcome(&answer), json!([["001"], []]));
    assert_eq!(groups(&world, 1), ["edge"]);
    let told = "All selected agents were assigned to edge and removed from the other groups";
    assert_eq!(answer["message"], told);
}

#[tokio::test]
async fn members_fail_only_where_they_are_named() {
    let world = world();
    let token = world.admin().await;
    let (_, one) = send(&world, "PUT", "/agents/001/group/web", &token).await;
    assert_eq!(outcome(&one), json!([[], [[1751, ["001"]]]]));
    assert_eq!(
        (&one["error"], &one["message"]),
        (&json!(1), &json!("No agents were assigned to web"))
    );
    let path = "/agents/group?group_id=web&agents_list=001,002";
    let (_, named) = send(&world, "PUT", path, &token).await;
    assert_eq!(outcome(&named), json!([["002"], [[1751, ["001"]]]]));
    let (_, all) = send(&world, "PUT", "/agents/group?group_id=web", &token).await;
    assert_eq!(outcome(&all), json!([["003"], []]));
    assert_eq!(all["message"], "All selected agents were assigned to web");
}

#[tokio::test]
async fn agent_that_cannot_join_is_a_failed_item() {
    let world = world();
    let token = world.admin().await;
    for (agent, code) in [("000", 1703), ("099", 1701)] {
        let (status, answer) =
            send(&world, "PUT", &format!("/agents/{agent}/group/web"), &token).await;
        assert_eq!(status, StatusCode::OK, "{answer}");
        assert_eq!(outcome(&answer), json!([[], [[code, [agent]]]]));
    }
    let (status, answer) = send(&world, "PUT", "/agents/001/group/none", &token).await;
    assert_eq!((status, &answer["error"]), (StatusCode::NOT_FOUND, &json!(1710)));
}

#[tokio::test]
async fn agent_leaves_all_its_groups() {
    let world = world();
    let token = world.admin().await;
    let (status, missing) = send(&world, "DELETE", "/agents/099/group", &token).await;
    assert_eq!((status, &missing["error"]), (StatusCode::NOT_FOUND, &json!(1701)));
    let (status, server) = send(&world, "DELETE", "/agents/000/group", &token).await;
    assert_eq!((status, &server["error"]), (StatusCode::BAD_REQUEST, &json!(1703)));
    // The agent is in `default` first and in `web`: it stays in `default`, and nothing failed.
    let (_, all) = send(&world, "DELETE", "/agents/001/group", &token).await;
    assert_eq!(outcome(&all), json!([["web"], []]));
    assert_eq!(groups(&world, 1), ["default"]);
    let path = "/agents/001/group?groups_list=default,web";
    let (_, named) = send(&world, "DELETE", path, &token).await;
    assert_eq!(outcome(&named), json!([[], [[1734, ["web"]], [1745, ["default"]]]]));
}

#[tokio::test]
async fn answer_names_only_the_groups_that_were_left() {
    let world = world();
    let context = WriteContext::server();
    for name in ["edge", "other", "kept"] {
        world.registry.create_group(&context, name).unwrap();
    }
    let policies: [(&[&str], &str, &str); 3] = [
        (&["agent:modify_group"], "agent:id:*", "allow"),
        (&["group:modify_assignments"], "group:id:*", "allow"),
        (&["group:modify_assignments"], "group:id:kept", "deny"),
    ];
    let token = world.user_with(&policies, "100,101,102").await;
    let admin = world.admin().await;
    for group in ["edge", "kept"] {
        send(&world, "PUT", &format!("/agents/001/group/{group}"), &admin).await;
    }
    let path = "/agents/001/group?groups_list=edge,other,kept,gone";
    let (_, some) = send(&world, "DELETE", path, &token).await;
    let failed = json!([[1710, ["gone"]], [1734, ["other"]], [4000, ["kept"]]]);
    assert_eq!(outcome(&some), json!([["edge"], failed]));
    assert_eq!(some["message"], "Specified agent could not be removed from some groups");
    assert_eq!(groups(&world, 1), ["default", "web", "kept"]);
    let path = "/agents/001/group?groups_list=edge,kept";
    let (_, none) = send(&world, "DELETE", path, &token).await;
    assert_eq!(outcome(&none), json!([[], [[1734, ["edge"]], [4000, ["kept"]]]]));
    assert_eq!(none["message"], "Specified agent was not removed from any group");
    let (_, all) = send(&world, "DELETE", "/agents/001/group", &admin).await;
    assert_eq!(outcome(&all), json!([["kept", "web"], []]));
    assert_eq!(all["message"], "Specified agent was removed from returned groups");
}

#[tokio::test]
async fn denied_groups_are_refused_or_passed_over() {
    let world = world();
    for name in ["edge", "kept"] {
        world.registry.create_group(&WriteContext::server(), name).unwrap();
    }
    let policies: [(&[&str], &str, &str); 3] = [
        (&["agent:modify_group"], "agent:id:*", "allow"),
        (&["group:modify_assignments"], "group:id:*", "allow"),
        (&["group:modify_assignments"], "group:id:kept", "deny"),
    ];
    let token = world.user_with(&policies, "100,101,102").await;
    let admin = world.admin().await;
    for group in ["kept", "edge"] {
        send(&world, "PUT", &format!("/agents/001/group/{group}"), &admin).await;
    }
    let path = "/agents/001/group?groups_list=kept";
    let (status, named) = send(&world, "DELETE", path, &token).await;
    assert_eq!((status, &named["error"]), (StatusCode::FORBIDDEN, &json!(4000)), "{named}");
    // The agent stays in `kept`, so it can leave `default` too.
    let (_, all) = send(&world, "DELETE", "/agents/001/group", &token).await;
    assert_eq!(outcome(&all), json!([["default", "edge", "web"], []]));
    assert_eq!(groups(&world, 1), ["kept"]);
}

#[tokio::test]
async fn agent_is_reassigned_only_if_it_was_not_in_default() {
    let world = world();
    let token = world.admin().await;
    let (_, left) = send(&world, "DELETE", "/agents/001/group/web", &token).await;
    assert_eq!(left["message"], "Agent '001' removed from 'web'.");
    send(&world, "PUT", "/agents/001/group/web?force_single_group=true", &token).await;
    let (_, left) = send(&world, "DELETE", "/agents/001/group/web", &token).await;
    let message = "Agent '001' removed from 'web'. Agent reassigned to group default.";
    assert_eq!(left["message"], message);
}

#[tokio::test]
async fn answer_names_only_the_groups_that_were_deleted() {
    let world = world();
    let context = WriteContext::server();
    for name in ["edge", "kept"] {
        world.registry.create_group(&context, name).unwrap();
    }
    let policies: [(&[&str], &str, &str); 2] =
        [(&["group:delete"], "group:id:*", "allow"), (&["group:delete"], "group:id:kept", "deny")];
    let token = world.user_with(&policies, "100,101").await;
    let path = "/groups?groups_list=edge,kept,gone,default";
    let (_, some) = send(&world, "DELETE", path, &token).await;
    let failed = json!([[1710, ["gone"]], [1712, ["default"]], [4000, ["kept"]]]);
    assert_eq!(outcome(&some), json!([["edge"], failed]));
    assert_eq!(some["message"], "Some groups were not deleted");
}
