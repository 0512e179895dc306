//! The parts of a heartbeat that the agent records between two of them: its scans, the state of its
//! roots, and its groups' configuration.

use link::ControlAction;
use link::json::{ControlConfig, ControlScan};
use model::WatchReport;

use crate::syncer::Syncer;

/// The state in which the roots are watched, as last recorded.
#[derive(Debug, Default)]
pub(crate) struct WatchNote {
    report: Option<WatchReport>,
    /// True if the server has acknowledged it.
    sent: bool,
}

impl WatchNote {
    /// Returns the report that a heartbeat contains; the first one of a run always has one.
    pub(crate) fn due(&self, action: ControlAction) -> Option<WatchReport> {
        self.report.clone().filter(|_| !self.sent || action == ControlAction::Startup)
    }

    /// Records that the server has acknowledged a report. A newer one is reported next.
    pub(crate) fn note_sent(&mut self, acknowledged: Option<&WatchReport>) {
        self.sent |= acknowledged.is_some() && self.report.as_ref() == acknowledged;
    }

    /// Records that the server does not have the report, because its store is another one.
    pub(crate) fn forget_sent(&mut self) {
        self.sent = false;
    }
}

impl Syncer {
    /// Records that a scan began or ended; the next heartbeat reports it.
    pub fn note_scan(&self, started_at_s: i64, ended_at_s: Option<i64>) {
        *self.scan.lock() = Some(ControlScan { started_at_s, ended_at_s });
    }

    /// Records how the roots are watched. The next heartbeat reports it, if it differs from what the
    /// server has acknowledged. Returns true if it does.
    pub fn note_watch(&self, report: WatchReport) -> bool {
        let mut watch = self.watch.lock();
        let report = report.cut();
        if watch.report.as_ref() != Some(&report) {
            *watch = WatchNote { report: Some(report), sent: false };
        }
        !watch.sent
    }

    /// Records the groups' configuration that this agent runs, and the one that it refused. Every
    /// heartbeat from now on reports them.
    pub fn note_config(&self, config: ControlConfig) {
        *self.config.lock() = config;
    }

    /// Returns the last value given to [`Syncer::note_config`].
    pub fn config(&self) -> ControlConfig {
        self.config.lock().clone()
    }
}
