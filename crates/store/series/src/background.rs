//! The upkeep thread: runs seals, merges, retention and forgetting when they are due, and closes
//! the store.

use std::time::Duration;

use crate::core::{Core, FolderChange};
use crate::error::WriteError;
use crate::manifest::Manifest;
use crate::model::MergeOutcome;
use crate::retain::Step;

/// Interval at which the thread checks for work on its own.
const TICK: Duration = Duration::from_secs(1);
/// Number of rounds between two retention checks.
const RETAIN_ROUNDS: u32 = 60;
/// Minimum time between two searches for rows to be forgotten, and the one while a limit of series
/// is nearly reached.
const FORGET_EVERY: Duration = Duration::from_mins(10);
const FORGET_EVERY_IF_FULL: Duration = Duration::from_mins(1);
/// Number of intervals after which a search is made even if no samples were removed: for rows that
/// were never written.
const FORGET_ANYWAY: u32 = 6;

/// The state of the upkeep thread between rounds.
struct Rounds {
    count: u32,
    /// Time until which merges are paused.
    merges_rest: Duration,
    /// True while retention has more to do.
    retaining: bool,
    /// Time of the last search for rows to be forgotten, or of the opening, and the number of
    /// intervals so far.
    forgot: Duration,
    looks: u32,
}

impl Core {
    /// Runs the upkeep thread until the store is closed.
    pub(crate) fn run_upkeep(&self) {
        let mut rounds = Rounds {
            count: 0,
            merges_rest: Duration::ZERO,
            retaining: false,
            forgot: self.upkeep.opened,
            looks: 0,
        };
        loop {
            if !self.is_seal_due() && !rounds.retaining {
                self.upkeep.sleep(TICK);
            }
            if self.upkeep.is_stopping() {
                return;
            }
            if !self.watch_folder() {
                self.upkeep.sleep(TICK);
                continue;
            }
            if let Err(e) = self.upkeep_round(&mut rounds)
                && !self.upkeep.is_stopping()
            {
                tracing::warn!("series: {e}");
                self.upkeep.sleep(TICK);
            }
        }
    }

    /// Does one step of each kind of work that is due.
    fn upkeep_round(&self, rounds: &mut Rounds) -> Result<(), WriteError> {
        rounds.count += 1;
        // A failure here is reported at the next write.
        let _ = self.ensure_marked();
        let reopened = self.reopen_log().map(drop);
        // A failed seal is reported as trouble: rows wait for it. Failed merges and retention cost
        // only space until they succeed.
        let sealed = if self.is_seal_due() { self.seal().map(drop) } else { Ok(()) };
        let mut outcome = MergeOutcome::default();
        let now = self.options.clock.monotonic();
        let merges = sealed.is_ok() && now >= rounds.merges_rest;
        let merged = if merges { self.merge_once(&mut outcome).map(drop) } else { sealed };
        let rest = self.rest_after(outcome.bytes_written);
        rounds.merges_rest = rounds.merges_rest.max(self.options.clock.monotonic() + rest);
        // Merges run between the steps of a long retention.
        rounds.retaining |= rounds.count.is_multiple_of(RETAIN_ROUNDS);
        let step = if rounds.retaining { self.retain_step(&mut outcome) } else { Ok(Step::Done) };
        rounds.retaining = matches!(step, Ok(Step::More | Step::Refused(_)));
        let retained = match step {
            Ok(Step::Refused(e)) | Err(e) => Err(e),
            Ok(Step::More | Step::Done) => Ok(()),
        };
        let forgotten = self.forget_in_time(rounds);
        reopened.and(merged).and(retained).and(forgotten)
    }

    /// Returns false while the folder is not the one that was opened. Data written to a removed or
    /// unmounted folder is lost when the program ends, so writes fail until the folder is back.
    fn watch_folder(&self) -> bool {
        let change = self.folder.check_folder(&self.dir);
        let dir = self.dir.display();
        match change {
            FolderChange::None => {}
            FolderChange::Lost => tracing::error!(
                "{dir}: gone, or another one is in its place: no metrics are taken; put it back, \
                 or stop the server and restore its backup"
            ),
            FolderChange::Found => tracing::warn!("{dir}: back: metrics are accepted"),
        }
        if change != FolderChange::None {
            self.heads_changed();
        }
        !self.folder.is_lost()
    }

    /// Searches for rows to be forgotten if the interval has passed.
    fn forget_in_time(&self, rounds: &mut Rounds) -> Result<(), WriteError> {
        let now = self.options.clock.monotonic();
        let full = self.catalog.is_nearly_full();
        if now < rounds.forgot + if full { FORGET_EVERY_IF_FULL } else { FORGET_EVERY } {
            return Ok(());
        }
        rounds.forgot = now;
        rounds.looks = rounds.looks.wrapping_add(1);
        if full || rounds.looks.is_multiple_of(FORGET_ANYWAY) {
            self.forgetting.samples_went();
        }
        self.forget()
    }

    /// Returns how long merges pause after writing `bytes` bytes.
    fn rest_after(&self, bytes: u64) -> Duration {
        match self.options.merge_bytes_per_s_max {
            0 => Duration::ZERO,
            most => Duration::from_secs_f64(bytes as f64 / most as f64),
        }
    }

    /// Closes the store: seals, closes the log, and marks the folder as closed cleanly.
    pub(crate) fn finish(&self) -> Result<(), WriteError> {
        let sealed = self.seal();
        let journal = self.journal.write().take();
        let closed = journal.map_or(Ok(()), |journal| journal.close().map_err(WriteError::from));
        sealed?;
        closed?;
        let mut manifest = self.manifest.lock();
        manifest.clean = true;
        let files = &*self.options.files;
        // If there was no space to mark the store as open, it is still marked as closed.
        let unmarked = self.folder.is_unmarked();
        if unmarked && matches!(Manifest::load(files, &self.dir), Ok(Some(m)) if m == *manifest) {
            return Ok(());
        }
        manifest.store(files, &self.dir).map(drop)
    }
}
