//! `holdfast journal verify`, `stat`, `dump` and `repair`, whether or not a server has the journal open.

use std::ops::{ControlFlow, RangeInclusive};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use control::ControlStore;
use folder::{DataFolder, is_there};
use model::{Position, Record, timestamp};
use serde_json::{Value, json};
use service::Console;
use state::StateStore;

use crate::arguments::JournalArgs;

/// Runs `holdfast journal verify`. Returns false if the journal could not be opened, or if the
/// state next to it has applied more records than the journal still holds.
pub fn verify(args: &JournalArgs) -> anyhow::Result<bool> {
    let applied = applied_by_state(&args.dir)?;
    expect_journal(&args.dir, applied)?;
    // Read first: a server that runs goes on.
    let registry = applied_by_registry(&args.dir)?;
    let report = journal::verify(&args.dir)?;
    let end = report.last_position;
    let ahead = |name: &str, applied: Option<u64>| {
        let applied = applied.filter(|applied| *applied > end)?;
        Some(format!("ends at record {end}, but the {name} next to it has applied {applied}"))
    };
    let lost = ahead("state", applied.map(|a| a.0)).or_else(|| ahead("registry", registry));
    let damage = report.damage.as_ref().map(ToString::to_string).or(lost);
    let sound = damage.is_none();
    let cut = report.cut.as_ref().filter(|_| sound);
    let cut = cut.map(|c| json!({"file": c.file, "offset": c.offset, "position": c.position}));
    service::report(
        args.json,
        &json!({
            "sound": sound, "applied_by_state": applied, "applied_by_registry": registry, "segments": report.segments.len(), "groups": report.groups,
            "first_position": report.first_position, "last_position": report.last_position,
            "bytes_read": report.bytes_read, "closed": report.closed,
            "torn_tail": cut, "damage": damage, "consumers": report.consumers,
        }),
    );
    Ok(sound)
}

/// `holdfast journal stat`.
pub fn stat(args: &JournalArgs, following: &Value) -> anyhow::Result<()> {
    expect_journal(&args.dir, applied_by_state(&args.dir)?)?;
    let stat = journal::stat(&args.dir)?;
    let segments: Vec<Value> = stat
        .segments
        .iter()
        .map(|(file, layout, epoch, first, bytes)| {
            json!({"file": file, "layout": format!("{layout:?}").to_lowercase(), "epoch": epoch,
                "first_position": first, "bytes": bytes})
        })
        .collect();
    service::report(
        args.json,
        &json!({"bytes": stat.bytes, "spares": stat.spares, "segments": segments,
            "consumers": stat.consumers, "following": following}),
    );
    Ok(())
}

/// Runs `holdfast journal dump`: prints one JSON object per record.
pub fn dump(args: &JournalArgs, from: u64, limit: u64) -> anyhow::Result<()> {
    expect_journal(&args.dir, applied_by_state(&args.dir)?)?;
    let console = Console::new();
    let mut left = limit;
    journal::dump(&args.dir, from, |group| {
        for (position, record) in (group.first_position..).zip(&group.records) {
            if position < from {
                continue;
            }
            if left == 0 {
                return ControlFlow::Break(());
            }
            left -= 1;
            console.line(&describe(position, record).to_string());
        }
        ControlFlow::Continue(())
    })?;
    Ok(())
}

/// Runs `holdfast journal repair`. Returns false if there was damage or the state was ahead of the
/// journal. A state that is ahead, or that had not applied a lost record, keeps its content and
/// continues under a new store name, so that every agent is compared with it. It sets a placeholder of a
/// lost record aside with a coverage event, as any record that cannot be decoded.
pub fn repair(args: &JournalArgs) -> anyhow::Result<bool> {
    let applied = applied_by_state(&args.dir)?;
    expect_journal(&args.dir, applied)?;
    let folder = data_folder_of(&args.dir)?;
    // The lock keeps a server from starting during the repair.
    let _lock = applied.map(|_| DataFolder::new(&folder).claim()).transpose()?;
    if applied.is_some() {
        std::fs::create_dir_all(&args.dir)?;
    }
    let registry = applied_by_registry(&args.dir)?;
    let seen = applied.map_or(0, |applied| applied.0).max(registry.unwrap_or_default());
    let report = journal::repair(&args.dir, seen)?;
    let ahead = applied.is_some_and(|a| a.0 > report.last_position);
    let lost_unapplied: Vec<_> = (report.lost.iter())
        .filter_map(|lost| {
            let first = applied.map_or(0, |applied| applied.0) + 1;
            (*lost.end() >= first).then(|| first.max(*lost.start())..=*lost.end())
        })
        .collect();
    let mut compared = false;
    if let Some(applied) = applied
        && (report.cut || ahead || !lost_unapplied.is_empty())
    {
        let state = DataFolder::new(&folder).state_db();
        let end = Position(report.last_position.min(applied.0));
        StateStore::prepare_restored(&state, end)?;
        compared = true;
    }
    let registry_ahead = registry.is_some_and(|registry| registry > report.last_position);
    if registry_ahead {
        ControlStore::forget_position(&DataFolder::new(&folder).registry_db())?;
    }
    let ranges = |all: &[RangeInclusive<u64>]| -> Vec<String> {
        let one = |range: &RangeInclusive<u64>| match (*range.start(), *range.end()) {
            (first, last) if first == last => first.to_string(),
            (first, last) => format!("{first}-{last}"),
        };
        all.iter().map(one).collect()
    };
    let damage = report.damage.as_ref().map(ToString::to_string);
    let untouched = damage.is_none() && !ahead && !registry_ahead;
    service::report(
        args.json,
        &json!({"damage": damage, "lost": ranges(&report.lost), "cut": report.cut,
            "cut_records_at_least": report.cut_records_at_least,
            "last_position": report.last_position, "set_aside": report.set_aside,
            "consumers_lowered": report.consumers_lowered, "applied_by_state": applied,
            "lost_unapplied": ranges(&lost_unapplied), "agents_compared": compared}),
    );
    Ok(untouched)
}

