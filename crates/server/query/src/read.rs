//! Reads the rows of series on demand and within the query's budget: samples in runs, events in
//! chunks, aggregates from the summaries of blocks.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::vec;

use regex::Regex;
use series::{
    Direction, Event, EventScan, Extreme, Run, Scan, Series, SeriesReadError, Snapshot, TimeRange,
    Value,
};

use super::func::Func;
use super::merge::{Frontier, Merged};
use super::parse::Query;
use super::row::{Cells, RowOut, Rows};
use super::steps::{Grid, Summed, all_steps, extremes, total};
use budget::{Budget, HeldMemory};

/// Memory of an event in addition to its text, in bytes.
const ROW_BYTES: usize = 64;
/// Memory of a sample in bytes: its time and its value.
const SAMPLE_BYTES: usize = 16;
/// Number of steps up to which memory is not checked while they are computed.
const STEPS_FEW: i128 = 1 << 20;
/// Approximate number of samples in memory for all series of a query. Each series gets a share
/// within [`SAMPLES_OF_ONE`].
const SAMPLES: usize = 4 << 20;
const SAMPLES_OF_ONE: std::ops::RangeInclusive<usize> = 1024..=65_536;

/// Reads series of one snapshot.
pub(super) struct Reader {
    snapshot: Snapshot,
    range: TimeRange,
    direction: Direction,
    budget: Budget,
    /// Number of series whose samples are read.
    read: Arc<AtomicUsize>,
}

impl Reader {
    pub(super) fn new(snapshot: Snapshot, query: &Query, budget: &Budget) -> Self {
        Self {
            snapshot,
            range: query.range,
            direction: query.direction,
            budget: budget.clone(),
            read: Arc::default(),
        }
    }

    fn merged(&self, mut sources: Vec<Rows>) -> Rows {
        if sources.len() == 1 {
            return sources.remove(0);
        }
        let backward = self.direction == Direction::Backward;
        Box::new(Merged(Frontier::new(sources, backward)))
    }

    /// Returns the samples of these series, merged by time. Nothing is read before the first row is
    /// requested.
    pub(super) fn samples(&self, members: Vec<Series>) -> Rows {
        self.read.fetch_add(members.len(), Ordering::Relaxed);
        let one = |series: Series| -> Rows {
            let (range, direction) = (self.range, self.direction);
            let (snapshot, read) = (self.snapshot.clone(), Arc::clone(&self.read));
            let begin = move || {
                let share = SAMPLES / read.load(Ordering::Relaxed).max(1);
                let rows = share.clamp(*SAMPLES_OF_ONE.start(), *SAMPLES_OF_ONE.end());
                snapshot.scan(&series, range, direction).with_rows(rows)
            };
            let held = self.budget.nothing();
            let state = State::Due(Box::new(begin));
            Box::new(Samples { budget: self.budget.clone(), held, state, run: None })
        };
        self.merged(members.into_iter().map(one).collect())
    }

    /// Returns the events that match a filter.
    pub(super) fn events(&self, members: Vec<Series>, filter: Option<&Regex>) -> Rows {
        let one = |series: Series| -> Rows {
            let (snapshot, range, direction) = (self.snapshot.clone(), self.range, self.direction);
            let begin = move || snapshot.scan_events(&series, range, direction);
            let (budget, held) = (self.budget.clone(), self.budget.nothing());
            let (state, filter) = (State::Due(Box::new(begin)), filter.cloned());
            Box::new(Events { budget, held, filter, state, some: VecDeque::new() })
        };
        self.merged(members.into_iter().map(one).collect())
    }

    /// Returns one row with the aggregate of these series, or none if they have no samples in the
    /// range.
    pub(super) fn aggregate(&self, members: Vec<Series>, func: Func) -> Rows {
        let (snapshot, range) = (self.snapshot.clone(), self.range);
        self.lazy(move |budget| {
            let Summed { found: all, torn } = total(&snapshot, &members, range, budget)?;
            let width = usize::from(all.is_none_or(|s| func.time(&s).is_none()));
            let mut lot = RowBatch { width, torn, ..RowBatch::default() };
            if let Some(s) = all {
                lot.times = vec![func.time(&s).unwrap_or(s.last_ns)].into_iter();
                lot.values = vec![func.value(&s)].into_iter();
            }
            Ok(lot)
        })
    }

