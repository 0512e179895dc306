//! Words that no plain sentence needs, in comments and documents.

use std::fs;
use std::path::Path;

use crate::{files, root};

const WORDS: &[&str] = &[
    "told",
    "anew",
    "whom",
    "whoever",
    "nobody",
    "somebody",
    "meanwhile",
    "mend",
    "mended",
    "mends",
    "beside",
    "so many",
];

/// First words of doc comments that are not sentences.
const HEADLESS: &[&str] = &["What", "Whether", "Who", "Whom", "Whose", "How", "Where"];

/// Returns the lines with such words: in comments and, outside of tests, in texts of Rust files; in
/// comments of scripts and of the page; everywhere in documents, help and the API's description.
fn bad_lines(path: &Path, text: &str) -> Vec<String> {
    let end = path.extension().and_then(|end| end.to_str()).unwrap_or_default();
    // Texts of `bench/` are keys of stored results.
    let within = |name: &str| path.components().any(|part| part.as_os_str() == name);
    let shipped = within("src") && !within("bench");
    let (mut before, mut within_text) = (false, false);
    let mut found = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let line = line.trim_start();
        let comment = ["//", "/*", "* ", "# "].iter().any(|start| line.starts_with(start));
        let bad = match end {
            "rs" if comment => has_words(&outside_quotes(line)) || (!before && is_headless(line)),
            "rs" => {
                // A text that goes on in the next line ends in a backslash there.
                let code = if within_text { format!("\"{line}") } else { line.to_owned() };
                within_text =
                    code.replace("\\\"", "").matches('"').count() % 2 == 1 && line.ends_with('\\');
                shipped && texts(&code).iter().any(|text| has_words(text))
            }
            "ts" | "tsx" | "mjs" | "py" | "sh" => comment && has_words(&outside_quotes(line)),
            "md" => has_words(&outside_quotes(line)),
            _ => has_words(line),
        };
        if bad {
            found.push(format!("{}:{}: {line}", path.display(), number + 1));
        }
        before = line.starts_with("///") || line.starts_with("//!");
    }
    found
}

fn has_words(line: &str) -> bool {
    let plain = line.to_lowercase().replace(|c: char| !c.is_alphanumeric(), " ");
    let plain = format!(" {} ", plain.split_whitespace().collect::<Vec<_>>().join(" "));
    WORDS.iter().any(|word| plain.contains(&format!(" {word} ")))
}

/// Returns the texts of a line of code, without their placeholders. SQL and single words are code.
fn texts(line: &str) -> Vec<String> {
    let quoted = line.split('"').skip(1).step_by(2).map(|text| {
        let parts = text.split('{').map(|part| part.split_once('}').map_or(part, |(_, rest)| rest));
        parts.collect::<Vec<_>>().join(" ")
    });
    let is_sql = |text: &str| {
        ["SELECT ", "UPDATE ", "INSERT ", "WHERE ", "CASE "].iter().any(|sql| text.contains(sql))
    };
    quoted.filter(|text| text.trim().contains(' ') && !is_sql(text)).collect()
}

/// Returns the line without code and quoted text, which may use any word.
fn outside_quotes(line: &str) -> String {
    let parts = line.split(['`', '"']).enumerate();
    parts.filter(|(n, _)| n % 2 == 0).map(|(_, part)| part).collect::<Vec<_>>().join(" ")
}

fn is_headless(line: &str) -> bool {
    let text = line.strip_prefix("///").or_else(|| line.strip_prefix("//!"));
    let first = text.and_then(|text| text.split_whitespace().next());
    first.is_some_and(|first| HEADLESS.contains(&first))
}

#[test]
fn comments_and_documents_use_plain_words() {
    let mut wrong = Vec::new();
    for path in files() {
        let name = path.strip_prefix(root()).unwrap().to_string_lossy().into_owned();
        let end = path.extension().and_then(|end| end.to_str()).unwrap_or_default();
        let checked = ["rs", "md", "ts", "tsx", "mjs", "py", "sh"].contains(&end)
            || ["tests/golden/help.txt", "openapi/openapi.json"].contains(&&*name);
        let excepted = ["CHANGELOG.md", "crates/testing/tidy/src/words.rs"].contains(&&*name);
        if checked && !excepted {
            wrong.extend(bad_lines(&path, &fs::read_to_string(&path).unwrap()));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
