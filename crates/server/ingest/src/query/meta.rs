//! Names of series, metrics and tags.

use std::fmt::Write as _;

use serde_json::Value as Json;
use series::{Selector, Store, Test, TimeRange, WriteError};

use super::Query;
use super::parse::{Fields, read_range, read_where, text};

/// Names of series of a metric ("": of all) that pass a query's tests of tags.
pub(super) fn names(store: &Store, metric: &str, query: &Query) -> Vec<String> {
    find(store, metric, &query.tags)
}

fn find(store: &Store, metric: &str, sets: &[Vec<(String, Test)>]) -> Vec<String> {
    let metric = if metric.is_empty() { Test::Any } else { Test::is(metric) };
    let mut names = Vec::new();
    for tags in sets {
        let selector = Selector { metric: metric.clone(), tags: tags.clone() };
        names.extend(store.find(&selector).iter().map(series::Series::name));
    }
    names.sort();
    names.dedup();
    names
}

fn lines(names: &[String]) -> String {
    let mut out = String::new();
    for name in names {
        // Writing to memory does not fail.
        let _ = write!(out, "+{name}\r\n");
    }
    out
}

/// `{"select": metric or "", "where": {...}}`: names of series.
pub(crate) fn search(store: &Store, body: &[u8]) -> Result<String, String> {
    let (mut metric, mut sets) = (None, vec![Vec::new()]);
    for (name, value) in Fields::parse(body)?.0 {
        match name.as_str() {
            "select" => metric = Some(text(&value, "select")?),
            "where" => sets = read_where(&value)?,
            "output" | "range" | "limit" | "offset" => {}
            _ => return Err(format!("Unknown field: {name}")),
        }
    }
    let metric = metric.ok_or("Field select is missing")?;
    let metric = metric.trim_start_matches("meta:names").trim_start_matches(':');
    Ok(lines(&find(store, metric, &sets)))
}

/// `{"select": "metric-names" | "tag-names" | "tag-values", "metric", "tag", "starts-with"}`.
pub(crate) fn suggest(store: &Store, body: &[u8]) -> Result<String, String> {
    let fields = Fields::parse(body)?.0;
    for (name, _) in &fields {
        if !["select", "metric", "tag", "starts-with", "output"].contains(&name.as_str()) {
            return Err(format!("Unknown field: {name}"));
        }
    }
    let field = |wanted: &str| {
        fields.iter().find(|(name, _)| name == wanted).and_then(|(_, value)| Json::as_str(value))
    };
    let needed = |name: &str| field(name).ok_or_else(|| format!("Field {name} is missing"));
    let prefix = field("starts-with").unwrap_or_default();
    Ok(lines(&match needed("select")? {
        "metric-names" => store.metrics(prefix),
        "tag-names" => store.tag_names(needed("metric")?, prefix),
        "tag-values" => store.tag_values(needed("metric")?, needed("tag")?, prefix),
        other => return Err(format!("Unknown select: {other}")),
    }))
}

/// Why nothing, or not all, was deleted.
pub(crate) enum DeleteError {
    /// The request makes no sense.
    Query(String),
    /// The store refuses.
    Write(WriteError),
}

/// `{"metric": name, "where": {...}, "range": {"from", "to"}}`: delete what series of the metric
/// hold in the range (exclusive of its later end); the number of series. Without a range all they
/// hold; the metric may only be left out where there are tags to choose by.
pub(crate) fn delete(store: &Store, body: &[u8]) -> Result<usize, DeleteError> {
    let (mut metric, mut sets, mut range) = (None, Vec::new(), TimeRange::ALL);
    let mut read = || -> Result<(), String> {
        for (name, value) in Fields::parse(body)?.0 {
            match name.as_str() {
                "metric" => metric = Some(text(&value, "metric")?),
                "where" => sets = read_where(&value)?,
                "range" => range = read_range(&value)?.0,
                _ => return Err(format!("Unknown field: {name}")),
            }
        }
        Ok(())
    };
    read().map_err(DeleteError::Query)?;
    let chosen = metric.is_some() || (!sets.is_empty() && sets.iter().all(|set| !set.is_empty()));
    if !chosen {
        return Err(DeleteError::Query("Name a metric, or tags in where".into()));
    }
    if sets.is_empty() {
        sets.push(Vec::new());
    }
    let metric = metric.map_or(Test::Any, |metric| Test::is(&metric));
    let mut deleted = 0;
    for tags in sets {
        let selector = Selector { metric: metric.clone(), tags };
        deleted += store.find(&selector).len();
        store.delete(&selector, range).map_err(DeleteError::Write)?;
    }
    Ok(deleted)
}
