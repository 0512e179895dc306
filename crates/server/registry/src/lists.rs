//! Lists and counters of the fleet.

use std::borrow::Cow;
use std::sync::Arc;

use control::Reader;
use control::limits::PAGE_ROWS_MAX;
use control::{
    AgentColumn, AgentCondition, AgentPage, AgentQuery, AgentRow, ConfigState, DistinctPage,
    FleetSummary, Overview, Permitted, Sort, StatusCode, StatusSummary,
};
use model::{AgentId, AgentRecord};

use crate::fleet::Fleet;
use crate::roll::Search;
use crate::{Registry, RegistryError};

impl Registry {
    /// Returns one page of agents, 000 included, with all reports received before the call. A
    /// search scans the text of every agent in memory. If there is no other filter, the whole page
    /// comes from memory.
    ///
    /// # Errors
    /// Returns an error if the store fails.
    pub fn agents(&self, reader: &Reader, query: &AgentQuery) -> Result<AgentPage, RegistryError> {
        if only_search(query)
            && let Some(text) = &query.search
        {
            return Ok(self.searched(query, text));
        }
        let query = &*self.resolved(query);
        self.write_pending(by_keepalive(query))?;
        let mut page = self.inner.store.agents(reader, query, self.now().s)?;
        let fleet = self.inner.fleet.read();
        for item in &mut page.items {
            if let Some(live) = fleet.get(item.record.id) {
                item.record.keepalive_at_s = live.keepalive_at_s;
            }
        }
        Ok(page)
    }

    /// Returns the numbers of all matching agents, ascending, 000 included; offset, limit and order
    /// are ignored. With status and scope alone they come from memory.
    ///
    /// # Errors
    /// Returns an error if the store fails.
    pub fn agent_ids(
        &self,
        reader: &Reader,
        query: &AgentQuery,
    ) -> Result<Vec<AgentId>, RegistryError> {
        if only_status(query) {
            let server = query.permitted.holds(AgentId::SERVER)
                && (query.status.is_empty() || query.status.contains(&self.inner.server.status));
            let mut ids = self.inner.fleet.read().roll().ids(&query.permitted, &query.status);
            if server {
                ids.insert(0, AgentId::SERVER);
            }
            return Ok(ids);
        }
        let query = &*self.resolved(query);
        self.write_pending(by_keepalive(query))?;
        Ok(self.inner.store.agent_ids(reader, query, self.now().s)?)
    }

    /// Returns a page of [`Registry::agent_ids`] and the number of matches.
    ///
    /// # Errors
    /// Returns an error if the store fails.
    pub fn agent_ids_page(
        &self,
        reader: &Reader,
        query: &AgentQuery,
    ) -> Result<(Vec<AgentId>, u64), RegistryError> {
        let mut ids = self.agent_ids(reader, query)?;
        let total = ids.len() as u64;
        ids.drain(..ids.len().min(query.offset as usize));
        ids.truncate(query.limit as usize);
        Ok((ids, total))
    }

