//! Requests to a server: over its unix socket, where the kernel identifies the caller, or over HTTPS
//! with a token.

use std::error::Error as _;
use std::io::ErrorKind;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, anyhow, bail};
use reqwest::{Certificate, Method, RequestBuilder, Response, StatusCode, Url};
use serde_json::Value;

use crate::answer::{GivenNames, at, fail_with, failures, items, with_remedy};
use crate::connect::TOKEN;
use crate::owner::HeldSocket;

const NO_SERVER: &str = "no server is running on this data folder";
const AS_ROOT: &str = "; run this as root or as the user that runs the server";
/// Items asked for in one page of a list: as many as the API returns, because a list that changes
/// between two pages is returned with gaps.
const PAGE_ITEMS: usize = 100_000;
/// Longest time in which a server on another machine must accept a connection.
const CONNECT_TIME_MAX: Duration = Duration::from_secs(10);
/// Longest time without a byte of an answer; longer than any operation takes.
const READ_TIME_MAX: Duration = Duration::from_mins(2);

/// A refusal that the same request would get again.
#[derive(Debug)]
struct Refusal(String);

impl std::fmt::Display for Refusal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Refusal {}

/// Returns true for an error that a retry would not change.
pub(crate) fn is_final(error: &anyhow::Error) -> bool {
    error.chain().any(<dyn std::error::Error>::is::<Refusal>)
}

/// Parameters of a request.
pub(crate) type Query<'a> = [(&'a str, String)];

/// The items of a list.
#[derive(Debug, Default)]
pub(crate) struct Listed {
    pub(crate) items: Vec<Value>,
    /// Number of items that the server has.
    pub(crate) total: u64,
    /// Lines about named objects that failed; the items are those of the others.
    pub(crate) failures: Vec<String>,
}

/// A client of one server.
pub struct Client {
    http: reqwest::Client,
    /// The address that paths are appended to.
    base: Url,
    /// The socket's path, or the server's address: what errors name.
    place: String,
    is_local: bool,
    token: Option<String>,
    /// The folder of the socket, through which the requests connect.
    _socket: Option<HeldSocket>,
}

impl Client {
    /// Returns a client for a unix socket without connecting.
    ///
    /// # Errors
    /// If there is no socket, or another user listens on it.
    pub fn local(socket: &Path) -> anyhow::Result<Self> {
        Self::checked(socket)?.ok_or_else(|| anyhow!("{}: {NO_SERVER}", socket.display()))
    }

    /// Returns a client for a unix socket after one connection that shows who listens; `None` if
    /// no process does.
    fn checked(socket: &Path) -> anyhow::Result<Option<Self>> {
        if !socket.try_exists().map_err(|e| no_access(socket, &e))? {
            return Ok(None);
        }
        let held = HeldSocket::open(socket)?;
        match held.expect_peer(socket)? {
            // A server that was killed leaves its socket.
            Err(e) if e.kind() == ErrorKind::ConnectionRefused => return Ok(None),
            // The first request reports any other failure.
            _ => {}
        }
        // Without TLS no authority is needed: a system may have none.
        let http =
            reqwest::Client::builder().unix_socket(held.path()).no_proxy().tls_certs_only([]);
        let http = http.build()?;
        let (base, place) = (Url::parse("http://localhost")?, socket.display().to_string());
        Ok(Some(Self { http, base, place, is_local: true, token: None, _socket: Some(held) }))
    }

    /// Connects to the server of a data folder; `None` if none is running.
    ///
    /// # Errors
    /// If the socket cannot be looked for, or another user listens on it.
    pub fn running(socket: &Path) -> anyhow::Result<Option<Self>> {
        Self::checked(socket)
    }

