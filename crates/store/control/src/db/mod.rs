//! The control store on SQLite: one writer, a few readers and a write-ahead log. The crate's head
//! says what survives what. Each family of calls has a file; the connections are in
//! `connections.rs`.

mod agents;
mod audit;
mod certificates;
mod checkpointer;
mod columns;
mod commands;
mod connections;
mod counters;
mod decisions;
mod distinct;
mod failures;
mod groups;
mod list;
mod logged;
#[cfg(test)]
mod prepared_tests;
mod registration;
mod rows;
mod security;
mod users;
mod watched;

use rusqlite::TransactionBehavior;

use crate::{AgentQuery, ControlImage, ControlResult};

pub use connections::ControlStore;
pub use failures::RegistryFailure;
pub use logged::KEYS_SETTING;
use sqlite::Reader;

impl ControlStore {
    /// Runs the queries of lists and counters on every reader, so that the first requests find
    /// their statements prepared and their pages cached.
    ///
    /// # Errors
    /// Returns an error if the database fails.
    pub fn warm(&self) -> ControlResult<()> {
        let page = AgentQuery { limit: 1, ..AgentQuery::default() };
        self.readers.each(|conn| {
            let tx = conn.transaction_with_behavior(TransactionBehavior::Deferred)?;
            counters::summary(&tx)?;
            counters::overview(&tx)?;
            list::page(&tx, &page, 0)?;
            list::ids(&tx, &AgentQuery::default(), 0).map(drop)
        })
    }

    /// Returns everything that the registry keeps in memory, from one snapshot.
    pub fn load(&self) -> ControlResult<ControlImage> {
        self.read(&Reader::server(), |tx| {
            Ok(ControlImage {
                agents: agents::all(tx)?,
                certificates: certificates::all(tx)?,
                outstanding: commands::outstanding(tx)?,
                revocations: users::revocations(tx)?,
                configs: groups::configs(tx)?,
            })
        })
    }
}
