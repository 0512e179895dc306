//! Processes of the real binary, and requests to the server over its unix socket.

pub(crate) mod deployment;
pub(crate) mod grafana;
pub(crate) mod load;
pub(crate) mod mounted;
pub(crate) mod place;
pub(crate) mod proxy;
pub(crate) mod series;
pub(crate) mod shifted;

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{BufRead as _, BufReader};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde_json::Value;
use sha2::{Digest as _, Sha256};

/// Time limit for anything that must happen, on a busy machine.
pub(crate) const PATIENCE: Duration = Duration::from_mins(10);

/// One process of `holdfast`.
pub(crate) struct Running {
    child: Child,
    /// File of its stderr.
    log: PathBuf,
    lines: Arc<(Mutex<Vec<String>>, Condvar)>,
}

impl Running {
    /// Starts a process with these arguments; stderr is appended to `log`.
    pub(crate) fn start(words: &[&str], log: &Path) -> Self {
        Self::start_with(words, log, &[])
    }

    /// Does the same as [`Running::start`], with environment variables.
    pub(crate) fn start_with(words: &[&str], log: &Path, env: &[(&str, &str)]) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_holdfast"));
        command.args(words).envs(env.iter().copied());
        Self::spawn(command, log)
    }

    /// Does the same as [`Running::start`], with this limit of open files.
    pub(crate) fn start_limited(open_files: u32, words: &[&str], log: &Path) -> Self {
        let script = format!("ulimit -n {open_files}; exec \"$0\" \"$@\"");
        let mut command = Command::new("sh");
        command.args(["-c", &script, env!("CARGO_BIN_EXE_holdfast")]).args(words);
        Self::spawn(command, log)
    }

    /// Does the same as [`Running::start`], through a program that starts the one named at the end
    /// of its arguments.
    pub(crate) fn start_through(through: &[&str], words: &[&str], log: &Path) -> Self {
        let mut command = Command::new(through[0]);
        command.args(&through[1..]).arg(env!("CARGO_BIN_EXE_holdfast")).args(words);
        Self::spawn(command, log)
    }

    fn spawn(mut command: Command, log: &Path) -> Self {
        let stderr = File::options().create(true).append(true).open(log).unwrap();
        let mut child =
            command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(stderr).spawn().unwrap();
        let lines = Arc::new((Mutex::new(Vec::new()), Condvar::new()));
        let out = BufReader::new(child.stdout.take().unwrap());
        let shared = lines.clone();
        std::thread::spawn(move || {
            let whole = out.lines().map_while(Result::ok);
            for line in whole.chain([END.to_owned()]) {
                shared.0.lock().unwrap_or_else(PoisonError::into_inner).push(line);
                shared.1.notify_all();
            }
        });
        Self { child, log: log.to_owned(), lines }
    }

    /// Waits for a line of stdout with this prefix. Returns the rest of it.
    pub(crate) fn line(&self, prefix: &str) -> String {
        self.line_after(0, prefix).1
    }

    /// Waits for a line with this prefix at or after index `from`. Returns its index and its rest.
    pub(crate) fn line_after(&self, from: usize, prefix: &str) -> (usize, String) {
        let deadline = Instant::now() + PATIENCE;
        let mut lines = self.lines.0.lock().unwrap();
        loop {
            let found = lines.iter().enumerate().skip(from).find_map(|(place, line)| {
                line.strip_prefix(prefix).map(|rest| (place, rest.to_owned()))
            });
            if let Some(found) = found {
                return found;
            }
            let left = deadline.saturating_duration_since(Instant::now());
            let ended = lines.last().is_some_and(|l| l == END);
            assert!(!left.is_zero() && !ended, "no line {prefix:?} behind {from} in {lines:#?}");
            lines = self.lines.1.wait_timeout(lines, left).unwrap().0;
        }
    }

    /// Waits for a line of stdout that contains this text, and returns it.
    pub(crate) fn line_with(&self, text: &str) -> String {
        let mut found = None;
        eventually(&format!("a line with {text:?}"), || {
            let printed = self.printed();
            found = printed.iter().find(|line| line.contains(text)).cloned();
            found.as_ref().map(|_| ()).ok_or_else(|| format!("{printed:#?}"))
        });
        found.unwrap()
    }

    /// Returns the number of lines printed so far.
    pub(crate) fn lines(&self) -> usize {
        self.lines.0.lock().unwrap().len()
    }

    /// Returns the lines printed so far.
    pub(crate) fn printed(&self) -> Vec<String> {
        self.lines.0.lock().unwrap().clone()
    }

    /// Sends SIGKILL and waits for the end.
    pub(crate) fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Sends a signal by name.
    pub(crate) fn signal(&self, name: &str) {
        let id = self.child.id().to_string();
        assert!(Command::new("kill").args([&format!("-{name}"), &id]).status().unwrap().success());
    }

    /// Sets the limit of open files of the running process.
    pub(crate) fn limit_open_files(&self, limit: u64) {
        let pid = self.child.id().to_string();
        let limit = format!("--nofile={limit}:");
        assert!(Command::new("prlimit").args(["--pid", &pid, &limit]).status().unwrap().success());
    }

    /// Sends SIGTERM. Returns the exit code.
    pub(crate) fn stop(mut self) -> i32 {
        self.wait_for_signal_handler();
        self.signal("TERM");
        self.wait()
    }

    /// Waits until the process catches SIGTERM, or has ended. A signal before that would kill it.
    fn wait_for_signal_handler(&mut self) {
        let status = format!("/proc/{}/status", self.child.id());
        eventually("the process catches SIGTERM", || {
            if self.child.try_wait().unwrap().is_some() {
                return Ok(());
            }
            let status = fs::read_to_string(&status).unwrap();
            let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:")).unwrap();
            let caught = u64::from_str_radix(caught.trim(), 16).unwrap();
            if caught >> 14 & 1 == 1 { Ok(()) } else { Err(status) }
        });
    }

    /// Waits for the end of the process. Returns the exit code.
    pub(crate) fn wait(&mut self) -> i32 {
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status.code().unwrap_or(-1);
            }
            assert!(Instant::now() < deadline, "the process does not stop");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Returns the peak resident memory so far, KiB.
    pub(crate) fn peak_kib(&self) -> u64 {
        self.memory_kib("VmHWM:")
    }

    /// Returns the resident memory now, KiB.
    pub(crate) fn resident_kib(&self) -> u64 {
        self.memory_kib("VmRSS:")
    }

    fn memory_kib(&self, name: &str) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let line = status.lines().find(|l| l.starts_with(name)).unwrap();
        line.split_whitespace().nth(1).unwrap().parse().unwrap()
    }
}

