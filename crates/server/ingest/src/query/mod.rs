//! The query language of the query port: JSON objects in, rows as RESP or CSV out.
//!
//! [`Query::parse`] reads what is asked, [`plan`](plan::lines) finds series and makes one lazy line
//! of rows for each name of the answer, [`run`] orders, filters and writes them. Nothing is read
//! before the client takes it. What cannot be read of one series is told at the end of the answer;
//! the others are there.

mod apply;
mod eval;
mod meta;
mod output;
mod parse;
mod plan;

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashSet};

use bytes::Bytes;
use series::{Direction, Store, Value};

pub(crate) use apply::FUNCTIONS;
use apply::Function;
pub(crate) use meta::{DeleteError, delete, search, suggest};
use output::Output;
pub(crate) use parse::Query;
use parse::What;

/// One row of an answer.
#[derive(Debug, Clone, PartialEq)]
struct RowOut {
    time_ns: i64,
    cells: Cells,
}

/// The values of a row.
#[derive(Debug, Clone, PartialEq)]
enum Cells {
    /// A time says it all.
    Empty,
    One(Value),
    /// One for each column, some of them missing.
    Many(Vec<Option<Value>>),
    Text(Vec<u8>),
}

/// Rows on demand, in the direction of the query.
type Rows = Box<dyn Iterator<Item = Result<RowOut, String>> + Send>;

/// All rows of one name.
struct Line {
    name: String,
    /// Name of each column.
    columns: Vec<String>,
    rows: Rows,
}

/// Run a query; pieces of the answer go to `send`, which says whether to go on.
pub(crate) fn run(store: &Store, query: &Query, send: impl FnMut(Bytes) -> bool) {
    let mut output = Output::new(query, send);
    if let What::Names(metric) = &query.what {
        for name in meta::names(store, metric, query) {
            if !output.name(&name) {
                return;
            }
        }
        output.end();
        return;
    }
    let mut lines = prepared_lines(store, query);
    let tops = query.apply.iter().filter_map(Function::top);
    if let Some(most) = tops.min() {
        let names = largest(lines, most);
        lines = prepared_lines(store, query);
        lines.retain(|line| names.contains(&line.name));
    }
    let mut page = Page { offset: query.offset, left: query.limit.unwrap_or(u64::MAX) };
    let mut failures = Vec::new();
    if query.by_time {
        by_time(lines, query, &mut page, &mut output, &mut failures);
    } else {
        if query.direction == Direction::Backward {
            lines.reverse();
        }
        by_name(lines, &mut page, &mut output, &mut failures);
    }
    for failure in failures {
        output.error(&failure);
    }
    output.end();
}

/// The lines of a query, their rows behind filter and functions.
fn prepared_lines(store: &Store, query: &Query) -> Vec<Line> {
    let mut lines: Vec<Line> = plan::lines(store, query);
    for line in &mut lines {
        let rows = std::mem::replace(&mut line.rows, Box::new(std::iter::empty()));
        line.rows = prepared(rows, &line.columns, query);
    }
    lines
}

/// Names of the so many lines whose values sum up to most. Lines that cannot be read are among
/// them, so that the answer says why.
fn largest(lines: Vec<Line>, most: usize) -> HashSet<String> {
    let mut sums: Vec<(f64, String)> = Vec::new();
    let mut names = HashSet::new();
    for line in lines {
        let mut sum = 0.0;
        for row in line.rows {
            match row {
                Ok(row) => sum += apply::values(&row.cells).iter().flatten().sum::<f64>(),
                Err(_) => drop(names.insert(line.name.clone())),
            }
        }
        sums.push((sum, line.name));
    }
    sums.sort_by(|a, b| b.0.total_cmp(&a.0).then_with(|| a.1.cmp(&b.1)));
    names.extend(sums.into_iter().take(most).map(|(_, name)| name));
    names
}

/// Rows behind filter and functions.
fn prepared(rows: Rows, columns: &[String], query: &Query) -> Rows {
    let (filter, names) = (query.filter.clone(), columns.to_vec());
    let mut rows: Rows = Box::new(rows.filter(move |row| match row {
        Ok(row) => filter.passes(&names, &row.cells),
        Err(_) => true,
    }));
    for function in &query.apply {
        let mut function = function.start(columns);
        rows = Box::new(rows.filter_map(move |row| match row {
            Ok(row) => function.apply(row).map(Ok),
            Err(e) => Some(Err(e)),
        }));
    }
    rows
}

/// The rows of all lines, line after line.
fn by_name<F: FnMut(Bytes) -> bool>(
    lines: Vec<Line>,
    page: &mut Page,
    output: &mut Output<F>,
    failures: &mut Vec<String>,
) {
    for line in lines {
        for row in line.rows {
            if !page.take(&line.name, row, output, failures) {
                return;
            }
        }
    }
}

