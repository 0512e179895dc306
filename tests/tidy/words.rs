//! Words that no plain sentence needs, in comments and documents.

use std::path::Path;

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

/// Returns the lines with such words in the comments of a Rust file, or in a document.
pub(crate) fn wrong(path: &Path, text: &str) -> Vec<String> {
    let rust = path.extension().is_some_and(|end| end == "rs");
    let mut before = false;
    let mut found = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let line = line.trim_start();
        if (line.starts_with("//") || !rust)
            && (has_words(line) || (rust && !before && is_headless(line)))
        {
            found.push(format!("{}:{}: {line}", path.display(), number + 1));
        }
        before = line.starts_with("///") || line.starts_with("//!");
    }
    found
}

fn has_words(line: &str) -> bool {
    let text = outside_quotes(line).to_lowercase();
    let plain = text.replace(|c: char| !c.is_alphanumeric(), " ");
    let plain = format!(" {} ", plain.split_whitespace().collect::<Vec<_>>().join(" "));
    WORDS.iter().any(|word| plain.contains(&format!(" {word} ")))
}

/// Code and quoted text may use any word.
fn outside_quotes(line: &str) -> String {
    let parts = line.split(['`', '"']).enumerate();
    parts.filter(|(n, _)| n % 2 == 0).map(|(_, part)| part).collect::<Vec<_>>().join(" ")
}

fn is_headless(line: &str) -> bool {
    let text = line.strip_prefix("///").or_else(|| line.strip_prefix("//!"));
    let first = text.and_then(|text| text.split_whitespace().next());
    first.is_some_and(|first| HEADLESS.contains(&first))
}
