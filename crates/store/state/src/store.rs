//! The trait that every state store implements.

use std::path::Path;

use model::{AgentId, Applied, Dataset, Overlay, Position, Record};

use crate::error::StateError;
use crate::query::{
    AgentCounts, ArrivalQuery, Arrivals, ChangePage, ChangeQuery, DocumentPage, DocumentQuery,
    FleetQuery, Retained, Retention, StateCounts, StoredDocument, StoredEvent,
};
use sqlite::Reader;

/// What agents tell: documents, events and how far the journal has been applied. Calls block; call
/// them from a thread that may. One caller applies at a time, any number may read; each query names its
/// [`Reader`].
pub trait StateStore: Send + Sync {
    /// Apply records in journal order, in one transaction that also stores the last position. A
    /// record at or below the stored position is skipped (its [`Applied`] is empty). A session that is
    /// among the agent's last [`crate::limits::SESSIONS_KEPT`] by id and content writes nothing
    /// ([`Applied::replayed`]), nor does one whose id tells an earlier time than theirs
    /// ([`Applied::outdated`]) or one of a life that has ended ([`Applied::refused`]). A record that
    /// cannot be applied is set aside with a coverage event ([`Applied::quarantined`]) and does not
    /// fail the batch. One answer per record, in order.
    ///
    /// # Errors
    /// When the transaction fails; then nothing of the batch was applied.
    fn apply(&self, batch: &[(Position, Record)]) -> Result<Vec<Applied>, StateError>;

    /// Set aside the bytes of a record that cannot even be decoded, with a coverage event, and
    /// store its position. Nothing happens when the position is already applied.
    ///
    /// # Errors
    /// When the transaction fails.
    fn quarantine(&self, position: Position, bytes: &[u8], reason: &str) -> Result<(), StateError>;

    /// Position of the last record applied.
    ///
    /// # Errors
    /// When the store cannot be read.
    fn applied(&self) -> Result<Position, StateError>;

    /// Make what was applied survive a power cut. Returns the position up to which that holds,
    /// which is lower than the applied one when a reader kept the checkpoint from completing.
    ///
    /// # Errors
    /// When the store cannot be written.
    fn checkpoint(&self) -> Result<Position, StateError>;

    /// Random name of this store, drawn at its creation: tells an agent whether it still talks to
    /// the store that holds what it was told.
    fn store_id(&self) -> String;

    /// Session id of the agent's last applied session.
    ///
    /// # Errors
    /// When the store cannot be read.
    fn last_session(&self, reader: &Reader, agent: AgentId) -> Result<Option<String>, StateError>;

    /// What the agent was when its last session was applied, or what it has told of itself
    /// ([`model::Write::Describe`]); kept after its removal, for its events.
    ///
    /// # Errors
    /// When the store cannot be read.
    fn overlay(&self, reader: &Reader, agent: AgentId) -> Result<Option<Overlay>, StateError>;

    /// One document.
    ///
    /// # Errors
    /// When the store cannot be read.
    fn document(
        &self,
        reader: &Reader,
        agent: AgentId,
        dataset: &Dataset,
        id: &str,
    ) -> Result<Option<StoredDocument>, StateError>;

    /// Documents of one agent and dataset.
    ///
    /// # Errors
    /// When the query is beyond the limits or the store cannot be read.
    fn documents(&self, reader: &Reader, query: &DocumentQuery)
    -> Result<DocumentPage, StateError>;

    /// Documents of one dataset over many agents, from one snapshot. Without a condition the totals
    /// are kept ones; a condition looks at every document of those agents.
    ///
    /// # Errors
    /// When the query is beyond the limits, takes too long or the store cannot be read.
    fn fleet_documents(
        &self,
        reader: &Reader,
        query: &FleetQuery,
    ) -> Result<DocumentPage, StateError>;

    /// SHA-1, lower-case hex, over the agent's document checksums in ascending order, concatenated
    /// as lower-case hex (`docs/reference/wire.md`, "Checksums"). An empty dataset gives the digest
    /// of the empty text.
    ///
    /// # Errors
    /// When the store cannot be read.
    fn checksum(
        &self,
        reader: &Reader,
        agent: AgentId,
        dataset: &Dataset,
    ) -> Result<String, StateError>;

    /// Id, version and checksum of every document whose id is lower-case hex of 16 to 64 bytes, the
    /// first eight of which, big-endian, lie in one of the ranges (first and last, both within); and
    /// of every document with another id, once, before the others and whatever the ranges. The
    /// ranges come in their order and must not overlap; within one there is no order. Until `visit`
    /// says `false`. One snapshot and one time limit for all; costs what it visits.
    ///
    /// # Errors
    /// When the store cannot be read.
    fn each_in_ranges(
        &self,
        reader: &Reader,
        agent: AgentId,
        dataset: &Dataset,
        ranges: &[(u64, u64)],
        visit: &mut dyn FnMut(&str, u64, &str) -> bool,
    ) -> Result<(), StateError>;

    /// Events, newest first.
    ///
    /// # Errors
    /// When the query is beyond the limits, the cursor is foreign or the store cannot be read.
    fn changes(&self, reader: &Reader, query: &ChangeQuery) -> Result<ChangePage, StateError>;

    /// Events in the order of their arrival, behind a number; until `visit` says `false` or
    /// [`limits::ARRIVALS_LOOKED_AT_MAX`](crate::limits::ARRIVALS_LOOKED_AT_MAX) numbers were looked
    /// at. Holds one event at a time.
    ///
    /// # Errors
    /// When the store cannot be read.
    fn arrivals(
        &self,
        reader: &Reader,
        query: &ArrivalQuery,
        visit: &mut dyn FnMut(StoredEvent) -> bool,
    ) -> Result<Arrivals, StateError>;

    /// Kept counters of the whole store.
    ///
    /// # Errors
    /// When the store cannot be read.
    fn counts(&self, reader: &Reader) -> Result<StateCounts, StateError>;

    /// Kept counters of one agent.
    ///
    /// # Errors
    /// When the store cannot be read.
    fn agent_counts(&self, reader: &Reader, agent: AgentId) -> Result<AgentCounts, StateError>;

    /// Drop events past the policy and tombstones past their time. What is dropped becomes one
    /// coverage event of agent 000.
    ///
    /// # Errors
    /// When a transaction fails; what earlier ones dropped is told by the coverage event.
    fn retain(&self, policy: &Retention, now_us: u64) -> Result<Retained, StateError>;

    /// Write a consistent copy to a new file while the store is in use.
    ///
    /// # Errors
    /// When the file exists or cannot be written.
    fn backup_to(&self, file: &Path) -> Result<(), StateError>;
}