    /// Returns one row per step that has samples. Steps are counted from the first time of the
    /// range in the direction of the query, and the time of a row is that of the beginning of its
    /// step.
    pub(super) fn steps(&self, members: Vec<Series>, funcs: Vec<Func>, step_ns: i64) -> Rows {
        let (snapshot, range, direction) = (self.snapshot.clone(), self.range, self.direction);
        self.lazy(move |budget| {
            let forward = direction == Direction::Forward;
            let width_ns = i128::from(range.to_ns) - i128::from(range.from_ns);
            let few = width_ns / i128::from(step_ns.max(1)) <= STEPS_FEW;
            let grid = Grid { range, step_ns };
            let Summed { found: all, torn } = match funcs.as_slice() {
                [Func::Max] if forward && few => {
                    extremes(&snapshot, &members, grid, Extreme::Largest, budget)?
                }
                [Func::Min] if forward && few => {
                    extremes(&snapshot, &members, grid, Extreme::Smallest, budget)?
                }
                _ => all_steps(&snapshot, &members, grid, direction, budget)?,
            };
            let (begin, sign) =
                if forward { (range.from_ns, 1) } else { (range.to_ns.saturating_sub(1), -1) };
            let time =
                |i: i64| begin.saturating_add(i.saturating_mul(step_ns).saturating_mul(sign));
            let times: Vec<i64> = all.iter().map(|(i, _)| time(*i)).collect();
            // Keep only the requested values: whole summaries take much more memory.
            let values = all.iter().flat_map(|(_, s)| funcs.iter().map(|func| func.value(s)));
            let values: Vec<Value> = values.collect();
            let (times, values) = (times.into_iter(), values.into_iter());
            Ok(RowBatch { times, values, width: funcs.len(), torn })
        })
    }

    /// Returns rows that are computed when the first of them is read. Read failures are reported
    /// before the rows.
    fn lazy(
        &self,
        make: impl FnOnce(&Budget) -> Result<RowBatch, String> + Send + 'static,
    ) -> Rows {
        let (budget, held) = (self.budget.clone(), self.budget.nothing());
        Box::new(Lazy { budget, held, make: Some(make), lot: RowBatch::default() })
    }
}

/// The samples of one series, a run at a time.
struct Samples {
    budget: Budget,
    held: HeldMemory,
    state: State<Scan>,
    /// The run that was read last, and the number of its rows already returned.
    run: Option<(Run, usize)>,
}

/// A scan that starts when its first item is requested.
enum State<S> {
    Due(Box<dyn FnOnce() -> S + Send>),
    Going(Box<S>),
    Done,
}

impl<T, S: Iterator<Item = Result<T, SeriesReadError>>> State<S> {
    /// Returns the next item and the scan. Returns an error once, then nothing more, if the query
    /// must end.
    fn next(&mut self, budget: &Budget) -> Option<Result<(T, &S), String>> {
        if matches!(self, Self::Done) {
            return None;
        }
        if let Err(e) = budget.check() {
            *self = Self::Done;
            return Some(Err(e));
        }
        if let Self::Due(_) = self
            && let Self::Due(begin) = std::mem::replace(self, Self::Done)
        {
            *self = Self::Going(Box::new(begin()));
        }
        let found = if let Self::Going(scan) = self { scan.next() } else { None };
        if found.is_none() {
            *self = Self::Done;
        }
        let Self::Going(scan) = self else { return None };
        Some(found?.map(|found| (found, &**scan)).map_err(|e| e.to_string()))
    }
}

impl Samples {
    /// Returns the next sample of the current run.
    fn next_sample(&mut self) -> Option<RowOut> {
        let (run, at) = self.run.as_mut()?;
        let (Some(time_ns), Some(value)) = (run.times.get(*at), run.values.get(*at)) else {
            self.run = None;
            return None;
        };
        *at += 1;
        Some(RowOut { time_ns: *time_ns, cells: Cells::One(value) })
    }

    /// Reads the next run.
    fn read(&mut self) -> Option<Result<(), String>> {
        let (run, scan) = match self.state.next(&self.budget)? {
            Ok(read) => read,
            Err(e) => return Some(Err(e)),
        };
        let held = self.held.set(scan.bytes() + run.times.len() * SAMPLE_BYTES);
        self.run = Some((run, 0));
        Some(held)
    }
}

impl Iterator for Samples {
    type Item = Result<RowOut, String>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(row) = self.next_sample() {
                return Some(Ok(row));
            }
            match self.read() {
                None => {
                    // Zero bytes never exceed the budget.
                    let _ = self.held.set(0);
                    return None;
                }
                Some(Err(e)) => return Some(Err(e)),
                Some(Ok(())) => {}
            }
        }
    }
}

/// The events of one series, one chunk at a time.
struct Events {
    budget: Budget,
    held: HeldMemory,
    filter: Option<Regex>,
    state: State<EventScan>,
    some: VecDeque<Event>,
}

