//! Content of the access log, in a process of its own: a thread's subscriber misses lines while tests
//! on other threads run without one.

use std::io;
use std::sync::{Arc, Mutex};

use crate::common::{ADMIN, basic, world};
use axum::body::Body;
use listener::Source;
use serde_json::Value;
use tracing_subscriber::fmt::MakeWriter;

/// A buffer of the logged lines.
#[derive(Clone, Default)]
struct Collected(Arc<Mutex<Vec<u8>>>);

impl io::Write for Collected {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().map_err(|_| io::Error::other("poisoned"))?.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for Collected {
    type Writer = Self;

    fn make_writer(&'a self) -> Self {
        self.clone()
    }
}

#[test]
fn access_log_has_users_and_requests_without_secrets() {
    let done = needs::own_process(module_path!(), "log_requests").output().unwrap();
    let said = String::from_utf8_lossy(&done.stdout);
    assert!(done.status.success() && said.contains("1 passed"), "{said}");
}

#[tokio::test]
#[ignore = "run by the test before"]
async fn log_requests() {
    let log = Collected::default();
    let subscriber = tracing_subscriber::fmt().json().with_writer(log.clone()).finish();
    let _guard = tracing::subscriber::set_default(subscriber);
    let world = world();
    let header = basic("admin", ADMIN);
    let peer = Some(Source::Tcp("192.0.2.9:4000".parse().unwrap()));
    let login = "/security/user/authenticate?raw=true";
    let headers = [("authorization", header.as_str())];
    let answer = world.send_from(peer, "POST", login, &headers, Body::empty()).await;
    let token = String::from_utf8(answer.body).unwrap();
    let bearer = format!("Bearer {token}");
    let headers = [("authorization", bearer.as_str()), ("content-type", "application/json")];
    let body = format!("{{\"current_password\":\"{ADMIN}\",\"password\":\"New-Secret-77\"}}");
    world.send_from(peer, "PUT", "/security/users/me/password", &headers, body).await;
    world.send_from(peer, "GET", "/agents?search=a%0Ab&limit=1", &headers, Body::empty()).await;
    let text = String::from_utf8(log.0.lock().unwrap().clone()).unwrap();
    for secret in [ADMIN, "New-Secret-77", &token, &header[6..]] {
        assert!(!text.contains(secret), "{secret} is in the log:\n{text}");
    }
    let lines: Vec<Value> = text
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap())
        .filter(|line| line["target"] == "access")
        .collect();
    assert_eq!(lines.len(), 3);
    let fields = |at: usize, name: &str| lines[at]["fields"][name].clone();
    assert_eq!(fields(1, "user"), "admin");
    assert_eq!(fields(1, "source"), "192.0.2.9");
    assert_eq!(fields(1, "method"), "PUT");
    assert_eq!(fields(1, "path"), "/security/users/me/password");
    assert_eq!(fields(1, "body"), r#"{"current_password":"****","password":"****"}"#);
    assert_eq!(fields(1, "status"), 200);
    // The password change ended the session, so the third request has no user.
    assert_eq!(fields(2, "user"), "-");
    assert_eq!(fields(2, "status"), 401);
}
