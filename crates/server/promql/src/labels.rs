//! The labels of a series.

use std::cmp::Ordering;
use std::fmt;
use std::sync::Arc;

use promql_syntax::quote;
use series::Series;

/// The label that holds the name of the metric.
pub(crate) const NAME: &str = "__name__";
/// Labels that describe the metric, which an operation that changes its meaning drops.
pub(crate) const DESCRIBING: [&str; 3] = [NAME, "__type__", "__unit__"];

/// Names and values of labels, sorted by name. No value is empty. A copy shares its texts.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Labels {
    /// Value of [`NAME`]; empty if there is none.
    name: Arc<str>,
    /// All others.
    tags: Arc<[(String, String)]>,
}

impl Ord for Labels {
    fn cmp(&self, other: &Self) -> Ordering {
        self.iter().cmp(other.iter())
    }
}

impl PartialOrd for Labels {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Labels {
    /// Returns the labels of these pairs, without those that have no value.
    pub fn new(mut pairs: Vec<(String, String)>) -> Self {
        pairs.retain(|(_, value)| !value.is_empty());
        pairs.sort();
        let at = pairs.iter().position(|(name, _)| name == NAME);
        let name = at.map(|at| pairs.remove(at).1).unwrap_or_default();
        Self { name: name.into(), tags: pairs.into() }
    }

    /// Returns the labels of a series of the store, whose tags have values.
    pub fn of(series: &Series) -> Self {
        Self { name: Arc::clone(&series.metric), tags: Arc::clone(&series.tags) }
    }

    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        let at = self.tags.partition_point(|(tag, _)| tag.as_str() < NAME);
        let (before, after) = self.tags.split_at_checked(at).unwrap_or_default();
        let name = (!self.name.is_empty()).then_some((NAME, &*self.name));
        before.iter().map(pair).chain(name).chain(after.iter().map(pair))
    }

    /// Returns the value of a label; empty if there is none.
    pub fn get(&self, name: &str) -> &str {
        if name == NAME {
            return &self.name;
        }
        self.tags.iter().find(|(known, _)| known == name).map_or("", |(_, value)| value)
    }

    /// Sets a label, or removes it if the value is empty.
    pub fn set(&mut self, name: &str, value: &str) {
        if name == NAME {
            self.name = value.into();
            return;
        }
        let mut tags: Vec<_> =
            self.tags.iter().filter(|(known, _)| known != name).cloned().collect();
        if !value.is_empty() {
            let at = tags.partition_point(|(known, _)| known.as_str() < name);
            tags.insert(at, (name.to_owned(), value.to_owned()));
        }
        self.tags = tags.into();
    }

    /// Keeps the labels whose names pass a test.
    pub fn retain(&mut self, keeps: impl Fn(&str) -> bool) {
        if !keeps(NAME) {
            self.name = Arc::default();
        }
        if !self.tags.iter().all(|(name, _)| keeps(name)) {
            self.tags = self.tags.iter().filter(|(name, _)| keeps(name)).cloned().collect();
        }
    }

    /// Returns true if there are labels but the name that describe the metric.
    pub fn is_described(&self) -> bool {
        self.tags.iter().any(|(name, _)| DESCRIBING.contains(&name.as_str()))
    }

    /// Returns the labels without the name of the metric and what describes it.
    #[must_use]
    pub fn without_name(mut self) -> Self {
        self.retain(|name| !DESCRIBING.contains(&name));
        self
    }

    /// Returns the labels by which series are grouped or matched: these names only, or all others but
    /// the name of the metric.
    #[must_use]
    pub fn matching(&self, names: &[String], only: bool) -> Self {
        let named = |name: &str| names.iter().any(|known| known == name);
        let mut out = self.clone();
        out.retain(
            |name| {
                if only { named(name) } else { !named(name) && !DESCRIBING.contains(&name) }
            },
        );
        out
    }

    /// Estimates the memory, bytes.
    pub fn bytes(&self) -> usize {
        self.iter().map(|(name, value)| name.len() + value.len() + 48).sum()
    }
}

fn pair(tag: &(String, String)) -> (&str, &str) {
    (&tag.0, &tag.1)
}

impl fmt::Display for Labels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let pairs: Vec<String> = self
            .iter()
            .map(|(name, value)| (shown(name), quote(value.as_bytes())))
            .map(|(name, value)| format!("{name}={value}"))
            .collect();
        write!(f, "{{{}}}", pairs.join(", "))
    }
}

/// Returns the name of a label, in quotes unless every Prometheus takes it without.
fn shown(name: &str) -> String {
    let is_plain = |c: char| c == '_' || c.is_ascii_alphanumeric();
    if name.chars().all(is_plain) && !name.starts_with(|c: char| c.is_ascii_digit()) {
        name.to_owned()
    } else {
        quote(name.as_bytes())
    }
}
