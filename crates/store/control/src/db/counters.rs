//! The stored counters.

use model::AgentStatus;
use rusqlite::Connection;

use super::{ControlStore, agents, groups, rows};
use crate::{ControlResult, FleetSummary, Overview, StatusSummary};
use sqlite::Reader;

impl ControlStore {
    /// Returns the overview of the fleet, from stored counters in one snapshot.
    pub fn overview(&self, reader: &Reader) -> ControlResult<Overview> {
        self.read(reader, overview)
    }

    /// Returns the number of agents by status from stored counters.
    pub fn status_summary(&self, reader: &Reader) -> ControlResult<StatusSummary> {
        self.read(reader, status_summary)
    }

    /// Returns the number of agents by status, platform, group and version, from stored counters in
    /// one snapshot.
    pub fn summary(&self, reader: &Reader) -> ControlResult<FleetSummary> {
        self.read(reader, summary)
    }
}

pub(super) fn status_summary(tx: &Connection) -> ControlResult<StatusSummary> {
    let mut summary = StatusSummary::default();
    let mut statement =
        tx.prepare_cached("SELECT value, n, kind FROM counter WHERE kind IN ('config', 'status')")?;
    let mut found = statement.query([])?;
    while let Some(row) = found.next()? {
        let (name, kind): (String, String) = (row.get(0)?, row.get(2)?);
        let n = rows::unsigned(row, 1)?;
        if kind == "config" {
            if name == "synced" {
                summary.synced = n;
            }
            continue;
        }
        match AgentStatus::from_name(&name).ok_or_else(|| rows::corrupt("status", &name))? {
            AgentStatus::Active => summary.active = n,
            AgentStatus::Disconnected => summary.disconnected = n,
            AgentStatus::NeverConnected => summary.never_connected = n,
            AgentStatus::Pending => summary.pending = n,
        }
        summary.total += n;
    }
    Ok(summary)
}

fn counter(tx: &Connection, kind: &str) -> ControlResult<Vec<(String, u64)>> {
    let mut statement =
        tx.prepare_cached("SELECT value, n FROM counter WHERE kind = ?1 ORDER BY n DESC, value")?;
    let counts = statement
        .query_map([kind], |r| Ok((r.get(0)?, rows::unsigned(r, 1)?)))?
        .collect::<Result<_, _>>()?;
    Ok(counts)
}

pub(super) fn summary(tx: &Connection) -> ControlResult<FleetSummary> {
    let mut groups: Vec<(String, u64)> =
        groups::all(tx)?.into_iter().map(|g| (g.name, g.count)).collect();
    groups.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
    Ok(FleetSummary {
        status: status_summary(tx)?,
        os: counter(tx, "os")?,
        groups,
        versions: counter(tx, "version")?,
    })
}

pub(super) fn overview(tx: &Connection) -> ControlResult<Overview> {
    let mut all = groups::all(tx)?;
    all.sort_by(|a, b| b.count.cmp(&a.count).then_with(|| a.name.cmp(&b.name)));
    let summary = FleetSummary {
        status: status_summary(tx)?,
        os: Vec::new(),
        groups: Vec::new(),
        versions: counter(tx, "version")?,
    };
    let systems = counter(tx, "system")?
        .into_iter()
        .map(|(text, n)| {
            let parts = serde_json::from_str(&text).map_err(|_| rows::corrupt("system", &text))?;
            Ok((parts, n))
        })
        .collect::<ControlResult<_>>()?;
    Ok(Overview { summary, groups: all, systems, last: agents::last(tx)? })
}