/// Returns the position of the last decision that the registry next to a journal has, if it is one of a
/// server.
fn applied_by_registry(dir: &Path) -> anyhow::Result<Option<u64>> {
    let folder = DataFolder::new(&data_folder_of(dir)?);
    let database = folder.registry_db();
    // The registry of a follower may be ahead of the records that it has.
    if !is_there(&database)? || folder.follows()? {
        return Ok(None);
    }
    Ok(ControlStore::position_of(&database)?)
}

/// Returns the position up to which the server's state next to a journal has applied it, if any.
fn applied_by_state(dir: &Path) -> anyhow::Result<Option<Position>> {
    let state = DataFolder::new(data_folder_of(dir)?).state_db();
    if !is_there(&state)? {
        return Ok(None);
    }
    Ok(Some(StateStore::peek_applied(&state)?))
}

/// Returns the data folder that contains a journal's folder.
fn data_folder_of(dir: &Path) -> anyhow::Result<PathBuf> {
    let whole = std::path::absolute(dir).with_context(|| dir.display().to_string())?;
    Ok(whole.parent().map(Path::to_owned).unwrap_or(whole))
}

/// Returns an error unless the folder holds a journal. A folder `journal` next to a server's state
/// counts as one even if its files are lost.
fn expect_journal(dir: &Path, applied: Option<Position>) -> anyhow::Result<()> {
    if applied.is_some()
        && DataFolder::new(data_folder_of(dir)?).journal() == std::path::absolute(dir)?
    {
        return Ok(());
    }
    if dir.is_file() {
        bail!("{}: a file; name the journal's folder", dir.display());
    }
    if journal::holds_journal(dir)? {
        return Ok(());
    }
    let inner = DataFolder::new(dir).journal();
    if inner.is_dir() && journal::holds_journal(&inner)? {
        bail!("{}: no journal is here; name {}", dir.display(), inner.display());
    }
    bail!("{}: no journal is here; name a journal's folder, such as data/journal", dir.display())
}

/// Describes a record of the server's journal, without the documents themselves.
fn describe(position: u64, bytes: &[u8]) -> Value {
    match Record::decode(bytes) {
        Ok(Record::Session(s)) => json!({
            "position": position, "kind": "session", "agent": s.agent.to_string(),
            "session": s.session, "received": timestamp::micros(s.received_at_us),
            "writes": s.writes.len(), "bytes": bytes.len(),
        }),
        Ok(Record::AgentRemoved { agent, at_us, .. }) => json!({
            "position": position, "kind": "agent_removed", "agent": agent.to_string(),
            "at": timestamp::micros(at_us), "bytes": bytes.len(),
        }),
        Ok(Record::ServerEvent { id, at_us, .. }) => json!({
            "position": position, "kind": "server_event", "id": id,
            "at": timestamp::micros(at_us), "bytes": bytes.len(),
        }),
        Ok(Record::AgentEvents { at_us, events }) => json!({
            "position": position, "kind": "agent_events", "events": events.len(),
            "at": timestamp::micros(at_us), "bytes": bytes.len(),
        }),
        // Without the values, among which are password hashes and keys.
        Ok(Record::RegistryRows(rows)) => json!({
            "position": position, "kind": "registry_rows", "rows": control::log::describe(&rows),
            "bytes": bytes.len(),
        }),
        Ok(Record::Retain { through, tombstones_before_us, event }) => json!({
            "position": position, "kind": "retain", "through": through,
            "tombstones_before": timestamp::micros(tombstones_before_us),
            "event": event.map(|event| event.id), "bytes": bytes.len(),
        }),
        Ok(Record::Report(report)) => json!({
            "position": position, "kind": "report", "report": format!("{:?}", report.kind).to_lowercase(),
            "agent": report.agent.to_string(),
            "at": timestamp::micros(report.at_us), "bytes": bytes.len(),
        }),
        Err(why) => json!({
            "position": position, "kind": "unknown", "detail": why, "bytes": bytes.len(),
        }),
    }
}
