//! Tokens, and their names in errors.

use crate::quote::quote;
use crate::tree::{Aggregation, BinaryOp};

/// A token. Its text is the part of the input under its span.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Token {
    End,
    Comma,
    Colon,
    LeftParen,
    RightParen,
    LeftBrace,
    RightBrace,
    LeftBracket,
    RightBracket,
    /// A single `=`, of a label matcher.
    Assign,
    MatchRegexp,
    MatchNotRegexp,
    At,
    Number,
    /// A number with units: `1h30m`.
    Duration,
    String,
    Identifier,
    /// An identifier with a colon, which only a metric can have.
    MetricIdentifier,
    Op(BinaryOp),
    Aggregation(Aggregation),
    Keyword(Keyword),
}

/// A word with a meaning of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Keyword {
    Offset,
    Smoothed,
    Anchored,
    By,
    Without,
    On,
    Ignoring,
    GroupLeft,
    GroupRight,
    Fill,
    FillLeft,
    FillRight,
    Bool,
    Start,
    End,
    Step,
    Range,
    MaxOf,
    MinOf,
}

const KEYWORDS: [(&str, Keyword); 19] = [
    ("offset", Keyword::Offset),
    ("smoothed", Keyword::Smoothed),
    ("anchored", Keyword::Anchored),
    ("by", Keyword::By),
    ("without", Keyword::Without),
    ("on", Keyword::On),
    ("ignoring", Keyword::Ignoring),
    ("group_left", Keyword::GroupLeft),
    ("group_right", Keyword::GroupRight),
    ("fill", Keyword::Fill),
    ("fill_left", Keyword::FillLeft),
    ("fill_right", Keyword::FillRight),
    ("bool", Keyword::Bool),
    ("start", Keyword::Start),
    ("end", Keyword::End),
    ("step", Keyword::Step),
    ("range", Keyword::Range),
    ("max_of", Keyword::MaxOf),
    ("min_of", Keyword::MinOf),
];

impl Keyword {
    /// Returns true for the words that are also names of functions.
    pub(crate) fn is_function(self) -> bool {
        matches!(
            self,
            Self::Start | Self::End | Self::Step | Self::Range | Self::MaxOf | Self::MinOf
        )
    }

    /// Returns true for the words that may be the name of a metric.
    pub(crate) fn is_metric(self) -> bool {
        !matches!(self, Self::On | Self::Ignoring | Self::GroupLeft | Self::GroupRight | Self::Bool)
    }
}

impl Token {
    /// Returns the token of a word, in any case of letters.
    pub(crate) fn of_word(word: &str) -> Self {
        let lower = word.to_ascii_lowercase();
        if lower == "inf" || lower == "nan" {
            return Self::Number;
        }
        let op = || BinaryOp::ALL.iter().find(|op| op.text() == lower).map(|op| Self::Op(*op));
        let aggregation = || {
            let found = Aggregation::ALL.iter().find(|op| op.text() == lower);
            found.map(|op| Self::Aggregation(*op))
        };
        let keyword = || {
            let found = KEYWORDS.iter().find(|(text, _)| *text == lower);
            found.map(|(_, keyword)| Self::Keyword(*keyword))
        };
        let name = if word.contains(':') { Self::MetricIdentifier } else { Self::Identifier };
        op().or_else(aggregation).or_else(keyword).unwrap_or(name)
    }

    /// Returns the description of a token with this text in errors.
    pub(crate) fn describe(self, text: &str) -> String {
        let quoted = || match text.char_indices().nth(10) {
            Some((at, _)) => {
                let start = text.get(..at).unwrap_or_default();
                format!("{}...", quote(start.as_bytes()))
            }
            None => quote(text.as_bytes()),
        };
        match self {
            Self::End => "end of input".into(),
            Self::Number => format!("number {}", quoted()),
            Self::Duration => format!("duration {}", quoted()),
            Self::String => format!("string {}", quoted()),
            Self::Identifier => format!("identifier {}", quote(text.as_bytes())),
            Self::MetricIdentifier => format!("metric identifier {}", quote(text.as_bytes())),
            Self::Op(_) | Self::MatchRegexp | Self::MatchNotRegexp | Self::At => {
                format!("<op:{text}>")
            }
            Self::Aggregation(_) => format!("<aggr:{text}>"),
            Self::Keyword(keyword) if !keyword.is_function() => format!("<{text}>"),
            _ => quoted(),
        }
    }
}
