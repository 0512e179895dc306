//! One row of `agent`: the life that the stored documents belong to, the sessions applied last, and
//! the agent's overlay.

use model::{AgentId, AgentSubject, Overlay, SessionRecord};
use rusqlite::{Connection, OptionalExtension, Row, params};

use super::StateStore;
use super::sessions::{SessionStatus, Sessions};
use crate::error::{Context, StateError};
use sqlite::Reader;

impl StateStore {
    /// Returns the session id of the agent's last applied session.
    ///
    /// # Errors
    /// Returns an error if the store cannot be read.
    pub fn last_session(
        &self,
        reader: &Reader,
        agent: AgentId,
    ) -> Result<Option<String>, StateError> {
        self.read(reader, "read the last session", |db| {
            db.prepare_cached("SELECT last_session FROM agent WHERE number = ?1")
                .and_then(|mut s| s.query_row([agent.0], |r| r.get(0)).optional())
                .map(Option::flatten)
                .context("read the last session")
        })
    }

    /// Returns the agent's overlay as of its last applied session, or as the agent described itself
    /// ([`model::Write::Describe`]); kept after the agent's removal, for its events.
    ///
    /// # Errors
    /// Returns an error if the store cannot be read.
    pub fn overlay(&self, reader: &Reader, agent: AgentId) -> Result<Option<Overlay>, StateError> {
        self.read(reader, "read what an agent is", |db| {
            let read = |r: &Row<'_>| Ok((r.get(0)?, r.get(1)?));
            let found: Option<(String, String)> = db
                .prepare_cached("SELECT overlay, name FROM agent WHERE number = ?1")
                .and_then(|mut s| s.query_row([agent.0], read).optional())
                .context("read what an agent is")?;
            Ok(found.and_then(|(overlay, name)| read_overlay(&overlay, &name)))
        })
    }
}

const LOAD: &str = "SELECT incarnation, name, last_session, last_session_us, events, sessions,
    overlay, metadata_version, groups_version, session_floor FROM agent WHERE number = ?1";
const SAVE: &str = "INSERT INTO agent (number, incarnation, name, last_session, last_session_us,
    events, sessions, overlay, metadata_version, groups_version, session_floor)
    VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)
    ON CONFLICT (number) DO UPDATE SET
    incarnation = excluded.incarnation, name = excluded.name,
    last_session = excluded.last_session, last_session_us = excluded.last_session_us,
    events = excluded.events, sessions = excluded.sessions, overlay = excluded.overlay,
    metadata_version = excluded.metadata_version, groups_version = excluded.groups_version,
    session_floor = excluded.session_floor";

/// One row of `agent`.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Agent {
    pub(super) incarnation: Option<u64>,
    name: String,
    last_session: Option<String>,
    last_session_us: Option<i64>,
    pub(super) events: i64,
    sessions: Sessions,
    /// An [`Overlay`] as JSON; empty when there is none.
    overlay: String,
    metadata_version: u64,
    groups_version: u64,
}

impl Agent {
    /// Loads the row; a new agent's is empty.
    pub(super) fn load(db: &Connection, id: AgentId) -> rusqlite::Result<Self> {
        let found = db.prepare_cached(LOAD)?.query_row([id.0], Self::read).optional()?;
        Ok(found.unwrap_or_default())
    }

    fn read(r: &Row<'_>) -> rusqlite::Result<Self> {
        let entries: Vec<u8> = r.get(5)?;
        let sessions = match r.get::<_, Option<i64>>(9)? {
            Some(floor) => Sessions::stored(entries, floor as u64),
            None => Sessions::before_version_4(&entries),
        };
        Ok(Self {
            incarnation: r.get::<_, Option<i64>>(0)?.map(|i| i as u64),
            name: r.get(1)?,
            last_session: r.get(2)?,
            last_session_us: r.get(3)?,
            events: r.get(4)?,
            sessions,
            overlay: r.get(6)?,
            metadata_version: r.get::<_, i64>(7)? as u64,
            groups_version: r.get::<_, i64>(8)? as u64,
        })
    }

