//! The agent as a running thing: one thread that scans, one task that tells the server, one that
//! keeps the heartbeat, and the queue between them.

mod config;
mod display;
mod group;
mod heart;
mod lost;
mod metrics;
mod notes;
mod own;
mod packages;
mod scan;
mod start;
mod tell;
#[cfg(test)]
mod tests;
mod uptime;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use anyhow::Context as _;
use console::Console;
use detect::{Cancel, Rules, SystemNames};
use env::clock::{Clock, SystemClock};
use link::ControlAction;
use model::Dataset;
use parking_lot::Mutex;
use queue::Queue;
use sync::Syncer;
use tokio::sync::{Notify, mpsc, watch};
use tokio::task::JoinHandle;
use tokio::time::{Duration, timeout};
use tracing::{error, warn};

pub use config::{InventoryConfig, MetricsConfig, QueueConfig, ScanConfig, SyncConfig};
pub use display::print_scan;
pub use metrics::FILE as METRICS_FILE;
pub use notes::last_scan;

use start::Start;

/// How long a stop waits for the server to take the goodbye.
const GOODBYE_TIMEOUT: Duration = Duration::from_secs(2);
/// Scans that may be asked for and not yet begun.
const ORDERS_MAX: usize = 16;

/// What an agent runs with.
#[derive(Debug, Clone)]
pub struct AgentSettings {
    /// Queue and identity.
    pub folder: PathBuf,
    pub rules: Rules,
    pub scan: ScanConfig,
    pub inventory: InventoryConfig,
    pub metrics: MetricsConfig,
    pub queue: QueueConfig,
    pub sync: SyncConfig,
}

impl AgentSettings {
    /// Checks that an agent can run with these settings. The error names the key.
    pub fn validate(&self) -> anyhow::Result<()> {
        self.scan.validate()?;
        self.inventory.validate()?;
        self.sync.validate()?;
        self.queue.validate()?;
        self.metrics.validate()?;
        Ok(self.rules.validate()?)
    }
}

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

/// Pause before a damaged database is opened anew: what is damaged again at once must not keep the
/// machine busy.
pub const REBUILD_PAUSE: Duration = Duration::from_secs(10);

/// How an agent begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Begin {
    /// Nothing was watched before it.
    Start,
    /// It goes on where one with another configuration has just stopped.
    Reload,
}

/// What an agent that stopped hands on to the one that goes on.
#[derive(Debug, Default)]
struct Left {
    /// Not told yet.
    outcomes: Vec<link::json::ControlOutcome>,
    /// Why it is to end, other than for its configuration.
    ended: Option<Ended>,
}

/// Ends the agent when the part that holds it ends, by a panic too, and was not told to.
struct Part {
    shared: Arc<Shared>,
    name: &'static str,
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

/// A running agent.
pub struct Agent {
    shared: Arc<Shared>,
    stop: watch::Sender<bool>,
    tasks: Vec<JoinHandle<()>>,
    metrics: Option<Arc<metrics::HostMetrics>>,
    scanner: thread::JoinHandle<()>,
    ended: mpsc::Receiver<Ended>,
}

/// What the agent's thread and tasks share.
struct Shared {
    queue: Queue,
    syncer: Syncer,
    names: Arc<SystemNames>,
    dataset: Dataset,
    packages: Dataset,
    rules: Rules,
    /// Packages are watched.
    inventory: bool,
    console: Console,
    clock: Arc<dyn Clock>,
    cancel: Cancel,
    orders: std::sync::mpsc::SyncSender<scan::Order>,
    /// Something is to be told.
    tell: Notify,
    /// The heart should beat now.
    beat: Notify,
    outcomes: Mutex<Vec<link::json::ControlOutcome>>,
    /// The gap before this start, if there was one, is told.
    settled: AtomicBool,
    ended: mpsc::Sender<Ended>,
    /// Number of the order to restart that is not told yet; 0: none.
    restarting: AtomicU64,
    /// A whole scan of this run has ended, and a look at packages.
    scanned: AtomicBool,
}

/// Wall clock, microseconds since the epoch.
fn now_us() -> u64 {
    SystemClock::new().now_us()
}

impl Shared {
    /// The agent's database is damaged: the next start mends it or moves the file aside, and finds
    /// out what changed, so start anew.
    fn rebuild(&self) {
        self.console.line("agent.db is damaged; starting anew to rebuild it");
        // When there is no room the agent ends already.
        let _ = self.ended.try_send(Ended::Damaged);
    }

