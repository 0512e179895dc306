//! Groups, who is in them, and their configuration.

use model::AgentId;
use state::registry::{GroupConfig, GroupCount};

use crate::{Registry, RegistryError};

/// How new groups of an agent stand to those it has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GroupChange {
    /// Behind those it has.
    Add,
    /// In their place.
    Replace,
    /// Taken from them.
    Remove,
}

impl GroupChange {
    /// The groups of an agent that has `now`, in their order.
    fn of(self, now: &[String], group: &str) -> Vec<String> {
        let kept = now.iter().filter(|name| match self {
            Self::Add => true,
            Self::Replace => false,
            Self::Remove => *name != group,
        });
        let mut next: Vec<String> = kept.cloned().collect();
        if self != Self::Remove && next.iter().all(|name| name != group) {
            next.push(group.to_owned());
        }
        next
    }
}

impl Registry {
    /// Replace the agent's groups; `default` when empty. The groups it has now.
    ///
    /// # Errors
    /// `Store(NotFound)` for an agent or a group, `Store(Limit)`.
    pub fn set_agent_groups(
        &self,
        id: AgentId,
        groups: &[String],
    ) -> Result<Vec<String>, RegistryError> {
        let _order = self.inner.decisions.lock();
        let groups = self.inner.store.set_agent_groups(id, groups)?;
        self.inner.fleet.write().set_groups(id, groups.clone());
        Ok(groups)
    }

    /// Take the agent out of groups in one durable step, whatever others it came into meanwhile;
    /// `default` when none is left. The groups it has now.
    ///
    /// # Errors
    /// `Store(NotFound)` for the agent.
    pub fn leave_groups(
        &self,
        id: AgentId,
        names: &[String],
    ) -> Result<Vec<String>, RegistryError> {
        let _order = self.inner.decisions.lock();
        let now = self.inner.fleet.read().get(id).map(|record| record.groups.clone());
        let mut groups = now.unwrap_or_default();
        groups.retain(|name| !names.contains(name));
        let groups = self.inner.store.set_agent_groups(id, &groups)?;
        self.inner.fleet.write().set_groups(id, groups.clone());
        Ok(groups)
    }

    /// Create a group: 1 to 128 of `A-Z a-z 0-9 . _ -`.
    ///
    /// # Errors
    /// `Store(Exists)`, `Store(Refused)` for a bad name.
    pub fn create_group(&self, name: &str) -> Result<(), RegistryError> {
        Ok(self.inner.store.create_group(name, self.now().s)?)
    }

    /// Delete a group; its agents that are left with none get `default`. How many agents it had.
    ///
    /// # Errors
    /// `Store(NotFound)`, `Store(Refused)` for `default`.
    pub fn delete_group(&self, name: &str) -> Result<u64, RegistryError> {
        let _order = self.inner.decisions.lock();
        let changed = self.inner.store.delete_group(name)?;
        let n = changed.len() as u64;
        let mut fleet = self.inner.fleet.write();
        for (id, groups) in changed {
            fleet.set_groups(id, groups);
        }
        Ok(n)
    }

    /// Every group with its number of agents, by name.
    ///
    /// # Errors
    /// When the store fails.
    pub fn groups(&self) -> Result<Vec<GroupCount>, RegistryError> {
        Ok(self.inner.store.groups()?)
    }

    /// Change one group of several agents in one durable step. Numbers that are not registered are
    /// passed over. Agents whose groups are other ones now, with them.
    ///
    /// # Errors
    /// `Store(NotFound)` for the group, `Store(Limit)`: then nothing was changed.
    pub fn change_group(
        &self,
        agents: &[AgentId],
        group: &str,
        change: GroupChange,
    ) -> Result<Vec<(AgentId, Vec<String>)>, RegistryError> {
        let _order = self.inner.decisions.lock();
        let wanted: Vec<(AgentId, Vec<String>)> = {
            let fleet = self.inner.fleet.read();
            let next = |id: &AgentId| {
                let now = &fleet.get(*id)?.groups;
                let next = change.of(now, group);
                (next != *now).then_some((*id, next))
            };
            agents.iter().filter_map(next).collect()
        };
        let changed = self.inner.store.set_groups_of(&wanted)?;
        let mut fleet = self.inner.fleet.write();
        for (id, groups) in &changed {
            fleet.set_groups(*id, groups.clone());
        }
        Ok(changed)
    }

    /// The configuration of a group; `None` when it has none.
    ///
    /// # Errors
    /// `Store(NotFound)`.
    pub fn group_config(&self, name: &str) -> Result<Option<GroupConfig>, RegistryError> {
        Ok(self.inner.store.group_config(name)?)
    }

    /// Put the configuration of a group; durable when it returns.
    ///
    /// # Errors
    /// `Store(NotFound)`.
    pub fn set_group_config(
        &self,
        name: &str,
        body: Vec<u8>,
        sum: String,
    ) -> Result<(), RegistryError> {
        let config = GroupConfig { body, sum, at_s: self.now().s };
        Ok(self.inner.store.set_group_config(name, &config)?)
    }
}
