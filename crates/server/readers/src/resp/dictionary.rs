//! The dictionary of a connection: numbers that stand for names. All dictionaries of a port share a
//! quota.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use series::{Row, RowLookup, Store};

/// Most names in the dictionary of one connection.
pub const DICTIONARY_ENTRIES_MAX: usize = 1 << 20;
/// Most names in the dictionaries of all connections of a port. A name without samples counts once
/// more for each 64 bytes, begun ones included.
pub const DICTIONARIES_ENTRIES_MAX: usize = 4 << 20;
const NAME_BYTES_PER_ENTRY: usize = 64;

/// The remaining quota of dictionary entries of a port: [`DICTIONARIES_ENTRIES_MAX`] for all its
/// connections. Clones share the quota.
#[derive(Debug, Clone)]
pub struct DictionaryQuota(Arc<AtomicUsize>);

impl Default for DictionaryQuota {
    fn default() -> Self {
        Self::new(DICTIONARIES_ENTRIES_MAX)
    }
}

impl DictionaryQuota {
    /// Creates a quota of `entries` entries.
    pub fn new(entries: usize) -> Self {
        Self(Arc::new(AtomicUsize::new(entries)))
    }

    fn acquire(&self, entries: usize) -> bool {
        self.0
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(entries))
            .is_ok()
    }

    fn release(&self, entries: usize) {
        self.0.fetch_add(entries, Ordering::Relaxed);
    }
}

/// The meaning of a number.
#[derive(Debug)]
enum Meaning {
    Row(Row),
    /// A name whose series does not exist: it is created with the first accepted sample.
    Name(Box<[u8]>),
}

impl Meaning {
    /// Returns how many entries of the quota it takes.
    fn entries(&self) -> usize {
        match self {
            Self::Row(_) => 1,
            Self::Name(raw) => 1 + raw.len().div_ceil(NAME_BYTES_PER_ENTRY),
        }
    }
}

/// See the module.
#[derive(Debug)]
pub(super) struct Dictionary {
    meanings: HashMap<i64, Meaning>,
    /// The store's epoch in which the rows were last renewed.
    epoch: u32,
    quota: DictionaryQuota,
}

impl Drop for Dictionary {
    fn drop(&mut self) {
        self.quota.release(self.meanings.values().map(Meaning::entries).sum());
    }
}

impl Dictionary {
    pub(super) fn new(quota: DictionaryQuota) -> Self {
        Self { meanings: HashMap::new(), epoch: 0, quota }
    }

    /// Renews the rows if the store's epoch has changed, so that the store does not drop them.
    /// Numbers whose rows it has dropped already become undefined. Returns false if nothing was to
    /// be renewed.
    pub(super) fn renew(&mut self, store: &Store) -> bool {
        let epoch = store.epoch();
        if self.epoch == epoch {
            return false;
        }
        self.epoch = epoch;
        let before = self.meanings.len();
        self.meanings.retain(|_, meaning| match meaning {
            Meaning::Row(row) => store.keep_row(*row),
            Meaning::Name(_) => true,
        });
        self.quota.release(before - self.meanings.len());
        true
    }

    pub(super) fn contains(&self, number: i64) -> bool {
        self.meanings.contains_key(&number)
    }

    /// Returns the row for which a number stands. The error is the reason why its name is refused.
    pub(super) fn find(
        &self,
        number: i64,
        look_up: impl FnOnce(&[u8]) -> Result<RowLookup, String>,
    ) -> Option<Result<RowLookup, String>> {
        Some(match self.meanings.get(&number)? {
            Meaning::Row(row) => Ok(RowLookup::Known(*row)),
            Meaning::Name(raw) => look_up(raw),
        })
    }

    /// Assigns a number. Returns false if there is no space.
    pub(super) fn assign(&mut self, number: i64, row: RowLookup) -> bool {
        let meaning = match row {
            RowLookup::Known(row) => Meaning::Row(row),
            RowLookup::New(new) => Meaning::Name(new.raw().into()),
        };
        let before = self.meanings.get(&number).map_or(0, Meaning::entries);
        let full = before == 0 && self.meanings.len() >= DICTIONARY_ENTRIES_MAX;
        if full || !self.quota.acquire(meaning.entries().saturating_sub(before)) {
            return false;
        }
        self.quota.release(before.saturating_sub(meaning.entries()));
        self.meanings.insert(number, meaning);
        true
    }
}
