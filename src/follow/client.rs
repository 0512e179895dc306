//! Requests to the server that is followed.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, bail};
use reqwest::{Method, RequestBuilder, Response, Url};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;

use crate::cli::FollowArgs;
use crate::folder::{DataFolder, is_there};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Silence after which a connection is dead: a stream says something every second.
const READ_TIMEOUT: Duration = Duration::from_secs(15);
/// Longest text of a refusal that is read, bytes.
const REFUSAL_BYTES_MAX: usize = 16 * 1024;

/// Why a request came to nothing.
#[derive(Debug)]
pub(crate) enum Trouble {
    /// Passes by itself: the server is away, stops, or the network failed.
    Lost(String),
    /// Does not: the text names the remedy.
    Refused(anyhow::Error),
}

impl From<anyhow::Error> for Trouble {
    fn from(error: anyhow::Error) -> Self {
        Self::Refused(error)
    }
}

impl From<reqwest::Error> for Trouble {
    fn from(error: reqwest::Error) -> Self {
        Self::Lost(chain(&error.without_url()))
    }
}

/// An error with its causes on one line.
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

/// A server, and how it is spoken to.
pub(crate) struct Client {
    http: reqwest::Client,
    base: Url,
    from: String,
    token: Option<String>,
}

impl Client {
    /// `from` is `https://HOST:PORT`, `http://LOOPBACK:PORT` or `unix:PATH`.
    pub(crate) fn new(args: &FollowArgs) -> anyhow::Result<Self> {
        let builder = reqwest::Client::builder()
            .no_proxy()
            .redirect(reqwest::redirect::Policy::none())
            .connect_timeout(CONNECT_TIMEOUT)
            .read_timeout(READ_TIMEOUT);
        let from = args.from.clone();
        if let Some(socket) = from.strip_prefix("unix:") {
            if args.once && !is_there(Path::new(socket))? {
                bail!(
                    "--from {from}: no such socket; it is holdfast.sock in a server's data folder"
                );
            }
            let http = builder.unix_socket(PathBuf::from(socket)).build()?;
            let base = Url::parse("http://localhost")?;
            return Ok(Self { http, base, from, token: None });
        }
        let base = Url::parse(&from).with_context(|| format!("--from {from}"))?;
        let host = base.host_str().unwrap_or_default().trim_matches(['[', ']']);
        let loopback = host == "localhost"
            || host.parse::<std::net::IpAddr>().is_ok_and(|ip| ip.is_loopback());
        let keys = DataFolder::new(&args.to).keys();
        let http = match base.scheme() {
            "http" if loopback => builder.build()?,
            "https" => {
                let ca = args.ca.clone().unwrap_or_else(|| keys.join("ca.pem"));
                builder.tls_backend_preconfigured(trusting(&ca)?).build()?
            }
            _ => bail!(
                "--from {from}: name https://HOST:PORT of the server's API, or unix:PATH of the \
                 socket in its data folder"
            ),
        };
        let token = token(args, &keys.join("follower"))?;
        Ok(Self { http, base, from, token: Some(token) })
    }

    /// The server's name for messages.
    pub(crate) fn name(&self) -> &str {
        &self.from
    }

    fn request(
        &self,
        method: Method,
        path: &str,
        query: &[(&str, &str)],
    ) -> Result<RequestBuilder, Trouble> {
        let mut url = self.base.join(path).context("--from")?;
        url.query_pairs_mut().extend_pairs(query);
        let request = self.http.request(method, url);
        Ok(match &self.token {
            Some(token) => request.bearer_auth(token),
            None => request,
        })
    }

    /// Ask; an answer that is not 200 is trouble.
    pub(crate) async fn ask(
        &self,
        method: Method,
        path: &str,
        query: &[(&str, &str)],
    ) -> Result<Response, Trouble> {
        let mut answer = self.request(method, path, query)?.send().await?;
        let status = answer.status();
        if status.is_success() {
            return Ok(answer);
        }
        let mut body = Vec::new();
        while let Some(chunk) = answer.chunk().await? {
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
            return Err(Trouble::Lost(detail));
        }
        if status.as_u16() == 404 {
            let text = "this server does not ship its journal: use a newer program there";
            return Err(Trouble::Refused(anyhow::anyhow!("{}: {text}", self.from)));
        }
        Err(Trouble::Refused(anyhow::anyhow!("{}: {detail}", self.from)))
    }
}

fn token(args: &FollowArgs, own: &Path) -> anyhow::Result<String> {
    if let Some(token) = &args.token {
        return Ok(token.trim().to_owned());
    }
    let text = fs::read_to_string(own).with_context(|| {
        format!(
            "{}: a follower over the network needs the server's token: give keys/follower of the \
             server's data folder as HOLDFAST_FOLLOW_TOKEN",
            own.display()
        )
    })?;
    Ok(text.trim().to_owned())
}

/// TLS that trusts one certificate authority alone.
pub(crate) fn trusting(ca: &Path) -> anyhow::Result<rustls::ClientConfig> {
    let pem = fs::read(ca).with_context(|| {
        format!(
            "{}: name the server's certificate authority (keys/ca.pem in its data folder) with --ca",
            ca.display()
        )
    })?;
    let mut roots = rustls::RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(&pem) {
        roots.add(certificate.with_context(|| ca.display().to_string())?)?;
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    Ok(rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots)
        .with_no_client_auth())
}
