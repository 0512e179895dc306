//! The project's rules that the compiler does not check: the direction of imports, the length of
//! files, that ARCHITECTURE.md names every crate, that links resolve, and that the commands in the
//! documents exist.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stdout,
    clippy::missing_panics_doc,
    clippy::unnecessary_debug_formatting,
    missing_docs,
    reason = "a test that cannot go on fails"
)]

#[path = "tidy/modules.rs"]
mod modules;
#[path = "tidy/words.rs"]
mod words;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Longest source file, lines. A longer file describes more than one thing and should be split.
const FILE_LINES_MAX: usize = 500;

/// Most files in one import cycle.
const CYCLE_FILES_MAX: usize = 3;

/// Most lines of source in a crate, with its unit tests.
const CRATE_LINES_MAX: usize = 3_000;

/// Crates that may be larger, with their limit in thousands of lines. The list only shrinks.
const LARGER_CRATES: &[(&str, usize)] = &[
    ("crates/agent/detect", 4),
    ("crates/agent/queue", 7),
    ("crates/agent/run", 4),
    ("crates/agent/sync", 5),
    ("crates/base/model", 4),
    ("crates/server/ingest", 4),
    ("crates/server/query", 4),
    ("crates/server/registry", 8),
    ("crates/server/sessions", 5),
    ("crates/store/journal", 6),
    ("crates/store/series", 12),
    ("crates/store/control", 8),
    ("crates/store/state", 6),
    ("crates/web/api", 8),
    ("crates/web/rest", 6),
    ("src", 7),
];

/// The crates that each crate may import, by folder. Every crate must be listed.
const MAY_IMPORT: &[(&str, &[&str])] = &[
    ("base/model", &[]),
    ("base/env", &[]),
    ("base/console", &[]),
    ("base/service", &[]),
    ("base/settings", &[]),
    ("link", &["model"]),
    ("agent/observe", &["model", "env"]),
    ("agent/detect", &["model", "env", "observe"]),
    ("agent/attribution", &["model"]),
    ("agent/host", &["model", "env"]),
    ("agent/explain", &["model", "env"]),
    ("agent/realtime", &["model", "env", "attribution", "detect", "explain", "watch"]),
    ("agent/writers", &[]),
    ("agent/queue", &["model", "env", "writers"]),
    ("agent/sync", &["model", "env", "link", "queue"]),
    ("agent/dirty", &["model"]),
    ("agent/watch", &["model", "env", "dirty"]),
    ("agent/telemetry", &["model", "env", "settings", "console", "host", "queue", "sync"]),
    (
        "agent/run",
        &[
            "model",
            "env",
            "settings",
            "console",
            "link",
            "detect",
            "explain",
            "host",
            "queue",
            "realtime",
            "sync",
            "telemetry",
        ],
    ),
    ("agent/scan", &["model", "env", "console", "detect", "queue", "run"]),
    ("store/journal", &["env"]),
    ("store/sqlite", &["env"]),
    ("store/state", &["model", "env", "sqlite"]),
    ("store/control", &["model", "env", "sqlite"]),
    ("store/codec", &[]),
    ("store/series", &["codec", "env", "journal"]),
    ("store/commit", &["model", "env", "journal", "state"]),
    ("server/registry", &["model", "env", "settings", "control", "commit"]),
    ("server/silence", &["model", "env", "commit", "state", "registry"]),
    (
        "server/sessions",
        &["model", "env", "link", "commit", "control", "state", "series", "registry", "silence"],
    ),
    ("server/sigma", &["env"]),
    ("server/replication", &["model", "env", "journal", "commit", "state"]),
    ("server/promql-syntax", &[]),
    ("server/budget", &[]),
    ("server/promql-values", &["promql-syntax", "series"]),
    ("server/promql", &["budget", "promql-syntax", "promql-values", "series"]),
    ("server/prometheus-api", &["model", "env", "series", "budget", "promql-syntax", "promql"]),
    ("server/query", &["env", "series", "budget"]),
    ("server/ingest", &["env", "series", "query", "prometheus-api"]),
    (
        "web/rest",
        &[
            "model", "env", "registry", "sigma", "control", "state", "commit", "series", "ingest",
            "listener",
        ],
    ),
    ("web/security", &["model", "registry", "control", "listener", "rest"]),
    (
        "web/api",
        &[
            "model", "env", "settings", "registry", "sigma", "control", "state", "commit",
            "series", "listener", "rest", "security",
        ],
    ),
    ("web/listener", &["env"]),
    ("web/client", &["model", "env", "console", "service"]),
    ("web/page", &[]),
    ("testing/device", &[]),
    ("testing/conformance", &["model", "state"]),
];

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// Returns every file that git tracks or would track.
fn files() -> Vec<PathBuf> {
    let out = Command::new("git")
        .args(["ls-files", "--cached", "--others", "--exclude-standard"])
        .current_dir(root())
        .output()
        .unwrap();
    assert!(out.status.success(), "git ls-files");
    String::from_utf8(out.stdout)
        .unwrap()
        .lines()
        .map(|l| root().join(l))
        .filter(|p| p.is_file())
        .collect()
}

