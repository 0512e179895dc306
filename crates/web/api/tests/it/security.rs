//! Users, roles, policies, rules and links, as clients of the 4.x API see them, and the tokens that
//! each change revokes.

use crate::common::{ADMIN, Answered, READER, World, basic, column, world_with};
use axum::http::StatusCode;
use registry::WriteContext;
use serde_json::{Value, json};

fn world() -> World {
    world_with(|options| options.requests_per_minute_max = 0)
}

/// Sends one request, with a JSON body if there is one.
async fn send_json(
    world: &World,
    method: &str,
    path: &str,
    token: &str,
    body: Option<Value>,
) -> Answered {
    let bearer = format!("Bearer {token}");
    let headers = [("authorization", bearer.as_str()), ("content-type", "application/json")];
    world.send(method, path, &headers, body.map_or(String::new(), |b| b.to_string())).await
}

async fn send_ok(
    world: &World,
    method: &str,
    path: &str,
    token: &str,
    body: Option<Value>,
) -> Value {
    let answer = send_json(world, method, path, token, body).await;
    let text = String::from_utf8_lossy(&answer.body).into_owned();
    assert_eq!(answer.status, StatusCode::OK, "{method} {path}: {text}");
    answer.json()
}

/// Returns `error`, and the code of the first failed item.
fn failure(answer: &Value) -> (u64, u64) {
    let code = answer["data"]["failed_items"][0]["error"]["code"].as_u64();
    (answer["error"].as_u64().unwrap(), code.unwrap_or(0))
}

async fn alive(world: &World, token: &str) -> bool {
    world.get("/security/users/me", token).await.status == StatusCode::OK
}

/// Creates a user with one role that has one policy; returns the ids of user, role and policy.
async fn create_user_with_policy(
    world: &World,
    admin: &str,
    policy: Value,
) -> (String, String, String) {
    let id = |answer: &Value| answer["data"]["affected_items"][0]["id"].to_string();
    let body = json!({"username": "worker", "password": "Working-Hard-1"});
    let user = id(&send_ok(world, "POST", "/security/users", admin, Some(body)).await);
    let body = json!({"name": "work"});
    let role = id(&send_ok(world, "POST", "/security/roles", admin, Some(body)).await);
    let body = json!({"name": "some", "policy": policy});
    let policy = id(&send_ok(world, "POST", "/security/policies", admin, Some(body)).await);
    let path = format!("/security/roles/{role}/policies?policy_ids={policy}");
    send_ok(world, "POST", &path, admin, None).await;
    let path = format!("/security/users/{user}/roles?role_ids={role}");
    send_ok(world, "POST", &path, admin, None).await;
    (user, role, policy)
}

fn allow(actions: &[&str], resources: &[&str]) -> Value {
    json!({"actions": actions, "resources": resources, "effect": "allow"})
}

