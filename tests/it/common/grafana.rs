//! Requests as Grafana's data source for Prometheus sends them. Its source is the reference
//! (`pkg/promlib/client/client.go` and `packages/grafana-prometheus` of grafana/grafana): queries and
//! lists are sent with POST and a form, and with GET if POST is refused.

use std::fmt::Write as _;
use std::io::Read as _;
use std::net::SocketAddr;

use serde_json::Value;

/// Headers of each request. Those that begin with `x-` name the dashboard and the panel.
const HEADERS: [(&str, &str); 8] = [
    ("user-agent", "Grafana/13.2.3"),
    ("accept-encoding", "gzip"),
    ("x-dashboard-uid", "holdfast-hosts"),
    ("x-datasource-uid", "PBFA97CFB590B2093"),
    ("x-grafana-org-id", "1"),
    ("x-panel-id", "2"),
    ("x-panel-plugin-id", "timeseries"),
    ("x-query-group-id", "b2a0f9a4-8f0e-4a5e-9a6f-2a1f4e5d6c7b"),
];

/// Parameters of a request.
pub(crate) type Parameters<'a> = &'a [(&'a str, &'a str)];

/// A client of one query port.
pub(crate) struct Grafana {
    runtime: tokio::runtime::Runtime,
    http: reqwest::Client,
    url: String,
}

impl Grafana {
    pub(crate) fn of(port: SocketAddr) -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let _ = rustls::crypto::ring::default_provider().install_default();
        Self { runtime, http: reqwest::Client::new(), url: format!("http://{port}/api/v1/") }
    }

    /// Sends a request. Returns the status and the answer.
    pub(crate) fn send(
        &self,
        method: &str,
        path: &str,
        parameters: Parameters<'_>,
    ) -> (u16, Value) {
        self.runtime.block_on(self.answer(method, path, &form(parameters)))
    }

    /// Does the same as [`Grafana::send`]. Returns the data of the answer, which must be a success.
    pub(crate) fn data(&self, method: &str, path: &str, parameters: Parameters<'_>) -> Value {
        let (status, mut answer) = self.send(method, path, parameters);
        assert_eq!((status, &answer["status"]), (200, &"success".into()), "{path}: {answer}");
        answer["data"].take()
    }

    /// Sends requests at the same time, each with its path and parameters. Returns the answers in the
    /// order of the requests.
    pub(crate) fn send_at_once(&self, requests: &[(&str, Vec<(&str, &str)>)]) -> Vec<(u16, Value)> {
        let local = tokio::task::LocalSet::new();
        self.runtime.block_on(local.run_until(async {
            let mut answers = Vec::new();
            for (path, parameters) in requests {
                let request = self.request("POST", path, &form(parameters));
                answers.push(tokio::task::spawn_local(received(request)));
            }
            let mut received = Vec::new();
            for answer in answers {
                received.push(answer.await.unwrap());
            }
            received
        }))
    }

    async fn answer(&self, method: &str, path: &str, form: &str) -> (u16, Value) {
        received(self.request(method, path, form)).await
    }

    fn request(&self, method: &str, path: &str, form: &str) -> reqwest::RequestBuilder {
        let url = format!("{}{path}", self.url);
        let request = match method {
            "POST" => {
                let kind = "application/x-www-form-urlencoded";
                self.http.post(url).header("content-type", kind).body(form.to_owned())
            }
            _ => self.http.get(format!("{url}?{form}")),
        };
        HEADERS.iter().fold(request, |request, (name, value)| request.header(*name, *value))
    }
}

/// Sends a request. Returns its status and its answer, which may be compressed.
async fn received(request: reqwest::RequestBuilder) -> (u16, Value) {
    let answer = request.send().await.unwrap();
    let status = answer.status().as_u16();
    let head = answer.headers();
    assert!(head["content-type"].to_str().unwrap().starts_with("application/json"), "{head:?}");
    let compressed = head.get("content-encoding").is_some_and(|coding| coding == "gzip");
    let body = answer.bytes().await.unwrap();
    let mut text = Vec::new();
    if compressed {
        flate2::read::GzDecoder::new(&body[..]).read_to_end(&mut text).unwrap();
    } else {
        text = body.to_vec();
    }
    (status, serde_json::from_slice(&text).unwrap())
}

/// Returns parameters as a form.
fn form(parameters: Parameters<'_>) -> String {
    let mut out = String::new();
    for (name, value) in parameters {
        let sign = if out.is_empty() { "" } else { "&" };
        let _ = write!(out, "{sign}{}={}", escaped(name), escaped(value));
    }
    out
}

fn escaped(text: &str) -> String {
    let mut out = String::new();
    for byte in text.bytes() {
        let _ = match byte {
            b'-' | b'_' | b'.' | b'~' => write!(out, "{}", char::from(byte)),
            b' ' => write!(out, "+"),
            byte if byte.is_ascii_alphanumeric() => write!(out, "{}", char::from(byte)),
            byte => write!(out, "%{byte:02X}"),
        };
    }
    out
}
