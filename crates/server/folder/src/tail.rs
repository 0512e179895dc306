//! The end of a journal as a part of a backup: the records that one of the copied databases lacks, so
//! that both can be brought to one position.

use std::ops::ControlFlow;

use anyhow::{Context as _, bail};
use journal::{Durability, Journal, Options};
use registry::ControlStore;
use state::StateStore;

use crate::layout::{DataFolder, is_there};

/// Bytes of records appended at a time.
const APPEND_BYTES: usize = 8 * 1024 * 1024;

/// Copies the records of `from`'s journal above the lower position of the two databases in `to` to a
/// journal there. Returns false if the journal no longer has all of them: both databases must be copied
/// again. A server may append and trim at the same time.
pub(crate) fn copy_tail(from: &DataFolder, to: &DataFolder) -> anyhow::Result<bool> {
    if !is_there(&to.state_db())? || !is_there(&to.registry_db())? || !is_there(&from.journal())? {
        return Ok(true);
    }
    // Without a position the registry is one of an older version, whose decisions are no records.
    let Some(registry) = ControlStore::position_of(&to.registry_db())? else { return Ok(true) };
    let state = StateStore::peek_applied(&to.state_db())?.0;
    let lower = registry.min(state);
    let (source, target) = (from.journal(), to.journal());
    journal::begin_at(&target, lower + 1).context("the copy's journal")?;
    let options = Options { spares: 0, position_expected: lower, ..Options::default() };
    let (copy, _) = Journal::open(&target, options).context("the copy's journal")?;
    let (mut next, mut batch, mut failed) = (lower + 1, Vec::new(), None);
    let (mut bytes, mut trimmed) = (0, false);
    let append = |batch: &mut Vec<Vec<u8>>| {
        let records = std::mem::take(batch);
        let records: Vec<&[u8]> = records.iter().map(Vec::as_slice).collect();
        let appended = copy.append_all(&records, Durability::Persist);
        appended.map(drop).context("the copy's journal")
    };
    journal::dump(&source, next, |group| {
        for (position, record) in (group.first_position..).zip(group.records) {
            if position < next {
                continue;
            }
            if position > next {
                trimmed = true;
                return ControlFlow::Break(());
            }
            next += 1;
            bytes += record.len();
            batch.push(record);
        }
        if bytes < APPEND_BYTES {
            return ControlFlow::Continue(());
        }
        bytes = 0;
        match append(&mut batch) {
            Ok(()) => ControlFlow::Continue(()),
            Err(error) => {
                failed = Some(error);
                ControlFlow::Break(())
            }
        }
    })
    .with_context(|| source.display().to_string())?;
    if let Some(error) = failed {
        return Err(error);
    }
    if !batch.is_empty() {
        append(&mut batch)?;
    }
    copy.close().context("the copy's journal")?;
    if trimmed {
        std::fs::remove_dir_all(&target).with_context(|| target.display().to_string())?;
    } else if next <= state {
        // The registry of a follower may be ahead of its journal, but no state is.
        bail!(
            "{}: ends before record {state}, which the state has; `holdfast journal verify` says why",
            source.display()
        );
    }
    Ok(!trimmed)
}

/// Applies the records of a restored folder's journal that its registry lacks. Returns false if it has
/// no journal.
///
/// # Errors
/// Returns an error if the journal or the registry cannot be read or written.
pub fn apply_tail(folder: &DataFolder) -> anyhow::Result<bool> {
    if !is_there(&folder.journal())? {
        return Ok(false);
    }
    let (journal, _) = Journal::open(&folder.journal(), Options::default()).context("journal")?;
    let log = commit::JournalLog(journal);
    let database = folder.registry_db();
    ControlStore::catch_up(&database, &log).with_context(|| database.display().to_string())?;
    log.0.close().context("journal")?;
    Ok(true)
}

/// Copies both databases of a server's folder and the end of its journal.
///
/// # Errors
/// Returns an error if the journal is trimmed again and again while they are copied.
pub(crate) fn copy_server(
    to: &DataFolder,
    from: &DataFolder,
    mut databases: impl FnMut() -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    for _ in 0..3 {
        databases()?;
        if copy_tail(from, to)? {
            return Ok(());
        }
        for database in [to.state_db(), to.registry_db()] {
            std::fs::remove_file(&database).with_context(|| database.display().to_string())?;
        }
    }
    bail!("{}: the journal was trimmed while it was copied: try again", from.journal().display())
}