#[tokio::test]
async fn users_are_created_listed_changed_and_deleted() {
    let world = world();
    let admin = world.admin().await;
    let new = json!({"username": "worker", "password": "Working-Hard-1"});
    let made = send_ok(&world, "POST", "/security/users", &admin, Some(new.clone())).await;
    assert_eq!(made["message"], "User was successfully created");
    let item = json!({"id": 101, "username": "worker", "allow_run_as": false, "roles": []});
    assert_eq!(made["data"]["affected_items"], json!([item]));
    let again = send_ok(&world, "POST", "/security/users", &admin, Some(new)).await;
    assert_eq!(failure(&again), (1, 5000));
    for (password, code) in [("short", 5009), ("no-capitals-1", 5007)] {
        let body = json!({"username": "other", "password": password});
        let refused = send_json(&world, "POST", "/security/users", &admin, Some(body)).await;
        assert_eq!(refused.status, StatusCode::BAD_REQUEST);
        assert_eq!(refused.json()["error"], code);
    }
    let extra = json!({"username": "other", "password": "Working-Hard-1", "roles": [1]});
    let refused = send_json(&world, "POST", "/security/users", &admin, Some(extra)).await;
    assert_eq!(refused.status, StatusCode::BAD_REQUEST);

    let list = world.ok("/security/users?sort=-username&limit=2", &admin).await;
    assert_eq!(column(&list, "username"), ["worker", "reader"]);
    assert_eq!(list["data"]["total_affected_items"], 3);
    assert_eq!(list["message"], "All specified users were returned");
    let list = world.ok("/security/users?q=username~min&select=username", &admin).await;
    assert_eq!(list["data"]["affected_items"], json!([{"id": 1, "username": "admin"}]));
    let list = world.ok("/security/users?user_ids=101,77", &admin).await;
    assert_eq!((column(&list, "username"), failure(&list)), (vec!["worker".into()], (2, 5001)));
    let none = world.ok("/security/users?user_ids=77", &admin).await;
    assert_eq!((failure(&none), &none["message"]), ((1, 5001), &json!("No users were returned")));

    let token = world.login("worker", "Working-Hard-1").await;
    let body = json!({"password": "Working-More-2"});
    send_ok(&world, "PUT", "/security/users/101", &admin, Some(body)).await;
    assert!(!alive(&world, &token).await);
    let token = world.login("worker", "Working-More-2").await;
    let gone = send_ok(&world, "DELETE", "/security/users?user_ids=101,1,777", &admin, None).await;
    assert_eq!(gone["error"], 2);
    assert_eq!(gone["message"], "Some users were not deleted");
    assert_eq!(gone["data"]["total_failed_items"], 2);
    let failed = gone["data"]["failed_items"].as_array().unwrap();
    let failed: Vec<_> = failed.iter().map(|f| (&f["error"]["code"], &f["id"])).collect();
    assert_eq!(failed, [(&json!(5001), &json!([777])), (&json!(5004), &json!([1]))]);
    assert!(!alive(&world, &token).await);
    let all = send_ok(&world, "DELETE", "/security/users?user_ids=all", &admin, None).await;
    assert_eq!((all["error"].clone(), column(&all, "username")), (json!(0), vec!["reader".into()]));
}

#[tokio::test]
async fn reserved_objects_cannot_be_changed() {
    let world = world();
    let admin = world.admin().await;
    for (method, path, body, code) in [
        ("DELETE", "/security/users?user_ids=1", None, 5004),
        ("DELETE", "/security/roles?role_ids=1", None, 4008),
        ("DELETE", "/security/policies?policy_ids=3", None, 4008),
        ("DELETE", "/security/rules?rule_ids=1", None, 4008),
        ("PUT", "/security/roles/2", Some(json!({"name": "x"})), 4008),
        ("PUT", "/security/policies/2", Some(json!({"name": "x"})), 4008),
        ("PUT", "/security/rules/2", Some(json!({"name": "x"})), 4008),
        ("PUT", "/security/users/1/run_as?allow_run_as=false", None, 5004),
        ("POST", "/security/users/1/roles?role_ids=2", None, 4008),
        ("DELETE", "/security/users/1/roles?role_ids=all", None, 4008),
        ("DELETE", "/security/roles/1/policies?policy_ids=1", None, 4008),
        ("POST", "/security/roles/1/rules?rule_ids=2", None, 4008),
        ("POST", "/security/roles/777/rules?rule_ids=2", None, 4002),
        ("POST", "/security/users/777/roles?role_ids=2", None, 5001),
        ("PUT", "/security/roles/777", Some(json!({"name": "x"})), 4002),
    ] {
        let answer = send_ok(&world, method, path, &admin, body).await;
        assert_eq!(failure(&answer), (1, code), "{method} {path}: {answer}");
    }
    let roles = world.ok("/security/roles", &admin).await;
    let names = "administrator readonly users_admin agents_readonly agents_admin cluster_readonly \
                 cluster_admin";
    assert_eq!(column(&roles, "name").join(" "), names);
    let rules = world.ok("/security/rules", &admin).await;
    assert_eq!(column(&rules, "name"), ["elastic_admin", "opensearch_admin"]);
}

