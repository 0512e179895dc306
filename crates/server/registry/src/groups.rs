//! Groups, their members and their configuration.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use control::Reader;
use control::{ConfigState, GroupConfig, GroupCount, WriteContext};
use model::AgentId;
use settings::{Merged, Settings, SettingsError};

use crate::types::{ConfigProblem, ReportedConfig};
use crate::{Registry, RegistryError, limits};

/// The way new groups of an agent are combined with its present ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GroupChange {
    /// The new groups are appended.
    Add,
    /// The new groups replace the present ones.
    Replace,
    /// The groups are removed from the present ones.
    Remove,
}

impl GroupChange {
    /// Returns the groups that an agent with the groups `now` has after the change, in their order.
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
    /// Replaces the agent's groups; `default` when empty. Returns its groups after the call.
    ///
    /// # Errors
    /// `Store(NotFound)` for an agent or a group, `Store(Limit)`.
    pub fn set_agent_groups(
        &self,
        context: &WriteContext,
        id: AgentId,
        groups: &[String],
    ) -> Result<Vec<String>, RegistryError> {
        let _order = self.inner.decisions.lock();
        let groups = self.inner.store.set_agent_groups(context, id, groups)?;
        self.reckon(std::slice::from_ref(&groups).iter());
        self.inner.fleet.write().set_groups(id, groups.clone());
        Ok(groups)
    }

    /// Removes the agent from groups in one durable step. Groups that it joined in the meantime are
    /// kept; `default` if none is left. Returns its groups after the call.
    ///
    /// # Errors
    /// `Store(NotFound)` for the agent.
    pub fn leave_groups(
        &self,
        context: &WriteContext,
        id: AgentId,
        names: &[String],
    ) -> Result<Vec<String>, RegistryError> {
        let _order = self.inner.decisions.lock();
        let now = self.inner.fleet.read().get(id).map(|record| record.groups.clone());
        let mut groups = now.unwrap_or_default();
        groups.retain(|name| !names.contains(name));
        let groups = self.inner.store.set_agent_groups(context, id, &groups)?;
        self.reckon(std::slice::from_ref(&groups).iter());
        self.inner.fleet.write().set_groups(id, groups.clone());
        Ok(groups)
    }

    /// Creates a group. Its name has 1 to 128 characters of `A-Z a-z 0-9 . _ -`.
    ///
    /// # Errors
    /// `Store(Exists)`, `Store(Refused)` for a bad name, `Refused` beyond [`limits::GROUPS_MAX`].
    pub fn create_group(&self, context: &WriteContext, name: &str) -> Result<(), RegistryError> {
        let _order = self.inner.decisions.lock();
        if self.inner.store.groups(context.reader())?.len() >= limits::GROUPS_MAX {
            let text = format!("there are {} groups already: delete one", limits::GROUPS_MAX);
            return Err(RegistryError::Refused(text));
        }
        Ok(self.inner.store.create_group(context, name, self.now().s)?)
    }

    /// Deletes a group; agents left without a group get `default`. Returns its former number of
    /// agents.
    ///
    /// # Errors
    /// `Store(NotFound)`, `Store(Refused)` for `default`.
    pub fn delete_group(&self, context: &WriteContext, name: &str) -> Result<u64, RegistryError> {
        let _order = self.inner.decisions.lock();
        let changed = self.inner.store.delete_group(context, name)?;
        let n = changed.len() as u64;
        let (mut draft, _) = self.inner.fleet.read().draft(name, None);
        let sets: HashSet<&Vec<String>> = changed.iter().map(|(_, groups)| groups).collect();
        // The group is already deleted, so an error is ignored: a set that cannot be merged is not
        // handed out.
        let _ = draft.reckon(sets.into_iter().cloned().collect(), false);
        let mut fleet = self.inner.fleet.write();
        fleet.take_draft(draft);
        for (id, groups) in changed {
            fleet.set_groups(id, groups);
        }
        Ok(n)
    }

    /// Returns every group with its number of agents, by name.
    ///
    /// # Errors
    /// Returns an error if the store fails.
    pub fn groups(&self, reader: &Reader) -> Result<Vec<GroupCount>, RegistryError> {
        Ok(self.inner.store.groups(reader)?)
    }

