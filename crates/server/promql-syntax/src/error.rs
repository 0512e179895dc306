//! Errors, with the place in the text.

use std::fmt;

/// A part of the text: the bytes from `start` up to `end`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TextSpan {
    pub start: usize,
    pub end: usize,
}

impl TextSpan {
    /// Returns the span from the start of one to the end of the other.
    #[must_use]
    pub fn to(self, other: Self) -> Self {
        Self { start: self.start, end: other.end }
    }
}

/// A text that is not an expression.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub struct ParseError {
    pub span: TextSpan,
    /// Line of the start of the span, from 1.
    pub line: usize,
    /// Column of the start of the span in bytes, from 1.
    pub column: usize,
    /// The text without the place.
    pub message: String,
}

impl ParseError {
    /// Returns the error of a place in a text.
    pub fn new(text: &str, span: TextSpan, message: impl Into<String>) -> Self {
        let before = text.get(..span.start).unwrap_or_default();
        let line = before.matches('\n').count() + 1;
        let line_start = before.rfind('\n').map_or(0, |at| at + 1);
        let column = span.start.saturating_sub(line_start) + 1;
        Self { span, line, column, message: message.into() }
    }
}

impl fmt::Display for ParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Prometheus has no position in a text without a token.
        if self.span == TextSpan::default() {
            return write!(f, "unknown position: parse error: {}", self.message);
        }
        write!(f, "{}:{}: parse error: {}", self.line, self.column, self.message)
    }
}
