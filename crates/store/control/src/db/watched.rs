//! The state in which agents watch their roots.

use model::{AgentId, CoverageState};
use rusqlite::types::Value;
use rusqlite::{Connection, params};
use std::rc::Rc;

use super::{ControlStore, rows};
use crate::watched::{WatchPage, WatchQuery, WatchRow};
use crate::{ControlResult, Permitted};
use sqlite::Reader;

impl ControlStore {
    /// Writes how agents watch their roots, in one transaction; survives a killed process. Reports of
    /// removed agents are skipped.
    pub fn save_watch_reports(&self, reports: &[(AgentId, WatchRow)]) -> ControlResult<()> {
        self.write_soft(&Reader::server(), |tx| save(tx, reports))
    }

    /// Returns how agents watch their roots, by number; agents that never reported are left out.
    pub fn watch_reports(&self, reader: &Reader, query: &WatchQuery) -> ControlResult<WatchPage> {
        self.read(reader, |tx| page(tx, query))
    }
}

fn save(tx: &Connection, reports: &[(AgentId, WatchRow)]) -> ControlResult<()> {
    for (id, row) in reports {
        let count = |state| {
            let roots = row.report.roots.iter().filter(|root| root.state == state);
            i64::try_from(roots.count()).unwrap_or(i64::MAX)
        };
        rows::run(
            tx,
            "INSERT OR REPLACE INTO agent_watch (agent, reported_s, realtime, scan, gap, report)
             SELECT id, ?2, ?3, ?4, ?5, ?6 FROM agent WHERE id = ?1",
            params![
                id.0,
                row.reported_s,
                count(CoverageState::Realtime),
                count(CoverageState::Scan),
                count(CoverageState::Gap),
                serde_json::to_string(&row.report).unwrap_or_default(),
            ],
        )?;
    }
    Ok(())
}

fn page(tx: &Connection, query: &WatchQuery) -> ControlResult<WatchPage> {
    let state = match query.state {
        None => "",
        Some(CoverageState::Realtime) => " AND realtime > 0",
        Some(CoverageState::Scan) => " AND scan > 0",
        Some(CoverageState::Gap) => " AND gap > 0",
    };
    let (permitted, ids): (_, &[AgentId]) = match &query.permitted {
        Permitted::All => ("agent NOT IN rarray(?1)", &[]),
        Permitted::Only(ids) => ("agent IN rarray(?1)", ids),
        Permitted::Except(ids) => ("agent NOT IN rarray(?1)", ids),
    };
    let ids: Rc<Vec<Value>> = Rc::new(ids.iter().map(|id| Value::from(id.0)).collect());
    let from = format!("FROM agent_watch WHERE {permitted}{state}");
    let count = format!("SELECT count(*) {from}");
    let total: i64 = rows::get(tx, &count, [&ids], |row| row.get(0))?;
    let list = format!("SELECT agent, reported_s, report {from} ORDER BY agent LIMIT ?2 OFFSET ?3");
    let signed = |n: u64| i64::try_from(n).unwrap_or(i64::MAX);
    let mut statement = tx.prepare_cached(&list)?;
    let found =
        statement.query_map(params![ids, signed(query.limit), signed(query.offset)], |row| {
            let report: String = row.get(2)?;
            // A report that a newer version wrote may not be readable: it is shown as empty.
            let report = serde_json::from_str(&report).unwrap_or_default();
            Ok((AgentId(row.get(0)?), WatchRow { reported_s: row.get(1)?, report }))
        })?;
    let items = found.collect::<rusqlite::Result<_>>()?;
    Ok(WatchPage { items, total: u64::try_from(total).unwrap_or(0) })
}