/// The rows of all lines by time, those of one time by name.
fn by_time<F: FnMut(Bytes) -> bool>(
    mut lines: Vec<Line>,
    query: &Query,
    page: &mut Page,
    output: &mut Output<F>,
    failures: &mut Vec<String>,
) {
    let backward = query.direction == Direction::Backward;
    let key = |time: i64, line: usize| {
        let time = i128::from(time);
        if backward { (-time, -(line as i64)) } else { (time, line as i64) }
    };
    let mut next = Vec::new();
    let mut heap = BinaryHeap::new();
    for (i, line) in lines.iter_mut().enumerate() {
        let row = first_good(&mut line.rows, failures);
        heap.extend(row.as_ref().map(|row| Reverse((key(row.time_ns, i), i))));
        next.push(row);
    }
    while let Some(Reverse((_, i))) = heap.pop() {
        let (Some(line), Some(slot)) = (lines.get_mut(i), next.get_mut(i)) else { return };
        let Some(row) = slot.take() else { continue };
        if !page.take(&line.name, Ok(row), output, failures) {
            return;
        }
        *slot = first_good(&mut line.rows, failures);
        heap.extend(slot.as_ref().map(|row| Reverse((key(row.time_ns, i), i))));
    }
}

/// The next row that can be read.
fn first_good(rows: &mut Rows, failures: &mut Vec<String>) -> Option<RowOut> {
    loop {
        match rows.next()? {
            Ok(row) => return Some(row),
            Err(e) => note(failures, e),
        }
    }
}

/// Most failures that one answer tells.
const FAILURES_MAX: usize = 16;

fn note(failures: &mut Vec<String>, failure: String) {
    tracing::warn!("query: {failure}");
    if failures.len() < FAILURES_MAX {
        failures.push(failure);
    }
}

/// Limit and offset.
struct Page {
    offset: u64,
    left: u64,
}

impl Page {
    /// Write a row if it is on the page; whether to go on.
    fn take<F: FnMut(Bytes) -> bool>(
        &mut self,
        name: &str,
        row: Result<RowOut, String>,
        output: &mut Output<F>,
        failures: &mut Vec<String>,
    ) -> bool {
        let row = match row {
            Ok(row) => row,
            Err(e) => {
                note(failures, e);
                return true;
            }
        };
        if self.left == 0 {
            return false;
        }
        if self.offset > 0 {
            self.offset -= 1;
            return true;
        }
        self.left -= 1;
        output.row(name, &row)
    }
}

/// Rows of several sources of one name, merged by time.
struct Merged {
    sources: Vec<std::iter::Peekable<Rows>>,
    backward: bool,
}

impl Iterator for Merged {
    type Item = Result<RowOut, String>;

    fn next(&mut self) -> Option<Self::Item> {
        let nearest = nearest(&mut self.sources, self.backward)?;
        self.sources.get_mut(nearest)?.next()
    }
}

/// The source whose row comes next; a failure comes before all rows.
fn nearest(sources: &mut [std::iter::Peekable<Rows>], backward: bool) -> Option<usize> {
    let key = |row: &Result<RowOut, String>| match row {
        Err(_) => i128::MIN,
        Ok(row) if backward => -i128::from(row.time_ns),
        Ok(row) => i128::from(row.time_ns),
    };
    let keys = sources.iter_mut().enumerate().filter_map(|(i, s)| Some((key(s.peek()?), i)));
    keys.min().map(|(_, i)| i)
}

/// One row per time of several single-valued sources, a column each.
struct Joined {
    sources: Vec<std::iter::Peekable<Rows>>,
    backward: bool,
}

impl Iterator for Joined {
    type Item = Result<RowOut, String>;

    fn next(&mut self) -> Option<Self::Item> {
        let nearest = nearest(&mut self.sources, self.backward)?;
        let source = self.sources.get_mut(nearest)?;
        let Some(Ok(RowOut { time_ns, .. })) = source.peek() else { return source.next() };
        let time_ns = *time_ns;
        let mut cells = Vec::with_capacity(self.sources.len());
        for source in &mut self.sources {
            let here = source.next_if(|row| row.as_ref().is_ok_and(|r| r.time_ns == time_ns));
            cells.push(match here {
                Some(Ok(RowOut { cells: Cells::One(value), .. })) => Some(value),
                _ => None,
            });
        }
        Some(Ok(RowOut { time_ns, cells: Cells::Many(cells) }))
    }
}

#[cfg(test)]
mod tests;