    /// Changes one group of several agents in one durable step. Numbers that are not registered are
    /// skipped. Returns the agents whose groups changed, with their groups.
    ///
    /// # Errors
    /// `Store(NotFound)` for the group, `Store(Limit)`: then nothing was changed.
    pub fn change_group(
        &self,
        context: &WriteContext,
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
        let changed = self.inner.store.set_groups_of(context, &wanted)?;
        self.reckon(changed.iter().map(|(_, groups)| groups));
        let mut fleet = self.inner.fleet.write();
        for (id, groups) in &changed {
            fleet.set_groups(*id, groups.clone());
        }
        Ok(changed)
    }

    /// Returns the configuration of a group; `None` when it has none.
    ///
    /// # Errors
    /// `Store(NotFound)`.
    pub fn group_config(
        &self,
        reader: &Reader,
        name: &str,
    ) -> Result<Option<GroupConfig>, RegistryError> {
        Ok(self.inner.store.group_config(reader, name)?)
    }

    /// Stores the configuration of a group, in either of its text forms; durable when it returns.
    /// From then on every agent of the group is notified in the answer to its next heartbeat.
    ///
    /// # Errors
    /// `Settings` with the line if the text is not valid, or if it conflicts with the settings of
    /// other groups of its agents or with this server's disconnection time; `Store(NotFound)`.
    pub fn set_group_config(
        &self,
        context: &WriteContext,
        name: &str,
        text: &str,
    ) -> Result<(), RegistryError> {
        let settings = Arc::new(Settings::parse(text)?);
        let silence = Duration::from_secs(self.inner.options.disconnection_s);
        settings.check_silence(silence)?;
        let (body, sum) = (text.as_bytes().to_vec(), settings::sum(text));
        let config = GroupConfig { body, sum, at_s: self.now().s };
        // Merging may take long, so it is done before `decisions` is locked.
        let (mut draft, sets) = self.inner.fleet.read().draft(name, Some(&settings));
        draft.reckon(sets, true)?;
        {
            let _order = self.inner.decisions.lock();
            let (now, sets) = self.inner.fleet.read().draft(name, Some(&settings));
            if !self.inner.fleet.read().configs().is_base_of(&draft) {
                draft = now;
            }
            // Computes only the sets of groups that appeared in the meantime, or all sets if any
            // group's settings changed since.
            draft.reckon(sets, true)?;
            self.inner.store.set_group_config(context, name, &config)?;
            let mut fleet = self.inner.fleet.write();
            fleet.take_draft(draft);
            fleet.want_group(name);
        }
        // The agents' flags are written here, so that the next reader of the counters does not wait
        // for them.
        if let Err(error) = self.write_pending(false) {
            tracing::warn!(%error, "the agents' configuration states are written with a later flush");
        }
        Ok(())
    }

