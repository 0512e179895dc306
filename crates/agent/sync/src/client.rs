//! HTTP requests and their results. There are no retries here, because only the caller knows
//! whether a retry is safe.

use std::time::Duration;

use bytes::Bytes;
use link::{HEADER_INSTANCE, HEADER_SESSION, HEADER_TIME, Instance};
use reqwest::StatusCode;
use reqwest::header::{CONTENT_TYPE, DATE, HeaderMap, HeaderValue, RETRY_AFTER};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::SyncError;
use crate::identity::{Identity, IdentityFolder};

/// Longest wait for an answer. The server's own deadline is 300 s (`docs/reference/wire.md`,
/// "Sessions: limits"), but an agent that waits that long cannot report anything else.
const REQUEST_TIMEOUT: Duration = Duration::from_mins(2);
/// Longest time for which an idle connection is kept. It is longer than a heartbeat's usual
/// interval, and shorter than the server's one minute, so that no request uses a connection that
/// the server is closing.
const IDLE_TIME_MAX: Duration = Duration::from_secs(40);
/// Longest wait for a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Largest answer that is read, bytes.
const ANSWER_BYTES_MAX: usize = 64 * 1024 * 1024;
/// Message of a failed handshake when the server considers this side's certificate expired.
const EXPIRED_ALERT: &str = "received fatal alert: CertificateExpired";
/// Message of a failed handshake when this side refuses the server's certificate.
const BAD_PEER: &str = "invalid peer certificate";
/// Reasons in that message that concern the certificate's validity period.
const OUTDATED: [&str; 2] = ["certificate expired", "certificate not valid yet"];
/// Reason in that message that concerns the server's name.
const OTHER_NAME: &str = "certificate not valid for name";
/// Longest part of an error answer that is repeated in a message, bytes.
const DETAIL_BYTES_MAX: usize = 300;

/// An enrolled agent's client of its server.
#[derive(Debug, Clone)]
pub struct Client {
    http: reqwest::Client,
    identity: Identity,
    /// Value of [`HEADER_INSTANCE`], if it is sent.
    instance: Option<HeaderValue>,
}

/// Headers of a session's request.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SessionHead<'a> {
    /// Id of the session.
    pub(crate) id: &'a str,
    /// This machine's wall clock, microseconds since the epoch.
    pub(crate) now_us: u64,
}

/// A status with its body.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) status: StatusCode,
    pub(crate) body: Bytes,
}

impl Client {
    /// Creates a client with the identity in `folder`. It does not connect yet.
    ///
    /// # Errors
    /// Returns an error if the agent is not enrolled, or its key, certificate or CA cannot be used.
    pub fn open(folder: &IdentityFolder) -> Result<Self, SyncError> {
        let identity = folder.load()?.ok_or_else(|| {
            SyncError::Identity(format!("{} holds none", folder.path().display()))
        })?;
        Ok(Self { http: http(folder.tls()?)?, identity, instance: None })
    }

    /// Returns this client with an instance and a heartbeat interval, which it sends with each
    /// request.
    pub(crate) fn speaking_as(self, instance: &Instance, heartbeat: Duration) -> Self {
        let text = format!("{instance}.{}", heartbeat.as_millis());
        Self { instance: HeaderValue::from_str(&text).ok(), ..self }
    }

    /// Returns a new client with the identity in the folder that sends the same instance.
    pub(crate) fn reopened(&self, folder: &IdentityFolder) -> Result<Self, SyncError> {
        Ok(Self { instance: self.instance.clone(), ..Self::open(folder)? })
    }

    /// Returns a client with the pending renewed pair of the folder.
    pub(crate) fn with_next(&self, folder: &IdentityFolder) -> Result<Self, SyncError> {
        Ok(Self { http: http(folder.next_tls()?)?, ..self.clone() })
    }

    /// Returns the agent's identity.
    pub fn identity(&self) -> &Identity {
        &self.identity
    }

    /// Sends a POST with bytes. A status that the protocol knows is a reply; any other is an error.
    pub(crate) async fn post(
        &self,
        route: &str,
        session: Option<SessionHead<'_>>,
        content_type: &str,
        body: Bytes,
    ) -> Result<Reply, SyncError> {
        let url = format!("{}{route}", self.identity.server_url);
        let from = RequestSender { instance: self.instance.as_ref(), session };
        post(&self.http, &url, from, content_type, body).await
    }

    /// Sends a GET and reads JSON.
    pub(crate) async fn get<A: DeserializeOwned>(&self, route: &str) -> Result<A, SyncError> {
        let url = format!("{}{route}", self.identity.server_url);
        let from = RequestSender { instance: self.instance.as_ref(), session: None };
        read_json(&url, &send(self.http.get(&url), &url, from).await?)
    }

