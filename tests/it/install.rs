//! `make install` into an empty folder: the installed files are complete and run, systemd accepts
//! the units, and `make uninstall` leaves only files that users wrote. The first steps after that: a
//! server is set up, and an agent enrols with the line that it prints.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use crate::common::{Running, folder, free_port, run};

/// Highest exposure that `systemd-analyze security` may report for a unit, in tenths (0 to 100).
/// The agent's is higher, because it reads every file of the machine as root.
const EXPOSURE_MAX: [(&str, &str); 2] =
    [("holdfast-server.service", "15"), ("holdfast-agent.service", "45")];

fn make(target: &str, variables: &[(&str, &Path)]) -> Output {
    let mut command = Command::new("make");
    command.arg("--no-print-directory").arg(target).current_dir(env!("CARGO_MANIFEST_DIR"));
    for (name, value) in variables {
        command.arg(format!("{name}={}", value.display()));
    }
    let out = command.output().unwrap();
    assert!(out.status.success(), "make {target}: {}", String::from_utf8_lossy(&out.stderr));
    out
}

/// Returns the relative paths of all files below a folder, sorted.
fn files(root: &Path) -> Vec<String> {
    let (mut found, mut todo) = (Vec::new(), vec![root.to_owned()]);
    while let Some(path) = todo.pop() {
        if path.is_dir() {
            todo.extend(fs::read_dir(&path).unwrap().map(|e| e.unwrap().path()));
        } else {
            found.push(path.strip_prefix(root).unwrap().to_string_lossy().into_owned());
        }
    }
    found.sort();
    found
}

fn installed(name: &str) -> PathBuf {
    let to = folder(name);
    make(
        "install",
        &[
            ("DESTDIR", &to),
            ("PREFIX", Path::new("/usr")),
            ("BIN", Path::new(env!("CARGO_BIN_EXE_holdfast"))),
        ],
    );
    to
}

#[test]
fn installed_files_are_complete_and_uninstall_keeps_the_config() {
    let to = installed("install");
    let found = files(&to);
    for wanted in [
        "etc/holdfast/server.toml",
        "usr/bin/holdfast",
        "usr/lib/systemd/system/holdfast-agent.service",
        "usr/lib/systemd/system/holdfast-server.service",
        "usr/share/bash-completion/completions/holdfast",
        "usr/share/fish/vendor_completions.d/holdfast.fish",
        "usr/share/holdfast/grafana/fleet.json",
        "usr/share/holdfast/grafana/hosts.json",
        "usr/share/holdfast/prometheus/holdfast.rules.yml",
        "usr/share/man/man1/holdfast-up.1",
        "usr/share/man/man1/holdfast.1",
        "usr/share/zsh/site-functions/_holdfast",
    ] {
        assert!(found.iter().any(|f| f == wanted), "{wanted} is not in {found:#?}");
    }

    let program = to.join("usr/bin/holdfast");
    let ran = |words: &[&str]| Command::new(&program).args(words).output().unwrap();
    assert!(ran(&["--version"]).status.success());
    let config = to.join("etc/holdfast/server.toml");
    let target = Path::new("/var/lib/holdfast-server/server.toml");
    assert_eq!(fs::read_link(&config).unwrap(), target, "its user may write there");

    let bash = to.join("usr/share/bash-completion/completions/holdfast");
    assert!(Command::new("bash").arg("-n").arg(&bash).status().unwrap().success());
    assert!(fs::read_to_string(&bash).unwrap().contains("journal"));
    let page = fs::read_to_string(to.join("usr/share/man/man1/holdfast.1")).unwrap();
    assert!(page.contains(".TH holdfast 1") && page.contains("holdfast\\-server(1)"), "{page}");
    let unit = to.join("usr/lib/systemd/system/holdfast-server.service");
    let unit = fs::read_to_string(unit).unwrap();
    assert!(unit.contains("ExecStart=/usr/bin/holdfast server --config /etc/holdfast/server.toml"));
    assert!(
        unit.contains(" setpriority sched_setscheduler\n"),
        "hashing steps back behind requests"
    );
    // The certificate has the host's name, from /proc/sys, and its addresses, from netlink.
    assert!(unit.contains(" AF_NETLINK ") && !unit.contains("\nProcSubset=pid\n"), "{unit}");

    fs::remove_file(&config).unwrap();
    fs::write(&config, "# mine\n").unwrap();
    make(
        "install",
        &[
            ("DESTDIR", &to),
            ("PREFIX", Path::new("/usr")),
            ("BIN", Path::new(env!("CARGO_BIN_EXE_holdfast"))),
        ],
    );
    assert_eq!(fs::read_to_string(&config).unwrap(), "# mine\n", "kept by another installation");
    make("uninstall", &[("DESTDIR", &to), ("PREFIX", Path::new("/usr"))]);
    assert_eq!(files(&to), ["etc/holdfast/server.toml"]);
    assert!(!to.join("usr/share/holdfast").exists(), "an empty folder is left");
}

