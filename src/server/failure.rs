//! The end of a server whose journal or `state.db` has failed. Neither accepts anything more in this
//! process, and opening them again decides what survived. So the process ends, and whatever started
//! it starts it again.

use std::time::Duration;

use commit::CommitError;
use tracing::warn;

use super::Server;

/// Longest time that a stop may take after a failure.
const STOP_MAX: Duration = Duration::from_secs(20);

/// A failure of the journal or of `state.db` while the server ran.
#[derive(Debug, thiserror::Error)]
#[error("the server stopped because a store failed: {0}")]
pub(crate) struct StoreFailed(CommitError);

impl Server {
    /// Waits until the journal or `state.db` has failed. Never returns if `exits` is false.
    pub(crate) async fn failed(&self, exits: bool) -> StoreFailed {
        if !exits {
            return std::future::pending().await;
        }
        StoreFailed(self.commit.failed().await)
    }

    /// Stops the server. After a failure, returns that failure; errors of the stop follow from it
    /// and are only logged.
    pub(crate) async fn stop_after(self, failed: Result<(), StoreFailed>) -> anyhow::Result<()> {
        let Err(failed) = failed else { return self.stop().await };
        match tokio::time::timeout(STOP_MAX, self.stop()).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => warn!("stop after a failure: {error:#}"),
            Err(_) => warn!("stop after a failure: not finished after {STOP_MAX:?}"),
        }
        Err(failed.into())
    }
}