    /// Sends a POST with JSON and reads JSON.
    pub(crate) async fn call<Q: Serialize, A: DeserializeOwned>(
        &self,
        route: &str,
        request: &Q,
    ) -> Result<A, SyncError> {
        let url = format!("{}{route}", self.identity.server_url);
        call(&self.http, &url, self.instance.as_ref(), request).await
    }
}

/// Builds the HTTP client over a TLS configuration.
pub(crate) fn http(config: rustls::ClientConfig) -> Result<reqwest::Client, SyncError> {
    reqwest::Client::builder()
        .tls_backend_preconfigured(config)
        .no_proxy()
        .redirect(reqwest::redirect::Policy::none())
        .connect_timeout(CONNECT_TIMEOUT)
        .timeout(REQUEST_TIMEOUT)
        .pool_max_idle_per_host(2)
        .pool_idle_timeout(IDLE_TIME_MAX)
        .build()
        .map_err(|e| SyncError::Identity(chain(&e)))
}

/// Sends a POST with JSON to a whole URL and reads the JSON answer.
pub(crate) async fn call<Q: Serialize, A: DeserializeOwned>(
    http: &reqwest::Client,
    url: &str,
    instance: Option<&HeaderValue>,
    request: &Q,
) -> Result<A, SyncError> {
    let body = serde_json::to_vec(request).map_err(|e| protocol(url, &e.to_string()))?;
    let reply =
        post(http, url, RequestSender { instance, session: None }, "application/json", body.into())
            .await?;
    read_json(url, &reply)
}

fn read_json<A: DeserializeOwned>(url: &str, reply: &Reply) -> Result<A, SyncError> {
    if !reply.status.is_success() {
        return Err(refused(url, reply));
    }
    serde_json::from_slice(&reply.body).map_err(|e| protocol(url, &e.to_string()))
}

/// The sender of a request, and its session.
struct RequestSender<'a> {
    instance: Option<&'a HeaderValue>,
    session: Option<SessionHead<'a>>,
}

async fn post(
    http: &reqwest::Client,
    url: &str,
    from: RequestSender<'_>,
    content_type: &str,
    body: Bytes,
) -> Result<Reply, SyncError> {
    send(http.post(url).header(CONTENT_TYPE, content_type).body(body), url, from).await
}

async fn send(
    mut request: reqwest::RequestBuilder,
    url: &str,
    from: RequestSender<'_>,
) -> Result<Reply, SyncError> {
    let unreachable = |e: reqwest::Error| {
        let connected = !e.is_connect();
        let (url, cause): (String, String) = (url.to_owned(), chain(&e.without_url()));
        if cause.contains(EXPIRED_ALERT) {
            return SyncError::Identity("the agent's certificate has expired".into());
        }
        let has = |why: &[&str]| cause.contains(BAD_PEER) && why.iter().any(|w| cause.contains(w));
        let hint = if has(&OUTDATED) {
            "; check this machine's clock and the server's"
        } else if has(&[OTHER_NAME]) {
            "; add the name to agents.names of the server's configuration, or use one of those"
        } else {
            ""
        };
        let cause = cause + hint;
        if connected {
            SyncError::Interrupted { url, cause }
        } else {
            SyncError::Unreachable { url, cause }
        }
    };
    if let Some(session) = from.session {
        request = request.header(HEADER_SESSION, session.id).header(HEADER_TIME, session.now_us);
    }
    if let Some(instance) = from.instance {
        request = request.header(HEADER_INSTANCE, instance);
    }
    let mut answer = request.send().await.map_err(unreachable)?;
    let status = answer.status();
    let retry_after = retry_after(answer.headers());
    let mut body = Vec::new();
    while let Some(chunk) = answer.chunk().await.map_err(unreachable)? {
        body.extend_from_slice(&chunk);
        if body.len() > ANSWER_BYTES_MAX {
            return Err(protocol(url, "the answer is longer than 64 MiB"));
        }
    }
    if status == StatusCode::TOO_MANY_REQUESTS || status.is_server_error() {
        let named = serde_json::from_slice::<link::ErrorAnswer>(&body).unwrap_or_default();
        let detail = named.detail.as_bytes();
        let detail = detail.get(..detail.len().min(DETAIL_BYTES_MAX)).unwrap_or_default();
        return Err(SyncError::Busy {
            url: url.to_owned(),
            status: status.as_u16(),
            word: model::path::show_terminal(named.error.as_bytes()),
            detail: model::path::show_terminal(detail),
            retry_after,
        });
    }
    Ok(Reply { status, body: body.into() })
}

