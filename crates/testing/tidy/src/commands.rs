//! Commands in documents exist, with their options.

use std::collections::BTreeMap;
use std::fs;

use crate::{files, root};

#[test]
fn commands_in_documents_exist() {
    let makefile = fs::read_to_string(root().join("Makefile")).unwrap();
    let help = help_by_command();
    assert!(help.contains_key("holdfast up"), "{:?}", help.keys());
    let mut broken = Vec::new();
    for file in files().iter().filter(|p| p.extension().is_some_and(|e| e == "md")) {
        let text = fs::read_to_string(file).unwrap();
        for line in shell_lines(&text) {
            let words: Vec<&str> =
                line.split_whitespace().skip_while(|w| w.contains('=')).collect();
            let ok = match words.as_slice() {
                ["make", target, ..] => target_exists(&makefile, target),
                [program, rest @ ..] if program.rsplit('/').next() == Some("holdfast") => {
                    command_exists(&help, rest)
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
fn command_exists(help: &BTreeMap<String, String>, words: &[&str]) -> bool {
    let mut command = "holdfast".to_owned();
    for word in words.iter().take_while(|w| !w.starts_with('-')) {
        let deeper = format!("{command} {word}");
        if !help.contains_key(&deeper) {
            break;
        }
        command = deeper;
    }
    if command == "holdfast" && words.first().is_some_and(|w| !w.starts_with('-')) {
        return false;
    }
    words.iter().filter(|w| w.starts_with("--")).all(|flag| {
        let flag = flag.split('=').next().unwrap();
        ["--help", "--version"].contains(&flag) || help[&command].contains(flag)
    })
}

/// Returns the help of each command, from the golden file that a test of the program keeps true.
fn help_by_command() -> BTreeMap<String, String> {
    let golden = fs::read_to_string(root().join("tests/golden/help.txt")).unwrap();
    let sections = golden.split("$ holdfast").filter_map(|section| {
        let (words, text) = section.split_once("--help\n")?;
        Some((format!("holdfast {}", words.trim()).trim().to_owned(), text.to_owned()))
    });
    sections.collect()
}
