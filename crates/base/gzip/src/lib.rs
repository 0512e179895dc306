//! Compresses answers for clients that accept gzip.
//!
//! Answers with secrets are not compressed: the length of a compressed answer reveals something about
//! its content to a reader of the network who can choose a part of it. Streams are not compressed
//! either, because their length is not known before they end.

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
const BYTES_MIN: u64 = 1024;

/// Paths whose answers have passwords, tokens or keys.
const SECRET_PATHS: [&str; 2] = ["/security", "/enrolment"];
/// End of the path of an agent's key.
const SECRET_END: &str = "/key";

/// Bytes of an answer from which on [`compress_small`] leaves it as it is: a large one holds a share of
/// a quota until its reader has taken it, and the plain bytes would be in memory as well.
const SMALL_BYTES_MAX: u64 = 256 * 1024;

/// Compresses the answer to a request, unless it is small, a stream, has secrets, or is compressed
/// already.
pub async fn compress(request: Request, next: Next) -> Response {
    compress_below(u64::MAX, request, next).await
}

/// Does the same as [`compress`], and leaves answers of 256 KiB and more as they are.
pub async fn compress_small(request: Request, next: Next) -> Response {
    compress_below(SMALL_BYTES_MAX, request, next).await
}

async fn compress_below(bytes_max: u64, request: Request, next: Next) -> Response {
    let path = request.uri().path();
    if SECRET_PATHS.iter().any(|secret| path.starts_with(secret)) || path.ends_with(SECRET_END) {
        return next.run(request).await;
    }
    let accepts = accepts(request.headers(), "gzip");
    let mut response = next.run(request).await;
    if response.headers().contains_key(header::CONTENT_ENCODING) {
        return response;
    }
    response.headers_mut().append(header::VARY, HeaderValue::from_static("accept-encoding"));
    let bytes = response.body().size_hint().lower();
    if !accepts || !(BYTES_MIN..bytes_max).contains(&bytes) {
        return response;
    }
    let (mut head, body) = response.into_parts();
    weaken_tag(&mut head.headers);
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

/// Makes the entity tag weak: the compressed answer has other bytes.
fn weaken_tag(headers: &mut HeaderMap) {
    let weak = headers.get(header::ETAG).and_then(|tag| tag.to_str().ok());
    let weak = weak.filter(|tag| !tag.starts_with("W/")).map(|tag| format!("W/{tag}"));
    if let Some(weak) = weak.and_then(|weak| HeaderValue::from_str(&weak).ok()) {
        headers.insert(header::ETAG, weak);
    }
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

/// Returns true if a client accepts a coding: it names it, or any coding, without the weight 0.
pub fn accepts(headers: &HeaderMap, coding: &str) -> bool {
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
    weight(coding).or_else(|| weight("*")).is_some_and(|weight| weight > 0.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::Router;
    use axum::body::HttpBody;
    use axum::middleware::from_fn;
    use axum::routing::get;
    use flate2::read::GzDecoder;
    use http_body_util::BodyExt as _;
    use hyper::body::Frame;
    use std::convert::Infallible;
    use std::io::Read as _;
    use std::pin::Pin;
    use std::task::{Context, Poll};
    use tower::ServiceExt as _;

    const TEXT: &str = "a line of an answer\n";

    fn router() -> Router {
        let large = || async { ([(header::ETAG, "\"tag\"")], TEXT.repeat(100)) };
        let stream = async || Body::new(Parts(0));
        Router::new()
            .route("/changes", get(large))
            .route("/security/users", get(large))
            .route("/enrolment/tokens", get(large))
            .route("/agents/001/key", get(large))
            .route("/small", get(async || "x".repeat(1_023)))
            .route("/large", get(async || "x".repeat(256 * 1024)))
            .route("/stream", get(stream))
            .layer(from_fn(compress_small))
    }

    /// A body of two parts whose length is not known before its end.
    struct Parts(u8);

    impl HttpBody for Parts {
        type Data = Bytes;
        type Error = Infallible;

        fn poll_frame(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
            self.0 += 1;
            let part = (self.0 <= 2).then(|| Ok(Frame::data(Bytes::from(TEXT.repeat(100)))));
            Poll::Ready(part)
        }
    }

    async fn ask(path: &str, accepted: &str) -> (HeaderMap, Vec<u8>) {
        let request = axum::http::Request::builder().uri(path).header("accept-encoding", accepted);
        let response = router().oneshot(request.body(Body::empty()).unwrap()).await.unwrap();
        assert_eq!(response.status(), StatusCode::OK);
        let (head, body) = response.into_parts();
        (head.headers, body.collect().await.unwrap().to_bytes().to_vec())
    }

    #[tokio::test]
    async fn large_answer_is_compressed_for_a_client_that_accepts_it() {
        let (headers, body) = ask("/changes", "gzip, br").await;
        assert_eq!(headers["content-encoding"], "gzip");
        assert_eq!(headers["etag"], "W/\"tag\"");
        assert_eq!(headers["vary"], "accept-encoding");
        let mut plain = String::new();
        GzDecoder::new(&body[..]).read_to_string(&mut plain).unwrap();
        assert_eq!(plain, TEXT.repeat(100));
        let (headers, body) = ask("/changes", "br").await;
        assert_eq!(headers["etag"], "\"tag\"");
        assert_eq!(body.len(), TEXT.len() * 100);
    }

    #[tokio::test]
    async fn secrets_streams_small_and_large_answers_are_left() {
        let paths = [
            "/security/users",
            "/enrolment/tokens",
            "/agents/001/key",
            "/small",
            "/large",
            "/stream",
        ];
        for path in paths {
            let (headers, _) = ask(path, "gzip").await;
            assert!(!headers.contains_key("content-encoding"), "{path}");
        }
    }

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
            assert_eq!(accepts(&headers, "gzip"), expected, "{accepted}");
        }
    }
}
