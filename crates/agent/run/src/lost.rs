//! The first cycle of each dataset of a new database, which has no record of what was reported to
//! the server. Before that cycle, changes made while the old database was missing become events.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;

use detect::Rules;
use queue::QueueError;
use sync::{SyncError, Watched};

use crate::datasets::DatasetKind;
use crate::notes;
use crate::packages::{self, Reading};
use crate::shared::Shared;

/// The state of the comparison.
enum ComparisonState {
    No,
    /// It cannot run before the first complete scan.
    Later,
    Now(Watched),
}

/// The state of a dataset before its first cycle.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DatasetReadiness {
    Yes,
    /// It cannot be reported before its first complete scan has ended.
    NotYet,
}

/// Compares a dataset with the server if that is due.
pub(crate) async fn compare_if_due(
    shared: &Arc<Shared>,
    kind: DatasetKind,
) -> Result<DatasetReadiness, SyncError> {
    let own = shared.clone();
    let watched = match blocking(move || due(&own, kind)).await? {
        ComparisonState::No => return Ok(DatasetReadiness::Yes),
        ComparisonState::Later => return Ok(DatasetReadiness::NotYet),
        ComparisonState::Now(watched) => watched,
    };
    let found = shared.syncer.report_lost_changes(shared.dataset_of(kind), watched).await?;
    if found.created + found.modified + found.deleted > 0 {
        // A check removes documents that only the server holds, and the last one may have run
        // without this dataset. The check is requested before the comparison is noted as done.
        // After a kill in between, the comparison runs again and reports nothing twice.
        shared.syncer.set_check_due(Some("what changed while agent.db was lost is known"));
        shared.console.line(&format!(
            "compared{} with what the server already had: {} created, {} modified, {} deleted",
            kind.label(),
            found.created,
            found.modified,
            found.deleted
        ));
    }
    let own = shared.clone();
    blocking(move || notes::set_compared(&own.queue, kind)).await?;
    Ok(DatasetReadiness::Yes)
}

fn due(shared: &Shared, kind: DatasetKind) -> Result<ComparisonState, QueueError> {
    let Some(seen_us) = notes::compare_due(&shared.queue, kind)? else {
        return Ok(ComparisonState::No);
    };
    let watched = match kind {
        DatasetKind::Files if notes::scanned(&shared.queue)? => {
            let gaps = notes::gaps(&shared.queue)?.into_iter().map(|gap| gap.path).collect();
            Watched { roots: roots(&shared.rules), gaps, seen_us, ..Watched::default() }
        }
        DatasetKind::Packages if packages::reading(&shared.queue)? == Reading::Current => {
            let Some(moving) = packages::moving(&shared.queue)? else {
                return Ok(ComparisonState::Later);
            };
            Watched { moving, seen_us, ..Watched::default() }
        }
        _ => return Ok(ComparisonState::Later),
    };
    Ok(ComparisonState::Now(watched))
}

/// Returns the watched paths with their links resolved.
fn roots(rules: &Rules) -> Vec<Vec<u8>> {
    let real = |path: &PathBuf| fs::canonicalize(path).unwrap_or_else(|_| path.clone());
    let paths = rules.0.iter().map(|watch| real(&watch.path));
    paths.map(|path| path.into_os_string().into_encoded_bytes()).collect()
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, QueueError> + Send + 'static,
) -> Result<T, SyncError> {
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => Ok(done?),
        Err(_) => Err(SyncError::Stopping),
    }
}
