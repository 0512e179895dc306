//! Queries and their results: plain values, the same for every engine.

use model::{AgentId, CauseKind, Dataset, Incarnation};

use crate::limits;
pub use columns::EventKind;
use model::Permitted;

/// A column of documents that filters and sorts may name. Columns that describe files are empty for
/// documents of other datasets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum DocumentField {
    /// Whole path as shown; text.
    Path,
    /// Path without the last component; text.
    Directory,
    /// Last component; text.
    Name,
    /// `file`, `directory`, `symlink`, ...; text.
    Kind,
    /// Bytes; integer.
    Size,
    /// Four octal digits; text.
    Mode,
    /// Numeric owner; integer.
    Uid,
    /// Numeric group; integer.
    Gid,
    /// Name of the owner; text.
    Owner,
    /// Name of the group; text.
    Group,
    /// Modification time, microseconds since the epoch; integer.
    Mtime,
    /// Inode number; integer.
    Inode,
    /// Digests, lower-case hex; text.
    Md5,
    Sha1,
    Sha256,
    Blake3,
    /// Digest of the document's state, lower-case hex; text.
    Checksum,
    Version,
    /// See [`StoredDocument::changes`]; integer.
    Changes,
    /// Fields of a package, read from the stored body; text.
    PackageName,
    PackageVersion,
    PackageArchitecture,
    PackageVendor,
}

/// The value that a field is compared with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum QueryValue {
    /// Compared byte by byte.
    Text(String),
    /// Compared as a number.
    Integer(i64),
}

impl From<&str> for QueryValue {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<i64> for QueryValue {
    fn from(number: i64) -> Self {
        Self::Integer(number)
    }
}

/// A comparison. An empty field passes none of these.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Comparison {
    Equal,
    NotEqual,
    Less,
    Greater,
    /// Text: contains this, ASCII letters in either case.
    Contains,
    /// Text: begins with this, byte by byte.
    Prefix,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Condition {
    /// All conditions hold; true when empty.
    All(Vec<Condition>),
    /// At least one condition holds; false when empty.
    Any(Vec<Condition>),
    /// The condition does not hold.
    Not(Box<Condition>),
    /// A field passes a test.
    Field(DocumentField, Comparison, QueryValue),
}

impl Condition {
    /// `field` passes `test` against `value`.
    pub fn field(field: DocumentField, test: Comparison, value: impl Into<QueryValue>) -> Self {
        Self::Field(field, test, value.into())
    }
}

impl Default for Condition {
    fn default() -> Self {
        Self::All(Vec::new())
    }
}

/// Order of a sort.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SortDirection {
    #[default]
    Ascending,
    Descending,
}

/// Documents of one agent and dataset.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DocumentQuery {
    pub agent: AgentId,
    pub dataset: Dataset,
    pub condition: Condition,
    /// Sort fields, then by path. Empty: by path.
    pub sort: Vec<(DocumentField, SortDirection)>,
    /// Number of items to skip at the start.
    pub offset: u64,
    /// Maximum number of items; a value above [`limits::PAGE_ITEMS_MAX`] is refused.
    pub limit: usize,
    /// Continues after a page: its [`DocumentPage::next`]. Only without `sort`.
    pub after: Option<String>,
}

impl DocumentQuery {
    /// Returns a query for all documents, by path, 500 per page.
    pub fn new(agent: AgentId, dataset: Dataset) -> Self {
        Self {
            agent,
            dataset,
            condition: Condition::default(),
            sort: Vec::new(),
            offset: 0,
            limit: 500,
            after: None,
        }
    }
}

