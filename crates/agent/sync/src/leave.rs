//! The last message of an agent that leaves the fleet.

use link::{ControlAction, ControlRequest};
use tracing::warn;

use crate::SyncError;
use crate::syncer::Syncer;

impl Syncer {
    /// Tells the server that this agent leaves the fleet. Returns the number of changes and events
    /// that the server has not acknowledged.
    ///
    /// # Errors
    /// Returns an error if there is no answer, or a refusal.
    pub async fn leave(&self) -> Result<u64, SyncError> {
        // No scan follows.
        self.note_scanned();
        let pending = self.pending().await?;
        let request = ControlRequest {
            action: ControlAction::Shutdown,
            version: self.options.version.clone(),
            config: Some(self.config.lock().clone()),
            pending: Some(pending),
            leaves: true,
            ..ControlRequest::default()
        };
        let answered = self.beat(&request).await;
        let groups = answered.as_ref().map(|answer| answer.agent.groups.clone());
        if let Err(error) = self.note_contact(groups).await {
            warn!(%error, "the answer is not recorded: `holdfast agent status` shows an older one");
        }
        answered.map(|_| pending)
    }
}
