//! Names of row series: `metric|metric tag=value tag=value`, normalised.
//!
//! The canonical form has the tags sorted by name and single spaces. A backslash escapes the next
//! character, so that metrics and tags may contain spaces, `=`, `|` and backslashes. Control
//! characters are written `\n`, `\r`, `\t`, or `\x` and two hexadecimal digits. The canonical form
//! escapes these and no others.

use std::str::Chars;

use crate::error::NameError;
use crate::model::Row;
use crate::options::{COLUMNS_MAX, NAME_BYTES_MAX, TAGS_MAX};

/// Maximum length in bytes of the text that an error quotes.
const QUOTED_BYTES_MAX: usize = 200;

/// A parsed name.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RowName {
    /// Metrics in the order of the values.
    pub metrics: Vec<String>,
    /// Tags sorted by name.
    pub tags: Vec<(String, String)>,
}

impl RowName {
    /// Parses raw text.
    ///
    /// # Errors
    /// Returns an error if the text is not a name, or exceeds a limit.
    pub fn parse(raw: &[u8]) -> Result<Self, NameError> {
        let malformed = |what| NameError::Malformed { text: quote(raw), what };
        limit("name_bytes", raw.len(), 2 * NAME_BYTES_MAX)?;
        let text = std::str::from_utf8(raw).map_err(|_| malformed("not UTF-8"))?;
        if text.contains(|c: char| c.is_control()) {
            return Err(malformed("control characters: write \\n, or \\x and two digits"));
        }
        let mut words = split(text, ' ').into_iter().filter(|w| !w.is_empty());
        let metrics = words.next().ok_or_else(|| malformed("no metric"))?;
        if split(metrics, '=').len() > 1 {
            return Err(malformed("no metric before the tags"));
        }
        let metrics: Vec<String> = split(metrics, '|').into_iter().map(unescape).collect();
        let mut tags = Vec::new();
        for word in words {
            let pair = split(word, '=');
            let [name, value] = pair.as_slice() else {
                return Err(malformed("a tag is not name=value"));
            };
            if value.is_empty() {
                return Err(malformed("a tag without a value"));
            }
            tags.push((unescape(name), unescape(value)));
        }
        Self::new(metrics, tags)
    }

    /// Builds a name. The tags need not be sorted; tags with an empty value are dropped.
    ///
    /// # Errors
    /// Returns an error if the metrics and tags do not form a valid name, or exceed a limit.
    pub fn new(metrics: Vec<String>, mut tags: Vec<(String, String)>) -> Result<Self, NameError> {
        tags.retain(|(_, value)| !value.is_empty());
        tags.sort();
        let name = Self { metrics, tags };
        let malformed = |what| NameError::Malformed { text: quote(name.text().as_bytes()), what };
        limit("columns", name.metrics.len(), COLUMNS_MAX)?;
        limit("tags", name.tags.len(), TAGS_MAX)?;
        limit("name_bytes", name.text().len(), NAME_BYTES_MAX)?;
        if name.metrics.is_empty() || name.metrics.iter().any(String::is_empty) {
            return Err(malformed("no metric"));
        }
        if name.tags.iter().any(|(tag, _)| tag.is_empty()) {
            return Err(malformed("a tag without a name"));
        }
        if name.tags.windows(2).any(|w| matches!(w, [a, b] if a.0 == b.0)) {
            return Err(malformed("a tag twice"));
        }
        let mut sorted: Vec<&String> = name.metrics.iter().collect();
        sorted.sort_unstable();
        if sorted.windows(2).any(|w| matches!(w, [a, b] if a == b)) {
            return Err(malformed("a metric twice"));
        }
        if name.metrics.len() > 1 && name.metrics.iter().any(|m| m.starts_with('!')) {
            return Err(malformed("events need a name of their own"));
        }
        Ok(name)
    }

    /// Returns true if it names events.
    pub fn is_events(&self) -> bool {
        self.metrics.first().is_some_and(|m| m.starts_with('!'))
    }

    /// Returns the canonical text.
    pub fn text(&self) -> String {
        let metrics: Vec<&str> = self.metrics.iter().map(String::as_str).collect();
        text(&metrics, self.tags.iter().map(|(k, v)| (&**k, &**v)))
    }
}

