//! Compresses answers for clients that accept gzip.

use std::io::Write as _;

use axum::body::{Body, HttpBody as _, to_bytes};
use axum::extract::Request;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;

/// Bytes of an answer from which on it is compressed: a smaller one fits into a packet anyway.
const BYTES_MIN: u64 = 1400;

/// Compresses the answer to a request.
pub(crate) async fn compress(request: Request, next: Next) -> Response {
    let accepts = accepts_gzip(request.headers());
    let mut response = next.run(request).await;
    response.headers_mut().append(header::VARY, HeaderValue::from_static("accept-encoding"));
    if !accepts || response.body().size_hint().lower() < BYTES_MIN {
        return response;
    }
    let (mut head, body) = response.into_parts();
    // Not on the async thread: an answer may be large.
    let compressed = match to_bytes(body, usize::MAX).await {
        Ok(plain) => tokio::task::spawn_blocking(move || Compressed::new(plain)).await,
        Err(_) => return StatusCode::INTERNAL_SERVER_ERROR.into_response(),
    };
    let Ok(Ok(compressed)) = compressed else {
        return StatusCode::INTERNAL_SERVER_ERROR.into_response();
    };
    head.headers.insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    head.headers.remove(header::CONTENT_LENGTH);
    Response::from_parts(head, Body::from(Bytes::from_owner(compressed)))
}

/// A compressed answer. The plain one holds the memory of the query until the client has taken it.
struct Compressed {
    bytes: Vec<u8>,
    _plain: Bytes,
}

impl Compressed {
    fn new(plain: Bytes) -> std::io::Result<Self> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
        encoder.write_all(&plain)?;
        Ok(Self { bytes: encoder.finish()?, _plain: plain })
    }
}

impl AsRef<[u8]> for Compressed {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

/// Returns true if a client accepts gzip: it names it, or any coding, without the weight 0.
fn accepts_gzip(headers: &HeaderMap) -> bool {
    let values = headers.get_all(header::ACCEPT_ENCODING).into_iter();
    let codings: Vec<&str> =
        values.filter_map(|value| value.to_str().ok()).flat_map(|value| value.split(',')).collect();
    let weight = |wanted: &str| {
        codings.iter().find_map(|coding| {
            let mut parts = coding.split(';').map(str::trim);
            let name = parts.next()?;
            let quality = parts.find_map(|part| part.strip_prefix("q="));
            let weight = quality.map_or(Some(1.0), |q| q.parse::<f64>().ok())?;
            name.eq_ignore_ascii_case(wanted).then_some(weight)
        })
    };
    weight("gzip").or_else(|| weight("*")).is_some_and(|weight| weight > 0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn client_that_excludes_gzip_gets_none() {
        for (accepted, expected) in [
            ("gzip", true),
            ("deflate, GZIP;q=0.5", true),
            ("*", true),
            ("gzip;q=0, *", false),
            ("gzip; q=0.0", false),
            ("deflate", false),
            ("", false),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(header::ACCEPT_ENCODING, HeaderValue::from_static(accepted));
            assert_eq!(accepts_gzip(&headers), expected, "{accepted}");
        }
    }
}
