//! Searches, suggestions and deletion by the names of series, metrics and tags.

use std::fmt::Write as _;

use serde_json::Value as Json;
use series::{Selector, Store, Test, TimeRange, WriteError};

use super::budget::Budget;
use super::output::quoted;
use super::parse::{Fields, Format, Query, TagTests, is_exactly, read_range, read_where, text};

/// Estimated memory of a matching series and its name, in bytes.
const SERIES_BYTES: usize = 1024;

/// Calls `each` with the name of every series of a metric ("" for all metrics) that matches the
/// query's tag tests, until it returns false. Names are sorted if there are several sets of tests.
///
/// # Errors
/// Returns an error if the query must end.
pub(super) fn names(
    store: &Store,
    metric: &str,
    query: &Query,
    budget: &Budget,
    mut each: impl FnMut(&str) -> bool,
) -> Result<(), String> {
    let metric = if metric.is_empty() { Test::Any } else { Test::is(metric) };
    let (mut names, mut held) = (Vec::new(), budget.nothing());
    let one = query.tags.len() == 1;
    budget.check()?;
    for tags in &query.tags {
        let selector = Selector { metric: metric.clone(), tags: tags.clone() };
        let found = store.find(&selector);
        held.set((names.len() + found.len()).saturating_mul(SERIES_BYTES))?;
        for series in found.iter().filter(|s| !query.exact || is_exactly(s, tags)) {
            if !one {
                names.push(series.name());
            } else if !each(&series.name()) {
                return Ok(());
            }
        }
    }
    names.sort();
    names.dedup();
    for name in names {
        if !each(&name) {
            break;
        }
    }
    Ok(())
}

fn lines(names: &[String], format: Format) -> String {
    let mut out = String::new();
    for name in names {
        // Writing to memory does not fail. A line cannot hold a line break.
        let _ = if format.csv {
            writeln!(out, "{}", quoted(name))
        } else if name.contains(['\r', '\n']) {
            write!(out, "${}\r\n{name}\r\n", name.len())
        } else {
            write!(out, "+{name}\r\n")
        };
    }
    out
}

/// Answers `{"select": "metric-names" | "tag-names" | "tag-values", "metric", "tag",
/// "starts-with", "output"}`.
pub fn suggest(store: &Store, body: &[u8]) -> Result<String, String> {
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
    let output = fields.iter().find(|(name, _)| name == "output").map(|(_, value)| value);
    let format = output.map_or(Ok(Format::default()), Format::read)?;
    let names = match needed("select")? {
        "metric-names" => store.metrics(prefix),
        "tag-names" => store.tag_names(needed("metric")?, prefix),
        "tag-values" => store.tag_values(needed("metric")?, needed("tag")?, prefix),
        other => return Err(format!("Unknown select: {other}")),
    };
    Ok(lines(&names, format))
}

/// The reason why a deletion failed. If the store refused it, some of the series may already be
/// deleted.
pub enum DeleteError {
    /// The request is invalid.
    Query(String),
    /// The store refused the deletion.
    Write(WriteError),
}

/// Executes `{"metric": name, "where": {...}, "range": {"from", "to"}}`: deletes the samples of the
/// matching series and returns the number of series. The range excludes its later end; without a
/// range all samples are deleted. Each object of a list in `where` names all tags of a series.
/// "metric" may be left out if `where` names a tag.
pub fn delete(store: &Store, body: &[u8]) -> Result<usize, DeleteError> {
    let (mut metric, mut sets, mut range) = (None, Vec::new(), TimeRange::ALL);
    let mut exact = false;
    let mut read = || -> Result<(), String> {
        for (name, value) in Fields::parse(body)?.0 {
            match name.as_str() {
                "metric" => metric = Some(text(&value, "metric")?),
                "where" => (sets, exact) = read_where(&value)?,
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
    let known =
        if exact { store.tag_names(metric.as_deref().unwrap_or(""), "") } else { Vec::new() };
    let metric = metric.map_or(Test::Any, |metric| Test::is(&metric));
    let mut deleted = 0;
    for mut tags in sets {
        exclude_others(&mut tags, &known);
        let selector = Selector { metric: metric.clone(), tags };
        deleted += store.find(&selector).len();
        store.delete(&selector, range).map_err(DeleteError::Write)?;
    }
    Ok(deleted)
}

/// Excludes series that have known tags other than the ones tested.
fn exclude_others(tags: &mut TagTests, known: &[String]) {
    let others: Vec<&String> =
        known.iter().filter(|name| tags.iter().all(|(tested, _)| tested != *name)).collect();
    tags.extend(others.into_iter().map(|name| (name.clone(), Test::is(""))));
}

#[cfg(test)]
mod tests {
    #[test]
    fn line_breaks_in_names_forge_no_line() {
        let names = ["plain", "a\r\n-error"].map(str::to_owned);
        let resp = super::Format::default();
        assert_eq!(super::lines(&names, resp), "+plain\r\n$9\r\na\r\n-error\r\n");
    }
}