#[expect(clippy::print_stderr, reason = "the harness shows it with the failure")]
impl Running {
    /// Prints what a failed test leaves unknown about the process: its end or the system call of each
    /// thread, its lines and the end of its log.
    fn describe(&mut self) {
        let folder = PathBuf::from(format!("/proc/{}/task", self.child.id()));
        eprintln!("process {}: {:?}", self.child.id(), self.child.try_wait());
        for task in fs::read_dir(folder).into_iter().flatten().flatten() {
            let text = |name| fs::read_to_string(task.path().join(name)).unwrap_or_default();
            eprintln!("{}: {}", text("comm").trim(), text("syscall").trim());
        }
        // A lock that a panicked thread held must not end this test with a second panic.
        let lines = self.lines.0.lock().unwrap_or_else(PoisonError::into_inner);
        eprintln!("{lines:#?}");
        let log = fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<_> = log.lines().rev().take(50).collect();
        lines.iter().rev().for_each(|line| eprintln!("{line}"));
    }
}

const END: &str = "\u{0}end of output";

impl Drop for Running {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.describe();
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Runs a command to its end. Returns exit code, stdout and stderr.
pub(crate) fn run(words: &[&str]) -> (i32, String, String) {
    run_with(words, &[])
}

/// Does the same as [`run`], with environment variables.
pub(crate) fn run_with(words: &[&str], env: &[(&str, &str)]) -> (i32, String, String) {
    let out = Command::new(env!("CARGO_BIN_EXE_holdfast"))
        .args(words)
        .envs(env.iter().copied())
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let text = |b: Vec<u8>| String::from_utf8(b).unwrap();
    (out.status.code().unwrap_or(-1), text(out.stdout), text(out.stderr))
}

/// Returns a free port that stays free until its program binds it, also after a kill. It is below the
/// range from which the kernel assigns ports, and this process holds a lock on the port's file, so
/// that no other test is given it at the same time.
pub(crate) fn free_port() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    static CLAIMED: Mutex<Vec<File>> = Mutex::new(Vec::new());
    const FIRST: u16 = 20_000;
    const ALL: u16 = 10_000;
    let locks = Path::new(env!("CARGO_TARGET_TMPDIR")).join("ports");
    fs::create_dir_all(&locks).unwrap();
    let start = (std::process::id().wrapping_mul(7_919) % u32::from(ALL)) as u16;
    let claimed = |port: &u16| {
        let path = locks.join(port.to_string());
        let file = File::options().create(true).append(true).open(path).unwrap();
        let free = file.try_lock().is_ok() && TcpListener::bind(("127.0.0.1", *port)).is_ok();
        free.then_some(file)
    };
    let (port, file) = (0..ALL)
        .map(|_| FIRST + (start + NEXT.fetch_add(1, Ordering::Relaxed) % ALL) % ALL)
        .find_map(|port| Some((port, claimed(&port)?)))
        .expect("no port is free");
    CLAIMED.lock().unwrap().push(file);
    port
}

