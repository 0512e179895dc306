//! The labels of series: `series`, `labels` and `label/NAME/values`. With `start` or `end`, the series
//! are those that may have samples in that range, by the times of partitions in parts, and by those of
//! chunks in memory.

use std::collections::BTreeSet;

use axum::extract::{Path, State};
use budget::Budget;
use promql::{Annotations, Labels};
use promql_syntax::{ExprKind, LabelMatcher, parse};
use serde_json::json;
use series::TimeRange;

use crate::form::Form;
use crate::query_queue::TIMEOUT;
use crate::{AnswerData, QueryState, Refusal, SELECTORS_MAX, plain, query};

/// The version of the reference. Clients choose by it what they ask for.
const REFERENCE: &str = "3.16.0";

/// Answers with the labels of each series that passes one of the selectors.
pub(crate) async fn series(
    State(served): State<QueryState>,
    form: Form,
) -> Result<AnswerData, Refusal> {
    if form.texts("match[]")?.is_empty() {
        return Err(Refusal::bad_data("no match[] parameter provided"));
    }
    let write = |labels: &Labels| {
        let pairs = labels.iter().map(|(name, value)| (name.to_owned(), json!(value)));
        [serde_json::Value::Object(pairs.collect()).to_string()].to_vec()
    };
    list(&served, &form, write).await
}

/// Answers with the names of labels.
pub(crate) async fn labels(
    State(served): State<QueryState>,
    form: Form,
) -> Result<AnswerData, Refusal> {
    let write = |labels: &Labels| labels.iter().map(|(name, _)| json!(name).to_string()).collect();
    list(&served, &form, write).await
}

/// Answers with the values of a label, whose name may be written in the escape of Prometheus.
pub(crate) async fn values(
    State(served): State<QueryState>,
    Path(name): Path<String>,
    form: Form,
) -> Result<AnswerData, Refusal> {
    let name = unescaped(&name);
    let write = move |labels: &Labels| {
        let value = labels.get(&name);
        if value.is_empty() { Vec::new() } else { vec![json!(value).to_string()] }
    };
    list(&served, &form, write).await
}

/// Answers with the version of the reference; our own is the revision.
pub(crate) async fn buildinfo() -> AnswerData {
    let data = json!({
        "version": REFERENCE, "revision": concat!("holdfast-", env!("CARGO_PKG_VERSION")),
        "branch": "", "buildUser": "", "buildDate": "", "goVersion": "",
    });
    plain(data.to_string())
}

/// Returns a sorted list of what is written of each series, each once.
async fn list(
    served: &QueryState,
    form: &Form,
    write: impl Fn(&Labels) -> Vec<String> + Send + 'static,
) -> Result<AnswerData, Refusal> {
    let (selectors, limit) = (form.texts("match[]")?, form.limit()?);
    let (range, timeout) = (range(form)?, form.timeout(TIMEOUT)?);
    let (store, memory) = (served.store.clone(), served.turns.memory.clone());
    let turn = move |client: crate::query_queue::Client| {
        let budget = Budget::new(timeout, memory.clone(), move || client.is_gone());
        if selectors.len() > SELECTORS_MAX {
            let reason =
                format!("{} selectors; at most {SELECTORS_MAX} are allowed", selectors.len());
            return Err(Refusal::parameter("match[]", reason));
        }
        // Each is read when its turn comes: 64 compiled regexps would be much memory.
        let mut all: Vec<_> = selectors.iter().map(Some).collect();
        if all.is_empty() {
            all.push(None);
        }
        let failed = |error| query::refusal(error, &budget);
        let mut found: BTreeSet<String> = BTreeSet::new();
        let (mut held, mut bytes) = (budget.nothing(), 0);
        for selector in all {
            let wanted = match selector {
                Some(text) => matchers(text)?,
                None => Vec::new(),
            };
            let (series, _held) = promql::find(&store, &wanted, range, &budget).map_err(failed)?;
            for text in series.iter().flat_map(|(labels, _)| write(labels)) {
                let length = text.len() + 48;
                bytes += length * usize::from(found.insert(text));
                held.set(bytes).map_err(promql::QueryError::Over).map_err(failed)?;
            }
        }
        let cut = limit > 0 && found.len() > limit;
        let kept = if cut { limit } else { found.len() };
        // The list and its text are in memory at the same time.
        held.set(2 * bytes).map_err(promql::QueryError::Over).map_err(failed)?;
        query::check_unread(&memory, bytes)?;
        let mut data = String::from("[");
        for text in found.into_iter().take(kept) {
            data.push_str(if data.len() > 1 { "," } else { "" });
            data.push_str(&text);
        }
        data.push(']');
        held.set(bytes).map_err(promql::QueryError::Over).map_err(failed)?;
        let mut notes = Annotations::default();
        if cut {
            notes.warn_plain("results truncated due to limit");
        }
        Ok(AnswerData { data, notes, query: String::new(), held: Some(held) })
    };
    served.turns.run(timeout, turn).await
}

/// Returns the range from `start` to `end`, both included; `None` if neither is given.
fn range(form: &Form) -> Result<Option<TimeRange>, Refusal> {
    let (start, end) = (form.time("start")?, form.time("end")?);
    let nanoseconds = |ms: i64| ms.saturating_mul(1_000_000);
    let from_ns = start.map_or(i64::MIN, nanoseconds);
    let to_ns = end.map_or(i64::MAX, |end| nanoseconds(end.saturating_add(1)));
    Ok(start.or(end).map(|_| TimeRange { from_ns, to_ns }))
}

/// Returns the matchers of a selector.
fn matchers(text: &str) -> Result<Vec<LabelMatcher>, Refusal> {
    let expr = parse(text).map_err(|error| Refusal::parameter("match[]", error))?;
    match expr.kind {
        ExprKind::Vector(selector) if expr.span.end > 0 => Ok(selector.matchers),
        _ => Err(Refusal::parameter("match[]", "only a selector of series is allowed")),
    }
}

/// Returns a name without the escape of Prometheus: `U__`, then `_HEX_` for a character, `__` for `_`.
fn unescaped(name: &str) -> String {
    let Some(escaped) = name.strip_prefix("U__") else { return name.to_owned() };
    let mut out = String::new();
    let mut rest = escaped;
    while let Some((plain, after)) = rest.split_once('_') {
        out.push_str(plain);
        if let Some(after) = after.strip_prefix('_') {
            out.push('_');
            rest = after;
            continue;
        }
        let code = after.split_once('_');
        let decoded = code.and_then(|(hex, after)| {
            let c = u32::from_str_radix(hex, 16).ok().and_then(char::from_u32)?;
            Some((c, after))
        });
        // Not an escape: the name means itself.
        let Some((c, after)) = decoded else { return name.to_owned() };
        out.push(c);
        rest = after;
    }
    out.push_str(rest);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escaped_name_is_read() {
        for (escaped, name) in [
            ("U__cpu_2e_user", "cpu.user"),
            ("U__a__b", "a_b"),
            ("plain_name", "plain_name"),
            ("U__bad_zz", "U__bad_zz"),
        ] {
            assert_eq!(unescaped(escaped), name);
        }
    }
}
