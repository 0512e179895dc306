//! The row series that exist: their names, and postings from metrics and tags to rows.
//!
//! Rows are numbered in order of creation; numbers are never reused. On disk the catalogue is a
//! file that is only appended to; the manifest stores how much of it counts. Rows without samples
//! are forgotten: their names are removed and the file is rewritten.
//!
//! # Locking
//! `names` is taken before `sharing`. The log thread reads `sharing` while it applies a batch to a
//! head; no other lock of the store is taken with `sharing` held. A new row is looked up again with
//! `names` locked for writing, so that two writers of one new name get the same row. Long reads
//! lock `names` for a limited number of rows at a time, so that writers of new names wait only for
//! that.

use std::cmp::Ordering;
use std::hash::BuildHasher;
use std::sync::Arc;

use hashbrown::DefaultHashBuilder;
use parking_lot::{RwLock, RwLockReadGuard};
use roaring::RoaringBitmap;

use crate::batch::Batch;
use crate::error::{NameError, WriteError};
use crate::model::{ColumnId, Row, Selector, Series};
use crate::name::RowName;
use crate::sharing::SharedSeries;
use codec::bytes::{Input, push_text, push_varint};

mod listing;
mod names;
use names::Names;

/// Maximum number of names read under one lock, while writers of new names wait.
const READ_AT_ONCE: usize = 4096;

/// See the module.
pub(crate) struct Catalog {
    names: RwLock<Names>,
    sharing: RwLock<SharedSeries>,
    hasher: DefaultHashBuilder,
    series_max: u64,
}

impl Catalog {
    pub(crate) fn new(series_max: u64) -> Self {
        let (names, sharing, hasher) = (RwLock::default(), RwLock::default(), <_>::default());
        Self { names, sharing, hasher, series_max }
    }

