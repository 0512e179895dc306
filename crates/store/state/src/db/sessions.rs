//! The applied sessions of an agent, so that a request that is repeated writes nothing.
//!
//! The last [`SESSIONS_KEPT`] sessions are remembered by id and content. Of earlier ones a single
//! number is kept, the floor: an id of the contract's form ends with a number that increases with
//! time (`docs/reference/wire.md`, "Sessions: size and id"), so an unknown id at or below the floor
//! is either a replay or from a clock that went back. Neither may write; the server refuses both.

use model::{SessionRecord, Write};
use sha1::{Digest as _, Sha1};

use crate::limits::SESSIONS_KEPT;

/// Bytes that identify a session.
const KEY_BYTES: usize = 8;
/// Bytes of one stored session: its key, then its number, little-endian.
const ENTRY_BYTES: usize = KEY_BYTES + 8;
/// Stored in place of a number if the entry's key is made from the id alone, without the content.
const BY_ID_ALONE: u64 = u64::MAX;
/// Bits of a session's number below its time.
const COUNTER_BITS: u32 = 12;
/// Numbers with an earlier time are not times, microseconds since the epoch: the year 2001.
const TIME_US_MIN: u64 = 1_000_000_000_000_000;

/// The outcome of looking for a session that was applied before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SessionStatus {
    /// It was not applied before.
    No,
    Applied,
    /// Its id is older than those that are remembered, so it may or may not have been applied.
    Outdated,
}

/// The remembered sessions of one agent.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Sessions {
    /// The sessions applied last, oldest first.
    entries: Vec<u8>,
    /// Highest number of earlier sessions; 0 if none had one.
    floor: u64,
}

impl Sessions {
    pub(super) fn stored(entries: Vec<u8>, floor: u64) -> Self {
        Self { entries, floor }
    }

    /// Converts the sessions of a database of a version before 4, which stored only the keys of
    /// ids, oldest first. Nothing is known of earlier sessions.
    pub(super) fn before_version_4(keys: &[u8]) -> Self {
        let entry = |key: &[u8]| [key, &BY_ID_ALONE.to_le_bytes()[..]].concat();
        Self { entries: keys.chunks_exact(KEY_BYTES).flat_map(entry).collect(), floor: 0 }
    }

    pub(super) fn entries(&self) -> &[u8] {
        &self.entries
    }

    pub(super) fn floor(&self) -> u64 {
        self.floor
    }

    /// Returns whether the session was applied before.
    pub(super) fn applied_status(&self, session: &SessionRecord) -> SessionStatus {
        if session.session.is_empty() {
            return SessionStatus::No;
        }
        let (key, id) = (key(session), id_key(&session.session));
        let is_it = |entry: &[u8]| {
            entry.starts_with(&key)
                || entry.ends_with(&BY_ID_ALONE.to_le_bytes()) && entry.starts_with(&id)
        };
        if self.entries.chunks_exact(ENTRY_BYTES).any(is_it) {
            return SessionStatus::Applied;
        }
        let number = number(&session.session);
        if number != 0 && number <= self.floor {
            SessionStatus::Outdated
        } else {
            SessionStatus::No
        }
    }

    /// Remembers an applied session and forgets the oldest one beyond the limit.
    pub(super) fn applied(&mut self, session: &SessionRecord) {
        if session.session.is_empty() {
            return;
        }
        self.entries.extend_from_slice(&key(session));
        // A number from the future must not block sessions once the clock is right again.
        let number = number(&session.session).min(newest(session.received_at_us));
        self.entries.extend_from_slice(&number.to_le_bytes());
        let beyond = self.entries.len().saturating_sub(SESSIONS_KEPT * ENTRY_BYTES);
        self.forget(beyond);
    }

    /// Forgets all remembered sessions and raises the floor, so that none of them is applied again.
    pub(super) fn forget_all(&mut self) {
        self.forget(self.entries.len());
    }

    /// Forgets this many bytes of the oldest entries and raises the floor to their highest number.
    fn forget(&mut self, bytes: usize) {
        let forgotten = self.entries.get(..bytes).unwrap_or_default();
        let numbers = forgotten.chunks_exact(ENTRY_BYTES).filter_map(|entry| entry.last_chunk());
        let numbers = numbers.map(|number| u64::from_le_bytes(*number));
        let newest = numbers.filter(|number| *number != BY_ID_ALONE).max().unwrap_or(0);
        self.floor = self.floor.max(newest);
        self.entries.drain(..bytes);
    }
}

/// Returns the number at the end of an id if it contains a time: (microseconds since the epoch <<
/// 12) plus a counter. Otherwise returns 0.
fn number(session: &str) -> u64 {
    let last = session.rsplit('-').next().and_then(|last| last.parse().ok());
    last.filter(|number| number >> COUNTER_BITS >= TIME_US_MIN).unwrap_or(0)
}

