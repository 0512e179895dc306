//! The warnings and infos of an answer, with the texts of Prometheus.

use std::collections::HashSet;

use promql_syntax::{ParseError, TextSpan};

/// Most warnings and most infos of an answer; the rest is counted.
const TOLD_MAX: usize = 10;
/// Most warnings and most infos that are counted.
const COUNTED_MAX: usize = 1000;

/// Texts with their places, in the order in which they came.
type List = Vec<(String, TextSpan)>;

/// The warnings and infos of a query, each once.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Annotations {
    warnings: List,
    plain: Vec<String>,
    infos: List,
    known: HashSet<String>,
}

impl Annotations {
    pub(crate) fn warn(&mut self, text: &str, span: TextSpan) {
        add(&mut self.warnings, &mut self.known, format!("PromQL warning: {text}"), span);
    }

    /// Adds a warning that is about no place in the query.
    pub fn warn_plain(&mut self, text: &str) {
        self.plain.push(text.to_owned());
    }

    pub(crate) fn info(&mut self, text: &str, span: TextSpan) {
        add(&mut self.infos, &mut self.known, format!("PromQL info: {text}"), span);
    }

    /// Returns the warnings with their places in the text of the query.
    pub fn warnings(&self, text: &str) -> Vec<String> {
        let mut all = formatted(&self.warnings, text, "warning");
        all.extend_from_slice(&self.plain);
        all
    }

    /// Returns the infos with their places in the text of the query.
    pub fn infos(&self, text: &str) -> Vec<String> {
        formatted(&self.infos, text, "info")
    }
}

fn add(list: &mut List, known: &mut HashSet<String>, text: String, span: TextSpan) {
    if list.len() < COUNTED_MAX && known.insert(text.clone()) {
        list.push((text, span));
    }
}

fn formatted(list: &[(String, TextSpan)], text: &str, kind: &str) -> Vec<String> {
    let placed = |(note, span): &(String, TextSpan)| {
        let place = ParseError::new(text, *span, "");
        format!("{note} ({}:{})", place.line, place.column)
    };
    let mut out: Vec<String> = list.iter().take(TOLD_MAX).map(placed).collect();
    if let Some(more) = list.len().checked_sub(TOLD_MAX).filter(|more| *more > 0) {
        out.push(format!("{more} more {kind} annotations omitted"));
    }
    out
}
