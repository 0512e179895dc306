//! Figures of the documents that a test can know: the C library that the packages need, their sizes, the
//! versions of files. And the alerts for Prometheus.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use crate::common::{Running, folder};

fn at(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

fn text(path: &str) -> String {
    fs::read_to_string(at(path)).unwrap()
}

/// Returns the rows of a document's tables: the first cell without backquotes, and the others.
fn rows(document: &str) -> BTreeMap<String, Vec<String>> {
    let lines = document.lines().filter_map(|line| line.strip_prefix('|')?.strip_suffix('|'));
    let cells = lines.map(|line| line.split('|').map(|cell| cell.trim().replace('`', "")));
    cells.filter_map(|mut cells| Some((cells.next()?, cells.collect()))).collect()
}

/// Prints the oldest C library with which a program starts, or fails above `max`.
fn glibc(program: &Path, max: &str) -> Output {
    Command::new(at("packaging/glibc.sh")).arg(program).arg(max).output().unwrap()
}

/// Returns the C library that `make packages` builds for.
fn oldest_glibc() -> String {
    let script = text("packaging/build.sh");
    script.lines().find_map(|line| line.strip_prefix("glibc=")).unwrap().to_owned()
}

#[test]
fn check_refuses_a_program_that_needs_a_newer_c_library() {
    let program = std::env::current_exe().unwrap();
    let printed = glibc(&program, "99.1");
    let needed = String::from_utf8(printed.stdout).unwrap();
    assert!(printed.status.success() && needed.starts_with("2."), "{needed}");
    // 2.9 is older than 2.10.
    assert!(glibc(&program, "2.100").status.success());
    let refused = glibc(&program, "2.2");
    assert!(!refused.status.success());
    let error = String::from_utf8(refused.stderr).unwrap();
    assert!(error.contains(&format!("needs glibc {}", needed.trim())), "{error}");
}

#[test]
fn program_of_the_packages_starts_with_an_older_c_library() {
    let max = oldest_glibc();
    for document in ["docs/start.md", "docs/operating/platforms.md"] {
        assert!(text(document).contains(&format!("glibc {max}")), "{document}");
    }
    let program = at("target/portable/holdfast");
    if !program.exists() {
        return needs::skip("`make packages` has built no program");
    }
    let checked = glibc(&program, &max);
    assert!(checked.status.success(), "{}", String::from_utf8_lossy(&checked.stderr));
}

#[test]
fn sizes_of_packages_are_those_of_the_document() {
    let files = fs::read_dir(at("dist")).map(|entries| entries.map(Result::unwrap).collect());
    let files: Vec<_> = files.unwrap_or_default();
    let table = rows(&text("docs/start.md"));
    let mut compared = 0;
    for file in &files {
        let name = file.file_name().into_string().unwrap();
        let Some(row) = table.get(&name) else { continue };
        let (bytes, said) = (file.metadata().unwrap().len(), row[1].parse::<f64>().unwrap());
        let mb = bytes as f64 / 1e6;
        assert!((mb / said - 1.0).abs() < 0.05, "{name}: {mb:.1} MB, start.md says {said}");
        compared += 1;
    }
    if compared == 0 {
        needs::skip("`make packages` has made no package of this version");
    }
}

/// Returns the number at an offset of a file, least significant byte first.
fn number(path: &Path, offset: usize) -> u16 {
    let bytes = fs::read(path).unwrap();
    u16::from_le_bytes([bytes[offset], bytes[offset + 1]])
}

/// Returns the version of a database's format.
fn user_version(path: &Path) -> u32 {
    let database = rusqlite::Connection::open(path).unwrap();
    database.query_row("PRAGMA user_version", [], |row| row.get(0)).unwrap()
}

#[test]
fn upgrade_document_has_the_versions_that_are_written() {
    let base = folder("versions");
    let (data, tree) = (base.join("data"), base.join("tree"));
    fs::create_dir_all(&tree).unwrap();
    fs::write(tree.join("file"), b"one").unwrap();
    let words = ["up", "--data", data.to_str().unwrap(), "--watch", tree.to_str().unwrap()];
    let words = [&words[..], &["--api", "127.0.0.1:0", "--plain-http"]].concat();
    let up = Running::start(&words, &base.join("log"));
    up.line("synchronised: ");
    assert_eq!(up.stop(), 0);

    let document = text("docs/operating/upgrade.md");
    let table = rows(&document);
    let said = |row: &str| table.get(row).unwrap_or_else(|| panic!("no row {row}"))[0].clone();
    let database = |row: &str, file: &str| {
        let version = user_version(&data.join(file));
        assert_eq!(said(row), version.to_string(), "{row}");
        version
    };
    let state = database("state.db", "state.db");
    let registry = database("registry.db", "registry.db");
    let agent = database("agent.db", "agent/agent.db");
    let metrics = database("metrics.db of an agent", "agent/metrics.db");
    let clock: serde_json::Value =
        serde_json::from_slice(&fs::read(data.join("clock.json")).unwrap()).unwrap();
    assert_eq!(said("clock.json"), clock["version"].to_string());
    let segments = fs::read_dir(data.join("journal")).unwrap().map(|entry| entry.unwrap().path());
    let segment =
        segments.filter(|path| fs::read(path).is_ok_and(|b| b.starts_with(b"hfjourna"))).max();
    let journal = number(&segment.unwrap(), 8);
    assert_eq!(said("journal, files"), journal.to_string());
    assert_eq!(said("journal, records"), model::Record::VERSION.to_string());
    let manifest = number(&data.join("series/manifest"), 8);
    assert!(said("series store").ends_with(&format!(", manifest {manifest}")), "{manifest}");

    for message in [
        format!("the database has version {}, this program knows {state}:", state + 1),
        format!("registry.db has version {}, this program knows up to {registry}:", registry + 1),
        format!("journal; [...] format version {} is newer than {journal};", journal + 1),
        format!("agent.db: format version {} is newer than {agent},", agent + 1),
        format!("metrics.db: format version {} is newer than {metrics},", metrics + 1),
    ] {
        assert!(document.contains(&message), "not in upgrade.md: {message}");
    }
}

/// The rules that packages install.
const RULES: &str = "packaging/prometheus/holdfast.rules.yml";

#[test]
fn alert_rules_ask_for_metrics_that_exist() {
    let (rules, contract) = (text(RULES), text("tests/golden/contract.txt"));
    let expressions = rules.lines().filter_map(|line| line.trim().strip_prefix("expr: "));
    let is_name = |c: char| c.is_ascii_lowercase() || c == '_';
    let mut metrics: Vec<&str> = expressions
        .flat_map(|line| line.split(|c| !is_name(c)))
        .filter(|word| word.starts_with("holdfast_"))
        .collect();
    metrics.sort_unstable();
    metrics.dedup();
    assert!(metrics.len() >= 8, "{metrics:?}");
    let missing: Vec<_> =
        metrics.iter().filter(|metric| !contract.lines().any(|line| line == **metric)).collect();
    assert!(missing.is_empty(), "no such metrics: {missing:?}");
    let alerts = rules.lines().filter_map(|line| line.trim().strip_prefix("- alert: "));
    let table = rows(&text("docs/operating/running.md"));
    let undescribed: Vec<_> = alerts.filter(|alert| !table.contains_key(*alert)).collect();
    assert!(undescribed.is_empty(), "not in running.md: {undescribed:?}");
}

#[test]
fn alert_rules_pass_their_tests_with_promtool() {
    let built = at("target/prometheus/promtool");
    let promtool = if built.exists() { built } else { "promtool".into() };
    if Command::new(&promtool).arg("--version").output().is_err() {
        return needs::skip("no promtool, which `make prometheus` builds");
    }
    for words in [["check", "rules", RULES], ["test", "rules", &RULES.replace(".yml", ".test.yml")]]
    {
        let done = Command::new(&promtool).args(words).current_dir(at("")).output().unwrap();
        let printed = [done.stdout, done.stderr].map(|out| String::from_utf8(out).unwrap());
        assert!(done.status.success(), "promtool {words:?}: {printed:?}");
    }
}
