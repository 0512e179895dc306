//! Files, crates and names stay small.

use std::fs;

use crate::{files, root, source_folders};

/// Longest source file, lines. A longer file describes more than one thing and should be split.
const FILE_LINES_MAX: usize = 500;

/// Most lines of source in a crate, with its unit tests.
const CRATE_LINES_MAX: usize = 4_000;

/// Crates that may be larger: their limit in thousands of lines, and why they are not divided. The
/// list only shrinks.
const LARGER_CRATES: &[(&str, usize, &str)] = &[
    ("crates/agent/queue", 7, "one database: its marks, blocks and transactions share invariants"),
    (
        "crates/agent/run",
        5,
        "the assembly of the agent: its thread, its tasks, their order of start",
    ),
    ("crates/agent/sync", 5, "one protocol: a check and a repair use the parts of a cycle"),
    ("crates/server/registry", 8, "one set of tables in memory that every decision updates"),
    ("crates/server/sessions", 5, "one listener: admission, leases and sessions of agents"),
    (
        "crates/store/journal",
        7,
        "one file format with three layouts, their recovery and their repair",
    ),
    ("crates/store/series", 12, "one store: log, head, parts and catalogue are recovered together"),
    ("crates/store/control", 8, "one schema, with a promise for each operation on it, and its log"),
    ("crates/store/state", 6, "one schema, with a statement for each query of the API"),
    ("crates/web/api", 8, "a file for each resource of the API; nothing is shared but their table"),
    ("crates/web/rest", 6, "one pipeline: each request passes all of its steps"),
    ("src", 5, "the assembly: command line, configuration, and the roles of the program"),
];

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

#[test]
fn crates_stay_below_the_line_limit() {
    let mut wrong = Vec::new();
    for (name, src) in source_folders() {
        let lines: usize = files()
            .iter()
            .filter(|path| path.starts_with(&src) && path.extension().is_some_and(|e| e == "rs"))
            .map(|path| fs::read_to_string(path).unwrap().lines().count())
            .sum();
        let listed = LARGER_CRATES.iter().find(|(listed, ..)| *listed == name);
        let allowed = listed.map_or(CRATE_LINES_MAX, |(_, thousands, _)| thousands * 1_000);
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

/// Most tests that may be skipped where every test should run.
const SKIPS_MAX: usize = 10;

#[test]
fn list_of_skipped_tests_stays_short() {
    let text = fs::read_to_string(root().join("tests/skips.txt")).unwrap();
    let listed: Vec<&str> = text.lines().filter(|line| !line.starts_with('#')).collect();
    assert!(listed.len() <= SKIPS_MAX, "{} tests are listed", listed.len());
    let reason = |line: &&&str| line.split_once(": ").is_some_and(|(_, reason)| !reason.is_empty());
    let bare: Vec<_> = listed.iter().filter(|line| !reason(line)).collect();
    assert!(bare.is_empty(), "without what the machine lacks: {bare:?}");
}

/// An example that `cargo test --doc` leaves out is not tested.
#[test]
fn crates_with_examples_run_them() {
    let mut wrong = Vec::new();
    for (name, src) in source_folders() {
        let manifest = src.parent().unwrap().join("Cargo.toml");
        let off = fs::read_to_string(manifest).unwrap().contains("doctest = false");
        let examples = files().into_iter().filter(|path| path.starts_with(&src)).any(|path| {
            let text = fs::read_to_string(path).unwrap();
            let starts = |line: &str| line.starts_with("//") && line.ends_with("```");
            let mut fences = text.lines().map(str::trim_start).filter(|line| line.contains("```"));
            // The first fence of a pair names another language, or nothing.
            std::iter::from_fn(|| fences.next().map(|first| (first, fences.next())))
                .any(|(first, _)| starts(first))
        });
        if off && examples {
            wrong.push(name);
        }
    }
    assert!(wrong.is_empty(), "doctest = false in {wrong:?}, which have examples");
}
