//! A log of rows in memory, which survives every crash and fails as it is asked to.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use control::log::{RowLog, RowLogError};
use control::{AuditEntry, AuditOutcome, ControlResult, ControlStore, Reader, WriteContext};
use parking_lot::Mutex;

/// The way in which the next append fails.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    Refused,
    /// The record is stored, but the answer says that this is not known.
    Stored,
    Lost,
}

/// A log in memory, which survives every crash.
#[derive(Default)]
pub(crate) struct MemoryLog {
    pub(crate) records: Mutex<Vec<Vec<u8>>>,
    pub(crate) fault: Mutex<Option<Fault>>,
    /// One of this many appends is refused; 0 for none.
    pub(crate) refuse_each: AtomicU64,
}

impl RowLog for MemoryLog {
    fn append(&self, rows: Vec<u8>) -> Result<u64, RowLogError> {
        let mut records = self.records.lock();
        let each = self.refuse_each.load(Ordering::Relaxed);
        let fault = self.fault.lock().take();
        if fault == Some(Fault::Refused) || (each > 0 && (rows.len() as u64).is_multiple_of(each)) {
            return Err(RowLogError::Refused("the disk is full".into()));
        }
        if fault != Some(Fault::Lost) {
            records.push(rows);
        }
        match fault {
            None => Ok(records.len() as u64),
            Some(_) => Err(RowLogError::Unknown("the flush failed".into())),
        }
    }

    fn end(&self) -> u64 {
        self.records.lock().len() as u64
    }

    fn start(&self) -> u64 {
        0
    }

    fn read(
        &self,
        after: u64,
        apply: &mut dyn FnMut(u64, &[u8]) -> ControlResult<()>,
    ) -> ControlResult<()> {
        let records = self.records.lock().clone();
        for (position, rows) in (1..).zip(&records).skip(after as usize) {
            apply(position, rows)?;
        }
        Ok(())
    }
}

pub(crate) fn open(path: &Path, log: &Arc<MemoryLog>) -> ControlStore {
    ControlStore::open_logged(path, 1, log.clone()).unwrap()
}

/// Returns a context whose change is audited.
pub(crate) fn audited(n: u64) -> WriteContext {
    let entry = AuditEntry {
        id: 0,
        at_us: n,
        user: "somebody".into(),
        action: "test".into(),
        detail: String::new(),
        outcome: AuditOutcome::Begun,
    };
    WriteContext::audited(Reader::server(), entry)
}
