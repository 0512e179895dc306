//! The catalogue's tables: rows by number and by name, postings from metrics and tags to rows.

use std::collections::BTreeMap;
use std::hash::BuildHasher;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use hashbrown::{DefaultHashBuilder, HashTable};
use roaring::RoaringBitmap;

use crate::model::{ColumnId, Row, Selector, Series, Test};
use crate::name::RowName;
use crate::pages::Pages;
use crate::sharing::SharedSeries;

/// Maximum memory of raw texts that are not canonical, in bytes. Above it all of them are dropped
/// at once.
const ALIAS_BYTES_MAX: usize = 128 << 20;
/// Bytes of bookkeeping assumed per raw text.
const ALIAS_BYTES: usize = 48;

/// A raw text that names a row.
struct Alias {
    raw: Box<[u8]>,
    row: Row,
}

pub(super) struct Entry {
    pub(super) text: Box<str>,
    /// The epoch in which it was last requested.
    pub(super) asked: AtomicU32,
    pub(super) columns: u16,
    pub(super) events: bool,
}

impl Entry {
    pub(super) fn record_request(&self, epoch: u32) {
        if self.asked.load(Ordering::Relaxed) != epoch {
            self.asked.store(epoch, Ordering::Relaxed);
        }
    }
}

#[derive(Default)]
pub(super) struct Names {
    pub(super) rows: Pages<Entry>,
    /// The numbers of `rows`.
    pub(super) live: RoaringBitmap,
    /// The number of the next row.
    pub(super) next: u32,
    /// Number of searches for rows to be forgotten.
    pub(super) epoch: u32,
    /// Rows forgotten since the store was opened.
    pub(super) forgotten: u64,
    pub(super) table: HashTable<u32>,
    aliases: HashTable<Alias>,
    alias_bytes: usize,
    pub(super) metrics: BTreeMap<Arc<str>, RoaringBitmap>,
    pub(super) tags: BTreeMap<Box<str>, BTreeMap<Box<str>, RoaringBitmap>>,
    /// Rows by the hash of each of their series: the first of the rows that share it.
    pub(super) by_series: HashTable<(u64, u32)>,
    pub(super) series: u64,
}

impl Names {
    pub(super) fn lookup(&self, hash: u64, raw: &[u8]) -> Option<Row> {
        let same = |id: &u32| self.rows.get(*id).is_some_and(|e| e.text.as_bytes() == raw);
        let Some(id) = self.table.find(hash, same).copied() else { return self.alias(hash, raw) };
        let entry = self.rows.get(id)?;
        entry.record_request(self.epoch);
        Some(Row { id, columns: entry.columns, events: entry.events })
    }

    pub(super) fn alias(&self, hash: u64, raw: &[u8]) -> Option<Row> {
        let row = self.aliases.find(hash, |alias| *alias.raw == *raw)?.row;
        // An alias of a forgotten row is ignored.
        self.rows.get(row.id)?.record_request(self.epoch);
        Some(row)
    }

    pub(super) fn is_idle(&self, id: u32) -> bool {
        let asked = self.rows.get(id).map(|entry| entry.asked.load(Ordering::Relaxed));
        asked.is_some_and(|asked| asked.saturating_add(2) <= self.epoch)
    }

    /// Removes a row.
    pub(super) fn remove(
        &mut self,
        id: u32,
        hasher: &DefaultHashBuilder,
        sharing: &mut SharedSeries,
    ) {
        let Some(entry) = self.rows.remove(id) else { return };
        self.live.remove(id);
        self.series -= u64::from(entry.columns);
        let hash = hasher.hash_one(entry.text.as_bytes());
        if let Ok(place) = self.table.find_entry(hash, |known| *known == id) {
            place.remove();
        }
        let Ok(name) = RowName::parse(entry.text.as_bytes()) else { return };
        for (column, metric) in name.metrics.iter().enumerate() {
            unpost(&mut self.metrics, metric, id);
            let hash = hasher.hash_one((metric, &name.tags));
            let first = self.by_series.find_entry(hash, |known| *known == (hash, id));
            let Ok(mut first) = first else { continue };
            match sharing.of(id).iter().find(|s| usize::from(s.own) == column) {
                Some(other) => first.get_mut().1 = other.row,
                None => drop(first.remove()),
            }
        }
        for (tag, value) in &name.tags {
            let Some(values) = self.tags.get_mut(tag.as_str()) else { continue };
            unpost(values, value, id);
            if values.is_empty() {
                self.tags.remove(tag.as_str());
            }
        }
        sharing.leave(id);
    }

    /// Releases memory after rows were removed.
    pub(super) fn shrink(&mut self, hasher: &DefaultHashBuilder) {
        let (rows, bytes) = (&self.rows, &mut self.alias_bytes);
        self.aliases.retain(|alias| {
            let known = rows.get(alias.row.id).is_some();
            *bytes -= if known { 0 } else { alias.raw.len() + ALIAS_BYTES };
            known
        });
        if self.aliases.capacity() > 4 * self.aliases.len() {
            self.aliases.shrink_to_fit(|alias| hasher.hash_one(&*alias.raw));
        }
        if self.table.capacity() > 4 * self.table.len() {
            let text = |id: &u32| rows.get(*id).map(|entry| entry.text.as_bytes());
            self.table.shrink_to_fit(|id| text(id).map_or(0, |text| hasher.hash_one(text)));
            self.by_series.shrink_to_fit(|(hash, _)| *hash);
        }
    }

