//! The changes that arrive at a server of this process, printed as `holdfast changes` prints them.

use std::path::Path;
use std::time::Duration;

use reqwest::{Method, Response};
use serde_json::Value;
use service::Console;

use crate::changes;
use crate::client::Client;

/// Pause before a stream that ended is opened again.
const AGAIN_AFTER: Duration = Duration::from_secs(1);

/// A stream of the changes that arrive. The server sends it in pieces as they are read, so that it
/// takes little memory whatever arrives.
pub struct ChangeFeed {
    client: Client,
    stream: Response,
    /// Arrival number of the last event.
    last: u64,
}

impl ChangeFeed {
    /// Opens the stream of the server that listens on a unix socket. It begins with the next event.
    ///
    /// # Errors
    /// If the server does not answer, or refuses.
    pub async fn open(socket: &Path) -> anyhow::Result<Self> {
        let client = Client::local(socket)?;
        let stream = open_after(&client, 0).await?;
        Ok(Self { client, stream, last: 0 })
    }

    /// Prints each change until this is dropped. A stream that ends is continued after its last event.
    pub async fn print(mut self, console: &Console) {
        loop {
            let mut lines = LineBuffer::default();
            while let Ok(Some(piece)) = self.stream.chunk().await {
                lines.bytes.extend_from_slice(&piece);
                self.take_lines(&mut lines, console);
            }
            self.stream = loop {
                tokio::time::sleep(AGAIN_AFTER).await;
                match open_after(&self.client, self.last).await {
                    Ok(stream) => break stream,
                    Err(error) => tracing::debug!("changes are not printed: {error:#}"),
                }
            };
        }
    }

    fn take_lines(&mut self, lines: &mut LineBuffer, console: &Console) {
        while let Some(line) = lines.next_line() {
            self.take_line(&line, console);
        }
    }

    /// Takes a line of the stream: the number of an event, the number that the stream has reached, or
    /// the data of a change or a gap.
    fn take_line(&mut self, line: &str, console: &Console) {
        if let Some(number) = line.strip_prefix("id: ").or_else(|| line.strip_prefix(": at ")) {
            self.last = number.parse().unwrap_or(self.last);
        } else if let Some(data) = line.strip_prefix("data: ")
            && let Ok(item) = serde_json::from_str::<Value>(data)
            // A gap has no `changed_fields`.
            && item.get("changed_fields").is_some()
        {
            console.line(&changes::line(&item));
        }
    }
}

/// Opens the stream after an arrival number; 0 for the next event.
async fn open_after(client: &Client, last: u64) -> anyhow::Result<Response> {
    let query = [("since", last.to_string())];
    client.stream(client.request(Method::GET, &["events", "stream"], &query)?).await
}

/// Bytes that do not end in a line feed yet.
#[derive(Default)]
struct LineBuffer {
    bytes: Vec<u8>,
}

impl LineBuffer {
    /// Removes the first whole line, and returns it without its line feed.
    fn next_line(&mut self) -> Option<String> {
        let end = self.bytes.iter().position(|byte| *byte == b'\n')?;
        let line: Vec<u8> = self.bytes.drain(..=end).collect();
        Some(String::from_utf8_lossy(&line).trim_end().to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_joined_over_pieces() {
        let mut lines = LineBuffer::default();
        lines.bytes.extend_from_slice(b"id: 7\neve");
        assert_eq!(lines.next_line().as_deref(), Some("id: 7"));
        assert_eq!(lines.next_line(), None);
        lines.bytes.extend_from_slice(b"nt: change\n\n");
        assert_eq!(lines.next_line().as_deref(), Some("event: change"));
        assert_eq!(lines.next_line().as_deref(), Some(""));
        assert_eq!(lines.next_line(), None);
    }
}
