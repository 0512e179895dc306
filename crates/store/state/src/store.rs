//! The trait that every state store implements.

use std::path::Path;

use model::{
    AgentId, AgentReport, Applied, Dataset, Incarnation, Overlay, Position, Record, ReportKind,
};

use crate::error::StateError;
use crate::query::{
    AgentCounts, ArrivalQuery, Arrivals, ChangePage, ChangeQuery, DocumentPage, DocumentQuery,
    FleetQuery, Retained, Retention, StateCounts, StoredDocument, StoredEvent,
};
use sqlite::Reader;

/// A store of what agents report: documents, events and the position of the last record applied.
/// Calls block; call them from a thread that may. Only one caller may apply at a time, any number
/// may read; each query names its [`Reader`].
pub trait StateStore: Send + Sync {
    /// Applies records in journal order, in one transaction that also stores the last position. A
    /// record at or below the stored position is skipped (its [`Applied`] is empty). A session that
    /// is among the agent's last [`crate::limits::SESSIONS_KEPT`] by id and content writes nothing
    /// ([`Applied::replayed`]), nor does one whose id has an earlier time than theirs
    /// ([`Applied::outdated`]) or one of a life that has ended ([`Applied::refused`]). A record
    /// that cannot be applied is set aside with a coverage event ([`Applied::quarantined`]) and
    /// does not fail the batch. Returns one result per record, in order.
    ///
    /// # Errors
    /// Returns an error if the transaction fails; then nothing of the batch was applied.
    fn apply(&self, batch: &[(Position, Record)]) -> Result<Vec<Applied>, StateError>;

    /// Sets aside the bytes of a record that cannot be decoded, with a coverage event, and stores
    /// its position. Does nothing when the position is already applied.
    ///
    /// # Errors
    /// Returns an error if the transaction fails.
    fn quarantine(&self, position: Position, bytes: &[u8], reason: &str) -> Result<(), StateError>;

    /// Returns the position of the last record applied.
    ///
    /// # Errors
    /// Returns an error if the store cannot be read.
    fn applied(&self) -> Result<Position, StateError>;

    /// Makes applied records survive a power cut. Returns the position up to which that holds,
    /// which is lower than the applied one when a reader kept the checkpoint from completing.
    ///
    /// # Errors
    /// Returns an error if the store cannot be written.
    fn checkpoint(&self) -> Result<Position, StateError>;

    /// Returns true if the store's own log has grown so much that a checkpoint is due.
    fn checkpoint_due(&self) -> bool {
        false
    }

    /// Returns the size of the store's own log, bytes: what a checkpoint moves out of it.
    fn log_bytes(&self) -> u64 {
        0
    }

    /// Makes a checkpoint and gives the space of the store's own log back to the file system.
    /// Returns false if a query that is running prevents it; the log then stays for now.
    ///
    /// # Errors
    /// Returns an error if the store cannot be written.
    fn shrink(&self) -> Result<bool, StateError> {
        Ok(true)
    }

    /// Returns the store's random name, drawn at its creation. An agent uses it to check that this
    /// store is still the one that holds what the agent reported.
    fn store_id(&self) -> String;

    /// Returns the session id of the agent's last applied session.
    ///
    /// # Errors
    /// Returns an error if the store cannot be read.
    fn last_session(&self, reader: &Reader, agent: AgentId) -> Result<Option<String>, StateError>;

    /// Returns the agent's overlay as of its last applied session, or as the agent described itself
    /// ([`model::Write::Describe`]); kept after the agent's removal, for its events.
    ///
    /// # Errors
    /// Returns an error if the store cannot be read.
    fn overlay(&self, reader: &Reader, agent: AgentId) -> Result<Option<Overlay>, StateError>;

    /// Returns the last report of this kind of one incarnation of the agent.
    ///
    /// # Errors
    /// Returns an error if the store cannot be read.
    fn report(
        &self,
        reader: &Reader,
        agent: AgentId,
        incarnation: Incarnation,
        kind: ReportKind,
    ) -> Result<Option<AgentReport>, StateError>;

