//! The roll: an index of all agents by number, with status and search text. A search scans only
//! this text.
//!
//! The text holds each column that changes rarely, in lower-case ASCII, each followed by a NUL. No
//! column contains one, so a match never spans two columns. What changes with every heartbeat
//! ([`MovingColumns`]) is formatted during the search, and only the parts that the search can match.

use std::collections::BTreeMap;

use control::{Permitted, StatusCode};
use memchr::memmem;
use model::{AgentId, AgentRecord, AgentStatus, timestamp};

const SYNCED: &str = "synced";
const NOT_SYNCED: &str = "not synced";
/// Terminator of every column.
const END: char = '\0';

struct Entry {
    status: AgentStatus,
    text: Box<str>,
}

/// All agents but 000, ascending.
#[derive(Default)]
pub(crate) struct AgentTable {
    entries: BTreeMap<AgentId, Entry>,
}

impl AgentTable {
    /// Stores the agent's current columns.
    pub(crate) fn put_agent(&mut self, record: &AgentRecord) {
        let entry = Entry { status: record.status, text: text_of(record).into() };
        self.entries.insert(record.id, entry);
    }

    pub(crate) fn remove(&mut self, id: AgentId) {
        self.entries.remove(&id);
    }

    /// Returns the agents of a scope with one of these statuses (empty: any), ascending.
    pub(crate) fn ids(&self, scope: &Permitted, status: &[AgentStatus]) -> Vec<AgentId> {
        self.of(scope)
            .filter(|(_, entry)| status.is_empty() || status.contains(&entry.status))
            .map(|(id, _)| id)
            .collect()
    }

    /// Returns the agents of a scope that match the search, ascending; `moving` returns the columns
    /// of an agent that are not in the roll.
    pub(crate) fn found<'a>(
        &self,
        scope: &Permitted,
        search: &Search,
        moving: impl Fn(AgentId) -> Option<MovingColumns<'a>>,
    ) -> Vec<AgentId> {
        let mut text = String::new();
        let mut holds = |id: AgentId, entry: &Entry| {
            search.is_in(&entry.text)
                || search.may_move()
                    && moving(id).is_some_and(|moving| search.is_in_moving(&moving, &mut text))
        };
        self.of(scope)
            .filter(|(id, entry)| holds(*id, entry) == search.wanted)
            .map(|(id, _)| id)
            .collect()
    }

    fn of<'a>(
        &'a self,
        scope: &'a Permitted,
    ) -> Box<dyn Iterator<Item = (AgentId, &'a Entry)> + 'a> {
        match scope {
            Permitted::Only(ids) => {
                Box::new(ids.iter().filter_map(|id| Some((*id, self.entries.get(id)?))))
            }
            Permitted::All => Box::new(self.entries.iter().map(|(id, entry)| (*id, entry))),
            Permitted::Except(_) => {
                let all = self.entries.iter().map(|(id, entry)| (*id, entry));
                Box::new(all.filter(|(id, _)| scope.holds(*id)))
            }
        }
    }
}

fn text_of(record: &AgentRecord) -> String {
    let mut text = String::with_capacity(192);
    let mut add = |column: &str| {
        text.push_str(column);
        text.push(END);
    };
    add(&record.id.to_string());
    add(&record.name);
    add(record.ip.as_deref().unwrap_or(&record.register_ip));
    add(&record.register_ip);
    add(record.status.name());
    add(record.version.as_deref().unwrap_or_default());
    add(record.hostname.as_deref().unwrap_or_default());
    if let Some(os) = &record.os {
        for column in [&os.name, &os.platform, &os.version, &os.arch, &os.uname, &os.codename] {
            add(column);
        }
    }
    for group in &record.groups {
        add(group);
    }
    text.make_ascii_lowercase();
    text
}

/// The columns of an agent that change with its heartbeats.
pub(crate) struct MovingColumns<'a> {
    pub(crate) record: &'a AgentRecord,
    pub(crate) code: StatusCode,
    /// Digest of the groups' configuration that it runs.
    pub(crate) sum: Option<&'a str>,
    pub(crate) synced: bool,
}

/// A search: a text that any column contains or, with a leading `-`, that no column contains.
pub(crate) struct Search {
    finder: memmem::Finder<'static>,
    wanted: bool,
    /// True if the text can match a date, a digest, or a word for the configuration's state.
    in_dates: bool,
    in_sum: bool,
    in_words: bool,
    /// True if the text contains a NUL and matches no column.
    nowhere: bool,
}

impl Search {
    pub(crate) fn new(text: &str) -> Self {
        let (text, wanted) = match text.strip_prefix('-') {
            Some(text) => (text, false),
            None => (text, true),
        };
        let text = text.to_ascii_lowercase();
        let finder = memmem::Finder::new(&text).into_owned();
        let of_date = |b: u8| b.is_ascii_digit() || b"-:+t".contains(&b);
        Self {
            finder,
            wanted,
            in_dates: text.bytes().all(of_date),
            in_sum: text.bytes().all(|b| b.is_ascii_hexdigit()),
            in_words: NOT_SYNCED.contains(&text),
            nowhere: text.contains(END),
        }
    }

    fn may_move(&self) -> bool {
        self.in_dates || self.in_sum || self.in_words
    }

    /// Returns true if the text matches one of the moving columns; `text` is a reusable buffer.
    fn is_in_moving(&self, moving: &MovingColumns<'_>, text: &mut String) -> bool {
        text.clear();
        if self.in_dates {
            let record = moving.record;
            let dates = [Some(record.added_at_s), record.keepalive_at_s, record.disconnected_at_s];
            for date in dates.into_iter().flatten() {
                timestamp::push_seconds_offset(date, text);
                text.push(END);
            }
            text.make_ascii_lowercase();
            text.push(char::from(b'0' + moving.code.number() % 10));
            text.push(END);
        }
        if self.in_sum {
            text.push_str(moving.sum.unwrap_or_default());
            text.push(END);
        }
        if self.in_words {
            text.push_str(if moving.synced { SYNCED } else { NOT_SYNCED });
            text.push(END);
        }
        self.is_in(text)
    }

    /// Returns true if the search matches the server's own row, which is not in the roll.
    pub(crate) fn fits_server(&self, record: &AgentRecord) -> bool {
        let moving = MovingColumns { record, code: StatusCode::Ok, sum: None, synced: true };
        let found = self.is_in(&text_of(record)) || self.is_in_moving(&moving, &mut String::new());
        found == self.wanted
    }

    fn is_in(&self, text: &str) -> bool {
        !self.nowhere && self.finder.find(text.as_bytes()).is_some()
    }
}
