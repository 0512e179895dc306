//! Lines for people on stdout. The first failure to print is recorded, but stops nothing: an agent or a
//! server works without a reader.

use std::borrow::Cow;
use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::sync::OnceLock;

use model::path::is_unsafe_on_terminal;

/// Returns a line of text or JSON in which no character makes a terminal do something: such
/// characters become escapes as JSON writes them, `\u` and four digits. Line feeds and tabs stay: JSON
/// text has neither.
pub fn safe_line(text: &str) -> Cow<'_, str> {
    let is_unsafe = |c: char| is_unsafe_on_terminal(c) && c != '\n' && c != '\t';
    if !text.contains(is_unsafe) {
        return Cow::Borrowed(text);
    }
    let mut safe = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        if is_unsafe(c) {
            for unit in c.encode_utf16(&mut [0; 2]) {
                let _ = write!(safe, "\\u{unit:04x}");
            }
        } else {
            safe.push(c);
        }
    }
    Cow::Owned(safe)
}

/// The first failure to print.
static LOST: OnceLock<io::Error> = OnceLock::new();

/// Prints lines for people. All instances print to stdout.
#[derive(Debug, Clone, Default)]
pub struct Console;

impl Console {
    #[must_use]
    pub fn new() -> Self {
        Self
    }

    /// Prints a line and flushes it; see [`safe_line`].
    pub fn line(&self, text: &str) {
        let text = safe_line(text);
        // A closed stdout is no reason to stop watching.
        let mut out = io::stdout().lock();
        if let Err(e) = writeln!(out, "{text}").and_then(|()| out.flush()) {
            let _ = LOST.set(e);
        }
    }

    /// Returns why a line could not be printed, if one could not.
    pub fn lost() -> Option<&'static io::Error> {
        LOST.get()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn safe_json_line_is_the_same_value() {
        let name = "a\u{7f}\u{9b}2J\u{202e}\u{2028}\u{e0041}\u{1b}ü\n";
        let line = serde_json::json!({ "path": name }).to_string();
        let safe = safe_line(&line);
        assert!(!safe.contains(is_unsafe_on_terminal), "{safe:?}");
        assert!(safe.contains(r"\u007f\u009b2J\u202e\u2028\udb40\udc41\u001bü\n"), "{safe}");
        let back: serde_json::Value = serde_json::from_str(&safe).unwrap();
        assert_eq!(back["path"], name);
        assert_eq!(safe_line("plain\n  text"), "plain\n  text");
    }
}