impl Events {
    /// Reads the next chunk of events.
    fn read(&mut self) -> Option<Result<(), String>> {
        let (some, scan) = match self.state.next(&self.budget)? {
            Ok(read) => read,
            Err(e) => return Some(Err(e)),
        };
        let texts: usize = some.iter().map(|event| event.text.len() + ROW_BYTES).sum();
        let held = self.held.set(scan.bytes() + texts);
        self.some = some.into();
        Some(held)
    }

    /// Returns the next event of the current chunk that matches the filter.
    fn next_event(&mut self) -> Option<RowOut> {
        while let Some(Event { time_ns, text }) = self.some.pop_front() {
            let shown = || String::from_utf8_lossy(&text);
            if self.filter.as_ref().is_none_or(|filter| filter.is_match(&shown())) {
                return Some(RowOut { time_ns, cells: Cells::Text(text) });
            }
        }
        None
    }
}

impl Iterator for Events {
    type Item = Result<RowOut, String>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(row) = self.next_event() {
                return Some(Ok(row));
            }
            match self.read() {
                None => {
                    // Zero bytes never exceed the budget.
                    let _ = self.held.set(0);
                    return None;
                }
                Some(Err(e)) => return Some(Err(e)),
                Some(Ok(())) => {}
            }
        }
    }
}

/// Computed rows: their times, and the concatenated values of all rows.
#[derive(Default)]
struct RowBatch {
    times: vec::IntoIter<i64>,
    values: vec::IntoIter<Value>,
    /// Number of values per row.
    width: usize,
    /// The first read failure.
    torn: Option<String>,
}

impl Iterator for RowBatch {
    type Item = Result<RowOut, String>;

    fn next(&mut self) -> Option<Self::Item> {
        if let Some(torn) = self.torn.take() {
            return Some(Err(torn));
        }
        let time_ns = self.times.next()?;
        let cells = match self.width {
            0 => Cells::Empty,
            1 => Cells::One(self.values.next()?),
            width => Cells::Many(self.values.by_ref().take(width).map(Some).collect()),
        };
        Some(Ok(RowOut { time_ns, cells }))
    }
}

/// See [`Reader::lazy`].
struct Lazy<M> {
    budget: Budget,
    /// The memory of the computed rows.
    held: HeldMemory,
    make: Option<M>,
    lot: RowBatch,
}

impl<M: FnOnce(&Budget) -> Result<RowBatch, String>> Iterator for Lazy<M> {
    type Item = Result<RowOut, String>;

    fn next(&mut self) -> Option<Self::Item> {
        if let Some(make) = self.make.take() {
            let made = self.budget.check().and_then(|()| make(&self.budget)).and_then(|lot| {
                let values = lot.values.len() * size_of::<Value>();
                self.held.set(lot.times.len() * size_of::<i64>() + values).map(|()| lot)
            });
            self.lot = made.unwrap_or_else(|e| RowBatch { torn: Some(e), ..RowBatch::default() });
        }
        self.lot.next()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU32;

    use super::super::{Query, run, tests::store};
    use super::*;
    use budget::{Memory, QUERY_TIME_MAX};

    #[test]
    fn query_stops_when_its_client_disconnects_midway() {
        let (_folder, store) = store();
        let share = r#"{"name": "heavy-hitters", "error": 0.1, "portion": 0.1}"#;
        for (what, apply) in [
            (r#""select": "cpu""#, share),
            (r#""join": ["cpu", "mem"]"#, share),
            (r#""select": "cpu", "filter": {"gt": 1}"#, r#"{"name": "top", "N": 1}"#),
            (r#""select": "cpu", "pivot-by-tag": ["dc"]"#, r#"{"name": "abs"}"#),
        ] {
            let text =
                format!(r#"{{{what}, "apply": [{apply}], "range": {{"from": 0, "to": 99}}}}"#);
            let query = Query::parse(text.as_bytes()).unwrap();
            for looks in 0..12 {
                let asked = AtomicU32::new(0);
                let gone = move || asked.fetch_add(1, Ordering::Relaxed) >= looks;
                let budget = Budget::new(QUERY_TIME_MAX, Memory::default(), gone);
                let mut rows = Reader::new(store.snapshot(), &query, &budget)
                    .samples(store.find(&series::Selector::metric("cpu")));
                let told = rows.by_ref().take(100).count();
                assert!(told < 100, "an error is reported repeatedly");
                let _ = run(&store, &query, &budget, |_| true);
            }
        }
    }
}
