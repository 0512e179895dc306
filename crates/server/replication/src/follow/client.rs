//! Requests to the server that is followed.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use env::regular;
use reqwest::{Method, RequestBuilder, Response, Url};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;

use super::error::FollowError;
use crate::protocol::{HEADER_VERSION, VERSION};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Silence after which a connection is considered dead: a stream sends something every second.
const READ_TIMEOUT: Duration = Duration::from_secs(15);
/// Longest text of a refusal that is read, bytes.
const REFUSAL_BYTES_MAX: usize = 16 * 1024;

/// The reason why a request failed.
#[derive(Debug)]
pub(super) enum RequestFailure {
    /// A temporary failure: the server is away or stopping, or the network failed.
    Lost(String),
    /// A permanent failure: the text names the remedy.
    Refused(FollowError),
}

impl From<FollowError> for RequestFailure {
    fn from(error: FollowError) -> Self {
        Self::Refused(error)
    }
}

/// Converts the error of a request that failed in transit.
pub(super) fn lost(error: reqwest::Error) -> RequestFailure {
    RequestFailure::Lost(chain(&error.without_url()))
}

/// Formats an error with its causes on one line.
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

/// The server to follow.
#[derive(Debug, Clone)]
pub struct ServerAddress {
    /// `https://HOST:PORT`, `http://LOOPBACK:PORT` or `unix:PATH`.
    pub from: String,
    /// File of the server's certificate authority.
    pub ca: PathBuf,
    /// The server's token for followers, if given directly.
    pub token: Option<String>,
    /// File of the token, read if `token` is `None`.
    pub token_file: PathBuf,
}

/// A server and the HTTP client for it.
pub(super) struct Client {
    http: reqwest::Client,
    base: Url,
    from: String,
    token: Option<String>,
}

impl Client {
    /// Prepares the client; nothing is sent yet.
    pub(super) fn new(server: &ServerAddress) -> Result<Self, FollowError> {
        let builder = reqwest::Client::builder()
            .no_proxy()
            .redirect(reqwest::redirect::Policy::none())
            .connect_timeout(CONNECT_TIMEOUT)
            .read_timeout(READ_TIMEOUT);
        let from = server.from.clone();
        let parse = |url: &str| {
            let cause = |e| FollowError::Address { from: from.clone(), cause: Box::new(e) };
            Url::parse(url).map_err(cause)
        };
        if let Some(socket) = from.strip_prefix("unix:") {
            // Without TLS no authority is needed: a system may have none.
            let http = builder.unix_socket(PathBuf::from(socket)).tls_certs_only([]).build();
            let (http, base) = (http.map_err(FollowError::Http)?, parse("http://localhost")?);
            return Ok(Self { http, base, from, token: None });
        }
        let base = parse(&from)?;
        let host = base.host_str().unwrap_or_default().trim_matches(['[', ']']);
        let loopback = host == "localhost"
            || host.parse::<std::net::IpAddr>().is_ok_and(|ip| ip.is_loopback());
        let builder = match base.scheme() {
            "http" if loopback => builder.tls_certs_only([]),
            "https" => builder.tls_backend_preconfigured(trust_authority(&server.ca)?),
            _ => return Err(FollowError::AddressKind { from }),
        };
        let http = builder.build().map_err(FollowError::Http)?;
        let token = token(server)?;
        Ok(Self { http, base, from, token: Some(token) })
    }

    /// Returns the server's name for messages.
    pub(super) fn name(&self) -> &str {
        &self.from
    }

    fn request(
        &self,
        method: Method,
        path: &str,
        query: &[(&str, &str)],
    ) -> Result<RequestBuilder, RequestFailure> {
        let mut url = self.base.join(path).map_err(|e| {
            let cause = Box::new(e);
            RequestFailure::Refused(FollowError::Address { from: self.from.clone(), cause })
        })?;
        url.query_pairs_mut().extend_pairs(query);
        let request = self.http.request(method, url).header(HEADER_VERSION, VERSION);
        Ok(match &self.token {
            Some(token) => request.bearer_auth(token),
            None => request,
        })
    }

    /// Sends a request. Any status other than 2xx is an error: 5xx and 429 are temporary.
    pub(super) async fn send_checked(
        &self,
        method: Method,
        path: &str,
        query: &[(&str, &str)],
    ) -> Result<Response, RequestFailure> {
        let mut answer = self.request(method, path, query)?.send().await.map_err(lost)?;
        let status = answer.status();
        if status.is_success() {
            return Ok(answer);
        }
        let mut body = Vec::new();
        while let Some(chunk) = answer.chunk().await.map_err(lost)? {
            body.extend_from_slice(&chunk);
            if body.len() > REFUSAL_BYTES_MAX {
                break;
            }
        }
        let detail = serde_json::from_slice::<serde_json::Value>(&body)
            .ok()
            .and_then(|v| v.get("detail")?.as_str().map(str::to_owned))
            .unwrap_or_else(|| format!("status {status}"));
        let detail = model::path::show_terminal(detail.as_bytes());
        if status.is_server_error() || status.as_u16() == 429 {
            return Err(RequestFailure::Lost(detail));
        }
        let detail = match status.as_u16() {
            404 => "this server does not ship its journal: use a newer program there".to_owned(),
            _ => detail,
        };
        Err(RequestFailure::Refused(FollowError::Refused { from: self.from.clone(), detail }))
    }
}

fn token(server: &ServerAddress) -> Result<String, FollowError> {
    if let Some(token) = &server.token {
        return Ok(token.trim().to_owned());
    }
    let path = server.token_file.clone();
    let text = regular::read_text(&path).map_err(|cause| FollowError::Token { path, cause })?;
    Ok(text.trim().to_owned())
}

/// Returns a TLS configuration that trusts only one certificate authority.
///
/// # Errors
/// Returns an error if the file cannot be read or is not a certificate.
pub fn trust_authority(ca: &Path) -> Result<rustls::ClientConfig, FollowError> {
    let path = || ca.to_owned();
    let pem =
        regular::read(ca).map_err(|cause| FollowError::Authority { path: path(), cause })?.bytes;
    let mut roots = rustls::RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(&pem) {
        let certificate =
            certificate.map_err(|cause| FollowError::Certificate { path: path(), cause })?;
        roots.add(certificate)?;
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    Ok(rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots)
        .with_no_client_auth())
}
