//! The built files of the dashboard, compiled into the program: the output of `ui/` in `ui/dist`.
//!
//! Invariants: only files of that folder are served (no path on disk is ever read); every answer
//! carries a strict content-security-policy; a file whose name contains a digest of its content may be
//! cached forever, all others are revalidated and answered with 304 while their `ETag` is unchanged; a
//! client that accepts Brotli gets the copy that the build compressed;
//! for an unknown path, a navigation (a GET that accepts HTML) receives the page itself, so that
//! reloading works on every view, and any other request receives 404.

use axum::Router;
use axum::body::Body;
use axum::http::header::{
    ACCEPT, ALLOW, CACHE_CONTROL, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_SECURITY_POLICY,
    CONTENT_TYPE, ETAG, IF_NONE_MATCH, VARY,
};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, Uri};
use axum::response::Response;
use rust_embed::{EmbeddedFile, RustEmbed};

/// The content-security-policy of the page: its own files and its own server only.
pub const CONTENT_SECURITY: &str = "default-src 'self'; img-src 'self' data:; object-src 'none'; \
     base-uri 'none'; form-action 'self'; frame-ancestors 'none'";

/// Minimum length of a part of a file's name that counts as a digest, characters.
const DIGEST_CHARACTERS_MIN: usize = 8;

/// End of the names of compressed copies.
const BROTLI_END: &str = ".br";

/// The entry document.
const INDEX: &str = "index.html";

#[derive(RustEmbed)]
#[folder = "$CARGO_MANIFEST_DIR/../../../ui/dist"]
struct Files;

/// Returns the router for all paths: files, the page for navigations, 404 for other paths, and 405 for
/// methods other than GET and HEAD.
pub fn router() -> Router {
    Router::new().fallback(serve_file)
}

async fn serve_file(method: Method, uri: Uri, headers: HeaderMap) -> Response {
    if method != Method::GET && method != Method::HEAD {
        let mut response = bare(StatusCode::METHOD_NOT_ALLOWED);
        response.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
        return response;
    }
    let path = uri.path().trim_start_matches('/');
    let path = if path.is_empty() { INDEX } else { path };
    let response = match Files::get(path).filter(|_| !path.ends_with(BROTLI_END)) {
        Some(file) => serve(path, &file, &headers),
        None if accepts_html(&headers) => match Files::get(INDEX) {
            Some(file) => serve(INDEX, &file, &headers),
            None => bare(StatusCode::NOT_FOUND),
        },
        None => bare(StatusCode::NOT_FOUND),
    };
    if method == Method::HEAD { response.map(|_| Body::empty()) } else { response }
}

/// Answers with a file, or 304 if the client has it.
fn serve(path: &str, file: &EmbeddedFile, headers: &HeaderMap) -> Response {
    let small = gzip::accepts(headers, "br").then(|| Files::get(&format!("{path}{BROTLI_END}")));
    let small = small.flatten();
    let (file, is_small) = (small.as_ref().unwrap_or(file), small.is_some());
    let etag = format!("\"{}\"", hex::encode(file.metadata.sha256_hash()));
    let same = headers
        .get_all(IF_NONE_MATCH)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .any(|tag| tag.trim().trim_start_matches("W/") == etag);
    let (status, body) = if same {
        (StatusCode::NOT_MODIFIED, Body::empty())
    } else {
        (StatusCode::OK, Body::from(file.data.to_vec()))
    };
    let mut response = bare(status);
    *response.body_mut() = body;
    let mime = mime_guess::from_path(path).first_or_octet_stream();
    let charset = if mime.type_() == mime_guess::mime::TEXT { "; charset=utf-8" } else { "" };
    let mime = format!("{}{charset}", mime.essence_str());
    let keep = if is_digested(path) { "public, max-age=31536000, immutable" } else { "no-cache" };
    let fields = response.headers_mut();
    fields.insert(CACHE_CONTROL, HeaderValue::from_static(keep));
    for (name, text) in [(ETAG, etag), (CONTENT_TYPE, mime)] {
        if let Ok(value) = HeaderValue::from_str(&text) {
            fields.insert(name, value);
        }
    }
    if is_small {
        fields.insert(CONTENT_ENCODING, HeaderValue::from_static("br"));
        fields.insert(VARY, HeaderValue::from_static("accept-encoding"));
    }
    if !same {
        fields.insert(CONTENT_LENGTH, HeaderValue::from(file.data.len()));
    }
    response
}

fn bare(status: StatusCode) -> Response {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = status;
    response
        .headers_mut()
        .insert(CONTENT_SECURITY_POLICY, HeaderValue::from_static(CONTENT_SECURITY));
    response
}

fn accepts_html(headers: &HeaderMap) -> bool {
    headers
        .get_all(ACCEPT)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .any(|value| value.to_ascii_lowercase().contains("text/html"))
}

