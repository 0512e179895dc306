//! `holdfast agent status` and `holdfast queue status`.

use std::fmt::Write as _;
use std::path::Path;

use model::timestamp;
use queue::{DatabaseSummary, ReaderProcess};
use run::{last_scan, realtime_status};
use serde_json::{Value, json};
use service::Console;
use sync::OwnView;

use crate::database::agent_database;

/// Prints an agent's identity, connection and database for `holdfast agent status`. Returns true if
/// the agent runs and its last heartbeat was answered with 200.
pub fn agent_status(folder: &Path, as_json: bool) -> anyhow::Result<bool> {
    let path = agent_database(folder)?;
    let own = OwnView::read(folder)?;
    let runs = queue::is_open(&path)?;
    if !runs && !as_json {
        Console::new().line("the agent does not run: what follows is its last state");
    }
    status(&path, Some((&own, runs)), as_json)?;
    Ok(runs && own.contact.is_accepted())
}

/// Prints an agent's database for `holdfast queue status`.
pub(crate) fn print_queue(path: &Path, as_json: bool) -> anyhow::Result<()> {
    status(path, None, as_json)
}

fn status(path: &Path, own: Option<(&OwnView, bool)>, as_json: bool) -> anyhow::Result<()> {
    // List the readers before this process becomes one itself.
    let readers = queue::readers(path)?;
    let status = queue::peek(path)?;
    let scan = last_scan(path)?;
    let realtime = realtime_status(path)?;
    if as_json {
        let mut all =
            json!({ "queue": status, "readers": readers, "last_scan": scan, "realtime": realtime });
        if let (Some((own, runs)), Value::Object(fields)) = (own, &mut all) {
            fields.insert("agent".into(), serde_json::to_value(own)?);
            fields.insert("running".into(), runs.into());
        }
        Console::new().line(&all.to_string());
        return Ok(());
    }
    let mut text = own.map(|(own, _)| format!("{own}\n")).unwrap_or_default();
    text.push_str(&queue_text(&status, queue::is_open(path)?));
    text.push_str(&settings_text(&status, &readers));
    if let Some(scan) = scan {
        let _ = writeln!(text, "{}", run::last_scan_line(&scan));
    }
    if let Some(realtime) = realtime {
        let _ = write!(text, "{realtime}");
    }
    Console::new().line(text.trim_end());
    Ok(())
}

/// Formats the settings and the oldest reader of a database as lines for `queue status`, and a
/// write-ahead log that cannot be truncated.
fn settings_text(status: &DatabaseSummary, readers: &[ReaderProcess]) -> String {
    let mut text = format!(
        "durability {}, transaction {}, page {} bytes, wal_autocheckpoint {} pages, \
         journal_size_limit {} bytes\n",
        word(status.durability),
        word(status.transaction),
        status.page_bytes,
        status.wal_autocheckpoint_pages,
        status.journal_size_limit_bytes,
    );
    match readers.first() {
        Some(reader) => {
            let _ = writeln!(
                text,
                "oldest reader: process {}, {} pages behind",
                reader.pid, reader.pages_behind
            );
        }
        None => text.push_str("oldest reader: none\n"),
    }
    if let Some(since_us) = status.wal_held_since_us {
        let _ = writeln!(
            text,
            "the write-ahead log has been above its limit since {}: a reader prevents its truncation; end that reader",
            timestamp::micros(since_us)
        );
    }
    text
}

/// Returns the word for an option in the configuration.
fn word(option: impl serde::Serialize) -> String {
    let value = serde_json::to_value(option).ok();
    value.and_then(|value| value.as_str().map(str::to_owned)).unwrap_or_default()
}

/// Returns lines about an agent's database, which an agent has open or not.
fn queue_text(status: &DatabaseSummary, is_open: bool) -> String {
    let mut text = String::new();
    let time = |us: Option<u64>| us.map_or_else(|| "never".into(), timestamp::micros);
    for d in &status.datasets {
        let _ = writeln!(
            text,
            "{}: {} items, {} pending{}, {} refused; last acknowledged {}",
            d.name,
            d.items,
            d.pending,
            d.oldest_pending_us
                .map(|us| format!(" (oldest {})", timestamp::micros(us)))
                .unwrap_or_default(),
            d.exceptions,
            time(d.last_cycle_us),
        );
    }
    let _ = writeln!(
        text,
        "events: {} queued{}, {} dropped",
        status.events,
        status
            .oldest_event_us
            .map(|us| format!(" (oldest {})", timestamp::micros(us)))
            .unwrap_or_default(),
        status.events_dropped
    );
    let _ = writeln!(
        text,
        "agent.db: {} bytes, write-ahead log {} bytes; {}",
        status.file_bytes,
        status.wal_bytes,
        match (is_open, status.closed) {
            (true, _) => "in use",
            (false, true) => "closed cleanly",
            (false, false) => "not closed cleanly: the next start checks it",
        },
    );
    text
}
