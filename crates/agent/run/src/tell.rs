//! Telling the server: a cycle whenever something is to be told, a check when one is due.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use env::random::{Random as _, SystemRandom};
use model::Dataset;
use queue::QueueError;
use sync::{Compared, CycleReport, Surplus, SyncError, backoff};
use tokio::sync::watch;
use tokio::time::Instant;
use tracing::{error, info, warn};

use super::packages::{self, Known};
use super::{Shared, lost, notes, now_us};
use crate::config::SyncConfig;

/// A cycle is tried at least so often, whether or not anybody asked: nothing pending costs nothing.
const CYCLE_EVERY: Duration = Duration::from_mins(1);

/// How long a database that may be behind both the disk and the server tells nothing: as a rule the
/// first scan ends before, and a scan that hangs must not silence the agent.
pub(super) const HELD_FOR: Duration = Duration::from_mins(10);

/// Why a check stays due that could not be made as things are.
const PUT_OFF: &str = "a check was put off";
/// When it is tried again, at the latest.
const PUT_OFF_FOR: Duration = Duration::from_hours(1);

/// What became of the check of one dataset.
enum Checked {
    /// Nothing is known of it here.
    Nothing,
    /// What differed is mended; in which store.
    Agreed(String),
    /// Nothing was done: it may be made in a moment, when what is pending is told.
    PutOff,
    /// Everything was told again to a server that compares no ranges, and something became pending
    /// meanwhile: whether it agrees is found out by the next check, not at once.
    Unsure,
    /// As before, and it still holds something else: not again before the interval is over.
    Differs,
}

/// Tell until stopped.
pub(super) async fn run(
    shared: Arc<Shared>,
    config: SyncConfig,
    mut stopped: watch::Receiver<bool>,
) {
    let check_at = match next_check(&shared, config.check_interval).await {
        Ok(wait) => Instant::now() + wait,
        Err(problem) => {
            warn!("when the last check was is not known: {problem}");
            Instant::now()
        }
    };
    let held_until = shared.clock.monotonic() + HELD_FOR;
    let mut teller = Teller {
        shared,
        check_at,
        check_interval: config.check_interval,
        held_until,
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

/// How long until a check is due on its interval: that goes on over restarts.
async fn next_check(shared: &Arc<Shared>, interval: Duration) -> Result<Duration, SyncError> {
    let now_us = now_us();
    let last_us = shared.note(move |queue| match notes::checked(queue)? {
        Some(last_us) => Ok(last_us),
        // The first start.
        None => notes::set_checked(queue, now_us).map(|()| now_us),
    });
    Ok(interval.saturating_sub(Duration::from_micros(now_us.saturating_sub(last_us.await?))))
}

struct Teller {
    shared: Arc<Shared>,
    check_at: Instant,
    check_interval: Duration,
    /// Until when a database that may be behind waits for the first scan, monotone time.
    held_until: Duration,
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
        self.shared.syncer.greet().await?;
        let held = self.shared.syncer.check_due().is_some()
            && self.shared.clock.monotonic() < self.held_until;
        if held && !self.scanned().await? {
            // The database may be behind both the disk and the server: what is pending in it may no
            // longer be so. The scan's end asks for the next cycle.
            return Ok(());
        }
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
        if matches!(reason, None | Some(PUT_OFF)) && Instant::now() < self.check_at {
            return Ok(());
        }
        if !self.scanned().await? {
            // The scan's end asks for the next cycle, and so for this check.
            return Ok(());
        }
        self.check_all(settled, reason).await
    }

    /// Check every dataset. What came up before it began is settled only once all of them agree.
    async fn check_all(
        &mut self,
        settled: Vec<Told>,
        reason: Option<&'static str>,
    ) -> Result<(), SyncError> {
        let begun = self.shared.syncer.begin_check();
        let (mut store, mut differs) = (Some(String::new()), false);
        for what in settled {
            let checked = match self.check(what, reason).await {
                // What a scan found since the cycle began is told by now.
                Ok(Checked::PutOff) => self.check(what, reason).await,
                done => done,
            };
            match checked {
                Ok(Checked::Nothing) => {}
                Ok(Checked::Agreed(agreed)) => store = store.map(|_| agreed),
                Ok(Checked::PutOff | Checked::Unsure) => store = None,
                Ok(Checked::Differs) => (store, differs) = (None, true),
                Err(problem) => {
                    self.shared.syncer.set_check_due(Some("a check broke off"));
                    return Err(problem);
                }
            }
        }
        let wait = if let Some(store) = store {
            self.shared.syncer.end_check(begun, store).await?;
            let now_us = now_us();
            self.shared.note(move |queue| notes::set_checked(queue, now_us)).await?;
            self.check_interval
        } else {
            self.shared.syncer.set_check_due(Some(PUT_OFF));
            if differs { self.check_interval } else { self.check_interval.min(PUT_OFF_FOR) }
        };
        self.check_at = Instant::now() + wait;
        Ok(())
    }

    async fn cycle(&mut self, what: Told) -> Result<(), SyncError> {
        let shared = self.shared.clone();
        let report = shared.syncer.cycle(what.dataset(&shared)).await?;
        self.show(what, &report).await
    }

    /// Compare one dataset, and tell again what differed.
    async fn check(&mut self, what: Told, reason: Option<&str>) -> Result<Checked, SyncError> {
        let shared = self.shared.clone();
        let dataset = what.dataset(&shared);
        let known = match what {
            // With a configuration of its groups that is not used it watches less than it is to.
            Told::Files if shared.gaps_open() || !shared.syncer.config().refused.is_empty() => {
                Known::Before
            }
            Told::Files => Known::Now,
            // What the server holds of packages that are watched no more goes, also when a database
            // that was lost since knew of them alone.
            Told::Packages if !shared.inventory && shared.syncer.config().refused.is_empty() => {
                Known::Now
            }
            Told::Packages => self.packages().await?,
        };
        let surplus = match known {
            Known::Never => return Ok(Checked::Nothing),
            Known::Before => Surplus::Keep,
            Known::Now => Surplus::Remove,
        };
        let Compared { report: found, store } = shared.syncer.check_part(dataset, surplus).await?;
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
        Ok(match store {
            Some(store) => Checked::Agreed(store),
            // An older server that holds something of them, or knows no such index: not asked again.
            None if found.put_off && what == Told::Packages && !shared.inventory => {
                Checked::Nothing
            }
            None if found.put_off => Checked::PutOff,
            None if found.unsure => Checked::Unsure,
            None => Checked::Differs,
        })
    }

    async fn packages(&self) -> Result<Known, SyncError> {
        self.shared.note(packages::known).await
    }

    /// Whether a whole scan of this run has ended, and a look at packages. Before, the database may
    /// be behind both the disk and the server (an older one put back, its last commits lost in a
    /// power cut): a check would remove what it does not know yet and send again what is no longer
    /// so.
    async fn scanned(&self) -> Result<bool, SyncError> {
        if !self.shared.scanned.load(Ordering::SeqCst) {
            return Ok(false);
        }
        self.shared.note(notes::scanned).await
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
        let damaged = matches!(problem, SyncError::Queue(QueueError::Corrupt { .. }));
        if damaged {
            self.shared.queue.note_damage();
        }
        if self.failures == 0 || damaged {
            if problem.is_transient() {
                warn!("sync: {problem}");
            } else {
                error!("sync: {problem}");
            }
            self.shared.console.line(&format!("not synchronised: {problem}; changes are kept"));
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