#[test]
fn install_accepts_a_path_with_a_space() {
    let to = folder("install-space");
    let bin = to.join("a program");
    fs::copy(env!("CARGO_BIN_EXE_holdfast"), &bin).unwrap();
    let root = to.join("root");
    make("install", &[("DESTDIR", &root), ("PREFIX", Path::new("/usr")), ("BIN", &bin)]);
    assert!(root.join("usr/bin/holdfast").exists());
}

/// Returns the value of a key of a unit.
fn value<'a>(unit: &'a str, key: &str) -> &'a str {
    let key = format!("{key}=");
    unit.lines().find_map(|line| line.strip_prefix(&key)).unwrap_or_else(|| panic!("no {key}"))
}

/// Memory of an agent with 196,000 names of 200 bytes that wait, as it was measured.
const NAMES_BYTES: u64 = 483 << 20;
/// Memory of a notification that waits in the kernel, with its name.
const NOTIFICATION_BYTES: u64 = 200;

#[test]
fn memory_limits_of_the_agents_unit_leave_room_for_a_flood() {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let unit = fs::read_to_string(here.join("packaging/holdfast-agent.service")).unwrap();
    let bytes = |key: &str| {
        let (number, unit) = value(&unit, key).split_at(value(&unit, key).len() - 1);
        let shift = if unit == "G" { 30 } else { 20 };
        number.parse::<u64>().unwrap() << shift
    };
    let config = fs::read_to_string(here.join("src/config/agent.default.toml")).unwrap();
    let waiting = config.lines().find_map(|line| line.strip_prefix("notifications_max = "));
    let waiting: u64 = waiting.unwrap().trim().parse().unwrap();
    let needed = NAMES_BYTES + waiting * NOTIFICATION_BYTES;
    assert!(needed < bytes("MemoryHigh"), "{needed} bytes");
    assert!(bytes("MemoryHigh") < bytes("MemoryMax"));
}

/// In the unit /etc is read-only, so the file that `PUT /manager/configuration` replaces must be
/// elsewhere.
#[test]
fn unit_creates_the_server_config_where_it_may_be_replaced() {
    let to = folder("install-config");
    make(
        "install",
        &[
            ("PREFIX", &to),
            ("SYSCONFDIR", &to.join("etc")),
            ("BIN", Path::new(env!("CARGO_BIN_EXE_holdfast"))),
        ],
    );
    let unit = fs::read_to_string(to.join("lib/systemd/system/holdfast-server.service")).unwrap();
    let link = to.join("etc/holdfast/server.toml");
    let state = format!("/var/lib/{}", value(&unit, "StateDirectory"));
    assert_eq!(value(&unit, "WorkingDirectory"), state);
    assert_eq!(fs::read_link(&link).unwrap(), Path::new(&state).join("server.toml"));
    assert!(value(&unit, "ExecStart").ends_with(&format!(" --config {}", link.display())));

    let made = value(&unit, "ExecStartPre").strip_prefix("/bin/sh -c '").unwrap();
    let made = made.strip_suffix('\'').unwrap();
    let state = folder("install-state");
    let start = || {
        let done = Command::new("/bin/sh").args(["-c", made]).current_dir(&state).status().unwrap();
        assert!(done.success());
    };
    start();
    assert_eq!(files(&state), ["server.toml"]);
    let config = state.join("server.toml");
    let mut check = Command::new(to.join("bin/holdfast"));
    let checked = check.args(["config", "check", "server"]).arg(&config).output().unwrap();
    assert!(checked.status.success(), "{}", String::from_utf8_lossy(&checked.stderr));
    fs::write(&config, "# mine\n").unwrap();
    start();
    assert_eq!(fs::read_to_string(&config).unwrap(), "# mine\n");
}

