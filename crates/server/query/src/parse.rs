//! Parses a query from JSON. Unknown and duplicate fields are errors.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use regex::Regex;
use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::{Value as Json, json};
use series::{Direction, NameKind, NameList, Series, Test, TimeRange};

use super::apply::Function;
use super::filter::Filter;
use super::func::Func;
use super::row::Column;
use crate::time::{parse_int, parse_iso, parse_rfc3339, parse_step};

/// Most metrics of one query.
const METRICS_MAX: usize = 256;

/// The kind of rows that a query returns.
#[derive(Debug, Clone)]
pub(crate) enum RowKind {
    Select(String),
    Events(String, Option<Regex>),
    Names(String),
    /// A list, and what its names begin with.
    Suggest(NameList, String),
    Join(Vec<String>),
    Aggregate(Vec<(String, Func)>),
    GroupAggregate {
        metrics: Vec<String>,
        funcs: Vec<Func>,
        step_ns: i64,
    },
    GroupAggregateJoin {
        metrics: Vec<String>,
        func: Func,
        step_ns: i64,
    },
}

impl RowKind {
    /// Returns the columns of each kind of line of the answer.
    pub(super) fn columns(&self) -> Vec<Arc<[Column]>> {
        let of = |metric: &String| Column::of(metric);
        let each = |metrics: &[String], funcs: &[Func]| -> Vec<Arc<[Column]>> {
            let by = |m: &String| funcs.iter().map(|f| Column::by(m, *f)).collect();
            metrics.iter().map(by).collect()
        };
        match self {
            Self::Names(_) | Self::Suggest(..) | Self::Events(..) => Vec::new(),
            Self::Select(metric) => vec![[of(metric)].into()],
            Self::Join(metrics) => vec![metrics.iter().map(of).collect()],
            Self::Aggregate(list) => {
                list.iter().map(|(metric, func)| [Column::by(metric, *func)].into()).collect()
            }
            Self::GroupAggregate { metrics, funcs, .. } => each(metrics, funcs),
            Self::GroupAggregateJoin { metrics, func, .. } => {
                vec![metrics.iter().map(|m| Column::joined(m, *func)).collect()]
            }
        }
    }
}

/// The tags that remain in the names of the answer. Series that get the same name are merged.
#[derive(Debug, Clone, Default)]
pub(super) enum Regroup {
    #[default]
    Keep,
    Pivot(Vec<String>),
    Drop(Vec<String>),
}

/// Tests of tags that a series must all pass.
pub(super) type TagTests = Vec<(String, Test)>;

/// Returns true if a series has only the tags that are tested.
pub(super) fn is_exactly(series: &Series, tests: &TagTests) -> bool {
    series.tags.iter().all(|(name, _)| tests.iter().any(|(tested, _)| tested == name))
}

#[derive(Debug, Clone)]
pub struct Query {
    pub(super) what: RowKind,
    pub(super) range: TimeRange,
    pub(super) direction: Direction,
    /// Sets of tests of tags. A series must pass one of the sets.
    pub(super) tags: Vec<TagTests>,
    /// True if a series must not have tags that are not tested.
    pub(super) exact: bool,
    pub(super) regroup: Regroup,
    pub(super) by_time: bool,
    pub(super) filter: Filter,
    pub(super) limit: Option<u64>,
    pub(super) offset: u64,
    pub(super) format: Format,
    pub(super) apply: Vec<Function>,
}

/// The fields of a JSON object in their order, including duplicates.
pub(super) struct Fields(pub(super) Vec<(String, Json)>);

struct Object;

impl<'de> Visitor<'de> for Object {
    type Value = Fields;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Fields, A::Error> {
        let mut fields = Vec::new();
        while let Some(field) = map.next_entry()? {
            fields.push(field);
        }
        Ok(Fields(fields))
    }
}

impl<'de> Deserialize<'de> for Fields {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(Object)
    }
}

