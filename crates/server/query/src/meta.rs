//! Searches, suggestions and deletion by the names of series, metrics and tags.

use series::{NameKind, NameList, Selector, Store, Test, TimeRange, WriteError};

use super::parse::{Fields, Query, TagTests, read_range, read_where, text};
use budget::Budget;

/// Memory of the names that are read at a time, in bytes. Every query may hold that much.
const PAGE_BYTES: usize = 12 << 20;
/// Number of suggestions that are read at a time.
const PAGE_COUNT: usize = 2048;

/// Calls `each` with the name of every series of a metric ("" for all metrics) that matches the
/// query's tag tests, in ascending order, until it returns false.
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
    let metric = Some(metric).filter(|metric| !metric.is_empty());
    let selectors = selectors(store, metric, query.tags.clone(), query.exact);
    let (mut after, mut held) = (String::new(), budget.nothing());
    loop {
        budget.check()?;
        held.set(PAGE_BYTES)?;
        let page = store.names_after(&selectors, &after, PAGE_BYTES);
        if !page.iter().all(|name| each(name)) {
            return Ok(());
        }
        let Some(last) = page.into_iter().next_back() else { return Ok(()) };
        after = last;
    }
}

/// Returns the selectors of a metric, or of all metrics, for sets of tag tests. With `exact`, a series must not have other tags.
fn selectors(
    store: &Store,
    metric: Option<&str>,
    sets: Vec<TagTests>,
    exact: bool,
) -> Vec<Selector> {
    let tags = NameList { kind: NameKind::Tag, metric: metric.unwrap_or_default().into() };
    let known = if exact { store.list(&tags, "", "", usize::MAX) } else { Vec::new() };
    let selector = |mut tags| {
        exclude_others(&mut tags, &known);
        Selector { metric: metric.map_or(Test::Any, Test::is), tags }
    };
    sets.into_iter().map(selector).collect()
}

/// Calls `each` with the names of a list that begin with `prefix`, in ascending order, until it
/// returns false.
///
/// # Errors
/// Returns an error if the query must end.
pub(super) fn suggestions(
    store: &Store,
    list: &NameList,
    prefix: &str,
    budget: &Budget,
    mut each: impl FnMut(&str) -> bool,
) -> Result<(), String> {
    let mut after = String::new();
    loop {
        budget.check()?;
        let page = store.list(list, prefix, &after, PAGE_COUNT);
        if !page.iter().all(|name| each(name)) {
            return Ok(());
        }
        let Some(last) = page.into_iter().next_back() else { return Ok(()) };
        after = last;
    }
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
    let mut deleted = 0;
    for selector in selectors(store, metric.as_deref(), sets, exact) {
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
