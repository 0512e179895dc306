//! Enrolment over the wire, renewal, revocation.

use std::fs;
use std::sync::Arc;
use std::time::Duration;

use crate::common::{Agent, Server, files};
use env::clock::{Clock as _, SystemClock};
use registry::{Reader, WriteContext};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use sync::{IdentityFolder, SyncError, enroll};

#[tokio::test(flavor = "multi_thread")]
async fn token_enrolment_yields_a_working_identity() {
    let server = Server::start().await;
    let mut agent = server.agent("web").await;
    let identity = IdentityFolder::new(agent.folder.path()).load().unwrap().unwrap();
    assert_eq!((identity.id, identity.name.as_str()), (agent.id, "web"));
    assert_eq!(identity.cluster_name, "holdfast");
    let ca = fs::read_to_string(agent.folder.path().join("ca.pem")).unwrap();
    assert_eq!(ca, server.registry().ca_pem());
    agent.write("/etc/a", 1);
    assert_eq!(agent.cycle().await.documents, 1);
    assert_eq!(server.stored_checksums(&agent), agent.expected());
}

#[tokio::test(flavor = "multi_thread")]
async fn token_of_another_server_is_not_sent() {
    let server = Server::start().await;
    let other = Server::start().await;
    let folder = tempfile::tempdir().unwrap();
    // The forged token has the secret of this server's token. If it were sent, the token would be
    // used up.
    let token = server.token(1);
    let secret = token.split('.').nth(1).unwrap();
    let forged = format!("hf1.{secret}.{}", other.registry().ca_fingerprint());
    let error = enroll(&server.enrolment(&forged, "web", folder.path())).await.unwrap_err();
    assert!(matches!(error, SyncError::Token(_)), "{error}");
    assert!(!error.is_transient());
    assert!(error.to_string().contains("is not the server"), "{error}");
    assert!(!folder.path().join("agent.json").exists());
    assert_eq!(
        server.registry().enrolment_tokens(&Reader::server()).unwrap().len(),
        1,
        "the token is untouched"
    );
    // The token still works.
    enroll(&server.enrolment(&token, "web", folder.path())).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn used_up_enrolment_token_is_refused() {
    let server = Server::start().await;
    let token = server.token(1);
    let (first, second) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    enroll(&server.enrolment(&token, "one", first.path())).await.unwrap();
    let error = enroll(&server.enrolment(&token, "two", second.path())).await.unwrap_err();
    assert!(matches!(error, SyncError::Refused { .. }), "{error}");
    assert!(error.to_string().contains("token"), "{error}");
    assert!(!second.path().join("agent.json").exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn heartbeat_renews_certificate_and_old_one_is_superseded() {
    let now_us = SystemClock::new().now_us();
    let days = |n: u64| Duration::from_secs(n * 24 * 3600);
    let server = Server::start_at(now_us - days(250).as_micros() as u64).await;
    let mut agent = server.agent("web").await;
    let path = agent.folder.path().join("cert.pem");
    let old = fs::read(&path).unwrap();
    assert!(!agent.beat().await.renew);
    assert_eq!(fs::read(&path).unwrap(), old);

    server.clock.jump_to(now_us);
    assert!(agent.beat().await.renew, "two thirds of its life are over");
    let new = fs::read(&path).unwrap();
    assert_ne!(new, old);
    assert!(!agent.beat().await.renew);
    agent.write("/etc/a", 1);
    agent.cycle().await;
    let old = CertificateDer::from_pem_slice(&old).unwrap();
    let refusal = server.registry().identify(&old).unwrap_err();
    assert_eq!(refusal, registry::IdentityError::Superseded);

    // A restart finds the new pair.
    let mut agent = agent.restart();
    agent.write("/etc/b", 2);
    agent.cycle().await;
    assert_eq!(server.stored_checksums(&agent), agent.expected());
}

/// Returns the certificate that the server presents to a new connection, DER.
async fn shown_certificate(server: &Server) -> Vec<u8> {
    let (url, ca) = (server.proxy.url(), server.registry().ca_pem());
    let ask = move || {
        let mut roots = rustls::RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(ca.as_bytes()).unwrap()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = rustls::ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        let name = "127.0.0.1".try_into().unwrap();
        let mut tls = rustls::ClientConnection::new(Arc::new(config), name).unwrap();
        let address = url.strip_prefix("https://").unwrap();
        let mut tcp = std::net::TcpStream::connect(address).unwrap();
        while tls.is_handshaking() {
            tls.complete_io(&mut tcp).unwrap();
        }
        tls.peer_certificates().unwrap()[0].to_vec()
    };
    tokio::task::spawn_blocking(ask).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn server_renews_its_certificate_without_dropping_connections() {
    let now_us = SystemClock::new().now_us();
    let days = |n: u64| Duration::from_secs(n * 24 * 3600);
    let server = Server::start_at(now_us - days(266).as_micros() as u64).await;
    let mut agent = server.agent("web").await;
    agent.write("/etc/a", 1);
    agent.cycle().await;
    let shown = async || shown_certificate(&server).await;
    let old = shown().await;
    assert_eq!(shown().await, old);
    server.clock.jump_to(now_us);
    let connections = server.proxy.connections();
    agent.write("/etc/b", 2);
    agent.cycle().await;
    assert_eq!(server.proxy.connections(), connections, "the connection went on");
    let new = shown().await;
    assert_ne!(new, old);
    assert_eq!(shown().await, new);
    server.cut_connections();
    agent.write("/etc/c", 3);
    while agent.syncer.cycle(&files()).await.is_err() {}
    assert_eq!(server.stored_checksums(&agent), agent.expected());
}

#[tokio::test(flavor = "multi_thread")]
async fn revoked_agent_is_refused_and_keeps_its_queue() {
    let server = Server::start().await;
    let mut agent = server.agent("web").await;
    agent.base("/etc", 3);
    agent.cycle().await;
    server.registry().revoke(&WriteContext::server(), agent.id).unwrap();
    agent.write("/etc/new", 9);
    let error = agent.failing_cycle().await;
    assert!(matches!(error, SyncError::Refused { .. }), "{error}");
    assert!(error.to_string().contains("revoked"), "{error}");
    assert!(!error.is_transient());
    assert_eq!((agent.pending(), agent.events()), (1, 1));

    // After enrolling again as another agent, everything is reported, and the old history is kept.
    let folder = agent.folder.path().to_owned();
    let identity = enroll(&server.enrolment(&server.token(1), "web-2", &folder)).await.unwrap();
    assert_ne!(identity.id, agent.id);
    let old = agent.id;
    let mut agent = agent.restart();
    agent.id = identity.id;
    agent.beat().await;
    agent.repair().await;
    assert_eq!(server.stored_checksums(&agent), agent.expected());
    assert_eq!(server.history(&agent).len(), 1);
    assert_eq!(server.documents(old, files()).len(), 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn failed_renewal_is_retried_with_backoff() {
    let now_us = SystemClock::new().now_us();
    let days = |n: u64| Duration::from_secs(n * 24 * 3600);
    let server = Server::start_at(now_us - days(250).as_micros() as u64).await;
    let agent = server.agent("web").await;
    server.clock.jump_to(now_us);
    // The new key cannot be written.
    let obstacle = agent.folder.path().join("key.next.pem.new");
    fs::create_dir(&obstacle).unwrap();
    fs::write(obstacle.join("x"), b"").unwrap();
    let requests_of_a_beat = async || {
        let before = server.requests();
        assert!(agent.beat().await.renew);
        server.requests() - before
    };
    assert_eq!(requests_of_a_beat().await, 2, "a heartbeat and a renewal");
    for _ in 0..5 {
        assert_eq!(requests_of_a_beat().await, 1);
    }
    agent.clock.advance(Duration::from_secs(61));
    assert_eq!(requests_of_a_beat().await, 2);
    agent.clock.advance(Duration::from_secs(59));
    assert_eq!(requests_of_a_beat().await, 1, "twice as long by now");
    fs::remove_dir_all(&obstacle).unwrap();
    agent.clock.advance(Duration::from_secs(62));
    assert_eq!(requests_of_a_beat().await, 3, "and one that shows the new certificate");
    assert!(!agent.beat().await.renew, "renewed");
}

/// Returns an agent with a renewed pair that has not been used yet, and its present certificate.
async fn with_next(server: &Server) -> (Agent, Vec<u8>) {
    let agent = server.agent("web").await;
    let folder = agent.folder.path();
    let present = fs::read(folder.join("cert.pem")).unwrap();
    // The pair was requested over the present one and stored, but not used yet.
    let key = rcgen::KeyPair::generate().unwrap();
    let csr = rcgen::CertificateParams::default().serialize_request(&key).unwrap().pem().unwrap();
    let renewed = server.registry().renew(agent.id, &csr).unwrap();
    fs::write(folder.join("key.next.pem"), key.serialize_pem()).unwrap();
    fs::write(folder.join("cert.next.pem"), renewed.certificate_pem).unwrap();
    (agent, present)
}

#[tokio::test(flavor = "multi_thread")]
async fn answered_heartbeat_installs_renewed_pair() {
    let now_us = SystemClock::new().now_us();
    let server = Server::start_at(now_us).await;
    let (agent, present) = with_next(&server).await;
    let path = agent.folder.path().join("cert.pem");
    assert_eq!(fs::read(&path).unwrap(), present, "kept until the new one is answered");
    agent.beat().await;
    assert_ne!(fs::read(&path).unwrap(), present);
    assert!(!agent.folder.path().join("cert.next.pem").exists());
    agent.cycle().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn refused_renewed_pair_is_deleted_and_present_one_kept() {
    let now_us = SystemClock::new().now_us();
    let server = Server::start_at(now_us).await;
    let stranger = Server::start_at(now_us).await;
    let (agent, present) = with_next(&server).await;
    let (other, _) = with_next(&stranger).await;
    for name in ["key.next.pem", "cert.next.pem"] {
        fs::copy(other.folder.path().join(name), agent.folder.path().join(name)).unwrap();
    }
    agent.beat().await;
    assert_eq!(fs::read(agent.folder.path().join("cert.pem")).unwrap(), present);
    assert!(!agent.folder.path().join("cert.next.pem").exists());
    agent.cycle().await;
}

/// The renewed pair is kept until an answer to the present pair proves that the server never saw
/// it.
#[tokio::test(flavor = "multi_thread")]
async fn unreadable_renewed_pair_is_kept_while_server_is_down() {
    let server = Server::start_at(SystemClock::new().now_us()).await;
    let (agent, present) = with_next(&server).await;
    let next = agent.folder.path().join("cert.next.pem");
    let key = agent.folder.path().join("key.next.pem");
    let kept = fs::read(&key).unwrap();
    fs::write(&key, "damaged").unwrap();
    server.proxy.lead_to(None);
    agent.failing_cycle().await;
    assert!(next.exists());
    server.cut_connections();
    fs::write(&key, kept).unwrap();
    agent.beat().await;
    assert!(!next.exists());
    assert_ne!(fs::read(agent.folder.path().join("cert.pem")).unwrap(), present);
}

#[tokio::test(flavor = "multi_thread")]
async fn certificate_issued_by_fast_clock_works_after_correction() {
    let now_us = SystemClock::new().now_us();
    let server = Server::start_at(now_us).await;
    let mut agent = server.agent("web").await;
    server.clock.jump_to(now_us + Duration::from_hours(300 * 24).as_micros() as u64);
    let path = agent.folder.path().join("cert.pem");
    let before = fs::read(&path).unwrap();
    agent.beat().await;
    assert_ne!(fs::read(&path).unwrap(), before, "renewed: two thirds of its life are over");
    server.clock.jump_to(now_us);
    agent.write("/etc/a", 1);
    agent.beat().await;
    agent.cycle().await;
    assert_eq!(server.stored_checksums(&agent), agent.expected());
}
