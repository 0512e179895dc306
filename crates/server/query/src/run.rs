//! Runs a query: filters, orders and writes its lines.

use std::collections::HashSet;
use std::sync::Arc;

use bytes::Bytes;
use series::{Direction, Store, Value};

use super::apply::{self, Function, Share};
use super::merge::Frontier;
use super::output::Output;
use super::parse::{Query, RowKind};
use super::plan::LineSum;
use super::row::{Cells, Column, NamedRowSet, NamedRows, RowOut, Rows};
use super::{meta, plan};
use budget::Budget;

/// Runs a query and passes pieces of the answer to `send`, which returns false to stop. Returns the
/// reason if the answer is incomplete, so that the client can see that more rows would have
/// followed. A query that fails before anything was sent is answered with the error alone.
#[must_use]
pub fn run(
    store: &Store,
    query: &Query,
    budget: &Budget,
    send: impl FnMut(Bytes) -> bool,
) -> Option<String> {
    let mut output = Output::new(query, send);
    let page = Page { offset: query.offset, left: query.limit.unwrap_or(u64::MAX) };
    let mut answer = Answer { page, output: &mut output, failures: Vec::new() };
    let done = match &query.what {
        _ if query.limit == Some(0) => Ok(()),
        RowKind::Suggest(list, prefix) => {
            meta::suggestions(store, list, prefix, budget, |name| answer.name(name))
        }
        RowKind::Names(metric) => {
            meta::names(store, metric, query, budget, |name| answer.name(name))
        }
        _ => rows(store, query, budget, &mut answer),
    };
    let Answer { failures, .. } = answer;
    let over = done.err().or_else(|| budget.over().map(str::to_owned));
    let alone = over.is_some() && output.take_back();
    for failure in failures.iter().filter(|failure| over.as_ref() != Some(*failure)) {
        output.error(failure);
    }
    if let Some(why) = &over {
        tracing::warn!("query: {why}");
        output.error(why);
    }
    output.end();
    over.filter(|_| !alone)
}

fn rows<F: FnMut(Bytes) -> bool>(
    store: &Store,
    query: &Query,
    budget: &Budget,
    answer: &mut Answer<'_, F>,
) -> Result<(), String> {
    let mut lines = prepared_lines(store, query, budget)?;
    let tops = query.apply.iter().filter_map(Function::top);
    if let Some(most) = tops.min() {
        let names = largest(store, query, budget, lines, most)?;
        lines = prepared_lines(store, query, budget)?;
        lines.lines.retain(|line| names.contains(&line.name));
    }
    if let Some(share) = query.apply.iter().find_map(Function::share) {
        lines.lines = with_share(lines.lines, share, budget)?;
    }
    let NamedRowSet { lines, held } = lines;
    // A row of `aggregate` is about its whole range, so a backward range does not turn the series
    // round.
    let is_aggregate = matches!(query.what, RowKind::Aggregate(_));
    if query.by_time && !(is_aggregate && query.direction == Direction::Backward) {
        by_time(lines, query, budget, answer);
    } else {
        by_name(lines, budget, answer);
    }
    drop(held);
    Ok(())
}

/// Returns the lines of a query with filter and functions applied.
fn prepared_lines(store: &Store, query: &Query, budget: &Budget) -> Result<NamedRowSet, String> {
    let mut lines = plan::lines(store, query, budget)?;
    for line in &mut lines.lines {
        let rows = std::mem::replace(&mut line.rows, Box::new(std::iter::empty()));
        line.rows = prepared(rows, &line.columns, query, budget);
    }
    Ok(lines)
}

/// Returns the names of the `most` lines with the largest sums of values. Lines that cannot be read
/// are included, so that the answer reports why.
fn largest(
    store: &Store,
    query: &Query,
    budget: &Budget,
    lines: NamedRowSet,
    most: usize,
) -> Result<HashSet<String>, String> {
    let mut names = HashSet::new();
    let untouched = query.filter.is_empty() && !query.apply.iter().any(Function::is_of_rows);
    let mut sums = match &query.what {
        // Blocks store their sums, so no sample is read.
        RowKind::Select(metric) if untouched => {
            plan::sums(store, query, metric, budget, &mut names)
        }
        _ => read_sums(lines, &mut names),
    };
    budget.check()?;
    // NaN sorts below every number.
    let size = |sum: f64| if sum.is_nan() { f64::NEG_INFINITY } else { sum };
    sums.sort_by(|a, b| size(b.sum).total_cmp(&size(a.sum)).then_with(|| a.name.cmp(&b.name)));
    names.extend(sums.into_iter().take(most).map(|line| line.name));
    Ok(names)
}

/// Returns the sum of each line that has values; the names of lines that cannot be read go to
/// `failed`.
fn read_sums(lines: NamedRowSet, failed: &mut HashSet<String>) -> Vec<LineSum> {
    let mut sums = Vec::new();
    for line in lines.lines {
        let mut sum = None;
        for row in line.rows {
            match row {
                Ok(row) => {
                    let values = apply::values(&row.cells);
                    *sum.get_or_insert(0.0) += values.iter().flatten().sum::<f64>();
                }
                Err(_) => drop(failed.insert(line.name.clone())),
            }
        }
        // A line without rows does not count towards `most`.
        sums.extend(sum.map(|sum| LineSum { name: line.name, sum }));
    }
    sums
}