#[test]
fn systemd_accepts_the_units_and_rates_them_hardened() {
    let analyze = |words: &[&str], unit: &Path| {
        Command::new("systemd-analyze").args(words).arg(unit).output().unwrap()
    };
    if !Command::new("systemd-analyze").arg("--version").output().is_ok_and(|o| o.status.success())
    {
        return needs::skip("systemd-analyze is not installed");
    }
    // The units contain the folder in their paths, so that they name the installed program.
    let to = folder("install-units");
    make(
        "install",
        &[
            ("PREFIX", &to),
            ("SYSCONFDIR", &to.join("etc")),
            ("BIN", Path::new(env!("CARGO_BIN_EXE_holdfast"))),
        ],
    );
    let mut levels = Vec::new();
    for (name, exposure) in EXPOSURE_MAX {
        let unit = to.join("lib/systemd/system").join(name);
        let verified = analyze(&["verify", "--man=no", "--recursive-errors=no"], &unit);
        let said = String::from_utf8_lossy(&verified.stderr);
        assert!(verified.status.success() && !said.contains(name), "{name}: {said}");
        let words = ["security", "--no-pager", "--offline=true", "--threshold", exposure];
        let secured = analyze(&words, &unit);
        let told = String::from_utf8_lossy(&secured.stdout);
        assert!(secured.status.success(), "{name} is too exposed:\n{told}");
        let (_, level) = told.split_once("Overall exposure level for").unwrap();
        levels.push(level.split(' ').find_map(|word| word.parse::<f64>().ok()).unwrap());
    }
    // Versions of systemd rate a little differently.
    let document = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/start.md"));
    let document = document.unwrap().replace('\n', " ");
    let (_, said) = document.split_once("`systemd-analyze security --offline=true`: ").unwrap();
    let said: Vec<f64> = said.split(' ').filter_map(|word| word.parse().ok()).take(2).collect();
    assert_eq!(said.len(), levels.len(), "{said:?}");
    let far = |(one, other): (&f64, &f64)| (one - other).abs() > 0.3;
    assert!(!said.iter().zip(&levels).any(far), "start.md says {said:?}: {levels:?}");
}

/// Runs dpkg on a root folder of its own. Its scripts see the folder as `DPKG_ROOT`.
fn dpkg(root: &Path, words: &[&str]) {
    let mut command = Command::new("dpkg");
    command.arg(format!("--root={}", root.display()));
    // The root has neither a C library nor a shell.
    command.args(["--force-script-chrootless", "--force-depends"]).args(words);
    let out = command.output().unwrap();
    assert!(out.status.success(), "{words:?}: {}", String::from_utf8_lossy(&out.stderr));
}

