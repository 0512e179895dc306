//! State in which an agent watches its roots: reported by heartbeats, stored by the server.

use serde::{Deserialize, Serialize};

/// Most roots in a report. The rest is counted.
pub const ROOTS_MAX: usize = 64;
/// Longest text in a report, characters.
const TEXT_CHARS_MAX: usize = 256;

/// State of a root on one file system.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, Default)]
#[serde(rename_all = "snake_case")]
pub enum CoverageState {
    /// Changes are detected as they happen.
    Realtime,
    /// The next scan finds changes.
    #[default]
    Scan,
    /// It cannot be watched now.
    Gap,
}

/// One root on one of its file systems, or one path below it that cannot be watched.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Default)]
#[serde(default)]
pub struct WatchedRoot {
    /// The root, escaped for display.
    pub root: String,
    /// First directory of the file system, or the path of the gap, escaped for display.
    pub path: String,
    /// Kind of file system, such as `ext4`; empty if it is not known.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub file_system: String,
    pub state: CoverageState,
    /// `fanotify, file system`, `fanotify, directories` or `scan`.
    pub method: String,
    /// Cause of a state below the best one; empty at the best.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// Change that would improve it; empty if none is known.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub remedy: String,
}

/// State of all roots of an agent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Default)]
#[serde(default)]
pub struct WatchReport {
    /// Time between two scans, seconds.
    pub scan_interval_s: u64,
    /// Start of the next scan by the agent's clock, seconds since the epoch; 0 while one runs.
    pub next_scan_s: i64,
    /// True if changes are attributed to processes.
    pub attribution: bool,
    /// Why they are not, or what makes it less certain.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub attribution_reason: String,
    /// At most [`ROOTS_MAX`].
    pub roots: Vec<WatchedRoot>,
    /// Number of further roots.
    pub more: u32,
}

impl WatchReport {
    /// Cuts the report to its limits.
    #[must_use]
    pub fn cut(mut self) -> Self {
        let left_out = self.roots.len().saturating_sub(ROOTS_MAX);
        self.more = self.more.saturating_add(u32::try_from(left_out).unwrap_or(u32::MAX));
        self.roots.truncate(ROOTS_MAX);
        let cut = |text: &mut String| {
            if let Some((end, _)) = text.char_indices().nth(TEXT_CHARS_MAX) {
                text.truncate(end);
            }
        };
        cut(&mut self.attribution_reason);
        for found in &mut self.roots {
            let WatchedRoot { root, path, file_system, method, reason, remedy, .. } = found;
            [root, path, file_system, method, reason, remedy].into_iter().for_each(cut);
        }
        self
    }
}