/// A line with its weight.
struct WeightedLine {
    name: String,
    columns: Arc<[Column]>,
    weight: f64,
    /// The time of its last row.
    last_ns: i64,
    /// The read failures of the line.
    failures: Vec<Result<RowOut, String>>,
}

/// Returns one row for each line that has its share: the number of its samples or the sum of its
/// values, at the time of its last row. Read failures are included.
fn with_share(
    lines: Vec<NamedRows>,
    share: Share,
    budget: &Budget,
) -> Result<Vec<NamedRows>, String> {
    let (mut found, mut all) = (Vec::new(), 0.0);
    for NamedRows { name, columns, rows } in lines {
        budget.check()?;
        let (mut weight, mut last_ns, mut failures) = (0.0, i64::MIN, Vec::new());
        for row in rows {
            match row {
                Ok(row) => {
                    last_ns = last_ns.max(row.time_ns);
                    weight += share.of(&row.cells);
                }
                Err(e) => {
                    budget.check()?;
                    failures.push(Err(e));
                }
            }
        }
        all += if weight.is_nan() { 0.0 } else { weight };
        found.push(WeightedLine { name, columns, weight, last_ns, failures });
    }
    let line = |line: WeightedLine| {
        let has_share = line.weight > 0.0 && line.weight >= share.portion * all;
        let cells = Cells::One(Value::F64(line.weight));
        let mut rows = line.failures;
        rows.extend(has_share.then_some(Ok(RowOut { time_ns: line.last_ns, cells })));
        NamedRows { name: line.name, columns: line.columns, rows: Box::new(rows.into_iter()) }
    };
    Ok(found.into_iter().map(line).collect())
}

/// Rows that a filter reads between two checks of the query's budget.
const ROWS_UNCHECKED_MAX: u32 = 4096;

/// Applies the filter and the functions to rows.
fn prepared(rows: Rows, columns: &Arc<[Column]>, query: &Query, budget: &Budget) -> Rows {
    let mut rows = rows;
    if !query.filter.is_empty() {
        let (filter, columns, budget) = (query.filter.clone(), Arc::clone(columns), budget.clone());
        let mut looked = 0;
        rows = Box::new(rows.filter_map(move |row| {
            let row = match row {
                Ok(row) => row,
                Err(e) => return Some(Err(e)),
            };
            looked += 1;
            if looked % ROWS_UNCHECKED_MAX == 0
                && let Err(e) = budget.check()
            {
                return Some(Err(e));
            }
            filter.passes(&columns, &row.cells).then_some(Ok(row))
        }));
    }
    for function in query.apply.iter().filter(|f| f.is_of_rows()) {
        let mut function = function.start(columns);
        rows = Box::new(rows.filter_map(move |row| match row {
            Ok(row) => function.apply(row).map(Ok),
            Err(e) => Some(Err(e)),
        }));
    }
    rows
}

/// Writes the rows of all lines, one line after the other.
fn by_name<F: FnMut(Bytes) -> bool>(
    lines: Vec<NamedRows>,
    budget: &Budget,
    answer: &mut Answer<'_, F>,
) {
    for line in lines {
        let shown = answer.output.format_name(&line.name);
        for row in line.rows {
            if !answer.write_row(&shown, row) || budget.over().is_some() {
                return;
            }
        }
    }
}

/// Writes the rows of all lines by time, and rows of the same time by name.
fn by_time<F: FnMut(Bytes) -> bool>(
    lines: Vec<NamedRows>,
    query: &Query,
    budget: &Budget,
    answer: &mut Answer<'_, F>,
) {
    let shown = |line: NamedRows| (answer.output.format_name(&line.name), line.rows);
    let (names, sources): (Vec<String>, Vec<Rows>) = lines.into_iter().map(shown).unzip();
    let mut frontier = Frontier::new(sources, query.direction == Direction::Backward);
    while let Some(next) = frontier.next_row(None) {
        let on = match next {
            Ok((i, row)) => answer.write_row(names.get(i).map_or("", String::as_str), Ok(row)),
            Err(e) => answer.write_row("", Err(e)),
        };
        if !on || budget.over().is_some() {
            return;
        }
    }
}

/// Maximum number of failures that one answer reports.
const FAILURES_MAX: usize = 16;

/// Limit and offset.
struct Page {
    offset: u64,
    left: u64,
}

impl Page {
    /// Counts the next row. Returns true if it is on the page.
    fn admits(&mut self) -> bool {
        if self.offset > 0 {
            self.offset -= 1;
            return false;
        }
        self.left = self.left.saturating_sub(1);
        true
    }
}

/// An answer that is being written.
struct Answer<'a, F> {
    page: Page,
    output: &'a mut Output<F>,
    failures: Vec<String>,
}

impl<F: FnMut(Bytes) -> bool> Answer<'_, F> {
    /// Writes a row after its name if it is on the page. Returns false if no more rows are needed.
    fn write_row(&mut self, shown: &str, row: Result<RowOut, String>) -> bool {
        match row {
            Err(e) => {
                tracing::warn!("query: {e}");
                if self.failures.len() < FAILURES_MAX {
                    self.failures.push(e);
                }
                true
            }
            Ok(row) if self.page.admits() => self.output.row(shown, &row) && self.page.left > 0,
            Ok(_) => true,
        }
    }

    /// Writes only a name if it is on the page. Returns false if no more are needed.
    fn name(&mut self, name: &str) -> bool {
        !self.page.admits() || (self.output.name(name) && self.page.left > 0)
    }
}