#[tokio::test]
async fn links_keep_their_position_and_later_policies_override() {
    let world = world();
    let admin = world.admin().await;
    let (_, role, first) =
        create_user_with_policy(&world, &admin, allow(&["agent:read"], &["agent:id:*"])).await;
    let deny = json!({"actions": ["agent:read"], "resources": ["agent:id:002"], "effect": "deny"});
    let body = json!({"name": "not two", "policy": deny});
    let made = send_ok(&world, "POST", "/security/policies", &admin, Some(body)).await;
    let second = made["data"]["affected_items"][0]["id"].to_string();
    let path = format!("/security/roles/{role}/policies?policy_ids={second}");
    let linked = send_ok(&world, "POST", &path, &admin, None).await;
    assert_eq!(linked["message"], format!("All policies were linked to role {role}"));
    let seen = async || {
        let token = world.login("worker", "Working-Hard-1").await;
        column(&world.ok("/agents?select=id", &token).await, "id").join(" ")
    };
    assert_eq!(seen().await, "000 001 003");
    assert_eq!(failure(&send_ok(&world, "POST", &path, &admin, None).await), (1, 4011));
    send_ok(&world, "DELETE", &path, &admin, None).await;
    assert_eq!(failure(&send_ok(&world, "DELETE", &path, &admin, None).await), (1, 4010));
    send_ok(&world, "POST", &format!("{path}&position=0"), &admin, None).await;
    let roles = world.ok(&format!("/security/roles?role_ids={role}"), &admin).await;
    let order = roles["data"]["affected_items"][0]["policies"].to_string();
    assert_eq!(order, format!("[{second},{first}]"));
    assert_eq!(seen().await, "000 001 002 003", "the wildcard comes last now");
}

#[tokio::test]
async fn lists_are_filtered_silently_but_single_agents_are_refused() {
    let world = world();
    let admin = world.admin().await;
    create_user_with_policy(
        &world,
        &admin,
        allow(&["agent:read", "agent:restart"], &["agent:group:web"]),
    )
    .await;
    let token = world.login("worker", "Working-Hard-1").await;
    let list = world.ok("/agents", &token).await;
    assert_eq!((column(&list, "id"), list["error"].clone()), (vec!["001".into()], json!(0)));
    assert_eq!(list["data"]["total_affected_items"], 1, "how many there are is not theirs to know");
    for (query, total) in
        [("status=active", 1), ("status=disconnected", 0), ("status=active&limit=1", 1)]
    {
        let list = world.ok(&format!("/agents?{query}"), &token).await;
        assert_eq!(list["data"]["total_affected_items"], total, "{query}");
    }
    let some = world.ok("/agents?agents_list=001,002", &token).await;
    assert_eq!((column(&some, "id"), failure(&some)), (vec!["001".into()], (2, 4000)));
    let refused = send_json(&world, "PUT", "/agents/002/restart", &token, None).await;
    assert_eq!((refused.status, &refused.json()["error"]), (StatusCode::FORBIDDEN, &json!(4000)));
    send_ok(&world, "PUT", "/agents/001/restart", &token, None).await;
    world
        .registry
        .set_agent_groups(&WriteContext::server(), model::AgentId(1), &["default".into()])
        .unwrap();
    let list = world.ok("/agents", &token).await;
    assert_eq!(column(&list, "id"), Vec::<String>::new(), "it left the group");
    let groups = world.ok("/groups", &token).await;
    assert_eq!(column(&groups, "name"), Vec::<String>::new());
}

