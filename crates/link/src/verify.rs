//! Decoding of sessions of unknown origin.

use flatbuffers::{InvalidFlatbuffer, VerifierOptions};
use model::limits::{SESSION_BYTES_MAX, SESSION_VALUES_MAX};
use thiserror::Error;

use crate::session::{Context, Mode, Operation, Payload, Session, SessionValue, Start, SyncOption};
use crate::wire::{self, Names, SessionPayload};

/// Most names in one list: indices and groups of a start, items of a clean.
pub const NAMES_MAX: usize = 1024;
/// Tables around the values: message, session, start, payload.
const TABLES_AROUND: usize = 8;
/// Nesting of the schema: message, session, payload, value; one to spare.
const DEPTH_MAX: usize = 5;
/// Largest ratio of expanded size to buffer length. Each use of a shared part counts towards the
/// expanded size.
const EXPANSION_MAX: usize = 4;
/// Expanded size that even a small buffer may reach, bytes.
const EXPANSION_FLOOR_BYTES: usize = 64 * 1024;

/// Limits of a receiver.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Longest buffer, bytes.
    pub bytes_max: usize,
    /// Most values and contexts together.
    pub values_max: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { bytes_max: SESSION_BYTES_MAX, values_max: SESSION_VALUES_MAX }
    }
}

/// The reason why a buffer is refused.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum VerifyError {
    /// The buffer is longer than the limit.
    #[error("session of {bytes} bytes is above the limit of {max}: send it in smaller parts")]
    TooLong { bytes: usize, max: usize },
    /// The buffer holds more values than the limit.
    #[error("session holds more than {max} values: send it in smaller parts")]
    TooManyValues { max: usize },
    /// The buffer does not follow this schema, or is damaged.
    #[error("not a valid session buffer: {0}")]
    Damaged(String),
    /// The message is valid but of another kind.
    #[error("message is not a full session")]
    NotASession,
    #[error("session has no start")]
    NoStart,
    /// An enum field has an unknown value.
    #[error("{field} has the unknown value {value}")]
    UnknownCode {
        /// Name of the field.
        field: &'static str,
        /// Value of the field.
        value: i8,
    },
    /// A list of names beyond [`NAMES_MAX`].
    #[error("{field} lists {count} names, above the limit of {NAMES_MAX}")]
    TooManyNames { field: &'static str, count: usize },
}

impl VerifyError {
    /// Returns true if a smaller session could be accepted (413 rather than 400).
    pub fn is_size(&self) -> bool {
        matches!(self, Self::TooLong { .. } | Self::TooManyValues { .. })
    }
}

/// Verifies a buffer completely: offsets, lengths, UTF-8, nesting, number of tables, expanded size,
/// and every enum value. The cost is linear in the buffer; nothing is copied.
///
/// # Errors
/// Returns an error if the buffer is damaged, is not a session, or is above a limit.
pub fn verify<'a>(buffer: &'a [u8], limits: &Limits) -> Result<SessionView<'a>, VerifyError> {
    if buffer.len() > limits.bytes_max {
        return Err(VerifyError::TooLong { bytes: buffer.len(), max: limits.bytes_max });
    }
    let options = VerifierOptions {
        max_depth: DEPTH_MAX,
        max_tables: limits.values_max.max(NAMES_MAX).saturating_add(TABLES_AROUND),
        max_apparent_size: EXPANSION_FLOOR_BYTES
            .saturating_add(buffer.len().saturating_mul(EXPANSION_MAX)),
        ignore_missing_null_terminator: false,
    };
    let message = wire::root(buffer, &options).map_err(|e| match e {
        InvalidFlatbuffer::TooManyTables => VerifyError::TooManyValues { max: limits.values_max },
        other => VerifyError::Damaged(one_line(&other)),
    })?;
    let session = message.full_session().ok_or(VerifyError::NotASession)?;
    let start = StartView::new(session.start().ok_or(VerifyError::NoStart)?)?;
    let payload = match session.payload() {
        SessionPayload::None => PayloadView::None,
        SessionPayload::SyncData(data) => PayloadView::Sync(SyncView::new(data, limits)?),
        SessionPayload::Cleans(cleans) => {
            let items = cleans.items();
            let count = items.map_or(0, |i| i.len());
            if count > NAMES_MAX {
                return Err(VerifyError::TooManyNames { field: "cleans", count });
            }
            PayloadView::Cleans(items.iter().flatten().map(|c| c.index()).collect())
        }
        SessionPayload::Checksum(c) => {
            PayloadView::Checksum { index: c.index(), checksum: c.checksum() }
        }
    };
    Ok(SessionView { start, payload })
}

/// Returns the library's message on one line.
fn one_line(error: &InvalidFlatbuffer) -> String {
    error.to_string().split_whitespace().collect::<Vec<_>>().join(" ")
}

/// A verified session that borrows from its buffer.
#[derive(Debug, Clone)]
pub struct SessionView<'a> {
    /// The head of the session.
    pub start: StartView<'a>,
    /// The payload of the session.
    pub payload: PayloadView<'a>,
}

impl SessionView<'_> {
    /// Copies the view into an owned value.
    pub fn to_session(&self) -> Session {
        let payload = match &self.payload {
            PayloadView::None => Payload::None,
            PayloadView::Sync(sync) => Payload::Sync {
                values: sync.values().map(ValueView::to_value).collect(),
                contexts: sync.contexts().collect(),
            },
            PayloadView::Cleans(items) => {
                Payload::Cleans(items.iter().map(|i| (*i).to_owned()).collect())
            }
            PayloadView::Checksum { index, checksum } => {
                Payload::Checksum { index: (*index).to_owned(), checksum: (*checksum).to_owned() }
            }
        };
        Session { start: self.start.to_start(), payload }
    }
}

