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
use std::collections::{BTreeSet, HashSet};
use std::hash::BuildHasher;
use std::sync::Arc;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::Relaxed;

use hashbrown::DefaultHashBuilder;
use parking_lot::{RwLock, RwLockReadGuard};
use roaring::RoaringBitmap;

use crate::batch::Batch;
use crate::error::{NameError, WriteError};
use crate::model::{ColumnId, Row, Selector, Series};
use crate::name::{NewRow, RowLookup, RowName};
use crate::sharing::SharedSeries;
use codec::bytes::{Input, push_text, push_varint};

mod listing;
mod names;
use names::Names;

/// Maximum number of names read under one lock, while writers of new names wait.
const READ_AT_ONCE: usize = 4096;
/// Most metrics whose refused histograms are remembered.
const REFUSED_HISTOGRAMS_MAX: usize = 1000;
/// Number of urgent searches for rows without samples after one that found the store nearly full, or
/// after a sender met its quota.
const URGENT_SEARCHES: u32 = 5;

/// See the module.
pub(crate) struct Catalog {
    names: RwLock<Names>,
    sharing: RwLock<SharedSeries>,
    hasher: DefaultHashBuilder,
    series_max: u64,
    /// Limit of tags of a new row.
    labels_max: usize,
    /// Number of searches for rows without samples that are still urgent.
    urgent_searches: AtomicU32,
    /// Metrics whose native histograms were refused since the store was opened.
    refused_histograms: RwLock<BTreeSet<String>>,
}

impl Catalog {
    pub(crate) fn new(series_max: u64, labels_max: usize) -> Self {
        let (names, sharing, hasher) = (RwLock::default(), RwLock::default(), <_>::default());
        let (urgent_searches, refused_histograms) = (AtomicU32::new(0), RwLock::default());
        Self { names, sharing, hasher, series_max, labels_max, urgent_searches, refused_histograms }
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
        let left = self.urgent_searches.load(Relaxed).saturating_sub(1);
        let full = self.is_above_95_percent(&names);
        self.urgent_searches.store(if full { URGENT_SEARCHES } else { left }, Relaxed);
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
        match self.look_up(raw)? {
            RowLookup::Known(row) => Ok(row),
            RowLookup::New(new) => {
                let row = self.row_of(&new.name)?;
                self.remember(raw, row);
                Ok(row)
            }
        }
    }

    /// See [`crate::Store::look_up`].
    pub(crate) fn look_up(&self, raw: &[u8]) -> Result<RowLookup, NameError> {
        if let Some(row) = self.names.read().lookup(self.hasher.hash_one(raw), raw) {
            return Ok(RowLookup::Known(row));
        }
        let name = RowName::parse(raw)?;
        Ok(RowLookup::New(Box::new(NewRow { raw: raw.into(), name })))
    }

    /// See [`crate::Store::register_row`].
    pub(crate) fn register_row(&self, new: &NewRow) -> Result<Row, NameError> {
        let text = new.name.text();
        let hash = self.hasher.hash_one(text.as_bytes());
        let is_canonical = *new.raw == *text.as_bytes();
        let mut names = self.names.write();
        let row = if let Some(row) = names.lookup(hash, text.as_bytes()) {
            row
        } else {
            self.check_tags(&new.name)?;
            self.check_limit(&names, new.name.metrics.len() as u64, 1)?;
            self.insert(&mut names, &new.name, text, hash)
        };
        if !is_canonical {
            self.remember_in(&mut names, &new.raw, row);
        }
        Ok(row)
    }

    /// See [`crate::Store::register`].
    pub(crate) fn register(&self, new: &[&NewRow]) -> Result<Vec<Row>, NameError> {
        let text = |new: &&NewRow| {
            let text = new.name.text();
            (self.hasher.hash_one(text.as_bytes()), text)
        };
        let texts: Vec<(u64, String)> = new.iter().map(text).collect();
        let mut names = self.names.write();
        let (mut columns, mut missing) = (0, HashSet::new());
        for (new, (hash, text)) in new.iter().zip(&texts) {
            if names.lookup(*hash, text.as_bytes()).is_none() && missing.insert(text.as_str()) {
                self.check_tags(&new.name)?;
                columns += new.name.metrics.len() as u64;
            }
        }
        self.check_limit(&names, columns, missing.len())?;
        let mut rows = Vec::with_capacity(new.len());
        for (new, (hash, text)) in new.iter().zip(texts) {
            let row = match names.lookup(hash, text.as_bytes()) {
                Some(row) => row,
                None => self.insert(&mut names, &new.name, text, hash),
            };
            self.remember_in(&mut names, &new.raw, row);
            rows.push(row);
        }
        Ok(rows)
    }

    /// See [`crate::Store::note_refused_histogram`].
    pub(crate) fn note_refused_histogram(&self, metric: &str) {
        if self.refused_histograms.read().contains(metric) {
            return;
        }
        let mut refused = self.refused_histograms.write();
        if refused.len() < REFUSED_HISTOGRAMS_MAX {
            refused.insert(metric.to_owned());
        }
    }

    /// See [`crate::Store::refused_histogram`].
    pub(crate) fn refused_histogram(&self, is_meant: impl Fn(&str) -> bool) -> Option<String> {
        self.refused_histograms.read().iter().find(|metric| is_meant(metric)).cloned()
    }

    /// Returns an error if a new name has too many tags. Names read from disk are not checked: the
    /// limit may have been higher when they were created.
    fn check_tags(&self, name: &RowName) -> Result<(), NameError> {
        let (value, max) = (name.tags.len(), self.labels_max);
        if value > max { Err(NameError::TooManyTags { value, max }) } else { Ok(()) }
    }

    /// Returns an error if the limit of series does not allow for these new ones.
    fn check_limit(&self, names: &Names, columns: u64, rows: usize) -> Result<(), NameError> {
        let numbers_left = (u32::MAX - names.next) as usize;
        if names.series + columns > self.series_max || rows > numbers_left {
            return Err(NameError::LimitReached { max: self.series_max });
        }
        Ok(())
    }

    /// Returns true if names without samples should be freed soon: in one of the last five searches
    /// the series were above 95 % of their limit, or a sender has met its quota since.
    pub(crate) fn is_nearly_full(&self) -> bool {
        self.urgent_searches.load(Relaxed) > 0 || self.is_above_95_percent(&self.names.read())
    }

    fn is_above_95_percent(&self, names: &Names) -> bool {
        u128::from(names.series) * 100 > u128::from(self.series_max) * 95
    }

    /// Returns the row that was remembered for bytes that are not a name.
    pub(crate) fn remembered_row(&self, raw: &[u8]) -> Option<Row> {
        self.names.read().alias(self.hasher.hash_one(raw), raw)
    }

    /// Remembers a row for bytes that are not its canonical name.
    pub(crate) fn remember(&self, raw: &[u8], row: Row) {
        self.remember_in(&mut self.names.write(), raw, row);
    }

    fn remember_in(&self, names: &mut Names, raw: &[u8], row: Row) {
        let hash = self.hasher.hash_one(raw);
        if names.lookup(hash, raw).is_none() {
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
                self.urgent_searches.store(URGENT_SEARCHES, Relaxed);
                let (tag, value) = (tag.to_owned(), value.to_owned());
                return Err(NameError::QuotaReached { tag, value, max });
            }
        }
        self.check_tags(name)?;
        self.check_limit(&names, name.metrics.len() as u64, 1)?;
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
