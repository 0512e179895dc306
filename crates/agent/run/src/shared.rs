//! The state shared by the parts of a running agent: the queue, the dialogue with the server, and
//! the signals between them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64};

use console::Console;
use detect::{Cancel, Rules, SystemNames};
use env::clock::{Clock, SystemClock};
use model::Dataset;
use parking_lot::Mutex;
use queue::Queue;
use sync::Syncer;
use tokio::sync::{Notify, mpsc};
use tracing::error;

use crate::datasets::DatasetKind;
use crate::notes;

/// Why an agent ended by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// The server asked for a restart.
    Restart,
    /// The database is damaged, or the disk in doubt: it is to be opened anew.
    Damaged,
    /// Its groups configure something else, which is stored: it is to go on with that.
    Configured,
    /// A part of it ended although nobody told it to.
    Broken(&'static str),
}

impl Ended {
    /// The error to end with; `None` when it is to start again.
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

/// How an agent begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Begin {
    /// Nothing was watched before it.
    Start,
    /// It goes on where one with another configuration has just stopped.
    Reload,
}

/// What the scanning thread is asked for.
#[derive(Debug)]
pub(crate) enum Order {
    /// Scan now, at full speed; report the outcome under this command's number.
    Scan(u64),
    Stop,
}

/// What an agent that stopped hands on to the one that goes on.
#[derive(Debug, Default)]
pub(crate) struct Left {
    /// Not told yet.
    pub(crate) outcomes: Vec<link::json::ControlOutcome>,
    /// Why it is to end, other than for its configuration.
    pub(crate) ended: Option<Ended>,
}

/// Ends the agent when the part that holds it ends, by a panic too, and was not told to.
pub(crate) struct Part {
    pub(crate) shared: Arc<Shared>,
    pub(crate) name: &'static str,
}

impl Drop for Part {
    fn drop(&mut self) {
        if !self.shared.cancel.is_cancelled() {
            error!(part = self.name, "ended unexpectedly; the agent stops");
            // When there is no room the agent ends already.
            let _ = self.shared.ended.try_send(Ended::Broken(self.name));
        }
    }
}

/// The state shared by the agent's thread and tasks.
pub(crate) struct Shared {
    pub(crate) queue: Queue,
    pub(crate) syncer: Syncer,
    pub(crate) names: Arc<SystemNames>,
    pub(crate) dataset: Dataset,
    pub(crate) packages: Dataset,
    pub(crate) rules: Rules,
    /// Packages are watched.
    pub(crate) inventory: bool,
    pub(crate) console: Console,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) cancel: Cancel,
    pub(crate) orders: std::sync::mpsc::SyncSender<Order>,
    /// Something is to be told.
    pub(crate) tell: Notify,
    /// The heart should beat now.
    pub(crate) beat: Notify,
    pub(crate) outcomes: Mutex<Vec<link::json::ControlOutcome>>,
    /// The gap before this start, if there was one, is told.
    pub(crate) settled: AtomicBool,
    pub(crate) ended: mpsc::Sender<Ended>,
    /// Number of the order to restart that is not told yet; 0: none.
    pub(crate) restarting: AtomicU64,
    /// A whole scan of this run has ended, and a look at packages.
    pub(crate) scanned: AtomicBool,
}

/// Wall clock, microseconds since the epoch.
pub(crate) fn now_us() -> u64 {
    SystemClock::new().now_us()
}

impl Shared {
    /// The agent's database is damaged: the next start mends it or moves the file aside, and finds
    /// out what changed, so start anew.
    pub(crate) fn rebuild(&self) {
        self.console.line("agent.db is damaged; restarting to rebuild it");
        // When there is no room the agent ends already.
        let _ = self.ended.try_send(Ended::Damaged);
    }

    /// Returns the dataset of this kind.
    pub(crate) fn dataset_of(&self, kind: DatasetKind) -> &Dataset {
        match kind {
            DatasetKind::Files => &self.dataset,
            DatasetKind::Packages => &self.packages,
        }
    }

    /// Read or write notes, on a thread that may block.
    pub(crate) async fn note<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Queue) -> Result<T, queue::QueueError> + Send + 'static,
    ) -> Result<T, sync::SyncError> {
        let queue = self.queue.clone();
        match tokio::task::spawn_blocking(move || work(&queue)).await {
            Ok(done) => Ok(done?),
            Err(_) => Err(sync::SyncError::Stopping),
        }
    }

    /// Returns true if some root or folder could not be seen by the last scan.
    pub(crate) fn gaps_open(&self) -> bool {
        notes::gaps(&self.queue).map_or(true, |gaps| !gaps.is_empty())
    }
}