#[test]
fn debian_package_is_installed_upgraded_and_removed() {
    let base = folder("packages");
    let (out, root) = (base.join("dist"), base.join("root"));
    let built = Command::new("./packaging/packages.sh")
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .envs([("BIN", env!("CARGO_BIN_EXE_holdfast")), ("COMPRESSION", "none")])
        .env("FORMATS", "deb tar debug")
        .env("OUT", &out)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&built.stdout).into_owned();
    assert!(built.status.success(), "{said}{}", String::from_utf8_lossy(&built.stderr));
    assert!(said.starts_with("needs glibc 2."), "{said}");
    let found = files(&out);
    let of_kind = |kind: &str| found.iter().find(|name| name.ends_with(kind)).unwrap();
    let (deb, tarball) = (out.join(of_kind(".deb")), out.join(of_kind(".tar.gz")));
    assert!(of_kind(".debug").starts_with("holdfast_"));

    fs::create_dir_all(root.join("var/lib/dpkg/updates")).unwrap();
    fs::create_dir_all(root.join("var/lib/dpkg/info")).unwrap();
    fs::write(root.join("var/lib/dpkg/status"), "").unwrap();
    let deb = deb.to_str().unwrap();
    dpkg(&root, &["--install", deb]);
    let program = root.join("usr/bin/holdfast");
    assert!(Command::new(&program).arg("--version").output().unwrap().status.success());
    let config = root.join("etc/holdfast/server.toml");
    let target = Path::new("/var/lib/holdfast-server/server.toml");
    assert_eq!(fs::read_link(&config).unwrap(), target);
    let listed = files(&root.join("usr"));
    // Another installation keeps the plain file of an administrator.
    fs::remove_file(&config).unwrap();
    fs::write(&config, "# mine\n").unwrap();
    dpkg(&root, &["--install", deb]);
    assert_eq!(fs::read_to_string(&config).unwrap(), "# mine\n");
    dpkg(&root, &["--remove", "holdfast"]);
    assert!(!program.exists() && config.exists());

    let unpacked = base.join("unpacked");
    fs::create_dir_all(&unpacked).unwrap();
    let tar = Command::new("tar").arg("-xzf").arg(&tarball).arg("-C").arg(&unpacked).status();
    assert!(tar.unwrap().success());
    assert_eq!(files(&unpacked.join("holdfast/usr")), listed);
}

/// Runs a script of `tests/` with the program. Where a script cannot run, it prints why.
fn script(name: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests").join(name);
    let out = Command::new(path).env("BIN", env!("CARGO_BIN_EXE_holdfast")).output().unwrap();
    let said = String::from_utf8_lossy(&out.stdout);
    assert!(out.status.success(), "{name}: {said}{}", String::from_utf8_lossy(&out.stderr));
    println!("{said}");
}

#[test]
fn rpm_is_installed_upgraded_and_removed() {
    script("rpm.sh");
}

#[test]
fn image_runs_as_its_configuration_says() {
    script("image.sh");
}

