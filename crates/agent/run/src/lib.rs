//! The running agent: a thread that scans, a task that reports to the server, a task that sends
//! heartbeats, two tasks for metrics, and the queue between them.

mod config;
mod datasets;
mod display;
mod gaps;
mod group;
mod heartbeats;
mod leave;
mod lost;
mod notes;
mod packages;
mod reporter;
mod scan;
mod shared;
mod start;
#[cfg(test)]
mod tests;
mod waking_sink;
mod watching;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;

use anyhow::Context as _;
use env::clock::SystemClock;
use link::ControlAction;
use service::Console;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio::time::{Duration, timeout};
use tracing::warn;

pub use config::{
    AgentSettings, InventoryConfig, QueueConfig, RealtimeConfig, ScanConfig, SyncConfig,
};
pub use display::{ShownProgress, print_scan, show_progress};
pub use leave::leave;
pub use notes::{last_scan, last_scan_line, realtime_status};
pub use realtime::RealtimeStatus;
pub use shared::EndReason;
pub use telemetry::{METRICS_FILE, MetricsConfig};

use shared::{Begin, Leftovers, ScanCommand, Shared};
use start::Start;
use telemetry::HostMetrics;

/// Longest time that a stop waits for the answer to the last heartbeat.
const GOODBYE_TIMEOUT: Duration = Duration::from_secs(2);

/// Pause before a damaged database is reopened, so that repeated damage does not keep the machine
/// busy.
pub const REBUILD_PAUSE: Duration = Duration::from_secs(10);

/// A running agent.
pub struct Agent {
    shared: Arc<Shared>,
    stop: watch::Sender<bool>,
    tasks: Vec<JoinHandle<()>>,
    metrics: Option<Arc<HostMetrics>>,
    scanner: thread::JoinHandle<()>,
    ended: mpsc::Receiver<EndReason>,
}

impl Agent {
    /// Opens the queue and starts scanning and reporting. Needs an enrolled identity in the folder.
    pub fn start(settings: &AgentSettings, console: Console) -> anyhow::Result<Self> {
        let clock = Arc::new(SystemClock::new());
        let left = Leftovers::default();
        Start { own: settings, console, clock, begin: Begin::Start, left }.run()
    }

    /// Restarts with these settings and the stored configuration of its groups. The server does not
    /// see an interruption. The scan that follows finds changes that the old configuration did not
    /// cover.
    pub async fn reload(self, settings: &AgentSettings) -> anyhow::Result<Self> {
        let console = self.shared.console.clone();
        // If the gap before the last start is not reported yet, the restart must report it.
        let settled = self.shared.settled.load(Ordering::Acquire);
        let left = self.close(false).await?;
        let begin = if settled { Begin::Reload } else { Begin::Start };
        let clock = Arc::new(SystemClock::new());
        Start { own: settings, console, clock, begin, left }.run()
    }

    /// Waits until the agent ends by itself.
    pub async fn ended(&mut self) -> Option<EndReason> {
        self.ended.recv().await
    }

    /// Returns a receiver of true from the server's first answer on.
    pub fn connected(&self) -> watch::Receiver<bool> {
        self.shared.connected.subscribe()
    }

    /// Stops the agent: stops the scan after the files in progress, informs the server, and closes
    /// the queue. The next start sends a session in flight again.
    pub async fn stop(self) -> anyhow::Result<()> {
        self.close(true).await.map(drop)
    }

    async fn close(mut self, goodbye: bool) -> anyhow::Result<Leftovers> {
        self.shared.cancel.cancel();
        self.stop.send_replace(true);
        // The scanner may be waiting for its next command or be in the middle of a scan.
        let _ = self.shared.scan_commands.try_send(ScanCommand::Stop);
        for task in self.tasks {
            let _ = task.await;
        }
        let scanner = self.scanner;
        let _ = tokio::task::spawn_blocking(move || scanner.join()).await;
        if goodbye {
            let outcomes = heartbeats::first(&self.shared.outcomes.lock());
            let said = self.shared.syncer.heartbeat(ControlAction::Shutdown, &outcomes);
            if !matches!(timeout(GOODBYE_TIMEOUT, said).await, Ok(Ok(_))) {
                warn!(
                    "the server did not accept the goodbye; it will notice the missing heartbeats"
                );
            }
        }
        if let Some(metrics) = self.metrics {
            metrics.close();
        }
        self.shared.queue.close().context("agent's queue")?;
        let outcomes = std::mem::take(&mut *self.shared.outcomes.lock());
        let rescans = std::mem::take(&mut *self.shared.rescans.lock());
        // A restart command, or a failed part, must also end the agent that follows a reload.
        let ended = self.ended.try_recv().ok().filter(|ended| *ended != EndReason::Configured);
        let restarting = self.shared.restarting.load(Ordering::SeqCst) != 0;
        let ended = ended.or(restarting.then_some(EndReason::Restart));
        Ok(Leftovers { outcomes, rescans, ended })
    }
}
