//! Lists names in order, a page at a time. A page is found by a pass over all matching rows that
//! keeps only the first names after the page before, so memory depends on the size of a page, not
//! on the number of names.

use roaring::RoaringBitmap;

use super::{Catalog, READ_AT_ONCE};
use crate::model::{Selector, Test};
use crate::name;

/// Memory of a name in addition to its text, in bytes.
const NAME_BYTES: usize = 40;

/// The first names after a given one.
struct Page<'a> {
    after: &'a str,
    bytes_max: usize,
    bytes: usize,
    names: Vec<String>,
    /// The last name of the page, once names after it were dropped.
    last: Option<String>,
}

impl Page<'_> {
    fn offer(&mut self, name: &str) {
        if name <= self.after || self.last.as_ref().is_some_and(|last| name > last.as_str()) {
            return;
        }
        self.bytes += name.len() + NAME_BYTES;
        self.names.push(name.to_owned());
        if self.bytes > 2 * self.bytes_max {
            self.trim();
        }
    }

    /// Sorts the names and drops the last ones of those that are too many.
    fn trim(&mut self) {
        self.names.sort_unstable();
        // A series that two rows share was offered twice.
        self.names.dedup();
        let (mut bytes, mut count) = (0, 0);
        for name in &self.names {
            if count > 0 && bytes + name.len() + NAME_BYTES > self.bytes_max {
                break;
            }
            bytes += name.len() + NAME_BYTES;
            count += 1;
        }
        self.bytes = bytes;
        if count < self.names.len() {
            self.names.truncate(count);
            self.last = self.names.last().cloned();
        }
    }
}

impl Catalog {
    /// See [`crate::Store::names_after`].
    pub(crate) fn names_after(
        &self,
        selectors: &[Selector],
        after: &str,
        bytes_max: usize,
    ) -> Vec<String> {
        let mut page = Page { after, bytes_max, bytes: 0, names: Vec::new(), last: None };
        for selector in selectors {
            let mut rows = self.names.read().select(selector).into_iter();
            while self.offer_some(&mut rows, &selector.metric, &mut page) {}
        }
        page.trim();
        page.names
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
