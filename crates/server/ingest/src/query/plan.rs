//! From a query to lines of rows: series found, grouped by the names of the answer, read lazily.
//! Aggregates are put together from the summaries of blocks.

use std::collections::{BTreeMap, HashSet};

use series::{
    Direction, RowName, Selector, Series, Snapshot, Store, Summary, Test, TimeRange, Value,
};

use super::parse::{Query, Regroup, What};
use super::{Cells, Joined, Line, Merged, RowOut, Rows};

/// What an aggregate says of samples.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Func {
    Count,
    Min,
    Max,
    Sum,
    Mean,
    First,
    Last,
    MinTimestamp,
    MaxTimestamp,
    FirstTimestamp,
    LastTimestamp,
}

/// Names of the aggregation functions.
const FUNCS: &[(&str, Func)] = &[
    ("count", Func::Count),
    ("min", Func::Min),
    ("max", Func::Max),
    ("sum", Func::Sum),
    ("mean", Func::Mean),
    ("first", Func::First),
    ("last", Func::Last),
    ("min_timestamp", Func::MinTimestamp),
    ("max_timestamp", Func::MaxTimestamp),
    ("first_timestamp", Func::FirstTimestamp),
    ("last_timestamp", Func::LastTimestamp),
];

impl Func {
    pub(super) fn parse(name: &str) -> Result<Self, String> {
        let found = FUNCS.iter().find(|(known, _)| *known == name);
        found.map(|(_, func)| *func).ok_or_else(|| format!("Unknown aggregation function: {name}"))
    }

    fn name(self) -> &'static str {
        FUNCS.iter().find(|(_, func)| *func == self).map_or("", |(name, _)| name)
    }

    /// Its time if it is one.
    fn time(self, s: &Summary) -> Option<i64> {
        Some(match self {
            Self::MinTimestamp => s.min_ns,
            Self::MaxTimestamp => s.max_ns,
            Self::FirstTimestamp => s.first_ns,
            Self::LastTimestamp => s.last_ns,
            _ => return None,
        })
    }

    fn value(self, s: &Summary) -> Value {
        Value::F64(match self {
            Self::Count => s.count as f64,
            Self::Min => s.min,
            Self::Max => s.max,
            Self::Sum => s.sum,
            Self::Mean => s.mean(),
            Self::First => s.first,
            Self::Last => s.last,
            Self::MinTimestamp
            | Self::MaxTimestamp
            | Self::FirstTimestamp
            | Self::LastTimestamp => {
                return Value::I64(self.time(s).unwrap_or_default());
            }
        })
    }
}

type Tags = Vec<(String, String)>;

/// Series of a metric by the tags their names keep.
fn groups(store: &Store, query: &Query, metric: &str) -> BTreeMap<Tags, Vec<Series>> {
    let mut groups: BTreeMap<Tags, Vec<Series>> = BTreeMap::new();
    // One set of tests finds no series twice.
    let mut seen = HashSet::new();
    let several = query.tags.len() > 1;
    for tags in &query.tags {
        let selector = Selector { metric: Test::is(metric), tags: tags.clone() };
        for series in store.find(&selector) {
            if several && !seen.insert(series.name()) {
                continue;
            }
            let stays = |name: &String| match &query.regroup {
                Regroup::Keep => true,
                Regroup::Pivot(keep) => keep.contains(name),
                Regroup::Drop(drop) => !drop.contains(name),
            };
            let kept = series.tags.iter().filter(|(name, _)| stays(name)).cloned().collect();
            groups.entry(kept).or_default().push(series);
        }
    }
    groups
}

fn named(columns: &[String], tags: &Tags) -> String {
    RowName::new(columns.to_vec(), tags.clone()).map_or_else(|_| columns.join("|"), |n| n.text())
}

fn line(columns: &[String], tags: &Tags, rows: Rows) -> Line {
    Line { name: named(columns, tags), columns: columns.to_vec(), rows }
}