#[test]
fn server_is_set_up_and_an_agent_enrols_with_its_line() {
    let base = folder("setup");
    let at = |name: &str| base.join(name).to_str().unwrap().to_owned();
    let (config, data) = (at("etc/server.toml"), at("server"));
    let listen = ["--listen", "127.0.0.2", "--name", "localhost", "--name", "fleet.example.org"];
    let words = [&["server", "setup", "--config", &config, "--data", &data], &listen[..]].concat();
    let (code, out, error) = run(&words);
    assert_eq!((code, error.as_str()), (0, ""));
    assert!(out.contains(&format!("written: {config}")) && out.contains("start it"), "{out}");
    let (code, _, error) = run(&words);
    assert_eq!(code, 2);
    assert!(error.contains("server.toml: exists"), "{error}");

    let port = free_port();
    let text = fs::read_to_string(&config).unwrap();
    let text = text.replace("127.0.0.2:1517", &format!("127.0.0.2:{port}"));
    let text = text.replace("127.0.0.2:55000", "127.0.0.2:0");
    fs::write(&config, text).unwrap();
    let words = ["server", "--config", &config, "--listen", "127.0.0.1", "--name", "late"];
    let server = Running::start(&words, &base.join("server.log"));
    server.line("--listen and --name hold for this run");
    server.line("ready: ");
    let token = |more: &[&str]| run(&[&["token", "--data", &data], more].concat());
    let (_, token_alone, error) = token(&[]);
    assert_eq!(token_alone.lines().count(), 1);
    assert!(error.contains("only this machine reaches that port"), "{error}");
    let line = error.lines().find_map(|line| line.trim().strip_prefix("holdfast ")).unwrap();
    let line = format!("{line} --name web");
    assert!(line.contains(&format!(" --server https://localhost:{port} --token hf1.")), "{line}");
    assert!(line.contains(token_alone.trim()), "{line}");
    assert_eq!(token(&["--json"]).2, "");

    let agent = at("agent/agent.toml");
    let enroll = |more: &[&str]| {
        let mut words: Vec<_> = line.split(' ').collect();
        words.extend(["--config", &agent]);
        words.extend(more);
        run(&words)
    };
    // A name that the certificate does not have.
    let other = line.replace("//localhost:", "//127.0.0.3:");
    let words: Vec<_> = other.split(' ').chain(["--config", &agent]).collect();
    let (code, _, error) = run(&words);
    assert_eq!(code, 2);
    assert!(error.contains("127.0.0.3"), "{error}");
    assert!(!Path::new(&agent).exists());
    let (code, _, error) = run(&["enroll", "--if-needed", "--config", &agent]);
    assert!(code == 2 && error.contains("name the server with --server"), "{error}");
    let (code, _, error) = run(&["enroll", "--config", &agent, "--token", token_alone.trim()]);
    assert_eq!(code, 2);
    assert!(error.contains("agent.toml: there is none; name the server with --server"), "{error}");
    let (code, out, error) = enroll(&[]);
    assert_eq!((code, error.as_str()), (0, ""));
    assert_eq!(
        out,
        format!(
            "enrolled: agent 001 web\nwritten: {agent}\nstart it: holdfast agent --config {agent}\n"
        )
    );
    assert_eq!(enroll(&["--if-needed"]).0, 0);
    // An enrolled machine needs no token.
    let (code, out, error) = run(&["enroll", "--if-needed", "--config", &agent]);
    assert_eq!((code, out.as_str()), (0, "enrolled already: agent 001 web\n"), "{error}");
    let (code, _, error) = enroll(&[]);
    assert_eq!(code, 2);
    assert!(error.contains("enrolled already as agent 001 web"), "{error}");
    let agent = Running::start(&["agent", "--config", &agent], &base.join("agent.log"));
    agent.line("connected: agent 001 web");
    assert_eq!(agent.stop(), 0);
    assert_eq!(server.stop(), 0);
}

#[test]
#[ignore = "run by the next test in a process of its own"]
fn panics() {
    let nothing: Option<u8> = std::env::args().nth(1_000).map(|_| 1);
    nothing.expect("an argument");
}

#[test]
fn backtrace_has_lines_if_debug_symbols_lie_in_a_file_beside() {
    if Command::new("objcopy").arg("--version").output().is_err() {
        return needs::skip("no objcopy (Debian's package binutils)");
    }
    let dir = folder("split-debug");
    let program = dir.join("program");
    fs::copy(std::env::current_exe().unwrap(), &program).unwrap();
    let whole = fs::metadata(&program).unwrap().len();
    let split = Path::new(env!("CARGO_MANIFEST_DIR")).join("packaging/split_debug.sh");
    for _ in 0..2 {
        // The second time nothing is left to split.
        assert!(Command::new(&split).arg(&program).status().unwrap().success());
    }
    assert!(fs::metadata(&program).unwrap().len() < whole / 2, "of {whole} bytes");
    let backtrace = || {
        let words = needs::own_process_words(module_path!(), "panics");
        let mut command = Command::new(&program);
        let done = command.args(words).env("RUST_BACKTRACE", "1").output().unwrap();
        String::from_utf8(done.stderr).unwrap()
    };
    let line =
        |text: &str| text.contains("install::panics") && text.contains("tests/it/install.rs:");
    let shown = backtrace();
    let frames = shown.split_once("stack backtrace").expect("a backtrace").1;
    assert!(line(frames), "{shown}");
    fs::remove_file(dir.join("program.debug")).unwrap();
    let shown = backtrace();
    let frames = shown.split_once("stack backtrace").expect("a backtrace").1;
    assert!(!line(frames), "the lines come from the file: {shown}");
}
