//! The items that a cycle leases for one session. Their bytes are stored in one buffer.

use std::path::Path;
use std::sync::Arc;

use model::{Dataset, KeyRef, Observation};

use crate::body::{Body, DOCUMENT_TAG};
use crate::error::QueueError;
use crate::head::Cursor;

/// One item to be sent, borrowed from its [`Lease`].
#[derive(Debug, Clone, Copy)]
pub struct LeasedItem<'a> {
    /// The item's key.
    pub key: KeyRef<'a>,
    /// Its version.
    pub seen: u64,
    /// True if it was deleted, and the delete is to be sent.
    pub gone: bool,
    stored: &'a [u8],
    database: &'a Path,
}

impl<'a> LeasedItem<'a> {
    /// Returns the observation, if it holds one.
    ///
    /// # Errors
    /// Returns [`QueueError::Corrupt`] if the stored bytes are neither an observation nor a
    /// document.
    pub fn observation(&self) -> Result<Option<Observation>, QueueError> {
        if self.gone || self.document().is_some() {
            return Ok(None);
        }
        Observation::decode(self.stored).map(Some).ok_or_else(|| self.undecodable())
    }

    /// Returns the document, if it holds one.
    pub fn document(&self) -> Option<&'a [u8]> {
        match self.stored.split_first() {
            Some((&DOCUMENT_TAG, document)) if !self.gone => Some(document),
            _ => None,
        }
    }

    /// Returns an owned copy of its content.
    ///
    /// # Errors
    /// See [`LeasedItem::observation`].
    pub fn body(&self) -> Result<Body, QueueError> {
        if self.gone {
            return Ok(Body::Gone);
        }
        Body::decode(self.stored).ok_or_else(|| self.undecodable())
    }

    fn undecodable(&self) -> QueueError {
        let name = model::path::show_terminal(&self.key.path());
        QueueError::Corrupt { path: self.database.into(), detail: format!("content of {name}") }
    }
}

/// Position of an item in its lease's buffer, where its content follows its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Leased {
    directory: i64,
    /// Index of the directory's path in [`Lease::paths`].
    path: usize,
    seen: u64,
    gone: bool,
    start: usize,
    stored: usize,
    end: usize,
}

/// Items leased for one session. Answer it with [`crate::Queue::ack`] or [`crate::Queue::return_`].
/// Dropping it is the same as returning it, except that its buffers are not reused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lease {
    pub(crate) dataset: Dataset,
    pub(crate) cycle: u64,
    pub(crate) start: Cursor,
    database: Arc<Path>,
    paths: Vec<Arc<[u8]>>,
    leased: Vec<Leased>,
    bytes: Vec<u8>,
}

/// The buffers of a lease that was answered, for the next one.
#[derive(Debug, Default)]
pub(crate) struct Buffers {
    leased: Vec<Leased>,
    bytes: Vec<u8>,
}

/// Most bytes of buffer that are kept for the next lease.
const KEPT_BYTES_MAX: usize = 8 * 1024 * 1024;

impl Lease {
    pub(crate) fn new(
        dataset: Dataset,
        cycle: u64,
        start: Cursor,
        database: Arc<Path>,
        buffers: Buffers,
    ) -> Self {
        let (paths, Buffers { leased, bytes }) = (Vec::new(), buffers);
        Self { dataset, cycle, start, database, paths, leased, bytes }
    }

    /// Returns its buffers, cleared for reuse.
    pub(crate) fn into_buffers(self) -> Buffers {
        let Self { mut leased, mut bytes, .. } = self;
        leased.clear();
        leased.shrink_to(KEPT_BYTES_MAX / size_of::<Leased>());
        bytes.clear();
        bytes.shrink_to(KEPT_BYTES_MAX);
        Buffers { leased, bytes }
    }

    /// Returns the items in the order of their keys; at least one.
    pub fn items(&self) -> impl ExactSizeIterator<Item = LeasedItem<'_>> {
        self.leased.iter().map(|leased| self.item(leased))
    }

    /// Returns the number of items.
    pub(crate) fn len(&self) -> usize {
        self.leased.len()
    }

    /// Returns the dataset of the items.
    pub fn dataset(&self) -> &Dataset {
        &self.dataset
    }

    /// Keeps the first `count` items, at least one, for a session that turned out too large. The
    /// next lease begins with the rest.
    pub fn truncate(&mut self, count: usize) {
        self.leased.truncate(count.max(1));
    }

    fn item(&self, leased: &Leased) -> LeasedItem<'_> {
        let directory = self.paths.get(leased.path).map(|path| &path[..]).unwrap_or_default();
        let name = self.bytes.get(leased.start..leased.stored).unwrap_or_default();
        LeasedItem {
            key: KeyRef { directory, name },
            seen: leased.seen,
            gone: leased.gone,
            stored: self.bytes.get(leased.stored..leased.end).unwrap_or_default(),
            database: &self.database,
        }
    }

    /// Sets the directory of the items that are pushed next.
    pub(crate) fn enter(&mut self, path: &Arc<[u8]>) {
        self.paths.push(Arc::clone(path));
    }

    /// Appends an item of the directory entered last. `stored` is empty for a deleted item.
    pub(crate) fn push(&mut self, directory: i64, name: &[u8], seen: u64, stored: &[u8]) {
        let gone = stored.is_empty();
        let start = self.bytes.len();
        self.bytes.extend_from_slice(name);
        let at = self.bytes.len();
        self.bytes.extend_from_slice(stored);
        let (path, end) = (self.paths.len().saturating_sub(1), self.bytes.len());
        self.leased.push(Leased { directory, path, seen, gone, start, stored: at, end });
    }

    /// Returns the items with the numbers of their directories.
    pub(crate) fn placed(&self) -> impl DoubleEndedIterator<Item = (i64, LeasedItem<'_>)> {
        self.leased.iter().map(|leased| (leased.directory, self.item(leased)))
    }
}
