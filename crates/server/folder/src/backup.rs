//! A consistent copy of a data folder while it is in use, and a folder made from a copy.
//!
//! Each database is copied with SQLite's online backup, which sees one committed state. The order
//! is important: first the agent's queue, then the server's databases. In this order the restored agent may
//! report changes again that the restored server already has, which is harmless. In the other order it
//! would consider changes acknowledged that the server does not have. Of the journal, the records that
//! one of the two databases lacks are copied last: the restored server applies them, so that both are of
//! one position, also if they come from the folder of a killed server. The series store is copied last: the restored
//! agent may send rows again that are already stored, which changes nothing.
//!
//! The configuration that the server was started with is saved as `server.toml`, wherever it is.
//! Restoring leaves it in the data folder: a file elsewhere is never overwritten.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, bail};
use rusqlite::backup::Backup;
use rusqlite::{Connection, OpenFlags};

use crate::layout::{DataFolder, is_there};
use crate::tail::copy_server;

/// Pages copied at a time; writers can proceed between two steps.
const PAGES_PER_STEP: i32 = 2_000;
/// Time to wait for a busy database.
const BUSY_TIMEOUT: Duration = Duration::from_secs(30);
/// Marker of a complete backup; it is written last.
const MARKER: &str = "holdfast-backup.json";
/// Name of the server's configuration in a backup.
const CONFIG: &str = "server.toml";
/// Permissions of a backup's folder and of a restored one: they hold hashes, keys and everything
/// that agents reported, in files whose own permissions rely on the folder's.
const FOLDER_MODE: u32 = 0o700;
/// The queue of the metrics of the agent's host, in the agent's folder.
const METRICS_DB: &str = "metrics.db";
/// The agent's files next to its queue.
const AGENT_FILES: [&str; 6] =
    ["key.pem", "cert.pem", "key.next.pem", "cert.next.pem", "ca.pem", "agent.json"];

/// Copies a data folder that may be in use to a folder that is empty or does not exist. Returns a line
/// that says what was copied.
///
/// # Errors
/// Returns an error if `from` is not a data folder, `to` lies in it or is not empty, or a file cannot be
/// copied or persisted.
pub fn backup(from: &Path, to: &Path) -> anyhow::Result<String> {
    let (from, target) = (DataFolder::new(from), to);
    if !is_there(&from.series())? {
        from.expect()?;
    }
    expect_outside(target, from.path())?;
    empty_folder(target)?;
    let to = DataFolder::new(target);
    let copied = RefCell::new(BTreeSet::new());
    let database = |from: &Path, to: &Path| -> anyhow::Result<()> {
        if from.exists() {
            copy_database(from, to)?;
            let name = to.file_name().unwrap_or_default().to_string_lossy().into_owned();
            copied.borrow_mut().insert(name);
        }
        Ok(())
    };
    fs::create_dir_all(to.agent()).with_context(|| to.agent().display().to_string())?;
    // Copy this before agent.db: gaps move from it to agent.db, and a gap may be reported twice but
    // must not be missing.
    database(&from.agent().join(METRICS_DB), &to.agent().join(METRICS_DB))?;
    database(&from.agent().join("agent.db"), &to.agent().join("agent.db"))?;
    copy_server(&to, &from, || {
        database(&from.state_db(), &to.state_db())?;
        database(&from.registry_db(), &to.registry_db())
    })?;
    let mut copied = copied.into_inner();
    if copy_series(&from, &to)? {
        copied.insert("series".into());
    }
    copy_folder(&from.keys(), &to.keys())?;
    // Without the clock, a restored folder could expire data on its first day.
    copy_file(&from.clock(), &to.clock())?;
    copy_folder(&from.rules(), &to.rules())?;
    for name in AGENT_FILES {
        copy_file(&from.agent().join(name), &to.agent().join(name))?;
    }
    let config = from.recorded_config();
    copy_file(&from.config_path(), &to.config_path())?;
    let mut remark = String::new();
    if let Some(file) = &config {
        copy_file(file, &target.join(CONFIG))?;
        if !file.exists() {
            remark = format!("; without the configuration {}: it is not there", file.display());
        }
    }
    let marker = serde_json::json!({ "version": env!("CARGO_PKG_VERSION"), "databases": copied });
    fs::write(target.join(MARKER), marker.to_string())?;
    persist(target)?;
    let copied = copied.into_iter().collect::<Vec<_>>().join(", ");
    Ok(format!("backup: {copied} in {}{remark}", target.display()))
}