/// Returns true if the name contains a digest of the content, in the format of the page's build:
/// `assets/index-BqX3k9_z.js`.
fn is_digested(path: &str) -> bool {
    let Some(name) = path.strip_prefix("assets/") else { return false };
    let Some((stem, _extension)) = name.rsplit_once('.') else { return false };
    stem.split_once('-').is_some_and(|(_, rest)| {
        let tail: Vec<u8> = rest.bytes().rev().take(DIGEST_CHARACTERS_MIN).collect();
        tail.len() == DIGEST_CHARACTERS_MIN
            && tail.iter().all(|b| b.is_ascii_alphanumeric() || b"-_".contains(b))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::http::Request;
    use http_body_util::BodyExt as _;
    use tower::ServiceExt as _;

    async fn get(path: &str, headers: &[(&str, &str)]) -> (StatusCode, HeaderMap, Vec<u8>) {
        let mut request = Request::builder().uri(path);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let response = router().oneshot(request.body(Body::empty()).unwrap()).await.unwrap();
        let (parts, body) = response.into_parts();
        (parts.status, parts.headers, body.collect().await.unwrap().to_bytes().to_vec())
    }

    #[tokio::test]
    async fn root_path_serves_the_page_with_a_strict_csp() {
        let (status, headers, body) = get("/", &[]).await;
        assert_eq!(status, StatusCode::OK);
        assert_eq!(headers["content-type"], "text/html; charset=utf-8");
        assert_eq!(headers["cache-control"], "no-cache");
        assert!(headers["content-security-policy"].to_str().unwrap().contains("'self'"));
        assert!(String::from_utf8(body).unwrap().to_lowercase().contains("<!doctype html>"));
    }

    #[tokio::test]
    async fn matching_etag_is_answered_with_304() {
        let (_, headers, _) = get("/", &[]).await;
        let tag = headers["etag"].to_str().unwrap().to_owned();
        let (status, _, body) = get("/", &[("if-none-match", &tag)]).await;
        assert_eq!((status, body.len()), (StatusCode::NOT_MODIFIED, 0));
        let (status, _, body) = get("/", &[("if-none-match", "\"other\"")]).await;
        assert_eq!(status, StatusCode::OK);
        assert!(!body.is_empty());
    }

    #[tokio::test]
    async fn client_that_accepts_brotli_gets_the_compressed_copy() {
        const SCRIPT: &str = "/assets/holdfast.js";
        let (_, plain, whole) = get(SCRIPT, &[]).await;
        let (status, headers, body) = get(SCRIPT, &[("accept-encoding", "gzip, br")]).await;
        assert_eq!(status, StatusCode::OK);
        assert_eq!(headers["content-encoding"], "br");
        assert_eq!(headers["content-type"], plain["content-type"]);
        assert_ne!(headers["etag"], plain["etag"]);
        assert!(body.len() * 3 < whole.len(), "{} of {}", body.len(), whole.len());
        let (_, headers, _) = get("/favicon.svg", &[("accept-encoding", "br")]).await;
        assert!(!headers.contains_key("content-encoding"), "too small to have a copy");
        let other = get("/assets/holdfast.js.br", &[]).await;
        assert_eq!(other.0, StatusCode::NOT_FOUND);
    }

    #[tokio::test]
    async fn unknown_path_serves_the_page_for_navigations_only() {
        let html = [("accept", "text/html,application/xhtml+xml,*/*;q=0.8")];
        assert_eq!(get("/somewhere/else", &html).await.0, StatusCode::OK);
        assert_eq!(get("/assets/missing.js", &[("accept", "*/*")]).await.0, StatusCode::NOT_FOUND);
        assert_eq!(get("/../Cargo.toml", &[]).await.0, StatusCode::NOT_FOUND);
        assert_eq!(get("/%2e%2e/%2e%2e/Cargo.toml", &[]).await.0, StatusCode::NOT_FOUND);
    }

    #[tokio::test]
    async fn methods_other_than_get_and_head_are_refused() {
        let request = Request::builder().method("POST").uri("/").body(Body::empty()).unwrap();
        let response = router().oneshot(request).await.unwrap();
        assert_eq!(response.status(), StatusCode::METHOD_NOT_ALLOWED);
        let request = Request::builder().method("HEAD").uri("/").body(Body::empty()).unwrap();
        let response = router().oneshot(request).await.unwrap();
        assert_eq!(response.status(), StatusCode::OK);
        assert!(response.into_body().collect().await.unwrap().to_bytes().is_empty());
    }

    #[test]
    fn only_file_names_with_a_digest_are_immutable() {
        assert!(is_digested("assets/index-BqX3k9_z.js"));
        assert!(is_digested("assets/index-D4-_k9zZ.css"));
        assert!(!is_digested("assets/index.js"));
        assert!(!is_digested("assets/a-b.js"));
        assert!(!is_digested("index-BqX3k9_z.html"));
    }
}
