//! A token is verified by its signature alone: a second server process with the same keys accepts
//! it without contacting the server that issued it.

use std::fs;
use std::path::Path;

use crate::common::{Running, folder, run};
use reqwest::Method;

const PASSWORD: &str = "Two-Servers-22";

fn start(home: &Path, name: &str) -> (Running, String) {
    let config = home.join(format!("{name}.toml"));
    let data = home.join(name);
    fs::write(
        &config,
        format!(
            "data = {data:?}\n[api]\nlisten = \"127.0.0.1:0\"\nplain_http = true\n\
             [agents]\nlisten = \"127.0.0.1:0\"\n"
        ),
    )
    .unwrap();
    let words = ["server", "--config", config.to_str().unwrap()];
    let log = home.join(format!("{name}.log"));
    let running = Running::start_with(&words, &log, &[("HOLDFAST_ADMIN_PASSWORD", PASSWORD)]);
    let url = running.line("ready: ");
    (running, url)
}

/// Sends one request over a new connection. Returns its status and text.
fn send_request(
    method: Method,
    url: &str,
    authorize: impl FnOnce(reqwest::RequestBuilder) -> reqwest::RequestBuilder,
) -> (u16, String) {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let request = authorize(reqwest::Client::new().request(method, url));
        let answer = request.send().await.unwrap();
        (answer.status().as_u16(), answer.text().await.unwrap())
    })
}

#[test]
fn token_is_valid_at_a_second_server_with_the_same_keys() {
    let home = folder("two-servers");
    let (first, first_url) = start(&home, "first");
    let path = |name: &str| home.join(name).to_str().unwrap().to_owned();
    let (code, _, error) = run(&["backup", "--data", &path("first"), "--to", &path("copy")]);
    assert_eq!(code, 0, "{error}");
    let (code, _, error) = run(&["restore", "--from", &path("copy"), "--data", &path("second")]);
    assert_eq!(code, 0, "{error}");
    // A restore revokes the tokens that were issued before it, so the restored server issues this one.
    let (second, second_url) = start(&home, "second");
    let login = format!("{second_url}security/user/authenticate?raw=true");
    let (status, token) =
        send_request(Method::POST, &login, |r| r.basic_auth("admin", Some(PASSWORD)));
    assert_eq!(status, 200, "{token}");
    let agents = format!("{first_url}agents");
    let asked = || send_request(Method::GET, &agents, |r| r.bearer_auth(&token)).0;
    assert_eq!(asked(), 200, "while the server that issued it runs");
    second.kill();
    assert_eq!(asked(), 200, "without the server that issued it");

    // With one character of its signature changed, the token must be refused.
    let (body, signature) = token.rsplit_once('.').unwrap();
    let swapped = if signature.starts_with('A') { 'B' } else { 'A' };
    let forged = format!("{body}.{swapped}{}", &signature[1..]);
    assert_eq!(send_request(Method::GET, &agents, |r| r.bearer_auth(&forged)).0, 401);
    let revoke = format!("{first_url}security/user/revoke");
    assert_eq!(send_request(Method::PUT, &revoke, |r| r.bearer_auth(&token)).0, 200);
    assert_eq!(asked(), 401, "after new keys");
    assert_eq!(first.stop(), 0);
}