#[tokio::test]
async fn security_change_revokes_only_the_affected_tokens() {
    let world = world();
    let admin = world.admin().await;
    let (user, role, policy) =
        create_user_with_policy(&world, &admin, allow(&["agent:read"], &["agent:id:*"])).await;
    for (method, path, body) in [
        ("PUT", format!("/security/users/{user}/run_as?allow_run_as=true"), None),
        ("PUT", format!("/security/roles/{role}"), Some(json!({"name": "other"}))),
        ("PUT", format!("/security/policies/{policy}"), Some(json!({"name": "other"}))),
        ("DELETE", format!("/security/roles/{role}/policies?policy_ids={policy}"), None),
        ("POST", format!("/security/users/{user}/roles?role_ids=2"), None),
        ("DELETE", format!("/security/roles?role_ids={role}"), None),
    ] {
        let (token, other) = (world.login("worker", "Working-Hard-1").await, world.reader().await);
        assert!(alive(&world, &token).await);
        send_ok(&world, method, &path, &admin, body).await;
        assert!(!alive(&world, &token).await, "{method} {path}");
        assert!(alive(&world, &other).await && alive(&world, &admin).await, "{method} {path}");
    }
    let (token, admin) = (world.reader().await, world.admin().await);
    let body = json!({"auth_token_exp_timeout": 900});
    send_ok(&world, "PUT", "/security/config", &admin, Some(body)).await;
    assert!(!alive(&world, &token).await && !alive(&world, &admin).await);
    let (token, admin) = (world.reader().await, world.admin().await);
    send_ok(&world, "PUT", "/security/user/revoke", &admin, None).await;
    assert!(!alive(&world, &token).await && !alive(&world, &admin).await);
    assert!(alive(&world, &world.reader().await).await);
}

#[tokio::test]
async fn security_config_sets_token_lifetime_and_rbac_mode() {
    let world = world();
    let admin = world.admin().await;
    let shown = world.ok("/security/config", &admin).await;
    assert_eq!(shown["data"], json!({"auth_token_exp_timeout": 900, "rbac_mode": "white"}));
    for body in
        [json!({"auth_token_exp_timeout": 29}), json!({"rbac_mode": "grey"}), json!({"x": 1})]
    {
        let refused = send_json(&world, "PUT", "/security/config", &admin, Some(body)).await;
        assert_eq!(refused.status, StatusCode::BAD_REQUEST);
    }
    let body = json!({"auth_token_exp_timeout": 30, "rbac_mode": "black"});
    send_ok(&world, "PUT", "/security/config", &admin, Some(body)).await;
    let reader = world.reader().await;
    let deleted = send_json(&world, "DELETE", "/security/roles?role_ids=777", &reader, None).await;
    assert_eq!(deleted.status, StatusCode::OK, "black permits what no policy speaks of");
    // A token that is issued in the second of the change is dated to the next second.
    world.clock.advance(std::time::Duration::from_secs(31));
    assert!(!alive(&world, &reader).await);
    let admin = world.admin().await;
    send_ok(&world, "DELETE", "/security/config", &admin, None).await;
    let shown = world.ok("/security/config", &world.admin().await).await;
    assert_eq!(shown["data"]["rbac_mode"], "white");
}

#[tokio::test]
async fn login_with_context_gets_the_roles_of_matching_rules() {
    let world = world();
    let admin = world.admin().await;
    let path = "/security/user/authenticate/run_as";
    let login = async |name: &str, password: &str, context: Value| {
        let header = basic(name, password);
        let headers = [("authorization", header.as_str()), ("content-type", "application/json")];
        world.send("POST", path, &headers, context.to_string()).await
    };
    let refused = login("reader", READER, json!({})).await;
    assert_eq!((refused.status, &refused.json()["error"]), (StatusCode::FORBIDDEN, &json!(6004)));
    let rule = json!({"name": "web people", "rule": {"MATCH": {"team": "r'^web'"}}});
    let made = send_ok(&world, "POST", "/security/rules", &admin, Some(rule.clone())).await;
    assert_eq!(
        failure(&send_ok(&world, "POST", "/security/rules", &admin, Some(rule)).await),
        (1, 4005)
    );
    let rule = made["data"]["affected_items"][0]["id"].to_string();
    let body = json!({"name": "web"});
    let made = send_ok(&world, "POST", "/security/roles", &admin, Some(body)).await;
    let role = made["data"]["affected_items"][0]["id"].clone();
    send_ok(&world, "POST", &format!("/security/roles/{role}/rules?rule_ids={rule}"), &admin, None)
        .await;
    let token = async |context: Value| {
        let answer = login("admin", ADMIN, context).await;
        assert_eq!(answer.status, StatusCode::OK);
        answer.json()["data"]["token"].as_str().unwrap().to_owned()
    };
    let web = token(json!({"team": "web-east"})).await;
    let me = world.ok("/security/users/me", &web).await;
    assert_eq!(me["data"]["affected_items"][0]["roles"][0]["id"], role);
    let agent = "/agents?agents_list=001";
    assert_eq!(world.get(agent, &web).await.status, StatusCode::FORBIDDEN, "no policy yet");
    let full = token(json!({"a": [{"username": "elastic"}]})).await;
    world.ok("/agents", &full).await;
    let none = token(json!({"team": "db"})).await;
    assert_eq!(world.get(agent, &none).await.status, StatusCode::FORBIDDEN);
    let body = json!({"name": "other people"});
    send_ok(&world, "PUT", &format!("/security/rules/{rule}"), &admin, Some(body)).await;
    assert!(!alive(&world, &web).await && !alive(&world, &full).await);
    assert!(alive(&world, &admin).await, "it was made without a context");
}

