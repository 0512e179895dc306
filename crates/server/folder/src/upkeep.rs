//! Periodic work of the server: liveness, expiry, retention, and persisting the guarded time.

use std::sync::Arc;
use std::time::Duration;

use commit::Commit;
use model::Record;
use registry::Registry;
use replication::Shipping;
use state::{Retention, StateStore};
use tokio::sync::watch;
use tracing::{error, info, warn};

use crate::clock::FolderClock;

/// Interval at which the registry sweeps and flushes.
const TICK_EVERY: Duration = Duration::from_secs(1);
/// Interval at which old events are dropped.
const RETAIN_EVERY: Duration = Duration::from_hours(1);

pub struct Upkeep {
    pub registry: Registry,
    pub state: Arc<StateStore>,
    pub commit: Arc<Commit>,
    pub clock: Arc<FolderClock>,
    pub retention: Retention,
    pub shipping: Shipping,
}

impl Upkeep {
    pub async fn run(self, mut stopped: watch::Receiver<bool>) {
        let this = Arc::new(self);
        let mut retain_at = tokio::time::Instant::now();
        loop {
            tokio::select! {
                () = tokio::time::sleep(TICK_EVERY) => {}
                _ = stopped.wait_for(|s| *s) => break,
            }
            this.clone().record_clock_changes().await;
            let own = this.clone();
            let tick = move || {
                own.shipping.tick();
                own.registry.tick()
            };
            let failed = u8::from(this.registry.failure().is_some());
            metrics::gauge!("holdfast_registry_failed").set(f64::from(failed));
            let held = u8::from(this.clock.clock.hold().is_some());
            metrics::gauge!("holdfast_clock_held").set(f64::from(held));
            match tokio::task::spawn_blocking(tick).await {
                Ok(Ok(_)) => {}
                Ok(Err(e)) => error!("registry: {e}"),
                Err(e) => error!("registry: the tick ended early: {e}"),
            }
            if tokio::time::Instant::now() >= retain_at {
                retain_at = tokio::time::Instant::now() + RETAIN_EVERY;
                this.clone().retain().await;
            }
        }
        let stored = tokio::task::spawn_blocking(move || this.clock.persist());
        // If the task panicked, the time of the last regular write stays on disk.
        let _ = stored.await;
    }

    /// Persists the guarded time if it is due, and records each start and end of a hold as an
    /// event.
    async fn record_clock_changes(self: Arc<Self>) {
        let own = self.clone();
        let tick = move || {
            let changes = own.clock.tick();
            changes.iter().map(|change| own.clock.event(change)).collect::<Vec<_>>()
        };
        for (id, event) in tokio::task::spawn_blocking(tick).await.unwrap_or_default() {
            let at_us = self.registry.guarded_us();
            let record = Record::ServerEvent { id, at_us, body: event.to_json() };
            if let Err(problem) = self.commit.submit(record).await {
                warn!("the event of the clock was not recorded: {problem}");
            }
        }
    }

    /// Drops events that are past their retention. The state records the drop as an event.
    async fn retain(self: Arc<Self>) {
        let now_us = self.registry.guarded_us();
        let own = self.clone();
        let dropped =
            tokio::task::spawn_blocking(move || own.state.retain(&own.retention, now_us)).await;
        match dropped {
            Ok(Ok(retained)) if retained.events > 0 => {
                info!(events = retained.events, bytes = retained.bytes, "past their retention");
            }
            Ok(Err(e)) => error!("retention: {e}"),
            _ => {}
        }
    }
}