impl Fields {
    pub(super) fn parse(body: &[u8]) -> Result<Self, String> {
        let fields: Self =
            serde_json::from_slice(body).map_err(|e| format!("Query is no JSON object: {e}"))?;
        let mut names: Vec<&str> = fields.0.iter().map(|(name, _)| &**name).collect();
        names.sort_unstable();
        match names.windows(2).find(|w| matches!(w, [a, b] if a == b)) {
            Some(twice) => Err(format!("Duplicate fields: {}", twice.join(", "))),
            None => Ok(fields),
        }
    }
}

pub(super) fn text(value: &Json, field: &str) -> Result<String, String> {
    value.as_str().map(str::to_owned).ok_or_else(|| format!("Field {field} is no string"))
}

/// Reads a string or a list of strings.
fn texts(value: &Json, field: &str) -> Result<Vec<String>, String> {
    let list = match value {
        Json::Array(list) => list.iter().map(|v| text(v, field)).collect::<Result<Vec<_>, _>>()?,
        one => vec![text(one, field)?],
    };
    if list.is_empty() || list.len() > METRICS_MAX {
        return Err(format!("Field {field} has {} entries; 1 to {METRICS_MAX}", list.len()));
    }
    Ok(list)
}

impl Query {
    fn new(what: RowKind) -> Self {
        Self {
            what,
            range: TimeRange::ALL,
            direction: Direction::Forward,
            tags: vec![Vec::new()],
            exact: false,
            regroup: Regroup::Keep,
            by_time: true,
            filter: Filter::default(),
            limit: None,
            offset: 0,
            format: Format::default(),
            apply: Vec::new(),
        }
    }

    /// Reads a search for names, `{"select": metric or "", "where", "limit", "offset", "output"}`.
    pub fn parse_search(body: &[u8]) -> Result<Self, String> {
        let (mut metric, mut query) = (None, Self::new(RowKind::Names(String::new())));
        for (name, value) in &Fields::parse(body)?.0 {
            match name.as_str() {
                "select" => metric = Some(text(value, "select")?),
                "where" | "limit" | "offset" | "output" => query.option(name, value)?,
                "range" => {}
                _ => return Err(format!("Unknown field: {name}")),
            }
        }
        let metric = metric.ok_or("Field select is missing")?;
        let metric = metric.trim_start_matches("meta:names").trim_start_matches(':');
        query.what = RowKind::Names(metric.to_owned());
        Ok(query)
    }

    /// Reads `{"select": "metric-names" | "tag-names" | "tag-values", "metric", "tag",
    /// "starts-with", "output"}`.
    pub fn parse_suggest(body: &[u8]) -> Result<Self, String> {
        let fields = Fields::parse(body)?.0;
        let mut query = Self::new(RowKind::Names(String::new()));
        for (name, value) in &fields {
            match name.as_str() {
                "select" | "metric" | "tag" | "starts-with" => {}
                "output" => query.option(name, value)?,
                _ => return Err(format!("Unknown field: {name}")),
            }
        }
        let field = |wanted: &str| {
            let value = fields.iter().find(|(name, _)| name == wanted);
            value.and_then(|(_, value)| Some(value.as_str()?.to_owned()))
        };
        let needed = |name: &str| field(name).ok_or_else(|| format!("Field {name} is missing"));
        let (kind, metric) = match needed("select")?.as_str() {
            "metric-names" => (NameKind::Metric, String::new()),
            "tag-names" => (NameKind::Tag, needed("metric")?),
            "tag-values" => (NameKind::Value(needed("tag")?), needed("metric")?),
            other => return Err(format!("Unknown select: {other}")),
        };
        let prefix = field("starts-with").unwrap_or_default();
        query.what = RowKind::Suggest(NameList { kind, metric }, prefix);
        Ok(query)
    }

    /// Reads a query.
    pub fn parse(body: &[u8]) -> Result<Self, String> {
        let fields = Fields::parse(body)?;
        let mut query = Self::new(RowKind::Names(String::new()));
        let (mut kinds, mut ranged, mut pattern) = (0, false, None);
        for (name, value) in &fields.0 {
            if let Some(what) = kind(name, value)? {
                query.what = what;
                kinds += 1;
                continue;
            }
            match name.as_str() {
                "range" => {
                    (query.range, query.direction) = read_range(value)?;
                    ranged = true;
                }
                "filter" if value.is_string() => pattern = Some(text(value, name)?),
                _ => query.option(name, value)?,
            }
        }
        if kinds != 1 {
            return Err("Query needs exactly one of select, select-events, aggregate, \
                        group-aggregate, join, group-aggregate-join"
                .into());
        }
        query.finish(ranged, pattern)
    }

