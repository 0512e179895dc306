//! Checkpoints that run while the writer works, so that no commit has to flush a long write-ahead log.

use std::ffi::c_int;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use parking_lot::{Condvar, Mutex};
use rusqlite::Connection;
use rusqlite::hooks::Wal;

use super::failures::Failures;
use crate::ControlResult;

/// Pages of log (4 MiB) above which the thread checkpoints.
const PAGES_BESIDE: c_int = 1024;
/// Pages of log (64 MiB) above which a commit checkpoints by itself: the thread cannot keep up.
const PAGES_MAX: c_int = 16 * 1024;

/// The connection that checkpoints. One thread at a time uses it; no other lock is taken under its
/// mutex.
pub(super) struct Checkpointer {
    conn: Mutex<Connection>,
    failures: Arc<Failures>,
    due: Mutex<CheckpointRequest>,
    wake: Condvar,
    /// True if the thread runs.
    beside: AtomicBool,
}

#[derive(Default)]
struct CheckpointRequest {
    now: bool,
    stop: bool,
}

impl Checkpointer {
    pub(super) fn new(conn: Connection, failures: Arc<Failures>) -> Arc<Self> {
        let (due, wake) = (Mutex::default(), Condvar::new());
        Arc::new(Self {
            conn: Mutex::new(conn),
            failures,
            due,
            wake,
            beside: AtomicBool::new(false),
        })
    }

    /// Checkpoints after commits of `writer` that leave a long log. SQLite's own automatic checkpoints
    /// would ignore their errors.
    pub(super) fn watch(self: &Arc<Self>, writer: &mut Connection) -> rusqlite::Result<()> {
        let own = Arc::clone(self);
        writer.wal_hook(Some(move |wal: &mut Wal, pages: c_int| {
            if pages >= PAGES_MAX {
                own.failures.note_checkpoint(&wal.checkpoint());
            } else if pages >= PAGES_BESIDE && own.beside.load(Ordering::Relaxed) {
                own.due.lock().now = true;
                own.wake.notify_one();
            }
            // An error here would be reported as that of the commit, which is done. If it is a failed
            // flush, the next write is refused.
            Ok(())
        }))
    }

    /// Starts the thread.
    pub(super) fn start(self: &Arc<Self>) -> std::io::Result<JoinHandle<()>> {
        self.beside.store(true, Ordering::Relaxed);
        let own = Arc::clone(self);
        std::thread::Builder::new().name("registry-log".into()).spawn(move || own.run())
    }

    fn run(&self) {
        loop {
            let mut due = self.due.lock();
            while !due.now && !due.stop {
                self.wake.wait(&mut due);
            }
            if due.stop {
                return;
            }
            due.now = false;
            drop(due);
            // Its failure is noted; the next commit asks again.
            let _ = self.checkpoint();
        }
    }

    /// Ends the thread.
    pub(super) fn stop(&self) {
        self.due.lock().stop = true;
        self.wake.notify_one();
    }

    /// Copies the log into the database as far as readers allow. Does not block writers.
    pub(super) fn checkpoint(&self) -> ControlResult<()> {
        let conn = self.conn.lock();
        let copied = conn.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |_| Ok(()));
        drop(conn);
        self.failures.note_checkpoint(&copied);
        Ok(copied?)
    }

    /// Keeps the write-ahead log when the connection is closed.
    pub(super) fn keep_log(&self) {
        sqlite::keep_log(&self.conn.lock());
    }
}
