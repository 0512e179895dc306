//! Identity: certificates, tokens, and the sender named in a session.

use crate::common::{Server, client, delta, document, event, request};
use link::{ControlAction, ControlAnswer, ControlOutcome, ControlRequest};
use model::{AgentId, AgentOs, AgentStatus};
use registry::{CommandKind, Reader, TokenTerms, WriteContext};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

#[tokio::test(flavor = "multi_thread")]
async fn enrolled_agent_starts_and_its_session_is_stored() {
    let server = Server::start();
    let agent = server.enroll("web").await.with_instance();
    assert_eq!(agent.id, AgentId(1));

    let request = ControlRequest {
        action: ControlAction::Startup,
        version: "Holdfast v0.1.0".into(),
        hostname: "web-1".into(),
        os: AgentOs { platform: "debian".into(), ..AgentOs::default() },
        ..ControlRequest::default()
    };
    let answer: ControlAnswer = agent.json("/control", &request).await;
    assert_eq!((answer.agent.id.as_str(), answer.agent.name.as_str()), ("001", "web"));
    assert_eq!(answer.cluster_name, "holdfast");
    assert_eq!(answer.store, server.state.store_id());
    assert_eq!(answer.last_session, None);
    assert!(answer.datasets.iter().any(|d| d == "holdfast-events"));
    assert_eq!(answer.limits.session_bytes_max, 20 * 1024 * 1024);
    assert!(!answer.renew && answer.commands.is_empty());

    let session = agent.delta(vec![document("a", 5, 'a'), document("b", 6, 'b'), event("e-1")]);
    let answered = agent.named("/stateful", "fim-77", link::encode(&session)).await;
    assert_eq!(answered.status, 200, "{}", answered.text());
    let json = answered.json();
    assert_eq!(json["status"], "ok");
    assert_eq!(json["store"], server.state.store_id());
    assert_eq!(json["session"], "fim-77");
    assert!(json.get("noop").is_none() && json.get("skipped").is_none(), "{json}");

    let stored = server.documents(agent.id);
    let ids: Vec<_> = stored.iter().map(|d| (d.id.as_str(), d.version)).collect();
    assert_eq!(ids, [("a", 5), ("b", 6)]);
    assert_eq!(server.state.counts(&Reader::server()).unwrap().events, 1);
    assert_eq!(
        server.state.last_session(&Reader::server(), agent.id).unwrap().as_deref(),
        Some("fim-77")
    );

    let notify = ControlRequest { action: ControlAction::Notify, ..request };
    let answer: ControlAnswer = agent.json("/control", &notify).await;
    assert_eq!(answer.last_session.as_deref(), Some("fim-77"));
    let record = server.registry.agent(agent.id).unwrap();
    assert_eq!(record.status, AgentStatus::Active);
    assert_eq!(record.ip.as_deref(), Some("127.0.0.1"));
    assert_eq!(record.os.unwrap().platform, "debian");
    let goodbye = ControlRequest { action: ControlAction::Shutdown, ..ControlRequest::default() };
    let _: ControlAnswer = agent.json("/control", &goodbye).await;
    assert_eq!(server.registry.agent(agent.id).unwrap().status, AgentStatus::Disconnected);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn commands_are_sent_on_heartbeat_and_outcomes_are_recorded() {
    let server = Server::start();
    let agent = server.enroll("web").await;
    let id = server
        .registry
        .create_command(&WriteContext::server(), CommandKind::Rescan, &[agent.id], "admin")
        .unwrap();
    let beat = ControlRequest::default();
    let answer: ControlAnswer = agent.json("/control", &beat).await;
    let commands: Vec<_> = answer.commands.iter().map(|c| (c.id, c.kind.as_str())).collect();
    assert_eq!(commands, [(id, "rescan")]);
    let outcome = ControlOutcome { id, outcome: "done".into(), detail: "3 changes".into() };
    let beat = ControlRequest { outcomes: vec![outcome], ..ControlRequest::default() };
    let answer: ControlAnswer = agent.json("/control", &beat).await;
    assert!(answer.commands.is_empty());
    server.registry.flush().unwrap();
    let counts = server.registry.command(&Reader::server(), id).unwrap().unwrap().counts;
    assert_eq!((counts.acknowledged, counts.total), (1, 1));
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn session_for_another_agent_is_rejected() {
    let server = Server::start();
    let (a, b) = (server.enroll("a-1").await, server.enroll("b-1").await);
    let answered = a.send(&delta(b.id, vec![document("x", 1, 'a')])).await;
    assert_eq!((answered.status, answered.error().as_str()), (403, "identity_mismatch"));
    assert!(server.documents(a.id).is_empty() && server.documents(b.id).is_empty());
    let mut foreign = a.delta(vec![document("x", 1, 'a')]);
    foreign.start.cluster_name = "elsewhere".into();
    assert_eq!(a.send(&foreign).await.status, 403);
    foreign.start.cluster_name.clear();
    assert_eq!(a.send(&foreign).await.status, 400);
    // The header of the unix socket is ignored over TLS.
    let body = link::encode(&delta(b.id, vec![document("x", 1, 'a')]));
    let request = a.http.post(server.url("/stateful")).header("x-wazuh-agent-id", b.id.to_string());
    assert_eq!(request.body(body).send().await.unwrap().status(), 403);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn client_without_certificate_reaches_only_enrol_and_banner() {
    let server = Server::start();
    let anonymous = client(server.tls(None));
    for route in ["/stateful", "/control", "/renew", "/digest", "/stats", "/config"] {
        let answer = anonymous.post(server.url(route)).body("{}").send().await.unwrap();
        assert_eq!(answer.status(), 401, "{route}");
    }
    let answer = anonymous.get(server.url("/")).send().await.unwrap();
    assert_eq!(answer.status(), 200);
    assert_eq!(answer.json::<serde_json::Value>().await.unwrap()["name"], "holdfast");
    assert_eq!(anonymous.get(server.url("/metrics")).send().await.unwrap().status(), 403);
    assert_eq!(anonymous.delete(server.url("/agents")).send().await.unwrap().status(), 403);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn revoked_certificate_is_refused_on_its_open_connection() {
    let server = Server::start();
    let agent = server.enroll("web").await;
    assert_eq!(agent.send(&agent.delta(vec![document("a", 1, 'a')])).await.status, 200);
    assert_eq!(server.registry.revoke(&WriteContext::server(), agent.id).unwrap(), 1);
    let answered = agent.send(&agent.delta(vec![document("b", 2, 'b')])).await;
    assert_eq!((answered.status, answered.error().as_str()), (401, "certificate_revoked"));
    assert_eq!(server.documents(agent.id).len(), 1);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn certificate_of_another_authority_fails_the_handshake() {
    let server = Server::start();
    let agent = server.enroll("web").await;
    let (key, params) =
        (rcgen::KeyPair::generate().unwrap(), rcgen::CertificateParams::new(vec!["x".into()]));
    let own = params.unwrap().self_signed(&key).unwrap().pem();
    let stranger = client(server.tls(Some((&own, &key.serialize_pem()))));
    assert!(stranger.post(server.url("/stateful")).body("x").send().await.is_err());
    server.until("the handshake failed", |s| s.counter("sync.handshakes.failed") > 0).await;
    assert_eq!(agent.send(&agent.delta(vec![document("a", 1, 'a')])).await.status, 200);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn first_use_of_renewed_certificate_supersedes_the_old_one() {
    let server = Server::start();
    let old = server.enroll("web").await;
    let (csr, key) = request();
    let answer: link::RenewAnswer = old.json("/renew", &link::RenewRequest { csr }).await;
    let beat = ControlRequest::default();
    let _: ControlAnswer = old.json("/control", &beat).await;
    let new = server.agent(old.id, answer.certificate, key);
    let _: ControlAnswer = new.json("/control", &beat).await;
    let answered = old.post("/control", b"{}".to_vec()).await;
    assert_eq!((answered.status, answered.error().as_str()), (401, "certificate_superseded"));
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn failed_enrolment_returns_a_status_for_its_cause() {
    let server = Server::start();
    server.enroll("taken").await;
    let anonymous = client(server.tls(None));
    let token = || {
        server
            .registry
            .create_enrolment_token(&WriteContext::server(), &TokenTerms::new(1, 600))
            .unwrap()
    };
    let used = token();
    let ask = async |token: String, name: &str, csr: String| {
        let body = link::EnrollRequest { token, name: name.into(), csr, ..Default::default() };
        let answer = anonymous.post(server.url("/enroll")).json(&body).send().await.unwrap();
        answer.status().as_u16()
    };
    assert_eq!(ask("hf1.x.y".into(), "one", request().0).await, 403);
    for taken in ["taken", "Taken", "000"] {
        assert_eq!(ask(token(), taken, request().0).await, 409, "{taken}");
    }
    // The test runs on the server's host, whose agent may have the host's name.
    let host = server.registry.agent(AgentId::SERVER).unwrap().name;
    assert_eq!(ask(token(), &host, request().0).await, 200, "{host}");
    assert_eq!(ask(token(), "bad name", request().0).await, 400);
    assert_eq!(ask(token(), "two", "not a request".into()).await, 400);
    assert_eq!(ask(used.clone(), "three", request().0).await, 200);
    assert_eq!(ask(used, "four", request().0).await, 403, "a token used up");
    let answer = anonymous.post(server.url("/enroll")).body("{").send().await.unwrap();
    assert_eq!(answer.status(), 400);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn plain_http_on_the_tls_port_is_answered_in_words() {
    let server = Server::start();
    let mut stream =
        tokio::net::TcpStream::connect(server.handle.local_addr().unwrap()).await.unwrap();
    stream.write_all(b"GET /control HTTP/1.1\r\nHost: x\r\n\r\n").await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 400 ") && answer.contains("https://"), "{answer:?}");
    server.stop().await;
}
