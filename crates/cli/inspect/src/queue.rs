//! `holdfast queue`: commands on an agent's database, which a running agent may have open.

use std::fmt::Write as _;
use std::ops::ControlFlow;
use std::path::Path;

use anyhow::bail;
use model::path::{show, show_terminal};
use model::timestamp;
use queue::{Body, ListFilter, ListedItem};
use serde_json::{Value, json};
use service::Console;

use crate::arguments::QueueCommand;
use crate::database::{FolderOf, database};
use crate::status::print_queue;

/// Runs one command. Returns false if a verification found a problem.
pub fn run_queue(command: QueueCommand, folder_of: FolderOf<'_>) -> anyhow::Result<bool> {
    let database = |of| database(of, folder_of);
    match command {
        QueueCommand::Status { of, json } => print_queue(&database(&of)?, json)?,
        QueueCommand::List { of, pending, dataset, path, limit, json } => {
            let file = database(&of)?;
            expect_dataset(&file, dataset.as_deref())?;
            let prefix = path.into_bytes();
            list(&file, &ListFilter { pending, dataset, prefix }, limit.into(), json)?;
        }
        QueueCommand::Verify { of, json } => return verify(&database(&of)?, json),
        QueueCommand::Compact { of, json } => compact(&database(&of)?, json)?,
    }
    Ok(true)
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
