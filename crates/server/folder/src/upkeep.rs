//! Periodic work of the server: liveness, expiry, retention, and persisting the guarded time.

use std::sync::Arc;
use std::time::Duration;

use commit::Commit;
use model::Record;
use registry::Registry;
use replication::Shipping;
use state::{Retained, Retention, StateStore};
use tokio::sync::watch;
use tracing::{error, info, warn};

use crate::clock::FolderClock;

/// Interval at which the registry sweeps and flushes.
const TICK_EVERY: Duration = Duration::from_secs(1);
/// Interval at which old events are dropped.
const RETAIN_EVERY: Duration = Duration::from_hours(1);
/// Time to wait for records to be applied before a retention run is skipped.
const BARRIER_TIME_MAX: Duration = Duration::from_secs(10);

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

    /// Deletes what is past its retention. Each part of the run is a record of the journal.
    async fn retain(self: Arc<Self>) {
        // A part of an earlier run may wait for disk space. This run must not count its events.
        let applied = tokio::time::timeout(BARRIER_TIME_MAX, self.commit.barrier()).await;
        if !matches!(applied, Ok(Ok(_))) {
            warn!("retention skipped: records wait to be applied");
            return;
        }
        let now_us = self.registry.guarded_us();
        let run = move || -> anyhow::Result<Retained> {
            let submit = |part| Ok(self.commit.submit_blocking(part)?.applied);
            self.state.retain(&self.retention, now_us, submit)
        };
        match tokio::task::spawn_blocking(run).await {
            Ok(Ok(retained)) if retained.events > 0 => {
                info!(events = retained.events, bytes = retained.bytes, "past their retention");
            }
            Ok(Err(e)) => error!("retention: {e:#}"),
            _ => {}
        }
    }
}
