//! `POST /series`: stores an agent's rows of metrics in the series store (`docs/format/rows.md`).
//!
//! The answer is 200 after every accepted row is persisted. A refused row does not affect the
//! others and need not be sent again. The answer counts refused rows, and gives the reason for the
//! first one. If no row is accepted and some are too far ahead of the clock, the answer is 503, and
//! the agent keeps its rows. Sending the same rows again changes nothing.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::{Extension, Json};
use model::AgentId;
use serde::{Deserialize, Serialize};
use series::{Ack, Batch, NameError, Row, RowName, Store, Value, WriteError};
use tracing::warn;

use crate::answer::Refusal;
use crate::app::App;
use crate::body;
use crate::identity::Peer;

/// Most bytes of one request.
pub(crate) const ROWS_BYTES_MAX: usize = 4 << 20;
/// Value of Retry-After when the store refuses a request, seconds.
const RETRY_SECONDS: u64 = 10;
/// One line of the body: several rows of the same time.
#[derive(Deserialize)]
struct BodyLine {
    /// Nanoseconds since the epoch.
    time_ns: i64,
    /// Names and their values.
    rows: Vec<(String, Vec<f64>)>,
}

/// The outcome of a request.
#[derive(Serialize, Default)]
pub(crate) struct RowsOutcome {
    rows: u64,
    refused: u64,
    /// Reason for the first refused row.
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
    /// Number of refused rows that are more than a day ahead of the server's clock.
    #[serde(skip_serializing_if = "is_zero")]
    too_new: u64,
    /// A limit of series was reached.
    #[serde(skip)]
    limited: bool,
    /// The name of the first refused row.
    #[serde(skip)]
    first: String,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the signature is serde's")]
fn is_zero(n: &u64) -> bool {
    *n == 0
}

pub(crate) async fn rows(
    State(app): State<Arc<App>>,
    Extension(peer): Extension<Peer>,
    request: Request,
) -> Result<Json<RowsOutcome>, Refusal> {
    let (parts, incoming) = request.into_parts();
    let caller = app.caller(&peer, &parts.headers)?;
    app.admit_instance(&peer, &parts.headers, &caller).await?;
    let Some(store) = app.options.series.clone() else {
        return Err(Refusal::busy("this server runs without a series store", RETRY_SECONDS));
    };
    let length = body::length(&parts.headers, ROWS_BYTES_MAX)?;
    // The agent's lock is not taken, because rows have no order.
    let _permit = app.take_permit(caller.agent).map_err(Refusal::closing)?;
    let (bytes, _charge) = body::read(&app, &caller, incoming, length).await?;
    // If the agent was removed while the body arrived, the check below refuses it. While this guard
    // is held, a purge waits, so that it also deletes the rows stored here.
    let _storing = app.registry.storing_metrics().await;
    app.caller(&peer, &parts.headers)?;
    let agent = Owner { name: caller.agent.to_string(), series_max: app.options.agent_series_max };
    let reading = tokio::task::spawn_blocking(move || {
        let read = read(&store, &agent, &bytes)?;
        Ok::<_, Refusal>((store, read))
    });
    let (store, Parsed { batches, taken }) = reading.await??;
    if taken.rows == 0 && taken.too_new > 0 {
        // One of the two clocks is wrong. The agent keeps its rows until they agree.
        let detail =
            "all rows are more than a day ahead of the server's clock: set the clocks right";
        return Err(Refusal { error: "rows_too_new", ..Refusal::busy(detail, RETRY_SECONDS) });
    }
    for batch in batches {
        store.write_async(batch, Ack::Persisted).await.map_err(|e| refused(&e))?;
    }
    metrics::counter!("holdfast_series_samples_total", "protocol" => "agent").increment(taken.rows);
    if taken.refused > 0 {
        let limited = if taken.limited { "limit" } else { "row" };
        metrics::counter!(
            "holdfast_series_refused_total", "protocol" => "agent", "reason" => limited
        )
        .increment(taken.refused);
        let (refused, reason) = (taken.refused, taken.reason.as_deref().unwrap_or_default());
        let first = model::path::show_terminal(taken.first.as_bytes());
        warn!(agent = %caller.agent, refused, reason, first, "rows of metrics were refused");
    }
    Ok(Json(taken))
}

fn refused(error: &WriteError) -> Refusal {
    Refusal::busy(format!("series: {error}"), RETRY_SECONDS)
}

/// The agent that sent the rows.
struct Owner {
    /// The agent's number.
    name: String,
    /// Most series it may have.
    series_max: u64,
}

/// A parsed body.
struct Parsed {
    batches: Vec<Batch>,
    taken: RowsOutcome,
}

/// Returns the batches of a body.
fn read(store: &Store, agent: &Owner, body: &[u8]) -> Result<Parsed, Refusal> {
    let (mut batches, mut taken) = (vec![Batch::new()], RowsOutcome::default());
    // Read once, so that the same bounds apply to all rows of a request.
    let bounds = Bounds { oldest_ns: store.oldest_ns(), newest_ns: store.newest_ns() };
    for line in body.split(|c| *c == b'\n').filter(|line| !line.is_empty()) {
        let look: BodyLine = serde_json::from_slice(line)
            .map_err(|e| Refusal::invalid(format!("a line of rows: {e}")))?;
        for (name, values) in look.rows {
            // A refused row leaves no series behind, so its time and values are checked first.
            let pushed = bounds.check(look.time_ns).and_then(|()| {
                let row = row(store, &name, agent, values.len())?;
                push(&mut batches, row, look.time_ns, &values)
            });
            match pushed {
                Ok(()) => taken.rows += 1,
                Err(refused) => taken.refuse(&refused, &name),
            }
        }
    }
    Ok(Parsed { batches, taken })
}

/// The reason why a row is refused.
enum RefusedRow {
    /// The name is not one that an agent may use.
    Name,
    /// A limit of series was reached.
    Limit(String),
    /// The row is older than the retention.
    TooOld,
    /// The row is more than a day ahead of the server's clock.
    TooNew,
    /// The number of values does not match the name's metrics, or is too large for a batch.
    Values,
}

impl RowsOutcome {
    fn refuse(&mut self, why: &RefusedRow, name: &str) {
        if self.refused == 0 {
            name.clone_into(&mut self.first);
        }
        self.refused += 1;
        self.too_new += u64::from(matches!(why, RefusedRow::TooNew));
        self.limited |= matches!(why, RefusedRow::Limit(_));
        self.reason.get_or_insert_with(|| match why {
            RefusedRow::Limit(limit) => limit.clone(),
            RefusedRow::Name => "a name that no agent may use".into(),
            RefusedRow::TooOld => "older than retention keeps".into(),
            RefusedRow::TooNew => "more than a day ahead of the server's clock".into(),
            RefusedRow::Values => "not as many values as its name has metrics".into(),
        });
    }
}

/// Returns the row for a name that an agent sent with this number of values.
fn row(store: &Store, name: &str, agent: &Owner, values: usize) -> Result<Row, RefusedRow> {
    let fits = |columns: usize| if columns == values { Ok(()) } else { Err(RefusedRow::Values) };
    // A name never contains a line feed.
    let raw = [&*agent.name, "\n", name].concat();
    if let Some(row) = store.remembered_row(raw.as_bytes()) {
        return fits(row.columns()).map(|()| row);
    }
    let mut name = RowName::parse(name.as_bytes()).map_err(|_| RefusedRow::Name)?;
    if name.tags.iter().any(|(tag, _)| tag == AgentId::TAG) {
        return Err(RefusedRow::Name);
    }
    name.tags.push((AgentId::TAG.into(), agent.name.clone()));
    let name = RowName::new(name.metrics, name.tags).map_err(|_| RefusedRow::Name)?;
    if name.is_events() {
        return Err(RefusedRow::Name);
    }
    fits(name.metrics.len())?;
    match store.row_within(&name, AgentId::TAG, agent.series_max) {
        Ok(row) => {
            store.remember(raw.as_bytes(), row);
            Ok(row)
        }
        Err(e @ (NameError::QuotaReached { .. } | NameError::LimitReached { .. })) => {
            Err(RefusedRow::Limit(e.to_string()))
        }
        Err(_) => Err(RefusedRow::Name),
    }
}

/// The times that the store accepts, nanoseconds since the epoch.
struct Bounds {
    oldest_ns: i64,
    newest_ns: i64,
}

impl Bounds {
    /// Refuses a time for which the store would refuse the whole batch.
    fn check(&self, time_ns: i64) -> Result<(), RefusedRow> {
        if time_ns < self.oldest_ns {
            return Err(RefusedRow::TooOld);
        }
        if time_ns > self.newest_ns {
            return Err(RefusedRow::TooNew);
        }
        Ok(())
    }
}

fn push(
    batches: &mut Vec<Batch>,
    row: Row,
    time_ns: i64,
    values: &[f64],
) -> Result<(), RefusedRow> {
    let values: Vec<Value> = values.iter().map(|v| Value::F64(*v)).collect();
    let last = batches.last_mut().ok_or(RefusedRow::Values)?;
    if matches!(last.push_values(row, time_ns, &values), Err(WriteError::TooLarge { .. })) {
        let mut next = Batch::new();
        next.push_values(row, time_ns, &values).map_err(|_| RefusedRow::Values)?;
        batches.push(next);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use series::StoreOptions;

    use super::*;

    fn store() -> (tempfile::TempDir, Store) {
        let folder = tempfile::tempdir().unwrap();
        let options = StoreOptions { background: false, ..StoreOptions::default() };
        let (store, _) = Store::open(&folder.path().join("s"), options).unwrap();
        (folder, store)
    }

    fn owner(name: &str, series_max: u64) -> Owner {
        Owner { name: name.into(), series_max }
    }

    /// Returns the accepted and refused rows for samples at these times, one row each; stores the
    /// accepted.
    fn counts(times: &[i64]) -> (u64, u64) {
        let (_folder, store) = store();
        let rows = r#""rows":[["load.1 cpu=all",[1]]]"#;
        let look = |time_ns: &i64| format!("{{\"time_ns\":{time_ns},{rows}}}\n");
        let body: Vec<String> = times.iter().map(look).collect();
        let Parsed { batches, taken } =
            read(&store, &owner("1", 9), body.concat().as_bytes()).unwrap();
        for batch in batches {
            store.write(batch, Ack::Persisted).unwrap();
        }
        (taken.rows, taken.refused)
    }

    #[test]
    fn row_at_the_maximum_time_is_rejected_and_others_are_stored() {
        assert_eq!(counts(&[7, i64::MAX, 8]), (2, 1));
    }

    #[test]
    fn agent_at_series_limit_affects_no_other_or_existing_series() {
        let (_folder, store) = store();
        let told = |agent: &Owner, names: &[&str]| {
            let rows: Vec<String> = names.iter().map(|n| format!("[{n:?},[1,2]]")).collect();
            let body = format!("{{\"time_ns\":7,\"rows\":[{}]}}", rows.join(","));
            let Parsed { batches, taken } = read(&store, agent, body.as_bytes()).unwrap();
            for batch in batches {
                store.write(batch, Ack::Persisted).unwrap();
            }
            taken
        };
        let (greedy, other) = (owner("1", 5), owner("2", 5));
        let taken = told(&greedy, &["a|b n=1", "a|b n=2", "a|b n=3", "a|b n=1", "a|b agent=2"]);
        assert_eq!((taken.rows, taken.refused), (3, 2));
        let reason = taken.reason.unwrap();
        assert!(reason.contains("limit of 5 reached by agent=1"), "{reason}");
        let taken = told(&other, &["a|b n=1", "a|b n=2"]);
        assert_eq!((taken.rows, taken.refused, taken.reason), (2, 0, None));
        // The agent's existing series still accept rows.
        assert_eq!(told(&greedy, &["a|b n=2"]).rows, 1);
        assert_eq!(store.stats().series, 8);
    }

    #[test]
    fn refused_agent_row_is_counted_with_its_reason() {
        let (_folder, store) = store();
        let new_ns = store.newest_ns() + 1_000_000_000;
        let body = format!(
            "{{\"time_ns\":{new_ns},\"rows\":[[\"load.1 cpu=all\",[1]],[\"load.1 cpu=0\",[1]]]}}\n\
             {{\"time_ns\":7,\"rows\":[[\"load.1 cpu=all\",[1,2]]]}}\n"
        );
        let taken = read(&store, &owner("1", 9), body.as_bytes()).unwrap().taken;
        assert_eq!((taken.rows, taken.refused, taken.too_new), (0, 3, 2));
        assert_eq!(taken.reason.unwrap(), "more than a day ahead of the server's clock");
        let body = "{\"time_ns\":7,\"rows\":[[\"load.1 cpu=all\",[1,2]]]}\n";
        let taken = read(&store, &owner("1", 9), body.as_bytes()).unwrap().taken;
        assert!(taken.reason.unwrap().contains("not as many values"));
    }

    #[test]
    fn agent_row_more_than_a_day_in_the_future_is_refused() {
        let hour_ns = 3_600_000_000_000;
        let (_folder, store) = store();
        let now_ns = store.newest_ns() - 24 * hour_ns;
        assert_eq!(counts(&[now_ns + 25 * hour_ns, now_ns, now_ns + 23 * hour_ns]), (2, 1));
    }
}
