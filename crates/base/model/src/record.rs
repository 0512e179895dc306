//! The records of the server's journal: one per accepted session or removal, with everything that
//! replay needs, and the result of applying one.

use serde::{Deserialize, Serialize};

use crate::ids::{AgentId, Dataset, Incarnation};

/// The server's knowledge of the agent when it accepts a session. It takes precedence over the
/// session's own fields.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Default)]
pub struct Overlay {
    pub agent_name: String,
    /// Version of its program.
    pub agent_version: String,
    pub groups: Vec<String>,
    pub hostname: String,
    pub architecture: String,
    /// OS name, platform, type, version.
    pub os: [String; 4],
    /// This server's cluster name.
    pub cluster: String,
}

/// Subject of a session about the agent itself (`docs/reference/wire.md`, "Versions and metadata").
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum AgentSubject {
    /// Everything but the groups.
    Metadata,
    Groups,
}

/// One write of a session, in the session's order.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Write {
    /// Replace the document unless the stored one (or its tombstone) has a higher version.
    Upsert {
        dataset: Dataset,
        /// Id that the agent gave it.
        id: String,
        /// Version that grows with every change of the document; 0 means unversioned.
        version: u64,
        /// A JSON object.
        body: Vec<u8>,
    },
    /// Remove the document unless it has a higher version, and leave a tombstone.
    Delete {
        dataset: Dataset,
        /// Id that the agent gave it.
        id: String,
        /// Version of the removal; 0 means unversioned.
        version: u64,
    },
    /// Remove every document of the dataset.
    Clean { dataset: Dataset },
    /// Append an event; an id that is already stored changes nothing.
    Event {
        /// `epoch-seq`, unique per agent.
        id: String,
        /// An [`crate::EventBody`] as JSON.
        body: Vec<u8>,
    },
    /// Store the agent's description from the record's overlay, unless the stored one has a higher
    /// version. For a registered agent the overlay comes from the server itself and is always
    /// stored.
    Describe {
        /// Part of the overlay to store.
        subject: AgentSubject,
        /// `global_version`; 0 means unversioned.
        version: u64,
        /// True for a check, which repairs differences and keeps the stored version.
        check: bool,
    },
    /// The agent's clock was wrong by more than [`CLOCK_OFF_US`](crate::limits::CLOCK_OFF_US) when
    /// it sent the session, whose events are therefore ordered by receipt. Always the last write.
    ClockOff {
        /// Time of the agent's clock, microseconds since the epoch.
        agent_us: u64,
    },
    /// Show at least this version in the dataset's documents, because the agent has described itself
    /// since. Since version 3.
    RaiseVersion {
        dataset: Dataset,
        /// `global_version` of the description.
        version: u64,
    },
}

impl Write {
    /// Returns the version of the encoding that first had this kind of write.
    fn since(&self) -> u8 {
        if matches!(self, Self::RaiseVersion { .. }) { 3 } else { 1 }
    }
}

/// One accepted session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionRecord {
    pub agent: AgentId,
    /// Incarnation of that agent number.
    pub incarnation: Incarnation,
    /// Time at which the server accepted it, microseconds since the epoch.
    pub received_at_us: u64,
    /// The agent's session id (`X-Session-Id`), for the log.
    pub session: String,
    /// The server's knowledge of the agent.
    pub overlay: Overlay,
    /// Writes of the session. Their indices are the ones in the answer's `skipped`.
    pub writes: Vec<Write>,
}

/// An event of an agent that the server made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AgentEvent {
    pub agent: AgentId,
    /// Incarnation of that agent number. The event of an incarnation that has ended is dropped.
    pub incarnation: Incarnation,
    /// Id, unique among the events of the agent.
    pub id: String,
    /// An [`crate::EventBody`] as JSON.
    pub body: Vec<u8>,
}

/// Kind of an agent's report about itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum ReportKind {
    /// Counters of its program.
    Stats,
    /// The configuration that it runs with.
    Config,
}

/// The last report of one kind of an agent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AgentReport {
    pub agent: AgentId,
    /// Incarnation of that agent number.
    pub incarnation: Incarnation,
    /// Time at which the server accepted it, microseconds since the epoch.
    pub at_us: u64,
    pub kind: ReportKind,
    /// A JSON object.
    pub body: Vec<u8>,
}

