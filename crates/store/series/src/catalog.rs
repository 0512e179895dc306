//! Which row series exist: their names, and postings from metrics and tags to rows.
//!
//! A row's number is its place in order of creation; numbers are never used twice. On disk the
//! catalogue is a file that only grows; the manifest says how far it counts.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::hash::BuildHasher;
use std::sync::Arc;

use hashbrown::{DefaultHashBuilder, HashTable};
use parking_lot::{RwLock, RwLockReadGuard};
use roaring::RoaringBitmap;

use crate::bytes::{Input, push_text, push_varint};
use crate::error::NameError;
use crate::model::{Row, Selector, Series, Test};
use crate::name::RowName;
use crate::sharing::Sharing;

/// Memory of raw texts that are not canonical, in bytes; all are forgotten at once beyond.
const ALIAS_BYTES_MAX: usize = 128 << 20;
/// Bytes of bookkeeping assumed per raw text.
const ALIAS_BYTES: usize = 48;

/// A raw text that stands for a row.
struct Alias {
    raw: Box<[u8]>,
    row: Row,
}

struct Entry {
    text: Box<str>,
    columns: u16,
    events: bool,
}

#[derive(Default)]
struct Names {
    rows: Vec<Entry>,
    table: HashTable<u32>,
    aliases: HashTable<Alias>,
    alias_bytes: usize,
    metrics: BTreeMap<Arc<str>, RoaringBitmap>,
    tags: BTreeMap<Box<str>, BTreeMap<Box<str>, RoaringBitmap>>,
    /// Rows by the hash of each of their series, the first of those that share one.
    by_series: HashTable<(u64, u32)>,
    series: u64,
}

/// See the module.
pub(crate) struct Catalog {
    names: RwLock<Names>,
    sharing: RwLock<Sharing>,
    hasher: DefaultHashBuilder,
    series_max: u64,
}

impl Catalog {
    pub(crate) fn new(series_max: u64) -> Self {
        let (names, sharing, hasher) = (RwLock::default(), RwLock::default(), <_>::default());
        Self { names, sharing, hasher, series_max }
    }

