//! One user's load takes nothing from other users: large answers, the audit log, repeated requests.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::{Context, Poll};

use crate::common::{Answered, World, basic, observed, upsert, world, world_with};
use axum::body::{Body, Bytes, HttpBody};
use axum::http::{Request, Response, StatusCode};
use hyper::body::Frame;
use listener::Source;
use model::{AgentId, AgentStatus};
use registry::{AgentEnrolment, AgentInfo, AuditOutcome, InsertAgent, Reader, WriteContext};
use serde_json::json;
use tower::ServiceExt as _;

/// Sends a GET and returns the answer without reading its body.
async fn unread(world: &World, path: &str, token: Option<&str>) -> Response<Body> {
    let mut request = Request::get(path);
    let source = match token {
        Some(token) => {
            request = request.header("authorization", format!("Bearer {token}"));
            Source::Tcp("192.0.2.9:4000".parse().unwrap())
        }
        None => Source::Unix { uid: 0 },
    };
    let mut request = request.body(Body::empty()).unwrap();
    request.extensions_mut().insert(source);
    world.router.clone().oneshot(request).await.unwrap()
}

#[tokio::test]
async fn unread_answers_of_one_user_block_no_other_user() {
    let world = world();
    let (reader, admin) = (world.reader().await, world.admin().await);
    for some in 0..5 {
        let file = |n| upsert(&format!("/etc/{some}-{n}"), &observed(0o644, 5), 1);
        world.session(1, (0..500).map(file).collect()).await;
    }
    let path = "/syscheck/001?limit=3000";
    let mut held = Vec::new();
    while held.len() < api::limits::LISTS_EACH_MAX {
        let answer = unread(&world, path, Some(&reader)).await;
        assert_eq!(answer.status(), StatusCode::OK);
        held.push(answer);
    }
    let refused = unread(&world, path, Some(&reader)).await;
    assert_eq!(refused.status(), StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(refused.headers()["retry-after"], "5");
    let other = world.ok(path, &admin).await;
    assert_eq!(other["data"]["affected_items"].as_array().unwrap().len(), 2_500);
    assert_eq!(unread(&world, path, None).await.status(), StatusCode::OK, "on the unix socket");
    drop(held);
    while unread(&world, path, Some(&reader)).await.status() != StatusCode::OK {
        tokio::task::yield_now().await;
    }
}

/// A body that sends most of its bytes and then stalls.
struct Half {
    sent: bool,
    /// Incremented once that part has been read and more is awaited.
    waiting: Arc<AtomicUsize>,
}

const HALF_BYTES: usize = 60 * 1024;

impl HttpBody for Half {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, std::convert::Infallible>>> {
        if std::mem::replace(&mut self.sent, true) {
            self.waiting.fetch_add(1, Ordering::Relaxed);
            return Poll::Pending;
        }
        Poll::Ready(Some(Ok(Frame::data(vec![b' '; HALF_BYTES].into()))))
    }
}

#[tokio::test]
async fn endless_logins_of_one_network_block_no_other_network() {
    let world = world();
    world
        .registry
        .create_user(&WriteContext::server(), "board", "Contexts-Here-1", true, &["readonly"])
        .unwrap();
    let login = |from: &str, body: Body| {
        let mut request = Request::post("/security/user/authenticate/run_as")
            .header("authorization", basic("board", "Contexts-Here-1"))
            .header("content-type", "application/json")
            .body(body)
            .unwrap();
        request.extensions_mut().insert(Source::Tcp(from.parse().unwrap()));
        world.router.clone().oneshot(request)
    };
    let waiting = Arc::new(AtomicUsize::new(0));
    let half = || Body::new(Half { sent: false, waiting: Arc::clone(&waiting) });
    let fit = api::limits::LOGIN_BODIES_BYTES_EACH_MAX / HALF_BYTES;
    let held: Vec<_> = (0..fit).map(|_| tokio::spawn(login("192.0.2.1:1", half()))).collect();
    while waiting.load(Ordering::Relaxed) < fit {
        tokio::task::yield_now().await;
    }
    let text = || Body::from(format!("{{\"a\":\"{}\"}}", "x".repeat(HALF_BYTES)));
    let refused = login("192.0.2.1:2", text()).await.unwrap();
    assert_eq!(refused.status(), StatusCode::SERVICE_UNAVAILABLE);
    let other = login("192.0.2.2:1", text()).await.unwrap();
    assert_eq!(other.status(), StatusCode::OK);
    held.iter().for_each(tokio::task::JoinHandle::abort);
}

/// Another program writes to the registry's database, and all writers wait for it.
#[tokio::test]
async fn slow_requests_of_one_user_block_no_other_user() {
    let world = world();
    let (admin, reader) = (world.admin().await, world.reader().await);
    world.registry.flush().unwrap();
    let other = rusqlite::Connection::open(world.folder.path().join("registry.db")).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let create = |n: usize| {
        let mut request = Request::post("/groups")
            .header("authorization", format!("Bearer {admin}"))
            .header("content-type", "application/json")
            .body(Body::from(json!({"group_id": format!("g-{n}")}).to_string()))
            .unwrap();
        request.extensions_mut().insert(Source::Tcp("192.0.2.1:4000".parse().unwrap()));
        tokio::spawn(world.router.clone().oneshot(request))
    };
    let waiting: Vec<_> = (0..2 * api::limits::RUNNING_MAX).map(create).collect();
    for _ in 0..waiting.len() {
        tokio::task::yield_now().await;
    }
    for path in ["/agents/summary/status", "/agents", "/syscheck/001"] {
        world.ok(path, &reader).await;
    }
    world.reader().await;
    assert!(waiting.iter().all(|request| !request.is_finished()), "they had to wait");
    other.execute_batch("COMMIT").unwrap();
    for request in waiting {
        assert_eq!(request.await.unwrap().unwrap().status(), StatusCode::OK);
    }
}

/// Each request writes before its body is checked, and the disk delays that write.
#[tokio::test]
async fn repeated_password_changes_block_no_other_user() {
    let world = world_with(|options| {
        options.requests_per_minute_max = 0;
        options.request_timeout_ms = 3_600_000;
    });
    let (admin, reader) = (world.admin().await, world.reader().await);
    world.registry.flush().unwrap();
    let other = rusqlite::Connection::open(world.folder.path().join("registry.db")).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let (told, mut refused) = tokio::sync::mpsc::unbounded_channel();
    let change = |_| {
        let mut request = Request::put("/security/users/me/password")
            .header("authorization", format!("Bearer {reader}"))
            .header("content-type", "application/json")
            .body(Body::from("{}"))
            .unwrap();
        request.extensions_mut().insert(Source::Tcp("192.0.2.1:4000".parse().unwrap()));
        let (router, told) = (world.router.clone(), told.clone());
        tokio::spawn(async move {
            let answer = router.oneshot(request).await.unwrap();
            let (status, body) = (answer.status(), answer.into_body());
            let body = axum::body::to_bytes(body, usize::MAX).await.unwrap();
            let text = String::from_utf8(body.to_vec()).unwrap();
            let crowded = text.contains("too many requests are waiting");
            let _ = crowded.then(|| told.send(status));
        })
    };
    let waiting: Vec<_> = (0..2 * api::limits::WAITING_EACH_MAX).map(change).collect();
    drop(told);
    let busy = Some(StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(refused.recv().await, busy, "no more of them than may wait");
    world.ok("/agents", &admin).await;
    other.execute_batch("COMMIT").unwrap();
    waiting.iter().for_each(tokio::task::JoinHandle::abort);
}

async fn send_json(world: &World, method: &str, path: &str, token: &str, body: String) -> Answered {
    let bearer = format!("Bearer {token}");
    let headers = [("authorization", bearer.as_str()), ("content-type", "application/json")];
    world.send(method, path, &headers, body).await
}

#[tokio::test]
async fn user_without_permissions_evicts_no_audit_rows() {
    let world = world_with(|options| options.requests_per_minute_max = 0);
    let mut reader = world.reader().await;
    world
        .registry
        .create_user(&WriteContext::server(), "orders", "Ordering-All-1", false, &["agents_admin"])
        .unwrap();
    let orders = world.login("orders", "Ordering-All-1").await;
    let restart =
        async || send_json(&world, "PUT", "/agents/001/restart", &orders, String::new()).await;
    assert_eq!(restart().await.json()["error"], 0);
    for _ in 0..100 {
        let renewed =
            send_json(&world, "POST", "/security/user/renew", &reader, String::new()).await;
        reader = renewed.json()["data"]["token"].as_str().unwrap().to_owned();
        // The request is refused because the agent is not active.
        let refused = send_json(&world, "PUT", "/agents/002/restart", &orders, String::new()).await;
        assert_eq!(refused.json()["error"], 1);
        // The same command as before, which is still pending.
        assert_eq!(restart().await.json()["error"], 0);
        let both = "/agents/restart?agents_list=001,002";
        let joined = send_json(&world, "PUT", both, &orders, String::new()).await;
        assert_eq!(joined.json()["error"], 2);
    }
    let log = world.registry.audit_log(&Reader::server(), None, 10_000).unwrap();
    let rows = |user: &str| log.iter().filter(|row| row.user == user).count();
    assert_eq!((rows("reader"), rows("orders")), (0, 1 + api::limits::IDLE_ROWS_MAX as usize));
    let of =
        |outcome| log.iter().filter(|row| row.user == "orders" && row.outcome == outcome).count();
    assert_eq!((of(AuditOutcome::Done), of(AuditOutcome::Unchanged)), (1, 66));
    // Requests that were carried out have their rows nevertheless.
    let done = send_json(&world, "PUT", "/agents/reload", &orders, String::new()).await;
    assert_eq!(done.json()["error"], 0);
    let newest = world.registry.audit_log(&Reader::server(), None, 1).unwrap().remove(0);
    assert_eq!((newest.user.as_str(), newest.outcome), ("orders", AuditOutcome::Done));
    // A logout leaves a row of the kind that is deleted first.
    let path = "/security/user/authenticate";
    assert_eq!(
        send_json(&world, "DELETE", path, &reader, String::new()).await.status,
        StatusCode::OK
    );
    let newest = world.registry.audit_log(&Reader::server(), None, 1).unwrap().remove(0);
    assert_eq!((newest.user.as_str(), newest.action.as_str()), ("reader", "security.logout"));
    assert_eq!(newest.outcome, AuditOutcome::Unchanged);
    for _ in 0..api::limits::IDLE_ROWS_MAX {
        let reader = world.reader().await;
        let out = send_json(&world, "DELETE", path, &reader, String::new()).await;
        assert_eq!(out.status, StatusCode::OK);
    }
    let log = world.registry.audit_log(&Reader::server(), None, 10_000).unwrap();
    let rows = log.iter().filter(|row| row.user == "reader").count();
    assert_eq!(rows, api::limits::IDLE_ROWS_MAX as usize, "as of all that changes nothing");
}

#[tokio::test]
async fn unix_socket_program_may_send_for_the_whole_fleet() {
    let world = world();
    let uname = "x".repeat(250);
    let told: Vec<_> = (1..50_000)
        .map(|id| json!({"id": id, "os_platform": "debian", "os_uname": uname, "version": "v1"}))
        .collect();
    let body = json!({"syncreq": told}).to_string();
    assert!(body.len() > api::limits::BODY_BYTES_MAX);
    let kind = [("content-type", "application/json")];
    let local = Some(Source::Unix { uid: 0 });
    let path = "/v1/agents/sync";
    let taken = world.send_from(local, "POST", path, &kind, body.clone()).await;
    assert_eq!(taken.status, StatusCode::OK);
    assert_eq!(world.registry.agent(AgentId(3)).unwrap().status, AgentStatus::Active);
    let admin = world.admin().await;
    assert_eq!(
        send_json(&world, "POST", path, &admin, body).await.status,
        StatusCode::PAYLOAD_TOO_LARGE
    );
    let small = json!({"syncreq_status": [{"id": 1, "connection_status": "disconnected"}]});
    let refused = send_json(&world, "POST", path, &admin, small.to_string()).await;
    assert_eq!(refused.status, StatusCode::FORBIDDEN, "who was heard from is not for users to say");
    assert_eq!(world.registry.agent(AgentId(1)).unwrap().status, AgentStatus::Active);
}

#[tokio::test]
async fn agent_that_reconnects_during_a_bulk_removal_is_kept() {
    let world = world();
    for n in 0..300 {
        let request = AgentEnrolment { name: format!("old-{n}"), ..AgentEnrolment::default() };
        let new = InsertAgent { request, ..InsertAgent::default() };
        world.registry.insert_agent(&WriteContext::server(), &new, &mut |_| Ok(())).unwrap();
    }
    let last = AgentId(303);
    let (registry, first) = (world.registry.clone(), AtomicBool::new(true));
    world.registry.when_removed(move |_| {
        if first.swap(false, Ordering::Relaxed) {
            let info = AgentInfo::default();
            assert!(registry.startup(last, &info) && registry.keepalive(last, &info));
        }
    });
    let admin = world.admin().await;
    let path = "/agents?agents_list=all&status=never_connected&older_than=0s";
    let gone = send_json(&world, "DELETE", path, &admin, String::new()).await.json();
    assert_eq!(gone["data"]["total_affected_items"], 300, "{}", gone["message"]);
    let failed = &gone["data"]["failed_items"][0];
    assert_eq!((&failed["id"], &failed["error"]["code"]), (&json!(["303"]), &json!(1731)));
    assert_eq!(world.registry.agent(last).unwrap().status, AgentStatus::Active);
}

#[tokio::test]
async fn certificate_is_kept_if_the_removal_cannot_be_recorded() {
    let world = world();
    let database = rusqlite::Connection::open(world.folder.path().join("registry.db")).unwrap();
    let certificate = "INSERT INTO certificate (fingerprint, agent, incarnation, not_before_s,
         not_after_s) VALUES (randomblob(32), 2, 7, 0, 9000000000)";
    database.execute(certificate, []).unwrap();
    let admin = world.admin().await;
    world.commit.close().await.unwrap();
    let path = "/agents?agents_list=002&status=all&older_than=0s";
    let refused = send_json(&world, "DELETE", path, &admin, String::new()).await.json();
    assert_eq!(refused["data"]["failed_items"][0]["error"]["code"], 1000);
    let revoked = "SELECT count(*) FROM certificate WHERE revoked_at_s IS NOT NULL";
    let revoked: i64 = database.query_row(revoked, [], |row| row.get(0)).unwrap();
    assert_eq!(revoked, 0);
}

#[tokio::test]
async fn agent_key_has_64_characters() {
    let world = world();
    let admin = world.admin().await;
    for (chars, status) in [(63, 400), (64, 200), (65, 400), (1_000_000, 400)] {
        let key = "k".repeat(chars);
        let new = json!({"name": format!("keyed-{chars}"), "ip": "any", "key": key});
        let answer = send_json(&world, "POST", "/agents/insert", &admin, new.to_string()).await;
        assert_eq!(answer.status.as_u16(), status, "{chars}");
    }
}

#[tokio::test]
async fn enrolment_tokens_are_listed_without_secret_and_revoked() {
    let world = world();
    let admin = world.admin().await;
    let make = async |groups: &str| {
        let body = format!("{{\"groups\":[{groups}],\"uses\":3}}");
        let made = send_json(&world, "POST", "/enrolment/tokens", &admin, body).await.json();
        made["data"]["token"].as_str().unwrap().to_owned()
    };
    let secrets = [make("").await, make("\"web\"").await];
    let listed = world.ok("/enrolment/tokens", &admin).await;
    let items = listed["data"]["affected_items"].as_array().unwrap();
    assert_eq!(items.len(), 2);
    assert!(items.iter().all(|item| item["uses"] == 3));
    let text = listed.to_string();
    for secret in &secrets {
        assert!(!text.contains(secret.split('.').nth(1).unwrap()));
    }
    let of_web = items.iter().find(|item| item["groups"] == json!(["web"])).unwrap();
    let id = of_web["id"].as_str().unwrap();
    let take = async |ids: &str| {
        let path = format!("/enrolment/tokens?tokens_list={ids}");
        send_json(&world, "DELETE", &path, &admin, String::new()).await.status
    };
    assert_eq!(take(&format!("{id},unknown")).await, StatusCode::NOT_FOUND, "all or none");
    assert_eq!(world.registry.enrolment_tokens(&Reader::server()).unwrap().len(), 2);
    assert_eq!(take(id).await, StatusCode::OK);
    let left = world.registry.enrolment_tokens(&Reader::server()).unwrap();
    assert_eq!((left.len(), left[0].groups.len()), (1, 0));
    assert_eq!(take("all").await, StatusCode::OK);
    assert_eq!(world.registry.enrolment_tokens(&Reader::server()).unwrap(), []);
}
