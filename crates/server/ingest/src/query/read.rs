//! Rows of series, read on demand and within the query's budget: samples a run at a time, events,
//! aggregates put together from the summaries of blocks.

use std::collections::BTreeMap;

use series::{Direction, Extreme, Run, Scan, Series, Snapshot, Store, Summary, TimeRange};

use super::budget::{Budget, Held};
use super::merge::{Frontier, Merged};
use super::parse::Query;
use super::plan::Func;
use super::{Cells, RowOut, Rows};

/// Memory of a row that was made before it is asked for, in bytes, and of each of its cells.
const ROW_BYTES: usize = 64;
const CELL_BYTES: usize = 24;
/// Memory of a sample that was read, in bytes: time and value.
const SAMPLE_BYTES: usize = 16;

/// Reads series of one snapshot.
pub(super) struct Reader {
    snapshot: Snapshot,
    range: TimeRange,
    direction: Direction,
    budget: Budget,
}

impl Reader {
    pub(super) fn new(store: &Store, query: &Query, budget: &Budget) -> Self {
        Self {
            snapshot: store.snapshot(),
            range: query.range,
            direction: query.direction,
            budget: budget.clone(),
        }
    }

    fn merged(&self, mut sources: Vec<Rows>) -> Rows {
        if sources.len() == 1 {
            return sources.remove(0);
        }
        let backward = self.direction == Direction::Backward;
        Box::new(Merged(Frontier::new(sources, backward)))
    }

    pub(super) fn samples(&self, members: Vec<Series>) -> Rows {
        let one = |series: Series| -> Rows {
            let (range, direction) = (self.range, self.direction);
            let snapshot = self.snapshot.clone();
            let begin = move || snapshot.scan(&series, range, direction);
            let held = self.budget.nothing();
            let state = State::Due(Box::new(begin));
            Box::new(Samples { budget: self.budget.clone(), held, state, run: None })
        };
        self.merged(members.into_iter().map(one).collect())
    }

    pub(super) fn events(&self, members: Vec<Series>) -> Rows {
        let one = |series: Series| -> Rows {
            let (snapshot, range, direction) = (self.snapshot.clone(), self.range, self.direction);
            lazy(&self.budget, move |_| {
                let events =
                    snapshot.events(&series, range, direction).map_err(|e| e.to_string())?;
                let row =
                    |e: series::Event| RowOut { time_ns: e.time_ns, cells: Cells::Text(e.text) };
                Ok(events.into_iter().map(row).collect())
            })
        };
        self.merged(members.into_iter().map(one).collect())
    }

    pub(super) fn aggregate(&self, members: Vec<Series>, func: Func) -> Rows {
        let (snapshot, range) = (self.snapshot.clone(), self.range);
        lazy(&self.budget, move |budget| {
            let all = total(&snapshot, &members, range, budget)?;
            let row = |s: Summary| match func.time(&s) {
                Some(time_ns) => RowOut { time_ns, cells: Cells::Empty },
                None => RowOut { time_ns: s.last_ns, cells: Cells::One(func.value(&s)) },
            };
            Ok(all.map(row).into_iter().collect())
        })
    }

    /// Rows of steps that begin at the range's first time in the direction of the query; a row's
    /// time is where its step begins.
    pub(super) fn steps(&self, members: Vec<Series>, funcs: Vec<Func>, step_ns: i64) -> Rows {
        let (snapshot, range, direction) = (self.snapshot.clone(), self.range, self.direction);
        lazy(&self.budget, move |budget| {
            let forward = direction == Direction::Forward;
            let all = match funcs.as_slice() {
                [Func::Max] if forward => {
                    extremes(&snapshot, &members, (range, step_ns), Extreme::Largest, budget)?
                }
                [Func::Min] if forward => {
                    extremes(&snapshot, &members, (range, step_ns), Extreme::Smallest, budget)?
                }
                _ => all_steps(&snapshot, &members, range, step_ns, direction, budget)?,
            };
            let begin = if direction == Direction::Forward {
                range.from_ns
            } else {
                range.to_ns.saturating_sub(1)
            };
            let sign = if direction == Direction::Forward { 1 } else { -1 };
            let row = |(i, s): (i64, Summary)| {
                let time_ns = begin.saturating_add(i.saturating_mul(step_ns).saturating_mul(sign));
                let cells = match funcs.as_slice() {
                    [func] => Cells::One(func.value(&s)),
                    many => Cells::Many(many.iter().map(|f| Some(f.value(&s))).collect()),
                };
                RowOut { time_ns, cells }
            };
            Ok(all.into_iter().map(row).collect())
        })
    }
}

/// The samples of one series, a run at a time.
struct Samples {
    budget: Budget,
    held: Held,
    state: State,
    /// What was read, and how far it was handed out.
    run: Option<(Run, usize)>,
}

enum State {
    Due(Box<dyn FnOnce() -> Scan + Send>),
    Going(Box<Scan>),
    Done,
}

impl Samples {
    /// The next sample of what was read.
    fn taken(&mut self) -> Option<RowOut> {
        let (run, at) = self.run.as_mut()?;
        let (Some(time_ns), Some(value)) = (run.times.get(*at), run.values.get(*at)) else {
            self.run = None;
            return None;
        };
        *at += 1;
        Some(RowOut { time_ns: *time_ns, cells: Cells::One(value) })
    }

