//! The SQL terms of a search for events, with their values.

use std::fmt::Write as _;
use std::rc::Rc;

use model::AgentId;
use rusqlite::ToSql;
use rusqlite::types::Value as SqlValue;

use super::documents::prefix_end;
use super::kinds::{CAUSES, numbers};
use crate::query::{ChangeQuery, EventKind, PathMatch};

/// Sort key of events: time found and number.
pub(super) type Key = (i64, i64);

/// One part of a list: a query limited to kinds and causes, from a key on.
#[derive(Clone)]
pub(super) struct Part<'q> {
    pub(super) q: &'q ChangeQuery,
    /// The highest number in the store.
    pub(super) newest: u64,
    /// The kinds and causes, as in `event.kind`.
    pub(super) kinds: Vec<i64>,
    /// Only events after this one in the order of the list.
    pub(super) before: Option<Key>,
}

/// A value of a search, or several.
pub(super) enum Bound {
    One(SqlValue),
    Many(Rc<Vec<SqlValue>>),
}

impl ToSql for Bound {
    fn to_sql(&self) -> rusqlite::Result<rusqlite::types::ToSqlOutput<'_>> {
        match self {
            Self::One(value) => value.to_sql(),
            Self::Many(values) => values.to_sql(),
        }
    }
}

/// The SQL terms of a search, with their values.
#[derive(Default)]
pub(super) struct Terms {
    pub(super) sql: String,
    pub(super) values: Vec<Bound>,
}

impl Terms {
    /// Returns the condition in SQL.
    pub(super) fn condition(&self) -> &str {
        if self.sql.is_empty() { "1" } else { self.sql.as_str() }
    }

    fn and(&mut self, before: &str, value: Bound, after: &str) {
        if !self.sql.is_empty() {
            self.sql.push_str(" AND ");
        }
        self.values.push(value);
        let number = self.values.len();
        self.sql.push_str(before);
        self.sql.push('?');
        self.sql.push_str(&number.to_string());
        self.sql.push_str(after);
    }

    pub(super) fn integer(&mut self, before: &str, value: i64) {
        self.and(before, Bound::One(SqlValue::Integer(value)), "");
    }

    pub(super) fn text(&mut self, before: &str, value: &str) {
        self.and(before, Bound::One(SqlValue::Text(value.to_owned())), "");
    }

    /// Excludes events that a former life of their agent number reported.
    fn present(&mut self) {
        if !self.sql.is_empty() {
            self.sql.push_str(" AND ");
        }
        self.sql.push_str(
            "NOT EXISTS (SELECT 1 FROM removed r
             WHERE r.agent = event.agent AND r.through >= event.number)",
        );
    }

    pub(super) fn any_of(&mut self, column: &str, values: impl Iterator<Item = i64>) {
        let values = Rc::new(values.map(SqlValue::Integer).collect());
        self.and(&format!("{column} IN (SELECT value FROM rarray("), Bound::Many(values), "))");
    }

    pub(super) fn path(&mut self, path: &PathMatch) {
        match path {
            PathMatch::Any => {}
            PathMatch::Exact(path) => self.text("path = ", path),
            PathMatch::Prefix(prefix) => {
                self.text("path >= ", prefix);
                if let Some(end) = prefix_end(prefix) {
                    self.text("path < ", &end);
                }
            }
        }
    }

    pub(super) fn agents(&mut self, agents: &[AgentId]) {
        match agents {
            [one] => self.integer("agent = ", i64::from(one.0)),
            many => self.any_of("agent", many.iter().map(|a| i64::from(a.0))),
        }
    }

    /// Adds the terms for everything except the path.
    pub(super) fn all(&mut self, part: &Part<'_>) {
        self.range(part);
        let q = part.q;
        self.user_and_process(q);
        if let Some(id) = &q.cause_id {
            self.text("cause_id = ", id);
        }
        if let Some(agents) = &q.agents {
            self.agents(agents);
        }
        if part.kinds != numbers(&EventKind::ALL, &CAUSES) {
            self.any_of("kind", part.kinds.iter().copied());
        }
    }

    /// Adds the terms for the user, and for a program that made the change or perhaps did.
    pub(super) fn user_and_process(&mut self, q: &ChangeQuery) {
        if let Some(user) = &q.user {
            self.text("user = ", user);
        }
        if let Some(process) = &q.process {
            self.text("(process = ", process);
            let number = self.values.len();
            let _ = write!(
                self.sql,
                " OR EXISTS (SELECT 1 FROM candidate WHERE name = ?{number}
                 AND event_found_us = found_us AND event_number = number))"
            );
        }
    }

    /// Adds the terms for times, `since`, former lives and the place in the list.
    pub(super) fn range(&mut self, part: &Part<'_>) {
        let q = part.q;
        let number = |n: u64| i64::try_from(n).unwrap_or(i64::MAX);
        if let Some(from) = q.from_us {
            self.integer("found_us >= ", number(from));
        }
        if let Some(to) = q.to_us {
            self.integer("found_us < ", number(to));
        }
        if let Some(since) = q.since {
            self.integer("number > ", number(since));
        }
        if !q.former {
            self.present();
        }
        if let Some(before) = part.before {
            self.integer("found_us <= ", before.0);
            self.key("<", before);
        }
    }

    /// Compares the key of an event with another.
    pub(super) fn key(&mut self, comparison: &str, (found, number): Key) {
        self.integer(&format!("(found_us, number) {comparison} ("), found);
        self.values.push(Bound::One(SqlValue::Integer(number)));
        let _ = write!(self.sql, ", ?{})", self.values.len());
    }
}
