//! The agent's own view of its server: what the last heartbeats were answered.
//!
//! It is stored as a note in the queue, so that `holdfast agent status` can print it without the
//! agent's help. An unchanged answer is stored again only after [`REFRESH_US`], so that a
//! heartbeat does not cost a transaction each second.

use std::fmt;
use std::path::Path;

use model::timestamp;
use queue::{Queue, QueueError, peek_note};
use serde::{Deserialize, Serialize};

use crate::syncer::{Syncer, blocking};
use crate::{Identity, IdentityFolder, SyncError, tls};

/// Note: the [`Contact`] as JSON.
const NOTE_CONTACT: &str = "sync.contact";
/// Status of an answer that accepts a heartbeat.
const ACCEPTED: u16 = 200;
/// Time after which an unchanged answer is stored again, microseconds.
const REFRESH_US: u64 = 10_000_000;
/// Longest stored explanation, bytes.
const DETAIL_BYTES_MAX: usize = 512;

/// The last heartbeats and their answers.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Contact {
    /// HTTP status of the last answer; 0 before the first one.
    pub status: u16,
    /// Time of the last answer, microseconds since the epoch.
    pub answered_at_us: u64,
    /// Time since which heartbeats are not answered, microseconds since the epoch; 0 if the last
    /// one was answered.
    pub unanswered_since_us: u64,
    /// The refusal, or the reason why there was no answer; empty after an accepted heartbeat.
    pub detail: String,
    /// Groups of the agent according to the last accepted heartbeat.
    pub groups: Vec<String>,
}

impl Contact {
    /// Returns the state after a heartbeat that was accepted.
    fn accepted(groups: Vec<String>, now_us: u64) -> Self {
        Self { status: ACCEPTED, answered_at_us: now_us, groups, ..Self::default() }
    }

    /// Returns the state after a heartbeat that failed.
    fn failed(self, error: &SyncError, now_us: u64) -> Self {
        let mut detail = error.to_string();
        detail.truncate(detail.floor_char_boundary(DETAIL_BYTES_MAX));
        match error {
            SyncError::Refused { status, .. } | SyncError::Busy { status, .. } => {
                let (status, answered_at_us) = (*status, now_us);
                Self { status, answered_at_us, unanswered_since_us: 0, detail, ..self }
            }
            _ => {
                let since_us = match self.unanswered_since_us {
                    0 => now_us,
                    since_us => since_us,
                };
                Self { unanswered_since_us: since_us, detail, ..self }
            }
        }
    }

    /// Returns true if this must be stored in place of `stored`.
    fn differs(&self, stored: &Self) -> bool {
        let at_us = stored.answered_at_us;
        Self { answered_at_us: at_us, ..self.clone() } != *stored
            || self.answered_at_us.abs_diff(at_us) >= REFRESH_US
    }

    /// Returns true if the last heartbeat was answered with 200.
    pub fn is_accepted(&self) -> bool {
        self.status == ACCEPTED && self.unanswered_since_us == 0
    }

    fn connection(&self) -> String {
        match (self.status, self.unanswered_since_us) {
            (0, 0) => "not connected yet".into(),
            (0, _) => format!("not connected yet: {}", self.detail),
            (ACCEPTED, 0) => "connected".into(),
            (_, 0) => format!("refused: {}", self.detail),
            (_, since_us) => {
                format!("not connected since {}: {}", timestamp::micros(since_us), self.detail)
            }
        }
    }
}

/// The agent's identity and its connection, as `holdfast agent status` prints them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct OwnView {
    #[serde(flatten)]
    pub identity: Identity,
    #[serde(flatten)]
    pub contact: Contact,
    /// End of the certificate, microseconds since the epoch; `None` if it cannot be read.
    pub certificate_ends_us: Option<u64>,
}

impl OwnView {
    /// Reads an agent's folder, whether or not the agent is running.
    ///
    /// # Errors
    /// Returns an error if the agent is not enrolled, or its files cannot be read.
    pub fn read(folder: &Path) -> Result<Self, SyncError> {
        let files = IdentityFolder::new(folder);
        let missing = || SyncError::Identity(format!("{} holds none", folder.display()));
        let identity = files.load()?.ok_or_else(missing)?;
        let note = peek_note(&folder.join("agent.db"), NOTE_CONTACT)?;
        let certificate_ends_us = files.read("cert.pem").ok().as_deref().and_then(tls::ends_us);
        Ok(Self { identity, contact: decode(note), certificate_ends_us })
    }
}

impl fmt::Display for OwnView {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { identity, contact, .. } = self;
        writeln!(f, "agent: {} {}", identity.id, identity.name)?;
        writeln!(f, "server: {}", identity.server_url)?;
        writeln!(f, "connection: {}", contact.connection())?;
        let groups = if contact.groups.is_empty() { "unknown" } else { &contact.groups.join(", ") };
        writeln!(f, "groups: {groups}")?;
        match contact.status {
            0 => writeln!(f, "last answer: none yet")?,
            status => {
                let at = timestamp::micros(contact.answered_at_us);
                writeln!(f, "last answer: status {status} at {at}")?;
            }
        }
        let ends = self.certificate_ends_us.map(timestamp::micros);
        write!(f, "certificate: ends {}", ends.as_deref().unwrap_or("at an unknown time"))
    }
}

fn decode(note: Option<Vec<u8>>) -> Contact {
    note.and_then(|bytes| serde_json::from_slice(&bytes).ok()).unwrap_or_default()
}

impl Syncer {
    /// Stores the result of a heartbeat.
    pub(crate) async fn note_contact(
        &self,
        result: Result<Vec<String>, &SyncError>,
    ) -> Result<(), SyncError> {
        let now_us = self.clock.now_us();
        let queue = self.queue.clone();
        let before = blocking(move || read(&queue)).await?;
        let contact = match result {
            Ok(groups) => Contact::accepted(groups, now_us),
            Err(error) => before.clone().failed(error, now_us),
        };
        if !contact.differs(&before) {
            return Ok(());
        }
        let queue = self.queue.clone();
        let json = serde_json::to_vec(&contact).unwrap_or_default();
        blocking(move || queue.meta_set(NOTE_CONTACT, &json)).await
    }
}

fn read(queue: &Queue) -> Result<Contact, QueueError> {
    queue.meta_get(NOTE_CONTACT).map(decode)
}