/// The lines of a query's answer, sorted by name within each metric.
pub(super) fn lines(store: &Store, query: &Query) -> Vec<Line> {
    let reader =
        Reader { snapshot: store.snapshot(), range: query.range, direction: query.direction };
    let of = |metric: &str| groups(store, query, metric).into_iter();
    match &query.what {
        What::Names(_) => Vec::new(),
        What::Select(metric) => of(metric)
            .map(|(tags, members)| {
                line(std::slice::from_ref(metric), &tags, reader.samples(members))
            })
            .collect(),
        What::Events(metric, filter) => of(metric)
            .map(|(tags, members)| {
                let filter = filter.clone();
                let rows = reader.events(members).filter(move |row| match (row, &filter) {
                    (Ok(RowOut { cells: Cells::Text(text), .. }), Some(filter)) => {
                        filter.is_match(&String::from_utf8_lossy(text))
                    }
                    _ => true,
                });
                line(std::slice::from_ref(metric), &tags, Box::new(rows))
            })
            .collect(),
        What::Aggregate(list) => list
            .iter()
            .flat_map(|(metric, func)| of(metric).map(move |group| (metric, *func, group)))
            .map(|(metric, func, (tags, members))| {
                let column = format!("{metric}:{}", func.name());
                line(&[column], &tags, reader.aggregate(members, func))
            })
            .collect(),
        What::GroupAggregate { metrics, funcs, step_ns } => metrics
            .iter()
            .flat_map(|metric| of(metric).map(move |group| (metric, group)))
            .map(|(metric, (tags, members))| {
                let columns = funcs.iter().map(|f| format!("{metric}:{}", f.name()));
                let columns: Vec<String> = columns.collect();
                line(&columns, &tags, reader.steps(members, funcs.clone(), *step_ns))
            })
            .collect(),
        What::Join(metrics) => {
            joined(store, query, metrics, metrics, |members| reader.samples(members))
        }
        What::GroupAggregateJoin { metrics, func, step_ns } => {
            let columns = metrics.iter().map(|m| format!("{m}:{}", func.name()));
            let columns: Vec<String> = columns.collect();
            joined(store, query, metrics, &columns, |members| {
                reader.steps(members, vec![*func], *step_ns)
            })
        }
    }
}

/// Lines of a column per metric, one line per tags that any of the metrics has.
fn joined(
    store: &Store,
    query: &Query,
    metrics: &[String],
    columns: &[String],
    rows: impl Fn(Vec<Series>) -> Rows,
) -> Vec<Line> {
    let mut by_tags: BTreeMap<Tags, Vec<Vec<Series>>> = BTreeMap::new();
    for (i, metric) in metrics.iter().enumerate() {
        for (tags, members) in groups(store, query, metric) {
            let slots = by_tags.entry(tags).or_insert_with(|| vec![Vec::new(); metrics.len()]);
            if let Some(slot) = slots.get_mut(i) {
                *slot = members;
            }
        }
    }
    let backward = query.direction == Direction::Backward;
    let make = |(tags, slots): (Tags, Vec<Vec<Series>>)| {
        let sources = slots.into_iter().map(|members| rows(members).peekable()).collect();
        line(columns, &tags, Box::new(Joined { sources, backward }))
    };
    by_tags.into_iter().map(make).collect()
}

/// Reads series of one snapshot.
struct Reader {
    snapshot: Snapshot,
    range: TimeRange,
    direction: Direction,
}

impl Reader {
    fn merged(&self, mut sources: Vec<Rows>) -> Rows {
        match sources.len() {
            1 => sources.remove(0),
            _ => Box::new(Merged {
                sources: sources.into_iter().map(Iterator::peekable).collect(),
                backward: self.direction == Direction::Backward,
            }),
        }
    }

    fn samples(&self, members: Vec<Series>) -> Rows {
        let one = |series: Series| -> Rows {
            let (snapshot, range, direction) = (self.snapshot.clone(), self.range, self.direction);
            let runs = std::iter::once_with(move || snapshot.scan(&series, range, direction));
            Box::new(runs.flatten().flat_map(rows_of))
        };
        self.merged(members.into_iter().map(one).collect())
    }

    fn events(&self, members: Vec<Series>) -> Rows {
        let one = |series: Series| -> Rows {
            let (snapshot, range, direction) = (self.snapshot.clone(), self.range, self.direction);
            lazy(move || {
                let events =
                    snapshot.events(&series, range, direction).map_err(|e| e.to_string())?;
                let row =
                    |e: series::Event| RowOut { time_ns: e.time_ns, cells: Cells::Text(e.text) };
                Ok(events.into_iter().map(row).collect())
            })
        };
        self.merged(members.into_iter().map(one).collect())
    }