    fn finish(mut self, ranged: bool, pattern: Option<String>) -> Result<Self, String> {
        let needed = !matches!(self.what, RowKind::Names(_) | RowKind::Aggregate(_));
        if needed && !ranged {
            return Err("Field range with from and to is missing".into());
        }
        match (&mut self.what, pattern) {
            (RowKind::Events(_, filter), Some(pattern)) => {
                *filter = Some(Regex::new(&pattern).map_err(|e| format!("Field filter: {e}"))?);
            }
            (_, Some(_)) => return Err("Field filter is no object".into()),
            _ => {}
        }
        self.check_columns()?;
        Ok(self)
    }

    /// Checks that the columns named in conditions and expressions exist: a condition on an unknown
    /// column would pass every row or none.
    fn check_columns(&self) -> Result<(), String> {
        let columns = self.what.columns();
        let known = |name: &str| columns.iter().flat_map(|c| c.iter()).any(|c| c.is(name));
        if !self.filter.is_empty() && columns.is_empty() {
            return Err(
                "Field filter: there are no values to compare; filter of select-events is \
                        a regular expression"
                    .into(),
            );
        }
        let bounded = self.filter.columns().map(|name| ("filter", name));
        let used = self.apply.iter().flat_map(Function::columns).map(|name| ("apply", name));
        for (field, name) in bounded.chain(used) {
            if !known(name) {
                let names = columns.iter().flat_map(|c| c.iter()).map(|c| c.name.as_str());
                let names: Vec<&str> = names.collect();
                let names = names.join(", ");
                return Err(format!("Field {field}: no column {name}; there are: {names}"));
            }
        }
        Ok(())
    }

    fn option(&mut self, name: &str, value: &Json) -> Result<(), String> {
        let number = || value.as_u64().ok_or_else(|| format!("Field {name} is no number"));
        match name {
            "where" => (self.tags, self.exact) = read_where(value)?,
            "pivot-by-tag" | "group-by" => self.regroup = Regroup::Pivot(texts(value, name)?),
            "group-by-tag" => self.regroup = Regroup::Drop(texts(value, name)?),
            "order-by" => {
                self.by_time = match value.as_str() {
                    Some("time") => true,
                    Some("series") => false,
                    _ => return Err("Field order-by is time or series".into()),
                }
            }
            "limit" => self.limit = Some(number()?),
            "offset" => self.offset = number()?,
            "filter" => self.filter = Filter::read(value)?,
            "output" => self.format = Format::read(value)?,
            "apply" => {
                let list = value.as_array().ok_or("Field apply is no list")?;
                for function in list {
                    self.apply.push(Function::read(function)?);
                }
                if self.apply.iter().filter_map(Function::share).count() > 1 {
                    return Err("Field apply has frequent-items or heavy-hitters once".into());
                }
            }
            // The value is an expression, or an object that contains one.
            "eval" => {
                let text = value.get("expr").unwrap_or(value);
                self.apply.push(Function::read(&json!({"name": "eval", "expr": text}))?);
            }
            _ => return Err(format!("Unknown field: {name}")),
        }
        Ok(())
    }
}

/// The format of an answer.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Format {
    pub(super) csv: bool,
    pub(super) raw_time: bool,
}

impl Format {
    pub(super) fn read(value: &Json) -> Result<Self, String> {
        let mut format = Self::default();
        for (name, value) in value.as_object().ok_or("Field output is no object")? {
            match (name.as_str(), value.as_str()) {
                ("format", Some("csv")) => format.csv = true,
                ("format", Some("resp")) => format.csv = false,
                ("timestamp", Some("raw")) => format.raw_time = true,
                ("timestamp", Some("iso")) => format.raw_time = false,
                _ => return Err(format!("Field output.{name} cannot be {value}")),
            }
        }
        Ok(format)
    }
}

