//! The first cycle of each dataset of a database that does not know what the server was told: what
//! changed while it was lost becomes events first.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;

use detect::Rules;
use queue::QueueError;
use sync::{SyncError, Watched};

use super::packages::{self, Known};
use super::tell::Told;
use super::{Shared, notes};

/// How it stands with the comparison.
enum Due {
    No,
    /// Not before the first whole look.
    Later,
    Now(Watched),
}

/// Compare if that is due; whether the dataset may be told now.
pub(super) async fn settle(shared: &Arc<Shared>, what: Told) -> Result<bool, SyncError> {
    let own = shared.clone();
    let watched = match blocking(move || due(&own, what)).await? {
        Due::No => return Ok(true),
        Due::Later => return Ok(false),
        Due::Now(watched) => watched,
    };
    let found = shared.syncer.report_lost_changes(what.dataset(shared), watched).await?;
    if found.created + found.modified + found.deleted > 0 {
        // What only the server holds goes with a check; the one that was due may have been made
        // without this dataset. Before the comparison is noted as made: killed in between, it is
        // made again and tells nothing twice.
        shared.syncer.set_check_due(Some("what changed while agent.db was lost is known"));
        shared.console.line(&format!(
            "compared{} with what the server was told before: {} created, {} modified, {} deleted",
            what.shown(),
            found.created,
            found.modified,
            found.deleted
        ));
    }
    let own = shared.clone();
    blocking(move || notes::set_compared(&own.queue, what)).await?;
    Ok(true)
}

fn due(shared: &Shared, what: Told) -> Result<Due, QueueError> {
    let Some(seen_us) = notes::compare_due(&shared.queue, what)? else { return Ok(Due::No) };
    let watched = match what {
        Told::Files if notes::scanned(&shared.queue)? => {
            let gaps = notes::gaps(&shared.queue)?.into_iter().map(|gap| gap.path).collect();
            Watched { roots: roots(&shared.rules), gaps, seen_us, ..Watched::default() }
        }
        Told::Packages if packages::known(&shared.queue)? == Known::Now => {
            let Some(moving) = packages::moving(&shared.queue)? else { return Ok(Due::Later) };
            Watched { moving, seen_us, ..Watched::default() }
        }
        _ => return Ok(Due::Later),
    };
    Ok(Due::Now(watched))
}

/// Where the watched paths really lie.
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
