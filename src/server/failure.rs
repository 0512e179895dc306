//! The end of a server whose journal, `state.db` or `registry.db` has failed. None of them accepts
//! anything more in this process, and opening them again decides what survived. So the process ends,
//! and whatever started it starts it again.

use std::time::Duration;

use commit::CommitError;
use tracing::warn;

use super::Server;

/// Longest time that a stop may take after a failure.
const STOP_MAX: Duration = Duration::from_secs(20);

/// Interval at which the registry is asked whether it failed.
const REGISTRY_EVERY: Duration = Duration::from_secs(1);

/// A failure of a store while the server ran.
#[derive(Debug, thiserror::Error)]
pub(crate) enum StoreFailed {
    #[error("the server stopped because a store failed: {0}")]
    Commit(CommitError),
    #[error("the server stopped because a flush of registry.db failed: {0}")]
    Registry(String),
}

impl Server {
    /// Waits until a store has failed. Never returns if `exits` is false.
    pub(crate) async fn failed(&self, exits: bool) -> StoreFailed {
        if !exits {
            return std::future::pending().await;
        }
        tokio::select! {
            error = self.commit.failed() => StoreFailed::Commit(error),
            failure = self.registry_failed() => failure,
        }
    }

    async fn registry_failed(&self) -> StoreFailed {
        loop {
            if let Some(failure) = self.registry.failure() {
                return StoreFailed::Registry(failure.cause);
            }
            tokio::time::sleep(REGISTRY_EVERY).await;
        }
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
