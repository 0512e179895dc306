//! The groups' configurations in memory: the settings of each group, and the digest for the agents
//! of each set of groups. A write drops the digests that it affects. A heartbeat computes nothing.
//! Merging takes long and is done on a [`Draft`], without blocking other callers.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use settings::{Merged, Settings, SettingsError};

use crate::limits::{GROUP_SETS_KEPT_MAX, MERGED_BYTES_MAX, MERGED_IDLE};

/// Settings by group; `None`: the text cannot be parsed, and agents keep what they run.
type ByGroup = HashMap<String, Option<Arc<Settings>>>;
/// Digests by set of groups; `None`: the digest cannot be determined.
type Sums = HashMap<Vec<String>, Option<Arc<str>>>;

/// Creates the cache of merged texts by digest, for agents that fetch the same one within minutes.
pub(crate) fn merged_cache() -> moka::sync::Cache<Arc<str>, Arc<Merged>> {
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
    /// Errors by group, in texts that were stored when other rules applied. An error is kept until
    /// the text is stored again.
    problems: HashMap<String, String>,
    /// Incremented with every change of a group's settings.
    version: u64,
}

impl Configs {
    /// Loads the stored texts. `silence` is the time after which this server considers an agent
    /// disconnected.
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

    /// Returns a draft with a group's settings replaced or removed. It has no digests yet.
    pub(crate) fn draft(&self, group: &str, settings: Option<Arc<Settings>>) -> Draft {
        let mut all = self.settings.clone();
        match settings {
            Some(settings) => _ = all.insert(group.to_owned(), Some(settings)),
            None => _ = all.remove(group),
        }
        let group = Some(group.to_owned());
        Draft { group, settings: all, sums: Sums::new(), version: self.version }
    }

    /// Returns the sets without a known digest, and a draft for them without digests.
    pub(crate) fn unknown<'a>(&self, sets: impl Iterator<Item = &'a [String]>) -> (Draft, Sets) {
        let missing = sets.filter(|groups| !self.sums.contains_key(*groups));
        let sets: Sets = missing.map(<[String]>::to_vec).collect();
        let settings = if sets.is_empty() { ByGroup::new() } else { self.settings.clone() };
        (Draft { group: None, settings, sums: Sums::new(), version: self.version }, sets)
    }

    /// Returns true if a draft was made from the present settings.
    pub(crate) fn is_base_of(&self, draft: &Draft) -> bool {
        self.version == draft.version
    }

    /// Returns the digest for these groups, if it was computed; the inner value is `None` if it
    /// cannot be determined.
    #[expect(clippy::option_option, reason = "not reckoned yet is another thing than none")]
    pub(crate) fn known_sum(&self, groups: &[String]) -> Option<Option<Arc<str>>> {
        self.sums.get(groups).cloned()
    }

    /// Returns a number that changes with every change of a group's settings.
    pub(crate) fn version(&self) -> u64 {
        self.version
    }

    /// Returns the error in the stored text of a group, if any.
    pub(crate) fn problem(&self, group: &str) -> Option<&str> {
        self.problems.get(group).map(String::as_str)
    }

    /// Applies a draft, if it was made from the present settings.
    pub(crate) fn apply_draft(&mut self, draft: Draft) {
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

    /// Returns the digest for agents of these groups, empty for no configuration; `None` when it
    /// cannot be determined, and agents keep what they run.
    pub(crate) fn sum(&mut self, groups: &[String]) -> Option<Arc<str>> {
        if let Some(sum) = self.sums.get(groups) {
            return sum.clone();
        }
        let sum = usable_config(groups, merged(&self.settings, groups));
        if self.sums.len() >= GROUP_SETS_KEPT_MAX {
            self.sums.clear();
        }
        self.sums.insert(groups.to_vec(), sum.clone());
        sum
    }

    /// Returns the settings of these groups in their order, for [`settings::merged`]. They are
    /// shared, not copied.
    ///
    /// # Errors
    /// Returns an error if a group's text cannot be parsed.
    pub(crate) fn of(&self, groups: &[String]) -> Result<Vec<Arc<Settings>>, SettingsError> {
        let set = groups.iter().filter_map(|name| self.settings.get(name));
        set.cloned().collect::<Option<_>>().ok_or(SettingsError::Unreadable)
    }
}

/// Sets of groups.
pub(crate) type Sets = HashSet<Vec<String>>;

/// A change of groups' settings with the resulting digests, made on a copy.
pub(crate) struct Draft {
    /// The group whose settings change, if any.
    group: Option<String>,
    settings: ByGroup,
    sums: Sums,
    version: u64,
}

impl Draft {
    /// Computes the missing digests of sets of groups. Merges: do not call this while the fleet is
    /// locked.
    ///
    /// # Errors
    /// With `strict`, returns an error if a set whose texts can all be parsed cannot be merged.
    pub(crate) fn reckon(&mut self, sets: Sets, strict: bool) -> Result<(), SettingsError> {
        for groups in sets {
            if self.sums.contains_key(&groups) {
                continue;
            }
            let merged = merged(&self.settings, &groups);
            match merged {
                Err(error) if strict && error != SettingsError::Unreadable => return Err(error),
                merged => _ = self.sums.insert(groups.clone(), usable_config(&groups, merged)),
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

fn usable_config(groups: &[String], merged: Result<Merged, SettingsError>) -> Option<Arc<str>> {
    let merged = merged.inspect_err(|error| {
        tracing::warn!(?groups, %error, "the configuration of these groups is not handed out");
    });
    merged.ok().map(|merged| merged.sum.into())
}
