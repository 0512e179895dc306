//! The errors of parsing settings.

use std::time::Duration;

use crate::limits;

/// The reason why a text is refused. None of it is applied.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SettingsError {
    /// Something in it.
    #[error("line {line}: {problem}")]
    Line {
        /// Line, from 1.
        line: usize,
        /// The problem, and what is valid instead.
        problem: String,
    },
    /// The text as a whole.
    #[error("{0} bytes: a group's configuration has at most {max}", max = limits::TEXT_BYTES_MAX)]
    TooLong(usize),
    /// A group's text was stored by a program that knew more, or less.
    #[error("the stored configuration of a group cannot be read: put it again")]
    Unreadable,
    /// Paths, patterns and tags are too much together.
    #[error("{0} bytes of paths, patterns and tags: the groups of an agent have at most {max}", max = limits::WATCH_BYTES_MAX)]
    TooMuch(usize),
    /// Patterns are too many together.
    #[error("{0} patterns: the groups of an agent have at most {max}", max = limits::PATTERNS_ALL_MAX)]
    TooManyPatterns(usize),
    /// An agent would be taken for disconnected between two heartbeats.
    #[error(
        "sync.heartbeat of {heartbeat:?}: at most {most:?} here, a third of the server's \
         agents.disconnection_time"
    )]
    TooSlow {
        /// Interval that was set.
        heartbeat: Duration,
        /// Longest interval allowed.
        most: Duration,
    },
    /// Together the groups watch too many paths.
    #[error("{0} watched paths: the groups of an agent have at most {max}", max = limits::WATCHES_MAX)]
    TooManyWatches(usize),
}

impl SettingsError {
    pub(crate) fn at(line: usize, problem: impl Into<String>) -> Self {
        Self::Line { line, problem: problem.into() }
    }
}