    fn aggregate(&self, members: Vec<Series>, func: Func) -> Rows {
        let (snapshot, range) = (self.snapshot.clone(), self.range);
        lazy(move || {
            let all = total(&snapshot, &members, range)?;
            let row = |s: Summary| match func.time(&s) {
                Some(time_ns) => RowOut { time_ns, cells: Cells::Empty },
                None => RowOut { time_ns: s.last_ns, cells: Cells::One(func.value(&s)) },
            };
            Ok(all.map(row).into_iter().collect())
        })
    }

    /// Rows of steps that begin at the range's first time in the direction of the query; a row's
    /// time is where its step begins.
    fn steps(&self, members: Vec<Series>, funcs: Vec<Func>, step_ns: i64) -> Rows {
        let (snapshot, range, direction) = (self.snapshot.clone(), self.range, self.direction);
        lazy(move || {
            let all = all_steps(&snapshot, &members, range, step_ns, direction)?;
            let begin =
                if direction == Direction::Forward { range.from_ns } else { range.to_ns - 1 };
            let sign = if direction == Direction::Forward { 1 } else { -1 };
            let row = |(i, s): (i64, Summary)| {
                let time_ns = begin.saturating_add(i.saturating_mul(step_ns) * sign);
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

/// The samples of a run.
fn rows_of(run: Result<series::Run, series::ReadError>) -> Rows {
    let run = match run {
        Ok(run) => run,
        Err(e) => return Box::new(std::iter::once(Err(e.to_string()))),
    };
    Box::new((0..run.times.len()).filter_map(move |i| {
        let (time, value) = (run.times.get(i)?, run.values.get(i)?);
        Some(Ok(RowOut { time_ns: *time, cells: Cells::One(value) }))
    }))
}

/// The summary of several series.
fn total(
    snapshot: &Snapshot,
    members: &[Series],
    range: TimeRange,
) -> Result<Option<Summary>, String> {
    let mut all: Option<Summary> = None;
    for series in members {
        let some = snapshot.summary(series, range).map_err(|e| e.to_string())?;
        all = all.map_or(some, |all| Some(some.map_or(all, |some| together(&all, &some))));
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
) -> Result<BTreeMap<i64, Summary>, String> {
    let mut all: BTreeMap<i64, Summary> = BTreeMap::new();
    for series in members {
        for (i, some) in stepped(snapshot, series, range, step_ns, direction)? {
            all.entry(i).and_modify(|all| *all = together(all, &some)).or_insert(some);
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
    let told = |e: series::ReadError| e.to_string();
    if direction == Direction::Forward {
        return snapshot.steps(series, range, step_ns).map_err(told);
    }
    // Steps are counted from the newest time: the oldest of them may be cut short.
    let width = range.to_ns.saturating_sub(range.from_ns);
    let whole = width / step_ns;
    let aligned = TimeRange { from_ns: range.to_ns - whole * step_ns, to_ns: range.to_ns };
    let steps = snapshot.steps(series, aligned, step_ns).map_err(told)?;
    let mut steps: Vec<_> = steps.into_iter().map(|(i, s)| (whole - 1 - i, s)).collect();
    let rest = TimeRange { from_ns: range.from_ns, to_ns: aligned.from_ns };
    if rest.from_ns < rest.to_ns {
        steps.extend(snapshot.summary(series, rest).map_err(told)?.map(|s| (whole, s)));
    }
    Ok(steps)
}

/// Rows that are made when the first of them is asked for.
fn lazy(make: impl FnOnce() -> Result<Vec<RowOut>, String> + Send + 'static) -> Rows {
    Box::new(std::iter::once_with(make).flat_map(|made| match made {
        Ok(rows) => rows.into_iter().map(Ok).collect::<Vec<_>>(),
        Err(e) => vec![Err(e)],
    }))
}

/// What is said of the samples of both, whichever came first.
fn together(a: &Summary, b: &Summary) -> Summary {
    let (mut early, late) = if a.first_ns <= b.first_ns { (*a, b) } else { (*b, a) };
    let (last, last_ns) = (early.last, early.last_ns);
    early.add(late);
    if last_ns > late.last_ns {
        (early.last, early.last_ns) = (last, last_ns);
    }
    early
}
