//! Reports of agents about themselves, the last of each kind, and the versions of their
//! descriptions.

use model::limits::DOCUMENT_BYTES_MAX;
use model::{AgentId, AgentReport, Applied, Dataset, Incarnation, ReportKind};
use rusqlite::{Connection, OptionalExtension, params};

use super::StateStore;
use super::apply::{Applier, Stop};
use crate::error::{Context, StateError};
use sqlite::Reader;

impl StateStore {
    /// Returns the last report of this kind of one incarnation of the agent.
    ///
    /// # Errors
    /// Returns an error if the store cannot be read.
    pub fn report(
        &self,
        reader: &Reader,
        agent: AgentId,
        incarnation: Incarnation,
        kind: ReportKind,
    ) -> Result<Option<AgentReport>, StateError> {
        self.read(reader, "read a report", |db| {
            report(db, agent, incarnation, kind).context("read a report")
        })
    }
}

impl Applier<'_> {
    /// Replaces the agent's last report of this kind, unless it is from a life that has ended.
    pub(super) fn report(&mut self, report: &AgentReport) -> Result<Applied, Stop> {
        let AgentReport { agent, incarnation, at_us, kind, body } = report;
        if body.len() > DOCUMENT_BYTES_MAX {
            return Err(Stop::Unfit("the report is too large".into()));
        }
        if !self.admit(*agent, *incarnation)? {
            return Ok(Applied { refused: true, ..Applied::default() });
        }
        self.db
            .prepare_cached("INSERT OR REPLACE INTO report VALUES (?1, ?2, ?3, ?4)")?
            .execute(params![agent.0, *kind as u8, *at_us as i64, body])?;
        Ok(Applied { changed: 1, ..Applied::default() })
    }

    /// Raises the version that is shown in the documents of a dataset. Does nothing if the agent
    /// has no such dataset. Returns the number of changes.
    pub(super) fn raise_version(
        &mut self,
        agent: AgentId,
        dataset: &Dataset,
        version: u64,
    ) -> rusqlite::Result<u64> {
        let raised = self
            .db
            .prepare_cached(
                "UPDATE collection SET described_version = ?3
                 WHERE agent = ?1 AND dataset = (SELECT number FROM dataset WHERE name = ?2)
                 AND described_version < ?3",
            )?
            .execute(params![agent.0, dataset.name(), version as i64])?;
        Ok(raised as u64)
    }

    /// Deletes the reports of a life that ends, and the versions of its descriptions.
    pub(super) fn drop_self_reports(&mut self, agent: AgentId) -> rusqlite::Result<()> {
        self.db.prepare_cached("DELETE FROM report WHERE agent = ?1")?.execute([agent.0])?;
        self.db
            .prepare_cached("UPDATE collection SET described_version = 0 WHERE agent = ?1")?
            .execute([agent.0])?;
        Ok(())
    }
}

/// Returns the last report of this kind of one life of the agent.
fn report(
    db: &Connection,
    agent: AgentId,
    incarnation: Incarnation,
    kind: ReportKind,
) -> rusqlite::Result<Option<AgentReport>> {
    db.prepare_cached(
        "SELECT r.at_us, r.body FROM report r JOIN agent a ON a.number = r.agent
         WHERE r.agent = ?1 AND r.kind = ?2 AND a.incarnation = ?3",
    )?
    .query_row(params![agent.0, kind as u8, incarnation.0 as i64], |r| {
        let at_us = r.get::<_, i64>(0)? as u64;
        Ok(AgentReport { agent, incarnation, at_us, kind, body: r.get(1)? })
    })
    .optional()
}