/// Copies a backup to a data folder that is empty or does not exist. Returns a line that says how to go
/// on.
///
/// # Errors
/// Returns an error if `from` is not a complete backup, `data` is not empty, or a file cannot be copied
/// or persisted.
pub fn restore(from: &Path, data: &Path) -> anyhow::Result<String> {
    if !is_there(&from.join(MARKER))? {
        bail!("{} is not a complete backup: {MARKER} is missing", from.display());
    }
    empty_folder(data)?;
    copy_folder(from, data)?;
    fs::rename(data.join(MARKER), DataFolder::new(data).restored_marker())?;
    persist(data)?;
    let saved = data.join(CONFIG);
    let remark = match DataFolder::new(data).recorded_config() {
        Some(file) if saved.exists() => {
            format!("; {} is the configuration that was {}", saved.display(), file.display())
        }
        _ => String::new(),
    };
    Ok(format!("restored: {}; start it as usual{remark}", data.display()))
}

/// Returns an error if the backup would be written into the folder that it copies.
fn expect_outside(to: &Path, data: &Path) -> anyhow::Result<()> {
    let data = data.canonicalize().with_context(|| data.display().to_string())?;
    let whole = std::path::absolute(to).with_context(|| to.display().to_string())?;
    // The target need not exist; resolve links in its nearest existing ancestor.
    let there = whole.ancestors().find_map(|above| above.canonicalize().ok());
    if there.is_some_and(|there| there.starts_with(&data)) {
        bail!("{}: lies in the data folder itself; name a folder elsewhere", to.display());
    }
    Ok(())
}

fn empty_folder(folder: &Path) -> anyhow::Result<()> {
    if folder.exists() && fs::read_dir(folder)?.next().is_some() {
        bail!("{} is not empty; name a new folder", folder.display());
    }
    fs::create_dir_all(folder)
        .and_then(|()| fs::set_permissions(folder, fs::Permissions::from_mode(FOLDER_MODE)))
        .with_context(|| folder.display().to_string())
}

pub(crate) fn copy_database(from: &Path, to: &Path) -> anyhow::Result<()> {
    let what = || from.display().to_string();
    let source =
        Connection::open_with_flags(from, OpenFlags::SQLITE_OPEN_READ_WRITE).with_context(what)?;
    source.busy_timeout(BUSY_TIMEOUT)?;
    let mut target = Connection::open(to).with_context(|| to.display().to_string())?;
    Backup::new(&source, &mut target)
        .and_then(|b| b.run_to_completion(PAGES_PER_STEP, Duration::from_millis(1), None))
        .with_context(what)?;
    let fine: String = target.query_row("PRAGMA quick_check(1)", [], |row| row.get(0))?;
    if fine != "ok" {
        bail!("{}: the copy is damaged: {fine}", from.display());
    }
    drop(target);
    // A database in use by the server keeps its own permissions; the copy holds the same secrets.
    fs::set_permissions(to, fs::metadata(from)?.permissions())?;
    Ok(())
}

/// Copies the series store, in use or not. Returns true if there is one.
fn copy_series(from: &DataFolder, to: &DataFolder) -> anyhow::Result<bool> {
    copy_file(&from.series_toml(), &to.series_toml())?;
    let dir = from.series();
    if !dir.is_dir() {
        return Ok(false);
    }
    let files: Arc<dyn env::files::Files> = Arc::new(env::files::RealFiles);
    series::backup(&dir, &to.series(), &files).context("series")?;
    Ok(true)
}

fn copy_file(from: &Path, to: &Path) -> anyhow::Result<()> {
    if from.exists() {
        fs::copy(from, to).with_context(|| from.display().to_string())?;
    }
    Ok(())
}

pub(crate) fn copy_folder(from: &Path, to: &Path) -> anyhow::Result<()> {
    if !from.exists() {
        return Ok(());
    }
    fs::create_dir_all(to).with_context(|| to.display().to_string())?;
    fs::set_permissions(to, fs::metadata(from)?.permissions())?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let (source, target) = (entry.path(), to.join(entry.file_name()));
        if entry.file_type()?.is_dir() {
            copy_folder(&source, &target)?;
        } else if entry.file_type()?.is_file() {
            copy_file(&source, &target)?;
        }
    }
    Ok(())
}

/// Syncs all files and folders below `folder`, so that they survive a power cut.
fn persist(folder: &Path) -> anyhow::Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            persist(&path)?;
        } else {
            fs::File::open(&path)?.sync_all()?;
        }
    }
    fs::File::open(folder)?.sync_all().with_context(|| folder.display().to_string())
}
