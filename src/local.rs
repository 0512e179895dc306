//! Requests to a running server over its unix socket. The kernel identifies the caller.

use std::io::ErrorKind;
use std::net::SocketAddr;
use std::path::Path;

use anyhow::{Context as _, anyhow, bail};
use model::AgentId;
use serde_json::Value;

use crate::folder::is_there;

const NO_SERVER: &str = "no server is running on this data folder";

/// A client for the server of one data folder.
pub(crate) struct Local {
    http: reqwest::Client,
    socket: String,
}

impl Local {
    /// Returns a client without connecting.
    pub(crate) fn open(socket: &Path) -> anyhow::Result<Self> {
        if !is_there(socket)? {
            bail!("{}: {NO_SERVER}", socket.display());
        }
        let http = reqwest::Client::builder().unix_socket(socket).no_proxy().build()?;
        Ok(Self { http, socket: socket.display().to_string() })
    }

    /// Connects to the server of a data folder; `None` if none is running.
    pub(crate) async fn running(socket: &Path) -> anyhow::Result<Option<Self>> {
        if !is_there(socket)? {
            return Ok(None);
        }
        match tokio::net::UnixStream::connect(socket).await {
            // A server that was killed leaves its socket.
            Err(e) if e.kind() == ErrorKind::ConnectionRefused => Ok(None),
            // The first request reports any other failure.
            _ => Self::open(socket).map(Some),
        }
    }

    /// Sends a PUT without a body and returns the JSON answer. There is no time limit.
    pub(crate) async fn put(&self, path: &str) -> anyhow::Result<Value> {
        let url = format!("http://localhost{path}");
        self.send_request(path, self.http.put(url)).await
    }

    /// Sends a GET with a query and returns the JSON answer. There is no time limit.
    pub(crate) async fn get(
        &self,
        path: &str,
        query: &[(String, String)],
    ) -> anyhow::Result<Value> {
        let url = reqwest::Url::parse_with_params(&format!("http://localhost{path}"), query)?;
        self.send_request(path, self.http.get(url)).await
    }

    /// Removes an agent (`docs/format/session.md`). Returns true if there was one.
    pub(crate) async fn remove_agent(&self, agent: AgentId) -> anyhow::Result<bool> {
        let request = self.http.delete("http://localhost/agents");
        let request = request.header("x-wazuh-agent-id", agent.to_string());
        let answer = self.send_request("/agents", request).await?;
        Ok(at(&answer, "/noop").as_bool() != Some(true))
    }

    async fn send_request(
        &self,
        path: &str,
        request: reqwest::RequestBuilder,
    ) -> anyhow::Result<Value> {
        let answer = request.send().await.map_err(|e| self.unanswered(&e))?;
        let status = answer.status();
        let body = answer.bytes().await.map_err(|e| self.unanswered(&e))?;
        if !status.is_success() {
            bail!("{}", refusal(&body).unwrap_or_else(|| format!("{path}: status {status}")));
        }
        serde_json::from_slice(&body).with_context(|| format!("{}: {path}", self.socket))
    }

    /// Returns the error for a request without an answer. Only its innermost cause is used.
    fn unanswered(&self, error: &reqwest::Error) -> anyhow::Error {
        let mut cause: &dyn std::error::Error = error;
        while let Some(next) = cause.source() {
            cause = next;
        }
        let kind = cause.downcast_ref::<std::io::Error>().map(std::io::Error::kind);
        let socket = &self.socket;
        match kind {
            // A server that was killed leaves its socket.
            Some(ErrorKind::ConnectionRefused | ErrorKind::NotFound) => {
                anyhow!("{socket}: {NO_SERVER}")
            }
            Some(ErrorKind::PermissionDenied) => {
                anyhow!("{socket}: {cause}; run this as root or as the user that runs the server")
            }
            _ => anyhow!("{socket}: no answer: {cause}"),
        }
    }
}

/// Returns the `detail` of a refusal; the API and the agents' listener use the same field.
fn refusal(body: &[u8]) -> Option<String> {
    let body: Value = serde_json::from_slice(body).ok()?;
    let detail = at(&body, "/detail").as_str().filter(|text| !text.is_empty())?;
    Some(model::path::show_terminal(detail.as_bytes()))
}

/// Returns the value at a JSON pointer (RFC 6901), or null.
pub(crate) fn at<'a>(value: &'a Value, pointer: &str) -> &'a Value {
    value.pointer(pointer).unwrap_or(&Value::Null)
}

/// Returns a listener's address as a browser can open it: this machine's name in place of `0.0.0.0`
/// and `[::]`.
pub(crate) fn shown_address(listen: SocketAddr) -> String {
    if listen.ip().is_unspecified() {
        format!("{}:{}", host::system::hostname(), listen.port())
    } else {
        listen.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unspecified_address_is_shown_as_the_host_name() {
        let shown = |text: &str| shown_address(text.parse().unwrap());
        let name = format!("{}:55000", host::system::hostname());
        assert_eq!(shown("0.0.0.0:55000"), name);
        assert_eq!(shown("[::]:55000"), name);
        assert_eq!(shown("127.0.0.1:55000"), "127.0.0.1:55000");
        assert_eq!(shown("[::1]:55000"), "[::1]:55000");
    }
}
