//! Reads a request's body: first checks the length, then takes a share of the budget, then reads the
//! bytes within their time.

use std::time::Duration;

use axum::body::Body;
use axum::http::{HeaderMap, StatusCode, header};
use http_body_util::BodyExt as _;
use serde::de::DeserializeOwned;

use crate::answer::Refusal;

/// Bytes that are allocated for a body before it arrives.
const AHEAD_BYTES_MAX: usize = 64 * 1024;

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

/// Reads exactly `length` bytes within `timeout`.
pub(crate) async fn read(
    mut body: Body,
    length: usize,
    timeout: Duration,
) -> Result<Vec<u8>, Refusal> {
    let reading = async {
        let mut bytes = Vec::with_capacity(length.min(AHEAD_BYTES_MAX));
        while let Some(frame) = body.frame().await {
            let frame =
                frame.map_err(|e| Refusal::invalid(format!("body broke off: {e}")).closing())?;
            let Ok(data) = frame.into_data() else { continue };
            if bytes.len() + data.len() > length {
                return Err(Refusal::invalid("body is longer than announced").closing());
            }
            bytes.extend_from_slice(&data);
        }
        Ok(bytes)
    };
    let bytes = tokio::time::timeout(timeout, reading).await.map_err(|_| {
        let detail = format!("body did not arrive within {} s", timeout.as_secs());
        Refusal::new(StatusCode::REQUEST_TIMEOUT, "body_timeout", detail).closing()
    })??;
    if bytes.len() == length {
        Ok(bytes)
    } else {
        Err(Refusal::invalid("body is shorter than announced").closing())
    }
}

/// Parses the JSON object of a small body.
pub(crate) fn json<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Refusal> {
    serde_json::from_slice(bytes).map_err(|e| Refusal::invalid(format!("body: {e}")))
}
