//! Reporting to the server: a cycle whenever something is pending, a check when one is due.
//!
//! A *pass* ([`Reporter::pass`]) runs at least once a minute, and whenever [`Shared::report`] is
//! notified: after every scan, after a scan of packages that found a change, and when a heartbeat
//! reports a reason for a check. It does these steps, and ends at the first one that cannot be done
//! yet. The end of the scan that it waits for starts the next pass.
//!
//! 1. It sends the first heartbeat, if none was answered yet. The answer says whether a check is
//!    due.
//! 2. If a check is due, it waits for the first scan of this run, for at most [`HELD_FOR`]. The
//!    database may be older than disk and server, so its pending items may be out of date.
//! 3. For each dataset of a new database, it reports changes made while the old one was missing
//!    ([`lost::compare_if_due`]). This comes before the first cycle, because a cycle sends the
//!    events of every dataset.
//! 4. It runs a cycle for each dataset that is settled.
//! 5. If a check is due, by its interval or for a reason, and a complete scan has ended, it checks
//!    each dataset: it compares the dataset with the server, and sends differing items in another
//!    cycle.
//!
//! A check that could not be completed stays due with the reason [`PUT_OFF`]. This reason alone
//! does not start another check before an hour or the interval has passed. After a failed pass the
//! next one waits for the backoff, which notifications do not shorten.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use env::random::{Random as _, SystemRandom};
use queue::QueueError;
use sync::{CycleReport, SurplusPolicy, SyncError, backoff};
use tokio::sync::watch;
use tokio::time::Instant;
use tracing::{info, warn};

use crate::config::SyncConfig;
use crate::datasets::DatasetKind;
use crate::lost::{self, DatasetReadiness};
use crate::notes;
use crate::packages::{self, Reading};
use crate::shared::{Shared, now_us};

/// Longest time between two passes. A pass with nothing pending is cheap.
const PASS_EVERY: Duration = Duration::from_mins(1);

/// Shortest time between the beginnings of two passes: a burst of changes shares a session. The
/// first change after a quiet time is sent at once.
const PASS_EVERY_MIN: Duration = Duration::from_millis(200);

/// Longest wait for the first scan, if the database may be older than disk and server. Most scans
/// end earlier. A scan that hangs must not stop reporting.
pub(super) const HELD_FOR: Duration = Duration::from_mins(10);

/// The reason of a check that could not be completed.
const PUT_OFF: &str = "a check was put off";
/// Longest delay before such a check is tried again.
const PUT_OFF_FOR: Duration = Duration::from_hours(1);

/// Reports to the server until stopped.
pub(super) async fn run(
    shared: Arc<Shared>,
    config: SyncConfig,
    mut stopped: watch::Receiver<bool>,
) {
    let check_at = match until_check(&shared, config.check_interval).await {
        Ok(wait) => Instant::now() + wait,
        Err(problem) => {
            warn!("the time of the last check is not known: {problem}");
            Instant::now()
        }
    };
    let held_until = shared.clock.monotonic() + HELD_FOR;
    let mut teller = Reporter {
        shared,
        check_at,
        check_interval: config.check_interval,
        held_until,
        failures: 0,
        announced: Vec::new(),
    };
    let mut wait = PASS_EVERY;
    let mut ready = Instant::now();
    loop {
        let notified = async {
            teller.shared.report.notified().await;
            tokio::time::sleep_until(ready).await;
        };
        tokio::select! {
            () = tokio::time::sleep(wait) => {}
            () = notified, if teller.failures == 0 => {}
            _ = stopped.wait_for(|s| *s) => return,
        }
        ready = Instant::now() + PASS_EVERY_MIN;
        wait = tokio::select! {
            wait = teller.pass_or_backoff() => wait,
            _ = stopped.wait_for(|s| *s) => return,
        };
    }
}

/// Returns the time until the next check by its interval, which continues over restarts.
async fn until_check(shared: &Arc<Shared>, interval: Duration) -> Result<Duration, SyncError> {
    let now_us = now_us();
    let last_us = shared.note(move |queue| match notes::checked(queue)? {
        Some(last_us) => Ok(last_us),
        // The first start.
        None => notes::set_checked(queue, now_us).map(|()| now_us),
    });
    Ok(interval.saturating_sub(Duration::from_micros(now_us.saturating_sub(last_us.await?))))
}