/// Returns the delay of `Retry-After`, which is seconds or an HTTP date (RFC 9110, 10.2.3). A date
/// is compared with the answer's `Date`, not with this machine's clock. Without `Date` it is
/// ignored.
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let text = |name| headers.get(name)?.to_str().ok();
    let wish = text(RETRY_AFTER)?;
    if let Ok(seconds) = wish.parse() {
        return Some(Duration::from_secs(seconds));
    }
    let until = httpdate::parse_http_date(wish).ok()?;
    let now = httpdate::parse_http_date(text(DATE)?).ok()?;
    Some(until.duration_since(now).unwrap_or_default())
}

/// Returns the error of a refusal.
pub(crate) fn refused(url: &str, reply: &Reply) -> SyncError {
    let named = serde_json::from_slice::<link::ErrorAnswer>(&reply.body).unwrap_or_default();
    let word = model::path::show_terminal(named.error.as_bytes());
    let named = Some(named.detail).filter(|detail| !detail.is_empty());
    let whole = named.as_ref().map_or(&reply.body[..], String::as_bytes);
    let detail = whole.get(..whole.len().min(DETAIL_BYTES_MAX)).unwrap_or_default();
    SyncError::Refused {
        url: url.to_owned(),
        status: reply.status.as_u16(),
        word,
        detail: model::path::show_terminal(detail),
    }
}

/// Returns the error of an invalid answer.
pub(crate) fn protocol(url: &str, detail: &str) -> SyncError {
    SyncError::Protocol { url: url.to_owned(), detail: detail.to_owned() }
}

/// Returns an error with its causes on one line.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        text.push_str(": ");
        text.push_str(&cause.to_string());
        next = cause.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse_retry_after(retry_after: &str, date: Option<&str>) -> Option<Duration> {
        let mut headers = HeaderMap::new();
        headers.insert(RETRY_AFTER, retry_after.parse().unwrap());
        if let Some(date) = date {
            headers.insert(DATE, date.parse().unwrap());
        }
        super::retry_after(&headers)
    }

    /// The refusal comes from a component in front of the server, not from the server itself.
    #[tokio::test]
    async fn status_429_is_busy_with_retry_after() {
        use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
        let _ = rustls::crypto::ring::default_provider().install_default();
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/stateful", listener.local_addr().unwrap());
        let answering = tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut request = vec![0; 4096];
            assert!(stream.read(&mut request).await.unwrap() > 0);
            let answer = b"HTTP/1.1 429 Too Many Requests\r\nRetry-After: 7\r\n\
                           Content-Length: 33\r\nConnection: close\r\n\r\n\
                           {\"error\":\"busy\",\"detail\":\"later\"}";
            stream.write_all(answer).await.unwrap();
        });
        let http = reqwest::Client::builder().no_proxy().build().unwrap();
        let from =
            RequestSender { instance: None, session: Some(SessionHead { id: "fim-1", now_us: 1 }) };
        let error =
            post(&http, &url, from, "text/plain", Bytes::from_static(b"x")).await.unwrap_err();
        answering.await.unwrap();
        assert!(matches!(error, SyncError::Busy { status: 429, .. }), "{error}");
        assert!(error.is_transient() && error.to_string().contains("later"), "{error}");
        assert_eq!(error.retry_after(), Some(Duration::from_secs(7)));
    }

    #[test]
    fn retry_after_accepts_seconds_and_dates_by_server_clock() {
        let now = "Sun, 06 Nov 1994 08:49:37 GMT";
        let two_minutes = Some(Duration::from_mins(2));
        assert_eq!(parse_retry_after("120", None), two_minutes);
        assert_eq!(parse_retry_after("Sun, 06 Nov 1994 08:51:37 GMT", Some(now)), two_minutes);
        // The two older forms that a recipient has to read.
        assert_eq!(parse_retry_after("Sunday, 06-Nov-94 08:51:37 GMT", Some(now)), two_minutes);
        assert_eq!(parse_retry_after("Sun Nov  6 08:51:37 1994", Some(now)), two_minutes);
        assert_eq!(
            parse_retry_after("Sun, 06 Nov 1994 08:00:00 GMT", Some(now)),
            Some(Duration::ZERO)
        );
        assert_eq!(parse_retry_after("Sun, 06 Nov 1994 08:51:37 GMT", None), None);
        assert_eq!(parse_retry_after("soon", Some(now)), None);
    }
}
