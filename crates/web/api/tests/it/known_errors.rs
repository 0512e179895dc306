//! Every refusal with its status, code and text.

use std::io::Write as _;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::common::{cheap_logins, world, world_of, world_with};
use axum::body::Body;
use axum::http::StatusCode;
use flate2::Compression;
use flate2::write::GzEncoder;
use listener::Source;
use registry::{HashCost, Reader, RegistryOptions};
use serde_json::{Value, json};

/// Path, status, code, and a part of the detail.
const TABLE: &[(&str, u16, Option<u16>, &str)] = &[
    ("/agents?foo=1", 400, None, "Extra query parameter(s) foo not in spec"),
    ("/agents?b=1&a=2&limit=1", 400, None, "Extra query parameter(s) a, b not in spec"),
    ("/agents?Limit=1", 400, None, "Extra query parameter(s) Limit not in spec"),
    ("/agents?limit=0", 400, None, "0 is less than the minimum of 1. Failed validating 'minimum'"),
    ("/agents?limit=-5", 400, None, "-5 is less than the minimum of 1"),
    ("/agents?limit=100001", 400, None, "100001 is greater than the maximum of 100000. Failed"),
    ("/agents?limit=ten", 400, None, "Wrong type, expected 'integer' for query parameter 'limit'"),
    ("/agents?limit=99999999999999999999999999999999999999999", 400, None, "Wrong type"),
    ("/agents?offset=-1", 400, None, "-1 is less than the minimum of 0"),
    ("/agents?pretty=maybe", 400, None, "expected 'boolean'"),
    ("/agents?sort=nothing", 400, Some(1403), "'nothing'"),
    ("/agents?sort=-name;drop%20table%20agent", 400, None, "agent' is not a 'sort'"),
    ("/agents?name=a$b", 400, None, "'a$b' is not a 'alphanumeric'"),
    ("/agents?os.name=a%00", 400, None, "is not a 'alphanumeric'"),
    ("/agents?group=we%20b", 400, None, "'we b' is not a 'group_names'"),
    ("/agents?group=..", 400, None, "'..' is not a 'group_names'"),
    ("/agents?node_name=x/y", 400, None, "'x/y' is not a 'names'"),
    ("/agents?search=a%26b", 400, None, "'a&b' is not a 'search'"),
    ("/agents?select=a;b", 400, None, "'a;b' is not a 'names'"),
    ("/groups?groups_list=web,a%20b", 400, None, "'a b' is not a 'group_names'"),
    ("/groups/a%20b/files", 400, None, "'a b' is not a 'group_names'"),
    ("/cluster/a%20b/status", 400, None, "'a b' is not a 'names'"),
    ("/manager/logs?tag=a;b", 400, None, "'a;b' is not a 'alphanumeric'"),
    ("/manager/configuration?section=nonsense", 400, None, "'nonsense' is not one of"),
    ("/agents?select=internal_key", 400, Some(1724), "'internal_key'"),
    ("/agents?status=asleep", 400, None, "'asleep' is not one of"),
    ("/agents?status=active,", 400, None, "is not a 'status'"),
    ("/agents?older_than=soon", 400, None, "'soon' is not a 'timeframe'"),
    ("/agents?agents_list=1&agents_list=x", 400, None, "'1,x' is not a 'numbers'"),
    ("/agents?agents_list=1&agents_list=", 400, None, "'agents_list'"),
    ("/security/users?user_ids=1&user_ids=all", 400, None, "'1,all' is not a 'numbers'"),
    ("/groups?groups_list=web&groups_list=all", 400, None, "'all' is not a 'group_names'"),
    ("/agents?agents_list=1,x", 400, None, "'1,x' is not a 'numbers'"),
    ("/agents?agents_list=", 400, None, "is not a 'numbers'"),
    ("/agents?q=status=active;", 400, Some(1407), "a field is missing"),
    ("/agents?q=password=x", 400, Some(1408), "'password'"),
    ("/agents?q=name==x", 400, Some(1409), "'=='"),
    ("/agents?q=group<web", 400, Some(1409), "group"),
    ("/agents?q=dateAdd<never", 400, Some(1412), "'never'"),
    ("/syscheck/001?q=size>big", 400, Some(1407), "not a number"),
    ("/syscheck/001?q=size~1", 400, Some(1409), "texts only"),
    ("/syscheck/1", 400, None, "'1' is not a 'numbers'"),
    ("/syscheck/001,002", 400, None, "is not a 'numbers'"),
    ("/syscheck/001?md5=xyz", 400, None, "'xyz' is not a 'hash'"),
    ("/syscheck/001?type=door", 400, None, "is not one of"),
    ("/syscheck/001?sort=device", 400, Some(1403), "'device'"),
    ("/syscheck/001?select=nope", 400, Some(1724), "'nope'"),
    ("/changes?from=yesterday", 400, Some(1412), "not a date"),
    ("/changes?kind=renamed", 400, None, "'renamed' is not one of"),
    (
        "/changes?cause=magic",
        400,
        None,
        "'magic' is not one of [\"unexplained\", \"package\", \"deployment\"] - 'cause'",
    ),
    ("/changes?sort=path", 400, None, "'path' is not one of [\"unexplained\"] - 'sort'"),
    ("/changes?collapse=agent", 400, None, "'agent' is not one of [\"cause\"] - 'collapse'"),
    ("/changes?limit=1001", 400, None, "1001 is greater than the maximum of 1000"),
    ("/changes?cursor=garbage", 400, None, "cursor"),
    ("/changes/garbage", 404, None, "no such change"),
    ("/changes/001-1-1", 404, None, "no such change"),
    ("/commands/4711", 404, None, "no such command: 4711"),
    ("/commands/x", 400, None, "expected 'integer'"),
    ("/states/a%27b", 400, None, "is not a 'names'"),
    ("/states/fim-filez", 404, None, "no such dataset: fim-filez; that of files is fim-files"),
    ("/events/stream?agents_list=077,078", 404, Some(1701), "agent does not exist"),
    ("/nothing/here", 404, None, "404: Not Found"),
    ("/agents/", 404, None, "404: Not Found"),
];