struct Reporter {
    shared: Arc<Shared>,
    /// Time at which the next check is due by its interval.
    check_at: Instant,
    check_interval: Duration,
    /// Monotonic time until which a database that may be too old waits for the first scan.
    held_until: Duration,
    /// Number of consecutive failed passes.
    failures: u32,
    /// Datasets for which a line was printed since the start or the last failure.
    announced: Vec<DatasetKind>,
}

/// The outcome of the check of one dataset.
enum DatasetCheck {
    /// The agent has no data of the dataset, and leaves the server's documents unchanged.
    Skipped,
    /// Both sides agree, or will after the cycle that was run.
    Agreed {
        /// The server's store.
        store: String,
    },
    /// Items were pending, so nothing was compared.
    Pending,
    /// Everything was sent again to a server that cannot compare ranges. Only the next check can
    /// show that both sides agree.
    Unsure,
    /// The server's documents still differ.
    Differs,
}

/// The outcome of the check of all datasets.
enum Check {
    Agreed {
        /// The server's store; empty if every dataset was skipped.
        store: String,
    },
    /// To be tried again after [`PUT_OFF_FOR`].
    PutOff,
    /// To be tried again after the whole interval.
    Differs,
}

impl Check {
    fn and(self, dataset: DatasetCheck) -> Self {
        match (self, dataset) {
            (check, DatasetCheck::Skipped) => check,
            (Self::Differs, _) | (_, DatasetCheck::Differs) => Self::Differs,
            (Self::PutOff, _) | (_, DatasetCheck::Pending | DatasetCheck::Unsure) => Self::PutOff,
            (Self::Agreed { .. }, DatasetCheck::Agreed { store }) => Self::Agreed { store },
        }
    }
}

impl Reporter {
    /// Runs a pass. Returns the delay before the next one.
    async fn pass_or_backoff(&mut self) -> Duration {
        match self.pass().await {
            Ok(()) => {
                if std::mem::take(&mut self.failures) > 0 {
                    info!("the server accepts sessions again");
                }
                PASS_EVERY
            }
            Err(problem) => self.failed(&problem),
        }
    }

    /// Runs one pass; see the module documentation.
    async fn pass(&mut self) -> Result<(), SyncError> {
        self.shared.syncer.send_startup().await?;
        if self.shared.syncer.check_due().is_some()
            && self.shared.clock.monotonic() < self.held_until
            && !self.has_scanned().await?
        {
            return Ok(());
        }
        let mut settled = Vec::new();
        for kind in DatasetKind::ALL {
            if lost::compare_if_due(&self.shared, kind).await? == DatasetReadiness::Yes {
                settled.push(kind);
            }
        }
        for kind in &settled {
            self.cycle(*kind).await?;
        }
        // Without the files a check would report files too.
        if !settled.contains(&DatasetKind::Files) {
            return Ok(());
        }
        let reason = self.shared.syncer.check_due();
        let by_interval = Instant::now() >= self.check_at;
        let by_reason = reason.is_some_and(|reason| reason != PUT_OFF);
        if !(by_interval || by_reason) || !self.has_scanned().await? {
            return Ok(());
        }
        self.check_all(settled, reason).await
    }

    /// Returns true if a complete scan of files and a scan of packages of this run have ended.
    ///
    /// Until then the database may be older than disk and server, because a copy was restored or a
    /// power cut lost its last commits. A check would remove items from the server that the
    /// database does not have yet, and send items again that are out of date.
    async fn has_scanned(&self) -> Result<bool, SyncError> {
        if !self.shared.scanned.load(Ordering::SeqCst) {
            return Ok(false);
        }
        self.shared.note(notes::scanned).await
    }

    async fn cycle(&mut self, kind: DatasetKind) -> Result<(), SyncError> {
        let shared = self.shared.clone();
        let report = shared.syncer.cycle(shared.dataset_of(kind)).await?;
        self.announce(kind, &report).await
    }

    /// Checks these datasets. Reasons raised before are cleared only if all datasets agree.
    async fn check_all(
        &mut self,
        kinds: Vec<DatasetKind>,
        reason: Option<&'static str>,
    ) -> Result<(), SyncError> {
        let begun = self.shared.syncer.begin_check();
        let mut check = Check::Agreed { store: String::new() };
        for kind in kinds {
            match self.check_twice(kind, reason).await {
                Ok(dataset) => check = check.and(dataset),
                Err(problem) => {
                    self.shared.syncer.set_check_due(Some("a check broke off"));
                    return Err(problem);
                }
            }
        }
        let wait = match check {
            Check::Agreed { store } => {
                self.shared.syncer.end_check(begun, store).await?;
                let now_us = now_us();
                self.shared.note(move |queue| notes::set_checked(queue, now_us)).await?;
                self.check_interval
            }
            Check::PutOff => {
                self.shared.syncer.set_check_due(Some(PUT_OFF));
                self.check_interval.min(PUT_OFF_FOR)
            }
            Check::Differs => {
                self.shared.syncer.set_check_due(Some(PUT_OFF));
                self.check_interval
            }
        };
        self.check_at = Instant::now() + wait;
        Ok(())
    }

