//! Queries and their answers: plain values, the same for every engine.

use model::{AgentId, Dataset, Incarnation};

use crate::limits;
use model::Permitted;

/// A column of documents that filters and sorts may name. Only documents of files fill the ones
/// that speak of files; elsewhere those are empty.
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
    /// Lower-case hex; text.
    Md5,
    /// Lower-case hex; text.
    Sha1,
    /// Lower-case hex; text.
    Sha256,
    /// Lower-case hex; text.
    Blake3,
    /// Digest of the document's state, lower-case hex; text.
    Checksum,
    Version,
    /// When the server received it, microseconds since the epoch; integer.
    Received,
}

/// What a field is compared with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Value {
    /// Compared byte by byte.
    Text(String),
    /// Compared as a number.
    Integer(i64),
}

impl From<&str> for Value {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<i64> for Value {
    fn from(number: i64) -> Self {
        Self::Integer(number)
    }
}

/// How a field is compared. An empty field passes none of these.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Test {
    Equal,
    NotEqual,
    Less,
    Greater,
    /// Text: holds this somewhere, ASCII letters of either case.
    Contains,
    /// Text: begins with this, byte by byte.
    Prefix,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Condition {
    /// All of them hold; an empty list holds.
    All(Vec<Condition>),
    /// At least one holds; an empty list does not.
    Any(Vec<Condition>),
    /// It does not hold.
    Not(Box<Condition>),
    /// A field passes a test.
    Field(DocumentField, Test, Value),
}

impl Condition {
    /// `field` passes `test` against `value`.
    pub fn field(field: DocumentField, test: Test, value: impl Into<Value>) -> Self {
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
pub enum Direction {
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
    /// By what; then by path. Empty: by path.
    pub sort: Vec<(DocumentField, Direction)>,
    /// How many to leave out at the start.
    pub offset: u64,
    /// How many at most; above [`limits::PAGE_ITEMS_MAX`] refused.
    pub limit: usize,
    /// Go on after a page: its [`DocumentPage::next`]. Only without `sort`.
    pub after: Option<String>,
}

impl DocumentQuery {
    /// All documents, by path, 500 a page.
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
    /// By what; then by agent and path. Empty: by agent, then by path.
    pub sort: Vec<(DocumentField, Direction)>,
    /// How many to leave out at the start.
    pub offset: u64,
    /// How many at most; above [`limits::PAGE_ITEMS_MAX`] refused.
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
    /// When the server received it, microseconds since the epoch.
    pub received_at_us: u64,
    /// The JSON object as the agent sent it.
    pub body: Vec<u8>,
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DocumentPage {
    pub items: Vec<StoredDocument>,
    /// How many match the condition in all.
    pub total: u64,
    /// Where the next page begins, if this one is full and the query has no sort of its own.
    pub next: Option<String>,
}

/// What an event tells of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum EventKind {
    /// An item appeared.
    Created,
    /// An item changed.
    Modified,
    /// An item went.
    Deleted,
    /// An interval is not vouched for.
    Coverage,
    /// Anything else an agent may send.
    Other,
}

impl EventKind {
    pub const ALL: [Self; 5] =
        [Self::Created, Self::Modified, Self::Deleted, Self::Coverage, Self::Other];

    /// The word in events and in the API.
    pub fn name(self) -> &'static str {
        match self {
            Self::Created => "created",
            Self::Modified => "modified",
            Self::Deleted => "deleted",
            Self::Coverage => "coverage",
            Self::Other => "other",
        }
    }

    /// The kind behind a word of the API.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|k| k.name() == name)
    }

    /// The kind of an event by its `event.action`.
    pub fn of_action(action: &str) -> Self {
        Self::from_name(action).unwrap_or(Self::Other)
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum PathMatch {
    /// Every one, and events without a path.
    #[default]
    Any,
    /// Exactly this one.
    Exact(String),
    /// All that begin with this, byte by byte.
    Prefix(String),
}

/// Events, newest first by the time the agent found them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChangeQuery {
    /// Whose; `None` is everyone's.
    pub agents: Option<Vec<AgentId>>,
    /// Also what former lives of these numbers told.
    pub former: bool,
    pub path: PathMatch,
    /// Which kinds; empty is every kind.
    pub kinds: Vec<EventKind>,
    /// Found at or after, microseconds since the epoch.
    pub from_us: Option<u64>,
    /// Found before, microseconds since the epoch.
    pub to_us: Option<u64>,
    /// Received after this event: a former page's [`ChangePage::newest`].
    pub since: Option<u64>,
    /// Go on after a page: its [`ChangePage::next`].
    pub cursor: Option<String>,
    /// How many at most; above [`limits::PAGE_ITEMS_MAX`] refused.
    pub limit: usize,
}

impl Default for ChangeQuery {
    fn default() -> Self {
        Self {
            agents: None,
            former: true,
            path: PathMatch::Any,
            kinds: Vec::new(),
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
    /// Which kinds; empty is every kind.
    pub kinds: Vec<EventKind>,
    /// Only those that arrived behind this number; 0 is from the beginning.
    pub since: u64,
}

/// How far [`crate::StateStore::arrivals`] came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Arrivals {
    /// Every event up to this number was visited, or is none of those asked for.
    pub through: u64,
    /// The highest number in the store.
    pub newest: u64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredEvent {
    /// Its number in the order of arrival; never used twice.
    pub number: u64,
    pub agent: AgentId,
    /// Told by a former life of the number, which may be another agent's by now.
    pub former: bool,
    /// The name of that life, of the present one as it last spoke; empty when it never did.
    pub agent_name: String,
    /// Id that the agent gave it.
    pub id: String,
    /// When the server received it, microseconds since the epoch.
    pub received_at_us: u64,
    /// When the agent found it, microseconds since the epoch.
    pub found_at_us: u64,
    /// What it tells of.
    pub kind: EventKind,
    /// Which path; empty when none.
    pub path: String,
    /// Which fields differ.
    pub changed_fields: Vec<String>,
    /// The [`model::EventBody`] as JSON, as the agent sent it.
    pub body: Vec<u8>,
}

/// A page of events.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ChangePage {
    pub items: Vec<StoredEvent>,
    /// Where the next page begins; `None` when there is nothing more. Stable: what arrives
    /// meanwhile moves nothing.
    pub next: Option<String>,
    /// The highest number in the store when the page was read.
    pub newest: u64,
}

/// Kept counters of the whole store.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct StateCounts {
    /// Documents and bytes of their bodies, by dataset.
    pub documents: Vec<(Dataset, u64, u64)>,
    pub events: u64,
    /// Bytes of their bodies.
    pub event_bytes: u64,
    /// Events by kind, in the order of [`EventKind::ALL`].
    pub events_by_kind: Vec<(EventKind, u64)>,
    pub tombstones: u64,
    /// Records set aside.
    pub quarantined: u64,
}

/// Kept counters of one agent.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct AgentCounts {
    /// Documents and bytes of their bodies, by dataset.
    pub documents: Vec<(Dataset, u64, u64)>,
    pub events: u64,
    /// When its last session was received, microseconds since the epoch.
    pub last_session_at_us: Option<u64>,
    /// Which life of its number the documents are of; `None` when it has ended.
    pub life: Option<Incarnation>,
}

/// How long events are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Retention {
    /// Oldest event kept, microseconds before now; by the time it was received.
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

/// What retention dropped.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Retained {
    pub events: u64,
    /// Bytes of their bodies.
    pub bytes: u64,
    pub tombstones: u64,
    /// Id of the coverage event that tells of it, when events were dropped.
    pub coverage: Option<String>,
}