    /// Returns the query with its search and its condition on silence replaced by a scope of the
    /// agents found.
    fn resolved<'a>(&self, query: &'a AgentQuery) -> Cow<'a, AgentQuery> {
        if query.search.is_none() && query.silent.is_none() {
            return Cow::Borrowed(query);
        }
        let fleet = self.inner.fleet.read();
        let mut found = match (&query.search, query.silent) {
            (Some(text), _) => self.found(&fleet, query, text),
            (None, Some(true)) => fleet.silent().keys().copied().collect(),
            (None, _) => {
                let others = fleet.roll().ids(&query.permitted, &[]);
                std::iter::once(AgentId::SERVER).chain(others).collect()
            }
        };
        let silent = query.silent;
        found.retain(|id| {
            let fits = silent.is_none_or(|silent| fleet.silent().contains_key(id) == silent);
            fits && query.permitted.holds(*id)
        });
        let permitted = Permitted::Only(Arc::new(found));
        Cow::Owned(AgentQuery { permitted, search: None, silent: None, ..query.clone() })
    }

    /// Returns the agents of the query's scope that a search finds, ascending, 000 included.
    fn found(&self, fleet: &Fleet, query: &AgentQuery, text: &str) -> Vec<AgentId> {
        let search = Search::new(text);
        let mut found = fleet.found(&query.permitted, &search);
        if query.permitted.holds(AgentId::SERVER) && search.fits_server(&self.inner.server) {
            found.insert(0, AgentId::SERVER);
        }
        found
    }

    /// Returns a page, by number, of the agents that a search finds in memory at one instant.
    fn searched(&self, query: &AgentQuery, text: &str) -> AgentPage {
        let fleet = self.inner.fleet.read();
        let mut found = self.found(&fleet, query, text);
        if query.sort.first().is_some_and(|sort| sort.descending) {
            found.reverse();
        }
        let mut page = AgentPage { total: found.len() as u64, ..AgentPage::default() };
        let limit = query.limit.min(PAGE_ROWS_MAX) as usize;
        for id in found.into_iter().skip(query.offset as usize).take(limit) {
            let own = (id == AgentId::SERVER).then_some((&self.inner.server, StatusCode::Ok));
            if let Some((record, status_code)) = own.or_else(|| fleet.row(id)) {
                let config = fleet.config(id).map(|(state, _)| state);
                page.items.push(AgentRow {
                    record: record.clone(),
                    status_code,
                    config: config.unwrap_or(ConfigState { sum: None, synced: true }),
                    ephemeral_s: fleet.ephemeral_s(id),
                });
            }
        }
        page
    }

    /// Returns agents by status, without 000, from counters in memory; runs no statement.
    ///
    /// # Errors
    /// None at present.
    pub fn status_summary(&self) -> Result<StatusSummary, RegistryError> {
        Ok(self.inner.fleet.read().status())
    }

    /// Returns agents by status, platform, group and version, without 000, from one snapshot of
    /// stored counters.
    ///
    /// # Errors
    /// Returns an error if the store fails.
    pub fn summary(&self, reader: &Reader) -> Result<FleetSummary, RegistryError> {
        self.write_pending(false)?;
        Ok(self.inner.store.summary(reader)?)
    }

    /// Returns the overview of the fleet from one snapshot of stored counters.
    ///
    /// # Errors
    /// Returns an error if the store fails.
    pub fn overview(&self, reader: &Reader) -> Result<Overview, RegistryError> {
        self.write_pending(false)?;
        Ok(self.inner.store.overview(reader)?)
    }

    /// Returns the distinct values of columns over the matching agents, most agents first unless
    /// sorted.
    ///
    /// # Errors
    /// Returns an error if the store fails.
    pub fn distinct(
        &self,
        reader: &Reader,
        query: &AgentQuery,
        columns: &[AgentColumn],
    ) -> Result<DistinctPage, RegistryError> {
        let query = &*self.resolved(query);
        let all = by_keepalive(query) || columns.contains(&AgentColumn::LastKeepAlive);
        self.write_pending(all)?;
        Ok(self.inner.store.distinct(reader, query, columns, self.now().s)?)
    }

    /// Returns the number of agents of a scope by status, and of those that run the configuration
    /// of their groups, all at one instant. The server is not counted. Memory only.
    pub fn status_of(&self, permitted: &Permitted) -> StatusSummary {
        let fleet = self.inner.fleet.read();
        let mut counts = StatusSummary::default();
        look_at(&fleet, permitted, |record, _| {
            counts.add(record.status);
            counts.synced += u64::from(fleet.synced(record.id));
        });
        counts
    }

    /// Calls `look` for every agent but 000 that the caller may see, all at one instant and in no
    /// order. Memory only.
    pub fn for_each_agent(&self, permitted: &Permitted, mut look: impl FnMut(&AgentRecord)) {
        look_at(&self.inner.fleet.read(), permitted, |record, _| look(record));
    }

    /// Does the same as [`Registry::for_each_agent`], with the whole row of each agent.
    pub fn for_each_row(&self, permitted: &Permitted, mut look: impl FnMut(&AgentRow)) {
        let fleet = self.inner.fleet.read();
        look_at(&fleet, permitted, |record, status_code| {
            let config = fleet.config(record.id).map(|(state, _)| state).unwrap_or_default();
            let ephemeral_s = fleet.ephemeral_s(record.id);
            look(&AgentRow { record: record.clone(), status_code, config, ephemeral_s });
        });
    }
}

fn look_at(fleet: &Fleet, permitted: &Permitted, mut look: impl FnMut(&AgentRecord, StatusCode)) {
    match permitted {
        Permitted::Only(ids) => {
            ids.iter().filter_map(|id| fleet.row(*id)).for_each(|(row, code)| look(row, code));
        }
        Permitted::All | Permitted::Except(_) => fleet
            .rows()
            .filter(|(row, _)| permitted.holds(row.id))
            .for_each(|(row, code)| look(row, code)),
    }
}

/// Returns true if the query uses the keepalive time, so that all keepalives must be written first.
fn by_keepalive(query: &AgentQuery) -> bool {
    fn looks(condition: &AgentCondition) -> bool {
        match condition {
            AgentCondition::And(parts) | AgentCondition::Or(parts) => parts.iter().any(looks),
            AgentCondition::Compare { column, .. }
            | AgentCondition::IsNull(column)
            | AgentCondition::NotNull(column) => *column == AgentColumn::LastKeepAlive,
        }
    }
    query.older_than_s.is_some()
        || query.sort.iter().any(|s| s.column == AgentColumn::LastKeepAlive)
        || query.condition.as_ref().is_some_and(looks)
}

/// Returns true if the query filters only by scope and status.
fn only_status(query: &AgentQuery) -> bool {
    query.ids.is_none() && query.search.is_none() && is_plain(query)
}

/// Returns true if the query filters only by scope and search, and is ordered by number.
fn only_search(query: &AgentQuery) -> bool {
    let by_number = |sort: &[Sort]| sort.first().is_none_or(|s| s.column == AgentColumn::Id);
    query.ids.is_none() && query.status.is_empty() && by_number(&query.sort) && is_plain(query)
}

/// Returns true if the query has no filter that only the database can apply.
fn is_plain(query: &AgentQuery) -> bool {
    let lists = [
        &query.name,
        &query.ip,
        &query.register_ip,
        &query.group,
        &query.os_platform,
        &query.os_name,
        &query.os_version,
        &query.version,
    ];
    query.older_than_s.is_none()
        && query.silent.is_none()
        && query.condition.is_none()
        && lists.iter().all(|values| values.is_empty())
}