/// The coverage event of a retention run, as of one of its parts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RetentionEvent {
    /// Id, the same for all parts of the run.
    pub id: String,
    /// Time of the run, microseconds since the epoch.
    pub at_us: u64,
    /// An [`crate::EventBody`] as JSON: everything that the run has dropped up to this part.
    pub body: Vec<u8>,
}

/// One record of the journal.
#[expect(clippy::large_enum_variant, reason = "nearly every record is a session")]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Record {
    /// A session's writes.
    Session(SessionRecord),
    /// The agent was removed: its documents are deleted, its events are kept as evidence.
    AgentRemoved {
        agent: AgentId,
        /// Incarnation removed; a later one of the same number is not affected.
        incarnation: Incarnation,
        /// Time of the removal, microseconds since the epoch.
        at_us: u64,
    },
    /// An event of the server itself (retention, quarantine, disk), under agent 000.
    ServerEvent {
        id: String,
        /// Time of the event, microseconds since the epoch.
        at_us: u64,
        /// An [`crate::EventBody`] as JSON.
        body: Vec<u8>,
    },
    /// Events of agents that the server made: an agent fell silent, or its identity was copied.
    /// Since version 2.
    AgentEvents {
        /// Time of the events, microseconds since the epoch.
        at_us: u64,
        events: Vec<AgentEvent>,
    },
    /// A report that replaces the agent's last one of its kind. Since version 3.
    Report(AgentReport),
    /// The rows of `registry.db` that decisions changed, as the registry encodes them. The state
    /// passes them by. Since version 4.
    RegistryRows(Vec<u8>),
    /// One part of a retention run. It deletes events or, if `through` is 0, expired tombstones and
    /// empty datasets. Since version 4.
    Retain {
        /// Number of the last event that is deleted, with all before it.
        through: u64,
        /// Tombstones of removals before this time are deleted, the oldest first, up to a fixed
        /// number for each part; microseconds since the epoch.
        tombstones_before_us: u64,
        /// The event that reports the run; `None` if the part deletes no events.
        event: Option<RetentionEvent>,
    },
}

impl Record {
    /// The newest known version of the encoding.
    pub const VERSION: u8 = 4;

    /// Returns the bytes for the journal: a version byte, then postcard (`docs/format/record.md`).
    /// The version is the lowest that has this kind of record, so that an older program refuses
    /// only a journal that it cannot read.
    pub fn encode(&self) -> Vec<u8> {
        let version = match self {
            Self::Session(session) => session.writes.iter().map(Write::since).max().unwrap_or(1),
            Self::RegistryRows(_) | Self::Retain { .. } => 4,
            Self::Report(_) => 3,
            Self::AgentEvents { .. } => 2,
            _ => 1,
        };
        // Serialising plain owned data into a growing buffer cannot fail.
        postcard::to_extend(self, vec![version]).unwrap_or_default()
    }

    /// Decodes a record.
    ///
    /// # Errors
    /// Returns the reason if the version is unknown or the bytes are not a record.
    pub fn decode(bytes: &[u8]) -> Result<Self, String> {
        match bytes.split_first() {
            Some((1..=Self::VERSION, rest)) => {
                postcard::from_bytes(rest).map_err(|e| format!("not a record: {e}"))
            }
            Some((version, _)) => Err(format!("record version {version} is not known here")),
            None => Err("empty record".into()),
        }
    }

    /// Returns the rows of `registry.db` in an encoded record, `None` if it is of another kind.
    ///
    /// # Errors
    /// As [`Record::decode`], but not for a record of another kind.
    pub fn registry_rows(bytes: &[u8]) -> Result<Option<Vec<u8>>, String> {
        // The second byte is the variant. Most records are sessions, which are long.
        if bytes.get(1) != Some(&5) {
            return Ok(None);
        }
        match Self::decode(bytes)? {
            Self::RegistryRows(rows) => Ok(Some(rows)),
            _ => Ok(None),
        }
    }

    /// Returns the agent that the record is about; the server's number if it is about several.
    pub fn agent(&self) -> AgentId {
        match self {
            Self::Session(s) => s.agent,
            Self::AgentRemoved { agent, .. } | Self::Report(AgentReport { agent, .. }) => *agent,
            Self::ServerEvent { .. }
            | Self::AgentEvents { .. }
            | Self::RegistryRows(_)
            | Self::Retain { .. } => AgentId::SERVER,
        }
    }
}

