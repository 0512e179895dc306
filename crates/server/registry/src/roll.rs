//! The roll: every agent by number with its status and the text that a search looks into. A search
//! reads this text alone, one agent after the other; nothing else of an agent is touched.
//!
//! The text holds each column that `search` names (`spec/api.md` 1.4), in lower-case ASCII, with a
//! NUL behind each: no column holds one, so that nothing is found across two of them.

use std::collections::BTreeMap;

use memchr::memmem;
use model::{AgentId, AgentRecord, AgentStatus};
use state::registry::Permitted;

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

    /// The agents of a scope in which the search finds what it asks for, ascending.
    pub(crate) fn found(&self, scope: &Permitted, search: &Search) -> Vec<AgentId> {
        self.of(scope)
            .filter(|(_, entry)| search.fits_text(&entry.text))
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

/// What a search asks for: a text that any column holds or, with `-` in front, that none holds.
pub(crate) struct Search {
    finder: memmem::Finder<'static>,
    wanted: bool,
    /// No column holds a NUL.
    nowhere: bool,
}

impl Search {
    pub(crate) fn new(text: &str) -> Self {
        let (text, wanted) = match text.strip_prefix('-') {
            Some(text) => (text, false),
            None => (text, true),
        };
        let finder = memmem::Finder::new(&text.to_ascii_lowercase()).into_owned();
        Self { finder, wanted, nowhere: text.contains(END) }
    }

    pub(crate) fn fits(&self, record: &AgentRecord) -> bool {
        self.fits_text(&text_of(record))
    }

    fn fits_text(&self, text: &str) -> bool {
        let found = !self.nowhere && self.finder.find(text.as_bytes()).is_some();
        found == self.wanted
    }
}