    /// What rows share.
    pub(crate) fn sharing(&self) -> RwLockReadGuard<'_, Sharing> {
        self.sharing.read()
    }

    /// Rows known.
    pub(crate) fn rows(&self) -> u32 {
        self.names.read().rows.len() as u32
    }

    /// Metrics of rows known.
    pub(crate) fn series(&self) -> u64 {
        self.names.read().series
    }

    /// The row of a raw text, created if it is new.
    pub(crate) fn row(&self, raw: &[u8]) -> Result<Row, NameError> {
        let hash = self.hasher.hash_one(raw);
        if let Some(row) = self.names.read().lookup(hash, raw) {
            return Ok(row);
        }
        let name = RowName::parse(raw)?;
        let row = self.row_of(&name)?;
        let mut names = self.names.write();
        if names.lookup(hash, raw).is_none() {
            names.learn(hash, raw, row, &self.hasher);
        }
        Ok(row)
    }

    /// The row that was remembered for bytes that are no name.
    pub(crate) fn known(&self, raw: &[u8]) -> Option<Row> {
        self.names.read().alias(self.hasher.hash_one(raw), raw)
    }

    /// Remember a row for bytes that are no name.
    pub(crate) fn remember(&self, raw: &[u8], row: Row) {
        let hash = self.hasher.hash_one(raw);
        let mut names = self.names.write();
        if names.alias(hash, raw).is_none() {
            names.learn(hash, raw, row, &self.hasher);
        }
    }

    /// The row of a name, created if it is new.
    pub(crate) fn row_of(&self, name: &RowName) -> Result<Row, NameError> {
        self.row_within(name, None)
    }

    /// The row of a name, created if it is new and those with the same value of a tag are not as
    /// many series yet as they may be.
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
        if names.series + name.metrics.len() as u64 > self.series_max {
            return Err(NameError::LimitReached { max: self.series_max });
        }
        Ok(self.insert(&mut names, name, text, hash))
    }

    /// Take a row over from disk. True if it is new; `None` if it is not the next one and not
    /// known under this number, or its text is no name.
    pub(crate) fn restore(&self, id: u32, text: &str) -> Option<bool> {
        let mut names = self.names.write();
        if let Some(entry) = names.rows.get(id as usize) {
            return (&*entry.text == text).then_some(false);
        }
        let name = RowName::parse(text.as_bytes()).ok()?;
        let hash = self.hasher.hash_one(text.as_bytes());
        if id as usize != names.rows.len() || names.lookup(hash, text.as_bytes()).is_some() {
            return None;
        }
        self.insert(&mut names, &name, text.into(), hash);
        Some(true)
    }

    fn insert(&self, names: &mut Names, name: &RowName, text: String, hash: u64) -> Row {
        let row = names.insert(name, text, hash, &self.hasher);
        for (column, metric) in name.metrics.iter().enumerate().filter(|_| !row.events) {
            let hash = self.hasher.hash_one((metric, &name.tags));
            if let Some(known) = names.first_with(hash, metric, name) {
                self.sharing.write().join((row.id, column as u16), known);
            } else {
                names.by_series.insert_unique(hash, (hash, row.id), |(hash, _)| *hash);
            }
        }
        row
    }

    /// Append the definitions of rows `from..to`.
    pub(crate) fn encode(&self, from: u32, to: u32, into: &mut Vec<u8>) {
        let names = self.names.read();
        push_varint(into, u64::from(from));
        let rows = names.rows.get(from as usize..to as usize).unwrap_or_default();
        push_varint(into, rows.len() as u64);
        for row in rows {
            push_text(into, &row.text);
        }
    }

    /// Take definitions over; `None` when they are damaged.
    pub(crate) fn decode(&self, input: &mut Input<'_>) -> Option<()> {
        let from = input.varint()?;
        let count = input.varint()?;
        for id in from..from.checked_add(count)? {
            self.restore(u32::try_from(id).ok()?, input.text()?)?;
        }
        Some(())
    }

    /// Shape of a row: its number of values, and whether it holds events.
    pub(crate) fn shape(&self, id: u32) -> Option<(u16, bool)> {
        self.names.read().rows.get(id as usize).map(|r| (r.columns, r.events))
    }

    /// Series that pass a selector, sorted by name.
    pub(crate) fn find(&self, selector: &Selector) -> Vec<Series> {
        let names = self.names.read();
        let mut found = Vec::new();
        for id in names.select(selector) {
            names.collect(id, selector, &mut found);
        }
        drop(names);
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

    /// Names of metrics that begin so.
    pub(crate) fn metrics(&self, prefix: &str) -> Vec<String> {
        let names = self.names.read();
        let metrics = names.metrics.keys().filter(|m| m.starts_with(prefix));
        metrics.map(ToString::to_string).collect()
    }

    /// Names of tags of a metric's series that begin so.
    pub(crate) fn tag_names(&self, metric: &str, prefix: &str) -> Vec<String> {
        let names = self.names.read();
        let of = names.of_metric(metric);
        let tags = names.tags.iter().filter(|(tag, _)| tag.starts_with(prefix));
        let used = tags.filter(|(_, values)| values.values().any(|v| !v.is_disjoint(&of)));
        used.map(|(tag, _)| tag.to_string()).collect()
    }

    /// Values of a tag of a metric's series that begin so.
    pub(crate) fn tag_values(&self, metric: &str, tag: &str, prefix: &str) -> Vec<String> {
        let names = self.names.read();
        let of = names.of_metric(metric);
        let Some(values) = names.tags.get(tag) else { return Vec::new() };
        let values =
            values.iter().filter(|(v, rows)| v.starts_with(prefix) && !rows.is_disjoint(&of));
        values.map(|(value, _)| value.to_string()).collect()
    }
}

