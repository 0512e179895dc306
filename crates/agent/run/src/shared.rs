//! The state shared by the parts of a running agent: the queue, the connection to the server, and
//! the signals between them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64};

use detect::{Cancel, Rules, SystemNames};
use env::clock::{Clock, SystemClock};
use model::Dataset;
use parking_lot::Mutex;
use queue::Queue;
use service::Console;
use sync::{SyncError, Syncer};
use telemetry::RealtimeCounters;
use tokio::sync::{Notify, mpsc, watch};
use tracing::{error, warn};

use crate::datasets::DatasetKind;
use crate::notes;

/// The reason why an agent ended by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EndReason {
    /// The server asked for a restart.
    Restart,
    /// The database is damaged, or a flush failed. The database must be reopened.
    Damaged,
    /// Another configuration of its groups was stored, and the agent must restart with it.
    Configured,
    /// A part of it ended without being stopped.
    Broken(&'static str),
}

impl EndReason {
    /// Returns the error to end with; `None` if the agent is to start again.
    pub fn error(self) -> Option<anyhow::Error> {
        match self {
            Self::Restart | Self::Damaged | Self::Configured => None,
            Self::Broken(part) => Some(anyhow::anyhow!(
                "the agent's {part} ended unexpectedly: a defect, please report it with the log; \
                 nothing that was committed is lost, start the agent again"
            )),
        }
    }
}

/// The kind of a start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Begin {
    /// No agent was running before.
    Start,
    /// An agent with another configuration has just stopped.
    Reload,
}

/// A request to the scanning thread.
#[derive(Debug)]
pub(crate) enum ScanCommand {
    /// A rescan command was accepted, or something may be due for a check.
    Wake,
    Stop,
}

/// The state that a stopped agent passes to the next one.
#[derive(Debug, Default)]
pub(crate) struct Leftovers {
    /// Outcomes not reported yet.
    pub(crate) outcomes: Vec<link::json::ControlOutcome>,
    /// Rescan commands that are not answered yet.
    pub(crate) rescans: Vec<u64>,
    /// Reason to end, other than another configuration.
    pub(crate) ended: Option<EndReason>,
}

/// A guard that ends the agent when its holder ends without being stopped, also by a panic.
pub(crate) struct Part {
    pub(crate) shared: Arc<Shared>,
    pub(crate) name: &'static str,
}

impl Drop for Part {
    fn drop(&mut self) {
        if !self.shared.cancel.is_cancelled() {
            error!(part = self.name, "ended unexpectedly; the agent stops");
            // If the channel is full, the agent is ending already.
            let _ = self.shared.ended.try_send(EndReason::Broken(self.name));
        }
    }
}

/// The state shared by the agent's thread and tasks.
pub(crate) struct Shared {
    pub(crate) queue: Queue,
    pub(crate) syncer: Arc<Syncer>,
    pub(crate) names: Arc<SystemNames>,
    pub(crate) dataset: Dataset,
    pub(crate) packages: Dataset,
    pub(crate) rules: Rules,
    /// True if packages are watched.
    pub(crate) inventory: bool,
    pub(crate) console: Console,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) cancel: Cancel,
    pub(crate) scan_commands: std::sync::mpsc::SyncSender<ScanCommand>,
    /// Notified when there is something to report.
    pub(crate) report: Notify,
    /// Notified when a heartbeat should be sent now.
    pub(crate) beat: Notify,
    pub(crate) outcomes: Mutex<Vec<link::json::ControlOutcome>>,
    /// Rescan commands that are accepted and not answered yet. A reload carries them on.
    pub(crate) rescans: Mutex<Vec<u64>>,
    /// True once the gap before this start, if there was one, is reported.
    pub(crate) settled: AtomicBool,
    pub(crate) ended: mpsc::Sender<EndReason>,
    /// Number of the restart command whose outcome is not acknowledged yet; 0 if there is none.
    pub(crate) restarting: AtomicU64,
    /// True once a complete scan of files and a scan of packages have ended in this run.
    pub(crate) scanned: AtomicBool,
    /// Counters of realtime detection; empty while it is off.
    pub(crate) realtime_counters: RealtimeCounters,
    /// True from the server's first answer on.
    pub(crate) connected: watch::Sender<bool>,
    /// The failure that was printed since the server's last answer; empty if there is none.
    pub(crate) printed_failure: Mutex<String>,
}

/// Returns the wall clock, microseconds since the epoch.
pub(crate) fn now_us() -> u64 {
    SystemClock::new().now_us()
}

impl Shared {
    /// Ends the agent because its database is damaged. The next start repairs it or moves the file
    /// aside.
    pub(crate) fn rebuild(&self) {
        self.console.line("agent.db is damaged; restarting to rebuild it");
        // If the channel is full, the agent is ending already.
        let _ = self.ended.try_send(EndReason::Damaged);
    }

    /// Prints and logs that a request failed, unless another part did so since the last answer. A
    /// refusal of the agent is printed only: log and output are read together.
    pub(crate) fn print_failure(&self, what: &str, problem: &SyncError) {
        let reason = problem.reason();
        let before = std::mem::replace(&mut *self.printed_failure.lock(), reason.clone());
        if before == reason {
            return;
        }
        self.console.line(&format!("{what}: {problem}; changes are kept"));
        match problem {
            refused if refused.refuses_agent() => {}
            passing if passing.is_transient() => warn!("{what}: {passing}"),
            lasting => error!("{what}: {lasting}"),
        }
    }

    /// Returns the dataset of this kind.
    pub(crate) fn dataset_of(&self, kind: DatasetKind) -> &Dataset {
        match kind {
            DatasetKind::Files => &self.dataset,
            DatasetKind::Packages => &self.packages,
        }
    }

    /// Reads or writes notes, on a thread that may block.
    pub(crate) async fn note<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Queue) -> Result<T, queue::QueueError> + Send + 'static,
    ) -> Result<T, SyncError> {
        let queue = self.queue.clone();
        match tokio::task::spawn_blocking(move || work(&queue)).await {
            Ok(done) => Ok(done?),
            Err(_) => Err(SyncError::Stopping),
        }
    }

    /// Returns true if the last scan could not read a root or directory.
    pub(crate) fn gaps_open(&self) -> bool {
        notes::gaps(&self.queue).map_or(true, |gaps| !gaps.is_empty())
    }
}
