//! Merges the rows of several sources by time, and rows of the same time by source. Backward
//! queries reverse both orders.

use std::cmp::Reverse;
use std::collections::binary_heap::PeekMut;
use std::collections::{BinaryHeap, VecDeque};

use series::Value;

use super::row::{Cells, RowOut, Rows};

/// The next row of each source, with the earliest (backward: the latest) first.
pub(super) struct Frontier {
    sources: Vec<Rows>,
    next: Vec<Option<RowOut>>,
    /// Time and source of each row in `next`. The row at the top may have been handed out already.
    heap: BinaryHeap<Reverse<RowKey>>,
    /// Sources that were not read yet.
    due: Vec<usize>,
    /// True if the row at the top was handed out: its source must be read next.
    spent: bool,
    backward: bool,
}

/// Time and source of a row. Backward, all bits are inverted, which reverses the order.
type RowKey = (i64, u32);

impl Frontier {
    pub(super) fn new(sources: Vec<Rows>, backward: bool) -> Self {
        let next = sources.iter().map(|_| None).collect();
        let due = (0..sources.len()).rev().collect();
        let heap = BinaryHeap::with_capacity(sources.len());
        Self { sources, next, heap, due, spent: false, backward }
    }

    /// Returns the next row and the index of its source; with `at`, only if the row has this time.
    /// Read failures are returned before any row.
    pub(super) fn next_row(&mut self, at: Option<i64>) -> Option<Result<(usize, RowOut), String>> {
        if let Err(e) = self.fill_heap() {
            return Some(Err(e));
        }
        let Reverse(place) = *self.heap.peek()?;
        if at.is_some_and(|at| self.row_key(at, 0).0 != place.0) {
            return None;
        }
        self.spent = true;
        let i = self.source(place);
        Some(Ok((i, self.next.get_mut(i)?.take()?)))
    }

    /// Reads the next row of every source that needs it.
    fn fill_heap(&mut self) -> Result<(), String> {
        while let Some(i) = self.due.last().copied() {
            let place = self.read(i).transpose()?;
            self.heap.extend(place.map(Reverse));
            self.due.pop();
        }
        let nearest = self.heap.peek().copied().filter(|_| self.spent);
        let Some(Reverse(place)) = nearest else { return Ok(()) };
        let next = self.read(self.source(place)).transpose()?;
        self.spent = false;
        if let Some(mut top) = self.heap.peek_mut() {
            match next {
                Some(place) => *top = Reverse(place),
                None => drop(PeekMut::pop(top)),
            }
        }
        Ok(())
    }

    /// Reads the next row of a source and returns its key in the heap.
    fn read(&mut self, i: usize) -> Option<Result<RowKey, String>> {
        let source = self.sources.get_mut(i)?;
        match source.next() {
            Some(Ok(row)) => {
                let place = self.row_key(row.time_ns, i);
                *self.next.get_mut(i)? = Some(row);
                Some(Ok(place))
            }
            Some(Err(e)) => Some(Err(e)),
            None => {
                // Drop the source to release its memory at once.
                *source = Box::new(std::iter::empty());
                None
            }
        }
    }

    fn row_key(&self, time_ns: i64, source: usize) -> RowKey {
        let source = source as u32;
        if self.backward { (!time_ns, !source) } else { (time_ns, source) }
    }

    fn source(&self, (_, source): RowKey) -> usize {
        (if self.backward { !source } else { source }) as usize
    }
}

/// Rows of several sources of one name.
pub(super) struct Merged(pub(super) Frontier);

impl Iterator for Merged {
    type Item = Result<RowOut, String>;

    fn next(&mut self) -> Option<Self::Item> {
        Some(self.0.next_row(None)?.map(|(_, row)| row))
    }
}

/// Joins several single-valued sources into rows with one column for each source. If sources have
/// several rows of one time, the first rows are joined with each other, then the second, and so on.
pub(super) struct RowJoin {
    frontier: Frontier,
    /// The current time, and the values that each source has at it.
    time_ns: Option<i64>,
    columns: Vec<Vec<Value>>,
    ready: VecDeque<RowOut>,
}

impl RowJoin {
    pub(super) fn new(sources: Vec<Rows>, backward: bool) -> Self {
        let columns = vec![Vec::new(); sources.len()];
        let frontier = Frontier::new(sources, backward);
        Self { frontier, time_ns: None, columns, ready: VecDeque::new() }
    }

    /// Joins the rows of the current time, once all of them were read.
    fn finish(&mut self, time_ns: i64) {
        let count = self.columns.iter().map(Vec::len).max().unwrap_or(0);
        if self.frontier.backward {
            self.columns.iter_mut().for_each(|c| c.reverse());
        }
        for i in 0..count {
            let cells = Cells::Many(self.columns.iter().map(|c| c.get(i).copied()).collect());
            let row = RowOut { time_ns, cells };
            if self.frontier.backward {
                self.ready.push_front(row);
            } else {
                self.ready.push_back(row);
            }
        }
        self.columns.iter_mut().for_each(Vec::clear);
    }
}

fn single(cells: &Cells) -> Option<Value> {
    if let Cells::One(value) = cells { Some(*value) } else { None }
}

impl Iterator for RowJoin {
    type Item = Result<RowOut, String>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(row) = self.ready.pop_front() {
                return Some(Ok(row));
            }
            match self.frontier.next_row(self.time_ns) {
                Some(Err(e)) => return Some(Err(e)),
                Some(Ok((i, row))) => {
                    self.time_ns = Some(row.time_ns);
                    self.columns.get_mut(i)?.extend(single(&row.cells));
                }
                None => {
                    let time_ns = self.time_ns.take()?;
                    self.finish(time_ns);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Generates ascending times of several sources, with some duplicates.
    fn sources() -> impl Strategy<Value = Vec<Vec<i64>>> {
        let source = proptest::collection::vec(0..6_i64, 0..8).prop_map(|mut times| {
            times.sort_unstable();
            times
        });
        proptest::collection::vec(source, 1..5)
    }

    fn rows(sources: &[Vec<i64>], backward: bool) -> Vec<Rows> {
        let one = |(i, times): (usize, &Vec<i64>)| -> Rows {
            let value = |k: usize| Value::I64((i * 100 + k) as i64);
            let row = |(k, t): (usize, &i64)| RowOut { time_ns: *t, cells: Cells::One(value(k)) };
            let mut rows: Vec<RowOut> = times.iter().enumerate().map(row).collect();
            if backward {
                rows.reverse();
            }
            Box::new(rows.into_iter().map(Ok))
        };
        sources.iter().enumerate().map(one).collect()
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn backward_rows_are_the_forward_rows_reversed(sources in sources()) {
            let merged = |backward| -> Vec<RowOut> {
                Merged(Frontier::new(rows(&sources, backward), backward)).map(Result::unwrap).collect()
            };
            let joined = |backward| -> Vec<RowOut> {
                RowJoin::new(rows(&sources, backward), backward).map(Result::unwrap).collect()
            };
            let (mut forward, mut together) = (merged(false), joined(false));
            prop_assert_eq!(forward.len(), sources.iter().map(Vec::len).sum::<usize>());
            prop_assert!(forward.is_sorted_by_key(|r| r.time_ns));
            forward.reverse();
            prop_assert_eq!(forward, merged(true));
            together.reverse();
            prop_assert_eq!(together, joined(true));
        }
    }
}
