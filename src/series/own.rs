//! Stores the program's own `/metrics` (Prometheus text) in its series store. The text is requested
//! from the API in the same way as by a user on this machine.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::Request;
use series::{Ack, Batch, RowName, Store};
use tokio::sync::watch;
use tracing::warn;

/// Largest text that is read, bytes.
const TEXT_BYTES_MAX: usize = 16 << 20;

/// Stores the metrics at each interval until stopped. A failed write is logged.
pub(crate) async fn store(
    store: Store,
    router: Router,
    interval: Duration,
    mut stopped: watch::Receiver<bool>,
) {
    loop {
        tokio::select! {
            () = tokio::time::sleep(interval) => {}
            _ = stopped.wait_for(|s| *s) => return,
        }
        let Some(text) = fetch_metrics(router.clone()).await else { continue };
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let batch = batch(&store, &text, now.as_nanos() as i64);
        if let Err(e) = store.write_async(batch, Ack::Flushed).await {
            warn!("own metrics were not stored: {e}");
        }
    }
}

/// Returns the text of `/metrics`, requested as by root on the unix socket. Returns `None` if it is
/// too large or not UTF-8.
async fn fetch_metrics(router: Router) -> Option<String> {
    use tower::ServiceExt as _;
    let mut request = Request::new(Body::empty());
    *request.uri_mut() = "/metrics".parse().ok()?;
    request.extensions_mut().insert(listener::Source::Unix { uid: 0 });
    let response = match router.oneshot(request).await {
        Ok(response) => response,
        Err(never) => match never {},
    };
    let body = to_bytes(response.into_body(), TEXT_BYTES_MAX).await.ok()?;
    String::from_utf8(body.to_vec()).ok()
}

/// Returns one sample for each line of the text. Every metric gets the tag `source=server`. Lines that
/// are not samples are skipped.
fn batch(store: &Store, text: &str, time_ns: i64) -> Batch {
    let mut batch = Batch::new();
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let Some((name, value)) = sample(line) else { continue };
        let Ok(row) = store.row_of(&name) else { continue };
        // The push fails if the batch is full, which is not expected for `/metrics`.
        let _ = batch.push(row, time_ns, &[value]);
    }
    batch
}

/// Parses one line, `name{label="value",...} number`.
fn sample(line: &str) -> Option<(RowName, f64)> {
    let (name, value) = line.rsplit_once(' ')?;
    let (metric, labels) = name.split_once('{').unwrap_or((name, "}"));
    let mut tags = vec![("source".to_owned(), "server".to_owned())];
    let mut rest = labels.strip_suffix('}')?;
    while let Some((label, behind)) = rest.split_once("=\"") {
        let (text, behind) = unquoted(behind)?;
        tags.push((label.trim_start_matches(',').to_owned(), text));
        rest = behind;
    }
    let name = RowName::new(vec![metric.to_owned()], tags).ok()?;
    Some((name, value.parse().ok()?))
}

/// Returns a label's value up to its closing quote, and the rest of the text.
fn unquoted(text: &str) -> Option<(String, &str)> {
    let mut value = String::new();
    let mut chars = text.char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            '"' => return Some((value, text.get(at + 1..)?)),
            '\\' => match chars.next()?.1 {
                'n' => value.push('\n'),
                other => value.push(other),
            },
            other => value.push(other),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prometheus_line_becomes_a_sample_with_its_labels() {
        let (name, value) = sample(r#"requests_total{path="/a b",code="2\"00"} 17"#).unwrap();
        assert_eq!(
            (name.text(), value),
            (r#"requests_total code=2"00 path=/a\ b source=server"#.into(), 17.0)
        );
        let (name, value) = sample("up 1.5e-3").unwrap();
        assert_eq!((name.text(), value), ("up source=server".into(), 0.0015));
        for nothing in ["", "up", "up{a=\"b} 1", "up{a=\"b\" 1", "up x"] {
            assert!(sample(nothing).is_none(), "{nothing}");
        }
    }
}
