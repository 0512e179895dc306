//! Lists names in order, a page at a time. A page is found by a pass over all matching rows that
//! keeps only the first names after the page before, so memory depends on the size of a page, not
//! on the number of names.

use std::borrow::Borrow;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

use roaring::RoaringBitmap;

use super::{Catalog, READ_AT_ONCE};
use crate::model::{NameKind, NameList, Selector, Test};
use crate::name;

/// Memory of a name in addition to its text, in bytes.
const NAME_BYTES: usize = 64;

/// The first names after a given one.
struct Page<'a> {
    after: &'a str,
    bytes_max: usize,
    bytes: usize,
    names: BTreeSet<String>,
    /// True if names after the last one were dropped.
    dropped: bool,
}

impl Page<'_> {
    fn offer(&mut self, name: &str) {
        let beyond = self.dropped && self.names.last().is_some_and(|last| name > last.as_str());
        // A series that two rows share is offered twice.
        if name <= self.after || beyond || !self.names.insert(name.to_owned()) {
            return;
        }
        self.bytes += name.len() + NAME_BYTES;
        while self.bytes > self.bytes_max && self.names.len() > 1 {
            self.bytes -= self.names.pop_last().map_or(0, |last| last.len() + NAME_BYTES);
            self.dropped = true;
        }
    }
}

/// Returns names of a table that begin with `prefix`, in order: at most `count_max` of those that are
/// after `after` and in use.
fn page<K: Ord + Borrow<str>, V>(
    table: &BTreeMap<K, V>,
    prefix: &str,
    after: &str,
    count_max: usize,
    used: impl Fn(&V) -> bool,
) -> Vec<String> {
    let begin = if after < prefix { Bound::Included(prefix) } else { Bound::Excluded(after) };
    let found = table.range((begin, Bound::Unbounded)).map(|(name, of)| (name.borrow(), of));
    let found = found.take_while(|(name, _)| name.starts_with(prefix)).filter(|(_, of)| used(of));
    found.map(|(name, _)| name.to_owned()).take(count_max).collect()
}

impl Catalog {
    /// See [`crate::Store::list`].
    pub(crate) fn list(
        &self,
        list: &NameList,
        prefix: &str,
        after: &str,
        count_max: usize,
    ) -> Vec<String> {
        let names = self.names.read();
        let of = names.of_metric(&list.metric);
        let used = |rows: &RoaringBitmap| !rows.is_disjoint(&of);
        match &list.kind {
            NameKind::Metric => page(&names.metrics, prefix, after, count_max, used),
            NameKind::Tag => {
                let used = |values: &BTreeMap<_, _>| values.values().any(used);
                page(&names.tags, prefix, after, count_max, used)
            }
            NameKind::Value(tag) => {
                let values = names.tags.get(tag.as_str());
                values.map_or(Vec::new(), |v| page(v, prefix, after, count_max, used))
            }
        }
    }

    /// See [`crate::Store::names_after`].
    pub(crate) fn names_after(
        &self,
        selectors: &[Selector],
        after: &str,
        bytes_max: usize,
    ) -> Vec<String> {
        let mut page = Page { after, bytes_max, bytes: 0, names: BTreeSet::new(), dropped: false };
        for selector in selectors {
            let mut rows = self.names.read().select(selector).into_iter();
            while self.offer_some(&mut rows, &selector.metric, &mut page) {}
        }
        page.names.into_iter().collect()
    }

    /// Offers the names of a limited number of rows. Returns false if no rows are left.
    fn offer_some(
        &self,
        rows: &mut <RoaringBitmap as IntoIterator>::IntoIter,
        metric: &Test,
        page: &mut Page<'_>,
    ) -> bool {
        let (names, mut found, mut text) = (self.names.read(), false, String::new());
        let passes =
            |one: &&str| matches!(metric, Test::Any) || metric.passes(&name::unescape(one));
        for id in rows.by_ref().take(READ_AT_ONCE) {
            found = true;
            let Some(entry) = names.rows.get(id) else { continue };
            let (metrics, tags) = name::parts(&entry.text);
            for one in metrics.into_iter().filter(passes) {
                text.clear();
                text.extend([one, tags]);
                page.offer(&text);
            }
        }
        found
    }
}
