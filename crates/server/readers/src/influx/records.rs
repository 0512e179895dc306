//! The end of a record of the line protocol.
//!
//! A record is a line, except that the text of a field may contain line feeds. A quote begins a text
//! only as the first byte of a field's value. Everywhere else (in the measurement, the tags, the name
//! of a field, another value, a comment) it is a byte like any other, and a line feed ends the record.

use memchr::{memchr, memchr_iter, memchr2, memchr3};

/// The part of a record that the next byte belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Part {
    /// White space before the record.
    #[default]
    Before,
    /// Measurement and tags.
    Key,
    /// White space between the key and the fields.
    Gap,
    /// Name of a field.
    Field,
    /// First byte of a field's value.
    Value,
    /// The rest of a value that is not a text, or what follows the closing quote of a text.
    Plain,
    /// Text between quotes.
    Text,
    /// The time, a comment, or what follows an error: everything up to the line feed.
    Rest,
}

/// A scan for the end of a record. Its bytes may come in pieces.
#[derive(Debug, Clone, Default)]
pub(crate) struct RecordScan {
    part: Part,
    /// True if the last byte was a backslash that escapes the next one.
    escaped: bool,
    /// Line feeds so far; all of them are in texts.
    pub(crate) line_feeds: u64,
    /// Line feeds before the quote with which the last text began.
    pub(crate) quote_after: u64,
}

impl RecordScan {
    /// Scans the next bytes of the record. Returns the position of the line feed that ends it, or
    /// `None` if all of them belong to it.
    pub(crate) fn feed(&mut self, bytes: &[u8]) -> Option<usize> {
        let mut at = 0;
        while let Some(rest) = bytes.get(at..).filter(|rest| !rest.is_empty()) {
            if std::mem::take(&mut self.escaped) && self.takes_escaped(rest) {
                at += 1;
                continue;
            }
            match self.step(rest) {
                Step::Passed(bytes) => at += bytes,
                Step::End(bytes) => return Some(at + bytes),
            }
        }
        None
    }

    /// Returns true if the scan is inside a text whose closing quote did not come yet.
    pub(crate) fn is_in_text(&self) -> bool {
        self.part == Part::Text
    }

    /// Passes over an escaped byte. A line feed cannot be escaped outside a text.
    fn takes_escaped(&mut self, rest: &[u8]) -> bool {
        let line_feed = rest.first() == Some(&b'\n');
        self.line_feeds += u64::from(line_feed && self.part == Part::Text);
        !line_feed || self.part == Part::Text
    }

    /// Scans up to the next byte that matters in this part.
    fn step(&mut self, rest: &[u8]) -> Step {
        let found = match self.part {
            Part::Before | Part::Gap => {
                rest.iter().position(|c| *c == b'\n' || !c.is_ascii_whitespace())
            }
            Part::Key => memchr3(b' ', b'\n', b'\\', rest),
            Part::Field => rest.iter().position(|c| b"= \n\\".contains(c)),
            Part::Value => Some(0),
            Part::Plain => memchr3(b',', b' ', b'\n', rest),
            Part::Text => memchr2(b'"', b'\\', rest),
            Part::Rest => memchr(b'\n', rest),
        };
        let passed = rest.get(..found.unwrap_or(rest.len())).unwrap_or_default();
        if self.part == Part::Text {
            self.line_feeds += memchr_iter(b'\n', passed).count() as u64;
        }
        let (Some(found), Some(byte)) = (found, found.and_then(|at| rest.get(at))) else {
            return Step::Passed(rest.len());
        };
        match (self.part, byte) {
            (Part::Text, b'"') => self.part = Part::Plain,
            (_, b'\\') if matches!(self.part, Part::Key | Part::Field | Part::Text) => {
                self.escaped = true;
            }
            (_, b'\n') => return Step::End(found),
            (Part::Key, _) => self.part = Part::Gap,
            (Part::Field, b'=') => self.part = Part::Value,
            (Part::Value, b'"') => {
                self.part = Part::Text;
                self.quote_after = self.line_feeds;
            }
            (Part::Plain, b',') => self.part = Part::Field,
            (Part::Before, b'#') | (Part::Field | Part::Plain, _) => self.part = Part::Rest,
            // The byte belongs to the next part.
            (Part::Before, _) => return self.enter(Part::Key, found),
            (Part::Gap, _) => return self.enter(Part::Field, found),
            (Part::Value, _) => return self.enter(Part::Plain, found),
            (Part::Text | Part::Rest, _) => {}
        }
        Step::Passed(found + 1)
    }

