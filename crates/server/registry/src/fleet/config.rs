//! The configuration that agents should run according to their groups, and the one that they run.

use std::collections::HashSet;
use std::sync::Arc;

use control::{ConfigRow, ConfigState};
use model::AgentId;
use settings::Settings;

use super::{Fleet, LiveAgent, drain, same};
use crate::configs::{Configs, Draft, Sets};
use crate::types::{ConfigProblem, ReportedConfig};

impl Fleet {
    /// Returns a draft with a group's settings replaced or removed, and the sets of groups of its
    /// agents.
    pub(crate) fn draft(&self, group: &str, settings: Option<&Arc<Settings>>) -> (Draft, Sets) {
        let members = self.groups.get(group).into_iter().flat_map(|members| &members.ids);
        let groups = members.filter_map(|id| Some(self.agents.get(id)?.record.groups.as_slice()));
        // Most agents share a few sets: only distinct ones are copied.
        let sets: HashSet<&[String]> = groups.collect();
        let sets = sets.into_iter().map(<[String]>::to_vec).collect();
        (self.configs.draft(group, settings.cloned()), sets)
    }

    /// Returns the groups' configurations, for drafts.
    pub(crate) fn configs(&self) -> &Configs {
        &self.configs
    }

    /// Applies a draft. The agents' wanted digests are updated by [`Fleet::want_group`], or by
    /// their next change of groups.
    pub(crate) fn take_draft(&mut self, draft: Draft) {
        self.configs.apply_draft(draft);
    }

    /// Updates the wanted digest of the agents of this group.
    pub(crate) fn want_group(&mut self, group: &str) {
        for id in self.members(group) {
            if self.update_wanted(id) {
                self.configured(id);
            }
        }
    }

    /// Updates the digest that the agent should run; returns true if it changed.
    pub(super) fn update_wanted(&mut self, id: AgentId) -> bool {
        let Some(live) = self.agents.get_mut(&id) else { return false };
        let wanted = self.configs.sum(&live.record.groups);
        if live.wanted == wanted {
            return false;
        }
        let before = live.synced();
        live.wanted = wanted;
        self.recount(id, before);
        true
    }

    /// Updates the count of synced agents; `before` is the agent's former flag.
    pub(super) fn recount(&mut self, id: AgentId, before: bool) {
        match (before, self.synced(id)) {
            (false, true) => self.status.synced += 1,
            (true, false) => self.status.synced = self.status.synced.saturating_sub(1),
            _ => {}
        }
    }

    /// Returns the digest that agents of these groups should run.
    pub(crate) fn sum(&mut self, groups: &[String]) -> Option<Arc<str>> {
        self.configs.sum(groups)
    }

    /// Returns the digest that the agent should run.
    pub(crate) fn wanted(&self, id: AgentId) -> Option<Arc<str>> {
        self.agents.get(&id)?.wanted.clone()
    }

    /// Returns the state of the agent's configuration and the one that it refused.
    pub(crate) fn config(&self, id: AgentId) -> Option<(ConfigState, Option<ConfigProblem>)> {
        let live = self.agents.get(&id)?;
        Some((live.config_state(), live.problem.as_deref().cloned()))
    }

    /// Returns true if the agent's report is already known.
    pub(crate) fn knows_report(&self, id: AgentId, report: &ReportedConfig) -> bool {
        self.agents.get(&id).is_none_or(|live| {
            live.runs.as_deref() == Some(&report.sum)
                && live.problem.as_deref() == report.problem.as_ref()
        })
    }

    /// Records the agent's report; returns true if it refuses something that it did not refuse
    /// before.
    pub(crate) fn record_report(&mut self, id: AgentId, report: ReportedConfig) -> bool {
        let Some(live) = self.agents.get_mut(&id) else { return false };
        let news = report.problem.is_some() && live.problem.as_deref() != report.problem.as_ref();
        live.problem = report.problem.map(Box::new);
        if live.runs.as_deref() != Some(&report.sum) {
            let before = live.synced();
            live.runs = Some(same(live.wanted.as_ref(), &report.sum));
            self.recount(id, before);
            self.configured(id);
        }
        news
    }

    /// Marks the agent's digests as to be written.
    pub(super) fn configured(&mut self, id: AgentId) {
        if let Some(live) = self.agents.get_mut(&id)
            && !std::mem::replace(&mut live.config, true)
        {
            self.configured.push(id);
        }
    }

    /// Returns true if the agent runs the configuration of its groups.
    pub(crate) fn synced(&self, id: AgentId) -> bool {
        self.agents.get(&id).is_some_and(LiveAgent::synced)
    }

    /// Takes up to `max` rows of digests to write.
    pub(crate) fn take_configs(&mut self, max: usize) -> Vec<ConfigRow> {
        let ids = drain(&mut self.configured, max);
        self.writing = !ids.is_empty();
        let row = |id: &AgentId| {
            let live = self.agents.get_mut(id)?;
            std::mem::take(&mut live.config).then(|| ConfigRow {
                id: *id,
                incarnation: live.record.incarnation,
                config: live.config_state(),
            })
        };
        ids.iter().filter_map(row).collect()
    }

    /// Marks rows that could not be written as due again.
    pub(crate) fn put_back_configs(&mut self, rows: &[ConfigRow]) {
        self.writing = false;
        for row in rows {
            self.configured(row.id);
        }
    }

    /// Assumes that a connected agent runs no configuration until it reports one.
    pub(super) fn heard_first(&mut self, id: AgentId) {
        if let Some(live) = self.agents.get_mut(&id)
            && live.runs.is_none()
        {
            live.runs = Some(same(live.wanted.as_ref(), ""));
            self.recount(id, false);
            self.configured(id);
        }
    }
}
