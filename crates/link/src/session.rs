//! Sessions as owned values, which agents build and tests compare.

macro_rules! wire_enum {
    ($(#[$doc:meta])* $name:ident { $($(#[$vdoc:meta])* $variant:ident = $code:literal,)* }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
        pub enum $name { $($(#[$vdoc])* $variant,)* }

        impl $name {
            /// Every value, in the order of its codes.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];

            /// Returns the code on the wire.
            pub fn code(self) -> i8 {
                match self { $(Self::$variant => $code,)* }
            }

            /// Returns the value of a code; `None` if the code is unknown.
            pub(crate) fn from_code(code: i8) -> Option<Self> {
                match code { $($code => Some(Self::$variant),)* _ => None }
            }
        }
    };
}

wire_enum! {
    /// The purpose of a session.
    Mode {
        /// Documents and events that changed, or datasets to empty.
        #[default]
        ModuleDelta = 0,
        /// Compare the checksum of a dataset.
        ModuleCheck = 1,
        /// The agent's own description changed.
        MetadataDelta = 2,
        /// Compare the agent's own description.
        MetadataCheck = 3,
        /// The agent's groups changed.
        GroupDelta = 4,
        /// Compare the agent's groups.
        GroupCheck = 5,
    }
}

wire_enum! {
    /// The operation on a document.
    Operation {
        /// Create or replace it.
        #[default]
        Upsert = 0,
        Delete = 1,
    }
}

wire_enum! {
    /// The scan of the documents that the sender expects as well, if any.
    SyncOption {
        #[default]
        Sync = 0,
        VdFirst = 1,
        /// A subsequent scan.
        VdSync = 2,
    }
}

/// The head of a session: the sender and the purpose. Empty texts and zeros are left out of the
/// buffer.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Start {
    /// The part of the agent that sends, such as `fim`.
    pub module: String,
    /// Purpose of the session.
    pub mode: Mode,
    /// The indices of its values, distinct and sorted.
    pub index: Vec<String>,
    /// Scan that the sender expects as well, if any.
    pub option: SyncOption,
    pub architecture: String,
    pub hostname: String,
    /// Operating system, such as `Debian GNU/Linux`.
    pub osname: String,
    /// Operating system, short, such as `debian`.
    pub osplatform: String,
    /// Family, such as `linux`.
    pub ostype: String,
    /// Version of the operating system.
    pub osversion: String,
    /// Version of the agent's program.
    pub agentversion: String,
    /// The agent's name.
    pub agentname: String,
    /// The agent's number, decimal.
    pub agentid: String,
    /// The agent's groups.
    pub groups: Vec<String>,
    /// Version that metadata and group sessions carry.
    pub global_version: u64,
    /// Name of the cluster that the agent enrolled with.
    pub cluster_name: String,
    /// Offset of the vulnerability feed the agent saw; unused here.
    pub feed_offset: u64,
}

/// One document or event.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SessionValue {
    pub operation: Operation,
    /// Id that the agent gave it.
    pub id: String,
    /// Index name on the wire (`model::Dataset::wire`).
    pub index: String,
    /// Version that grows with every change of the document; 0 means unversioned.
    pub version: u64,
    /// A JSON object.
    pub data: Vec<u8>,
}

/// A document that gives context to others and is not stored.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Context {
    pub id: String,
    pub index: String,
    /// A JSON object.
    pub data: Vec<u8>,
}

/// The payload of a session.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Payload {
    /// No payload: the start carries metadata or groups.
    #[default]
    None,
    /// Documents and events.
    Sync {
        /// To be stored, in this order.
        values: Vec<SessionValue>,
        /// Not to be stored.
        contexts: Vec<Context>,
    },
    /// Indices to empty.
    Cleans(Vec<String>),
    /// A checksum to compare.
    Checksum {
        index: String,
        /// Checksum that the agent computed, lower-case hex.
        checksum: String,
    },
}

/// One bounded exchange from agent to server.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Session {
    /// The head of the session.
    pub start: Start,
    /// The payload of the session.
    pub payload: Payload,
}
