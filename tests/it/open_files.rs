//! Servers with a low limit of open files.

use std::fs;
use std::net::TcpStream;

use crate::common::deployment::Deployment;
use crate::common::series::{Alone, send_and_read};
use crate::common::{Api, Running, eventually, folder};

/// Starts the server with a limit of open files.
fn start(deployment: &Deployment, open_files: u32) -> Running {
    let config = deployment.base.join("server.toml");
    let log = deployment.base.join("server.log");
    Running::start_limited(open_files, &["server", "--config", config.to_str().unwrap()], &log)
}

fn log(deployment: &Deployment) -> String {
    fs::read_to_string(deployment.base.join("server.log")).unwrap()
}

#[test]
fn server_with_too_few_open_files_does_not_start() {
    let deployment = Deployment::new("open-files-few");
    let mut server = start(&deployment, 64);
    assert_eq!(server.wait(), 2);
    let log = log(&deployment);
    assert!(log.contains("the limit of open files is 64, at least 256 are needed"), "{log}");
    let series = deployment.base.join("series");
    let words = ["series", "serve", "--data", series.to_str().unwrap()];
    let mut alone = Running::start_limited(64, &words, &deployment.base.join("series.log"));
    assert_eq!(alone.wait(), 2);
    let log = fs::read_to_string(deployment.base.join("series.log")).unwrap();
    assert!(log.contains("at least 256 are needed"), "{log}");
}

#[test]
fn idle_connections_do_not_use_up_the_open_files() {
    let deployment = Deployment::new("open-files-idle");
    let server = start(&deployment, 256);
    let url = server.line("ready: ");
    let api = Api::of(&deployment.data());
    let config = fs::read_to_string(deployment.base.join("agent.toml")).unwrap();
    let agents = config.split("https://").nth(1).unwrap().split('"').next().unwrap().to_owned();
    let page = url.trim_start_matches("http://").trim_end_matches('/');
    let connect = |address: &str| TcpStream::connect(address).unwrap();
    let held: Vec<TcpStream> =
        (0..300).map(|n| connect(if n < 200 { page } else { &agents })).collect();
    for _ in 0..20 {
        api.get("/manager/status");
    }
    // The listener of agents closes connections without a handshake after ten seconds.
    eventually("an agent enrols", || {
        let (code, error) = deployment.enroll("web");
        if code == 0 { Ok(()) } else { Err(error) }
    });
    drop(held);
    let lines = log(&deployment);
    assert!(!lines.contains("os error 24"), "{lines}");
    assert_eq!(lines.matches("fewer connections than configured").count(), 1, "{lines}");
    assert_eq!(server.stop(), 0);
}

#[test]
fn ports_that_cannot_accept_name_the_limit_of_open_files() {
    let base = folder("open-files-ports");
    let data = base.join("data");
    fs::create_dir_all(&data).unwrap();
    let store = Alone::start(&data, &[]);
    // Every further file fails, those that are open stay.
    store.process.limit_open_files(3);
    let _waiting =
        [store.resp, store.opentsdb, store.http].map(|at| TcpStream::connect(at).unwrap());
    let log = || fs::read_to_string(data.with_extension("log")).unwrap();
    for name in ["series resp", "series opentsdb", "api"] {
        eventually("the port reports its failure", || {
            let text = log();
            let line = text.lines().find(|l| l.contains(&format!("{name}: cannot accept")));
            let named = line.is_some_and(|line| line.contains("LimitNOFILE"));
            if named { Ok(()) } else { Err(format!("{name}: {text}")) }
        });
    }
    store.process.limit_open_files(1_024);
    let rows = b"+load host=a\r\n:4000000000000000000\r\n+1.5\r\n+sync\r\n";
    eventually("the port accepts connections", || match send_and_read(store.resp, rows) {
        Some(answer) if answer.ends_with("+OK\r\n") => Ok(()),
        other => Err(format!("{other:?}")),
    });
    assert_eq!(store.process.stop(), 0);
}

#[test]
fn registry_without_open_files_names_the_cause() {
    let deployment = Deployment::new("open-files-registry");
    let server = start(&deployment, 1_024);
    server.line("ready: ");
    assert_eq!(server.stop(), 0);
    let data = deployment.data();
    // Which file is the first that cannot be opened depends on what the program inherits.
    let mut at_registry = 0;
    for limit in 8..=16 {
        let log = deployment.base.join(format!("password-{limit}.log"));
        let words = ["users", "password", "admin", "--data", data.to_str().unwrap()];
        assert_eq!(Running::start_limited(limit, &words, &log).wait(), 2);
        let text = fs::read_to_string(&log).unwrap();
        assert!(text.contains("Too many open files"), "{text}");
        assert!(!text.contains("holdfast restore"), "{text}");
        at_registry += usize::from(text.contains("registry.db"));
    }
    assert!(at_registry > 0, "no limit stopped at registry.db");
}