    /// Computes missing digests of these sets of groups, before the fleet is locked to use them.
    /// The caller holds `decisions`.
    fn reckon<'a>(&self, sets: impl Iterator<Item = &'a Vec<String>>) {
        let sets = sets.map(Vec::as_slice);
        let (mut draft, sets) = self.inner.fleet.read().configs().unknown(sets);
        if !sets.is_empty() {
            // A set that cannot be merged is not handed out.
            let _ = draft.reckon(sets, false);
            self.inner.fleet.write().take_draft(draft);
        }
    }

    /// Returns the merged configuration for agents of these groups, in this order. It is merged
    /// once and cached while the agents fetch it.
    ///
    /// # Errors
    /// `Settings` when the groups together watch too many paths.
    pub fn merged_config(&self, groups: &[String]) -> Result<Arc<Merged>, RegistryError> {
        let (sum, set) = {
            let fleet = self.inner.fleet.read();
            (fleet.configs().known_sum(groups).flatten(), fleet.configs().of(groups)?)
        };
        let merge = || {
            let all = settings::merged(set.iter().map(|settings| &**settings))?;
            Ok::<_, SettingsError>(Arc::new(Merged::from(&all)))
        };
        let Some(sum) = sum else { return Ok(merge()?) };
        self.inner.merged.try_get_with(sum, merge).map_err(|error| (*error).clone().into())
    }

    /// Returns the digest of the configuration for agents of this group alone; empty for none.
    /// Memory only; locks the fleet for writing only on the first call after a change.
    pub fn merged_sum(&self, group: &str) -> Arc<str> {
        let groups = [group.to_owned()];
        let known = self.inner.fleet.read().configs().known_sum(&groups);
        let sum = known.unwrap_or_else(|| self.inner.fleet.write().sum(&groups));
        sum.unwrap_or_else(|| "".into())
    }

    /// Returns the error in a group's configuration that was stored under an earlier version or
    /// other settings of this server, if any. Memory only.
    pub fn group_problem(&self, group: &str) -> Option<String> {
        self.inner.fleet.read().configs().problem(group).map(str::to_owned)
    }

    /// Returns a number that changes with every change of a group's configuration: anything derived
    /// from the configurations before must then be recreated. Memory only.
    pub fn configs_version(&self) -> u64 {
        self.inner.fleet.read().configs().version()
    }

    /// Returns the digest that the agent should run, empty for none; `None` when it should keep
    /// what it runs, or there is no such agent. Memory only, and nothing is computed.
    pub fn wanted_config(&self, id: AgentId) -> Option<Arc<str>> {
        self.inner.fleet.read().wanted(id)
    }

    /// Returns the state of the agent's configuration and the one that it refused; `None` when
    /// there is no such agent. Memory only.
    pub fn agent_config(&self, id: AgentId) -> Option<(ConfigState, Option<ConfigProblem>)> {
        self.inner.fleet.read().config(id)
    }

    /// Records the configuration that the agent runs and the one it refused; in the database with
    /// the next flush. Memory only.
    pub fn config_reported(&self, id: AgentId, report: ReportedConfig) {
        if self.inner.fleet.read().knows_report(id, &report) {
            return;
        }
        let problem = report.problem.clone();
        let news = self.inner.fleet.write().record_report(id, report);
        if let (true, Some(problem)) = (news, problem) {
            let (sum, detail) = (problem.sum, problem.detail);
            tracing::warn!(agent = %id, sum, "refuses its groups' configuration: {detail}");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::mpsc;

    use control::WriteContext;
    use env::clock::ManualClock;
    use env::random::SeededRandom;

    use crate::{Registry, RegistryOptions};

    fn open(folder: &std::path::Path, options: RegistryOptions) -> Registry {
        let store = mirror::open(&folder.join("registry.db")).unwrap();
        let clock = Arc::new(ManualClock::at(1_795_287_122_000_000));
        let random = Arc::new(SeededRandom::new(1));
        Registry::open(Arc::new(store), folder, clock, random, options).unwrap()
    }

    #[test]
    fn group_sum_is_returned_while_the_fleet_is_read_locked() {
        let folder = tempfile::TempDir::new().unwrap();
        let registry = open(folder.path(), RegistryOptions::default());
        registry.create_group(&WriteContext::server(), "web").unwrap();
        registry.merged_sum("web");
        let held = registry.inner.fleet.read();
        let (report, sum) = mpsc::channel();
        let other = registry.clone();
        let asking = std::thread::spawn(move || report.send(other.merged_sum("web")).unwrap());
        let sum = sum.recv_timeout(std::time::Duration::from_mins(1));
        drop(held);
        asking.join().unwrap();
        assert_eq!(sum.expect("returned although the fleet is read").as_ref(), "");
    }

    #[test]
    fn unusable_stored_group_config_is_reported_until_replaced() {
        let folder = tempfile::TempDir::new().unwrap();
        let text = "[sync]\nheartbeat = \"240s\"\n";
        let registry = open(folder.path(), RegistryOptions::default());
        registry.create_group(&WriteContext::server(), "web").unwrap();
        registry.create_group(&WriteContext::server(), "db").unwrap();
        registry.set_group_config(&WriteContext::server(), "web", text).unwrap();
        registry.set_group_config(&WriteContext::server(), "db", text).unwrap();
        assert_eq!(registry.group_problem("web"), None);
        drop(registry);
        // Stores a text that another version may have accepted.
        let conn = rusqlite::Connection::open(folder.path().join("registry.db")).unwrap();
        conn.execute("UPDATE agent_group SET config = x'3c61' WHERE name = 'db'", []).unwrap();
        drop(conn);
        // The disconnection time is shorter than the heartbeat in the text.
        let short = RegistryOptions { disconnection_s: 60, ..RegistryOptions::default() };
        let registry = open(folder.path(), short);
        let problem = |group| registry.group_problem(group).unwrap_or_default();
        assert!(problem("db").contains("cannot be read"), "{}", problem("db"));
        assert_ne!(problem("web"), "");
        assert_eq!(registry.group_problem("default"), None);
        registry
            .set_group_config(&WriteContext::server(), "db", "[sync]\nheartbeat = \"10s\"\n")
            .unwrap();
        assert_eq!(registry.group_problem("db"), None);
        registry.delete_group(&WriteContext::server(), "web").unwrap();
        assert_eq!(registry.group_problem("web"), None);
    }
}