fn crates() -> Vec<String> {
    let mut found: Vec<String> = files()
        .iter()
        .filter(|p| p.ends_with("Cargo.toml"))
        .filter_map(|p| p.parent()?.strip_prefix(root().join("crates")).ok().map(Path::to_owned))
        .map(|p| p.to_string_lossy().into_owned())
        .collect();
    found.sort();
    found
}

#[test]
fn imports_run_one_way() {
    let table: BTreeMap<_, _> = MAY_IMPORT.iter().copied().collect();
    let ours: BTreeSet<&str> =
        MAY_IMPORT.iter().map(|(folder, _)| folder.rsplit('/').next().unwrap()).collect();
    let mut broken = Vec::new();
    for folder in crates() {
        let Some(allowed) = table.get(folder.as_str()) else {
            broken.push(format!("crates/{folder} is not in the table of tests/tidy.rs"));
            continue;
        };
        let manifest =
            fs::read_to_string(root().join("crates").join(&folder).join("Cargo.toml")).unwrap();
        let manifest: toml::Table = manifest.parse().unwrap();
        let Some(dependencies) = manifest.get("dependencies").and_then(|d| d.as_table()) else {
            continue;
        };
        for name in dependencies.keys().filter(|n| ours.contains(n.as_str())) {
            if !allowed.contains(&name.as_str()) {
                broken.push(format!("crates/{folder} may not import {name}"));
            }
        }
    }
    assert!(broken.is_empty(), "{broken:#?}");
}

#[test]
fn source_files_stay_below_the_line_limit() {
    let long: Vec<String> = files()
        .iter()
        .filter(|p| p.extension().is_some_and(|e| ["rs", "ts", "tsx"].iter().any(|x| e == *x)))
        .filter_map(|p| {
            let lines = fs::read_to_string(p).unwrap().lines().count();
            (lines > FILE_LINES_MAX).then(|| format!("{} has {lines} lines", p.display()))
        })
        .collect();
    assert!(long.is_empty(), "{long:#?}");
}

/// Returns the folders that hold a crate, including the program's `src`.
fn source_folders() -> Vec<(String, PathBuf)> {
    let mut found: Vec<_> = crates()
        .into_iter()
        .map(|name| (format!("crates/{name}"), root().join("crates").join(name).join("src")))
        .collect();
    found.push(("src".into(), root().join("src")));
    found
}

