//! The names and texts that clients, dashboards, scripts and files rely on. They are listed in
//! `tests/golden/contract.txt`. Comments, types and messages may change; these may not.
//!
//! `HOLDFAST_BLESS=1 cargo test --test it contract::` rewrites the lists that are derived from the
//! tree. The section `texts` is written by hand: a line is added when a client begins to rely on
//! a text.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

const TEXTS: &str = "texts";

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap()
}

/// Returns the Rust files of the product, without tests and benches.
fn sources() -> Vec<String> {
    fn walk(folder: &Path, found: &mut Vec<PathBuf>) {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            if path.is_dir() && name != "tests" && name != "target" {
                walk(&path, found);
            } else if name.ends_with(".rs") && !name.ends_with("tests.rs") {
                found.push(path);
            }
        }
    }
    let mut found = Vec::new();
    walk(&root().join("src"), &mut found);
    walk(&root().join("crates"), &mut found);
    found
        .iter()
        .map(|path| fs::read_to_string(path).unwrap())
        .map(|text| text.split("#[cfg(test)]\nmod tests {").next().unwrap().to_owned())
        .collect()
}

/// Returns the operations of the API as `METHOD PATH id`.
fn operations(api: &Value) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for (path, methods) in api["paths"].as_object().unwrap() {
        for (method, operation) in methods.as_object().unwrap() {
            if let Some(id) = operation["operationId"].as_str() {
                found.insert(format!("{} {path} {id}", method.to_uppercase()));
            }
        }
    }
    found
}

/// Returns the schemas of the API as `Schema.property`.
fn schemas(api: &Value) -> BTreeSet<String> {
    fn properties(name: &str, schema: &Value, found: &mut BTreeSet<String>) {
        if let Some(named) = schema["properties"].as_object() {
            found.extend(named.keys().map(|property| format!("{name}.{property}")));
        }
        for part in ["allOf", "oneOf", "anyOf"] {
            for inner in schema[part].as_array().into_iter().flatten() {
                properties(name, inner, found);
            }
        }
    }
    let mut found = BTreeSet::new();
    for (name, schema) in api["components"]["schemas"].as_object().unwrap() {
        found.insert(name.clone());
        properties(name, schema, &mut found);
    }
    found
}

/// Returns the error codes of the API with their HTTP status, from the generated reference.
fn error_codes() -> BTreeSet<String> {
    let rows = read("docs/reference/api.md");
    rows.lines()
        .filter_map(|line| {
            let mut cells = line.strip_prefix("| ")?.split(" | ");
            let (code, status) = (cells.next()?, cells.next()?);
            let digits = |text: &str| text.bytes().all(|b| b.is_ascii_digit());
            (code.len() == 4 && digits(code) && digits(status)).then(|| format!("{code} {status}"))
        })
        .collect()
}

/// Returns the commands and flags, from the help texts.
fn command_line() -> BTreeSet<String> {
    let help = read("tests/golden/help.txt");
    let mut command = String::new();
    let mut found = BTreeSet::new();
    for line in help.lines() {
        if let Some(heading) = line.strip_prefix("$ ") {
            let words = heading.split_whitespace().filter(|word| !word.starts_with('-'));
            command = words.collect::<Vec<_>>().join(" ");
            found.insert(command.clone());
            continue;
        }
        let flags = line.trim_start();
        if !flags.starts_with('-') || !line.starts_with("  ") {
            continue;
        }
        for word in flags.split_whitespace().take(2) {
            let word = word.trim_end_matches(',');
            let word = word.split(['=', '[']).next().unwrap();
            if word.starts_with('-') && !word.trim_start_matches('-').is_empty() {
                found.insert(format!("{command} {word}"));
            }
        }
    }
    found
}

/// Returns the string literals `"holdfast_..."`: metric names and the program's own labels.
fn metric_names(sources: &[String]) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for text in sources {
        for (start, _) in text.match_indices("\"holdfast_") {
            let rest = &text[start + 1..];
            let end = rest.find('"').unwrap_or(rest.len());
            let name = &rest[..end];
            if name.bytes().all(|b| b.is_ascii_lowercase() || b == b'_' || b.is_ascii_digit()) {
                found.insert(name.to_owned());
            }
        }
    }
    found
}

/// Returns the serialised names of fields and variants, each with the number of its uses. A renamed
/// field of a type that serde reads or writes shows up here; a renamed type does not.
fn serialised_names(sources: &[String]) -> BTreeSet<String> {
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    for text in sources {
        let lines: Vec<&str> = text.lines().collect();
        let mut at = 0;
        while at < lines.len() {
            if lines[at].trim_start().starts_with("#[derive(") {
                at = names_of_item(&lines, at, &mut counts);
            } else {
                at += 1;
            }
        }
    }
    counts.into_iter().map(|(name, uses)| format!("{name} {uses}")).collect()
}

