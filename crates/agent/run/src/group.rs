//! The configuration of the agent's groups. It is stored in a file next to the queue, and merged
//! over the agent's own settings at start. The file is replaced by rename and synced before it is
//! used. A kill or a power cut therefore leaves the old or the new one, and an agent that cannot
//! reach its server keeps the last configuration that it received.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::Path;
use std::sync::Arc;

use anyhow::Context as _;
use env::clock::SystemClock;
use link::json::ControlConfig;
use settings::{Settings, Span};
use tracing::warn;

use crate::config::AgentSettings;

/// File in the agent's folder: the configuration to run with.
const FILE: &str = "group.toml";
/// File with the configuration that ran last, used if the other one does not work.
const RUNNING: &str = "group.toml.running";

/// Returns the configurations to try, in this order: the one to run, the one that ran last, none.
pub(super) fn texts(folder: &Path) -> anyhow::Result<Vec<String>> {
    let mut texts = vec![stored(&folder.join(FILE))?];
    // An unreadable fallback must not prevent the start.
    let last = stored(&folder.join(RUNNING)).unwrap_or_default();
    for other in [last, String::new()] {
        if !texts.contains(&other) && texts.first().is_some_and(|wanted| !wanted.is_empty()) {
            texts.push(other);
        }
    }
    Ok(texts)
}

/// Returns the report for the server: `text` is in use in place of `wanted`, which was refused for
/// `refusal`.
pub(super) fn config_report(
    text: &str,
    wanted: &str,
    refusal: Option<&anyhow::Error>,
) -> ControlConfig {
    let sum = settings::sum(text);
    match refusal {
        Some(error) => {
            ControlConfig { sum, refused: wanted.to_owned(), detail: format!("{error:#}") }
        }
        None => ControlConfig { sum, ..ControlConfig::default() },
    }
}

/// Returns the agent's own settings with a stored text over them.
///
/// # Errors
/// See [`overlay`].
pub(super) fn effective(own: &AgentSettings, text: &str) -> anyhow::Result<AgentSettings> {
    if text.is_empty() { Ok(own.clone()) } else { overlay(own, text) }
}

impl AgentSettings {
    /// Returns the settings with the stored configuration of the agent's groups over them.
    ///
    /// # Errors
    /// Returns an error if it cannot be read, or no agent can run with it.
    pub fn with_groups(&self) -> anyhow::Result<Self> {
        effective(self, &stored(&self.folder.join(FILE))?)
    }
}

/// Records that the agent runs with this text. A failure is only logged.
pub(super) fn note_running(folder: &Path, text: &str) {
    let path = folder.join(RUNNING);
    if stored(&path).is_ok_and(|known| known == text) {
        return;
    }
    if let Err(error) = write(folder, RUNNING, text) {
        warn!(
            "{error:#}: if the next configuration cannot run, the agent will not return to this one"
        );
    }
}

/// Returns the agent's own settings with this text over them.
///
/// # Errors
/// Returns an error if the text or the resulting settings are invalid.
pub(super) fn overlay(own: &AgentSettings, text: &str) -> anyhow::Result<AgentSettings> {
    let group = Settings::from_toml(text)?;
    let mut all = own.clone();
    if let Some(Span(interval)) = group.scan.interval {
        all.scan.interval = Some(interval);
    }
    set(&mut all.scan.threads, group.scan.threads);
    set(&mut all.scan.max_bytes_per_second, group.scan.max_bytes_per_second);
    set(&mut all.scan.background_priority, group.scan.background_priority);
    set(&mut all.realtime.enabled, group.realtime.enabled);
    set(&mut all.realtime.attribution, group.realtime.attribution);
    set(&mut all.inventory.packages, group.inventory.packages);
    span(&mut all.inventory.interval, group.inventory.interval);
    set(&mut all.metrics.enabled, group.metrics.enabled);
    span(&mut all.metrics.interval, group.metrics.interval);
    set(&mut all.metrics.processes, group.metrics.processes);
    set(&mut all.metrics.limit_mib, group.metrics.limit_mib);
    set(&mut all.queue.limit_mib, group.queue.limit_mib);
    span(&mut all.sync.heartbeat, group.sync.heartbeat);
    span(&mut all.sync.check_interval, group.sync.check_interval);
    for watch in &group.watch {
        // The keys are those of `[[watch]]`; what is absent takes the agent's defaults.
        let watch: detect::Watch = serde_json::to_value(watch)
            .and_then(serde_json::from_value)
            .with_context(|| watch.path.clone())?;
        match all.rules.0.iter_mut().find(|known| known.path == watch.path) {
            Some(known) => *known = watch,
            None => all.rules.0.push(watch),
        }
    }
    all.validate().context("with the agent's own configuration")?;
    // Patterns that are valid one by one may exceed the limits together.
    let clock = Arc::new(SystemClock::new());
    detect::Scanner::new(all.rules.clone(), detect::ScanOptions::default(), clock)
        .context("with the agent's own configuration")?;
    Ok(all)
}