#[tokio::test]
async fn token_can_be_renewed_for_twelve_hours_unless_revoked() {
    let world = world();
    let mut token = world.reader().await;
    let renew = async |token: &str| {
        send_json(&world, "POST", "/security/user/renew?raw=true", token, None).await
    };
    for _ in 0..60 {
        world.clock.advance(std::time::Duration::from_mins(12));
        let answer = renew(&token).await;
        assert_eq!(answer.status, StatusCode::OK);
        token = String::from_utf8(answer.body).unwrap();
        assert!(alive(&world, &token).await);
    }
    world.clock.advance(std::time::Duration::from_mins(12));
    assert_eq!(renew(&token).await.status, StatusCode::UNAUTHORIZED, "twelve hours are over");
    let token = world.reader().await;
    send_json(&world, "DELETE", "/security/user/authenticate", &token, None).await;
    assert_eq!(renew(&token).await.status, StatusCode::UNAUTHORIZED);
    // The token is renewed in the same second as that revocation.
    let answer = renew(&world.reader().await).await;
    assert!(alive(&world, &String::from_utf8(answer.body).unwrap()).await);
}

/// Sends requests that race with the end of the session or account they depend on; returns the
/// tokens obtained.
async fn raced(world: &std::sync::Arc<World>, request: impl Fn(&World) -> Asked) -> Vec<String> {
    let racing: Vec<_> = (0..4)
        .map(|_| {
            let (world, asked) = (std::sync::Arc::clone(world), request(world));
            tokio::spawn(async move {
                let (path, header, body) = asked;
                let headers = [("authorization", header.as_str()), ("content-type", JSON)];
                let answer = world.send("POST", path, &headers, body).await;
                let token = String::from_utf8(answer.body).unwrap();
                (answer.status == StatusCode::OK).then_some(token)
            })
        })
        .collect();
    let mut tokens = Vec::new();
    for task in racing {
        tokens.extend(task.await.unwrap());
    }
    tokens
}

