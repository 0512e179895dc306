//! Damage that is met while the database is in use, and a disk in doubt: nothing more is written,
//! and the next opening looks at the whole file.

use std::sync::atomic::{AtomicBool, Ordering};

use model::ItemKey;
use rusqlite::{Connection, ffi};

use crate::error::QueueError;
use crate::open;
use crate::queue::Inner;
use crate::schema;
use crate::writer::{Writer, settle};

/// What speaks against a database since it was opened.
#[derive(Debug, Default)]
pub(crate) struct Damage {
    /// Content was met that is damaged.
    met: AtomicBool,
    /// A flush failed: nobody knows what the disk holds.
    in_doubt: AtomicBool,
}

impl Damage {
    /// Damaged content was met.
    pub(crate) fn met(&self) {
        self.met.store(true, Ordering::Relaxed);
    }

    /// Whether only an opening can say how it stands.
    pub(crate) fn is_doubtful(&self) -> bool {
        self.met.load(Ordering::Relaxed) || self.in_doubt.load(Ordering::Relaxed)
    }
}

impl Inner {
    pub(crate) fn classify(&self, action: &'static str, error: rusqlite::Error) -> QueueError {
        if open::is_damage(&error) {
            self.damage.met();
        }
        open::classify(&self.path, action, error)
    }

    /// As [`Inner::classify`], for the writer: what leaves doubt about the disk closes it.
    pub(crate) fn failed(
        &self,
        writer: &mut Writer,
        action: &'static str,
        error: rusqlite::Error,
    ) -> QueueError {
        let doubtful = error.sqlite_error().is_some_and(|cause| {
            matches!(cause.extended_code, ffi::SQLITE_IOERR_FSYNC | ffi::SQLITE_IOERR_DIR_FSYNC)
        });
        if doubtful || open::is_damage(&error) {
            tracing::error!(path = %self.path.display(), %error, "agent database closed");
            writer.poisoned = Some(error.to_string());
            self.damage.in_doubt.store(true, Ordering::Relaxed);
        }
        self.classify(action, error)
    }

    pub(crate) fn undecodable(&self, key: &ItemKey) -> QueueError {
        let name = model::path::show_terminal(&key.path());
        self.damage.met();
        QueueError::Corrupt { path: self.path.clone(), detail: format!("content of {name}") }
    }

    /// Count for the next opening that damage was met: what no opening finds must not be met for
    /// ever.
    pub(crate) fn count_damage(&self, conn: &Connection) {
        let count = || -> rusqlite::Result<()> {
            settle(conn)?;
            let before = schema::meta(conn, schema::META_DAMAGE_MET)?.unwrap_or(0);
            schema::set_meta(conn, schema::META_DAMAGE_MET, before + 1)
        };
        if self.damage.met.load(Ordering::Relaxed)
            && let Err(error) = count()
        {
            tracing::debug!(%error, "that damage was met is not noted");
        }
    }
}