#[tokio::test]
async fn known_errors_have_their_status_code_and_detail() {
    let world = world();
    let token = world.admin().await;
    for (path, status, code, detail) in TABLE {
        let answer = world.get(path, &token).await;
        assert_eq!(answer.status.as_u16(), *status, "{path}");
        assert_eq!(answer.header("content-type"), "application/problem+json", "{path}");
        let body = answer.json();
        assert_eq!(body.get("error"), code.map(Value::from).as_ref(), "{path}: {body}");
        assert!(body["detail"].as_str().unwrap().contains(detail), "{path}: {body}");
        assert!(!body["title"].as_str().unwrap().is_empty());
        if code.is_some() {
            assert!(!body["remediation"].as_str().unwrap().is_empty(), "{path}: {body}");
            assert_eq!(body["dapi_errors"]["node01"]["error"], body["detail"], "{path}");
        }
    }
}

#[tokio::test]
async fn agent_name_above_128_characters_is_refused() {
    let world = world();
    let admin = world.admin().await;
    let bearer = format!("Bearer {admin}");
    let quick = async |name: &str| {
        let path = format!("/agents/insert/quick?agent_name={name}");
        world.send("POST", &path, &[("authorization", bearer.as_str())], Body::empty()).await
    };
    assert_eq!(quick(&"a".repeat(128)).await.status, StatusCode::OK);
    let refused = quick(&"b".repeat(129)).await;
    assert_eq!(refused.status, StatusCode::BAD_REQUEST);
    let body = refused.json();
    assert_eq!(body.get("error"), None, "{body}");
    let detail = body["detail"].as_str().unwrap();
    assert!(
        detail.ends_with("is too long. Failed validating 'maxLength' in schema - 'agent_name'")
    );
}