    /// Read the next run.
    fn read(&mut self) -> Option<Result<(), String>> {
        if let Err(e) = self.budget.check() {
            self.state = State::Done;
            return Some(Err(e));
        }
        self.state = match std::mem::replace(&mut self.state, State::Done) {
            State::Due(begin) => State::Going(Box::new(begin())),
            going => going,
        };
        let State::Going(scan) = &mut self.state else { return None };
        let run = match scan.next() {
            Some(Ok(run)) => run,
            Some(Err(e)) => return Some(Err(e.to_string())),
            None => {
                self.state = State::Done;
                return None;
            }
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
            if let Some(row) = self.taken() {
                return Some(Ok(row));
            }
            match self.read() {
                None => {
                    // Nothing is held any more, so this cannot be too much.
                    let _ = self.held.set(0);
                    return None;
                }
                Some(Err(e)) => return Some(Err(e)),
                Some(Ok(())) => {}
            }
        }
    }
}

/// The summary of several series.
pub(super) fn total(
    snapshot: &Snapshot,
    members: &[Series],
    range: TimeRange,
    budget: &Budget,
) -> Result<Option<Summary>, String> {
    let mut all: Option<Summary> = None;
    for series in members {
        budget.check()?;
        let some = snapshot.summary(series, range).map_err(|e| e.to_string())?;
        all = all.map_or(some, |all| Some(some.map_or(all, |some| all.with(&some))));
    }
    Ok(all)
}

/// Summaries of several series by steps of which only one end of the values is right: most of the
/// blocks need not be read for that.
fn extremes(
    snapshot: &Snapshot,
    members: &[Series],
    (range, step_ns): (TimeRange, i64),
    extreme: Extreme,
    budget: &Budget,
) -> Result<BTreeMap<i64, Summary>, String> {
    let mut all = BTreeMap::new();
    for series in members {
        budget.check()?;
        let read = snapshot.extremes(series, range, step_ns, extreme, &mut all);
        read.map_err(|e| e.to_string())?;
    }
    Ok(all)
}

/// The summaries of several series by steps.
fn all_steps(
    snapshot: &Snapshot,
    members: &[Series],
    range: TimeRange,
    step_ns: i64,
    direction: Direction,
    budget: &Budget,
) -> Result<BTreeMap<i64, Summary>, String> {
    let mut all: BTreeMap<i64, Summary> = BTreeMap::new();
    for series in members {
        budget.check()?;
        for (i, some) in stepped(snapshot, series, range, step_ns, direction)? {
            all.entry(i).and_modify(|all| *all = all.with(&some)).or_insert(some);
        }
    }
    Ok(all)
}

/// Summaries of one series by steps counted in the direction of the query.
fn stepped(
    snapshot: &Snapshot,
    series: &Series,
    range: TimeRange,
    step_ns: i64,
    direction: Direction,
) -> Result<Vec<(i64, Summary)>, String> {
    if direction == Direction::Forward {
        return snapshot.steps(series, range, step_ns).map_err(|e| e.to_string());
    }
    // Steps are counted from the newest time: the oldest of them may be cut short.
    let width = range.to_ns.saturating_sub(range.from_ns);
    let whole = width / step_ns;
    let aligned = TimeRange { from_ns: range.to_ns - whole * step_ns, to_ns: range.to_ns };
    let steps = snapshot.steps(series, aligned, step_ns).map_err(|e| e.to_string())?;
    let mut steps: Vec<_> = steps.into_iter().map(|(i, s)| (whole - 1 - i, s)).collect();
    let rest = TimeRange { from_ns: range.from_ns, to_ns: aligned.from_ns };
    if rest.from_ns < rest.to_ns {
        let some = snapshot.summary(series, rest).map_err(|e| e.to_string())?;
        steps.extend(some.map(|s| (whole, s)));
    }
    Ok(steps)
}

/// Rows that are made when the first of them is asked for.
fn lazy(
    budget: &Budget,
    make: impl FnOnce(&Budget) -> Result<Vec<RowOut>, String> + Send + 'static,
) -> Rows {
    let budget = budget.clone();
    let made = move || {
        let mut held = budget.nothing();
        let made = budget.check().and_then(|()| make(&budget)).and_then(|rows| {
            held.set(rows.iter().map(bytes_of).sum())?;
            Ok(rows)
        });
        match made {
            Ok(rows) => Made { rows: rows.into_iter(), failure: None, _held: held },
            Err(e) => Made { rows: Vec::new().into_iter(), failure: Some(e), _held: held },
        }
    };
    Box::new(std::iter::once_with(made).flatten())
}

fn bytes_of(row: &RowOut) -> usize {
    ROW_BYTES
        + match &row.cells {
            Cells::Empty | Cells::One(_) => 0,
            Cells::Many(cells) => cells.len() * CELL_BYTES,
            Cells::Text(text) => text.len(),
        }
}

/// Rows that were made, and the memory for them until all are taken.
struct Made {
    rows: std::vec::IntoIter<RowOut>,
    failure: Option<String>,
    _held: Held,
}

impl Iterator for Made {
    type Item = Result<RowOut, String>;

    fn next(&mut self) -> Option<Self::Item> {
        self.failure.take().map(Err).or_else(|| self.rows.next().map(Ok))
    }
}
