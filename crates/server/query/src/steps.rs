//! Combines the summaries of several series, by steps or over the whole range.

use std::collections::BTreeMap;

use series::{Direction, Extreme, Found, Series, SeriesReadError, Snapshot, Summary, TimeRange};

use budget::Budget;

/// Memory of a combined step, in bytes: about that of its summary.
const STEP_BYTES: usize = 128;
/// Steps that are computed between two checks of the query's budget.
const STEPS_UNCHECKED_MAX: usize = 4096;

/// The result of reading a line, complete or not.
pub(super) struct Summed<T> {
    pub(super) found: T,
    /// The first read failure.
    pub(super) torn: Option<String>,
}

/// A range in steps of equal width.
#[derive(Debug, Clone, Copy)]
pub(super) struct Grid {
    pub(super) range: TimeRange,
    pub(super) step_ns: i64,
}

/// Steps with their summaries, in the direction of the query.
pub(super) type Steps = Vec<(i64, Summary)>;

/// Returns the result, complete or not, and stores the first failure in `torn`.
fn readable<T: std::fmt::Debug>(found: Found<T>, torn: &mut Option<String>) -> T {
    found.unwrap_or_else(|partial| {
        torn.get_or_insert_with(|| partial.error.to_string());
        partial.found
    })
}

/// Returns the summary of several series, or an error if the query must end.
pub(super) fn total(
    snapshot: &Snapshot,
    members: &[Series],
    range: TimeRange,
    budget: &Budget,
) -> Result<Summed<Option<Summary>>, String> {
    let (mut all, mut torn): (Option<Summary>, _) = (None, None);
    for series in members {
        budget.check()?;
        let some = readable(snapshot.summary(series, range), &mut torn);
        all = all.map_or(some, |all| Some(some.map_or(all, |some| all.with(&some))));
    }
    Ok(Summed { found: all, torn })
}

/// Returns summaries of several series by steps in which only the minimum or only the maximum is
/// valid. Most blocks need not be read for that.
pub(super) fn extremes(
    snapshot: &Snapshot,
    members: &[Series],
    grid: Grid,
    extreme: Extreme,
    budget: &Budget,
) -> Result<Summed<Steps>, String> {
    let (mut all, mut torn) = (BTreeMap::new(), None);
    for series in members {
        budget.check()?;
        if let Err(e) = snapshot.extremes(series, grid.range, grid.step_ns, extreme, &mut all) {
            torn.get_or_insert_with(|| e.to_string());
        }
    }
    Ok(Summed { found: all.into_iter().collect(), torn })
}

/// Returns the combined summaries of several series by steps. The steps are in the query's budget
/// only while this function runs: the caller reserves memory for what it keeps.
pub(super) fn all_steps(
    snapshot: &Snapshot,
    members: &[Series],
    grid: Grid,
    direction: Direction,
    budget: &Budget,
) -> Result<Summed<Steps>, String> {
    let (mut torn, mut held, mut count) = (None, budget.nothing(), 0);
    let mut more = || {
        count += 1;
        let due = count % STEPS_UNCHECKED_MAX == 0;
        !due || (budget.check().is_ok() && held.set(count * STEP_BYTES).is_ok())
    };
    if let [series] = members {
        budget.check()?;
        let mut steps: Steps = Vec::new();
        let each = |i, some| {
            steps.push((i, some));
            more()
        };
        let read = each_step(snapshot, series, grid, direction, each);
        budget.check()?;
        if let Err(e) = read {
            torn.get_or_insert_with(|| e.to_string());
        }
        if direction == Direction::Backward {
            steps.reverse();
        }
        return Ok(Summed { found: steps, torn });
    }
    let mut all: BTreeMap<i64, Summary> = BTreeMap::new();
    for series in members {
        budget.check()?;
        let each = |i, some: Summary| {
            let mut new = false;
            let here = all.entry(i).and_modify(|all| *all = all.with(&some));
            here.or_insert_with(|| {
                new = true;
                some
            });
            !new || more()
        };
        let read = each_step(snapshot, series, grid, direction, each);
        if let Err(e) = read {
            torn.get_or_insert_with(|| e.to_string());
        }
    }
    budget.check()?;
    Ok(Summed { found: all.into_iter().collect(), torn })
}

/// Calls `each` with the number and the summary of each step of one series, oldest first, until it
/// returns false. Steps are numbered in the direction of the query.
fn each_step(
    snapshot: &Snapshot,
    series: &Series,
    grid: Grid,
    direction: Direction,
    mut each: impl FnMut(i64, Summary) -> bool,
) -> Result<(), SeriesReadError> {
    let Grid { range, step_ns } = grid;
    if direction == Direction::Forward {
        return snapshot.each_step(series, range, step_ns, each);
    }
    // Steps begin at the newest time, so the oldest one may be shorter.
    let width = range.to_ns.saturating_sub(range.from_ns);
    let whole = width / step_ns;
    let aligned = TimeRange { from_ns: range.to_ns - whole * step_ns, to_ns: range.to_ns };
    let rest = TimeRange { from_ns: range.from_ns, to_ns: aligned.from_ns };
    let mut torn = Ok(());
    if rest.from_ns < rest.to_ns {
        let found = snapshot.summary(series, rest).unwrap_or_else(|partial| {
            torn = Err(partial.error);
            partial.found
        });
        if found.is_some_and(|some| !each(whole, some)) {
            return torn;
        }
    }
    torn.and(snapshot.each_step(series, aligned, step_ns, |i, some| each(whole - 1 - i, some)))
}