/// The reason why one value of a session was left out. The session itself succeeded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum SkipReason {
    /// The stored document or tombstone has a higher version.
    Stale,
    /// The server accepts no writes for that index.
    Index,
    /// The id is empty or too long.
    Id,
    /// The body is not a JSON object.
    Json,
    /// The body is larger than [`crate::limits::DOCUMENT_BYTES_MAX`].
    TooLarge,
}

/// One value left out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Skipped {
    /// Index among the session's values.
    pub index: u32,
    pub id: String,
    pub reason: SkipReason,
    /// Version that the server holds if the reason is `stale`; else 0.
    pub version: u64,
}

/// The result of applying one record.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Applied {
    /// Writes that were left out.
    pub skipped: Vec<Skipped>,
    /// Documents and events that changed.
    pub changed: u64,
    /// The reason why the whole record was set aside, if it was.
    pub quarantined: Option<String>,
    /// True if the record belongs to an earlier incarnation of the agent; nothing was stored.
    pub refused: bool,
    /// True if this session had been applied before; nothing was stored again.
    pub replayed: bool,
    /// True if the session's id is older than the ids that are still known. The session may have
    /// been applied before, so nothing was stored.
    pub outdated: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn journal_record_round_trips() {
        let record = Record::Session(SessionRecord {
            agent: AgentId(7),
            incarnation: Incarnation(9),
            received_at_us: 3,
            session: "fim-1".into(),
            overlay: Overlay { agent_name: "web".into(), ..Overlay::default() },
            writes: vec![
                Write::Upsert {
                    dataset: Dataset::fim_files(),
                    id: "x".into(),
                    version: 4,
                    body: b"{}".to_vec(),
                },
                Write::Delete { dataset: Dataset::fim_files(), id: "y".into(), version: 5 },
                Write::Clean { dataset: Dataset::fim_files() },
                Write::Event { id: "a-1".into(), body: b"{}".to_vec() },
                Write::Describe { subject: AgentSubject::Groups, version: 6, check: true },
            ],
        });
        let bytes = record.encode();
        assert_eq!(Record::decode(&bytes), Ok(record));
        assert!(Record::decode(&bytes[..bytes.len() - 1]).is_err());
        assert!(Record::decode(&[]).is_err());
        assert_eq!(Record::decode(&[9]).unwrap_err(), "record version 9 is not known here");
    }

    #[test]
    fn record_has_the_lowest_version_that_knows_its_kind() {
        let body = b"{}".to_vec();
        let (agent, incarnation) = (AgentId(7), Incarnation(9));
        let old = Record::ServerEvent { id: "a".into(), at_us: 1, body: body.clone() };
        let event = AgentEvent { agent, incarnation, id: "b".into(), body };
        let new = Record::AgentEvents { at_us: 1, events: vec![event] };
        let body = b"{}".to_vec();
        let kind = ReportKind::Config;
        let report = Record::Report(AgentReport { agent, incarnation, at_us: 1, kind, body });
        let raise = Write::RaiseVersion { dataset: Dataset::fim_files(), version: 1 };
        let session = |writes| {
            let (session, overlay) = (String::new(), Overlay::default());
            let received_at_us = 1;
            Record::Session(SessionRecord {
                agent,
                incarnation,
                received_at_us,
                session,
                overlay,
                writes,
            })
        };
        let sessions = [session(Vec::new()), session(vec![raise])];
        assert_eq!(sessions.map(|record| record.encode()[0]), [1, 3]);
        let rows = Record::RegistryRows(vec![1]);
        let event = RetentionEvent { id: "c".into(), at_us: 1, body: b"{}".to_vec() };
        let retain = Record::Retain { through: 1, tombstones_before_us: 2, event: Some(event) };
        let all = [&old, &new, &report, &rows, &retain];
        assert_eq!(all.map(|record| record.encode()[0]), [1, 2, 3, 4, 4]);
        assert_eq!(Record::decode(&retain.encode()), Ok(retain));
        assert_eq!(Record::decode(&new.encode()), Ok(new));
        assert_eq!(Record::decode(&report.encode()).as_ref(), Ok(&report));
        assert_eq!(Record::registry_rows(&rows.encode()), Ok(Some(vec![1])));
        assert_eq!(Record::registry_rows(&report.encode()), Ok(None));
        assert!(Record::registry_rows(&[9, 5]).is_err());
        assert_eq!(Record::decode(&rows.encode()), Ok(rows));
    }
}
