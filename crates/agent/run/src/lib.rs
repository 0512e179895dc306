//! The agent as a running thing: one thread that scans, one task that tells the server, one that
//! keeps the heartbeat, and the queue between them.

mod config;
mod datasets;
mod display;
mod group;
mod heart;
mod lost;
mod metrics;
mod notes;
mod own;
mod packages;
mod scan;
mod shared;
mod start;
mod tell;
#[cfg(test)]
mod tests;
mod uptime;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;

use anyhow::Context as _;
use console::Console;
use env::clock::SystemClock;
use link::ControlAction;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio::time::{Duration, timeout};
use tracing::warn;

pub use config::{
    AgentSettings, InventoryConfig, MetricsConfig, QueueConfig, ScanConfig, SyncConfig,
};
pub use display::print_scan;
pub use metrics::FILE as METRICS_FILE;
pub use notes::last_scan;
pub use shared::Ended;

use shared::{Begin, Left, Order, Shared};
use start::Start;

/// How long a stop waits for the server to take the goodbye.
const GOODBYE_TIMEOUT: Duration = Duration::from_secs(2);

/// Pause before a damaged database is opened anew: what is damaged again at once must not keep the
/// machine busy.
pub const REBUILD_PAUSE: Duration = Duration::from_secs(10);

/// A running agent.
pub struct Agent {
    shared: Arc<Shared>,
    stop: watch::Sender<bool>,
    tasks: Vec<JoinHandle<()>>,
    metrics: Option<Arc<metrics::HostMetrics>>,
    scanner: thread::JoinHandle<()>,
    ended: mpsc::Receiver<Ended>,
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
        let _ = self.shared.orders.try_send(Order::Stop);
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