/// Returns the highest number of that time.
fn newest(at_us: u64) -> u64 {
    at_us.saturating_add(1).saturating_mul(1 << COUNTER_BITS).saturating_sub(1)
}

/// Returns the digest of the id alone, as versions before 4 stored it.
fn id_key(session: &str) -> [u8; KEY_BYTES] {
    let digest: [u8; 20] = Sha1::digest(session).into();
    digest.first_chunk().copied().unwrap_or_default()
}

/// Returns the digest of id and content: the same id with other content is another session.
fn key(session: &SessionRecord) -> [u8; KEY_BYTES] {
    let mut all = Fields(Sha1::new());
    all.bytes(session.session.as_bytes());
    for write in &session.writes {
        match write {
            Write::Upsert { dataset, id, version, body } => {
                all.head(0, dataset.name(), id, *version);
                all.bytes(body);
            }
            Write::Delete { dataset, id, version } => all.head(1, dataset.name(), id, *version),
            Write::Clean { dataset } => all.head(2, dataset.name(), "", 0),
            Write::RaiseVersion { dataset, version } => all.head(5, dataset.name(), "", *version),
            Write::Event { id, body } => {
                all.head(3, "", id, 0);
                all.bytes(body);
            }
            // This differs each time that the same session is sent.
            Write::ClockOff { .. } => {}
            Write::Describe { subject, version, check } => {
                all.head(4, if *check { "check" } else { "" }, &format!("{subject:?}"), *version);
                // The described overlay is content. In other sessions it may be the registry's
                // current one.
                all.bytes(&serde_json::to_vec(&session.overlay).unwrap_or_default());
            }
        }
    }
    let digest: [u8; 20] = all.0.finalize().into();
    digest.first_chunk().copied().unwrap_or_default()
}

/// A digest of fields, each preceded by its length.
struct Fields(Sha1);

impl Fields {
    fn bytes(&mut self, bytes: &[u8]) {
        self.0.update((bytes.len() as u64).to_le_bytes());
        self.0.update(bytes);
    }

    fn head(&mut self, kind: u8, dataset: &str, id: &str, version: u64) {
        self.0.update([kind]);
        self.bytes(dataset.as_bytes());
        self.bytes(id.as_bytes());
        self.0.update(version.to_le_bytes());
    }
}

#[cfg(test)]
mod tests {
    use model::{AgentId, AgentSubject, Dataset, Incarnation, Overlay};

    use super::*;

    const NOW_US: u64 = 1_790_000_000_000_000;

    fn session(id: &str, received_at_us: u64, writes: Vec<Write>) -> SessionRecord {
        SessionRecord {
            agent: AgentId(1),
            incarnation: Incarnation(1),
            received_at_us,
            session: id.into(),
            overlay: Overlay::default(),
            writes,
        }
    }

    fn at(us: u64) -> SessionRecord {
        session(&format!("fim-{}", us << COUNTER_BITS), us, Vec::new())
    }

    #[test]
    fn session_number_is_zero_unless_it_encodes_a_plausible_time() {
        for id in ["", "fim", "fim-1", "fim-4096000", "fim-x", "1-fim", "fim-99999999999999999999"]
        {
            assert_eq!(number(id), 0, "{id}");
        }
        let id = (NOW_US << COUNTER_BITS) | 7;
        for text in [format!("fim-a.b.c-{id}"), format!("{id}")] {
            assert_eq!(number(&text), id);
        }
    }

    #[test]
    fn forgotten_session_is_outdated_but_a_late_one_is_not() {
        let mut sessions = Sessions::default();
        let kept = SESSIONS_KEPT as u64;
        for n in 0..kept {
            sessions.applied(&at(NOW_US + 10 * n));
        }
        // Another part of the agent uses numbers between these.
        assert_eq!(sessions.applied_status(&at(NOW_US + 5)), SessionStatus::No);
        assert_eq!(sessions.applied_status(&at(NOW_US)), SessionStatus::Applied);
        sessions.applied(&at(NOW_US + 10 * kept));
        assert_eq!(sessions.applied_status(&at(NOW_US)), SessionStatus::Outdated);
        assert_eq!(sessions.applied_status(&at(NOW_US - 1)), SessionStatus::Outdated);
        assert_eq!(sessions.applied_status(&at(NOW_US + 5)), SessionStatus::No);
        assert_eq!(
            sessions.applied_status(&session("fim-1", NOW_US, Vec::new())),
            SessionStatus::No
        );
        sessions.forget_all();
        assert_eq!(sessions.applied_status(&at(NOW_US + 10 * kept)), SessionStatus::Outdated);
        assert_eq!(sessions.applied_status(&at(NOW_US + 10 * kept + 1)), SessionStatus::No);
        let again = Sessions::stored(sessions.entries().to_vec(), sessions.floor());
        assert_eq!(again, sessions);
    }

