//! The labels of a series.

use std::fmt;

use promql_syntax::quote;

/// The label that holds the name of the metric.
pub(crate) const NAME: &str = "__name__";
/// Labels that describe the metric, which an operation that changes its meaning drops.
pub(crate) const DESCRIBING: [&str; 3] = [NAME, "__type__", "__unit__"];

/// Names and values of labels, sorted by name. No value is empty.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Labels(Vec<(String, String)>);

impl Labels {
    /// Returns the labels of these pairs, without those that have no value.
    pub fn new(mut pairs: Vec<(String, String)>) -> Self {
        pairs.retain(|(_, value)| !value.is_empty());
        pairs.sort();
        Self(pairs)
    }

    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, value)| (&**name, &**value))
    }

    /// Returns the value of a label; empty if there is none.
    pub fn get(&self, name: &str) -> &str {
        self.0.iter().find(|(known, _)| known == name).map_or("", |(_, value)| value)
    }

    /// Sets a label, or removes it if the value is empty.
    pub(crate) fn set(&mut self, name: &str, value: &str) {
        self.0.retain(|(known, _)| known != name);
        if !value.is_empty() {
            let at = self.0.partition_point(|(known, _)| known.as_str() < name);
            self.0.insert(at, (name.to_owned(), value.to_owned()));
        }
    }

    /// Keeps the labels whose names pass a test.
    pub(crate) fn retain(&mut self, keeps: impl Fn(&str) -> bool) {
        self.0.retain(|(name, _)| keeps(name));
    }

    /// Returns the labels without the name of the metric and what describes it.
    #[must_use]
    pub(crate) fn without_name(mut self) -> Self {
        self.retain(|name| !DESCRIBING.contains(&name));
        self
    }

    /// Returns the labels by which series are grouped or matched: these names only, or all others but
    /// the name of the metric.
    #[must_use]
    pub(crate) fn matching(&self, names: &[String], only: bool) -> Self {
        let mut out = self.clone();
        let named = |name: &str| names.iter().any(|known| known == name);
        out.retain(|name| if only { named(name) } else { !named(name) });
        if only { out } else { out.without_name() }
    }

    /// Estimates the memory, bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.0.iter().map(|(name, value)| name.len() + value.len() + 48).sum()
    }
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
