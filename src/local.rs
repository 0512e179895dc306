//! Requests to a running server over its unix socket: the kernel says who asks.

use std::path::Path;

use anyhow::{Context as _, bail};
use model::AgentId;
use serde_json::Value;

/// A line to the server of one data folder.
pub(crate) struct Local {
    http: reqwest::Client,
    socket: String,
}

impl Local {
    /// Does not connect yet.
    pub(crate) fn open(socket: &Path) -> anyhow::Result<Self> {
        if !socket.exists() {
            bail!("{}: no server is running on this data folder", socket.display());
        }
        let http = reqwest::Client::builder().unix_socket(socket).no_proxy().build()?;
        Ok(Self { http, socket: socket.display().to_string() })
    }

    /// GET a path with its query; the JSON answer.
    pub(crate) async fn get(
        &self,
        path: &str,
        query: &[(String, String)],
    ) -> anyhow::Result<Value> {
        let url = reqwest::Url::parse_with_params(&format!("http://localhost{path}"), query)?;
        self.answer(path, self.http.get(url)).await
    }

    /// Remove an agent (`docs/format/session.md`).
    pub(crate) async fn remove_agent(&self, agent: AgentId) -> anyhow::Result<()> {
        let request = self.http.delete("http://localhost/agents");
        let request = request.header("x-wazuh-agent-id", agent.to_string());
        self.answer("/agents", request).await.map(drop)
    }

    async fn answer(&self, path: &str, request: reqwest::RequestBuilder) -> anyhow::Result<Value> {
        let answer = request.send().await.with_context(|| self.socket.clone())?;
        let status = answer.status();
        let body = answer.bytes().await.with_context(|| self.socket.clone())?;
        if !status.is_success() {
            bail!("{}: {path}: status {status}: {}", self.socket, String::from_utf8_lossy(&body));
        }
        serde_json::from_slice(&body).with_context(|| format!("{}: {path}", self.socket))
    }
}

/// The value at a JSON pointer (RFC 6901), or null.
pub(crate) fn at<'a>(value: &'a Value, pointer: &str) -> &'a Value {
    value.pointer(pointer).unwrap_or(&Value::Null)
}
