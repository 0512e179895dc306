//! Requests to a running server over its unix socket: the kernel says who asks.

use std::path::Path;

use anyhow::{Context as _, bail};
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
        let answer = self.http.get(url).send().await.with_context(|| self.socket.clone())?;
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
