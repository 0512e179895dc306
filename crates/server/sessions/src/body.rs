//! Reads a request's body: first checks the length, then reads the bytes within their time, each
//! charged to the budget when it has arrived.

use std::time::Duration;

use axum::body::Body;
use axum::http::{HeaderMap, StatusCode, header};
use env::budget::ExceededLimit;
use http_body_util::BodyExt as _;
use serde::de::DeserializeOwned;
use tokio::time::{Instant, timeout, timeout_at};

use crate::admit::{Charge, Sender, cost};
use crate::answer::Refusal;
use crate::app::App;
use crate::options::SMALL_BODY_BYTES_MAX;

/// Returns the announced length if it is present and within the limit (otherwise 415, 411, 400, 413).
pub(crate) fn length(headers: &HeaderMap, bytes_max: usize) -> Result<usize, Refusal> {
    if headers.get(header::CONTENT_ENCODING).is_some_and(|e| e != "identity") {
        let detail = "bodies are taken as they are: send it again without content-encoding";
        let status = StatusCode::UNSUPPORTED_MEDIA_TYPE;
        return Err(Refusal::new(status, "content_encoding", detail).closing());
    }
    if headers.contains_key(header::TRANSFER_ENCODING) {
        return Err(no_length());
    }
    let text = headers.get(header::CONTENT_LENGTH).ok_or_else(no_length)?;
    let length: u64 = text
        .to_str()
        .ok()
        .and_then(|t| t.trim().parse().ok())
        .ok_or_else(|| Refusal::invalid("content-length is not a number").closing())?;
    match usize::try_from(length) {
        Ok(length) if length <= bytes_max => Ok(length),
        _ => Err(Refusal::too_large(format!(
            "body of {length} bytes is above the limit of {bytes_max}: send it in smaller parts"
        ))
        .closing()),
    }
}

fn no_length() -> Refusal {
    let detail = "the body's length must be announced by content-length";
    Refusal::new(StatusCode::LENGTH_REQUIRED, "length_required", detail).closing()
}

/// Reads exactly `length` bytes, which are charged to the sender as they arrive. Only the time that
/// the sender takes counts towards the limit of a body, not the time that its bytes wait for the
/// budget. So a 408 means that the sender is slow.
pub(crate) async fn read(
    app: &App,
    sender: impl Into<Sender>,
    mut body: Body,
    length: usize,
) -> Result<(Vec<u8>, Charge), Refusal> {
    let within = app.options.timeouts.body;
    let mut deadline = Instant::now() + within;
    let mut charge = app.in_flight.begin(sender.into(), length);
    // Nothing is allocated for the announced length, because it is not charged.
    let mut bytes = Vec::new();
    loop {
        let frame = tokio::select! {
            biased;
            spent = charge.refused() => return Err(app.spent(spent).closing()),
            frame = timeout_at(deadline, body.frame()) => frame.map_err(|_| late(within))?,
        };
        let Some(frame) = frame else { break };
        let frame =
            frame.map_err(|e| Refusal::invalid(format!("body broke off: {e}")).closing())?;
        let Ok(data) = frame.into_data() else { continue };
        if bytes.len() + data.len() > length {
            return Err(Refusal::invalid("body is longer than announced").closing());
        }
        let arrived = Instant::now();
        match timeout(within, charge.add(cost(data.len()))).await {
            Ok(Ok(())) => deadline += arrived.elapsed(),
            Ok(Err(spent)) => return Err(app.spent(spent).closing()),
            Err(_) => return Err(app.spent(ExceededLimit::Budget).closing()),
        }
        bytes.extend_from_slice(&data);
    }
    if bytes.len() != length {
        return Err(Refusal::invalid("body is shorter than announced").closing());
    }
    charge.complete().map_err(|spent| app.spent(spent))?;
    Ok((bytes, charge))
}

fn late(within: Duration) -> Refusal {
    let detail = format!("body did not arrive within {} s", within.as_secs());
    Refusal::new(StatusCode::REQUEST_TIMEOUT, "body_timeout", detail).closing()
}

/// Reads and parses the JSON object of a small body. Its bytes are charged until it is parsed.
pub(crate) async fn json<T: DeserializeOwned>(
    app: &App,
    sender: impl Into<Sender>,
    body: Body,
    headers: &HeaderMap,
) -> Result<T, Refusal> {
    let length = length(headers, SMALL_BODY_BYTES_MAX)?;
    let (bytes, _charge) = read(app, sender, body, length).await?;
    serde_json::from_slice(&bytes).map_err(|e| Refusal::invalid(format!("body: {e}")))
}
