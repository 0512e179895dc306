//! From a query to lines of rows: series found, and grouped by the names of the answer.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use series::{Direction, RowName, Selector, Series, Snapshot, Store, Test};

use super::budget::{Budget, HeldMemory};
use super::merge::Joined;
use super::parse::{Query, Regroup, What, is_exactly};
use super::read::Reader;
use super::row::{Column, NamedRowSet, NamedRows, Rows};
use super::steps::{Summed, total};

/// Estimate of the memory of a series found and of its part in a line, in bytes.
const SERIES_BYTES: usize = 1024;

type Tags = Vec<(String, String)>;

/// Finds series, and holds the memory for them.
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

    /// Series of a metric by the tags their names keep.
    fn groups(&mut self, metric: &str) -> Result<BTreeMap<Tags, Vec<Series>>, String> {
        let query = self.query;
        let mut groups: BTreeMap<Tags, Vec<Series>> = BTreeMap::new();
        // One set of tests finds no series twice.
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

fn named(columns: &[Column], tags: &Tags) -> String {
    // Of an answer: it may be longer than names of series are, and have a metric twice.
    let metrics = columns.iter().map(|c| c.name.clone()).collect();
    RowName { metrics, tags: tags.clone() }.text()
}

fn line(columns: &Arc<[Column]>, tags: &Tags, rows: Rows) -> NamedRows {
    NamedRows { name: named(columns, tags), columns: Arc::clone(columns), rows }
}

/// The lines of a query's answer, sorted by name within each metric.
pub(super) fn lines(store: &Store, query: &Query, budget: &Budget) -> Result<NamedRowSet, String> {
    let snapshot = store.snapshot();
    let mut finder = Finder::new(store, &snapshot, query, budget);
    let reader = Reader::new(snapshot.clone(), query, budget);
    let mut lines = Vec::new();
    let columns = query.what.columns();
    match &query.what {
        What::Names(_) => {}
        What::Select(metric) => {
            for columns in &columns {
                for (tags, members) in finder.groups(metric)? {
                    lines.push(line(columns, &tags, reader.samples(members)));
                }
            }
        }
        What::Events(metric, filter) => {
            let columns: Arc<[Column]> = [Column::of(metric)].into();
            for (tags, members) in finder.groups(metric)? {
                let rows = reader.events(members, filter.as_ref());
                lines.push(line(&columns, &tags, rows));
            }
        }
        What::Aggregate(list) => {
            for ((metric, func), columns) in list.iter().zip(&columns) {
                for (tags, members) in finder.groups(metric)? {
                    lines.push(line(columns, &tags, reader.aggregate(members, *func)));
                }
            }
        }
        What::GroupAggregate { metrics, funcs, step_ns } => {
            for (metric, columns) in metrics.iter().zip(&columns) {
                for (tags, members) in finder.groups(metric)? {
                    let rows = reader.steps(members, funcs.clone(), *step_ns);
                    lines.push(line(columns, &tags, rows));
                }
            }
        }
        What::Join(metrics) => {
            let rows = |members| reader.samples(members);
            joined(&mut finder, metrics, &columns, rows, &mut lines)?;
        }
        What::GroupAggregateJoin { metrics, func, step_ns } => {
            let rows = |members| reader.steps(members, vec![*func], *step_ns);
            joined(&mut finder, metrics, &columns, rows, &mut lines)?;
        }
    }
    Ok(NamedRowSet { lines, held: finder.held })
}

/// Lines of a column per metric, one line per tags that any of the metrics has.
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
        lines.push(line(columns, &tags, Box::new(Joined::new(sources, backward))));
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
    // What is not found here is not found by the lines, which say why.
    let groups = finder.groups(metric).unwrap_or_default();
    let mut sums = Vec::with_capacity(groups.len());
    for (tags, members) in groups {
        let name = named(&columns, &tags);
        match total(&snapshot, &members, query.range, budget) {
            Ok(Summed { found: Some(all), torn: None }) => {
                sums.push(LineSum { name, sum: all.sum });
            }
            // It has nothing in the range.
            Ok(Summed { found: None, torn: None }) => {}
            _ => drop(failed.insert(name)),
        }
    }
    sums
}
