//! The errors of parsing settings.

use std::time::Duration;

use crate::limits;

/// The reason why a text is refused. None of it is applied.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SettingsError {
    /// A part of the text is refused.
    #[error("line {line}: {problem}")]
    Line {
        /// Line, from 1.
        line: usize,
        /// The problem, and what is valid instead.
        problem: String,
    },
    /// The text is too long, bytes.
    #[error("{0} bytes: a group's configuration has at most {max}", max = limits::TEXT_BYTES_MAX)]
    TooLong(usize),
    /// A group's stored text was written by a program with a different set of settings.
    #[error("the stored configuration of a group cannot be read: put it again")]
    Unreadable,
    /// Paths, patterns and tags of all groups are too long together, bytes.
    #[error("{0} bytes of paths, patterns and tags: the groups of an agent have at most {max}", max = limits::WATCH_BYTES_MAX)]
    TooMuch(usize),
    /// The groups have too many patterns together.
    #[error("{0} patterns: the groups of an agent have at most {max}", max = limits::PATTERNS_ALL_MAX)]
    TooManyPatterns(usize),
    /// The server would consider an agent disconnected between two heartbeats.
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
    /// The groups watch too many paths together.
    #[error("{0} watched paths: the groups of an agent have at most {max}", max = limits::WATCHES_MAX)]
    TooManyWatches(usize),
}

impl SettingsError {
    pub(crate) fn at(line: usize, problem: impl Into<String>) -> Self {
        Self::Line { line, problem: problem.into() }
    }
}
