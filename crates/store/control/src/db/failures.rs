//! Failures after which the database accepts no change until it is opened again.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use env::clock::{Clock as _, SystemClock};
use parking_lot::Mutex;
use rusqlite::ErrorCode;

use crate::{ControlError, ControlResult};
use sqlite::is_failed_flush;

/// The failures of the database's disk and of its log.
pub(super) struct Failures {
    path: PathBuf,
    checkpoints_fail: AtomicBool,
    /// The first failure after which only opening the database again helps. A later flush that
    /// succeeds would not cover what a failed one did not write.
    last: Mutex<Option<RegistryFailure>>,
}

/// The reason why the registry accepts no decision until it is opened again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RegistryFailure {
    pub cause: String,
    /// Time of the failure, microseconds since the epoch.
    pub at_us: u64,
}

impl Failures {
    pub(super) fn new(path: &Path) -> Arc<Self> {
        let (checkpoints_fail, last) = (AtomicBool::new(false), Mutex::new(None));
        Arc::new(Self { path: path.to_owned(), checkpoints_fail, last })
    }

    /// Logs the first checkpoint that fails, and the next that succeeds.
    pub(super) fn note_checkpoint(&self, done: &rusqlite::Result<()>) {
        let path = self.path.display();
        match done {
            Err(error) if error.sqlite_error_code() == Some(ErrorCode::DatabaseBusy) => return,
            Err(error) if !self.checkpoints_fail.swap(true, Ordering::Relaxed) => {
                tracing::error!(%path, %error,
                    "checkpoint failed: the write-ahead log grows until one succeeds; check the disk");
            }
            Ok(()) if self.checkpoints_fail.swap(false, Ordering::Relaxed) => {
                tracing::info!(%path, "checkpoints work again");
            }
            _ => {}
        }
        self.note(done);
    }

    /// Records a failed flush.
    pub(super) fn note(&self, done: &rusqlite::Result<()>) {
        if let Err(error) = done
            && is_failed_flush(error)
        {
            self.close(format!("flush failed: {error}"));
        }
    }

    /// Accepts no change from now on.
    pub(super) fn close(&self, cause: String) {
        self.last.lock().get_or_insert_with(|| {
            tracing::error!(path = %self.path.display(), %cause,
                "no decision is accepted until the server is restarted; check the disk");
            RegistryFailure { cause, at_us: SystemClock::new().now_us() }
        });
    }

    pub(super) fn get(&self) -> Option<RegistryFailure> {
        self.last.lock().clone()
    }

    /// Returns an error if there is one.
    pub(super) fn expect_none(&self) -> ControlResult<()> {
        self.get().map_or(Ok(()), |failure| Err(ControlError::Poisoned(failure.cause)))
    }
}
