//! The command line: help, exit codes, clear errors.

use std::fs;
use std::path::Path;

use crate::common::mounted::folder_to_watch;
use crate::common::{Api, Running, folder, run, run_with};

/// Returns the help of a command and, below it, of its sub-commands, each with its heading.
fn help_of(command: &[&str]) -> String {
    let words = [command, &["--help"]].concat();
    let (code, out, _) = run_with(&words, &[("COLUMNS", "100")]);
    assert_eq!(code, 0, "{command:?}");
    let mut all = format!("$ holdfast {}\n{out}\n", words.join(" "));
    let listed = out.lines().skip_while(|line| *line != "Commands:").skip(1);
    for line in listed.take_while(|line| !line.is_empty()) {
        // A description that goes on in the next line is indented further.
        let name = line.strip_prefix("  ").filter(|rest| !rest.starts_with(' '));
        let name = name.and_then(|rest| rest.split_whitespace().next());
        if let Some(name) = name.filter(|name| *name != "help") {
            all.push_str(&help_of(&[command, &[name]].concat()));
        }
    }
    all
}

#[test]
fn help_texts_equal_the_golden_file() {
    let all = help_of(&[]);
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/help.txt");
    if std::env::var("HOLDFAST_BLESS").is_ok() {
        fs::create_dir_all(golden.parent().unwrap()).unwrap();
        fs::write(&golden, &all).unwrap();
    }
    let agreed = fs::read_to_string(&golden).unwrap();
    assert!(
        agreed == all,
        "the help changed: HOLDFAST_BLESS=1 cargo test --test it cli::, then look"
    );
}

