//! Writes that wait for the log. The memory of stored batches and records is reused, so that a busy
//! writer does not allocate.

use std::sync::Arc;

use parking_lot::Mutex;

use crate::batch::Batch;
use crate::options::Ack;
use crate::record::{self, Tombstone};
use crate::ticket::Slot;

/// Maximum number of batches, and of records, kept for reuse.
const SPARES_MAX: usize = 16;
/// Maximum memory of a batch or record kept for reuse, in bytes.
const SPARE_BYTES_MAX: usize = 1 << 20;

pub(crate) enum Write {
    Batch(Batch),
    Delete(Tombstone),
}

impl Write {
    pub(crate) fn samples(&self) -> usize {
        match self {
            Self::Batch(batch) => batch.samples(),
            Self::Delete(_) => 0,
        }
    }
}

/// A batch or a delete in the commit queue.
pub(crate) struct Pending {
    pub(crate) write: Write,
    pub(crate) record: Vec<u8>,
    pub(crate) ack: Ack,
    pub(crate) slot: Arc<Slot>,
    /// Number of rows forgotten since the store was opened, read before its own rows were looked
    /// up.
    pub(crate) forgotten: u64,
}

/// Empty batches and records with allocated memory.
#[derive(Default)]
pub(crate) struct BufferPool(Mutex<PooledBuffers>);

#[derive(Default)]
struct PooledBuffers {
    batches: Vec<Batch>,
    records: Vec<Vec<u8>>,
}

impl BufferPool {
    /// Returns an empty batch.
    pub(crate) fn batch(&self) -> Batch {
        self.0.lock().batches.pop().unwrap_or_default()
    }

    /// Encodes the record of a batch.
    pub(crate) fn record(&self, batch: &Batch) -> Vec<u8> {
        let memory = self.0.lock().records.pop().unwrap_or_default();
        record::batch(batch, memory)
    }

    /// Keeps the memory of a batch and its record for reuse.
    pub(crate) fn give(&self, mut batch: Batch, mut record: Vec<u8>) {
        batch.clear();
        record.clear();
        let mut spares = self.0.lock();
        if spares.batches.len() < SPARES_MAX && batch.memory() <= SPARE_BYTES_MAX {
            spares.batches.push(batch);
        }
        let is_kept = (1..=SPARE_BYTES_MAX).contains(&record.capacity());
        if spares.records.len() < SPARES_MAX && is_kept {
            spares.records.push(record);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Row;

    #[test]
    fn batch_memory_is_reused_and_bounded() {
        let spares = BufferPool::default();
        let mut batch = spares.batch();
        batch.push(Row { id: 1, columns: 2, events: false }, 7, &[1.0, 2.0]).unwrap();
        let record = spares.record(&batch);
        let of = |record: &Vec<u8>| record.as_ptr();
        let (values, bytes) = (batch.values.as_ptr(), of(&record));
        spares.give(batch, record);
        let mut batch = spares.batch();
        assert!(batch.is_empty() && batch.values.as_ptr() == values);
        batch.push(Row { id: 1, columns: 1, events: false }, 8, &[3.0]).unwrap();
        assert_eq!(of(&spares.record(&batch)), bytes);
        batch.values.reserve(SPARE_BYTES_MAX);
        spares.give(batch, vec![0; 2 * SPARE_BYTES_MAX]);
        let kept = || {
            let kept = spares.0.lock();
            (kept.batches.len(), kept.records.len())
        };
        assert_eq!(kept(), (0, 0), "what is large goes");
        for _ in 0..2 * SPARES_MAX {
            spares.give(Batch::new(), vec![0; 100]);
        }
        assert_eq!(kept(), (SPARES_MAX, SPARES_MAX));
    }
}