/// The payload of a verified session.
#[derive(Debug, Clone)]
pub enum PayloadView<'a> {
    /// No payload: the start says everything.
    None,
    /// Documents and events.
    Sync(SyncView<'a>),
    /// Indices to empty.
    Cleans(Vec<&'a str>),
    /// A checksum to compare.
    Checksum {
        index: &'a str,
        /// Checksum that the agent computed.
        checksum: &'a str,
    },
}

/// The head of a verified session. Its field names are those of [`Start`].
#[derive(Debug, Clone, Copy)]
pub struct StartView<'a> {
    raw: wire::Start<'a>,
    mode: Mode,
    option: SyncOption,
}

impl<'a> StartView<'a> {
    fn new(raw: wire::Start<'a>) -> Result<Self, VerifyError> {
        let mode = Mode::from_code(raw.mode())
            .ok_or(VerifyError::UnknownCode { field: "start.mode", value: raw.mode() })?;
        let option = SyncOption::from_code(raw.option())
            .ok_or(VerifyError::UnknownCode { field: "start.option", value: raw.option() })?;
        for (field, list) in [("start.index", raw.index()), ("start.groups", raw.groups())] {
            let count = list.map_or(0, |l| l.len());
            if count > NAMES_MAX {
                return Err(VerifyError::TooManyNames { field, count });
            }
        }
        Ok(Self { raw, mode, option })
    }

    /// Returns the purpose of the session.
    pub fn mode(&self) -> Mode {
        self.mode
    }

    /// Returns the scan that the sender expects as well, if any.
    pub fn option(&self) -> SyncOption {
        self.option
    }

    /// Returns the part of the agent that sends.
    pub fn module(&self) -> &'a str {
        self.raw.module()
    }

    /// Returns the agent's number, decimal, as the sender states it.
    pub fn agentid(&self) -> &'a str {
        self.raw.agentid()
    }

    /// Returns the name of the cluster that the agent enrolled with.
    pub fn cluster_name(&self) -> &'a str {
        self.raw.cluster_name()
    }

    /// Returns the version that metadata and group sessions carry.
    pub fn global_version(&self) -> u64 {
        self.raw.global_version()
    }

    /// Returns the indices that the session announces.
    pub fn index(&self) -> impl Iterator<Item = &'a str> {
        names(self.raw.index())
    }

    /// Copies the view into an owned value.
    pub fn to_start(&self) -> Start {
        let raw = &self.raw;
        Start {
            module: raw.module().into(),
            mode: self.mode,
            index: names(raw.index()).map(String::from).collect(),
            option: self.option,
            architecture: raw.architecture().into(),
            hostname: raw.hostname().into(),
            osname: raw.osname().into(),
            osplatform: raw.osplatform().into(),
            ostype: raw.ostype().into(),
            osversion: raw.osversion().into(),
            agentversion: raw.agentversion().into(),
            agentname: raw.agentname().into(),
            agentid: raw.agentid().into(),
            groups: names(raw.groups()).map(String::from).collect(),
            global_version: raw.global_version(),
            cluster_name: raw.cluster_name().into(),
            feed_offset: raw.feed_offset(),
        }
    }
}

fn names(list: Option<Names<'_>>) -> impl Iterator<Item = &str> {
    list.into_iter().flat_map(|l| l.iter())
}

/// Values and contexts of a verified session.
#[derive(Debug, Clone, Copy)]
pub struct SyncView<'a>(wire::SyncData<'a>);

impl<'a> SyncView<'a> {
    fn new(data: wire::SyncData<'a>, limits: &Limits) -> Result<Self, VerifyError> {
        let view = Self(data);
        if view.len() + data.contexts().map_or(0, |c| c.len()) > limits.values_max {
            return Err(VerifyError::TooManyValues { max: limits.values_max });
        }
        for value in data.values().iter().flatten() {
            if Operation::from_code(value.operation()).is_none() {
                let value = value.operation();
                return Err(VerifyError::UnknownCode { field: "value.operation", value });
            }
        }
        Ok(view)
    }

    /// Returns the number of values.
    pub fn len(&self) -> usize {
        self.0.values().map_or(0, |v| v.len())
    }

    /// Returns true if there is no value.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the values in their order.
    pub fn values(&self) -> impl Iterator<Item = ValueView<'a>> + use<'a> {
        self.0.values().into_iter().flat_map(|v| v.iter()).filter_map(|v| {
            // `new` has checked the code of every value.
            let operation = Operation::from_code(v.operation())?;
            Some(ValueView {
                operation,
                id: v.id(),
                index: v.index(),
                version: v.version(),
                data: v.data(),
            })
        })
    }

    /// Returns the contexts in their order.
    pub fn contexts(&self) -> impl Iterator<Item = Context> + use<'a> {
        self.0.contexts().into_iter().flat_map(|c| c.iter()).map(|c| Context {
            id: c.id().into(),
            index: c.index().into(),
            data: c.data().into(),
        })
    }
}

/// One value of a verified session; its fields are those of [`SessionValue`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ValueView<'a> {
    pub operation: Operation,
    /// Id that the agent gave it.
    pub id: &'a str,
    /// Index name on the wire.
    pub index: &'a str,
    /// Version; 0 means unversioned.
    pub version: u64,
    /// Body, borrowed from the buffer.
    pub data: &'a [u8],
}

impl ValueView<'_> {
    /// Copies the view into an owned value.
    pub fn to_value(self) -> SessionValue {
        SessionValue {
            operation: self.operation,
            id: self.id.into(),
            index: self.index.into(),
            version: self.version,
            data: self.data.into(),
        }
    }
}