/// A client of a server's unix socket.
pub(crate) struct Api {
    runtime: tokio::runtime::Runtime,
    http: reqwest::Client,
}

impl Api {
    /// Returns a client for the server of this data folder.
    pub(crate) fn of(data: &Path) -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let _ = rustls::crypto::ring::default_provider().install_default();
        // Use a connection for each request: the server may have closed an idle one.
        let http = reqwest::Client::builder()
            .unix_socket(data.join("holdfast.sock"))
            .pool_max_idle_per_host(0)
            .build()
            .unwrap();
        Self { runtime, http }
    }

    /// Sends one request; returns `None` if there is no answer.
    pub(crate) fn request(&self, method: &str, path: &str) -> Option<(u16, Value)> {
        let url = format!("http://localhost{path}");
        let request = self.http.request(method.parse().unwrap(), url);
        self.runtime.block_on(async {
            let answer = request.send().await.ok()?;
            let status = answer.status().as_u16();
            let body = answer.bytes().await.ok()?;
            Some((status, serde_json::from_slice(&body).unwrap_or(Value::Null)))
        })
    }

    /// Sends a PUT with a body of this type. Returns the status and the answer.
    pub(crate) fn put(&self, path: &str, content_type: &str, body: &str) -> (u16, Value) {
        let (status, answer) = self.send("PUT", path, content_type, body);
        (status, serde_json::from_str(&answer).unwrap_or(Value::Null))
    }

    /// Sends a request with a body of this type. Returns the status and the text of the answer.
    pub(crate) fn send(&self, method: &str, path: &str, kind: &str, body: &str) -> (u16, String) {
        self.try_send(method, path, kind, body).unwrap_or_else(|| panic!("no answer: {path}"))
    }

    /// Does the same as [`Api::send`]; returns `None` if there is no answer.
    pub(crate) fn try_send(
        &self,
        method: &str,
        path: &str,
        kind: &str,
        body: &str,
    ) -> Option<(u16, String)> {
        let url = format!("http://localhost{path}");
        let request = self.http.request(method.parse().unwrap(), url);
        let request = request.header("content-type", kind).body(body.to_owned());
        self.runtime.block_on(async {
            let answer = request.send().await.ok()?;
            let status = answer.status().as_u16();
            Some((status, answer.text().await.ok()?))
        })
    }

    /// Sends a GET, which must succeed.
    pub(crate) fn get(&self, path: &str) -> Value {
        let (status, body) =
            self.request("GET", path).unwrap_or_else(|| panic!("no answer: {path}"));
        assert_eq!(status, 200, "{path}: {body}");
        body
    }

    /// Returns all items of a list that pages by offset. Up to 100,000 items are on one page, so
    /// they are from one instant.
    pub(crate) fn all(&self, path: &str) -> Vec<Value> {
        const PAGE: usize = 100_000;
        let mut items = Vec::new();
        loop {
            let sign = if path.contains('?') { '&' } else { '?' };
            let body = self.get(&format!("{path}{sign}offset={}&limit={PAGE}", items.len()));
            let page = body["data"]["affected_items"].as_array().unwrap().clone();
            let last = page.len() < PAGE;
            items.extend(page);
            if last {
                return items;
            }
        }
    }

    /// Returns all items of a list that pages by cursor.
    pub(crate) fn history(&self, path: &str) -> Vec<Value> {
        let mut items = Vec::new();
        let mut cursor = String::new();
        loop {
            let sign = if path.contains('?') { '&' } else { '?' };
            let body = self.get(&format!("{path}{sign}limit=1000{cursor}"));
            items.extend(body["data"]["affected_items"].as_array().unwrap().clone());
            match body["data"]["next_cursor"].as_str() {
                Some(next) => cursor = format!("&cursor={next}"),
                None => return items,
            }
        }
    }

    /// Orders a scan of an agent and waits for its outcome.
    pub(crate) fn rescan(&self, agent: &str) {
        let deadline = Instant::now() + PATIENCE;
        let id = loop {
            let path = format!("/syscheck?agents_list={agent}");
            let (status, body) = self.request("PUT", &path).unwrap();
            assert_eq!(status, 200, "{body}");
            if let Some(id) = body["data"]["command"].as_u64() {
                break id;
            }
            // 1707: the agent is not active yet, because it or the server has just started.
            assert!(Instant::now() < deadline, "the agent does not become active: {body}");
            std::thread::sleep(Duration::from_millis(50));
        };
        loop {
            let command = self.get(&format!("/commands/{id}"));
            if command["data"]["command"]["counts"]["acknowledged"].as_u64() == Some(1) {
                return;
            }
            assert!(Instant::now() < deadline, "the scan was not done: {command}");
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

/// Logs in over TCP. Returns the status.
pub(crate) fn login(url: &str, name: &str, password: &str) -> u16 {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let request = reqwest::Client::new().post(format!("{url}security/user/authenticate"));
    let answer = runtime.block_on(request.basic_auth(name, Some(password)).send());
    answer.unwrap().status().as_u16()
}

/// Polls until the condition holds; panics after [`PATIENCE`].
pub(crate) fn eventually(what: &str, mut holds: impl FnMut() -> Result<(), String>) {
    let deadline = Instant::now() + PATIENCE;
    loop {
        match holds() {
            Ok(()) => return,
            Err(why) => assert!(Instant::now() < deadline, "{what}: {why}"),
        }
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// Returns the disk's content: path to (type, size, permission bits, SHA-256), by an independent
/// walk.
pub(crate) fn disk(root: &Path) -> BTreeMap<String, (String, Option<u64>, String, Option<String>)> {
    let mut found = BTreeMap::new();
    let mut todo = vec![root.to_owned()];
    while let Some(path) = todo.pop() {
        let Ok(meta) = fs::symlink_metadata(&path) else { continue };
        let kind = meta.file_type();
        let mode = {
            use std::os::unix::fs::PermissionsExt as _;
            format!("{:04o}", meta.permissions().mode() & 0o7777)
        };
        let shown = model::path::show(path.as_os_str().as_encoded_bytes()).into_owned();
        if kind.is_dir() {
            for entry in fs::read_dir(&path).unwrap() {
                todo.push(entry.unwrap().path());
            }
            found.insert(shown, ("dir".into(), None, mode, None));
        } else if kind.is_symlink() {
            found.insert(shown, ("symlink".into(), Some(meta.len()), mode, None));
        } else {
            let hash = hex::encode(Sha256::digest(fs::read(&path).unwrap()));
            found.insert(shown, ("file".into(), Some(meta.len()), mode, Some(hash)));
        }
    }
    found
}

/// Returns the server's copy of an agent, in the shape of [`disk`]; fails on a path twice.
pub(crate) fn stored(
    api: &Api,
    agent: &str,
) -> BTreeMap<String, (String, Option<u64>, String, Option<String>)> {
    let mut found = BTreeMap::new();
    for item in api.all(&format!("/syscheck/{agent}")) {
        let text = |name: &str| item[name].as_str().unwrap_or_default().to_owned();
        let kind = text("type");
        let hash = Some(text("sha256")).filter(|h| !h.is_empty());
        let size = item["size"].as_u64().filter(|_| kind != "dir");
        let before = found.insert(text("file"), (kind, size, text("mode"), hash));
        assert_eq!(before, None, "{} is there twice", text("file"));
    }
    found
}

/// Returns an error with the first differences of two maps.
pub(crate) fn differences<T: PartialEq + std::fmt::Debug>(
    a: &BTreeMap<String, T>,
    b: &BTreeMap<String, T>,
) -> Result<(), String> {
    let mut wrong = Vec::new();
    for (path, value) in a {
        match b.get(path) {
            Some(other) if other == value => {}
            other => wrong.push(format!("{path}: disk {value:?}, server {other:?}")),
        }
    }
    wrong.extend(b.keys().filter(|p| !a.contains_key(*p)).map(|p| format!("{p}: only server")));
    wrong.truncate(10);
    if wrong.is_empty() { Ok(()) } else { Err(wrong.join("\n")) }
}

/// Creates a folder for a test below the target folder, so that it is on a disk and not on a tmpfs.
pub(crate) fn folder(name: &str) -> PathBuf {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = fs::remove_dir_all(&path);
    fs::create_dir_all(&path).unwrap();
    path
}
