//! Sends rows of metrics to the server's series store (`docs/format/rows.md`).

use serde::Deserialize;

use crate::client::{protocol, refused};
use crate::{SyncError, Syncer};

/// Content type of rows: one JSON object per line.
const ROWS_TYPE: &str = "application/x-ndjson";
/// Route of the request.
const ROUTE: &str = "/series";

/// The server's result for the rows of one request.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(default)]
pub struct RowsReport {
    /// Rows that are persisted.
    pub rows: u64,
    /// Rows that the server will never accept.
    pub refused: u64,
    /// Reason why the first of those was refused.
    pub reason: Option<String>,
}

impl Syncer {
    /// Sends lines of rows. When this returns, the server has persisted them. Sending them again is
    /// harmless.
    ///
    /// # Errors
    /// Returns an error if the server cannot be reached or does not accept them now.
    pub async fn send_rows(&self, lines: Vec<u8>) -> Result<RowsReport, SyncError> {
        let reply = self.client().post(ROUTE, None, ROWS_TYPE, lines.into()).await?;
        if !reply.status.is_success() {
            return Err(refused(ROUTE, &reply));
        }
        serde_json::from_slice(&reply.body).map_err(|e| protocol(ROUTE, &e.to_string()))
    }
}