    pub(super) fn remember_alias(
        &mut self,
        hash: u64,
        raw: &[u8],
        row: Row,
        hasher: &DefaultHashBuilder,
    ) {
        let bytes = raw.len() + ALIAS_BYTES;
        if self.alias_bytes + bytes > ALIAS_BYTES_MAX {
            self.aliases = HashTable::new();
            self.alias_bytes = 0;
        }
        self.alias_bytes += bytes;
        let again = |alias: &Alias| hasher.hash_one(&*alias.raw);
        self.aliases.insert_unique(hash, Alias { raw: raw.into(), row }, again);
    }

    pub(super) fn insert(
        &mut self,
        name: &RowName,
        text: String,
        hash: u64,
        hasher: &DefaultHashBuilder,
    ) -> Row {
        let id = self.next;
        self.next += 1;
        for metric in &name.metrics {
            posting(&mut self.metrics, metric).insert(id);
        }
        for (tag, value) in &name.tags {
            if !self.tags.contains_key(tag.as_str()) {
                self.tags.insert(tag.as_str().into(), BTreeMap::new());
            }
            if let Some(values) = self.tags.get_mut(tag.as_str()) {
                posting(values, value).insert(id);
            }
        }
        let (columns, events) = (name.metrics.len() as u16, name.is_events());
        self.series += u64::from(columns);
        let asked = AtomicU32::new(self.epoch);
        self.rows.insert(id, Entry { text: text.into(), asked, columns, events });
        self.live.insert(id);
        let rows = &self.rows;
        let again =
            |id: &u32| rows.get(*id).map_or(0, |entry| hasher.hash_one(entry.text.as_bytes()));
        self.table.insert_unique(hash, id, again);
        Row { id, columns, events }
    }

    /// Returns the first row, with its column, that has a metric with the tags of a name.
    pub(super) fn first_with(&self, hash: u64, metric: &str, name: &RowName) -> Option<ColumnId> {
        let mut found = None;
        self.by_series.find(hash, |(known, id)| {
            let text = self.rows.get(*id).filter(|_| *known == hash).map(|e| &*e.text);
            let other = text.and_then(|text| RowName::parse(text.as_bytes()).ok());
            let other = other.filter(|other| other.tags == name.tags);
            let column = other.and_then(|o| o.metrics.iter().position(|m| m == metric));
            found = column.map(|column| ColumnId { row: *id, column: column as u16 });
            found.is_some()
        })?;
        found
    }

    pub(super) fn series_with(&self, tag: &str, value: &str) -> u64 {
        let rows = self.tags.get(tag).and_then(|values| values.get(value)).into_iter().flatten();
        let columns = rows.filter_map(|id| self.rows.get(id));
        columns.map(|entry| u64::from(entry.columns)).sum()
    }

    /// Adds the metrics of a row that match.
    pub(super) fn collect(&self, id: u32, selector: &Selector, found: &mut Vec<Series>) {
        let Some(entry) = self.rows.get(id) else { return };
        let Ok(name) = RowName::parse(entry.text.as_bytes()) else { return };
        let tags: Arc<[(String, String)]> = name.tags.into();
        for (column, metric) in name.metrics.iter().enumerate() {
            if !selector.metric.passes(metric) {
                continue;
            }
            let Some((metric, _)) = self.metrics.get_key_value(metric.as_str()) else { continue };
            let (metric, tags) = (Arc::clone(metric), Arc::clone(&tags));
            let of = ColumnId { row: id, column: column as u16 };
            found.push(Series { metric, tags, columns: vec![of] });
        }
    }

    pub(super) fn of_metric(&self, metric: &str) -> RoaringBitmap {
        if metric.is_empty() {
            return self.live.clone();
        }
        self.metrics.get(metric).cloned().unwrap_or_default()
    }

    /// Returns the rows with a matching metric and matching tags.
    pub(super) fn select(&self, selector: &Selector) -> RoaringBitmap {
        let mut rows = match &selector.metric {
            Test::Any => self.of_metric(""),
            Test::Is(metrics) => metrics
                .iter()
                .filter_map(|m| self.metrics.get(m.as_str()))
                .fold(RoaringBitmap::new(), |all, rows| all | rows),
            test => union(self.metrics.iter().filter(|(m, _)| test.passes(m))),
        };
        for (tag, test) in &selector.tags {
            let values = self.tags.get(tag.as_str());
            let values = || values.into_iter().flatten();
            if test.passes("") {
                rows -= union(values().filter(|(v, _)| !test.passes(v)));
            } else {
                rows &= union(values().filter(|(v, _)| test.passes(v)));
            }
        }
        rows
    }
}

fn posting<'a, K: Ord + for<'t> From<&'t str>>(
    postings: &'a mut BTreeMap<K, RoaringBitmap>,
    text: &str,
) -> &'a mut RoaringBitmap {
    postings.entry(text.into()).or_default()
}

fn unpost<K: Ord + std::borrow::Borrow<str>>(
    postings: &mut BTreeMap<K, RoaringBitmap>,
    text: &str,
    id: u32,
) {
    let Some(rows) = postings.get_mut(text) else { return };
    rows.remove(id);
    if rows.is_empty() {
        postings.remove(text);
    }
}

fn union<'a, K: 'a>(postings: impl Iterator<Item = (&'a K, &'a RoaringBitmap)>) -> RoaringBitmap {
    let mut all = RoaringBitmap::new();
    for (_, rows) in postings {
        all |= rows;
    }
    all
}