/// Counts the names of the item whose first attribute is at line `at`. Returns the line after it.
fn names_of_item(lines: &[&str], at: usize, counts: &mut BTreeMap<String, usize>) -> usize {
    let indent = lines[at].len() - lines[at].trim_start().len();
    let Some(head) = (at..lines.len()).find(|&line| {
        let text = lines[line].trim_start();
        ["pub ", "pub(", "struct ", "enum "].iter().any(|start| text.starts_with(start))
    }) else {
        return lines.len();
    };
    let attributes = lines[at..head].join(" ");
    let serialised = attributes.contains("Serialize") || attributes.contains("Deserialize");
    if !serialised || !lines[head].ends_with('{') {
        return head + 1;
    }
    let lower = attributes.contains("rename_all = \"lowercase\"");
    let snake = attributes.contains("rename_all = \"snake_case\"");
    let close = format!("{}}}", " ".repeat(indent));
    let mut renamed: Option<String> = None;
    let mut line = head + 1;
    while line < lines.len() && lines[line] != close {
        let text = lines[line].trim_start();
        let inner = lines[line].len() - text.len();
        if let Some((_, rest)) = text.split_once("rename = \"") {
            renamed = rest.split('"').next().map(str::to_owned);
        } else if inner >= indent + 4
            && !text.starts_with(['#', '/', '}', ')'])
            && let Some(name) = field_or_variant(text)
        {
            let own = match name.starts_with(char::is_uppercase) {
                true if snake => to_snake(name),
                true if lower => name.to_lowercase(),
                _ => name.to_owned(),
            };
            *counts.entry(renamed.take().unwrap_or(own)).or_default() += 1;
        }
        line += 1;
    }
    line
}

/// Returns the field or variant that a line of a struct or an enum declares.
fn field_or_variant(line: &str) -> Option<&str> {
    let line = line.strip_prefix("pub ").unwrap_or(line);
    let line = match line.strip_prefix("pub(") {
        Some(rest) => rest.split_once(") ")?.1,
        None => line,
    };
    let end = line.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(line.len());
    let (name, rest) = line.split_at(end);
    let declares = rest.starts_with(": ")
        || rest.is_empty()
        || rest.starts_with([',', '('])
        || rest.starts_with(" {")
        || rest.starts_with(" =");
    (declares && !name.is_empty()).then_some(name)
}

fn to_snake(name: &str) -> String {
    let mut snake = String::new();
    for c in name.chars() {
        if c.is_uppercase() && !snake.is_empty() {
            snake.push('_');
        }
        snake.extend(c.to_lowercase());
    }
    snake
}

/// Joins string literals that are continued over several lines.
fn joined(source: &str) -> String {
    let mut text = String::new();
    let mut rest = source;
    while let Some((before, after)) = rest.split_once("\\\n") {
        text.push_str(before);
        rest = after.trim_start();
    }
    text + rest
}

#[test]
fn names_that_clients_use_do_not_change() {
    let api: Value = serde_json::from_str(&read("openapi/openapi.json")).unwrap();
    let sources = sources();
    let derived = [
        ("operations of the API", operations(&api)),
        ("schemas of the API", schemas(&api)),
        ("error codes of the API", error_codes()),
        ("command line", command_line()),
        ("metrics", metric_names(&sources)),
        ("serialised names", serialised_names(&sources)),
    ];
    let golden = root().join("tests/golden/contract.txt");
    let before = fs::read_to_string(&golden).unwrap_or_default();
    let texts = before.split_once(&format!("# {TEXTS}\n")).map_or("", |(_, texts)| texts);
    let mut now = String::new();
    for (title, names) in &derived {
        assert!(!names.is_empty(), "{title}: nothing found");
        writeln!(now, "# {title}").unwrap();
        for name in names {
            writeln!(now, "{name}").unwrap();
        }
        now.push('\n');
    }
    write!(now, "# {TEXTS}\n{texts}").unwrap();
    if std::env::var_os("HOLDFAST_BLESS").is_some() {
        fs::write(&golden, &now).unwrap();
        return;
    }
    let (was, is): (BTreeSet<&str>, BTreeSet<&str>) =
        (before.lines().collect(), now.lines().collect());
    let lost: Vec<_> = was.difference(&is).collect();
    let new: Vec<_> = is.difference(&was).collect();
    assert!(before == now, "tests/golden/contract.txt: gone {lost:?}, new {new:?}");
}

#[test]
fn texts_that_clients_match_do_not_change() {
    let golden = read("tests/golden/contract.txt");
    let (_, texts) = golden.split_once(&format!("# {TEXTS}\n")).expect("the section texts");
    let sources: Vec<String> = sources().iter().map(|source| joined(source)).collect();
    let absent: Vec<&str> = texts
        .lines()
        .filter(|text| !text.is_empty())
        .filter(|text| !sources.iter().any(|source| source.contains(text)))
        .collect();
    assert!(texts.lines().count() > 20, "the section texts lists too little");
    assert!(absent.is_empty(), "no source contains {absent:?}");
}