/// Calls every operation that reads, with all its flags as Python clients write them, on a server with
/// a time limit of zero for requests without `wait_for_complete`.
#[tokio::test]
async fn flags_are_parsed_regardless_of_case() {
    let world = world_with(|options| options.request_timeout_ms = 0);
    let local = Some(Source::Unix { uid: 0 });
    let ask = async |path: &str| world.send_from(local, "GET", path, &[], Body::empty()).await;
    let document: Value = serde_json::from_str(&api::openapi_json()).unwrap();
    let mut tried = 0;
    for (path, methods) in document["paths"].as_object().unwrap() {
        let parameters = methods["get"]["parameters"].as_array().cloned().unwrap_or_default();
        let flags = parameters.iter().filter(|p| p["schema"]["type"] == "boolean");
        let flags: Vec<&str> = flags.map(|p| p["name"].as_str().unwrap()).collect();
        if !flags.contains(&"wait_for_complete") || path.contains('{') {
            continue;
        }
        let needed = parameters.iter().filter(|p| p["required"] == true);
        if needed.count() > 0 {
            continue;
        }
        tried += 1;
        for word in ["True", "TRUE", "tRuE"] {
            let query: Vec<String> = flags.iter().map(|name| format!("{name}={word}")).collect();
            let path = format!("{path}?{}", query.join("&"));
            let answer = ask(&path).await;
            let text = String::from_utf8_lossy(&answer.body).into_owned();
            assert_ne!(answer.status, StatusCode::INTERNAL_SERVER_ERROR, "{path}: {text}");
            assert!(!text.contains("boolean"), "{path}: {text}");
        }
    }
    assert!(tried > 20, "{tried} operations");
    let waits = "/agents?wait_for_complete=true&pretty";
    for (query, indented) in
        [("=True", true), ("=false&pretty=TRUE", true), ("=True&pretty=False", false)]
    {
        let answer = ask(&format!("{waits}{query}")).await;
        assert_eq!(answer.status, StatusCode::OK, "{query}");
        assert_eq!(answer.body.contains(&b'\n'), indented, "pretty{query}");
    }
}

/// Method, path and the code with which the one named object failed; the status is 200.
const FAILED: &[(&str, &str, u16)] = &[
    ("GET", "/syscheck/999", 1701),
    ("GET", "/syscheck/99999999999999999999", 1701),
    ("GET", "/syscheck/999/last_scan", 1701),
    ("DELETE", "/syscheck/001", 1760),
    ("GET", "/agents/999/key", 1701),
    ("GET", "/agents/000/key", 1703),
    ("GET", "/agents/999/group/is_sync", 1701),
    ("GET", "/agents/000/group/is_sync", 1703),
    ("PUT", "/agents/999/restart", 1701),
    ("PUT", "/agents/002/restart", 1707),
    ("GET", "/manager/configuration?section=rootcheck", 1106),
    ("GET", "/manager/configuration?section=cluster&field=nothing", 1103),
];

#[tokio::test]
async fn list_reports_its_failed_items() {
    let world = world();
    let bearer = format!("Bearer {}", world.admin().await);
    let headers = [("authorization", bearer.as_str())];
    for (method, path, code) in FAILED {
        let answer = world.send(method, path, &headers, Body::empty()).await;
        assert_eq!(answer.status, StatusCode::OK, "{method} {path}");
        let body = answer.json();
        assert_eq!(body["error"], 1, "{method} {path}: {body}");
        assert_eq!(body["data"]["total_failed_items"], 1, "{method} {path}: {body}");
        assert_eq!(body["data"]["failed_items"][0]["error"]["code"], *code, "{method} {path}");
    }
}

#[tokio::test]
async fn unsupported_method_answers_405_with_allow() {
    let world = world();
    let answer = world.send("PATCH", "/agents", &[], Body::empty()).await;
    assert_eq!(answer.status, StatusCode::METHOD_NOT_ALLOWED);
    assert_eq!(answer.header("allow"), "GET, POST, DELETE");
    let answer = world.send("PUT", "/security/user/authenticate", &[], Body::empty()).await;
    assert_eq!(answer.header("allow"), "POST, GET, DELETE");
    let answer = world.send("POST", "/nothing", &[], Body::empty()).await;
    assert_eq!(answer.json(), json!({"title": "Not Found", "detail": "404: Not Found"}));
}

