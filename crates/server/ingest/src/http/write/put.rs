//! `POST /api/put` of `OpenTSDB`: data points in JSON, and the answers that its clients expect.
//!
//! Without parameters, the answer is 204, or 400 with an `error` object. With `summary` it counts
//! the data points, and with `details` it also names the refused ones.

use axum::extract::{RawQuery, Request, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use axum::{Extension, body::Body};
use serde_json::{Value, json};
use series::Store;

use super::{
    Coding, NotStored, Protocol, SMALL_BYTES, WRITE_BYTES_MAX, WriteQuotas, persist_body, unpacked,
};
use readers::{CollectedRows, RowCollector, RowRefusal, put};

const POINTS: Protocol =
    Protocol { name: "opentsdb", noun: "data point", small: SMALL_BYTES, unpacked: |_| 0 };
/// As for lines: data points in gzip are never parsed on the async thread.
const PACKED_POINTS: Protocol = Protocol { small: 0, unpacked: |_| WRITE_BYTES_MAX, ..POINTS };

/// The amount of detail in an answer.
#[derive(Clone, Copy)]
enum Report {
    Status,
    Summary,
    Details,
}

impl Report {
    /// Returns the report that the parameters request, whatever their values.
    fn of(query: &str) -> Self {
        let has = |name| query.split('&').any(|one| one.split('=').next() == Some(name));
        if has("details") {
            Self::Details
        } else if has("summary") {
            Self::Summary
        } else {
            Self::Status
        }
    }
}

pub(super) async fn write_points(
    State(store): State<Store>,
    RawQuery(query): RawQuery,
    Extension(quotas): Extension<WriteQuotas>,
    request: Request,
) -> Response {
    let coding = match Coding::of(request.headers()) {
        Ok(coding) => coding,
        Err(text) => return (StatusCode::UNSUPPORTED_MEDIA_TYPE, text).into_response(),
    };
    let read = move |body: &[u8], collector: &mut RowCollector<'_>| {
        match coding {
            Coding::Plain => put::read(body, collector)?,
            Coding::Gzip => put::read(&unpacked(body)?, collector)?,
        }
        Ok(())
    };
    let protocol = if coding == Coding::Plain { POINTS } else { PACKED_POINTS };
    match persist_body(&store, &quotas, request, protocol, read).await {
        Ok(taken) => answer(Report::of(&query.unwrap_or_default()), &taken),
        Err(NotStored::Refused(reason)) => error(&reason, None),
        Err(NotStored::Answered(answer)) => answer,
    }
}

fn answer(report: Report, taken: &CollectedRows) -> Response {
    let status = if taken.refused == 0 { StatusCode::OK } else { StatusCode::BAD_REQUEST };
    let (failed, success) = (taken.refused, taken.samples);
    match report {
        Report::Status if failed == 0 => StatusCode::NO_CONTENT.into_response(),
        Report::Status => {
            let message = format!("{failed} data points refused, {success} stored");
            let remedy = "append details to the request: POST /api/put?details";
            error(&message, Some(remedy))
        }
        Report::Summary => json(status, &json!({ "failed": failed, "success": success })),
        Report::Details => {
            let errors: Vec<Value> = taken.refusals.iter().map(refusal).collect();
            json(status, &json!({ "errors": errors, "failed": failed, "success": success }))
        }
    }
}

/// Returns a refused data point as it was sent, or the beginning of its text if it was too long.
fn refusal(refusal: &RowRefusal) -> Value {
    let text = || Value::String(refusal.text.clone());
    let point = serde_json::from_str(&refusal.text).unwrap_or_else(|_| text());
    json!({ "datapoint": point, "error": refusal.reason })
}

fn error(message: &str, details: Option<&str>) -> Response {
    let code = StatusCode::BAD_REQUEST;
    let mut error = json!({ "code": code.as_u16(), "message": message });
    if let (Some(details), Some(fields)) = (details, error.as_object_mut()) {
        fields.insert("details".into(), details.into());
    }
    json(code, &json!({ "error": error }))
}

fn json(status: StatusCode, body: &Value) -> Response {
    let body = Body::from(body.to_string());
    (status, [(header::CONTENT_TYPE, "application/json")], body).into_response()
}