    /// Returns a client for an address without connecting. `ca` is the only authority it trusts;
    /// without one, those of the system.
    ///
    /// # Errors
    /// If the address is not one of HTTPS (HTTP on loopback), or the certificate cannot be read.
    pub(crate) fn remote(
        url: &str,
        ca: Option<&Path>,
        token: Option<String>,
    ) -> anyhow::Result<Self> {
        let base = Url::parse(url).ok().filter(is_safe).ok_or_else(|| {
            anyhow!("{url}: name the server's page as https://HOST:PORT (--url); plain HTTP is sent to loopback only")
        })?;
        // The API redirects nothing; a redirect could lead a password elsewhere.
        let mut http = reqwest::Client::builder()
            .redirect(reqwest::redirect::Policy::none())
            .connect_timeout(CONNECT_TIME_MAX)
            .read_timeout(READ_TIME_MAX);
        if base.scheme() == "http" {
            // A proxy would receive the token in plain text.
            http = http.tls_certs_only([]).no_proxy();
        }
        if let Some(file) = ca {
            let read = env::regular::read(file).with_context(|| file.display().to_string())?;
            let pem = read.bytes;
            let certificates = Certificate::from_pem_bundle(&pem).unwrap_or_default();
            if certificates.is_empty() {
                bail!("{}: no certificate in PEM format (--ca)", file.display());
            }
            http = http.tls_certs_only(certificates);
        }
        let place = base.as_str().trim_end_matches('/').to_owned();
        Ok(Self { http: http.build()?, base, place, is_local: false, token, _socket: None })
    }

    /// Sends a GET and returns the JSON answer. A unix socket has no time limit.
    ///
    /// # Errors
    /// If there is no answer, or the server refuses.
    pub async fn get(&self, path: &[&str], query: &Query<'_>) -> anyhow::Result<Value> {
        self.send(self.request(Method::GET, path, query)?).await
    }

    /// Sends a PUT without a body and returns the JSON answer. A unix socket has no time limit.
    ///
    /// # Errors
    /// If there is no answer, or the server refuses.
    pub async fn put(&self, path: &[&str], query: &Query<'_>) -> anyhow::Result<Value> {
        self.send(self.request(Method::PUT, path, query)?).await
    }

    /// Sends a POST with a JSON body and returns the JSON answer. A unix socket has no time limit.
    ///
    /// # Errors
    /// If there is no answer, or the server refuses.
    pub async fn post(&self, path: &[&str], body: &Value) -> anyhow::Result<Value> {
        self.send(self.request(Method::POST, path, &[])?.json(body)).await
    }

    /// Returns a request that has the token.
    pub(crate) fn request(
        &self,
        method: Method,
        path: &[&str],
        query: &Query<'_>,
    ) -> anyhow::Result<RequestBuilder> {
        let mut url = self.base.clone();
        let no_path = || anyhow!("{}: not an address that paths can follow", self.place);
        url.path_segments_mut().map_err(|()| no_path())?.pop_if_empty().extend(path);
        if !query.is_empty() {
            url.query_pairs_mut().extend_pairs(query);
        }
        let request = self.http.request(method, url);
        Ok(match &self.token {
            Some(token) => request.bearer_auth(token),
            None => request,
        })
    }

    /// Sends a request and returns the JSON answer.
    pub(crate) async fn send(&self, request: RequestBuilder) -> anyhow::Result<Value> {
        let body = self.send_for_text(request).await?;
        serde_json::from_str(&body)
            .with_context(|| format!("{}: the answer is not that of a Holdfast server", self.place))
    }

    /// Sends a request and returns the answer before its body is read.
    pub(crate) async fn stream(&self, request: RequestBuilder) -> anyhow::Result<Response> {
        let answer = request.send().await.map_err(|e| self.unanswered(&e))?;
        match answer.status() {
            status if status.is_success() => Ok(answer),
            status => Err(self.refused(status, &answer.text().await.unwrap_or_default())),
        }
    }

    /// Sends a request and returns the answer as it is.
    pub(crate) async fn send_for_text(&self, request: RequestBuilder) -> anyhow::Result<String> {
        let answer = self.stream(request).await?;
        answer.text().await.map_err(|e| self.unanswered(&e))
    }

    /// Returns up to `limit` items of a list.
    ///
    /// # Errors
    /// If the server refuses, or returns no item and says why.
    pub(crate) async fn list(
        &self,
        path: &[&str],
        query: &Query<'_>,
        limit: usize,
    ) -> anyhow::Result<Listed> {
        let mut listed = Listed::default();
        let found = &mut listed.items;
        loop {
            let page = (limit - found.len()).min(PAGE_ITEMS);
            let mut query = query.to_vec();
            query.extend([("limit", page.to_string()), ("offset", found.len().to_string())]);
            let answer = self.get(path, &query).await?;
            // Each page names the same failures.
            listed.failures = failures(&answer, &GivenNames::default());
            listed.total = at(&answer, "/data/total_affected_items").as_u64().unwrap_or_default();
            let got = items(&answer);
            let is_last = got.len() < page;
            found.extend(got);
            if is_last || found.len() >= limit || found.len() as u64 >= listed.total {
                break;
            }
        }
        if listed.items.is_empty() {
            fail_with(std::mem::take(&mut listed.failures))?;
        }
        Ok(listed)
    }

