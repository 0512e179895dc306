//! The section `[metrics]` of an agent's configuration.

use std::time::Duration;

use anyhow::bail;
use serde::Deserialize;
use settings::bounds::{duration, within};

/// Settings of the host's metrics.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct MetricsConfig {
    pub enabled: bool,
    #[serde(deserialize_with = "duration")]
    pub interval: Duration,
    pub processes: Vec<String>,
    pub ignore_interfaces: Vec<String>,
    pub own: bool,
    pub limit_mib: u32,
}

impl Default for MetricsConfig {
    fn default() -> Self {
        let interval = Duration::from_secs(10);
        Self {
            enabled: true,
            interval,
            processes: Vec::new(),
            ignore_interfaces: host::metrics::ignored_interfaces(),
            own: false,
            limit_mib: 64,
        }
    }
}

/// Most processes sampled by name.
const PROCESSES_MAX: usize = 64;
/// Most patterns of ignored interfaces.
const IGNORED_MAX: usize = 64;
/// Longest name of a process, bytes (`TASK_COMM_LEN` without the terminating NUL, proc(5)).
const PROCESS_BYTES_MAX: usize = 15;

impl MetricsConfig {
    pub fn validate(&self) -> anyhow::Result<()> {
        let (least, most) = (Duration::from_millis(100), Duration::from_hours(24));
        within("metrics.interval", &self.interval, &least, &most)?;
        within("metrics.limit_mib", &self.limit_mib, &1, &1_048_576)?;
        within("the number of metrics.processes", &self.processes.len(), &0, &PROCESSES_MAX)?;
        for name in &self.processes {
            if name.is_empty() || name.len() > PROCESS_BYTES_MAX || name.contains(['/', '\n']) {
                bail!(
                    "metrics.processes: {name:?} is no name as in /proc/PID/comm: 1 to \
                     {PROCESS_BYTES_MAX} bytes"
                );
            }
        }
        let ignored = &self.ignore_interfaces;
        within("the number of metrics.ignore_interfaces", &ignored.len(), &0, &IGNORED_MAX)?;
        for pattern in ignored {
            if pattern.is_empty() || pattern.trim_end_matches('*').contains('*') {
                bail!(
                    "metrics.ignore_interfaces: {pattern:?} is neither a name such as \"tun0\" nor how \
                     names begin, such as \"veth*\""
                );
            }
        }
        Ok(())
    }
}
