//! Rows of several sources in the order of their times, those of one time in the order of the
//! sources; backward everything the other way round.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use series::Value;

use super::{Cells, RowOut, Rows};

/// The next row of each source, the nearest at hand.
pub(super) struct Frontier {
    sources: Vec<Rows>,
    next: Vec<Option<RowOut>>,
    /// Time and place of each row in `next`, in the direction of the query, and its source.
    heap: BinaryHeap<Reverse<((i128, i64), usize)>>,
    /// Sources whose next row was not read yet.
    due: Vec<usize>,
    backward: bool,
}

impl Frontier {
    pub(super) fn new(sources: Vec<Rows>, backward: bool) -> Self {
        let next = sources.iter().map(|_| None).collect();
        let due = (0..sources.len()).rev().collect();
        Self { sources, next, heap: BinaryHeap::new(), due, backward }
    }

    /// The nearest row with its source; with `at`, only if it has this time. Failures come before
    /// all rows.
    pub(super) fn take(&mut self, at: Option<i64>) -> Option<Result<(usize, RowOut), String>> {
        while let Some(i) = self.due.pop() {
            match self.sources.get_mut(i)?.next() {
                Some(Ok(row)) => {
                    self.heap.push(Reverse((self.key(row.time_ns, i), i)));
                    *self.next.get_mut(i)? = Some(row);
                }
                Some(Err(e)) => {
                    self.due.push(i);
                    return Some(Err(e));
                }
                // What it held is given back at once.
                None => *self.sources.get_mut(i)? = Box::new(std::iter::empty()),
            }
        }
        let Reverse(((time, _), i)) = *self.heap.peek()?;
        if at.is_some_and(|at| self.key(at, 0).0 != time) {
            return None;
        }
        self.heap.pop();
        self.due.push(i);
        Some(Ok((i, self.next.get_mut(i)?.take()?)))
    }

    fn key(&self, time_ns: i64, source: usize) -> (i128, i64) {
        let (time, place) = (i128::from(time_ns), source as i64);
        if self.backward { (-time, -place) } else { (time, place) }
    }
}

/// Rows of several sources of one name.
pub(super) struct Merged(pub(super) Frontier);

impl Iterator for Merged {
    type Item = Result<RowOut, String>;

    fn next(&mut self) -> Option<Self::Item> {
        Some(self.0.take(None)?.map(|(_, row)| row))
    }
}

/// One row per time of several single-valued sources, a column each. Where a source has several
/// rows of one time, the first goes with the first of the others, and so on.
pub(super) struct Joined {
    frontier: Frontier,
    /// The time at hand, and what each source has of it.
    time_ns: Option<i64>,
    columns: Vec<Vec<Value>>,
    ready: VecDeque<RowOut>,
}

impl Joined {
    pub(super) fn new(sources: Vec<Rows>, backward: bool) -> Self {
        let columns = vec![Vec::new(); sources.len()];
        let frontier = Frontier::new(sources, backward);
        Self { frontier, time_ns: None, columns, ready: VecDeque::new() }
    }

    /// All rows of the time at hand are there: put them together.
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

impl Iterator for Joined {
    type Item = Result<RowOut, String>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(row) = self.ready.pop_front() {
                return Some(Ok(row));
            }
            match self.frontier.take(self.time_ns) {
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

    /// Times of sources, each ascending, some of them twice.
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
                Joined::new(rows(&sources, backward), backward).map(Result::unwrap).collect()
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