#[tokio::test]
async fn malformed_and_oversized_json_bodies_are_refused() {
    let world = world();
    let bearer = format!("Bearer {}", world.admin().await);
    let post = async |kind: &str, body: Vec<u8>| {
        let headers = [("authorization", bearer.as_str()), ("content-type", kind)];
        world.send("POST", "/enrolment/tokens", &headers, body).await
    };
    let json_type = "application/json";
    let xml = post("application/xml", b"<a/>".to_vec()).await;
    assert_eq!((xml.status, &xml.json()["error"]), (StatusCode::NOT_ACCEPTABLE, &json!(6002)));
    assert_eq!(xml.json()["remediation"], "send the body as application/json");
    let headers = [("authorization", bearer.as_str()), ("content-type", json_type)];
    let group = world.send("PUT", "/groups/web/configuration", &headers, "{}").await.json();
    let remedy = group["remediation"].as_str().unwrap();
    assert!(remedy.contains("application/xml") && !remedy.contains("json"), "{remedy}");
    assert_eq!(post(json_type, b"{".to_vec()).await.status, StatusCode::BAD_REQUEST);
    assert_eq!(post(json_type, b"{\"userz\":1}".to_vec()).await.status, StatusCode::BAD_REQUEST);
    let group = post(json_type, b"{\"groups\":[\"nope\"]}".to_vec()).await;
    assert_eq!((group.status, &group.json()["error"]), (StatusCode::NOT_FOUND, &json!(1710)));
    let large = vec![b' '; api::limits::BODY_BYTES_MAX + 1];
    assert_eq!(post(json_type, large).await.status, StatusCode::PAYLOAD_TOO_LARGE);
    assert_eq!(post(json_type, b"{\"uses\":2}".to_vec()).await.status, StatusCode::OK);
}

#[tokio::test]
async fn series_store_refusals_are_reported_as_text() {
    let world = world();
    let bearer = format!("Bearer {}", world.admin().await);
    let headers = [("authorization", bearer.as_str()), ("content-type", "text/plain")];
    let refused = world.send("POST", "/series/write", &headers, "cpu value=").await;
    assert_eq!(refused.status, StatusCode::BAD_REQUEST);
    let detail = refused.json()["detail"].as_str().unwrap().to_owned();
    assert!(!detail.is_empty() && !detail.contains('{'), "{detail}");
}

#[tokio::test]
async fn series_lines_may_be_gzip_and_no_other_encoding() {
    let world = world();
    let bearer = format!("Bearer {}", world.admin().await);
    let gzip = |lines: &[u8]| {
        let mut packed = GzEncoder::new(Vec::new(), Compression::fast());
        packed.write_all(lines).unwrap();
        packed.finish().unwrap()
    };
    let write = async |coding: &str, body: Vec<u8>| {
        let headers = [
            ("authorization", bearer.as_str()),
            ("content-type", "text/plain"),
            ("content-encoding", coding),
        ];
        world.send("POST", "/series/write", &headers, body).await
    };
    let stored = write("gzip", gzip(b"packed,host=a f=1.5 7\n")).await;
    assert_eq!(stored.status, StatusCode::OK, "{}", stored.json());
    let cut = write("gzip", gzip(b"packed,host=b f=1.5 7\n")[..20].to_vec()).await;
    assert_eq!(cut.status, StatusCode::BAD_REQUEST);
    for coding in ["deflate", "gzip, gzip"] {
        let refused = write(coding, gzip(b"packed,host=c f=1.5 7\n")).await;
        assert_eq!(refused.status, StatusCode::UNSUPPORTED_MEDIA_TYPE);
        assert!(refused.json()["detail"].as_str().unwrap().contains("send gzip or none"));
    }
    let headers = [("authorization", bearer.as_str()), ("content-type", "application/json")];
    let all = r#"{"select": "packed_f", "range": {"from": 0, "to": 10}, "output": {"format": "csv", "timestamp": "raw"}}"#;
    let found = world.send("POST", "/series/query", &headers, all).await;
    assert_eq!(found.body, *b"packed_f host=a,7,1.5\n");
}

#[tokio::test]
async fn declared_body_beyond_the_limit_is_refused_unread() {
    let world = world();
    let bearer = format!("Bearer {}", world.admin().await);
    let mut headers = vec![
        ("authorization", bearer.as_str()),
        ("content-type", "application/json"),
        ("content-length", "10485761"),
    ];
    let answer = world.send("POST", "/enrolment/tokens", &headers, "{}").await;
    assert_eq!(answer.status, StatusCode::PAYLOAD_TOO_LARGE);
    headers.push(("expect", "100-continue"));
    let answer = world.send("POST", "/enrolment/tokens", &headers, "{}").await;
    assert_eq!(answer.status, StatusCode::EXPECTATION_FAILED);
}

