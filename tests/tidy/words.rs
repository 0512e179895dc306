//! Words that no plain sentence needs, counted in comments and documents. `words.txt` lists the files
//! that still have some, with their number.

use std::collections::BTreeMap;
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

/// Returns the number of such words in the comments of a Rust file, or in a document.
pub(crate) fn count(path: &Path, text: &str) -> usize {
    let rust = path.extension().is_some_and(|end| end == "rs");
    let mut before = false;
    let mut found = 0;
    for line in text.lines() {
        let line = line.trim_start();
        let comment = line.starts_with("//");
        if comment || !rust {
            found += words_in(line);
            // A question mark makes a heading of it.
            found += usize::from(rust && !before && is_headless(line));
        }
        before = line.starts_with("///") || line.starts_with("//!");
    }
    found
}

fn words_in(line: &str) -> usize {
    let text = outside_quotes(line).to_lowercase();
    let plain = text.replace(|c: char| !c.is_alphanumeric(), " ");
    let plain = format!(" {} ", plain.split_whitespace().collect::<Vec<_>>().join(" "));
    WORDS.iter().map(|word| plain.matches(&format!(" {word} ")).count()).sum()
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

/// Reads the list of files that still have such words.
pub(crate) fn listed(text: &str) -> BTreeMap<String, usize> {
    let lines = text.lines().filter_map(|line| line.split_once(' '));
    lines.map(|(count, path)| (path.to_owned(), count.parse().unwrap())).collect()
}
