//! A flush that runs concurrently with appends. It starts and ends under the writer's lock; groups
//! are written while it runs.
//!
//! Only one flush runs at a time, and no other flush covers data appended during it: the kernel may
//! report a failed write only once, and a caller that missed it would acknowledge lost data.

use std::path::PathBuf;
use std::sync::Arc;

use env::files::File;

use super::{PersistedEnd, Writer};
use crate::folder::Segment;
use crate::meter::Cost;
use crate::pool::{WriteError, fatal};

/// The data written before a flush, which the flush persists.
pub(crate) struct Flush {
    file: Arc<dyn File>,
    path: PathBuf,
    segment: Arc<Segment>,
    /// Offset of the next frame, and the position of its first record.
    next: u64,
    next_position: u64,
    next_sequence: u64,
}

impl Flush {
    pub(crate) fn run(&self) -> Result<(), WriteError> {
        self.file.persist().map_err(fatal("a flush failed", self.path.clone()))
    }
}

impl Writer {
    /// Begins a concurrent flush. Returns `None` if there is nothing to persist, or with a ring.
    pub(crate) fn begin_flush(&mut self) -> Result<Option<Flush>, WriteError> {
        self.trusted()?;
        let (next_position, next_sequence) = (self.next_position, self.next_sequence);
        let Some(active) = self.active.as_mut().filter(|a| a.ring.is_none()) else {
            return Ok(None);
        };
        let Some(file) = active.target.begin_flush() else { return Ok(None) };
        let (path, segment) = (active.target.path.clone(), Arc::clone(&active.segment));
        self.flushing = Some(next_sequence);
        Ok(Some(Flush { file, path, segment, next: active.next, next_position, next_sequence }))
    }

    /// Ends the flush. After a failed one nothing written later counts as persisted either.
    pub(crate) fn end_flush(
        &mut self,
        flush: &Flush,
        result: Result<(), WriteError>,
    ) -> Result<Cost, WriteError> {
        self.flushing = None;
        if let Err(e) = result {
            if let WriteError::Fatal(why) = &e {
                self.doubt = Some(why.clone());
            }
            return Err(e);
        }
        self.trusted()?;
        if let Some(active) = self.active.as_mut().filter(|a| a.next == flush.next) {
            active.target.dirty = false;
        }
        self.horizon =
            PersistedEnd { sequence: flush.next_sequence, position: flush.next_position - 1 };
        flush.segment.advance(flush.next, flush.next_position - 1);
        let cost = Cost { flushes: 1, ..Cost::default() };
        self.pool.totals.cost(&cost);
        Ok(cost)
    }
}