    /// Read or write notes, on a thread that may block.
    async fn note<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Queue) -> Result<T, queue::QueueError> + Send + 'static,
    ) -> Result<T, sync::SyncError> {
        let queue = self.queue.clone();
        match tokio::task::spawn_blocking(move || work(&queue)).await {
            Ok(done) => Ok(done?),
            Err(_) => Err(sync::SyncError::Stopping),
        }
    }

    /// Whether some root or folder could not be seen by the last scan.
    fn gaps_open(&self) -> bool {
        notes::gaps(&self.queue).map_or(true, |gaps| !gaps.is_empty())
    }
}

impl Agent {
    /// Open the queue, start scanning and telling. Needs an enrolled identity in the folder.
    pub fn start(settings: &AgentSettings, console: Console) -> anyhow::Result<Self> {
        let clock = Arc::new(SystemClock::new());
        let left = Left::default();
        Start { own: settings, console, clock, begin: Begin::Start, left }.run()
    }

    /// Go on with the configuration of its groups as it is stored now, and with these own settings.
    /// To the server it was never away; the scan that follows finds what the old one had not.
    pub async fn reload(self, settings: &AgentSettings) -> anyhow::Result<Self> {
        let console = self.shared.console.clone();
        // While the gap before the last start is not told, its beginning is still noted.
        let settled = self.shared.settled.load(Ordering::Acquire);
        let left = self.close(false).await?;
        let begin = if settled { Begin::Reload } else { Begin::Start };
        let clock = Arc::new(SystemClock::new());
        Start { own: settings, console, clock, begin, left }.run()
    }

    /// Wait until the agent ends by itself.
    pub async fn ended(&mut self) -> Option<Ended> {
        self.ended.recv().await
    }

    /// Stop: the scan at the files in hand; a session in flight is told once more by the next
    /// start; say goodbye, close the queue.
    pub async fn stop(self) -> anyhow::Result<()> {
        self.close(true).await.map(drop)
    }

    async fn close(mut self, goodbye: bool) -> anyhow::Result<Left> {
        self.shared.cancel.cancel();
        self.stop.send_replace(true);
        // The scanner may be waiting for its next order or be in the midst of a scan.
        let _ = self.shared.orders.try_send(scan::Order::Stop);
        for task in self.tasks {
            let _ = task.await;
        }
        let scanner = self.scanner;
        let _ = tokio::task::spawn_blocking(move || scanner.join()).await;
        if goodbye {
            let outcomes = heart::first(&self.shared.outcomes.lock());
            let said = self.shared.syncer.heartbeat(ControlAction::Shutdown, &outcomes);
            if !matches!(timeout(GOODBYE_TIMEOUT, said).await, Ok(Ok(_))) {
                warn!("the server did not take the goodbye; it will notice by the silence");
            }
        }
        if let Some(metrics) = self.metrics {
            metrics.close();
        }
        self.shared.queue.close().context("agent's queue")?;
        let outcomes = std::mem::take(&mut *self.shared.outcomes.lock());
        // What was told as done, or broke, counts for whoever goes on, too.
        let ended = self.ended.try_recv().ok().filter(|ended| *ended != Ended::Configured);
        let restarting = self.shared.restarting.load(Ordering::SeqCst) != 0;
        let ended = ended.or(restarting.then_some(Ended::Restart));
        Ok(Left { outcomes, ended })
    }
}