impl Names {
    fn lookup(&self, hash: u64, raw: &[u8]) -> Option<Row> {
        let same = |id: &u32| {
            self.rows.get(*id as usize).is_some_and(|entry| entry.text.as_bytes() == raw)
        };
        let Some(id) = self.table.find(hash, same).copied() else { return self.alias(hash, raw) };
        let entry = self.rows.get(id as usize)?;
        Some(Row { id, columns: entry.columns, events: entry.events })
    }

    fn alias(&self, hash: u64, raw: &[u8]) -> Option<Row> {
        self.aliases.find(hash, |alias| *alias.raw == *raw).map(|alias| alias.row)
    }

    fn learn(&mut self, hash: u64, raw: &[u8], row: Row, hasher: &DefaultHashBuilder) {
        let bytes = raw.len() + ALIAS_BYTES;
        if self.alias_bytes + bytes > ALIAS_BYTES_MAX {
            self.aliases = HashTable::new();
            self.alias_bytes = 0;
        }
        self.alias_bytes += bytes;
        let again = |alias: &Alias| hasher.hash_one(&*alias.raw);
        self.aliases.insert_unique(hash, Alias { raw: raw.into(), row }, again);
    }

    fn insert(
        &mut self,
        name: &RowName,
        text: String,
        hash: u64,
        hasher: &DefaultHashBuilder,
    ) -> Row {
        let id = self.rows.len() as u32;
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
        self.rows.push(Entry { text: text.into(), columns, events });
        let rows = &self.rows;
        let again = |id: &u32| {
            rows.get(*id as usize).map_or(0, |entry| hasher.hash_one(entry.text.as_bytes()))
        };
        self.table.insert_unique(hash, id, again);
        Row { id, columns, events }
    }

    /// The first row, with its column, that has a metric with the tags of a name.
    fn first_with(&self, hash: u64, metric: &str, name: &RowName) -> Option<(u32, u16)> {
        let mut found = None;
        self.by_series.find(hash, |(known, id)| {
            let text = self.rows.get(*id as usize).filter(|_| *known == hash).map(|e| &*e.text);
            let other = text.and_then(|text| RowName::parse(text.as_bytes()).ok());
            let other = other.filter(|other| other.tags == name.tags);
            let column = other.and_then(|o| o.metrics.iter().position(|m| m == metric));
            found = column.map(|column| (*id, column as u16));
            found.is_some()
        })?;
        found
    }

    /// Series whose tag has this value.
    fn series_with(&self, tag: &str, value: &str) -> u64 {
        let rows = self.tags.get(tag).and_then(|values| values.get(value)).into_iter().flatten();
        let columns = rows.filter_map(|id| self.rows.get(id as usize));
        columns.map(|entry| u64::from(entry.columns)).sum()
    }

    /// The metrics of a row that pass.
    fn collect(&self, id: u32, selector: &Selector, found: &mut Vec<Series>) {
        let Some(entry) = self.rows.get(id as usize) else { return };
        let Ok(name) = RowName::parse(entry.text.as_bytes()) else { return };
        let tags: Arc<[(String, String)]> = name.tags.into();
        for (column, metric) in name.metrics.iter().enumerate() {
            if !selector.metric.passes(metric) {
                continue;
            }
            let Some((metric, _)) = self.metrics.get_key_value(metric.as_str()) else { continue };
            let (metric, tags) = (Arc::clone(metric), Arc::clone(&tags));
            found.push(Series { metric, tags, columns: vec![(id, column as u16)] });
        }
    }

    fn of_metric(&self, metric: &str) -> RoaringBitmap {
        if metric.is_empty() {
            return (0..self.rows.len() as u32).collect();
        }
        self.metrics.get(metric).cloned().unwrap_or_default()
    }

    /// Rows that have a metric that passes and tags that pass.
    fn select(&self, selector: &Selector) -> RoaringBitmap {
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

fn union<'a, K: 'a>(postings: impl Iterator<Item = (&'a K, &'a RoaringBitmap)>) -> RoaringBitmap {
    let mut all = RoaringBitmap::new();
    for (_, rows) in postings {
        all |= rows;
    }
    all
}
