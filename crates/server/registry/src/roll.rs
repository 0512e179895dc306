//! The roll: every agent by number with its status and the text that a search looks into. A search
//! reads this text alone, one agent after the other; nothing else of an agent is touched.
//!
//! The text holds each column that stays as it is for long, in lower-case ASCII, with a NUL behind
//! each: no column holds one, so that nothing is found across two of them. What moves with every
//! heartbeat (dates, sums) is written out for the search alone, and only if the search may be in it
//! ([`Search::may_move`]).

use std::collections::BTreeMap;

use memchr::memmem;
use model::{AgentId, AgentRecord, AgentStatus, timestamp};
use state::registry::{Permitted, StatusCode};

/// Behind every column.
const END: char = '\0';

struct Entry {
    status: AgentStatus,
    text: Box<str>,
}

/// All agents but 000, ascending.
#[derive(Default)]
pub(crate) struct Roll {
    entries: BTreeMap<AgentId, Entry>,
}

impl Roll {
    /// Put the agent down as it is now.
    pub(crate) fn put(&mut self, record: &AgentRecord) {
        let entry = Entry { status: record.status, text: text_of(record).into() };
        self.entries.insert(record.id, entry);
    }

    pub(crate) fn remove(&mut self, id: AgentId) {
        self.entries.remove(&id);
    }

    /// The agents of a scope with one of these statuses (none named: any), ascending.
    pub(crate) fn ids(&self, scope: &Permitted, status: &[AgentStatus]) -> Vec<AgentId> {
        self.of(scope)
            .filter(|(_, entry)| status.is_empty() || status.contains(&entry.status))
            .map(|(id, _)| id)
            .collect()
    }

    /// The agents of a scope in which the search finds what it asks for, ascending; `moving` gives
    /// what is not in the roll of an agent.
    pub(crate) fn found(
        &self,
        scope: &Permitted,
        search: &Search,
        moving: impl Fn(AgentId, &mut String),
    ) -> Vec<AgentId> {
        let mut text = String::new();
        let mut holds = |id: AgentId, entry: &Entry| {
            search.is_in(&entry.text)
                || search.may_move && {
                    text.clear();
                    moving(id, &mut text);
                    search.is_in(&text)
                }
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
        for column in [&os.name, &os.platform, &os.version, &os.arch, &os.uname] {
            add(column);
        }
    }
    for group in &record.groups {
        add(group);
    }
    text.make_ascii_lowercase();
    text
}

/// Write what moves of an agent, as lists print it, behind `text`.
pub(crate) fn moving(
    record: &AgentRecord,
    code: StatusCode,
    (sum, synced): (Option<&str>, bool),
    text: &mut String,
) {
    let dates = [Some(record.added_at_s), record.keepalive_at_s, record.disconnected_at_s];
    for date in dates.into_iter().flatten() {
        text.push_str(&timestamp::seconds_offset(date));
        text.push(END);
    }
    text.push_str(sum.unwrap_or_default());
    text.push(END);
    text.push_str(if synced { "synced" } else { "not synced" });
    text.push(END);
    text.push_str(&code.number().to_string());
    text.push(END);
    text.make_ascii_lowercase();
}

/// What a search asks for: a text that any column holds or, with `-` in front, that none holds.
pub(crate) struct Search {
    finder: memmem::Finder<'static>,
    wanted: bool,
    /// Whether it may be in what [`moving`] writes.
    may_move: bool,
    /// No column holds a NUL.
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
        let may_move = text.bytes().all(of_date)
            || text.bytes().all(|b| b.is_ascii_hexdigit())
            || "not synced".contains(&text);
        Self { finder, wanted, may_move, nowhere: text.contains(END) }
    }

    /// Whether it finds what it asks for in the server's own row, which is not in the roll.
    pub(crate) fn fits_server(&self, record: &AgentRecord) -> bool {
        let mut text = text_of(record);
        moving(record, StatusCode::Ok, (None, true), &mut text);
        self.is_in(&text) == self.wanted
    }

    fn is_in(&self, text: &str) -> bool {
        !self.nowhere && self.finder.find(text.as_bytes()).is_some()
    }
}
