//! Finds the series of a query and groups them into the lines of the answer.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use series::{Direction, RowName, Selector, Series, Snapshot, Store, Test};

use super::merge::RowJoin;
use super::parse::{Query, Regroup, RowKind, is_exactly};
use super::read::Reader;
use super::row::{Column, NamedRowSet, NamedRows, Rows};
use super::steps::{Summed, total};
use budget::{Budget, HeldMemory};

/// Estimated memory of a matching series and its share of a line, in bytes.
const SERIES_BYTES: usize = 1024;

type Tags = Vec<(String, String)>;

/// Finds series, and reserves memory for all series found so far.
struct Finder<'a> {
    store: &'a Store,
    snapshot: &'a Snapshot,
    query: &'a Query,
    budget: &'a Budget,
    held: HeldMemory,
    found: usize,
}

impl<'a> Finder<'a> {
    fn new(store: &'a Store, snapshot: &'a Snapshot, query: &'a Query, budget: &'a Budget) -> Self {
        Self { store, snapshot, query, budget, held: budget.nothing(), found: 0 }
    }

    /// Returns the series of a metric, grouped by the tags that remain in the names of the answer.
    /// Adds them to the finder's memory reservation. Fails if the query must end.
    fn groups(&mut self, metric: &str) -> Result<BTreeMap<Tags, Vec<Series>>, String> {
        let query = self.query;
        let mut groups: BTreeMap<Tags, Vec<Series>> = BTreeMap::new();
        // Duplicates are possible only with several sets of tests.
        let mut seen = HashSet::new();
        let several = query.tags.len() > 1;
        for tags in &query.tags {
            self.budget.check()?;
            let selector = Selector { metric: Test::is(metric), tags: tags.clone() };
            let found = self.store.find_in(self.snapshot, &selector, query.range);
            self.found += found.len();
            self.held.set(self.found.saturating_mul(SERIES_BYTES))?;
            let mut is_meant = |series: &Series| {
                let exactly = !query.exact || is_exactly(series, tags);
                exactly && (!several || seen.insert(series.name()))
            };
            for series in found.into_iter().filter(&mut is_meant) {
                let stays = |name: &String| match &query.regroup {
                    Regroup::Keep => true,
                    Regroup::Pivot(keep) => keep.contains(name),
                    Regroup::Drop(drop) => !drop.contains(name),
                };
                let kept = series.tags.iter().filter(|(name, _)| stays(name)).cloned().collect();
                groups.entry(kept).or_default().push(series);
            }
        }
        Ok(groups)
    }
}

/// Returns the name of a line: its metrics and its tags.
fn named(columns: &[Column], tags: &Tags) -> String {
    // Unlike the name of a series, this one may exceed the length limit and repeat a metric.
    let metrics = columns.iter().map(|c| c.name.clone()).collect();
    RowName { metrics, tags: tags.clone() }.text()
}

fn line(columns: &Arc<[Column]>, tags: &Tags, rows: Rows) -> NamedRows {
    NamedRows { name: named(columns, tags), columns: Arc::clone(columns), rows }
}

/// Returns the lines of the answer, sorted by name within each metric.
pub(super) fn lines(store: &Store, query: &Query, budget: &Budget) -> Result<NamedRowSet, String> {
    let snapshot = store.snapshot();
    let mut finder = Finder::new(store, &snapshot, query, budget);
    let reader = Reader::new(snapshot.clone(), query, budget);
    let mut lines = Vec::new();
    let columns = query.what.columns();
    match &query.what {
        RowKind::Names(_) | RowKind::Suggest(..) => {}
        RowKind::Select(metric) => {
            for columns in &columns {
                for (tags, members) in finder.groups(metric)? {
                    lines.push(line(columns, &tags, reader.samples(members)));
                }
            }
        }
        RowKind::Events(metric, filter) => {
            let columns: Arc<[Column]> = [Column::of(metric)].into();
            for (tags, members) in finder.groups(metric)? {
                let rows = reader.events(members, filter.as_ref());
                lines.push(line(&columns, &tags, rows));
            }
        }
        RowKind::Aggregate(list) => {
            for ((metric, func), columns) in list.iter().zip(&columns) {
                for (tags, members) in finder.groups(metric)? {
                    lines.push(line(columns, &tags, reader.aggregate(members, *func)));
                }
            }
        }
        RowKind::GroupAggregate { metrics, funcs, step_ns } => {
            for (metric, columns) in metrics.iter().zip(&columns) {
                for (tags, members) in finder.groups(metric)? {
                    let rows = reader.steps(members, funcs.clone(), *step_ns);
                    lines.push(line(columns, &tags, rows));
                }
            }
        }
        RowKind::Join(metrics) => {
            let rows = |members| reader.samples(members);
            joined(&mut finder, metrics, &columns, rows, &mut lines)?;
        }
        RowKind::GroupAggregateJoin { metrics, func, step_ns } => {
            let rows = |members| reader.steps(members, vec![*func], *step_ns);
            joined(&mut finder, metrics, &columns, rows, &mut lines)?;
        }
    }
    Ok(NamedRowSet { lines, held: finder.held })
}

/// Adds one line for each set of tags that any of the metrics has, with one column per metric.
fn joined(
    finder: &mut Finder<'_>,
    metrics: &[String],
    columns: &[Arc<[Column]>],
    rows: impl Fn(Vec<Series>) -> Rows,
    lines: &mut Vec<NamedRows>,
) -> Result<(), String> {
    let mut by_tags: BTreeMap<Tags, Vec<Vec<Series>>> = BTreeMap::new();
    for (i, metric) in metrics.iter().enumerate() {
        for (tags, members) in finder.groups(metric)? {
            let slots = by_tags.entry(tags).or_insert_with(|| vec![Vec::new(); metrics.len()]);
            if let Some(slot) = slots.get_mut(i) {
                *slot = members;
            }
        }
    }
    let backward = finder.query.direction == Direction::Backward;
    for (columns, (tags, slots)) in columns.iter().cycle().zip(by_tags) {
        let sources = slots.into_iter().map(&rows).collect();
        lines.push(line(columns, &tags, Box::new(RowJoin::new(sources, backward))));
    }
    Ok(())
}

/// The sum of the samples of a line.
pub(super) struct LineSum {
    pub(super) name: String,
    pub(super) sum: f64,
}

/// Returns the sum of the samples of each line of a selected metric. The names of lines that
/// cannot be read are added to `failed`.
pub(super) fn sums(
    store: &Store,
    query: &Query,
    metric: &str,
    budget: &Budget,
    failed: &mut HashSet<String>,
) -> Vec<LineSum> {
    let snapshot = store.snapshot();
    let mut finder = Finder::new(store, &snapshot, query, budget);
    let columns = [Column::of(metric)];
    // If this fails, finding the lines fails too, and that error is reported.
    let groups = finder.groups(metric).unwrap_or_default();
    let mut sums = Vec::with_capacity(groups.len());
    for (tags, members) in groups {
        let name = named(&columns, &tags);
        match total(&snapshot, &members, query.range, budget) {
            Ok(Summed { found: Some(all), torn: None }) => {
                sums.push(LineSum { name, sum: all.sum });
            }
            // The line has no samples in the range.
            Ok(Summed { found: None, torn: None }) => {}
            _ => drop(failed.insert(name)),
        }
    }
    sums
}