/// Documents of one dataset over many agents.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FleetQuery {
    pub agents: Permitted,
    pub dataset: Dataset,
    pub condition: Condition,
    /// Sort fields, then by agent and path. Empty: by agent, then by path.
    pub sort: Vec<(DocumentField, SortDirection)>,
    /// Number of items to skip at the start.
    pub offset: u64,
    /// Maximum number of items; a value above [`limits::PAGE_ITEMS_MAX`] is refused.
    pub limit: usize,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredDocument {
    pub agent: AgentId,
    pub dataset: Dataset,
    /// Id that the agent gave it.
    pub id: String,
    /// Its version; 0 when unversioned.
    pub version: u64,
    /// `checksum.hash.sha1` of the body; empty when it has none.
    pub checksum: String,
    /// Time at which the server received it, microseconds since the epoch.
    pub received_at_us: u64,
    /// The JSON object as the agent sent it.
    pub body: Vec<u8>,
    /// Version of the agent's last description of itself that named the dataset; 0: none.
    pub described_version: u64,
    /// Number of times that a higher version with another checksum replaced it. It counts from the
    /// document's creation, or from version 11 of the database.
    pub changes: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DocumentPage {
    pub items: Vec<StoredDocument>,
    /// Number of documents that match the condition.
    pub total: u64,
    /// Start of the next page, if this one is full and the query has no sort of its own.
    pub next: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum PathMatch {
    /// Every path, and events without a path.
    #[default]
    Any,
    /// Exactly this path.
    Exact(String),
    /// All paths that begin with this, byte by byte.
    Prefix(String),
}

/// Events, newest first by the time the agent found them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChangeQuery {
    /// The agents; `None` is all agents.
    pub agents: Option<Vec<AgentId>>,
    /// Includes events of former lives of these agent numbers.
    pub former: bool,
    pub path: PathMatch,
    /// The kinds; empty is every kind.
    pub kinds: Vec<EventKind>,
    /// The causes; empty is every cause. Events that are not changes are unexplained.
    pub causes: Vec<CauseKind>,
    /// Id that the changes of one transaction or run share.
    pub cause_id: Option<String>,
    /// Lists the unexplained events first; both parts are ordered by time.
    pub unexplained_first: bool,
    /// Of the explained changes of one agent that share the id of a cause, lists only the newest
    /// that the query selects.
    pub collapse: bool,
    /// Name of the user that made the change; its number if it has no name.
    pub user: Option<String>,
    /// Name of the program that made the change, or that perhaps made it.
    pub process: Option<String>,
    /// Found at or after, microseconds since the epoch.
    pub from_us: Option<u64>,
    /// Found before, microseconds since the epoch.
    pub to_us: Option<u64>,
    /// Received after this event: [`ChangePage::newest`] of an earlier page.
    pub since: Option<u64>,
    /// Continues after a page: its [`ChangePage::next`].
    pub cursor: Option<String>,
    /// Maximum number of items; a value above [`limits::PAGE_ITEMS_MAX`] is refused.
    pub limit: usize,
}

impl Default for ChangeQuery {
    fn default() -> Self {
        Self {
            agents: None,
            former: true,
            path: PathMatch::Any,
            kinds: Vec::new(),
            causes: Vec::new(),
            cause_id: None,
            unexplained_first: false,
            collapse: false,
            user: None,
            process: None,
            from_us: None,
            to_us: None,
            since: None,
            cursor: None,
            limit: 100,
        }
    }
}

/// Events in the order of arrival.
#[derive(Debug, Clone, Default)]
pub struct ArrivalQuery {
    pub agents: Permitted,
    /// The kinds; empty is every kind.
    pub kinds: Vec<EventKind>,
    /// Only events that arrived after this number; 0 starts at the beginning.
    pub since: u64,
}

/// Progress of a call of [`crate::StateStore::arrivals`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Arrivals {
    /// Every matching event up to this number was visited.
    pub through: u64,
    /// The highest number in the store.
    pub newest: u64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredEvent {
    /// Its number in the order of arrival; never used twice.
    pub number: u64,
    pub agent: AgentId,
    /// Reported by a former life of the number, which may belong to another agent by now.
    pub former: bool,
    /// Name of that life, or the last reported name of the present one; empty when it never
    /// reported one.
    pub agent_name: String,
    /// Id that the agent gave it.
    pub id: String,
    /// Time at which the server received it, microseconds since the epoch.
    pub received_at_us: u64,
    /// Time at which the agent found it, microseconds since the epoch.
    pub found_at_us: u64,
    /// The kind of the event.
    pub kind: EventKind,
    /// The path; empty when there is none.
    pub path: String,
    /// The fields that differ.
    pub changed_fields: Vec<String>,
    /// The [`model::EventBody`] as JSON, as the agent sent it.
    pub body: Vec<u8>,
    /// Set if the event represents several changes of one cause.
    pub collapsed: Option<Collapsed>,
}

/// The changes of one cause that a collapsed list shows as one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Collapsed {
    /// Number of changes, with the one that is listed.
    pub changes: u64,
    /// Number of different packages; 0 if the changes name none.
    pub packages: u64,
}

/// A page of events.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ChangePage {
    pub items: Vec<StoredEvent>,
    /// Start of the next page; `None` when there are no more events. Stable: events that arrive in
    /// the meantime do not shift it.
    pub next: Option<String>,
    /// The highest number in the store when the page was read.
    pub newest: u64,
}

/// Stored counters of the whole store.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct StateCounts {
    /// Documents and bytes of their bodies, by dataset.
    pub documents: Vec<(Dataset, u64, u64)>,
    pub events: u64,
    /// Bytes of their bodies.
    pub event_bytes: u64,
    /// Events by kind, in the order of [`EventKind::ALL`].
    pub events_by_kind: Vec<(EventKind, u64)>,
    /// Changes by cause: unexplained, package, deployment.
    pub changes_by_cause: Vec<(CauseKind, u64)>,
    pub tombstones: u64,
    /// Records set aside.
    pub quarantined: u64,
}

/// Stored counters of one agent.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct AgentCounts {
    /// Documents and bytes of their bodies, by dataset.
    pub documents: Vec<(Dataset, u64, u64)>,
    pub events: u64,
    /// Time at which its last session was received, microseconds since the epoch.
    pub last_session_at_us: Option<u64>,
    /// The life of its number that the documents belong to; `None` when it has ended.
    pub life: Option<Incarnation>,
}

/// Limits on the events that are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Retention {
    /// Age of the oldest event kept, microseconds before now, by the time it was received.
    pub age_us_max: u64,
    /// Most bytes of event bodies kept.
    pub event_bytes_max: u64,
}

impl Default for Retention {
    fn default() -> Self {
        Self {
            age_us_max: limits::EVENT_AGE_DAYS * 24 * 3600 * 1_000_000,
            event_bytes_max: limits::EVENT_BYTES_MAX,
        }
    }
}

/// The changes that an agent reported late, after its absence.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LateChanges {
    /// True while the absence has not ended.
    pub is_open: bool,
    /// Their number, at most [`limits::LATE_CHANGES_MAX`].
    pub changes: u64,
}

/// The result of a retention run.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Retained {
    pub events: u64,
    /// Bytes of their bodies.
    pub bytes: u64,
    pub tombstones: u64,
    /// Id of the coverage event that reports it, if events were dropped.
    pub coverage: Option<String>,
}