#[tokio::test]
async fn rate_limited_address_must_wait_but_localhost_is_exempt() {
    let world = world_with(|options| options.requests_per_minute_max = 5);
    for _ in 0..5 {
        assert_eq!(world.get("/agents", "x").await.status, StatusCode::UNAUTHORIZED);
    }
    let answer = world.get("/agents", "x").await;
    assert_eq!(answer.status, StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(answer.json()["error"], 6001);
    assert!(answer.header("retry-after").parse::<u64>().unwrap() <= 61);
    for source in [
        Source::Tcp("127.0.0.1:1".parse().unwrap()),
        Source::Tcp("[::ffff:127.0.0.1]:1".parse::<SocketAddr>().unwrap()),
        Source::Unix { uid: 0 },
    ] {
        for _ in 0..20 {
            let answer = world.send_from(Some(source), "GET", "/healthz", &[], Body::empty()).await;
            assert_eq!(answer.status, StatusCode::OK);
        }
    }
    world.clock.advance(Duration::from_secs(61));
    assert_eq!(world.get("/agents", "x").await.status, StatusCode::UNAUTHORIZED);
}

#[tokio::test]
async fn body_that_never_ends_times_out() {
    let world = world_with(|options| options.request_timeout_ms = 20);
    let source = Some(Source::Unix { uid: 0 });
    let headers = [("content-type", "application/json")];
    let endless = Body::new(Endless);
    let answer = world.send_from(source, "POST", "/enrolment/tokens", &headers, endless).await;
    assert_eq!(answer.status, StatusCode::REQUEST_TIMEOUT);
}

/// A body that sends nothing and never ends.
struct Endless;

impl axum::body::HttpBody for Endless {
    type Data = axum::body::Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        self: std::pin::Pin<&mut Self>,
        _: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Result<hyper::body::Frame<Self::Data>, Self::Error>>> {
        std::task::Poll::Pending
    }
}

#[tokio::test]
async fn readyz_answers_503_until_the_server_is_ready() {
    let ready = Arc::new(AtomicBool::new(false));
    let shared = Arc::clone(&ready);
    let world = world_with(move |options| options.ready = shared);
    assert_eq!(world.get("/healthz", "").await.status, StatusCode::OK);
    let answer = world.get("/readyz", "").await;
    assert_eq!(answer.status, StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(answer.header("retry-after"), "1");
    ready.store(true, Ordering::Release);
    assert_eq!(world.get("/readyz", "").await.status, StatusCode::OK);
    world.commit.close().await.unwrap();
    let answer = world.get("/readyz", "").await;
    assert_eq!(answer.status, StatusCode::SERVICE_UNAVAILABLE, "no session is taken any more");
}

#[tokio::test]
async fn every_answer_has_the_security_headers() {
    let world = world();
    let token = world.admin().await;
    for path in ["/agents", "/nothing", "/healthz", "/agents?limit=0"] {
        let answer = world.get(path, &token).await;
        assert_eq!(answer.header("server"), "Holdfast");
        assert_eq!(
            answer.header("strict-transport-security"),
            "max-age=63072000; includeSubdomains"
        );
        assert_eq!(answer.header("x-frame-options"), "deny");
        assert_eq!(answer.header("x-xss-protection"), "0");
        assert_eq!(answer.header("x-content-type-options"), "nosniff");
        assert_eq!(
            answer.header("referrer-policy"),
            "no-referrer, strict-origin-when-cross-origin"
        );
        assert_eq!(answer.header("cache-control"), "no-store");
        assert!(answer.header("content-security-policy").contains("default-src 'none'"));
        assert!(answer.header("server-timing").starts_with("total;dur="), "{path}");
    }
    assert!(
        world
            .get("/agents", &token)
            .await
            .header("server-timing")
            .contains("queries;desc=\"4\", rows;")
    );
}

#[tokio::test]
async fn navigations_get_the_page_and_clients_get_the_api() {
    let page = axum::Router::new().fallback(|uri: axum::http::Uri| async move {
        match uri.path() {
            "/assets/x.js" | "/" | "/agents" => (StatusCode::OK, "the page"),
            _ => (StatusCode::NOT_FOUND, ""),
        }
    });
    let world = world_with(|options| options.page = Some(page));
    let html = [("accept", "text/html,application/xhtml+xml,*/*;q=0.8")];
    for path in ["/", "/agents"] {
        let answer = world.send("GET", path, &html, Body::empty()).await;
        assert_eq!((answer.status, answer.body.as_slice()), (StatusCode::OK, &b"the page"[..]));
        assert_eq!(answer.header("server"), "Holdfast");
    }
    let asset = world.send("GET", "/assets/x.js", &[], Body::empty()).await;
    assert_eq!(asset.status, StatusCode::OK);
    let missing = world.send("GET", "/assets/y.js", &[], Body::empty()).await;
    assert_eq!(missing.json()["detail"], "404: Not Found");
    let api = world.send("GET", "/", &[("accept", "application/json")], Body::empty()).await;
    assert_eq!(api.status, StatusCode::UNAUTHORIZED);
    let token = world.admin().await;
    let info = world.ok("/", &token).await;
    assert_eq!(info["data"]["hostname"], "server-host");
    assert_eq!(info["data"]["timestamp"], "2026-11-21T18:52:02Z");
}

/// Another program holds the write lock of the registry's database, which the operation needs.
#[tokio::test]
async fn slow_request_times_out_without_wait_for_complete() {
    const TIME: Duration = Duration::from_millis(50);
    let world = world_with(|options| options.request_timeout_ms = TIME.as_millis() as u64);
    let create = async |group: &str, more: &str| {
        let headers = [("content-type", "application/json")];
        let body = json!({"group_id": group}).to_string();
        let local = Some(Source::Unix { uid: 0 });
        world.send_from(local, "POST", &format!("/groups{more}"), &headers, body).await
    };
    let other = rusqlite::Connection::open(world.folder.path().join("registry.db")).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let given_up = create("late", "").await;
    assert_eq!(given_up.status, StatusCode::INTERNAL_SERVER_ERROR);
    assert_eq!(given_up.json()["error"], 3021, "{}", given_up.json());
    let (waited, ()) = tokio::join!(create("patient", "?wait_for_complete=true"), async {
        tokio::time::sleep(TIME * 4).await;
        other.execute_batch("COMMIT").unwrap();
    });
    assert_eq!(waited.status, StatusCode::OK, "{}", waited.json());
    // The operation was completed nevertheless, and has its row in the audit log.
    while !world
        .registry
        .groups(&Reader::server())
        .unwrap()
        .iter()
        .any(|group| group.name == "late")
    {
        tokio::task::yield_now().await;
    }
}

/// One hashing thread, one place in its queue, and more requests that need a password hashed.
#[tokio::test]
async fn overload_answer_says_when_to_retry() {
    let options = RegistryOptions {
        login_workers: 1,
        login_queue_max: 1,
        hash_cost: HashCost { memory_kib: 64 * 1024, passes: 4, lanes: 1 },
        ..cheap_logins()
    };
    let world = Arc::new(world_of(options, |_| {}));
    let create = |n: usize| {
        let world = Arc::clone(&world);
        tokio::spawn(async move {
            let user = json!({"username": format!("user-{n}"), "password": "New-Password-1"});
            let headers = [("content-type", "application/json")];
            let local = Some(Source::Unix { uid: 0 });
            let body = user.to_string();
            world.send_from(local, "POST", "/security/users", &headers, body).await
        })
    };
    let asked: Vec<_> = (0..8).map(create).collect();
    let mut answers = Vec::new();
    for answer in asked {
        answers.push(answer.await.unwrap());
    }
    let (done, busy): (Vec<_>, Vec<_>) =
        answers.into_iter().partition(|answer| answer.status == StatusCode::OK);
    assert!(!done.is_empty() && !busy.is_empty(), "{} done", done.len());
    let log = world.registry.audit_log(&Reader::server(), None, 100).unwrap();
    let rows = |outcome| log.iter().filter(|row| row.outcome == outcome).count();
    assert_eq!(rows(registry::AuditOutcome::Failed), busy.len());
    for answer in busy {
        assert_eq!(answer.status, StatusCode::SERVICE_UNAVAILABLE, "{}", answer.json());
        assert_eq!((&answer.json()["error"], answer.header("retry-after")), (&json!(1017), "1"));
    }
}
