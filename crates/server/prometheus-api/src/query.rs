//! `query` and `query_range`.

use axum::extract::State;
use axum::http::StatusCode;
use budget::{Budget, Memory};
use env::clock::{Clock as _, SystemClock};
use promql::{Answer, LOOKBACK_MS, Query, QueryError};
use promql_syntax::parse;

use crate::form::Form;
use crate::query_queue::{Client, TIMEOUT};
use crate::refusal::unavailable;
use crate::{AnswerData, QueryState, Refusal, write};

/// Bytes of an answer up to which it is sent however much memory is held.
const ANSWER_SURE: usize = 1 << 20;
const MEMORY_OVER: &str = "the query needs more memory than one query, or all queries together, may \
     hold: select fewer series, a wider step or a shorter range";
/// Most steps of a range query.
const STEPS_MAX: i64 = 11_000;

/// Answers a query at one time.
pub(crate) async fn instant(
    State(served): State<QueryState>,
    form: Form,
) -> Result<AnswerData, Refusal> {
    let time_ms = form.time("time")?.unwrap_or_else(now_ms);
    let lookback_ms = lookback(&form)?;
    run(&served, &form, Query { start_ms: time_ms, end_ms: time_ms, step_ms: 0, lookback_ms }).await
}

/// Answers a query at the steps from a start to an end.
pub(crate) async fn range(
    State(served): State<QueryState>,
    form: Form,
) -> Result<AnswerData, Refusal> {
    let time = |name: &str| {
        let none = || Refusal::parameter(name, "cannot parse \"\" to a valid timestamp");
        form.time(name)?.ok_or_else(none)
    };
    let (start_ms, end_ms) = (time("start")?, time("end")?);
    if end_ms < start_ms {
        return Err(Refusal::parameter("end", "end timestamp must not be before start time"));
    }
    let step = form.duration("step")?;
    let none = || Refusal::parameter("step", "cannot parse \"\" to a valid duration");
    let step_ms = step.ok_or_else(none)?;
    if step_ms <= 0 {
        let text = "zero or negative query resolution step widths are not accepted. Try a positive \
                    integer";
        return Err(Refusal::parameter("step", text));
    }
    if end_ms.saturating_sub(start_ms) / step_ms > STEPS_MAX {
        let text = "exceeded maximum resolution of 11,000 points per timeseries. Try decreasing the \
                    query resolution (?step=XX)";
        return Err(Refusal::bad_data(text));
    }
    let lookback_ms = lookback(&form)?;
    run(&served, &form, Query { start_ms, end_ms, step_ms, lookback_ms }).await
}

/// Returns the age up to which a sample counts.
fn lookback(form: &Form) -> Result<i64, Refusal> {
    let asked = form.duration("lookback_delta")?;
    Ok(asked.filter(|ms| *ms > 0).unwrap_or(LOOKBACK_MS))
}

async fn run(served: &QueryState, form: &Form, times: Query) -> Result<AnswerData, Refusal> {
    let (text, timeout, limit) = (form.text("query")?, form.timeout(TIMEOUT)?, form.limit()?);
    let (store, memory) = (served.store.clone(), served.turns.memory.clone());
    let turn = move |client: Client| {
        let expr = parse(&text).map_err(|error| Refusal::parameter("query", error))?;
        let budget = Budget::new(timeout, memory.clone(), move || client.is_gone());
        let found = promql::run(&store, &expr, times, &budget);
        let (mut found, mut notes) = found.map_err(|error| refusal(error, &budget))?;
        if truncate(&mut found, limit) {
            notes.warn_plain("results truncated due to limit");
        }
        let (mut held, bytes) = (budget.nothing(), write::bytes(&found));
        let set = held.set(bytes).map_err(QueryError::Over);
        set.map_err(|error| refusal(error, &budget))?;
        check_unread(&memory, bytes)?;
        Ok(AnswerData { data: write::data(&found, times), notes, query: text, held: Some(held) })
    };
    served.turns.run(timeout, turn).await
}

/// Refuses an answer of more than [`ANSWER_SURE`] if queries and unread answers hold all memory. Without
/// this, the share that is sure to each query would add up with the number of connections.
pub(crate) fn check_unread(memory: &Memory, bytes: usize) -> Result<(), Refusal> {
    if bytes > ANSWER_SURE && memory.is_over() {
        return Err(unavailable("too many answers wait for their readers: ask again later"));
    }
    Ok(())
}

/// Cuts an answer to a number of series. Returns true if it was longer.
fn truncate(found: &mut Answer, limit: usize) -> bool {
    let series = match found {
        Answer::Vector(list) => list.len(),
        Answer::Matrix(list) => list.len(),
        Answer::Scalar(_) | Answer::String(_) => 0,
    };
    let longer = limit > 0 && series > limit;
    if longer {
        match found {
            Answer::Vector(list) => list.truncate(limit),
            Answer::Matrix(list) => list.truncate(limit),
            Answer::Scalar(_) | Answer::String(_) => {}
        }
    }
    longer
}

pub(crate) fn refusal(error: QueryError, budget: &Budget) -> Refusal {
    let unprocessable = StatusCode::UNPROCESSABLE_ENTITY;
    match error {
        QueryError::BadData(text) => Refusal::bad_data(text),
        QueryError::Over(_) if budget.time_left().is_zero() => {
            unavailable("query timed out in expression evaluation")
        }
        // The budget's own words name parameters of the JSON queries.
        QueryError::Over(_) => {
            Refusal { status: unprocessable, kind: "execution", text: MEMORY_OVER.into() }
        }
        QueryError::Execution(text) => Refusal { status: unprocessable, kind: "execution", text },
        QueryError::Store(text) => {
            tracing::error!("a query failed: {text}");
            Refusal { status: StatusCode::INTERNAL_SERVER_ERROR, kind: "internal", text }
        }
    }
}

fn now_ms() -> i64 {
    (SystemClock::new().now_us() / 1000).cast_signed()
}
