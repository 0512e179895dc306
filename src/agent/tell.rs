//! Telling the server: a cycle whenever something is to be told, a check when one is due.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use env::random::{Random as _, SystemRandom};
use model::Dataset;
use queue::QueueError;
use sync::{CycleReport, SyncError, backoff};
use tokio::sync::watch;
use tokio::time::Instant;
use tracing::{error, info, warn};

use super::packages::{self, Known};
use super::{Shared, lost, notes};
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
        told: Vec::new(),
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
    /// What was told whole at least once since the start.
    told: Vec<Told>,
}

/// What is told, in this order: events go with the first that has room.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Told {
    Files,
    Packages,
}

impl Told {
    pub(super) fn dataset(self, shared: &Shared) -> &Dataset {
        match self {
            Self::Files => &shared.dataset,
            Self::Packages => &shared.packages,
        }
    }

    /// What stands behind the first word of a line for people.
    pub(super) fn shown(self) -> &'static str {
        match self {
            Self::Files => "",
            Self::Packages => " packages",
        }
    }
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
        // All of them before the first cycle: it tells events of any dataset.
        let mut settled = Vec::new();
        for what in [Told::Files, Told::Packages] {
            if lost::settle(&self.shared, what).await? {
                settled.push(what);
            }
        }
        for what in &settled {
            self.cycle(*what).await?;
        }
        if !settled.contains(&Told::Files) {
            // The scan's end asks for the next cycle; a check before that would tell files too.
            return Ok(());
        }
        let reason = self.shared.syncer.check_due();
        if reason.is_none() && Instant::now() < self.check_at {
            return Ok(());
        }
        if !self.scanned().await? {
            // The scan's end asks for the next cycle, and so for this check.
            return Ok(());
        }
        let mut put_off = false;
        for what in settled {
            let checked = match self.check(what, reason).await {
                // What a scan found since the cycle began is told by now.
                Ok(true) => self.check(what, reason).await,
                done => done,
            };
            // The check of one dataset is no check of the other.
            match checked {
                Ok(again) => put_off |= again,
                Err(problem) => {
                    self.shared.syncer.set_check_due(Some("a check broke off"));
                    return Err(problem);
                }
            }
        }
        self.shared.syncer.set_check_due(put_off.then_some("a check was put off"));
        self.check_at = Instant::now() + self.check_interval;
        Ok(())
    }

    async fn cycle(&mut self, what: Told) -> Result<(), SyncError> {
        let shared = self.shared.clone();
        let report = shared.syncer.cycle(what.dataset(&shared)).await?;
        self.show(what, &report).await
    }

    /// Compare one dataset, and tell again what differed. Whether it was put off.
    async fn check(&mut self, what: Told, reason: Option<&str>) -> Result<bool, SyncError> {
        let shared = self.shared.clone();
        let dataset = what.dataset(&shared);
        let known = match what {
            Told::Files if shared.gaps_open() => Known::Before,
            Told::Files => Known::Now,
            Told::Packages => self.packages().await?,
        };
        let found = match known {
            Known::Never => return Ok(false),
            Known::Before => shared.syncer.check_keeping_surplus(dataset).await?,
            Known::Now => shared.syncer.check(dataset).await?,
        };
        info!(
            %dataset,
            reason = reason.unwrap_or("on its interval"),
            documents = found.documents,
            matched = found.matched,
            resent = found.resent,
            removed = found.removed,
            "checked"
        );
        if !found.matched && !found.put_off {
            shared.console.line(&format!(
                "check{}: {} documents differed on the server and are sent again, {} were too many",
                what.shown(),
                found.resent,
                found.removed
            ));
        }
        if !found.matched {
            self.cycle(what).await?;
        }
        Ok(found.put_off)
    }

    async fn packages(&self) -> Result<Known, SyncError> {
        let queue = self.shared.queue.clone();
        match tokio::task::spawn_blocking(move || packages::known(&queue)).await {
            Ok(known) => Ok(known?),
            Err(_) => Err(SyncError::Stopping),
        }
    }

    /// Whether a whole scan of this run has ended. Before, the database may be behind both the disk
    /// and the server (an older one put back, its last commits lost in a power cut): a check would
    /// remove what it does not know yet and send again what is no longer so.
    async fn scanned(&self) -> Result<bool, SyncError> {
        if !self.shared.scanned.load(Ordering::SeqCst) {
            return Ok(false);
        }
        let queue = self.shared.queue.clone();
        match tokio::task::spawn_blocking(move || notes::scanned(&queue)).await {
            Ok(scanned) => Ok(scanned?),
            Err(_) => Err(SyncError::Stopping),
        }
    }

    async fn show(&mut self, what: Told, report: &CycleReport) -> Result<(), SyncError> {
        let told = self.told.contains(&what);
        if told && report.sessions == 0 {
            return Ok(());
        }
        let queue = self.shared.queue.clone();
        let status = match tokio::task::spawn_blocking(move || queue.status()).await {
            Ok(status) => status?,
            Err(_) => return Err(SyncError::Stopping),
        };
        let dataset = what.dataset(&self.shared).name();
        let items: u64 =
            status.datasets.iter().filter(|d| d.name == dataset).map(|d| d.items - d.pending).sum();
        if items > 0 || report.sessions > 0 {
            if !told {
                self.told.push(what);
            }
            self.shared.console.line(&format!(
                "synchronised{}: {items} documents durable ({} sent, {} events)",
                what.shown(),
                report.documents,
                report.events
            ));
        }
        Ok(())
    }

    fn failed(&mut self, problem: &SyncError) -> Duration {
        if matches!(problem, SyncError::Queue(QueueError::Corrupt { .. })) {
            self.shared.rebuild();
        }
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
