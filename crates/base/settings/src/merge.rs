//! The settings of all groups of an agent as one.

use crate::{Settings, SettingsError, WatchSettings, limits, sum};

/// The configuration distributed to an agent.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Merged {
    /// TOML; empty when no group sets anything.
    pub text: String,
    /// Its [`sum`].
    pub sum: String,
}

/// Merges the settings of groups in their order of priority. For a key set by several groups the
/// last one applies; a list is one value. Watched paths are joined; of two entries for one path the
/// last one applies as a whole, at the position of the first.
///
/// # Errors
/// `TooManyWatches`, `TooManyPatterns`, `TooMuch` when the groups together watch too much.
pub fn merged<'a>(
    groups: impl IntoIterator<Item = &'a Settings>,
) -> Result<Settings, SettingsError> {
    let mut all = Settings::default();
    for group in groups {
        all.take_over(group);
    }
    if all.watch.len() > limits::WATCHES_MAX {
        return Err(SettingsError::TooManyWatches(all.watch.len()));
    }
    let bytes = all.watch.iter().map(WatchSettings::bytes).sum();
    if bytes > limits::WATCH_BYTES_MAX {
        return Err(SettingsError::TooMuch(bytes));
    }
    let patterns = all.watch.iter().map(WatchSettings::patterns).sum();
    if patterns > limits::PATTERNS_ALL_MAX {
        return Err(SettingsError::TooManyPatterns(patterns));
    }
    Ok(all)
}

impl From<&Settings> for Merged {
    fn from(settings: &Settings) -> Self {
        let text = settings.to_toml();
        Self { sum: sum(&text), text }
    }
}

impl Settings {
    fn take_over(&mut self, later: &Self) {
        let Self { scan, realtime, inventory, metrics, queue, sync, watch } = later;
        set(&mut self.scan.interval, scan.interval.as_ref());
        set(&mut self.scan.threads, scan.threads.as_ref());
        set(&mut self.scan.max_bytes_per_second, scan.max_bytes_per_second.as_ref());
        set(&mut self.scan.background_priority, scan.background_priority.as_ref());
        set(&mut self.realtime.enabled, realtime.enabled.as_ref());
        set(&mut self.realtime.attribution, realtime.attribution.as_ref());
        set(&mut self.inventory.packages, inventory.packages.as_ref());
        set(&mut self.inventory.interval, inventory.interval.as_ref());
        set(&mut self.metrics.enabled, metrics.enabled.as_ref());
        set(&mut self.metrics.interval, metrics.interval.as_ref());
        set(&mut self.metrics.processes, metrics.processes.as_ref());
        set(&mut self.metrics.limit_mib, metrics.limit_mib.as_ref());
        set(&mut self.queue.limit_mib, queue.limit_mib.as_ref());
        set(&mut self.sync.heartbeat, sync.heartbeat.as_ref());
        set(&mut self.sync.check_interval, sync.check_interval.as_ref());
        for one in watch {
            join(&mut self.watch, one);
        }
    }
}

fn set<T: Clone>(known: &mut Option<T>, later: Option<&T>) {
    if let Some(later) = later {
        *known = Some(later.clone());
    }
}

fn join(watches: &mut Vec<WatchSettings>, one: &WatchSettings) {
    match watches.iter_mut().find(|known| known.path == one.path) {
        Some(known) => known.clone_from(one),
        None => watches.push(one.clone()),
    }
}