fn set<T>(known: &mut T, wanted: Option<T>) {
    if let Some(wanted) = wanted {
        *known = wanted;
    }
}

fn span(known: &mut std::time::Duration, wanted: Option<Span>) {
    set(known, wanted.map(|span| span.0));
}

/// Returns the text in a file; empty if there is none.
fn stored(path: &Path) -> anyhow::Result<String> {
    match fs::read(path) {
        // Invalid UTF-8 is refused with the rest of the text, which is then fetched again.
        Ok(bytes) => Ok(String::from_utf8_lossy(&bytes).into_owned()),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(String::new()),
        Err(e) => Err(e).with_context(|| path.display().to_string()),
    }
}

/// Stores the configuration to run with, durable over restarts and power cuts.
pub(super) fn store(folder: &Path, text: &str) -> anyhow::Result<()> {
    write(folder, FILE, text)
}

fn write(folder: &Path, name: &str, text: &str) -> anyhow::Result<()> {
    let (path, fresh) = (folder.join(name), folder.join(format!("{name}.new")));
    let write = || {
        let mut file = File::create(&fresh)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        fs::rename(&fresh, &path)?;
        File::open(folder)?.sync_all()
    };
    write().with_context(|| path.display().to_string())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use detect::Rules;
    use telemetry::MetricsConfig;

    use super::*;
    use crate::config::{InventoryConfig, QueueConfig, RealtimeConfig, ScanConfig, SyncConfig};

    fn own(folder: &Path) -> AgentSettings {
        AgentSettings {
            folder: folder.to_owned(),
            excluded: Vec::new(),
            rules: Rules::of_paths(["/etc", "/srv/."]),
            scan: ScanConfig::default(),
            realtime: RealtimeConfig::default(),
            inventory: InventoryConfig::default(),
            metrics: MetricsConfig::default(),
            queue: QueueConfig::default(),
            sync: SyncConfig::default(),
        }
    }

    #[test]
    fn group_settings_override_local_ones_and_keep_the_rest() {
        let folder = tempfile::tempdir().unwrap();
        let own = own(folder.path());
        let text = "[scan]\ninterval = \"10m\"\n[metrics]\nenabled = false\n\
                    [[watch]]\npath = \"/srv\"\nhashes = [\"blake3\"]\n[[watch]]\npath = \"/opt\"\n";
        store(folder.path(), text).unwrap();
        assert_eq!(texts(folder.path()).unwrap(), [text, ""]);
        let all = effective(&own, text).unwrap();
        assert_eq!(all.scan.interval, Some(Duration::from_mins(10)));
        assert_eq!(all.scan.threads, own.scan.threads);
        assert!(!all.metrics.enabled);
        let paths: Vec<_> = all.rules.0.iter().map(|watch| watch.path.to_str().unwrap()).collect();
        assert_eq!(paths, ["/etc", "/srv", "/opt"]);
        assert_eq!(all.rules.0[1].hashes, [detect::Algorithm::Blake3]);
        assert_eq!(all.rules.0[2], detect::Watch::new("/opt"));
        note_running(folder.path(), text);
        store(folder.path(), "[scan]\nthreads = 2\n").unwrap();
        assert_eq!(texts(folder.path()).unwrap(), ["[scan]\nthreads = 2\n", text, ""]);
        store(folder.path(), "").unwrap();
        assert_eq!(texts(folder.path()).unwrap(), [""], "nothing is to run: so it is");
        assert_eq!(effective(&own, "").unwrap().rules, own.rules);
        assert_eq!(config_report("", "", None), ControlConfig::default());
    }

    #[test]
    fn syscheck_settings_of_server_are_valid_agent_rules() {
        let text = "<agent_config><syscheck><frequency>60</frequency>\
                    <directories check_all=\"no\" check_md5sum=\"yes\" recursion_level=\"2\" \
                    tags=\"a\">/srv,/opt</directories><ignore type=\"sregex\">a b$|[x]</ignore>\
                    <ignore>/srv/a b</ignore></syscheck></agent_config>";
        let text = Settings::parse(text).unwrap().to_toml();
        let folder = tempfile::tempdir().unwrap();
        let all = overlay(&own(folder.path()), &text).unwrap();
        assert_eq!(all.rules.0.len(), 3, "{:?}", all.rules);
        assert_eq!(all.rules.0[1].max_depth, Some(3));
    }
}