    /// Returns one document.
    ///
    /// # Errors
    /// Returns an error if the store cannot be read.
    fn document(
        &self,
        reader: &Reader,
        agent: AgentId,
        dataset: &Dataset,
        id: &str,
    ) -> Result<Option<StoredDocument>, StateError>;

    /// Returns documents of one agent and dataset.
    ///
    /// # Errors
    /// Returns an error if the query is beyond the limits or the store cannot be read.
    fn documents(&self, reader: &Reader, query: &DocumentQuery)
    -> Result<DocumentPage, StateError>;

    /// Returns documents of one dataset over many agents, from one snapshot. Without a condition
    /// the totals are stored counters; with one, every document of those agents is examined.
    ///
    /// # Errors
    /// Returns an error if the query is beyond the limits, takes too long or the store cannot be
    /// read.
    fn fleet_documents(
        &self,
        reader: &Reader,
        query: &FleetQuery,
    ) -> Result<DocumentPage, StateError>;

    /// Returns the SHA-1, lower-case hex, of the agent's document checksums in ascending order,
    /// concatenated as lower-case hex (`docs/reference/wire.md`, "Checksums"). An empty dataset
    /// gives the digest of the empty text.
    ///
    /// # Errors
    /// Returns an error if the store cannot be read.
    fn checksum(
        &self,
        reader: &Reader,
        agent: AgentId,
        dataset: &Dataset,
    ) -> Result<String, StateError>;

    /// Visits id, version and checksum of every document whose id is lower-case hex of 16 to 64
    /// bytes and whose first eight bytes, big-endian, lie in one of the ranges (first and last,
    /// both inclusive). Documents with other ids are visited once, before the others, whatever the
    /// ranges. The ranges are visited in the given order and must not overlap; within a range there
    /// is no order. Stops when `visit` returns `false`. One snapshot and one time limit cover the
    /// call; it costs what it visits.
    /// # Errors
    /// Returns an error if the store cannot be read.
    fn each_in_ranges(
        &self,
        reader: &Reader,
        agent: AgentId,
        dataset: &Dataset,
        ranges: &[(u64, u64)],
        visit: &mut dyn FnMut(&str, u64, &str) -> bool,
    ) -> Result<(), StateError>;

    /// Returns events, newest first.
    ///
    /// # Errors
    /// Returns an error if the query is beyond the limits, the cursor is foreign or the store
    /// cannot be read.
    fn changes(&self, reader: &Reader, query: &ChangeQuery) -> Result<ChangePage, StateError>;

    /// Visits events in the order of arrival, after a given number, until `visit` returns `false`
    /// or [`limits::ARRIVALS_LOOKED_AT_MAX`](crate::limits::ARRIVALS_LOOKED_AT_MAX) numbers were
    /// examined. Holds one event in memory at a time.
    ///
    /// # Errors
    /// Returns an error if the store cannot be read.
    fn arrivals(
        &self,
        reader: &Reader,
        query: &ArrivalQuery,
        visit: &mut dyn FnMut(StoredEvent) -> bool,
    ) -> Result<Arrivals, StateError>;

    /// Returns the stored counters of the whole store.
    ///
    /// # Errors
    /// Returns an error if the store cannot be read.
    fn counts(&self, reader: &Reader) -> Result<StateCounts, StateError>;

    /// Returns the stored counters of one agent.
    ///
    /// # Errors
    /// Returns an error if the store cannot be read.
    fn agent_counts(&self, reader: &Reader, agent: AgentId) -> Result<AgentCounts, StateError>;

    /// Drops events that exceed the policy and expired tombstones. Each run that drops events adds
    /// one coverage event of agent 000.
    ///
    /// # Errors
    /// Returns an error if a transaction fails; the coverage event reports what earlier ones
    /// dropped.
    fn retain(&self, policy: &Retention, now_us: u64) -> Result<Retained, StateError>;

    /// Writes a consistent copy to a new file while the store is in use.
    ///
    /// # Errors
    /// Returns an error if the file exists or cannot be written.
    fn backup_to(&self, file: &Path) -> Result<(), StateError>;
}