    /// Locks the table of shared series for reading.
    pub(crate) fn sharing(&self) -> RwLockReadGuard<'_, SharedSeries> {
        self.sharing.read()
    }

    /// Returns the number of the next row. All rows that ever existed have lower numbers.
    pub(crate) fn rows(&self) -> u32 {
        self.names.read().next
    }

    pub(crate) fn count(&self) -> u64 {
        self.names.read().rows.len() as u64
    }

    /// Raises the number of the next row to `next`, the one stored with the file, if it is lower.
    pub(crate) fn go_on_from(&self, next: u32) {
        let mut names = self.names.write();
        names.next = names.next.max(next);
    }

    /// Returns the number of rows forgotten since the store was opened.
    pub(crate) fn forgotten(&self) -> u64 {
        self.names.read().forgotten
    }

    /// Returns an error if a row of a batch is unknown.
    pub(crate) fn check(&self, batch: &Batch) -> Result<(), WriteError> {
        let names = self.names.read();
        let holes = names.rows.len() < names.next as usize;
        if !holes && batch.row_max().is_none_or(|row| row < names.next) {
            return Ok(());
        }
        let mut before = None;
        for row in batch.rows.iter().chain(&batch.event_rows) {
            if before.replace(*row) != Some(*row) {
                names
                    .rows
                    .get(*row)
                    .ok_or(WriteError::UnknownRow(*row))?
                    .record_request(names.epoch);
            }
        }
        Ok(())
    }

    /// Returns the epoch. See [`crate::Store::epoch`].
    pub(crate) fn epoch(&self) -> u32 {
        self.names.read().epoch
    }

    /// Records a request for a row in this epoch. Returns false if the row is unknown.
    pub(crate) fn keep_row(&self, row: u32) -> bool {
        let names = self.names.read();
        names.rows.get(row).is_some_and(|entry| {
            entry.record_request(names.epoch);
            true
        })
    }

    /// Begins an epoch. Returns the rows that no caller requested in the epoch before.
    pub(crate) fn begin_epoch(&self) -> RoaringBitmap {
        let mut names = self.names.write();
        names.epoch = names.epoch.saturating_add(1);
        drop(names);
        let names = self.names.read();
        names.live.iter().filter(|id| names.is_idle(*id)).collect()
    }

    /// Forgets those of `rows` that no caller requested since the epoch before. Returns their
    /// number.
    pub(crate) fn forget(&self, rows: &[u32]) -> usize {
        let mut names = self.names.write();
        let mut sharing = self.sharing.write();
        let idle: Vec<u32> = rows.iter().copied().filter(|id| names.is_idle(*id)).collect();
        for id in &idle {
            names.remove(*id, &self.hasher, &mut sharing);
        }
        names.forgotten += idle.len() as u64;
        names.shrink(&self.hasher);
        idle.len()
    }

    /// Returns the number of metrics of all known rows.
    pub(crate) fn series(&self) -> u64 {
        self.names.read().series
    }

    /// Returns the row of a raw text, creating it if it is new.
    pub(crate) fn row(&self, raw: &[u8]) -> Result<Row, NameError> {
        let hash = self.hasher.hash_one(raw);
        if let Some(row) = self.names.read().lookup(hash, raw) {
            return Ok(row);
        }
        let name = RowName::parse(raw)?;
        let row = self.row_of(&name)?;
        let mut names = self.names.write();
        if names.lookup(hash, raw).is_none() {
            names.remember_alias(hash, raw, row, &self.hasher);
        }
        Ok(row)
    }

    /// Returns the row that was remembered for bytes that are not a name.
    pub(crate) fn remembered_row(&self, raw: &[u8]) -> Option<Row> {
        self.names.read().alias(self.hasher.hash_one(raw), raw)
    }

    /// Remembers a row for bytes that are not a name.
    pub(crate) fn remember(&self, raw: &[u8], row: Row) {
        let hash = self.hasher.hash_one(raw);
        let mut names = self.names.write();
        if names.alias(hash, raw).is_none() {
            names.remember_alias(hash, raw, row, &self.hasher);
        }
    }

    /// Returns the row of a name, creating it if it is new.
    pub(crate) fn row_of(&self, name: &RowName) -> Result<Row, NameError> {
        self.row_within(name, None)
    }

    /// Returns the row of a name. Creates it if it is new and the series with the same value of a
    /// tag are below their quota.
    pub(crate) fn row_within(
        &self,
        name: &RowName,
        quota: Option<(&str, u64)>,
    ) -> Result<Row, NameError> {
        let text = name.text();
        let hash = self.hasher.hash_one(text.as_bytes());
        if let Some(row) = self.names.read().lookup(hash, text.as_bytes()) {
            return Ok(row);
        }
        let mut names = self.names.write();
        if let Some(row) = names.lookup(hash, text.as_bytes()) {
            return Ok(row);
        }
        if let Some((tag, max)) = quota {
            let value = name.tags.iter().find(|(t, _)| t == tag).map_or("", |(_, v)| v);
            if names.series_with(tag, value) + name.metrics.len() as u64 > max {
                let (tag, value) = (tag.to_owned(), value.to_owned());
                return Err(NameError::QuotaReached { tag, value, max });
            }
        }
        if names.series + name.metrics.len() as u64 > self.series_max || names.next == u32::MAX {
            return Err(NameError::LimitReached { max: self.series_max });
        }
        Ok(self.insert(&mut names, name, text, hash))
    }

    /// Adds a row read from disk, where rows are in ascending order. Skipped numbers are forgotten
    /// rows, and so is the earlier of two rows with one name. Returns `None` if the number is known
    /// with another text, or the text is not a name.
    pub(crate) fn restore(&self, id: u32, text: &str) -> Option<()> {
        let mut names = self.names.write();
        if let Some(entry) = names.rows.get(id) {
            return (&*entry.text == text).then_some(());
        }
        let name = RowName::parse(text.as_bytes()).ok()?;
        if id < names.next {
            return Some(());
        }
        let hash = self.hasher.hash_one(text.as_bytes());
        if let Some(before) = names.lookup(hash, text.as_bytes()) {
            names.remove(before.id, &self.hasher, &mut self.sharing.write());
        }
        names.next = id;
        self.insert(&mut names, &name, text.into(), hash);
        Some(())
    }

    fn insert(&self, names: &mut Names, name: &RowName, text: String, hash: u64) -> Row {
        let row = names.insert(name, text, hash, &self.hasher);
        for (column, metric) in name.metrics.iter().enumerate().filter(|_| !row.events) {
            let hash = self.hasher.hash_one((metric, &name.tags));
            if let Some(known) = names.first_with(hash, metric, name) {
                let new = ColumnId { row: row.id, column: column as u16 };
                self.sharing.write().join(new, known);
            } else {
                names.by_series.insert_unique(hash, (hash, row.id), |(hash, _)| *hash);
            }
        }
        row
    }

    /// Appends the definitions of the rows `from..to`, in runs of consecutive numbers.
    pub(crate) fn encode(&self, from: u32, to: u32, into: &mut Vec<u8>) {
        let names = self.names.read();
        let mut ids = names.live.range(from..to).peekable();
        while let Some(first) = ids.next() {
            let mut run = vec![first];
            while let Some(id) = ids.next_if(|id| run.last().is_some_and(|l| l + 1 == *id)) {
                run.push(id);
            }
            push_varint(into, u64::from(first));
            push_varint(into, run.len() as u64);
            for entry in run.iter().filter_map(|id| names.rows.get(*id)) {
                push_text(into, &entry.text);
            }
        }
    }

    /// Decodes and adds definitions. Returns `None` if they are damaged.
    pub(crate) fn decode(&self, input: &mut Input<'_>) -> Option<()> {
        while !input.is_empty() {
            let from = input.varint()?;
            let count = input.varint()?;
            for id in from..from.checked_add(count)? {
                self.restore(u32::try_from(id).ok()?, input.text()?)?;
            }
        }
        Some(())
    }

    /// Returns a row by its number, if it is known.
    pub(crate) fn row_by_id(&self, id: u32) -> Option<Row> {
        let names = self.names.read();
        let entry = names.rows.get(id)?;
        Some(Row { id, columns: entry.columns, events: entry.events })
    }

    /// Returns the series that match a selector, sorted by name. Names are read a limited number at
    /// a time: callers that add or look up names wait for no more than these.
    pub(crate) fn find(&self, selector: &Selector) -> Vec<Series> {
        self.find_among(selector, |rows| rows)
    }

    /// Does the same as [`Catalog::find`], limited to the rows that `among` keeps.
    pub(crate) fn find_among(
        &self,
        selector: &Selector,
        among: impl FnOnce(RoaringBitmap) -> RoaringBitmap,
    ) -> Vec<Series> {
        let selected = self.names.read().select(selector);
        let ids: Vec<u32> = among(selected).iter().collect();
        let mut found = Vec::new();
        for some in ids.chunks(READ_AT_ONCE) {
            let names = self.names.read();
            for id in some {
                names.collect(*id, selector, &mut found);
            }
        }
        let order = |a: &Series, b: &Series| {
            let same = Arc::ptr_eq(&a.metric, &b.metric);
            let metrics = if same { Ordering::Equal } else { a.metric.cmp(&b.metric) };
            metrics.then_with(|| a.tags.cmp(&b.tags)).then_with(|| a.columns.cmp(&b.columns))
        };
        found.sort_unstable_by(order);
        found.dedup_by(|later, kept| {
            let same = later.metric == kept.metric && later.tags == kept.tags;
            if same {
                kept.columns.append(&mut later.columns);
            }
            same
        });
        found
    }
}
