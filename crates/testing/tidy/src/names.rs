//! Names of types and functions: the words of the glossary in ARCHITECTURE.md, and the field's.

use std::fs;

use crate::{files, root};

/// Words that no name of a type, function or module contains.
const WORDS: &[&str] = &[
    "alike",
    "anew",
    "anybody",
    "beside",
    "crowded",
    "everybody",
    "greet",
    "guess",
    "heart",
    "lend",
    "lent",
    "meanwhile",
    "mend",
    "nobody",
    "patience",
    "patient",
    "poke",
    "room",
    "seat",
    "shelf",
    "somebody",
    "spares",
    "tell",
    "teller",
    "tells",
    "told",
    "trouble",
    "turn",
    "turns",
    "whoever",
    "whom",
    "wish",
];

/// Words that are no type's whole name: verbs, participles and other words that do not say what a
/// value is.
const TYPES: &[&str] = &[
    "Alone",
    "Any",
    "Asked",
    "At",
    "Behind",
    "Born",
    "Carried",
    "Chosen",
    "Cut",
    "Displaced",
    "Doubt",
    "Due",
    "Ended",
    "Every",
    "Fed",
    "Followed",
    "Forgetting",
    "Fresh",
    "From",
    "Full",
    "Gate",
    "Gone",
    "Held",
    "Joined",
    "Keep",
    "Kept",
    "Known",
    "Laid",
    "Later",
    "Lead",
    "Leaves",
    "Left",
    "Live",
    "Look",
    "Losses",
    "Lot",
    "Maker",
    "Met",
    "Moved",
    "Moving",
    "Noted",
    "Novelty",
    "Outstanding",
    "Overdue",
    "Own",
    "Peeked",
    "Placed",
    "Rare",
    "Ready",
    "Remembered",
    "Roll",
    "Running",
    "Seen",
    "Sent",
    "Served",
    "Settled",
    "Sharing",
    "Spare",
    "Special",
    "Spent",
    "Surplus",
    "Taken",
    "Ticket",
    "Trail",
    "Unready",
    "Unsound",
    "Waits",
    "Wake",
    "Weighed",
    "What",
    "Who",
    "Woken",
    "Written",
];

/// Returns the kind and name that a line defines, if it defines a type, function or module.
fn definition(line: &str) -> Option<(&str, &str)> {
    let mut words = line.split_whitespace();
    loop {
        let kind = words.next()?;
        match kind {
            "fn" | "struct" | "enum" | "trait" | "type" | "mod" => {
                let rest = words.next()?;
                let end = rest.find(|c: char| !c.is_alphanumeric() && c != '_');
                return Some((kind, &rest[..end.unwrap_or(rest.len())]));
            }
            "async" | "const" | "unsafe" | "extern" => {}
            visible if visible.starts_with("pub") => {}
            _ => return None,
        }
    }
}

/// Returns the words of a name in `snake_case` or `CamelCase`, in lower case.
fn words_of(name: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    for c in name.chars() {
        if c == '_' || c.is_uppercase() {
            words.push(String::new());
        }
        if c != '_' {
            words.last_mut().unwrap().extend(c.to_lowercase());
        }
    }
    words
}

fn is_bad(kind: &str, name: &str) -> bool {
    let is_type = ["struct", "enum", "trait", "type"].contains(&kind);
    (is_type && TYPES.contains(&name))
        || words_of(name).iter().any(|word| WORDS.contains(&word.as_str()))
}

#[test]
fn names_of_product_code_obey_the_glossary() {
    let mut bad = Vec::new();
    for path in files().into_iter().filter(|path| path.extension().is_some_and(|e| e == "rs")) {
        let name = path.strip_prefix(root()).unwrap().to_string_lossy().into_owned();
        let within = |part: &str| name.split('/').any(|folder| folder == part);
        let others = ["bench", "fuzz", "testing", "tests"];
        if !within("src") || others.into_iter().any(within) || name.ends_with("tests.rs") {
            continue;
        }
        let text = fs::read_to_string(&path).unwrap();
        // Names of tests are sentences.
        let code = text.lines().take_while(|line| line.trim() != "mod tests {");
        for (kind, defined) in code.filter_map(definition) {
            if is_bad(kind, defined) {
                bad.push(format!("{name}: {kind} {defined}"));
            }
        }
    }
    assert!(bad.is_empty(), "rename:\n{}", bad.join("\n"));
}

#[test]
fn bad_names_are_recognised() {
    let bad = |line| definition(line).is_some_and(|(kind, name)| is_bad(kind, name));
    for line in ["pub(crate) struct Kept {", "enum Lot {", "async fn lend_it(&self)", "mod heart;"]
    {
        assert!(bad(line), "{line}");
    }
    for line in
        ["struct ReportedItem {", "pub fn intern(", "const fn held(self)", "Kept,", "// fn lend"]
    {
        assert!(!bad(line), "{line}");
    }
}
