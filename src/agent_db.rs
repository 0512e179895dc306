//! `holdfast queue`: commands on an agent's database, which a running agent may have open.

use std::fmt::Write as _;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use anyhow::bail;
use console::Console;
use model::path::{show, show_terminal};
use model::timestamp;
use queue::{Body, DatabaseSummary, ListFilter, ListedItem, ReaderProcess};
use scan::ScanRequest;
use serde_json::{Value, json};

use crate::cli::{QueueCommand, QueueOf, ScanArgs};
use crate::config::{self, AgentConfig};
use crate::folder::{DataFolder, is_there};
use crate::inspect;

/// Runs one command. Returns false if a verification found a problem.
pub(crate) fn run(command: QueueCommand) -> anyhow::Result<bool> {
    match command {
        QueueCommand::Status { of, json } => inspect::queue(&database(&of)?, json)?,
        QueueCommand::List { of, pending, dataset, path, limit, json } => {
            let file = database(&of)?;
            expect_dataset(&file, dataset.as_deref())?;
            let prefix = path.into_bytes();
            list(&file, &ListFilter { pending, dataset, prefix }, limit, json)?;
        }
        QueueCommand::Verify { of, json } => return verify(&database(&of)?, json),
        QueueCommand::Compact { of, json } => compact(&database(&of)?, json)?,
    }
    Ok(true)
}

/// Runs `holdfast scan`. Returns false if something could not be read.
pub(crate) fn scan(args: &ScanArgs) -> anyhow::Result<bool> {
    let ScanArgs { path, below, of, json, quiet, threads } = args;
    let request =
        ScanRequest { paths: path.clone(), json: *json, quiet: *quiet, threads: *threads };
    if !below {
        return scan::run(&request);
    }
    let database = database(of)?;
    let config = if let Some(file) = &of.config {
        config::load(file)?
    } else {
        let data = database.parent().map(Path::to_owned).unwrap_or_default();
        AgentConfig { data, ..AgentConfig::default() }
    };
    let (mut own, _) = config.into_settings();
    if of.config.is_none() {
        // That of `up` has the server's data too.
        own.excluded = vec![of.data.clone()];
    }
    scan::compare(&request, &database, &own.with_groups()?)
}

/// Returns the path of the database in an agent's own folder; fails if it does not exist.
pub(crate) fn of_agent(folder: &Path) -> anyhow::Result<PathBuf> {
    let path = folder.join("agent.db");
    if is_there(&path)? {
        return Ok(path);
    }
    bail!("{}: this agent has not run yet; start it first", path.display())
}

fn database(of: &QueueOf) -> anyhow::Result<PathBuf> {
    if let Some(file) = &of.config {
        let config: AgentConfig = config::load(file)?;
        return of_agent(&config.data);
    }
    let path = DataFolder::new(&of.data).agent().join("agent.db");
    // The folder of a separate agent holds the database directly.
    let own = of.data.join("agent.db");
    for path in [&path, &own] {
        if is_there(path)? {
            return Ok(path.clone());
        }
    }
    bail!(
        "{}: no agent has run in this folder; name another one with --data, or an agent's \
         configuration with --config",
        path.display()
    )
}

/// Returns an error if the named dataset is unknown: for a mistyped name the list would be empty.
fn expect_dataset(file: &Path, named: Option<&str>) -> anyhow::Result<()> {
    let Some(named) = named else { return Ok(()) };
    let known: Vec<String> = queue::peek(file)?.datasets.into_iter().map(|d| d.name).collect();
    if known.iter().any(|name| name == named) {
        return Ok(());
    }
    bail!("{named}: no such dataset; this agent has: {}", known.join(", "))
}

fn list(path: &Path, filter: &ListFilter, limit: u64, as_json: bool) -> anyhow::Result<()> {
    let console = Console::new();
    let mut left = limit;
    queue::list(path, filter, &mut |item| {
        if left == 0 {
            return ControlFlow::Break(());
        }
        left -= 1;
        console.line(&if as_json { object(&item).to_string() } else { line(&item) });
        ControlFlow::Continue(())
    })?;
    Ok(())
}

fn line(item: &ListedItem) -> String {
    let mut text = format!(
        "{} {} {}",
        timestamp::micros(item.seen),
        if item.pending { "pending" } else { "acked  " },
        show_terminal(&item.key.path()),
    );
    match &item.body {
        Body::Gone => text.push_str(" (gone)"),
        Body::Observation(seen) => {
            let _ = write!(text, " ({}, {} bytes)", seen.kind.name(), seen.size);
        }
        Body::Document(json) => {
            let _ = write!(text, " ({}, {} bytes)", item.dataset, json.len());
        }
    }
    if let Some(reason) = &item.refused {
        let _ = write!(text, " refused: {reason}");
    }
    text
}

fn object(item: &ListedItem) -> Value {
    let path = item.key.path();
    let exact = std::str::from_utf8(&path).is_err().then(|| {
        path.iter().fold(String::new(), |mut text, byte| {
            let _ = write!(text, "{byte:02x}");
            text
        })
    });
    let (kind, size) = match &item.body {
        Body::Observation(seen) => (Some(seen.kind.name()), Some(seen.size)),
        Body::Document(json) => (None, Some(json.len() as u64)),
        Body::Gone => (None, None),
    };
    json!({
        "dataset": item.dataset, "path": show(&path), "path_hex": exact, "version": item.seen,
        "seen": timestamp::micros(item.seen), "pending": item.pending, "known": item.known,
        "gone": item.body.is_gone(), "refused": item.refused, "type": kind, "bytes": size,
    })
}

fn verify(path: &Path, as_json: bool) -> anyhow::Result<bool> {
    let found = queue::verify(path)?;
    let sound = found.problem_count == 0;
    let console = Console::new();
    if as_json {
        console.line(&json!({ "sound": sound, "found": found }).to_string());
        return Ok(sound);
    }
    for problem in &found.problems {
        console.line(&format!("problem: {problem}"));
    }
    console.line(&format!(
        "{}: {} items in {} directories, {} events, {} problems",
        path.display(),
        found.items,
        found.directories,
        found.events,
        found.problem_count
    ));
    if !sound {
        console.line("restart the agent: it moves a damaged database aside and scans again");
    }
    Ok(sound)
}

fn compact(path: &Path, as_json: bool) -> anyhow::Result<()> {
    let done = queue::compact(path)?;
    let console = Console::new();
    if as_json {
        console.line(&serde_json::to_string(&done)?);
    } else {
        console.line(&format!(
            "{}: {} bytes before, {} bytes now",
            path.display(),
            done.bytes_before,
            done.bytes_after
        ));
    }
    Ok(())
}

/// Formats the settings and the oldest reader of a database as lines for `queue status`, and a
/// write-ahead log that cannot be truncated.
pub(crate) fn settings_text(status: &DatabaseSummary, readers: &[ReaderProcess]) -> String {
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