#[test]
fn scan_prints_one_object_per_entry_and_a_summary() {
    let tree = folder("cli-scan");
    fs::write(tree.join("a"), b"abc").unwrap();
    fs::create_dir(tree.join("d")).unwrap();
    let (code, out, error) = run(&["scan", tree.to_str().unwrap(), "--json"]);
    assert_eq!(code, 0, "{error}");
    let lines: Vec<serde_json::Value> =
        out.lines().map(|l| serde_json::from_str(l).unwrap()).collect();
    let (summary, entries) = lines.split_last().unwrap();
    assert_eq!(entries.len(), 3);
    let a = entries.iter().find(|e| e["file"]["name"] == "a").unwrap();
    assert_eq!(
        a["file"]["hash"]["sha256"],
        "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    );
    assert_eq!(summary["summary"]["counts"]["files"], 1);
    assert_eq!(summary["summary"]["counts"]["directories"], 2);
}

#[test]
fn errors_name_their_object_and_exit_with_code_2() {
    let dir = folder("cli-errors");
    let path = |name: &str| dir.join(name).to_str().unwrap().to_owned();
    fs::write(path("bad.toml"), "[scan]\nintervall = \"1h\"\n").unwrap();
    fs::write(path("watch.toml"), "[[watch]]\npath = \"relative\"\n").unwrap();
    fs::write(path("zero.toml"), "[scan]\ninterval = \"0s\"\n").unwrap();
    fs::write(path("same.toml"), "[agents]\nlisten = \"127.0.0.1:55000\"\n").unwrap();
    fs::write(path("ok.toml"), format!("data = {:?}\n", dir.join("agent"))).unwrap();
    let cases: &[(&[&str], &str)] = &[
        (&["scan", "/does/not/exist"], "/does/not/exist"),
        (&["agent", "--config", &path("bad.toml")], "did you mean `interval`?"),
        (&["config", "check", "agent", &path("watch.toml")], "not absolute"),
        (&["agent", "--config", &path("missing.toml")], "missing.toml"),
        (&["agent", "--config", &path("ok.toml")], "not enrolled yet"),
        (&["enroll", "--config", &path("ok.toml"), "--token", "nonsense"], "token"),
        (&["changes", "--data", &path("nothing")], "no server is running"),
        (&["token", "--data", &path("nothing")], "not a data folder"),
        (&["backup", "--data", &path("nothing"), "--to", &path("b")], "not a data folder"),
        (&["users", "password", "admin", "--data", &path("nothing")], "not a data folder"),
        (&["journal", "verify", &path("nothing")], "nothing"),
        (&["up", "--data", &path("d"), "--api", "0.0.0.0:0", "--plain-http"], "loopback"),
        (&["config", "check", "agent", &path("zero.toml")], "scan.interval"),
        (&["config", "check", "server", &path("same.toml")], "choose two"),
        (&["--log", "loud", "config", "default"], "neither a level"),
        (&["agents", "remove", "x", "--data", &path("nothing")], "no server is running"),
        (&["remove", "1", "--data", "d"], "this command is now `holdfast agents remove`"),
        (&["user", "password", "admin"], "this command is now `holdfast users`"),
        (&["rescan"], "<AGENT>..."),
        (&["agents", "--url", "http://fleet.example.org"], "https://HOST:PORT (--url)"),
        (&["agents", "--url", "https://localhost", "--ca", &path("bad.toml")], "no certificate"),
        (&["up", "--watch", "/etc", "--watch", "/etc", "--data", &path("d")], "watched by"),
    ];
    for (words, expected) in cases {
        let (code, out, error) = run(words);
        assert_eq!(code, 2, "{words:?}: {out}{error}");
        assert!(error.contains(expected), "{words:?}: {error}");
        assert!(!error.contains("panicked"), "{words:?}: {error}");
    }
}

/// Runs each command and checks its exit code and words of its output.
fn expect_all(cases: &[(&[&str], i32, &str)]) {
    for (words, expected, text) in cases {
        let (code, out, error) = run(words);
        assert_eq!(code, *expected, "{words:?}: {out}{error}");
        assert!(format!("{out}{error}").contains(text), "{words:?}: {out}{error}");
        assert!(!error.contains("panicked"), "{words:?}: {error}");
    }
}

#[test]
fn commands_refuse_a_folder_of_another_kind() {
    let dir = folder("cli-folders");
    let path = |name: &str| dir.join(name).to_str().unwrap().to_owned();
    // Create an agent's folder, a server's folder without its journal, and a folder of other files.
    for name in ["agent", "server/keys", "home", "empty"] {
        fs::create_dir_all(dir.join(name)).unwrap();
    }
    for name in ["agent/key.pem", "agent/agent.db", "home/thesis.txt", "server/registry.db"] {
        fs::write(dir.join(name), "").unwrap();
    }
    fs::write(path("server.toml"), format!("data = {:?}\n", dir.join("agent"))).unwrap();
    fs::write(path("agent.toml"), format!("data = {:?}\n", dir.join("server"))).unwrap();
    let (agent, server, home) = (path("agent"), path("server"), path("home"));
    let (config, token) = (path("agent.toml"), "hf1.x.y");
    let no_journal = "no journal is here";
    expect_all(&[
        (&["journal", "verify", &home], 2, no_journal),
        (&["journal", "verify", &path("empty")], 2, no_journal),
        (&["journal", "verify", &path("home/thesis.txt")], 2, "a file"),
        (&["journal", "stat", &agent], 2, no_journal),
        (&["journal", "dump", &agent], 2, no_journal),
        (&["journal", "repair", &home], 2, no_journal),
        (&["journal", "repair", &path("nothing")], 2, "nothing"),
        (&["server", "--config", &path("server.toml")], 2, "an agent's folder"),
        (&["up", "--data", &agent], 2, "an agent's folder"),
        (&["up", "--data", &home], 2, "thesis.txt"),
        (&["up", "--data", &path("home/thesis.txt")], 2, "a file"),
        (&["up", "--data", "/proc/nothing"], 2, "cannot be made"),
        (&["series", "serve", "--data", &agent], 2, "an agent's folder"),
        (&["series", "create", "--data", &home], 2, "thesis.txt"),
        (&["journal", "follow", "--from", "unix:x", "--to", &agent], 2, "an agent's folder"),
        (&["agent", "--config", &config], 2, "a server's data folder"),
        (&["enroll", "--config", &config, "--token", token], 2, "a server's data folder"),
        (&["token", "--data", dir.to_str().unwrap()], 2, "not a data folder"),
    ]);
    let left: Vec<_> = fs::read_dir(&home).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert_eq!(left, ["thesis.txt"], "something was made");
    assert_eq!(fs::read_dir(&agent).unwrap().count(), 2, "something was made");
    assert_eq!(fs::read_dir(&server).unwrap().count(), 2, "something was made");
}

/// Runs as a user without write permission. Returns exit code and output.
fn run_as_nobody(words: &[&str]) -> (i32, String) {
    use std::os::unix::process::CommandExt as _;
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_holdfast"));
    command.args(words).stdin(std::process::Stdio::null());
    if rustix::process::getuid().is_root() {
        command.uid(65_534).gid(65_534);
    }
    let out = command.output().unwrap();
    let text = [out.stdout, out.stderr].concat();
    (out.status.code().unwrap(), String::from_utf8(text).unwrap())
}

#[test]
fn permission_errors_are_reported_with_their_cause() {
    use std::os::unix::fs::PermissionsExt as _;
    let dir = folder("cli-denied");
    let mode = |path: &str, mode: u32| {
        fs::set_permissions(dir.join(path), fs::Permissions::from_mode(mode)).unwrap();
    };
    let data = dir.join("data");
    fs::create_dir_all(data.join("agent")).unwrap();
    fs::create_dir_all(data.join("series")).unwrap();
    for name in ["state.db", "registry.db", "holdfast.sock"] {
        fs::write(data.join(name), "").unwrap();
    }
    mode("", 0o755);
    mode("data", 0o000);
    let (data, to) = (data.to_str().unwrap(), dir.join("to"));
    let commands: &[&[&str]] = &[
        &["token", "--data", data],
        &["users", "password", "admin", "--data", data],
        &["backup", "--data", data, "--to", to.to_str().unwrap()],
        &["changes", "--data", data],
        &["agents", "remove", "1", "--data", data],
        &["queue", "status", "--data", data],
        &["queue", "list", "--data", data],
        &["series", "stat", "--data", data],
        &["up", "--data", data],
    ];
    for words in commands {
        let (code, printed) = run_as_nobody(words);
        assert_eq!(code, 2, "{words:?}: {printed}");
        assert!(printed.contains("Permission denied"), "{words:?}: {printed}");
    }
    let (code, printed) = run_as_nobody(&["scan", dir.to_str().unwrap()]);
    assert!(code == 1 && printed.contains(&format!("gap: {data}: cannot be read")), "{printed}");
    let secret = dir.join("secret");
    fs::write(&secret, "content").unwrap();
    mode("secret", 0o000);
    for shown in ["--json", "--quiet"] {
        let (code, printed) = run_as_nobody(&["scan", secret.to_str().unwrap(), shown]);
        assert!(code == 1 && printed.contains("permission denied"), "{shown}: {printed}");
    }
    // Make a database that only other users may write.
    mode("data", 0o777);
    mode("data/state.db", 0o444);
    mode("data/registry.db", 0o444);
    let (code, printed) = run_as_nobody(&["up", "--data", data, "--api", "127.0.0.1:0"]);
    assert!(code == 2 && printed.contains("state.db: Permission denied"), "{printed}");
    assert!(printed.contains("its mode is 0444") && !printed.contains("ready"), "{printed}");
}

#[test]
fn running_server_reports_refusals_and_records_actions() {
    let dir = folder("cli-running");
    let data = dir.join("data");
    let data = data.to_str().unwrap();
    let watch = folder_to_watch(dir.join("watched"));
    let words = ["up", "--data", data, "--api", "127.0.0.1:0", "--plain-http", "--watch"];
    let up = Running::start(&[&words[..], &[watch.to_str().unwrap()]].concat(), &dir.join("log"));
    let url = up.line("ready: ");
    expect_all(&[
        (&["agents", "remove", "999", "--data", data], 2, "999: agent does not exist"),
        (
            &["agents", "remove", "000", "--data", data],
            2,
            "000: not possible for agent 000, the server itself: name another agent",
        ),
        (&["token", "--data", data, "--uses", "3"], 0, "hf1."),
        (&["users", "password", "admin", "--data", data], 0, "new password of admin"),
        (&["users", "password", "nobody", "--data", data], 2, "nobody"),
        (&["changes", "--data", data, "--agent", "077"], 2, "no such agent"),
    ]);
    let api = Api::of(Path::new(data));
    let rows = api.get("/audit")["data"]["affected_items"].as_array().unwrap().clone();
    let actions =
        rows.iter().map(|row| [&row["user"], &row["action"]].map(|v| v.as_str().unwrap()));
    let recorded: Vec<_> = actions.take(2).collect();
    assert_eq!(recorded, [["uid:0", "security:update"], ["uid:0", "enrolment:create"]]);

    // A login with a wrong password must be in the log.
    let client = reqwest::Client::builder().no_proxy().build().unwrap();
    let request = client.post(format!("{url}security/user/authenticate"));
    let request = request.basic_auth("admin", Some("guessed"));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    assert_eq!(runtime.block_on(request.send()).unwrap().status(), 401);
    let log = fs::read_to_string(dir.join("log")).unwrap();
    let told =
        |text: &str| log.lines().any(|line| line.contains("a login failed") && line.contains(text));
    assert!(told("user=\"admin\"") && told("source=\"127.0.0.1\""), "{log}");

    // Refused requests are counted, and ten of them a minute are logged.
    for _ in 0..100 {
        let (status, text) = api.send("POST", "/stateful", "application/octet-stream", "nonsense");
        assert!(status == 400 || status == 403, "{status} {text}");
    }
    let log = fs::read_to_string(dir.join("log")).unwrap();
    let lines = log.lines().filter(|line| line.contains("refused: ")).count();
    assert!((1..=10).contains(&lines), "{lines} lines");

    up.kill();
    let gone = "no server is running on this data folder";
    assert!(Path::new(data).join("holdfast.sock").exists());
    expect_all(&[
        (&["changes", "--data", data], 2, gone),
        (&["agents", "remove", "1", "--data", data], 2, gone),
    ]);
}

#[test]
fn mistyped_arguments_are_reported_with_a_remedy() {
    let dir = folder("cli-mistyped");
    let path = |name: &str| dir.join(name).to_str().unwrap().to_owned();
    fs::create_dir_all(dir.join("data/series")).unwrap();
    fs::create_dir_all(dir.join("data/sub")).unwrap();
    fs::write(path("data/registry.db"), "").unwrap();
    fs::write(path("data/following"), r#"{"name":"x","from":"unix:y","seeded":true}"#).unwrap();
    fs::write(path("binary.toml"), [b'\n', 0xff]).unwrap();
    fs::write(path("agent.toml"), format!("data = {:?}\n", dir.join("apart"))).unwrap();
    let (data, agent) = (path("data"), path("agent.toml"));
    let enroll = ["enroll", "--config", &agent, "--token", "hf1.x.y", "--server"];
    let enroll = |server: &'static str| [&enroll[..], &[server]].concat();
    let inside = path("data/sub/../backup/today");
    expect_all(&[
        (&["up", "--scan-interval", "0s"], 2, "must be from 100ms to 365days"),
        (&["up", "--api", "localhost:1"], 2, "not an IP address with a port"),
        (&["server", "--config", &path("none.toml")], 2, "`holdfast config default` prints one"),
        (&["config", "check", "server", &path("binary.toml")], 2, "line 2 is not UTF-8"),
        (&enroll("http://h:1517"), 2, "https://HOST:PORT"),
        (&enroll("h:1517"), 2, "https://HOST:PORT"),
        (&["agent", "--config", &agent], 2, "--token TOKEN"),
        (&["agent", "status", "--config", &agent], 2, "has not run yet"),
        (&["queue", "list", "--config", &agent], 2, "has not run yet"),
        (&["queue", "list", "--data", &data], 2, "--config"),
        (&["token", "--data", &data], 2, "follows unix:y"),
        (
            &["journal", "follow", "--from", "unix:nosock", "--to", &path("f"), "--once"],
            2,
            "nosock",
        ),
        (&["series", "bench", "--dir", &path("none")], 2, "no such folder"),
        (&["series", "import", "--data", &path("none")], 2, "no such folder"),
        (&["series", "stat", "--url", "junk"], 2, "http://HOST:PORT"),
        (&["series", "delete", "--data", &data], 2, "--all|--metric"),
        (
            &["series", "export", "--data", &data, "--metric", "no.such"],
            2,
            "no series has this name",
        ),
        (
            &["series", "delete", "--data", &data, "--metric", "no.such"],
            2,
            "no series has this name",
        ),
        (&["backup", "--data", &data, "--to", &inside], 2, "in the data folder itself"),
    ]);
    assert!(!dir.join("none").exists(), "something was made");
    // A path with `..` is resolved before it is printed.
    let up_and_down = path("data/sub/../sub");
    let (code, out, error) = run(&["scan", &up_and_down]);
    assert!(code == 0 && out.contains(&path("data/sub")) && !out.contains(".."), "{out}{error}");
}

#[test]
fn start_failure_is_reported_once_with_its_remedy() {
    let dir = folder("cli-start");
    let data = dir.join("data");
    let once = |api: &str, cause: &str, remedy: &str| {
        let words = ["up", "--plain-http", "--api", api, "--data", data.to_str().unwrap()];
        let (code, out, error) = run(&words);
        assert_eq!((code, error.matches(cause).count()), (2, 1), "{out}{error}");
        assert!(error.contains(remedy), "{error}");
    };
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    once(&address, "Address already in use", "choose another address or stop what uses it");
    fs::remove_dir_all(&data).unwrap();
    fs::create_dir(&data).unwrap();
    fs::write(data.join("registry.db"), "no database, whatever is looked for in it ".repeat(99))
        .unwrap();
    once("127.0.0.1:0", "not a database", "data/registry.db; if it is damaged, move the data");
}

#[test]
fn failed_stdout_write_is_an_error_but_a_closed_pipe_is_not() {
    use std::process::{Command, Stdio};
    let run_into = |words: &[&str], out: Stdio| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_holdfast"));
        let done = command.args(words).stdout(out).stderr(Stdio::piped()).output().unwrap();
        (done.status.code(), String::from_utf8(done.stderr).unwrap())
    };
    let dir = folder("cli-output");
    let queue = dir.join("agent/agent.db");
    fs::create_dir_all(queue.parent().unwrap()).unwrap();
    let clock = std::sync::Arc::new(env::clock::SystemClock::new());
    let random = std::sync::Arc::new(env::random::SystemRandom);
    let (open, _) =
        queue::Queue::open(&queue, queue::QueueOptions::default(), clock, random).unwrap();
    open.close().unwrap();
    let (data, tree) = (dir.to_str().unwrap(), dir.join("agent"));
    let commands: [&[&str]; 4] = [
        &["queue", "status", "--data", data],
        &["man"],
        &["scan", tree.to_str().unwrap()],
        &["config", "default"],
    ];
    for words in commands {
        let full = fs::File::options().write(true).open("/dev/full").unwrap();
        let (code, error) = run_into(words, full.into());
        assert!(code == Some(2) && error.contains("No space left"), "{words:?}: {code:?} {error}");
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let (code, error) = run_into(words, writer.into());
        assert_eq!((code, error.as_str()), (Some(0), ""), "{words:?}");
    }
}

#[test]
fn default_configurations_pass_config_check() {
    let dir = folder("cli-config");
    for role in ["server", "agent"] {
        let (code, text, _) = run(&["config", "default", role]);
        assert_eq!(code, 0);
        let file = dir.join(role);
        fs::write(&file, text).unwrap();
        let (code, _, error) = run(&["config", "check", role, file.to_str().unwrap()]);
        assert_eq!(code, 0, "{error}");
    }
}

#[test]
fn open_queue_is_listed_and_verified_but_compacted_when_closed() {
    let folder = folder("cli-queue");
    let data = folder.to_str().unwrap();
    let path = folder.join("agent/agent.db");
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    let (code, _, err) = run(&["queue", "list", "--data", data]);
    assert_eq!(code, 2);
    assert!(err.contains("no agent has run in this folder"), "{err}");

    let clock = std::sync::Arc::new(env::clock::SystemClock::new());
    let random = std::sync::Arc::new(env::random::SystemRandom);
    let options = queue::QueueOptions::default();
    let (open, _) = queue::Queue::open(&path, options, clock, random).unwrap();
    let packages = model::Dataset::new("inventory-packages");
    open.put_documents(&packages, &[(b"bash", b"{}"), (b"zsh", b"{}")]).unwrap();
    let (code, out, _) = run(&["queue", "list", "--data", data, "--pending", "--json"]);
    assert_eq!((code, out.lines().count()), (0, 2), "{out}");
    let first: serde_json::Value = serde_json::from_str(out.lines().next().unwrap()).unwrap();
    assert_eq!((&first["path"], &first["pending"]), (&"bash".into(), &true.into()));
    let (code, _, err) = run(&["queue", "list", "--data", data, "--dataset", "nosuch"]);
    assert!(code == 2 && err.contains("inventory-packages"), "{err}");
    let (_, out, _) = run(&["queue", "list", "--data", data, "--path", "z"]);
    assert!(out.contains("pending zsh (inventory-packages, 2 bytes)"), "{out}");
    let (code, out, _) = run(&["queue", "verify", "--data", data]);
    assert!(code == 0 && out.contains("2 items in 1 directories, 0 events, 0 problems"), "{out}");
    let (code, out, _) = run(&["queue", "status", "--data", data]);
    assert!(code == 0 && out.contains("wal_autocheckpoint 8000 pages"), "{out}");
    let (code, _, err) = run(&["queue", "compact", "--data", data]);
    assert!(code == 2 && err.contains("stop the other agent first"), "{err}");
    open.close().unwrap();
    let (code, out, _) = run(&["queue", "compact", "--data", data, "--json"]);
    assert!(code == 0 && out.contains("bytes_after"), "{out}");

    let bytes = fs::read(&path).unwrap();
    fs::write(&path, [&bytes[..4096], &vec![0x5a; bytes.len() - 4096]].concat()).unwrap();
    let (code, out, _) = run(&["queue", "verify", "--data", data]);
    assert!(code == 1 && out.contains("problem: "), "{out}");
}

#[test]
fn scan_shows_progress_on_a_terminal_only() {
    let dir = folder("cli-progress");
    fs::write(dir.join("file"), "content").unwrap();
    let dir = dir.to_str().unwrap();
    let words = format!("{} scan --quiet {dir}", env!("CARGO_BIN_EXE_holdfast"));
    let mut terminal = std::process::Command::new("script");
    let out = terminal.args(["-qec", &words, "/dev/null"]).output().unwrap();
    let text = String::from_utf8(out.stdout).unwrap();
    assert!(out.status.success() && text.contains("scanning: "), "{text}");
    let (code, _, error) = run(&["scan", "--quiet", dir]);
    assert!(code == 0 && !error.contains("scanning"), "{error}");
}
