//! Telling the server: a cycle whenever something is to be told, a check when one is due.

use std::sync::Arc;
use std::time::Duration;

use env::random::{Random as _, SystemRandom};
use sync::{CycleReport, SyncError, backoff};
use tokio::sync::watch;
use tokio::time::Instant;
use tracing::{error, info, warn};

use super::{Shared, notes};
use crate::config::SyncConfig;

/// A cycle is tried at least so often, whether or not anybody asked: nothing pending costs nothing.
const CYCLE_EVERY: Duration = Duration::from_mins(1);

/// Tell until stopped.
pub(super) async fn run(
    shared: Arc<Shared>,
    config: SyncConfig,
    mut stopped: watch::Receiver<bool>,
) {
    let mut teller = Teller {
        shared,
        check_at: Instant::now() + config.check_interval,
        check_interval: config.check_interval,
        failures: 0,
        told: false,
    };
    let mut wait = CYCLE_EVERY;
    loop {
        tokio::select! {
            () = tokio::time::sleep(wait) => {}
            () = teller.shared.tell.notified(), if teller.failures == 0 => {}
            _ = stopped.wait_for(|s| *s) => return,
        }
        wait = tokio::select! {
            wait = teller.tell() => wait,
            _ = stopped.wait_for(|s| *s) => return,
        };
    }
}

struct Teller {
    shared: Arc<Shared>,
    check_at: Instant,
    check_interval: Duration,
    /// Failures in a row.
    failures: u32,
    /// Everything was told at least once since the start.
    told: bool,
}

impl Teller {
    /// One cycle and, if due, one check; how long to wait for the next.
    async fn tell(&mut self) -> Duration {
        match self.cycle_and_check().await {
            Ok(()) => {
                if std::mem::take(&mut self.failures) > 0 {
                    info!("the server takes sessions again");
                }
                CYCLE_EVERY
            }
            Err(problem) => self.failed(&problem),
        }
    }

    async fn cycle_and_check(&mut self) -> Result<(), SyncError> {
        let shared = self.shared.clone();
        let report = shared.syncer.cycle(&shared.dataset).await?;
        self.show(&report).await?;
        let reason = shared.syncer.check_due();
        if reason.is_none() && Instant::now() < self.check_at {
            return Ok(());
        }
        if !self.scanned().await? {
            // The scan's end asks for the next cycle, and so for this check.
            return Ok(());
        }
        let found = if shared.gaps_open() {
            shared.syncer.check_keeping_surplus(&shared.dataset).await?
        } else {
            shared.syncer.check(&shared.dataset).await?
        };
        info!(
            reason = reason.unwrap_or("on its interval"),
            documents = found.documents,
            matched = found.matched,
            resent = found.resent,
            removed = found.removed,
            "checked"
        );
        if !found.matched {
            shared.console.line(&format!(
                "check: {} documents differed on the server and are sent again, {} were too many",
                found.resent, found.removed
            ));
            let report = shared.syncer.cycle(&shared.dataset).await?;
            self.show(&report).await?;
        }
        self.shared.syncer.set_check_due(None);
        self.check_at = Instant::now() + self.check_interval;
        Ok(())
    }

    async fn scanned(&self) -> Result<bool, SyncError> {
        let queue = self.shared.queue.clone();
        match tokio::task::spawn_blocking(move || notes::scanned(&queue)).await {
            Ok(scanned) => Ok(scanned?),
            Err(_) => Err(SyncError::Stopping),
        }
    }

    async fn show(&mut self, report: &CycleReport) -> Result<(), SyncError> {
        if self.told && report.sessions == 0 {
            return Ok(());
        }
        let queue = self.shared.queue.clone();
        let status = match tokio::task::spawn_blocking(move || queue.status()).await {
            Ok(status) => status?,
            Err(_) => return Err(SyncError::Stopping),
        };
        let items: u64 = status.datasets.iter().map(|d| d.items - d.pending).sum();
        if items > 0 || report.sessions > 0 {
            self.told = true;
            self.shared.console.line(&format!(
                "synchronised: {items} documents durable ({} sent, {} events)",
                report.documents, report.events
            ));
        }
        Ok(())
    }

    fn failed(&mut self, problem: &SyncError) -> Duration {
        if self.failures == 0 {
            if problem.is_transient() {
                warn!("sync: {problem}");
            } else {
                error!("sync: {problem}");
            }
            self.shared.console.line(&format!("not synchronised: {problem}; changes are kept"));
        }
        let random = SystemRandom.next_u64().unwrap_or(u64::MAX);
        let wait = backoff::delay(self.failures, random, problem.retry_after());
        self.failures = self.failures.saturating_add(1);
        wait
    }
}