/// Reads `{"from", "to"}`, times as text (also `now`) or numbers. The direction is backward if `from` is later
/// than `to`. `from` is included in the range and `to` is not.
pub(super) fn read_range(value: &Json) -> Result<(TimeRange, Direction), String> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let now_ns = i64::try_from(now.as_nanos()).unwrap_or(i64::MAX);
    let time = |end: &str| {
        let value = value.get(end).ok_or_else(|| format!("Field range.{end} is missing"))?;
        let time = match value {
            Json::String(text) if text == "now" => Some(now_ns),
            Json::String(text) => parse_iso(text.as_bytes())
                .or_else(|| parse_int(text.as_bytes()))
                .or_else(|| parse_rfc3339(text)),
            other => other.as_i64(),
        };
        time.ok_or_else(|| format!("Field range.{end} is no time: {value}"))
    };
    let (from, to) = (time("from")?, time("to")?);
    if from > to {
        let (from_ns, to_ns) = (to.saturating_add(1), from.saturating_add(1));
        return Ok((TimeRange { from_ns, to_ns }, Direction::Backward));
    }
    Ok((TimeRange { from_ns: from, to_ns: to }, Direction::Forward))
}

/// Returns the kind of query that a field requests, or `None` if it is another field.
fn kind(name: &str, value: &Json) -> Result<Option<RowKind>, String> {
    let part =
        |field: &str| value.get(field).ok_or_else(|| format!("Field {name}.{field} is missing"));
    let step_ns = || {
        let step = text(part("step")?, "step")?;
        parse_step(&step).ok_or_else(|| format!("Field {name}.step is no duration: {step}"))
    };
    Ok(Some(match name {
        "select" => {
            let metric = text(value, name)?;
            match metric.strip_prefix("meta:names") {
                Some(rest) => RowKind::Names(rest.trim_start_matches(':').to_owned()),
                None if metric.starts_with('!') => {
                    return Err("Events are read by select-events".into());
                }
                None => RowKind::Select(metric),
            }
        }
        "select-events" => {
            let metric = text(value, name)?;
            let metric = if metric.starts_with('!') { metric } else { format!("!{metric}") };
            RowKind::Events(metric, None)
        }
        "join" if value.is_string() => {
            return Err(format!("Field join is a list of metrics; write [{value}, ...]"));
        }
        "join" => RowKind::Join(texts(value, name)?),
        "aggregate" => {
            let pairs = value.as_object().ok_or("Field aggregate is no object")?;
            let mut list = Vec::new();
            for (metric, funcs) in pairs {
                for func in texts(funcs, "aggregate")? {
                    list.push((metric.clone(), Func::parse(&func)?));
                }
            }
            RowKind::Aggregate(list)
        }
        "group-aggregate" => {
            let metrics = texts(part("metric")?, "metric")?;
            let funcs = texts(part("func")?, "func")?;
            let funcs = funcs.iter().map(|f| Func::parse(f)).collect::<Result<_, _>>()?;
            RowKind::GroupAggregate { metrics, funcs, step_ns: step_ns()? }
        }
        "group-aggregate-join" => {
            let metrics = texts(part("metric")?, "metric")?;
            let funcs = texts(part("func")?, "func")?;
            let [func] = funcs.as_slice() else {
                return Err("Field group-aggregate-join.func is one function".into());
            };
            RowKind::GroupAggregateJoin { metrics, func: Func::parse(func)?, step_ns: step_ns()? }
        }
        _ => return Ok(None),
    }))
}

/// Reads `{tag: value | [values]}`, or a list of objects that each name all tags of a series. Also
/// returns true if it is a list.
pub(super) fn read_where(value: &Json) -> Result<(Vec<TagTests>, bool), String> {
    let (objects, exact) = match value {
        Json::Array(list) => (list.iter().collect(), true),
        one => (vec![one], false),
    };
    let mut sets = Vec::new();
    for object in objects {
        let pairs = object.as_object().ok_or("Field where is no object")?;
        let mut set = Vec::new();
        for (tag, values) in pairs {
            set.push((tag.clone(), Test::Is(texts(values, "where")?)));
        }
        sets.push(set);
    }
    Ok((sets, exact))
}