#[test]
fn modules_import_one_way() {
    let mut wrong = Vec::new();
    for (name, src) in source_folders() {
        let cycle = modules::Modules::read(&src).largest_cycle();
        if cycle.len() > CYCLE_FILES_MAX {
            wrong.push(format!("{name}: {} files import each other: {cycle:?}", cycle.len()));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn crates_stay_below_the_line_limit() {
    let mut wrong = Vec::new();
    for (name, src) in source_folders() {
        let lines: usize = files()
            .iter()
            .filter(|path| path.starts_with(&src) && path.extension().is_some_and(|e| e == "rs"))
            .map(|path| fs::read_to_string(path).unwrap().lines().count())
            .sum();
        let listed = LARGER_CRATES.iter().find(|(listed, _)| *listed == name);
        let allowed = listed.map_or(CRATE_LINES_MAX, |(_, thousands)| thousands * 1_000);
        if lines > allowed {
            wrong.push(format!("{name}: {lines} lines of at most {allowed}"));
        }
        if listed.is_some() && lines + 1_000 <= allowed {
            wrong.push(format!("{name}: {lines} lines; lower its figure in LARGER_CRATES"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn comments_and_documents_use_plain_words() {
    let mut wrong = Vec::new();
    for path in files() {
        let name = path.strip_prefix(root()).unwrap().to_string_lossy().into_owned();
        let end = path.extension().and_then(|end| end.to_str()).unwrap_or_default();
        let checked = ["rs", "md", "ts", "tsx", "mjs", "py", "sh"].contains(&end)
            || ["tests/golden/help.txt", "openapi/openapi.json"].contains(&&*name);
        let excepted = ["CHANGELOG.md", "tests/tidy/words.rs"].contains(&&*name);
        if checked && !excepted {
            wrong.extend(words::wrong(&path, &fs::read_to_string(&path).unwrap()));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn test_names_are_short() {
    let mut long = Vec::new();
    for path in files().into_iter().filter(|path| path.extension().is_some_and(|e| e == "rs")) {
        let text = fs::read_to_string(&path).unwrap();
        let names = text.lines().filter_map(|line| line.trim_start().split_once("fn "));
        let names = names.filter_map(|(_, rest)| rest.split_once(['(', '<']));
        long.extend(names.filter(|(name, _)| name.len() > 60).map(|(name, _)| name.to_owned()));
    }
    assert!(long.is_empty(), "longer than 60 characters: {long:#?}");
}

#[test]
fn architecture_document_names_every_crate() {
    let text = fs::read_to_string(root().join("ARCHITECTURE.md")).unwrap();
    let missing: Vec<String> =
        crates().into_iter().filter(|c| !text.contains(&format!("crates/{c}"))).collect();
    assert!(missing.is_empty(), "ARCHITECTURE.md does not name {missing:?}");
}

#[test]
fn links_in_documents_resolve() {
    let mut broken = Vec::new();
    for file in files().iter().filter(|p| p.extension().is_some_and(|e| e == "md")) {
        let text = fs::read_to_string(file).unwrap();
        for target in links(&text) {
            if target.contains("://") || target.starts_with('#') || target.starts_with("mailto:") {
                continue;
            }
            let path = target.split('#').next().unwrap();
            if !file.parent().unwrap().join(path).exists() {
                broken.push(format!("{}: {target}", file.display()));
            }
        }
    }
    assert!(broken.is_empty(), "{broken:#?}");
}

/// Returns the targets of `[text](target)` outside code.
fn links(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut fenced = false;
    for line in text.lines() {
        if line.trim_start().starts_with("```") {
            fenced = !fenced;
        }
        if fenced {
            continue;
        }
        let mut rest = line;
        while let Some(at) = rest.find("](") {
            rest = &rest[at + 2..];
            if let Some(end) = rest.find(')') {
                found.push(rest[..end].trim_start_matches('<').trim_end_matches('>').to_owned());
                rest = &rest[end..];
            }
        }
    }
    found
}

#[test]
fn commands_in_documents_exist() {
    let makefile = fs::read_to_string(root().join("Makefile")).unwrap();
    let mut broken = Vec::new();
    for file in files().iter().filter(|p| p.extension().is_some_and(|e| e == "md")) {
        let text = fs::read_to_string(file).unwrap();
        for line in shell_lines(&text) {
            let words: Vec<&str> =
                line.split_whitespace().skip_while(|w| w.contains('=')).collect();
            let ok = match words.as_slice() {
                ["make", target, ..] => target_exists(&makefile, target),
                [program, rest @ ..] if program.rsplit('/').next() == Some("holdfast") => {
                    command_exists(rest)
                }
                _ => true,
            };
            if !ok {
                broken.push(format!("{}: {line}", file.display()));
            }
        }
    }
    assert!(broken.is_empty(), "{broken:#?}");
}

/// After a test is renamed, no document may name it, and no test filter may match nothing, because
/// such a command passes.
#[test]
fn tests_named_in_documents_exist() {
    let tests = tests_by_file();
    let mut broken = Vec::new();
    let named = |path: &PathBuf| path.extension().is_some_and(|e| e == "md" || e == "toml");
    let makefile = |path: &PathBuf| path.ends_with("Makefile");
    for file in files().iter().filter(|path| named(path) || makefile(path)) {
        // Entries of released versions are not rewritten.
        if file.ends_with("CHANGELOG.md") {
            continue;
        }
        let text = fs::read_to_string(file).unwrap().replace("\\\n", " ");
        let lost = text.lines().flat_map(|line| missing_tests(line, &tests));
        broken.extend(lost.map(|test| format!("{}: {test}", file.display())));
    }
    assert!(broken.is_empty(), "{broken:#?}");
}

/// Returns the text of each Rust file, by its path.
fn tests_by_file() -> BTreeMap<String, String> {
    let rust = |path: &PathBuf| path.extension().is_some_and(|e| e == "rs");
    let text = |path: PathBuf| {
        let text = fs::read_to_string(&path).unwrap();
        (path.to_str().unwrap().to_owned(), text)
    };
    files().into_iter().filter(rust).map(text).collect()
}

/// Returns the names in a line that do not exist: `file.rs::test`, and targets and filters of
/// `cargo test`.
fn missing_tests(line: &str, tests: &BTreeMap<String, String>) -> Vec<String> {
    let word = |c: char| c.is_ascii_alphanumeric() || "_/.:-".contains(c);
    let mut missing = Vec::new();
    for name in line.split(|c| !word(c)).filter(|name| name.contains(".rs::")) {
        let (file, test) = name.split_once("::").unwrap();
        let there = |(path, text): (&String, &String)| {
            path.ends_with(&format!("/{file}")) && text.contains(&format!("fn {test}("))
        };
        if !tests.iter().any(there) {
            missing.push(name.to_owned());
        }
    }
    if let Some((_, command)) = line.split_once("cargo test ") {
        missing.extend(missing_filters(command, tests));
    }
    missing
}

/// Returns the targets and filters of a `cargo test` command that match nothing.
fn missing_filters(command: &str, tests: &BTreeMap<String, String>) -> Vec<String> {
    let mut words = command.split(['`', '|']).next().unwrap().split_whitespace();
    let (mut targets, mut filters) = (Vec::new(), Vec::new());
    while let Some(word) = words.next() {
        match word {
            "--test" => targets.extend(words.next()),
            "-p" | "--test-threads" | "--bench" | "--bin" => drop(words.next()),
            option if option.starts_with(['-', '$']) => {}
            filter => filters.push(filter),
        }
    }
    let is_target = |path: &str, target: &&str| path.ends_with(&format!("/tests/{target}.rs"));
    let of_target = |path: &str| targets.is_empty() || targets.iter().any(|t| is_target(path, t));
    let mut missing: Vec<String> = targets
        .iter()
        .filter(|target| !tests.keys().any(|path| is_target(path, target)))
        .map(|target| format!("--test {target}"))
        .collect();
    for filter in filters {
        let named = |line: &str| line.split_once("fn ").is_some_and(|(_, f)| f.contains(filter));
        let module = format!("/{filter}.rs");
        let there = |(path, text): (&String, &String)| {
            of_target(path) && (path.ends_with(&module) || text.lines().any(named))
        };
        if !tests.iter().any(there) {
            missing.push(format!("cargo test {filter}"));
        }
    }
    missing
}

/// Returns the lines of fenced `sh` blocks, without prompt and comment.
fn shell_lines(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut inside = false;
    for line in text.lines() {
        let line = line.trim();
        if let Some(info) = line.strip_prefix("```") {
            inside = !inside && ["sh", "console", "bash"].contains(&info);
        } else if inside {
            let line = line.strip_prefix("$ ").unwrap_or(line);
            let line = line.split(" #").next().unwrap_or(line).trim();
            let line = line.strip_prefix("sudo ").unwrap_or(line);
            if !line.is_empty() && !line.starts_with('#') {
                found.push(line.to_owned());
            }
        }
    }
    found
}

fn target_exists(makefile: &str, target: &str) -> bool {
    makefile.lines().any(|l| {
        l.split(':').next().is_some_and(|names| {
            names
                .split_whitespace()
                .any(|n| n == target || n.strip_suffix('%').is_some_and(|p| target.starts_with(p)))
        })
    })
}

/// Returns true if the sub-commands exist and their help contains every long flag.
fn command_exists(words: &[&str]) -> bool {
    let mut path: Vec<&str> = Vec::new();
    let mut help = help_of(&path).unwrap();
    for word in words.iter().take_while(|w| !w.starts_with('-')) {
        path.push(word);
        let Some(deeper) = help_of(&path) else {
            path.pop();
            break;
        };
        help = deeper;
    }
    if path.is_empty() && words.first().is_some_and(|w| !w.starts_with('-')) {
        return false;
    }
    words.iter().filter(|w| w.starts_with("--")).all(|flag| {
        let flag = flag.split('=').next().unwrap();
        ["--help", "--version"].contains(&flag) || help.contains(flag)
    })
}

fn help_of(path: &[&str]) -> Option<String> {
    let out =
        Command::new(env!("CARGO_BIN_EXE_holdfast")).args(path).arg("--help").output().unwrap();
    let text = String::from_utf8(out.stdout).unwrap();
    let usage = format!("Usage: {}", [&["holdfast"], path].concat().join(" "));
    (out.status.success() && text.contains(&usage)).then_some(text)
}

#[test]
fn forbidden_tls_and_hash_libraries_are_not_dependencies() {
    let lock = fs::read_to_string(root().join("Cargo.lock")).unwrap();
    for unwanted in ["openssl-sys", "aws-lc-sys", "native-tls"] {
        assert!(!lock.contains(&format!("name = \"{unwanted}\"")), "{unwanted} is in Cargo.lock");
    }
}