    fn enter(&mut self, part: Part, passed: usize) -> Step {
        self.part = part;
        Step::Passed(passed)
    }
}

enum Step {
    /// Number of bytes passed over.
    Passed(usize),
    /// Position of the line feed that ends the record.
    End(usize),
}

/// Returns the position of the line feed that ends the first record of `text`, and the number of line
/// feeds before it. If no line feed ends it, returns the state of the scan.
pub(crate) fn record_end(text: &[u8]) -> Result<(usize, u64), RecordScan> {
    // Most records have no quote, so that their first line feed ends them.
    if let Some(end) = memchr(b'\n', text)
        && memchr(b'"', text.get(..end).unwrap_or_default()).is_none()
    {
        return Ok((end, 0));
    }
    let mut scan = RecordScan::default();
    match scan.feed(text) {
        Some(end) => Ok((end, scan.line_feeds)),
        None => Err(scan),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Returns the records of a text, and whether the last one ends in an open text.
    fn records(mut text: &[u8]) -> (Vec<&[u8]>, bool) {
        let mut found = Vec::new();
        loop {
            match record_end(text) {
                Ok((end, _)) => {
                    found.push(text.get(..end).unwrap());
                    text = text.get(end + 1..).unwrap();
                }
                Err(scan) => {
                    found.push(text);
                    return (found, scan.is_in_text());
                }
            }
        }
    }

    fn lines(text: &str) -> Vec<String> {
        records(text.as_bytes()).0.iter().map(|r| String::from_utf8_lossy(r).into_owned()).collect()
    }

    #[test]
    fn quote_opens_a_text_only_where_a_value_begins() {
        let whole = "m,a=b s=\"x\nfake,a=b v=1 1\ny\",n=1 2";
        assert_eq!(lines(whole), [whole]);
        let escaped = r#"m,a=b s="x\"
y",t="\\" 2"#;
        assert_eq!(lines(escaped), [escaped]);
        for (first, why) in [
            ("m\"easure,a=b v=1", "measurement"),
            ("m,a=\"b v=1", "tag"),
            ("m,a=b f\"=1", "name of a field"),
            ("m,a=b v=1\"", "inside a value"),
            ("m,a=b v=1 \"2", "time"),
            ("# \"a comment", "comment"),
            ("m,a=b v =\"x", "after an error"),
            ("m,a=b v=\\\"x", "after a backslash"),
            ("m,a=b\\\n", "an escaped line feed"),
        ] {
            let text = format!("{}\nnext,a=b v=1", first.trim_end_matches('\n'));
            let last = lines(&text);
            assert_eq!(last.last().map(String::as_str), Some("next,a=b v=1"), "{why}: {last:?}");
        }
        assert!(records(b"m,a=b v=\"x\nnext,a=b v=1").1, "no closing quote");
    }

    proptest! {
        #[test]
        fn record_end_is_the_same_in_pieces(
            text in r#"([ab ,=1"\\\n#\t]|a=b |v="){0,30}"#,
            cut in 0usize..60,
        ) {
            let text = text.as_bytes();
            let whole = record_end(text).ok().map(|(end, _)| end);
            let (first, second) = text.split_at(cut.min(text.len()));
            let mut scan = RecordScan::default();
            let pieces = scan.feed(first).or_else(|| scan.feed(second).map(|end| end + first.len()));
            prop_assert_eq!(whole, pieces);
        }
    }
}
