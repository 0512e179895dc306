//! Lists and counters of the fleet.

use model::{AgentId, AgentRecord};
use state::registry::{
    AgentColumn, AgentPage, AgentQuery, Condition, DistinctPage, Overview, Permitted,
    StatusSummary, Summary,
};

use crate::{Registry, RegistryError};

impl Registry {
    /// One page of agents, 000 included. What agents said up to the call is in it.
    ///
    /// # Errors
    /// When the store fails.
    pub fn agents(&self, query: &AgentQuery) -> Result<AgentPage, RegistryError> {
        self.settle(by_keepalive(query))?;
        let mut page = self.inner.store.agents(query, self.now().s)?;
        let fleet = self.inner.fleet.read();
        for item in &mut page.items {
            if let Some(live) = fleet.get(item.id) {
                item.keepalive_at_s = live.keepalive_at_s;
            }
        }
        Ok(page)
    }

    /// The numbers of all agents that match, ascending, 000 included; offset, limit and order are
    /// ignored.
    ///
    /// # Errors
    /// When the store fails.
    pub fn agent_ids(&self, query: &AgentQuery) -> Result<Vec<AgentId>, RegistryError> {
        self.settle(by_keepalive(query))?;
        Ok(self.inner.store.agent_ids(query, self.now().s)?)
    }

    /// Agents by status, without 000; kept, not counted.
    ///
    /// # Errors
    /// When the store fails.
    pub fn status_summary(&self) -> Result<StatusSummary, RegistryError> {
        self.settle(false)?;
        Ok(self.inner.store.status_summary()?)
    }

    /// Agents by status, platform, group and version, without 000, from one snapshot; kept, not
    /// counted.
    ///
    /// # Errors
    /// When the store fails.
    pub fn summary(&self) -> Result<Summary, RegistryError> {
        self.settle(false)?;
        Ok(self.inner.store.summary()?)
    }

    /// The fleet at a glance from one snapshot; kept, not counted.
    ///
    /// # Errors
    /// When the store fails.
    pub fn overview(&self) -> Result<Overview, RegistryError> {
        self.settle(false)?;
        Ok(self.inner.store.overview()?)
    }

    /// The different values of columns over the agents that match, most agents first unless
    /// sorted.
    ///
    /// # Errors
    /// When the store fails.
    pub fn distinct(
        &self,
        query: &AgentQuery,
        columns: &[AgentColumn],
    ) -> Result<DistinctPage, RegistryError> {
        let all = by_keepalive(query) || columns.contains(&AgentColumn::LastKeepAlive);
        self.settle(all)?;
        Ok(self.inner.store.distinct(query, columns, self.now().s)?)
    }

    /// Look at every agent but 000 that the caller may see, by number. Memory only.
    pub fn for_each_agent(&self, permitted: &Permitted, mut look: impl FnMut(&AgentRecord)) {
        let fleet = self.inner.fleet.read();
        match permitted {
            Permitted::Only(ids) => ids.iter().filter_map(|id| fleet.get(*id)).for_each(look),
            Permitted::All => fleet.records().for_each(look),
            Permitted::Except(ids) => {
                for record in fleet.records().filter(|r| ids.binary_search(&r.id).is_err()) {
                    look(record);
                }
            }
        }
    }
}

/// Whether the query looks at the keepalive itself, so that all of them must be written first.
fn by_keepalive(query: &AgentQuery) -> bool {
    fn looks(condition: &Condition) -> bool {
        match condition {
            Condition::And(parts) | Condition::Or(parts) => parts.iter().any(looks),
            Condition::Compare { column, .. }
            | Condition::IsNull(column)
            | Condition::NotNull(column) => *column == AgentColumn::LastKeepAlive,
        }
    }
    query.older_than_s.is_some()
        || query.sort.iter().any(|s| s.column == AgentColumn::LastKeepAlive)
        || query.condition.as_ref().is_some_and(looks)
}