    #[test]
    fn session_numbers_from_a_fast_clock_do_not_raise_the_floor() {
        let mut sessions = Sessions::default();
        let year_us = 365 * 86_400_000_000;
        let ahead = SessionRecord { received_at_us: NOW_US, ..at(NOW_US + year_us) };
        sessions.applied(&ahead);
        sessions.forget_all();
        assert_eq!(sessions.applied_status(&at(NOW_US + 1)), SessionStatus::No);
    }

    /// An upgrade refuses neither a client that asks again whether its last session arrived, nor
    /// another part of the agent whose numbers are lower.
    #[test]
    fn sessions_before_version_4_match_by_id_and_set_no_floor() {
        let ids: Vec<String> =
            (0..32).map(|n| at(NOW_US + 10 * n).session).chain(["untimed".into()]).collect();
        let keys: Vec<u8> = ids.iter().flat_map(|id| id_key(id)).collect();
        let mut old = Sessions::before_version_4(&keys);
        let content = vec![Write::Clean { dataset: Dataset::fim_files() }];
        for id in &ids {
            assert_eq!(
                old.applied_status(&session(id, NOW_US, content.clone())),
                SessionStatus::Applied,
                "{id}"
            );
        }
        assert_eq!(old.applied_status(&at(NOW_US + 5)), SessionStatus::No);
        assert_eq!(old.applied_status(&at(NOW_US - 1)), SessionStatus::No);
        // Old entries are dropped like the others but do not raise the floor; later ones do.
        for n in 0..SESSIONS_KEPT as u64 {
            old.applied(&at(NOW_US + 1_000 + n));
        }
        assert_eq!(old.applied_status(&at(NOW_US + 5)), SessionStatus::No);
        assert_eq!(old.applied_status(&session("untimed", NOW_US, Vec::new())), SessionStatus::No);
        old.applied(&at(NOW_US + 9_000));
        assert_eq!(old.applied_status(&at(NOW_US + 5)), SessionStatus::Outdated);
    }

    #[test]
    fn session_key_covers_every_content_field() {
        let (files, packages) = (Dataset::fim_files(), Dataset::inventory_packages());
        let upsert = |dataset: &Dataset, id: &str, version, body: &[u8]| Write::Upsert {
            dataset: dataset.clone(),
            id: id.into(),
            version,
            body: body.into(),
        };
        let delete =
            |id: &str, version| Write::Delete { dataset: files.clone(), id: id.into(), version };
        let describe = |subject, version, check| {
            session("s", 1, vec![Write::Describe { subject, version, check }])
        };
        let named = Overlay { hostname: "h".into(), ..Overlay::default() };
        let all = [
            session("s", 1, vec![]),
            session("t", 1, vec![]),
            session("s", 1, vec![upsert(&files, "a", 1, b"{}")]),
            session("s", 1, vec![upsert(&packages, "a", 1, b"{}")]),
            session("s", 1, vec![upsert(&files, "b", 1, b"{}")]),
            session("s", 1, vec![upsert(&files, "a", 2, b"{}")]),
            session("s", 1, vec![upsert(&files, "a", 1, b"{ }")]),
            session("s", 1, vec![upsert(&files, "a", 1, b"{}"), delete("a", 1)]),
            session("s", 1, vec![delete("a", 1), upsert(&files, "a", 1, b"{}")]),
            session("s", 1, vec![delete("a", 1)]),
            session("s", 1, vec![delete("a", 0)]),
            session("s", 1, vec![Write::Clean { dataset: files.clone() }]),
            session("s", 1, vec![Write::Clean { dataset: packages.clone() }]),
            session("s", 1, vec![Write::Event { id: "a".into(), body: b"{}".to_vec() }]),
            session("s", 1, vec![Write::Event { id: "b".into(), body: b"{}".to_vec() }]),
            describe(AgentSubject::Groups, 1, false),
            describe(AgentSubject::Metadata, 1, false),
            describe(AgentSubject::Groups, 2, false),
            describe(AgentSubject::Groups, 1, true),
            SessionRecord { overlay: named.clone(), ..describe(AgentSubject::Groups, 1, false) },
        ];
        let keys: std::collections::HashSet<_> = all.iter().map(key).collect();
        assert_eq!(keys.len(), all.len());
        let known = &all[2];
        let later = SessionRecord { overlay: named, received_at_us: 2, ..known.clone() };
        assert_eq!(key(&later), key(known), "when it came and what the registry said are not");
    }
}
