//! The program behind a change, with `holdfast up`: the one that made it is named, or is among those
//! that come into question. No other program is named, least of all dpkg. Needs root, for fanotify.

use std::path::Path;
use std::process::Command;

use crate::common::place::Place;
use crate::common::{Api, Running, eventually, run};
use serde_json::Value;

/// Runs of each case: the order of notifications and messages differs.
const RUNS: usize = 6;

/// A case: its name, what runs it, and the program that changes the file `$1`. `$2` is another
/// program.
const CASES: &[(&str, &str, &str)] = &[
    (
        "too-long",
        r#"python3 -c '
import os, sys
try:
    os.execv(sys.argv[2], [sys.argv[2]] + ["x" * 100000] * 100)
except OSError:
    open(sys.argv[1], "w").write("x")' "$1" "$2""#,
        "python",
    ),
    (
        "only-checked",
        r#"python3 -c '
import ctypes, os, platform, sys
number = {"x86_64": 322, "aarch64": 281}[platform.machine()]
libc, none = ctypes.CDLL(None), ctypes.c_char_p * 1
AT_EXECVE_CHECK = 0x10000
libc.syscall(number, -100, sys.argv[2].encode(), none(None), none(None), AT_EXECVE_CHECK)
open(sys.argv[1], "w").write("x")' "$1" "$2""#,
        "python",
    ),
    (
        "there-and-back",
        r#"echo a > "$1.a"; exec python3 -c '
import os, sys
open(sys.argv[1] + ".b", "w").write("x")
os.execv("/bin/sh", ["sh", "-c", "echo x > " + sys.argv[1]])' "$1""#,
        "dash",
    ),
    (
        "without-first-line",
        r#"mkdir "$1.d"; echo 'echo x > $1' > "$1.d/dpkg"; chmod 755 "$1.d/dpkg"; "$1.d/dpkg" "$1""#,
        "dash",
    ),
    (
        "closed-by-exec",
        r#"python3 -c '
import os, sys
fd = os.open(sys.argv[1], os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC)
os.write(fd, b"x")
os.execv(sys.argv[2], [sys.argv[2], "--version"])' "$1" "$2""#,
        "python",
    ),
    ("right-after-the-write", r#"echo x > "$1"; exec "$2" --version"#, "dash"),
    (
        "number-used-again",
        r#"python3 -c '
import os, sys
def child(work):
    pid = os.fork()
    if pid == 0:
        work()
        os._exit(0)
    return pid
first = child(lambda: open(sys.argv[1], "w").write("x"))
os.waitpid(first, 0)
for attempt in range(100):
    with open("/proc/sys/kernel/ns_last_pid", "w") as last:
        last.write(str(first - 1))
    again = child(lambda: os.execv(sys.argv[2], [sys.argv[2], "--version"]))
    os.waitpid(again, 0)
    if again == first:
        break' "$1" "$2""#,
        "python",
    ),
];

/// Returns the program of a process without its version.
fn program(path: &str) -> &str {
    let name = path.rsplit('/').next().unwrap();
    if name.starts_with("python3") { "python" } else { name }
}

/// Returns an error if a change names another program than the one that made it.
fn judge(change: &Value, maker: &str) -> Result<bool, String> {
    let actor = &change["seen"]["actors"][0];
    let process = if change["process"].is_null() { &actor["process"] } else { &change["process"] };
    if let Some(path) = process["executable"].as_str() {
        let right = program(path) == maker;
        return if right { Ok(true) } else { Err(format!("{path} is named: {change:#}")) };
    }
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let (candidates, executables) = (list(&process["candidates"]), list(&actor["executables"]));
    let named = candidates.iter().filter_map(|one| one["executable"].as_str());
    let named: Vec<&str> =
        named.chain(executables.iter().filter_map(|one| one["path"].as_str())).collect();
    let reason = actor["reason"].as_str().unwrap_or_default();
    let right = if named.is_empty() {
        !reason.is_empty()
    } else {
        named.iter().any(|path| program(path) == maker) || reason.contains("unknown")
    };
    if right { Ok(false) } else { Err(format!("the maker is not named: {change:#}")) }
}

#[test]
fn program_that_did_not_make_a_change_is_not_named() {
    let Some(place) = Place::new("programs") else { return };
    let others: Vec<&str> = ["/usr/bin/dpkg", "/bin/true"]
        .into_iter()
        .filter(|path| Path::new(path).exists())
        .collect();
    let (running, api) = place.up();
    let mut made = Vec::new();
    for run in 0..RUNS {
        for (name, script, maker) in CASES {
            for (number, other) in others.iter().enumerate() {
                let file = place.at(&format!("{name}-{number}-{run}"));
                let words = ["-c", script, "sh", &file, other];
                let output = Command::new("/bin/sh").args(words).output().unwrap();
                assert!(output.status.success(), "{name}: {output:?}");
                made.push((file, *maker));
            }
        }
    }
    let mut certain = 0;
    for (file, maker) in &made {
        let change = created(&api, file);
        certain += usize::from(judge(&change, maker).unwrap_or_else(|wrong| panic!("{wrong}")));
    }
    eprintln!("{certain} of {} are certain", made.len());
    assert_eq!(running.stop(), 0);
}

#[test]
fn lone_command_is_named_with_its_arguments() {
    let Some(place) = Place::new("programs-alone") else { return };
    let (running, api) = place.up();
    let scripts = [
        ("touch", "touch $0; true", "/usr/bin/touch"),
        ("cp", "cp file $0; true", "/usr/bin/cp"),
        ("cat", "cat file > $0; true", "/usr/bin/cat"),
    ];
    let mut made = Vec::new();
    for run in 0..10 {
        for (name, script, maker) in scripts {
            let file = place.at(&format!("{name}-{run}"));
            let words = ["-c", script, &file];
            let status = Command::new("bash").args(words).current_dir(&place.tree).status();
            assert!(status.unwrap().success());
            made.push((file, name, maker));
        }
    }
    let (mut named, mut touched) = (0, 0);
    for (file, name, maker) in &made {
        let change = created(&api, file);
        judge(&change, name).unwrap_or_else(|wrong| panic!("{wrong}"));
        let process = &change["process"];
        if process["executable"] == *maker {
            let line = process["command_line"].as_str().unwrap();
            assert!(line.starts_with(name) && line.contains(file) != (*name == "cat"), "{line}");
            named += 1;
            touched += usize::from(*name == "touch");
        }
    }
    // A busy machine may miss some. Without the order of execs, nearly all are ambiguous.
    assert!(named >= 20, "{named} of 30");
    let found = api.get("/changes?process=touch&limit=100");
    let found = found["data"]["affected_items"].as_array().unwrap().clone();
    assert!(found.len() >= touched && touched > 0, "{} of {touched}", found.len());
    assert!(found.iter().all(|change| change["path"].as_str().unwrap().contains("touch-")));
    assert_eq!(running.stop(), 0);
}

#[test]
fn without_real_time_priority_names_are_right_and_it_is_said() {
    let Some(place) = Place::new("programs-normal") else { return };
    if Command::new("setpriv").arg("--version").output().is_err() {
        return needs::skip("needs setpriv and prlimit, to take rights away");
    }
    let through = ["prlimit", "--rtprio=0:0", "--nice=0:0", "setpriv", "--bounding-set=-sys_nice"];
    let through = [&through[..], &["--inh-caps=-all", "--"]].concat();
    let running = Running::start_through(&through, &place.words(), &place.log);
    running.line("synchronised: ");
    let api = Api::of(&place.data);
    let reason = "the names of programs are incomplete: without real-time priority";
    let says = |state: &Value, on: &str, reason_of: &str| {
        let said = state[reason_of].as_str().unwrap_or_default();
        if state[on] == true && said.starts_with(reason) { Ok(()) } else { Err(state.to_string()) }
    };
    eventually("the server has the reason", || {
        let state = api.get("/coverage/state");
        says(&state["data"]["affected_items"][0], "attribution", "attribution_reason")
    });
    eventually("the agent has the reason", || {
        let data = place.data.to_str().unwrap();
        let (_, status, error) = run(&["queue", "status", "--json", "--data", data]);
        let status: Value = serde_json::from_str(&status).unwrap_or_else(|_| panic!("{error}"));
        says(&status["realtime"]["attribution"], "on", "reason")
    });
    // A program that stays is certain. Short ones may be gone before they are read, but none is named
    // wrongly.
    let mut shell = Command::new("sh")
        .args(["-c", "echo x > stays; read line"])
        .current_dir(&place.tree)
        .stdin(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let change = created(&api, &place.at("stays"));
    assert_eq!(change["process"]["pid"], shell.id(), "{change:#}");
    assert!(judge(&change, "dash").is_ok(), "{change:#}");
    drop(shell.stdin.take());
    shell.wait().unwrap();
    let short = ["touch", "cp", "dd"];
    for run in 0..10 {
        for name in short {
            let file = place.at(&format!("{name}-{run}"));
            let script = match name {
                "touch" => "touch $0; true",
                "cp" => "cp file $0; true",
                _ => "dd if=file of=$0 status=none; true",
            };
            let words = ["-c", script, &file];
            let status = Command::new("bash").args(words).current_dir(&place.tree).status();
            assert!(status.unwrap().success());
        }
    }
    let mut certain = 0;
    for run in 0..10 {
        for name in short {
            let change = created(&api, &place.at(&format!("{name}-{run}")));
            certain += usize::from(judge(&change, name).unwrap_or_else(|wrong| panic!("{wrong}")));
        }
    }
    eprintln!("{certain} of 30 are certain");
    assert_eq!(running.stop(), 0);
}

/// A wheel with a module of 20 files, made without a network.
const WHEEL: &str = r#"python3 -c '
import zipfile
info = "made-1.0.dist-info"
with zipfile.ZipFile("made-1.0-py3-none-any.whl", "w") as wheel:
    for number in range(20):
        wheel.writestr(f"made/deep/part{number}.py", f"number = {number}\n")
    wheel.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: made\nVersion: 1.0\n")
    lines = "Wheel-Version: 1.0\nGenerator: a\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    wheel.writestr(f"{info}/WHEEL", lines)
    wheel.writestr(f"{info}/RECORD", "")'"#;
const PIP: &str = "python3 -m pip install --quiet --disable-pip-version-check --no-index --no-deps \
    --prefix \"$0\" made-1.0-py3-none-any.whl";
/// A package of node with as many files.
const TARBALL: &str = r#"mkdir -p made/lib/deep
echo '{"name": "made", "version": "1.0.0"}' > made/package.json
for n in $(seq 20); do echo "$n" > made/lib/deep/part$n.js; done
npm pack --silent ./made"#;
const NPM: &str =
    "npm install --silent --no-audit --no-fund --offline --prefix \"$0\" ./made-1.0.0.tgz";

#[test]
fn files_that_pip_installs_have_it_as_their_writer() {
    installed_by("pip", "python3 -m pip --version", [WHEEL, PIP], "python");
}

#[test]
fn files_that_npm_installs_have_it_as_their_writer() {
    installed_by("npm", "npm --version", [TARBALL, NPM], "node");
}

/// Has a tool install a package, and compares the writers of all files with its program.
fn installed_by(tool: &str, version: &str, [make, install]: [&str; 2], program: &str) {
    let Some(place) = Place::new(&format!("programs-{tool}")) else { return };
    let made = place.tree.with_file_name("made");
    std::fs::create_dir(&made).unwrap();
    let sh = |script: &str, word: &str| {
        let mut command = Command::new("sh");
        command.args(["-ec", script, word]).current_dir(&made).env("HOME", &made);
        command.env("npm_config_cache", made.join("cache")).output().unwrap()
    };
    if !sh(version, "sh").status.success() {
        return needs::skip(format!("needs {tool}"));
    }
    let done = sh(make, "sh");
    assert!(done.status.success(), "{done:?}");
    let (running, api) = place.up();
    let done = sh(install, &place.at("new"));
    assert!(done.status.success(), "{done:?}");
    let mut changes = Vec::new();
    eventually("each installed file is on the server", || {
        changes = api.history("/changes?kind=created&limit=1000");
        let part = |change: &&Value| change["path"].as_str().unwrap().contains("/deep/part");
        let parts = changes.iter().filter(part).count();
        if parts == 20 { Ok(()) } else { Err(format!("{parts} of 20: {changes:#?}")) }
    });
    assert!(changes.iter().all(|change| change["cause"]["kind"] == "unexplained"), "{changes:#?}");
    // A new directory is compared while it is being filled: what is found may have been notified before,
    // and then has no writer. On a busy machine that is true of most files.
    let is_known = |change: &&Value| !change["process"].is_null();
    let known: Vec<&Value> = changes.iter().filter(is_known).collect();
    assert!(!known.is_empty(), "{changes:#?}");
    for change in known {
        judge(change, program).unwrap_or_else(|wrong| panic!("{wrong}"));
        assert!(change["process"].to_string().contains(tool), "{change:#}");
    }
    assert_eq!(running.stop(), 0);
}

/// Waits for the creation of a file.
fn created(api: &Api, file: &str) -> Value {
    let mut found = Value::Null;
    eventually("the change is on the server", || {
        let changes = api.history(&format!("/changes?kind=created&file={file}"));
        found = changes.into_iter().next().unwrap_or_default();
        if found.is_null() { Err(file.to_owned()) } else { Ok(()) }
    });
    found
}
