//! The last `/stats` and `/config` of each agent, in memory.

use std::collections::{BTreeMap, HashMap};

use model::{AgentId, Incarnation};
use parking_lot::Mutex;

use crate::options::{REPORT_BYTES_MAX, REPORT_OVERHEAD_BYTES};

/// The kind of a report.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ReportKind {
    Stats,
    /// The configuration that the agent runs with.
    Config,
}

/// The last report of each kind and agent. Beyond [`REPORT_BYTES_MAX`] the oldest are dropped.
#[derive(Default)]
pub(crate) struct Reports(Mutex<StoredReports>);

#[derive(Default)]
struct StoredReports {
    reports: HashMap<ReportKey, Report>,
    /// Keys of the reports by arrival number, oldest first.
    ages: BTreeMap<u64, ReportKey>,
    newest: u64,
    bytes: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct ReportKey {
    agent: AgentId,
    kind: ReportKind,
}

struct Report {
    /// The incarnation of the agent that sent it.
    life: Incarnation,
    age: u64,
    text: Vec<u8>,
}

impl StoredReports {
    fn remove(&mut self, key: ReportKey) {
        if let Some(report) = self.reports.remove(&key) {
            self.ages.remove(&report.age);
            self.bytes -= report.text.len() + REPORT_OVERHEAD_BYTES;
        }
    }
}

impl Reports {
    pub(crate) fn store_report_text(
        &self,
        agent: AgentId,
        life: Incarnation,
        kind: ReportKind,
        text: Vec<u8>,
    ) {
        let mut kept = self.0.lock();
        let key = ReportKey { agent, kind };
        kept.remove(key);
        kept.newest += 1;
        let age = kept.newest;
        kept.bytes += text.len() + REPORT_OVERHEAD_BYTES;
        kept.ages.insert(age, key);
        kept.reports.insert(key, Report { life, age, text });
        while kept.bytes > REPORT_BYTES_MAX {
            let Some((_, oldest)) = kept.ages.pop_first() else { break };
            kept.remove(oldest);
        }
    }

    /// Returns the last report of this incarnation of the agent.
    pub(crate) fn get(
        &self,
        agent: AgentId,
        life: Incarnation,
        kind: ReportKind,
    ) -> Option<Vec<u8>> {
        let kept = self.0.lock();
        kept.reports
            .get(&ReportKey { agent, kind })
            .filter(|r| r.life == life)
            .map(|r| r.text.clone())
    }

    /// Returns the number of reports.
    pub(crate) fn count(&self) -> usize {
        self.0.lock().reports.len()
    }

    /// Forgets the reports of a removed agent.
    pub(crate) fn forget(&self, agent: AgentId) {
        let mut kept = self.0.lock();
        for kind in [ReportKind::Stats, ReportKind::Config] {
            kept.remove(ReportKey { agent, kind });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::SMALL_BODY_BYTES_MAX;

    const LIFE: Incarnation = Incarnation(5);

    #[test]
    fn oldest_reports_are_dropped_beyond_the_byte_limit() {
        let reports = Reports::default();
        let fits = REPORT_BYTES_MAX / (SMALL_BODY_BYTES_MAX + REPORT_OVERHEAD_BYTES);
        for n in 0..fits as u32 + 3 {
            let text = vec![b' '; SMALL_BODY_BYTES_MAX];
            reports.store_report_text(AgentId(n), LIFE, ReportKind::Stats, text);
        }
        let there = |n: u32| reports.get(AgentId(n), LIFE, ReportKind::Stats).is_some();
        assert_eq!((there(0), there(2), there(3)), (false, false, true));
        assert!(there(fits as u32 + 2));
        reports.store_report_text(AgentId(3), LIFE, ReportKind::Stats, b"{}".to_vec());
        reports.store_report_text(AgentId(0), LIFE, ReportKind::Stats, b"{}".to_vec());
        assert!(there(0) && there(3) && there(4));
        let kept = reports.0.lock();
        assert!(kept.bytes <= REPORT_BYTES_MAX);
        assert_eq!(kept.ages.len(), kept.reports.len());
    }

    #[test]
    fn small_reports_cannot_take_more_memory_than_large_ones() {
        let reports = Reports::default();
        let most = REPORT_BYTES_MAX / REPORT_OVERHEAD_BYTES;
        for n in 0..most as u32 + 1_000 {
            reports.store_report_text(AgentId(n), LIFE, ReportKind::Config, b"{}".to_vec());
        }
        assert!(reports.0.lock().reports.len() <= most);
    }

    #[test]
    fn reports_of_a_removed_agent_are_deleted_and_free_their_bytes() {
        let reports = Reports::default();
        for kind in [ReportKind::Stats, ReportKind::Config] {
            reports.store_report_text(AgentId(7), LIFE, kind, b"{}".to_vec());
        }
        assert_eq!(reports.get(AgentId(7), Incarnation(6), ReportKind::Stats), None);
        reports.forget(AgentId(7));
        assert_eq!(reports.get(AgentId(7), LIFE, ReportKind::Stats), None);
        let kept = reports.0.lock();
        assert_eq!((kept.bytes, kept.ages.len()), (0, 0));
    }
}
