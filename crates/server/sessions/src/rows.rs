//! `POST /series`: an agent's rows of metrics, into the series store (`docs/format/rows.md`).
//!
//! Answered 200 after everything is persisted. A row that is refused does not concern its
//! neighbours and is not asked for again: the answer counts it. Sending the same rows again changes
//! nothing.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::{Extension, Json};
use serde::{Deserialize, Serialize};
use series::{Ack, Batch, Store, Value, WriteError};
use tracing::warn;

use crate::answer::Refusal;
use crate::body;
use crate::identity::Peer;
use crate::server::App;

/// Most bytes of one request.
pub(crate) const ROWS_BYTES_MAX: usize = 4 << 20;
/// Why a store that refuses now may take later, seconds until it is worth another try.
const RETRY_SECONDS: u64 = 10;
/// The tag that says which agent a row is from; none that an agent names itself.
const AGENT_TAG: &str = "agent";

/// One look: a line of the body.
#[derive(Deserialize)]
struct Look {
    /// Nanoseconds since the epoch.
    time_ns: i64,
    /// Names with their values.
    rows: Vec<(String, Vec<f64>)>,
}

/// What became of a request.
#[derive(Serialize)]
pub(crate) struct Taken {
    rows: u64,
    refused: u64,
}

pub(crate) async fn rows(
    State(app): State<Arc<App>>,
    Extension(peer): Extension<Peer>,
    request: Request,
) -> Result<Json<Taken>, Refusal> {
    let (parts, incoming) = request.into_parts();
    let caller = app.caller(&peer, &parts.headers)?;
    app.seated(&peer, &parts.headers, &caller).await?;
    let Some(store) = app.options.series.clone() else {
        return Err(Refusal::busy("this server runs without a series store", RETRY_SECONDS));
    };
    let length = body::length(&parts.headers, ROWS_BYTES_MAX)?;
    let _share =
        app.budget.take(length).ok_or_else(|| app.busy("too many bytes in flight").closing())?;
    let bytes = body::read(incoming, length, app.options.timeouts.body).await?;
    let agent = caller.agent.to_string();
    let reading = tokio::task::spawn_blocking(move || {
        let read = read(&store, &agent, &bytes)?;
        Ok::<_, Refusal>((store, read))
    });
    let (store, (batches, taken)) = reading.await??;
    for batch in batches {
        store.write_async(batch, Ack::Persisted).await.map_err(|e| refused(&e))?;
    }
    metrics::counter!("holdfast_series_samples_total", "protocol" => "agent").increment(taken.rows);
    if taken.refused > 0 {
        warn!(agent = %caller.agent, refused = taken.refused, "rows of metrics were refused");
    }
    Ok(Json(taken))
}

fn refused(error: &WriteError) -> Refusal {
    Refusal::busy(format!("series: {error}"), RETRY_SECONDS)
}

/// The batches of a body, and how many rows are in them.
fn read(store: &Store, agent: &str, body: &[u8]) -> Result<(Vec<Batch>, Taken), Refusal> {
    let (mut batches, mut taken) = (vec![Batch::new()], Taken { rows: 0, refused: 0 });
    for line in body.split(|c| *c == b'\n').filter(|line| !line.is_empty()) {
        let look: Look = serde_json::from_slice(line)
            .map_err(|e| Refusal::invalid(format!("a line of rows: {e}")))?;
        for (name, values) in look.rows {
            match push(store, &mut batches, (&name, agent), look.time_ns, &values) {
                Some(()) => taken.rows += 1,
                None => taken.refused += 1,
            }
        }
    }
    Ok((batches, taken))
}

fn push(
    store: &Store,
    batches: &mut Vec<Batch>,
    (name, agent): (&str, &str),
    time_ns: i64,
    values: &[f64],
) -> Option<()> {
    // Too old, or at the end of time: the store would refuse the whole batch.
    if time_ns < store.oldest_ns() || time_ns > store.newest_ns() {
        return None;
    }
    let mut name = series::RowName::parse(name.as_bytes()).ok()?;
    if name.tags.iter().any(|(tag, _)| tag == AGENT_TAG) {
        return None;
    }
    name.tags.push((AGENT_TAG.into(), agent.into()));
    let name = series::RowName::new(name.metrics, name.tags).ok()?;
    let row = store.row_of(&name).ok().filter(|row| !row.is_events())?;
    let values: Vec<Value> = values.iter().map(|v| Value::F64(*v)).collect();
    let last = batches.last_mut()?;
    if matches!(last.push_values(row, time_ns, &values), Err(WriteError::TooLarge { .. })) {
        let mut next = Batch::new();
        next.push_values(row, time_ns, &values).ok()?;
        batches.push(next);
        return Some(());
    }
    (row.columns() == values.len()).then_some(())
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

    /// Rows taken and refused of looks at these times, a row each; what is taken is stored.
    fn counts(times: &[i64]) -> (u64, u64) {
        let (_folder, store) = store();
        let rows = r#""rows":[["load.1 cpu=all",[1]]]"#;
        let look = |time_ns: &i64| format!("{{\"time_ns\":{time_ns},{rows}}}\n");
        let body: Vec<String> = times.iter().map(look).collect();
        let (batches, taken) = read(&store, "1", body.concat().as_bytes()).unwrap();
        for batch in batches {
            store.write(batch, Ack::Persisted).unwrap();
        }
        (taken.rows, taken.refused)
    }

    #[test]
    fn a_row_at_the_end_of_time_is_refused_and_its_neighbours_are_stored() {
        assert_eq!(counts(&[7, i64::MAX, 8]), (2, 1));
    }

    #[test]
    fn a_row_more_than_a_day_ahead_of_the_clock_is_refused() {
        let hour_ns = 3_600_000_000_000;
        let (_folder, store) = store();
        let now_ns = store.newest_ns() - 24 * hour_ns;
        assert_eq!(counts(&[now_ns + 25 * hour_ns, now_ns, now_ns + 23 * hour_ns]), (2, 1));
    }
}
