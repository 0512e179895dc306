//! Finds the documents that differ between agent and server. It compares sums of ranges, from the
//! whole dataset down to ranges of a few documents, which are listed.
//!
//! The first step splits by two hex digits (256 parts), later ones by as many digits as the size of
//! the range requires; small ranges are listed at once. For one missing document among 100,000 this
//! takes three requests of about 10 kB in total; `comparison_takes_few_small_requests` prints the cost for
//! larger numbers.

use std::collections::HashMap;

use link::digest::{KeyRange, SPLIT_DIGITS_MAX, Sum, hash, key};
use link::{DigestAnswer, DigestItem, DigestRequest};
use model::ItemKey;
use queue::ReportedItem;

use crate::documents::DocumentWriter;

/// Ranges of up to this number of documents are listed instead of split.
const LIST_MAX: u64 = 64;
/// Ranges above this number of documents are split by two digits instead of one.
const WIDE_ABOVE: u64 = 2_048;
/// Most ranges in one request.
const RANGES_MAX: usize = 1_024;
/// Most parts requested at once.
const PARTS_MAX: usize = 16_384;
/// Most documents requested at once. A single range may have more.
const ITEMS_MAX: u64 = 5_000;
/// Number of digits of a range that cannot be split further.
const DIGITS_MAX: u8 = 16;

/// The documents of this side: key and hash of each, sorted.
#[derive(Debug, Default)]
pub(crate) struct OwnDocuments(Vec<(u64, u64)>);

impl OwnDocuments {
    pub(crate) fn add(&mut self, id: &str, checksum: &str) {
        self.0.push((key(id), hash(id, checksum)));
    }

    /// Returns the number of documents.
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// Sorts the documents; call it once all were added.
    pub(crate) fn sort(&mut self) {
        self.0.sort_unstable();
    }

    fn within(&self, range: KeyRange) -> &[(u64, u64)] {
        let from = self.0.partition_point(|(k, _)| *k < range.first);
        let to = self.0.partition_point(|(k, _)| *k <= range.last());
        self.0.get(from..to).unwrap_or_default()
    }

    fn sum(&self, range: KeyRange) -> Sum {
        let mut sum = Sum::default();
        self.within(range).iter().for_each(|(_, hash)| sum.add(*hash));
        sum
    }
}

/// The ranges that differ, and the server's documents in them.
#[derive(Debug, Default)]
pub(crate) struct DifferingRanges {
    /// Sorted, without overlap.
    ranges: Vec<KeyRange>,
    /// The server's documents in them, by id.
    pub(crate) theirs: HashMap<String, DigestItem>,
    /// Id of the store that answered; empty if nothing was requested.
    pub(crate) store: String,
}

impl DifferingRanges {
    /// Returns the key of an item that the server lacks or holds in another state. The server's
    /// document of it is removed from `theirs`.
    pub(crate) fn missing(
        &mut self,
        maker: &mut DocumentWriter<'_>,
        item: ReportedItem,
    ) -> Option<ItemKey> {
        if !self.covers(maker.id(item.key.borrowed())) {
            return None;
        }
        let document = maker.make(item.key.borrowed(), item.seen, (&item.body).into());
        let theirs = self.theirs.remove(document.id);
        let same = theirs.is_some_and(|their| their.checksum == document.checksum);
        (!same).then_some(item.key)
    }

    /// Returns true if a document of this id is in a range that differs.
    pub(crate) fn covers(&self, id: &str) -> bool {
        let key = key(id);
        let before = self.ranges.partition_point(|r| r.first <= key);
        before
            .checked_sub(1)
            .and_then(|place| self.ranges.get(place))
            .is_some_and(|range| key <= range.last())
    }
}

/// The sequence of requests that lists everything that differs.
#[derive(Debug)]
pub(crate) struct Descent<'a> {
    own: &'a OwnDocuments,
    index: String,
    /// Ranges to be split, with the number of documents that they may hold.
    split: Vec<(KeyRange, u64)>,
    /// Ranges to be listed, with the number of documents that they may have.
    list: Vec<(KeyRange, u64)>,
    /// Most digits that a range is split by.
    widest: u8,
    found: DifferingRanges,
}