    fn refused(&self, status: StatusCode, body: &str) -> anyhow::Error {
        let text = self.refusal(status, body);
        // A request above a limit is accepted later.
        let is_final = status.is_client_error() && status != StatusCode::TOO_MANY_REQUESTS;
        if is_final { Refusal(text).into() } else { anyhow!(text) }
    }

    fn refusal(&self, status: StatusCode, body: &str) -> String {
        let place = &self.place;
        let problem: Value = serde_json::from_str(body).unwrap_or_default();
        let is_login = at(&problem, "/detail").as_str() == Some("Invalid credentials");
        if status == StatusCode::UNAUTHORIZED && !is_login {
            let why = if self.token.is_some() { "the token is not valid" } else { "no token" };
            return format!(
                "{place}: {why}; `holdfast login --url {place}` prints a token for {TOKEN}"
            );
        }
        match with_remedy(at(&problem, "/detail"), at(&problem, "/remediation")) {
            Some(detail) => detail,
            // A short text without a control character is a sentence for a person.
            None if body.len() < 500 && !body.trim().contains(char::is_control) => {
                format!("{place}: status {status}: {}", body.trim())
            }
            None => format!("{place}: status {status}"),
        }
    }

    /// Returns the error for a request without an answer. Only its innermost cause is used.
    fn unanswered(&self, error: &reqwest::Error) -> anyhow::Error {
        let mut cause: &dyn std::error::Error = error;
        while let Some(next) = cause.source() {
            cause = next;
        }
        let kind = cause.downcast_ref::<std::io::Error>().map(std::io::Error::kind);
        let place = &self.place;
        match kind {
            // A server that was killed leaves its socket.
            Some(ErrorKind::ConnectionRefused | ErrorKind::NotFound) if self.is_local => {
                anyhow!("{place}: {NO_SERVER}")
            }
            Some(ErrorKind::PermissionDenied) if self.is_local => {
                anyhow!("{place}: {cause}{AS_ROOT}")
            }
            _ => anyhow!("{place}: no answer: {cause}{}", certificate_hint(error)),
        }
    }
}

/// Returns the error for a socket that this user may not look for.
fn no_access(socket: &Path, error: &std::io::Error) -> anyhow::Error {
    let hint = if error.kind() == ErrorKind::PermissionDenied { AS_ROOT } else { "" };
    anyhow!("{}: {error}{hint}", socket.display())
}

/// Returns true if a token may be sent there: HTTPS, or HTTP on this machine.
fn is_safe(url: &Url) -> bool {
    let is_loopback = matches!(url.host_str(), Some("localhost" | "127.0.0.1" | "[::1]"));
    url.has_host() && (url.scheme() == "https" || url.scheme() == "http" && is_loopback)
}

/// Returns what to do about a certificate that is not trusted; empty for other failures.
fn certificate_hint(error: &reqwest::Error) -> &'static str {
    let mut next = error.source();
    let mut said = String::new();
    while let Some(cause) = next {
        said = cause.to_string();
        next = cause.source();
    }
    if said.contains("not valid for name") || said.contains("NotValidForName") {
        "; the server's certificate needs this name: add it to `names` in its server.toml"
    } else if said.contains("certificate") {
        "; name the authority that signed the server's certificate with --ca (keys/ca.pem of its data folder)"
    } else {
        ""
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn token_is_sent_over_https_or_on_this_machine_only() {
        for (url, expected) in [
            ("https://fleet.example.org:55000", true),
            ("http://127.0.0.1:55000", true),
            ("http://localhost:55000/", true),
            ("http://fleet.example.org:55000", false),
            ("http://127.0.0.1.example.org", false),
            ("fleet.example.org:55000", false),
            ("ftp://localhost", false),
        ] {
            assert_eq!(Url::parse(url).is_ok_and(|url| is_safe(&url)), expected, "{url}");
        }
    }
}
