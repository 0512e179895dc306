//! The latest lines of the server's log, kept in memory for `/manager/logs`.

use std::collections::VecDeque;
use std::sync::Arc;

use parking_lot::Mutex;

/// Maximum number of lines.
const LINES_MAX: usize = 2_000;
/// Longest text of a line, bytes; longer ones are truncated at a character boundary.
const LINE_BYTES_MAX: usize = 1_024;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogLine {
    /// Time, microseconds since the epoch.
    pub at_us: u64,
    /// `error`, `warning`, `info` or `debug`.
    pub level: &'static str,
    /// Component that wrote the line.
    pub tag: String,
    /// Message.
    pub text: String,
}

/// A ring of the latest log lines; clones share it.
#[derive(Debug, Clone, Default)]
pub struct LogRing(Arc<Mutex<VecDeque<LogLine>>>);

impl LogRing {
    /// Appends a line; drops the oldest one if the ring is full.
    pub fn push(&self, mut line: LogLine) {
        let mut end = line.text.len().min(LINE_BYTES_MAX);
        while !line.text.is_char_boundary(end) {
            end -= 1;
        }
        line.text.truncate(end);
        let mut lines = self.0.lock();
        if lines.len() == LINES_MAX {
            lines.pop_front();
        }
        lines.push_back(line);
    }

    pub fn newest_first(&self) -> Vec<LogLine> {
        self.0.lock().iter().rev().cloned().collect()
    }
}