    /// Checks a dataset. If items were pending, the first check sends them, and a second one runs.
    async fn check_twice(
        &mut self,
        kind: DatasetKind,
        reason: Option<&str>,
    ) -> Result<DatasetCheck, SyncError> {
        match self.check(kind, reason).await? {
            DatasetCheck::Pending => self.check(kind, reason).await,
            done => Ok(done),
        }
    }

    /// Compares a dataset with the server and sends the items that differ.
    async fn check(
        &mut self,
        kind: DatasetKind,
        reason: Option<&str>,
    ) -> Result<DatasetCheck, SyncError> {
        let shared = self.shared.clone();
        let dataset = shared.dataset_of(kind);
        let Some(surplus) = self.surplus(kind).await? else { return Ok(DatasetCheck::Skipped) };
        let compared = shared.syncer.check_part(dataset, surplus).await?;
        let found = compared.report;
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
                kind.label(),
                found.resent,
                found.removed
            ));
        }
        if !found.matched {
            self.cycle(kind).await?;
        }
        Ok(match compared.store {
            Some(store) => DatasetCheck::Agreed { store },
            // Packages are not watched, so the check is not repeated for them.
            None if found.put_off && kind == DatasetKind::Packages && !shared.inventory => {
                DatasetCheck::Skipped
            }
            None if found.put_off => DatasetCheck::Pending,
            None if found.unsure => DatasetCheck::Unsure,
            None => DatasetCheck::Differs,
        })
    }

    /// Returns what a check does with documents that only the server holds; `None` if the dataset
    /// cannot be checked.
    async fn surplus(&self, kind: DatasetKind) -> Result<Option<SurplusPolicy>, SyncError> {
        let shared = &self.shared;
        // If the groups' configuration was refused, the agent may watch less than it should.
        let refused = !shared.syncer.config().refused.is_empty();
        let reading = match kind {
            DatasetKind::Files if refused || shared.gaps_open() => Reading::Outdated,
            DatasetKind::Files => Reading::Current,
            // If packages are not watched, the server's packages are removed, even if this database
            // never had them.
            DatasetKind::Packages if !shared.inventory && !refused => Reading::Current,
            DatasetKind::Packages => shared.note(packages::reading).await?,
        };
        Ok(match reading {
            Reading::Never => None,
            Reading::Outdated => Some(SurplusPolicy::Keep),
            Reading::Current => Some(SurplusPolicy::Remove),
        })
    }

    /// Prints the result of a dataset's first cycle after the start or a failure.
    async fn announce(&mut self, kind: DatasetKind, report: &CycleReport) -> Result<(), SyncError> {
        if self.announced.contains(&kind) {
            return Ok(());
        }
        let status = self.shared.note(queue::Queue::status).await?;
        let dataset = self.shared.dataset_of(kind).name();
        let items: u64 =
            status.datasets.iter().filter(|d| d.name == dataset).map(|d| d.items - d.pending).sum();
        if items > 0 || report.sessions > 0 {
            self.announced.push(kind);
            self.shared.console.line(&format!(
                "synchronised{}: {items} documents durable ({} sent, {} events)",
                kind.label(),
                report.documents,
                report.events
            ));
        }
        Ok(())
    }

    /// Reports a failed pass. Returns the delay before the next one.
    fn failed(&mut self, problem: &SyncError) -> Duration {
        let damaged = matches!(problem, SyncError::Queue(QueueError::Corrupt { .. }));
        if damaged {
            self.shared.queue.note_damage();
        }
        if self.failures == 0 || damaged {
            self.shared.print_failure("not synchronised", problem);
            self.announced.clear();
        }
        if self.shared.queue.is_damaged() {
            self.shared.rebuild();
        }
        let random = SystemRandom.next_u64().unwrap_or(u64::MAX);
        let wait = backoff::delay(self.failures, random, problem.retry_after());
        self.failures = self.failures.saturating_add(1);
        wait
    }
}