impl<'a> Descent<'a> {
    pub(crate) fn new(own: &'a OwnDocuments, index: String) -> Self {
        let all = (KeyRange::ALL, own.0.len() as u64);
        let (split, list) = (vec![all], Vec::new());
        Self {
            own,
            index,
            split,
            list,
            widest: SPLIT_DIGITS_MAX,
            found: DifferingRanges::default(),
        }
    }

    /// Returns the next request; `None` when everything is known.
    pub(crate) fn question(&self) -> Option<DigestRequest> {
        let (ranges, split) = if let Some((first, n)) = self.split.last() {
            let width = self.width(*first, *n);
            let most = RANGES_MAX.min(PARTS_MAX >> (4 * u32::from(width)));
            let same = |(range, n): &&(KeyRange, u64)| self.width(*range, *n) == width;
            let asked = self.split.iter().rev().take_while(same).take(most);
            (asked.map(|(r, _)| r.name()).collect::<Vec<_>>(), width)
        } else {
            let mut remaining = ITEMS_MAX;
            let fits = |(_, n): &&(KeyRange, u64)| {
                let fits = remaining == ITEMS_MAX || *n <= remaining;
                remaining = remaining.saturating_sub((*n).max(1));
                fits
            };
            let asked = self.list.iter().rev().take(RANGES_MAX).take_while(fits);
            (asked.map(|(r, _)| r.name()).collect(), 0)
        };
        let (index, bodies) = (self.index.clone(), false);
        (!ranges.is_empty()).then_some(DigestRequest { index, ranges, split, bodies })
    }

    /// Processes the answer to the last request. The server may answer only the first ranges; the
    /// others are requested again.
    ///
    /// # Errors
    /// Returns the reason why the answer is invalid. The comparison must be abandoned then.
    pub(crate) fn apply_answer(
        &mut self,
        asked: &DigestRequest,
        answer: DigestAnswer,
    ) -> Result<(), &'static str> {
        let answered = answer.ranges as usize;
        if answered == 0 || answered > asked.ranges.len() {
            return Err("it names other ranges than those requested");
        }
        if !self.found.store.is_empty() && self.found.store != answer.store {
            return Err("the store was replaced during the comparison");
        }
        self.found.store = answer.store;
        if asked.split == 0 {
            for _ in 0..answered {
                self.found.ranges.extend(self.list.pop().map(|(range, _)| range));
            }
            let items = answer.items.into_iter().map(|item| (item.id.clone(), item));
            self.found.theirs.extend(items);
            return Ok(());
        }
        let mut parts = answer.parts.into_iter();
        for _ in 0..answered {
            let Some((range, _)) = self.split.pop() else { break };
            for part in range.split(asked.split) {
                let theirs = parts.next().and_then(|p| p.sum());
                self.compare(part, theirs.ok_or("it has fewer parts than asked for")?);
            }
        }
        Ok(())
    }

    fn compare(&mut self, range: KeyRange, theirs: Sum) {
        let own = self.own.sum(range);
        let most = own.documents.max(theirs.documents);
        if own == theirs {
        } else if theirs.documents == 0 {
            // The server has no document in the range: all of ours are missing there.
            self.found.ranges.push(range);
        } else if most <= LIST_MAX
            || (own.documents == 0 && most <= ITEMS_MAX)
            || range.digits() == DIGITS_MAX
        {
            self.list.push((range, theirs.documents));
        } else {
            self.split.push((range, most));
        }
    }

    /// Returns the number of digits by which a range is split.
    fn width(&self, range: KeyRange, documents: u64) -> u8 {
        let wide = documents > WIDE_ABOVE || range == KeyRange::ALL;
        if wide && range.digits() + 2 <= DIGITS_MAX { self.widest } else { 1 }
    }

    pub(crate) fn finish(mut self) -> DifferingRanges {
        self.found.ranges.sort_unstable();
        self.found
    }
}

#[cfg(test)]
#[path = "difference_tests.rs"]
mod tests;
