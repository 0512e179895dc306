//! Remote read: `POST /read`, as the samples of all series in one message, or streamed as chunks.
//!
//! A request has at most 64 queries. Of several samples in one millisecond the last one is returned.
//! Markers of the end of a series are returned as they are. Errors are plain text, which Prometheus
//! shows.

mod chunks;
mod encode;
mod request;
mod samples;
mod xor;

use axum::extract::State;
use axum::http::{Version, header};
use axum::response::{IntoResponse as _, Response};
use budget::Budget;
use bytes::Bytes;
use promql::{Labels, QueryError};
use series::{Direction, Series, Snapshot, Store};

use crate::query_queue::TIMEOUT;
use crate::stream::BodySender;
use crate::{QueryState, Refusal, query};
use chunks::ChunkWriter;
use request::{Request, ResponseType, SeriesRequest};
use samples::SampleWriter;

/// Answers with the samples of the series that each query selects.
pub(crate) async fn read(
    State(served): State<QueryState>,
    version: Version,
    body: Bytes,
) -> Response {
    let answer = answer(&served, version, &body).await;
    answer.unwrap_or_else(|refusal| (refusal.status, refusal.text).into_response())
}

async fn answer(served: &QueryState, version: Version, body: &[u8]) -> Result<Response, Refusal> {
    // In HTTP/1.0 an answer that breaks off looks like a complete one, and frames have no last one.
    let request = Request::decode(body, version >= Version::HTTP_11)?;
    let response = request.response;
    let (store, memory) = (served.store.clone(), served.turns.memory.clone());
    let run = move |pieces: &BodySender| {
        let budget = Budget::new(TIMEOUT, memory, pieces.gone());
        run(&store, request, &budget, pieces)
    };
    let body = served.turns.stream(run).await?;
    let answer = match response {
        ResponseType::Samples => {
            let kind = "application/x-protobuf";
            ([(header::CONTENT_TYPE, kind), (header::CONTENT_ENCODING, "snappy")], body)
                .into_response()
        }
        ResponseType::Chunks => {
            let kind = "application/x-streamed-protobuf; proto=prometheus.ChunkedReadResponse";
            ([(header::CONTENT_TYPE, kind)], body).into_response()
        }
    };
    Ok(answer)
}

/// Reads what the queries select and hands it over.
fn run(
    store: &Store,
    mut request: Request,
    budget: &Budget,
    pieces: &BodySender,
) -> Result<(), Refusal> {
    request.compile()?;
    let snapshot = store.snapshot();
    let reader = Reader { store, snapshot, budget };
    match request.response {
        ResponseType::Samples => {
            let mut writer = SampleWriter::new(budget);
            for wanted in &request.queries {
                reader.each_series(wanted, |labels, series| {
                    writer.begin(labels);
                    reader.each_sample(series, wanted, |time, value| writer.push(time, value))?;
                    writer.end()
                })?;
                writer.end_result();
            }
            writer.finish(pieces)
        }
        ResponseType::Chunks => {
            let mut writer = ChunkWriter::new(budget, pieces);
            for (index, wanted) in request.queries.iter().enumerate() {
                reader.each_series(wanted, |labels, series| {
                    writer.begin(index, labels);
                    reader.each_sample(series, wanted, |time, value| writer.push(time, value))?;
                    writer.end()
                })?;
            }
            writer.finish()
        }
    }
}

/// Reads the series of the store, within the limits of one query.
struct Reader<'a> {
    store: &'a Store,
    snapshot: Snapshot,
    budget: &'a Budget,
}

impl Reader<'_> {
    /// Hands on the series of a query, sorted by their labels, while their memory is held.
    fn each_series(
        &self,
        wanted: &SeriesRequest,
        mut take: impl FnMut(&Labels, &Series) -> Result<(), Refusal>,
    ) -> Result<(), Refusal> {
        let failed = |error| query::refusal(error, self.budget);
        if wanted.start_ms > wanted.end_ms {
            return Ok(());
        }
        let range = Some(wanted.range());
        let found = promql::find(self.store, &wanted.matchers, range, self.budget);
        let (found, _held) = found.map_err(failed)?;
        found.iter().try_for_each(|(labels, series)| take(labels, series))
    }

    /// Hands on the samples of a series: the last one of each millisecond.
    fn each_sample(
        &self,
        series: &Series,
        wanted: &SeriesRequest,
        mut take: impl FnMut(i64, f64) -> Result<(), Refusal>,
    ) -> Result<(), Refusal> {
        let failed = |error| query::refusal(error, self.budget);
        let range = wanted.range();
        let mut last: Option<(i64, f64)> = None;
        self.budget.check().map_err(QueryError::Over).map_err(failed)?;
        for run in self.snapshot.scan(series, range, Direction::Forward).with_markers() {
            self.budget.check().map_err(QueryError::Over).map_err(failed)?;
            let run = run.map_err(|error| failed(QueryError::Store(error.to_string())))?;
            for (time, value) in run.times.iter().zip(run.values.to_f64().iter()) {
                let next = (time.div_euclid(1_000_000), *value);
                let before = last.replace(next).filter(|before| before.0 < next.0);
                before.map_or(Ok(()), |(time_ms, value)| take(time_ms, value))?;
            }
        }
        last.map_or(Ok(()), |(time_ms, value)| take(time_ms, value))
    }
}
