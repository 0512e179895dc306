//! The messages that the real program sends to the service manager over a real socket.

use std::fs;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::sync::mpsc::{Receiver, channel};

use crate::common::deployment::Deployment;
use crate::common::mounted::folder_to_watch;
use crate::common::{PATIENCE, Running, eventually, folder, run};

/// Returns a receiver of the messages. A thread reads the socket at once, because the kernel queues
/// only a few and the program drops those that do not fit.
fn listen(path: &Path) -> Receiver<String> {
    let socket = UnixDatagram::bind(path).unwrap();
    let (heard, words) = channel();
    let mut bytes = [0; 256];
    std::thread::spawn(move || {
        while let Ok(n) = socket.recv(&mut bytes) {
            let word = String::from_utf8(bytes[..n].to_vec()).unwrap();
            if heard.send(word).is_err() {
                break;
            }
        }
    });
    words
}

fn next(words: &Receiver<String>) -> String {
    words.recv_timeout(PATIENCE).unwrap()
}

/// Asserts that the program sends ready once it serves, then watchdog messages, then stopping, and
/// nothing else.
fn tells(words: &[&str], home: &Path) {
    let path = home.join("notify.sock");
    let told = listen(&path);
    let mut running = Running::start_with(
        words,
        &home.join("log"),
        &[("NOTIFY_SOCKET", path.to_str().unwrap()), ("WATCHDOG_USEC", "200000")],
    );
    assert_eq!(next(&told), "READY=1");
    running.line("ready: ");
    for _ in 0..3 {
        assert_eq!(next(&told), "WATCHDOG=1");
    }
    running.signal("TERM");
    let last = loop {
        match next(&told) {
            alive if alive == "WATCHDOG=1" => {}
            other => break other,
        }
    };
    assert_eq!(last, "STOPPING=1");
    assert_eq!(running.wait(), 0);
}

#[test]
fn server_notifies_ready_watchdog_and_stopping() {
    let home = folder("notify-server");
    let config = home.join("server.toml");
    fs::write(
        &config,
        format!(
            "data = {:?}\n[api]\nlisten = \"127.0.0.1:0\"\nplain_http = true\n\
             [agents]\nlisten = \"127.0.0.1:0\"\n",
            home.join("data")
        ),
    )
    .unwrap();
    tells(&["server", "--config", config.to_str().unwrap()], &home);
}

#[test]
fn up_notifies_ready_watchdog_and_stopping() {
    let home = folder("notify-up");
    let (data, tree) = (home.join("data"), folder_to_watch(home.join("tree")));
    tells(
        &[
            "up",
            "--data",
            data.to_str().unwrap(),
            "--watch",
            tree.to_str().unwrap(),
            "--api",
            "127.0.0.1:0",
            "--agents",
            "127.0.0.1:0",
            "--plain-http",
        ],
        &home,
    );
}

/// The dropped table is an error of the state that lasts.
#[test]
fn server_with_a_failed_state_exits_with_3() {
    let home = folder("notify-failed");
    let (data, path) = (home.join("data"), home.join("notify.sock"));
    let tree = folder_to_watch(home.join("tree"));
    let told = listen(&path);
    let words = [
        "up",
        "--data",
        data.to_str().unwrap(),
        "--watch",
        tree.to_str().unwrap(),
        "--api",
        "127.0.0.1:0",
        "--agents",
        "127.0.0.1:0",
        "--plain-http",
        "--scan-interval",
        "200ms",
    ];
    let notify = [("NOTIFY_SOCKET", path.to_str().unwrap())];
    let mut running = Running::start_with(&words, &home.join("log"), &notify);
    assert_eq!(next(&told), "READY=1");
    let state = rusqlite::Connection::open(data.join("state.db")).unwrap();
    state.busy_timeout(PATIENCE).unwrap();
    state.execute_batch("DROP TABLE progress").unwrap();
    fs::write(tree.join("new"), b"x").unwrap();
    assert_eq!(next(&told), "STOPPING=1");
    assert_eq!(running.wait(), 3);
}

/// Returns the exit code and the text of `holdfast agent status`.
fn status(deployment: &Deployment) -> (i32, String) {
    let config = deployment.base.join("agent.toml");
    let (code, text, error) = run(&["agent", "status", "--config", config.to_str().unwrap()]);
    (code, text + &error)
}

/// Waits until `holdfast agent status` exits with this code and prints these words.
fn until_status(deployment: &Deployment, wanted: i32, words: &str) {
    eventually("the agent's own view", || match status(deployment) {
        (code, text) if code == wanted && text.contains(words) => Ok(()),
        other => Err(format!("{other:?}")),
    });
}

#[test]
fn agent_is_ready_before_it_connects_and_shows_refusals() {
    let deployment = Deployment::new("notify-agent");
    let (server, _) = deployment.server();
    assert_eq!(deployment.enroll("web").0, 0);
    assert_eq!(server.stop(), 0);
    let path = deployment.base.join("notify.sock");
    let told = listen(&path);
    let config = deployment.base.join("agent.toml");
    let agent = Running::start_with(
        &["agent", "--config", config.to_str().unwrap()],
        &deployment.base.join("agent.log"),
        &[("NOTIFY_SOCKET", path.to_str().unwrap())],
    );
    assert_eq!(next(&told), "READY=1");
    assert_eq!(next(&told), "STATUS=not connected yet");
    until_status(&deployment, 1, "connection: not connected yet: https://");
    let (_server, _) = deployment.server();
    assert!(agent.line("connected: ").contains("agent 001 web to https://127.0.0.1:"));
    assert_eq!(next(&told), "STATUS=connected");
    until_status(&deployment, 0, "agent: 001 web\n");
    let data = deployment.data();
    let (code, _, error) = run(&["agents", "remove", "1", "--data", data.to_str().unwrap()]);
    assert_eq!(code, 0, "{error}");
    until_status(&deployment, 1, "last answer: status 401 at ");
    assert_eq!(agent.stop(), 0);
    let (code, text) = status(&deployment);
    assert!(code == 1 && text.starts_with("the agent does not run: "), "{text}");
}

#[test]
fn removed_agent_is_logged_once_and_says_its_refusal_once() {
    let deployment = Deployment::new("notify-removed");
    let (_server, _) = deployment.server();
    assert_eq!(deployment.enroll("web").0, 0);
    let agent = deployment.agent();
    agent.line("connected: ");
    assert!(agent.printed().iter().all(|line| !line.starts_with("ready")), "not before the answer");
    let data = deployment.data();
    let (code, _, error) = run(&["agents", "remove", "1", "--data", data.to_str().unwrap()]);
    assert_eq!(code, 0, "{error}");
    assert_eq!(agent.stop(), 0);
    for _ in 0..3 {
        let agent = deployment.agent();
        agent.line_with("refused (status 401)");
        let printed = agent.printed();
        let said = printed.iter().filter(|line| line.contains("refused (status")).count();
        assert_eq!(said, 1, "{printed:#?}");
        assert_eq!(agent.stop(), 0);
    }
    let of = |name: &str| fs::read_to_string(deployment.base.join(name)).unwrap();
    let server = of("server.log");
    let refused: Vec<_> = server.lines().filter(|line| line.contains("refused: ")).collect();
    assert_eq!(refused.len(), 1, "{server}");
    let agent = of("agent.log");
    assert!(!agent.contains("refused (status"), "said in the log as well: {agent}");
}
