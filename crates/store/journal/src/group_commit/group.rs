//! One group, from its first record until the last member has its result.

use std::sync::{Arc, OnceLock};
use std::task::Waker;

use crate::bytes::push_varint;
use crate::error::AppendError;
use crate::meter::{AppendOutcome, Cost};
use crate::sync::{Condvar, Mutex};
use crate::writer::Batch;

/// The result of a group that was written.
#[derive(Debug, Clone, Copy)]
pub(super) struct Done {
    pub(super) first: u64,
    pub(super) records: u32,
    pub(super) cost: Cost,
}

/// The members of one group, which wait for its result.
#[derive(Default)]
pub(super) struct Generation {
    result: OnceLock<Result<Done, AppendError>>,
    /// Member threads wait here for the result, together with the group commit's `state`.
    pub(super) done: Condvar,
    wakers: Mutex<Vec<Waker>>,
}

impl Generation {
    pub(super) fn result(&self) -> Option<&Result<Done, AppendError>> {
        self.result.get()
    }

    /// Registers a task. The caller checks the result afterwards: it may have been set before.
    pub(super) fn register(&self, waker: &Waker) {
        self.wakers.lock().push(waker.clone());
    }

    /// Sets the result and wakes all members. The caller holds the group commit's `state`; without it a
    /// thread could miss the wake-up. Holding it is also faster: a woken member that appends at
    /// once waits for the lock until all are woken.
    pub(super) fn finish(&self, result: Result<Done, AppendError>) {
        let _ = self.result.set(result);
        self.done.notify_all();
        let wakers = std::mem::take(&mut *self.wakers.lock());
        wakers.into_iter().for_each(Waker::wake);
    }
}

/// The group that takes appends now.
pub(super) struct FormingGroup {
    pub(super) generation: Arc<Generation>,
    /// Records, each preceded by its length.
    pub(super) body: Vec<u8>,
    /// Width of the first record's length.
    first_width: usize,
    pub(super) records: u32,
    pub(super) payload: u64,
    pub(super) members: u32,
    /// Members that wait on a thread of their own, and so can lead.
    pub(super) threads: u32,
    pub(super) persist: bool,
}

impl FormingGroup {
    pub(super) fn new(body: Vec<u8>) -> Self {
        Self {
            generation: Arc::default(),
            body,
            first_width: 0,
            records: 0,
            payload: 0,
            members: 0,
            threads: 0,
            persist: false,
        }
    }

    /// Adds the records of one append.
    pub(super) fn push(&mut self, records: &[impl AsRef<[u8]>]) -> JoinedAppend {
        let before = self.records;
        for record in records {
            let record = record.as_ref();
            let begin = self.body.len();
            push_varint(&mut self.body, record.len() as u32);
            if self.records == 0 {
                self.first_width = self.body.len() - begin;
            }
            self.body.extend_from_slice(record);
            self.records += 1;
            self.payload += record.len() as u64;
        }
        self.members += 1;
        let generation = Arc::clone(&self.generation);
        JoinedAppend { generation, before, records: records.len() as u32 }
    }

    /// Returns the group as the writer takes it.
    pub(super) fn batch(&self) -> Batch<'_> {
        let single = self.records == 1;
        let body = if single { self.body.get(self.first_width..) } else { Some(&*self.body) };
        Batch {
            body: body.unwrap_or_default(),
            single,
            records: self.records,
            persist: self.persist,
        }
    }
}

/// An append that joined a group.
pub(super) struct JoinedAppend {
    pub(super) generation: Arc<Generation>,
    /// Number of records in the group before those of this append.
    before: u32,
    /// Number of records of this append.
    records: u32,
}

impl JoinedAppend {
    /// Returns this append's part of the result of its group.
    pub(super) fn outcome(
        &self,
        result: &Result<Done, AppendError>,
    ) -> Result<AppendOutcome, AppendError> {
        let done = result.as_ref().map_err(Clone::clone)?;
        let first = done.first + u64::from(self.before);
        Ok(AppendOutcome {
            position: first + u64::from(self.records) - 1,
            first,
            group_records: done.records,
            bytes_written: done.cost.bytes,
            blocks: done.cost.blocks() as u32,
            flushes: done.cost.flushes,
            compressed_bytes: done.cost.compressed,
        })
    }
}