    pub(super) fn save(&self, db: &Connection, number: u32) -> rusqlite::Result<()> {
        db.prepare_cached(SAVE)?.execute(params![
            number,
            self.incarnation.map(|i| i as i64),
            self.name,
            self.last_session,
            self.last_session_us,
            self.events,
            self.sessions.entries(),
            self.overlay,
            self.metadata_version as i64,
            self.groups_version as i64,
            self.sessions.floor() as i64,
        ])?;
        Ok(())
    }

    /// Returns the agent's name.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Begins a life without anything of a former one. A sender for a number without a registered
    /// agent (life 0) counts as the same as before, so its earlier sessions are not applied again.
    pub(super) fn begin_life(&mut self, life: u64) {
        self.end();
        if life != 0 {
            self.sessions = Sessions::default();
        }
        self.incarnation = Some(life);
    }

    /// Ends its life and its sessions. The overlay is kept for the agent's events.
    pub(super) fn end(&mut self) {
        match self.incarnation.take() {
            Some(0) | None => self.sessions.forget_all(),
            Some(_) => self.sessions = Sessions::default(),
        }
        self.last_session = None;
        self.last_session_us = None;
        self.metadata_version = 0;
        self.groups_version = 0;
    }

    /// Returns whether this session was applied before.
    pub(super) fn session_status(&self, session: &SessionRecord) -> SessionStatus {
        self.sessions.applied_status(session)
    }

    pub(super) fn applied(&mut self, session: &SessionRecord) {
        self.last_session = Some(session.session.clone());
        self.last_session_us = Some(session.received_at_us as i64);
        self.sessions.applied(session);
    }

    /// Applies the overlay of an ordinary session. For an unregistered agent it applies only until
    /// a session about the agent itself has supplied a version.
    pub(super) fn mentioned(&mut self, overlay: &Overlay) {
        let registered = self.incarnation != Some(0);
        let metadata = registered || self.metadata_version == 0;
        self.merge_overlay(overlay, metadata, registered || self.groups_version == 0);
    }

    /// Applies a session about the agent itself. If the stored overlay is newer, returns its
    /// version as the error and changes nothing.
    pub(super) fn described(
        &mut self,
        overlay: &Overlay,
        subject: AgentSubject,
        version: u64,
        check: bool,
    ) -> Result<u64, u64> {
        let kept = match subject {
            AgentSubject::Metadata => &mut self.metadata_version,
            AgentSubject::Groups => &mut self.groups_version,
        };
        if version != 0 && *kept > version {
            return Err(*kept);
        }
        if !check {
            *kept = version;
        }
        let before = self.overlay.clone();
        self.merge_overlay(
            overlay,
            subject == AgentSubject::Metadata,
            subject == AgentSubject::Groups,
        );
        Ok(u64::from(before != self.overlay))
    }

    fn merge_overlay(&mut self, overlay: &Overlay, metadata: bool, groups: bool) {
        let merged;
        let now = if metadata && groups {
            overlay
        } else {
            let kept = read_overlay(&self.overlay, &self.name).unwrap_or_default();
            let (groups, cluster) = (
                if groups { &overlay.groups } else { &kept.groups }.clone(),
                overlay.cluster.clone(),
            );
            let rest = if metadata { overlay.clone() } else { kept };
            merged = Overlay { groups, cluster, ..rest };
            &merged
        };
        self.name.clone_from(&now.agent_name);
        // Plain owned data: serialization cannot fail.
        self.overlay = serde_json::to_string(now).unwrap_or_default();
    }
}

/// Parses a stored overlay; for an agent last seen before overlays were stored it has the name
/// only.
fn read_overlay(text: &str, name: &str) -> Option<Overlay> {
    match (text, name) {
        ("", "") => None,
        ("", name) => Some(Overlay { agent_name: name.to_owned(), ..Overlay::default() }),
        (text, _) => serde_json::from_str(text).ok(),
    }
}