/// A valid name of a row series that does not exist yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewRow {
    /// The text as it was sent.
    pub(crate) raw: Box<[u8]>,
    pub(crate) name: RowName,
}

impl NewRow {
    /// Returns the text with which it was looked up.
    pub fn raw(&self) -> &[u8] {
        &self.raw
    }
}

/// A row series that was looked up by its name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RowLookup {
    /// It exists.
    Known(Row),
    /// It does not exist; see [`crate::Store::register`].
    New(Box<NewRow>),
}

impl RowLookup {
    /// Returns the number of values in one of its rows.
    pub fn columns(&self) -> usize {
        match self {
            Self::Known(row) => row.columns(),
            Self::New(new) => new.name.metrics.len(),
        }
    }

    /// Returns true if it holds events (its metric begins with `!`).
    pub fn is_events(&self) -> bool {
        match self {
            Self::Known(row) => row.is_events(),
            Self::New(new) => new.name.is_events(),
        }
    }
}

/// Returns the canonical text of metrics and sorted tags.
pub(crate) fn text<'a>(metrics: &[&str], tags: impl Iterator<Item = (&'a str, &'a str)>) -> String {
    let mut text = String::with_capacity(64);
    for (i, metric) in metrics.iter().enumerate() {
        if i > 0 {
            text.push('|');
        }
        escape(&mut text, metric);
    }
    for (name, value) in tags {
        text.push(' ');
        escape(&mut text, name);
        text.push('=');
        escape(&mut text, value);
    }
    text
}

fn limit(what: &'static str, value: usize, max: usize) -> Result<(), NameError> {
    if value > max { Err(NameError::TooLong { what, value, max }) } else { Ok(()) }
}

fn quote(raw: &[u8]) -> String {
    String::from_utf8_lossy(raw.get(..QUOTED_BYTES_MAX).unwrap_or(raw)).into_owned()
}

/// Appends a metric, or the name or value of a tag, as a canonical name has it.
pub fn escape(into: &mut String, text: &str) {
    for c in text.chars() {
        match c {
            ' ' | '=' | '|' | '\\' => into.extend(['\\', c]),
            '\n' => into.push_str("\\n"),
            '\r' => into.push_str("\\r"),
            '\t' => into.push_str("\\t"),
            c if c.is_control() => {
                // The highest control character is U+009F.
                let digit = |shift: u32| char::from_digit(u32::from(c) >> shift & 15, 16);
                into.push_str("\\x");
                into.extend([digit(4), digit(0)].into_iter().flatten());
            }
            c => into.push(c),
        }
    }
}

pub(crate) fn unescape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        out.push(if c == '\\' { escaped(&mut chars) } else { c });
    }
    out
}

/// Returns the character that follows a backslash.
fn escaped(chars: &mut Chars<'_>) -> char {
    let Some(c) = chars.next() else { return '\\' };
    match c {
        'n' => '\n',
        'r' => '\r',
        't' => '\t',
        'x' => {
            let mut digits = chars.clone().map_while(|digit| digit.to_digit(16));
            let number = digits.next().zip(digits.next()).map(|(a, b)| a << 4 | b);
            match number.and_then(char::from_u32).filter(|read| read.is_control()) {
                Some(control) => {
                    chars.nth(1);
                    control
                }
                None => c,
            }
        }
        c => c,
    }
}

/// Returns the metrics of a canonical name, and its tags from the first space on, all escaped.
pub(crate) fn parts(text: &str) -> (Vec<&str>, &str) {
    let metrics = split(text, ' ').first().copied().unwrap_or_default();
    (split(metrics, '|'), text.strip_prefix(metrics).unwrap_or_default())
}

/// Splits at each separator that is not escaped.
fn split(text: &str, separator: char) -> Vec<&str> {
    let (mut pieces, mut begin, mut escaped) = (Vec::new(), 0, false);
    for (i, c) in text.char_indices() {
        if escaped {
            escaped = false;
        } else if c == '\\' {
            escaped = true;
        } else if c == separator {
            pieces.push(text.get(begin..i).unwrap_or_default());
            begin = i + 1;
        }
    }
    pieces.push(text.get(begin..).unwrap_or_default());
    pieces
}
