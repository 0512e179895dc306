//! A disk that fails a flush of `registry.db`, under a real server.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use device::{DiskFault, FaultError, FaultyFolder, FaultyRequest};

use crate::common::series::request;
use crate::common::{Api, Running, eventually, folder};

fn start(base: &Path, words: &[&str]) -> Running {
    let config = base.join("server.toml");
    let server = ["server", "--config", config.to_str().unwrap()];
    let server = Running::start(&[&server, words].concat(), &base.join("server.log"));
    server.line("ready: ");
    server
}

/// Returns what `/readyz` answers.
fn ready(api: &Api) -> (u16, String) {
    api.send("GET", "/readyz", "application/json", "")
}

fn create_group(api: &Api, name: &str) -> u16 {
    let body = format!("{{\"group_id\": \"{name}\"}}");
    api.send("POST", "/groups", "application/json", &body).0
}

/// Creates groups until one is refused, as the database is flushed now and then only: each decision is
/// flushed in the journal. Returns the number created.
fn until_refused(api: &Api, prefix: &str) -> usize {
    let refused = (0..5_000).find(|n| create_group(api, &format!("{prefix}{n}")) != 200);
    refused.expect("no flush has failed")
}

#[test]
fn failed_flush_of_the_registry_is_reported_and_ends_the_server() {
    let Some(faulty) = device::or_skip(FaultyFolder::new()) else { return };
    let base = folder("registry-failure");
    let data = base.join("data");
    fs::create_dir_all(&data).unwrap();
    // Only the registry is on the failing disk, so that the next flush there is its own.
    symlink(faulty.path().join("registry.db"), data.join("registry.db")).unwrap();
    let config = format!(
        "data = {data:?}\n[api]\nlisten = \"127.0.0.1:0\"\nplain_http = true\n[agents]\n\
         listen = \"127.0.0.1:0\"\n"
    );
    fs::write(base.join("server.toml"), config).unwrap();
    let fault = DiskFault {
        request: FaultyRequest::Flush,
        number: 1,
        error: FaultError::Io,
        lasting: false,
    };

    let server = start(&base, &[]);
    let api = Api::of(&data);
    assert_eq!((create_group(&api, "before"), ready(&api).0), (200, 200));
    faulty.fail(fault);
    let made = until_refused(&api, "before-");
    assert_eq!(create_group(&api, "later"), 503, "until the restart");
    let (status, text) = ready(&api);
    assert_eq!(status, 503, "{text}");
    assert!(text.starts_with("registry_failed\nregistry_failed since "), "{text}");
    assert!(text.contains("start the server again"), "{text}");
    let page = server.line("page: http://");
    let address = page.trim_end_matches('/').parse().unwrap();
    eventually("the metric", || {
        let text = request("GET", address, "/metrics", &[], b"").unwrap().2;
        if text.contains("\nholdfast_registry_failed 1\n") { Ok(()) } else { Err(text) }
    });
    assert_eq!(server.stop(), 0);

    // After a restart everything works. With the option, a failure ends the server.
    let mut server = start(&base, &["--exit-on-failure"]);
    let api = Api::of(&data);
    assert_eq!((create_group(&api, "after"), ready(&api)), (200, (200, "ok\n".to_owned())));
    let groups = api.all("/groups").len();
    assert_eq!(groups, made + 3, "each answered decision is there: the journal had it");
    faulty.fail(fault);
    until_refused(&api, "after-");
    assert_eq!(server.wait(), 3);
}
