//! What groups configure, in memory: the settings of each group, and the digest of what the agents
//! of a set of groups are to run. A write drops what it touches; a heartbeat computes nothing.

use std::collections::HashMap;
use std::sync::Arc;

use settings::{Merged, Settings, SettingsError};

use crate::limits::GROUP_SETS_KEPT_MAX;

/// Settings by group, and digests by set of groups.
#[derive(Default)]
pub(crate) struct Configs {
    /// `None`: the text cannot be read, and agents keep what they run.
    settings: HashMap<String, Option<Settings>>,
    sums: HashMap<Vec<String>, Option<Arc<str>>>,
}

impl Configs {
    /// From what the store holds.
    pub(crate) fn load(texts: Vec<(String, Vec<u8>)>) -> Self {
        let mut all = Self::default();
        for (group, text) in texts {
            let settings = Settings::parse(&String::from_utf8_lossy(&text));
            if let Err(error) = &settings {
                tracing::warn!(
                    group,
                    %error,
                    "the group's configuration cannot be read: its agents keep what they run until \
                     it is put again"
                );
            }
            all.settings.insert(group, settings.ok());
        }
        all
    }

    /// Take over what a group sets; `None` when the group is gone.
    pub(crate) fn put(&mut self, group: &str, settings: Option<Settings>) {
        match settings {
            Some(settings) => _ = self.settings.insert(group.to_owned(), Some(settings)),
            None => _ = self.settings.remove(group),
        }
        self.sums.retain(|groups, _| groups.iter().all(|name| name != group));
    }

    /// The digest of what agents of these groups are to run, empty when that is nothing; `None`
    /// when it cannot be told, and agents keep what they run.
    pub(crate) fn sum(&mut self, groups: &[String]) -> Option<Arc<str>> {
        if let Some(sum) = self.sums.get(groups) {
            return sum.clone();
        }
        let merged = self.merged(groups).inspect_err(|error| {
            tracing::warn!(?groups, %error, "the configuration of these groups is not handed out");
        });
        let sum: Option<Arc<str>> = merged.ok().map(|merged| merged.sum.into());
        if self.sums.len() >= GROUP_SETS_KEPT_MAX {
            self.sums.clear();
        }
        self.sums.insert(groups.to_vec(), sum.clone());
        sum
    }

    /// What agents of these groups are to run.
    ///
    /// # Errors
    /// When a group's text cannot be read, or the groups together set too much.
    pub(crate) fn merged(&self, groups: &[String]) -> Result<Merged, SettingsError> {
        let set = groups.iter().filter_map(|name| self.settings.get(name));
        let set: Option<Vec<&Settings>> = set.map(Option::as_ref).collect();
        Ok(Merged::from(&settings::merged(set.ok_or(SettingsError::Unreadable)?)?))
    }

    /// Whether the groups of a set still go together when one of them sets this.
    pub(crate) fn fits(
        &self,
        groups: &[String],
        group: &str,
        settings: &Settings,
    ) -> Result<(), SettingsError> {
        let of = |name: &String| {
            if name == group { Some(settings) } else { self.settings.get(name)?.as_ref() }
        };
        settings::merged(groups.iter().filter_map(of)).map(drop)
    }
}
