//! Documents name crates, files and tests that exist.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use crate::{crates, files, root};

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

/// After a test is renamed, no document may name it, and no test filter may match nothing, because
/// such a command passes.
#[test]
fn tests_named_in_documents_exist() {
    let tests = tests_by_file();
    let mut broken = Vec::new();
    let names = |path: &PathBuf| {
        let kind =
            ["md", "toml", "sh", "rs"].iter().any(|k| path.extension().is_some_and(|e| e == *k));
        kind || path.ends_with("Makefile")
    };
    for file in files().iter().filter(|path| names(path)) {
        // Entries of released versions are not rewritten, and this file describes the forms.
        if file.ends_with("CHANGELOG.md") || file.ends_with("tidy/src/documents.rs") {
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
    let mut words = command.split(['`', '|', '"']).next().unwrap().split_whitespace();
    let (mut targets, mut filters) = (Vec::new(), Vec::new());
    while let Some(word) = words.next() {
        match word.trim_end_matches([',', '.', ':']) {
            "--test" => targets.extend(words.next()),
            "-p" | "--test-threads" | "--bench" | "--bin" | "--features" => drop(words.next()),
            option if option.starts_with(['-', '$']) => {}
            // The command is over where the sentence goes on.
            _ if word.ends_with(',') => break,
            filter => filters.push(filter),
        }
    }
    let is_target = |path: &str, target: &&str| {
        path.ends_with(&format!("/tests/{target}.rs"))
            || path.contains(&format!("/tests/{target}/"))
    };
    let of_target = |path: &str| targets.is_empty() || targets.iter().any(|t| is_target(path, t));
    let mut missing: Vec<String> = targets
        .iter()
        .filter(|target| !tests.keys().any(|path| is_target(path, target)))
        .map(|target| format!("--test {target}"))
        .collect();
    for filter in filters {
        let there =
            |(path, text): (&String, &String)| of_target(path) && matches(filter, path, text);
        if !tests.iter().any(there) {
            missing.push(format!("cargo test {filter}"));
        }
    }
    missing
}

/// Returns true if a filter selects a test of this file: `MODULE::`, a part of a function's name, or
/// both.
fn matches(filter: &str, path: &str, text: &str) -> bool {
    let (module, name) = filter.rsplit_once("::").unwrap_or(("", filter));
    let module = module.rsplit("::").next().unwrap();
    let of_module = module.is_empty() || path.ends_with(&format!("/{module}.rs"));
    let named = |line: &str| line.split_once("fn ").is_some_and(|(_, f)| f.contains(name));
    of_module && (path.ends_with(&format!("/{name}.rs")) || text.lines().any(named))
}
