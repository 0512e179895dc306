//! A consistent copy while the store is in use.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::Connection;
use rusqlite::backup::Backup;

use crate::error::{Context, StateError};

const WHAT: &str = "copy state.db";
/// Pages copied at a time.
const PAGES_PER_STEP: i32 = 4_096;

/// Copies what `source` sees now into a new file that survives a power cut. One read transaction
/// spans the copy: writers continue, and the write-ahead log grows in the meantime.
pub(super) fn backup(source: &Connection, file: &Path) -> Result<(), StateError> {
    let io = |path: &Path, source| StateError::Io { path: path.to_owned(), source };
    if file.exists() {
        let exists = std::io::Error::from(std::io::ErrorKind::AlreadyExists);
        return Err(io(file, exists));
    }
    let part = part_of(file);
    match fs::remove_file(&part) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => return Err(io(&part, e)),
        _ => {}
    }
    copy(source, &part)?;
    File::open(&part).and_then(|f| f.sync_all()).map_err(|e| io(&part, e))?;
    fs::rename(&part, file).map_err(|e| io(file, e))?;
    let folder = file.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    File::open(folder).and_then(|f| f.sync_all()).map_err(|e| io(folder, e))
}

fn part_of(file: &Path) -> PathBuf {
    let mut name = file.as_os_str().to_owned();
    name.push(".part");
    PathBuf::from(name)
}

fn copy(source: &Connection, part: &Path) -> Result<(), StateError> {
    let snapshot = source.unchecked_transaction().context(WHAT)?;
    // The snapshot begins with the first read.
    snapshot.query_row("SELECT applied FROM progress", [], |_| Ok(())).context(WHAT)?;
    let mut copy = Connection::open(part).context(WHAT)?;
    Backup::new(&snapshot, &mut copy)
        .and_then(|b| b.run_to_completion(PAGES_PER_STEP, Duration::ZERO, None))
        .context(WHAT)?;
    copy.close().map_err(|(_, e)| e).context(WHAT)
}