/// Path, `Authorization` and body.
type Asked = (&'static str, String, String);
const JSON: &str = "application/json";

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn token_renewed_during_its_revocation_is_revoked() {
    let world = std::sync::Arc::new(world());
    for round in 0..30 {
        let token = world.reader().await;
        let renew =
            |_: &World| ("/security/user/renew?raw=true", format!("Bearer {token}"), String::new());
        let revoked = async {
            if round % 2 == 0 {
                send_json(&world, "DELETE", "/security/user/authenticate", &token, None).await;
            } else {
                world.registry.replace_token_keys(&WriteContext::server()).unwrap();
            }
            world.clock.advance(std::time::Duration::from_secs(1));
        };
        let (renewed, ()) = tokio::join!(raced(&world, renew), revoked);
        for token in renewed {
            assert!(!alive(&world, &token).await, "round {round}");
        }
        world.clock.advance(std::time::Duration::from_secs(2));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn login_racing_with_rule_removal_gets_no_valid_token() {
    let world = std::sync::Arc::new(world());
    let mut admin = world.admin().await;
    send_ok(&world, "POST", "/security/roles", &admin, Some(json!({"name": "web"}))).await;
    for round in 0..20 {
        let rule = json!({"name": format!("r{round}"), "rule": {"MATCH": {"n": round}}});
        let made = send_ok(&world, "POST", "/security/rules", &admin, Some(rule)).await;
        let rule = made["data"]["affected_items"][0]["id"].to_string();
        let path = format!("/security/roles/100/rules?rule_ids={rule}");
        send_ok(&world, "POST", &path, &admin, None).await;
        let login = |_: &World| {
            let path = "/security/user/authenticate/run_as?raw=true";
            (path, basic("admin", ADMIN), json!({"n": round}).to_string())
        };
        let gone = async {
            let path = format!("/security/rules?rule_ids={rule}");
            send_ok(&world, "DELETE", &path, &admin, None).await;
        };
        let (given, ()) = tokio::join!(raced(&world, login), gone);
        for token in given {
            let me = world.get("/security/users/me", &token).await;
            let roles = |me: &Value| me["data"]["affected_items"][0]["roles"].clone();
            let kept = me.status == StatusCode::OK && roles(&me.json()) != json!([]);
            assert!(!kept, "round {round}: the role of a rule that is gone");
        }
        world.clock.advance(std::time::Duration::from_secs(2));
        admin = world.admin().await;
    }
}

#[tokio::test]
async fn catalogues_list_every_action_and_resource() {
    let world = world();
    let reader = world.reader().await;
    let actions = world.ok("/security/actions", &reader).await;
    assert_eq!(actions["data"]["agent:read"]["resources"], json!(["agent:id", "agent:group"]));
    let one = world.ok("/security/actions?endpoint=PUT%20/agents/restart", &reader).await;
    assert_eq!(one["data"].as_object().unwrap().keys().collect::<Vec<_>>(), ["agent:restart"]);
    let resources = world.ok("/security/resources?resource=user:id", &reader).await;
    assert_eq!(resources["data"].as_object().unwrap().len(), 1);
    let mine = world.ok("/security/users/me/policies", &reader).await;
    assert_eq!(mine["data"]["rbac_mode"], "white");
    assert_eq!(mine["data"]["agent:read"]["agent:id:*"], "allow");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn revocation_takes_effect_at_once_for_concurrent_requests() {
    let world = std::sync::Arc::new(world());
    for _ in 0..20 {
        let token = world.reader().await;
        let refused = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
        let asking: Vec<_> = (0..4)
            .map(|_| {
                let (world, token, refused) = (world.clone(), token.clone(), refused.clone());
                tokio::spawn(async move {
                    loop {
                        let revoked = refused.load(std::sync::atomic::Ordering::SeqCst);
                        let status = world.get("/security/users/me", &token).await.status;
                        assert!(!(revoked && status == StatusCode::OK), "it worked afterwards");
                        if status != StatusCode::OK {
                            return;
                        }
                    }
                })
            })
            .collect();
        send_json(&world, "DELETE", "/security/user/authenticate", &token, None).await;
        refused.store(true, std::sync::atomic::Ordering::SeqCst);
        for task in asking {
            task.await.unwrap();
        }
    }
}

#[tokio::test]
async fn only_configured_origins_may_call_from_a_browser() {
    let world = world_with(|options| options.cors_origins = vec!["https://wall.example".into()]);
    for (origin, expected) in [("https://wall.example", "https://wall.example"), ("https://x", "")]
    {
        let answer = world.send("GET", "/agents", &[("origin", origin)], "").await;
        assert_eq!(answer.header("access-control-allow-origin"), expected);
    }
    let headers = [("origin", "https://wall.example"), ("access-control-request-method", "PUT")];
    let asked = world.send("OPTIONS", "/agents/restart", &headers, "").await;
    assert_eq!(asked.status, StatusCode::NO_CONTENT);
    assert_eq!(asked.header("access-control-allow-methods"), "PUT");
    let other = world.send("OPTIONS", "/agents/restart", &[("origin", "https://x")], "").await;
    assert_eq!(other.status, StatusCode::METHOD_NOT_ALLOWED);
}
