//! What groups configure, in memory: the settings of each group, and the digest of what the agents
//! of a set of groups are to run. A write drops what it touches; a heartbeat computes nothing, and
//! what takes long (merging) is done while nobody is held up ([`Draft`]).

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use settings::{Merged, Settings, SettingsError};

use crate::limits::{GROUP_SETS_KEPT_MAX, MERGED_BYTES_MAX, MERGED_IDLE};

/// What each group sets; `None`: the text cannot be read, and agents keep what they run.
type ByGroup = HashMap<String, Option<Arc<Settings>>>;
/// Digests by set of groups; `None`: it cannot be told.
type Sums = HashMap<Vec<String>, Option<Arc<str>>>;

/// Merged texts by digest, for the agents that fetch one in the same minutes.
pub(crate) fn kept() -> moka::sync::Cache<Arc<str>, Arc<Merged>> {
    moka::sync::Cache::builder()
        .weigher(|_, merged: &Arc<Merged>| u32::try_from(merged.text.len()).unwrap_or(u32::MAX))
        .max_capacity(MERGED_BYTES_MAX)
        .time_to_idle(MERGED_IDLE)
        .build()
}

/// Settings by group, and digests by set of groups.
#[derive(Default)]
pub(crate) struct Configs {
    settings: ByGroup,
    sums: Sums,
    /// What is wrong with texts that were stored under other rules, by group, until they are put
    /// again.
    problems: HashMap<String, String>,
    /// Moves on with every change of what a group sets.
    version: u64,
}

impl Configs {
    /// From what the store holds. `silence`: after how long a server of this configuration takes an
    /// agent for disconnected.
    pub(crate) fn load(texts: Vec<(String, Vec<u8>)>, silence: Duration) -> Self {
        let mut all = Self::default();
        for (group, text) in texts {
            let settings = Settings::parse(&String::from_utf8_lossy(&text));
            let problem = match &settings {
                Err(error) => Some(format!(
                    "cannot be read: its agents keep what they run until it is put again: {error}"
                )),
                Ok(settings) => settings.check_silence(silence).err().map(|e| e.to_string()),
            };
            if let Some(problem) = problem {
                tracing::warn!(group, "the group's configuration: {problem}");
                all.problems.insert(group.clone(), problem);
            }
            all.settings.insert(group, settings.ok().map(Arc::new));
        }
        all
    }

    /// What would be if a group set this, or nothing any more. No sums are in it yet.
    pub(crate) fn draft(&self, group: &str, settings: Option<Arc<Settings>>) -> Draft {
        let mut all = self.settings.clone();
        match settings {
            Some(settings) => _ = all.insert(group.to_owned(), Some(settings)),
            None => _ = all.remove(group),
        }
        let group = Some(group.to_owned());
        Draft { group, settings: all, sums: Sums::new(), version: self.version }
    }

    /// The sums that are not known of these sets as they are; none of them is in it yet.
    pub(crate) fn unknown<'a>(&self, sets: impl Iterator<Item = &'a [String]>) -> (Draft, Sets) {
        let missing = sets.filter(|groups| !self.sums.contains_key(*groups));
        let sets: Sets = missing.map(<[String]>::to_vec).collect();
        let settings = if sets.is_empty() { ByGroup::new() } else { self.settings.clone() };
        (Draft { group: None, settings, sums: Sums::new(), version: self.version }, sets)
    }

    /// Returns true if a draft was made of what is.
    pub(crate) fn is_base_of(&self, draft: &Draft) -> bool {
        self.version == draft.version
    }

    /// The digest of what these groups set together, if it was reckoned; within, whether it can be
    /// told.
    #[expect(clippy::option_option, reason = "not reckoned yet is another thing than none")]
    pub(crate) fn known(&self, groups: &[String]) -> Option<Option<Arc<str>>> {
        self.sums.get(groups).cloned()
    }

    /// Moves on with every change of what a group sets.
    pub(crate) fn version(&self) -> u64 {
        self.version
    }

    /// What is wrong with the text that the store has of a group, if anything.
    pub(crate) fn problem(&self, group: &str) -> Option<&str> {
        self.problems.get(group).map(String::as_str)
    }

    /// Take over what a draft says, if it is of what is.
    pub(crate) fn take(&mut self, draft: Draft) {
        if self.version != draft.version {
            return;
        }
        if let Some(group) = draft.group {
            self.version += 1;
            self.settings = draft.settings;
            self.problems.remove(&group);
            self.sums.retain(|groups, _| groups.iter().all(|name| *name != group));
        }
        if self.sums.len() + draft.sums.len() > GROUP_SETS_KEPT_MAX {
            self.sums.clear();
        }
        self.sums.extend(draft.sums);
    }

    /// The digest of what agents of these groups are to run, empty when that is nothing; `None`
    /// when it cannot be told, and agents keep what they run.
    pub(crate) fn sum(&mut self, groups: &[String]) -> Option<Arc<str>> {
        if let Some(sum) = self.sums.get(groups) {
            return sum.clone();
        }
        let sum = told(groups, merged(&self.settings, groups));
        if self.sums.len() >= GROUP_SETS_KEPT_MAX {
            self.sums.clear();
        }
        self.sums.insert(groups.to_vec(), sum.clone());
        sum
    }

    /// What these groups set, in their order, for [`settings::merged`]: copies of references.
    ///
    /// # Errors
    /// When a group's text cannot be read.
    pub(crate) fn of(&self, groups: &[String]) -> Result<Vec<Arc<Settings>>, SettingsError> {
        let set = groups.iter().filter_map(|name| self.settings.get(name));
        set.cloned().collect::<Option<_>>().ok_or(SettingsError::Unreadable)
    }
}

/// Sets of groups.
pub(crate) type Sets = HashSet<Vec<String>>;

/// A change of what groups set with the digests that follow from it, made on a copy.
pub(crate) struct Draft {
    /// Which group sets something else, if one does.
    group: Option<String>,
    settings: ByGroup,
    sums: Sums,
    version: u64,
}

impl Draft {
    /// Reckon the digests of sets of groups that are not in it yet. Merges: not to be called while
    /// the fleet is locked.
    ///
    /// # Errors
    /// With `strict`: when a set cannot be merged that has only texts that can be read.
    pub(crate) fn reckon(&mut self, sets: Sets, strict: bool) -> Result<(), SettingsError> {
        for groups in sets {
            if self.sums.contains_key(&groups) {
                continue;
            }
            let merged = merged(&self.settings, &groups);
            match merged {
                Err(error) if strict && error != SettingsError::Unreadable => return Err(error),
                merged => _ = self.sums.insert(groups.clone(), told(&groups, merged)),
            }
        }
        Ok(())
    }
}

fn merged(settings: &ByGroup, groups: &[String]) -> Result<Merged, SettingsError> {
    let set = groups.iter().filter_map(|name| settings.get(name));
    let set: Option<Vec<&Settings>> = set.map(Option::as_deref).collect();
    Ok(Merged::from(&settings::merged(set.ok_or(SettingsError::Unreadable)?)?))
}

fn told(groups: &[String], merged: Result<Merged, SettingsError>) -> Option<Arc<str>> {
    let merged = merged.inspect_err(|error| {
        tracing::warn!(?groups, %error, "the configuration of these groups is not handed out");
    });
    merged.ok().map(|merged| merged.sum.into())
}
