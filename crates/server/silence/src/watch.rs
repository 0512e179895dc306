//! The presence of each agent: when it was last heard, and the gap that its silence opened. No I/O.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use model::{AgentId, CoverageKind, Incarnation};

/// Number of heartbeats that an agent may miss.
const HEARTBEATS_MISSED_MAX: u32 = 3;
/// Silence after which a gap is opened for an agent that was not heard since the server started.
/// Its interval between heartbeats is not known, and five minutes is the longest.
const UNHEARD_SILENCE: Duration = Duration::from_mins(15);

/// The present time on both clocks.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Now {
    pub(crate) monotonic: Duration,
    /// Microseconds since the epoch.
    pub(crate) wall_us: u64,
}

/// A heartbeat or a goodbye.
#[derive(Debug, Clone, Copy)]
pub struct Report<'a> {
    pub agent: AgentId,
    pub incarnation: Incarnation,
    /// Nonce of the start of the agent's program; `None` if it names none.
    pub nonce: Option<&'a str>,
    /// The agent's interval between heartbeats; zero if it names none.
    pub heartbeat: Duration,
    /// True for a goodbye.
    pub goodbye: bool,
    /// True for the goodbye of an agent that leaves the fleet.
    pub leaves: bool,
    /// True if the server has everything that the agent has to report.
    pub drained: bool,
}

/// A gap in the state store that has no end yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Gap {
    pub(crate) kind: CoverageKind,
    /// Start, microseconds since the epoch.
    pub(crate) from_us: u64,
    /// Nonce of the program that fell silent; empty if it named none.
    pub(crate) nonce: String,
}

/// A gap to open or to end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct GapChange {
    pub(crate) agent: AgentId,
    pub(crate) incarnation: Incarnation,
    pub(crate) gap: Gap,
    /// Time at which the agent was heard again; 0 for a gap to open.
    pub(crate) returned_us: u64,
    /// True if the agent was heard again under the start that fell silent.
    pub(crate) same_start: bool,
    /// True if the agent has left the fleet.
    pub(crate) left: bool,
}

#[derive(Debug)]
struct Presence {
    incarnation: Incarnation,
    nonce: String,
    /// Monotonic time at which it was last heard.
    heard: Duration,
    /// The same on the wall clock, microseconds since the epoch.
    heard_us: u64,
    silence_max: Duration,
    /// True after a goodbye.
    stopped: bool,
    /// True after the goodbye of an agent that leaves the fleet: its gap ends at once.
    left: bool,
    gap: Option<Gap>,
    /// Time at which it was heard again after the gap opened.
    returned_us: Option<u64>,
    /// A gap before the present one that is due to end.
    ending: Option<GapChange>,
}

/// The presence of all agents that were heard, or have an open gap.
#[derive(Debug)]
pub(crate) struct Watch {
    /// Shortest silence that opens a gap.
    silence_min: Duration,
    agents: HashMap<AgentId, Presence>,
}

impl Watch {
    pub(crate) fn new(silence_min: Duration) -> Self {
        Self { silence_min, agents: HashMap::new() }
    }

    /// Adds an agent that was connected when the server stopped at `heard_us`.
    pub(crate) fn expect(
        &mut self,
        agent: AgentId,
        incarnation: Incarnation,
        heard_us: u64,
        now: Now,
    ) {
        let presence = Presence {
            incarnation,
            nonce: String::new(),
            heard: now.monotonic,
            heard_us,
            silence_max: UNHEARD_SILENCE,
            stopped: false,
            left: false,
            gap: None,
            returned_us: None,
            ending: None,
        };
        self.agents.entry(agent).or_insert(presence);
    }

    /// Adds a gap that was open when the server stopped.
    /// The agent may have left since: then the gap ends.
    pub(crate) fn restore(
        &mut self,
        agent: AgentId,
        incarnation: Incarnation,
        gap: Gap,
        left: bool,
        now: Now,
    ) {
        self.expect(agent, incarnation, gap.from_us, now);
        if let Some(presence) = self.agents.get_mut(&agent) {
            presence.gap = Some(gap);
            presence.left = left;
            presence.stopped = left;
            if left {
                presence.begin_end(agent, now.wall_us);
            }
        }
    }

    /// Returns true if the agent was not heard for this time: it has a gap and has not returned, or
    /// it has not connected since the server's start.
    pub(crate) fn is_away(&self, agent: AgentId, silence: Duration, now: Now) -> bool {
        self.agents.get(&agent).is_none_or(|presence| {
            let is_silent = presence.gap.is_some() && presence.returned_us.is_none();
            is_silent && now.monotonic.saturating_sub(presence.heard) >= silence
        })
    }

    /// Records any sign of life.
    pub(crate) fn heard(&mut self, agent: AgentId, now: Now) {
        if let Some(presence) = self.agents.get_mut(&agent).filter(|p| p.gap.is_none()) {
            presence.heard = now.monotonic;
            presence.heard_us = now.wall_us;
        }
    }

    /// Records a heartbeat or a goodbye. Returns true if a gap is due to open or to end now.
    pub(crate) fn report(&mut self, report: &Report<'_>, now: Now) -> bool {
        let &Report { agent, incarnation, heartbeat, .. } = report;
        if self.agents.get(&agent).is_some_and(|p| p.incarnation != incarnation) {
            self.agents.remove(&agent);
        }
        self.expect(agent, incarnation, now.wall_us, now);
        let Some(presence) = self.agents.get_mut(&agent) else { return false };
        presence.heard = now.monotonic;
        presence.heard_us = now.wall_us;
        presence.silence_max = self.silence_min.max(heartbeat * HEARTBEATS_MISSED_MAX);
        presence.stopped = report.goodbye;
        presence.left = report.leaves;
        report.nonce.unwrap_or_default().clone_into(&mut presence.nonce);
        if report.goodbye {
            presence.end_earlier(agent);
            let leaves = report.leaves && presence.begin_end(agent, now.wall_us);
            return leaves || presence.gap.is_none();
        }
        if presence.gap.is_none() {
            return false;
        }
        let returned_us = *presence.returned_us.get_or_insert(now.wall_us);
        report.drained && presence.begin_end(agent, returned_us)
    }

    pub(crate) fn remove(&mut self, agent: AgentId) {
        self.agents.remove(&agent);
    }

    /// Returns the gaps to open: of agents that said goodbye, and of those that were silent for too
    /// long. If the same start falls silent again before its gap has ended, the gap goes on.
    pub(crate) fn due_to_open(&mut self, now: Now) -> Vec<GapChange> {
        let mut due = Vec::new();
        for (agent, presence) in &mut self.agents {
            let silent = now.monotonic.saturating_sub(presence.heard) >= presence.silence_max;
            if !silent && !presence.stopped {
                continue;
            }
            presence.end_earlier(*agent);
            // The end of the gap before is stored first.
            if presence.gap.is_some() || presence.ending.is_some() {
                continue;
            }
            let kind = if presence.stopped {
                CoverageKind::AgentStopped
            } else {
                CoverageKind::AgentSilent
            };
            let gap = Gap { kind, from_us: presence.heard_us, nonce: presence.nonce.clone() };
            due.push(presence.due(*agent, gap));
        }
        due.sort_unstable_by_key(|due| due.agent);
        due
    }

    /// Records that these gaps are stored.
    pub(crate) fn opened(&mut self, opened: &[GapChange]) {
        for due in opened {
            let presence = self.agents.get_mut(&due.agent);
            let Some(presence) = presence.filter(|p| p.incarnation == due.incarnation) else {
                continue;
            };
            // Heard between the decision and the record.
            let heard = presence.heard_us > due.gap.from_us && !presence.stopped;
            presence.returned_us = heard.then_some(presence.heard_us);
            presence.gap = Some(due.gap.clone());
            if presence.left {
                presence.begin_end(due.agent, presence.heard_us);
            }
        }
    }

    /// Returns up to `max` gaps to end: of agents that were heard again and have reported
    /// everything, and of those that left.
    pub(crate) fn due_to_end(&self, max: usize) -> Vec<GapChange> {
        let ended = self.agents.values().filter_map(|presence| presence.ending.clone());
        let mut due: Vec<GapChange> = ended.take(max).collect();
        due.sort_unstable_by_key(|due| due.agent);
        due
    }

    /// Records that these gaps have ended in the store.
    pub(crate) fn ended(&mut self, ended: &[GapChange]) {
        for due in ended {
            let presence = self.agents.get_mut(&due.agent);
            let Some(presence) = presence.filter(|p| p.ending.as_ref() == Some(due)) else {
                continue;
            };
            presence.ending = None;
            if presence.left && presence.gap.is_none() {
                self.agents.remove(&due.agent);
            }
        }
    }

    /// Returns the agents with an open gap that were not heard since and did not say goodbye, each
    /// with the start of its gap, microseconds since the epoch.
    pub(crate) fn silent(&self) -> BTreeMap<AgentId, u64> {
        let silent = self.agents.iter().filter_map(|(agent, presence)| {
            let gap = presence.gap.as_ref().filter(|_| presence.returned_us.is_none())?;
            let is_silent = gap.kind == CoverageKind::AgentSilent && !presence.stopped;
            is_silent.then_some((*agent, gap.from_us))
        });
        silent.collect()
    }
}

impl Presence {
    /// Makes the gap of an earlier start due to end if the agent was heard since: the event of the
    /// later start may have ended it in the store. The gap of the same start goes on.
    fn end_earlier(&mut self, agent: AgentId) {
        let is_earlier = self.gap.as_ref().is_some_and(|gap| gap.nonce != self.nonce);
        if let Some(returned_us) = self.returned_us.take().filter(|_| is_earlier) {
            self.begin_end(agent, returned_us);
        }
    }

    /// Makes the open gap due to end at this time. Returns false if none is open.
    fn begin_end(&mut self, agent: AgentId, returned_us: u64) -> bool {
        let Some(gap) = self.gap.take() else { return false };
        self.returned_us = None;
        self.ending = Some(GapChange { returned_us, ..self.due(agent, gap) });
        true
    }

    fn due(&self, agent: AgentId, gap: Gap) -> GapChange {
        let same_start = gap.nonce == self.nonce;
        let (incarnation, left) = (self.incarnation, self.left);
        GapChange { agent, incarnation, gap, returned_us: 0, same_start, left }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: AgentId = AgentId(1);
    const MIN: Duration = Duration::from_secs(30);

    fn at(seconds: u64) -> Now {
        Now { monotonic: Duration::from_secs(seconds), wall_us: seconds * 1_000_000 }
    }

    fn heartbeat(nonce: &str, seconds: u64) -> Report<'_> {
        Report {
            agent: A,
            incarnation: Incarnation(1),
            nonce: Some(nonce),
            heartbeat: Duration::from_secs(seconds),
            goodbye: false,
            leaves: false,
            drained: true,
        }
    }

    fn open(watch: &mut Watch, now: Now) -> GapChange {
        let due = watch.due_to_open(now);
        assert_eq!(due.len(), 1);
        watch.opened(&due);
        assert!(watch.due_to_open(now).is_empty(), "it is open");
        due.into_iter().next().unwrap()
    }

    #[test]
    fn silence_is_the_larger_of_three_heartbeats_and_the_minimum() {
        let mut watch = Watch::new(MIN);
        watch.report(&heartbeat("a", 1), at(100));
        assert!(watch.due_to_open(at(129)).is_empty());
        watch.heard(A, at(110));
        assert!(watch.due_to_open(at(139)).is_empty(), "any request is a sign of life");
        assert_eq!(watch.due_to_open(at(140)).len(), 1);
        watch.report(&heartbeat("a", 20), at(140));
        assert!(watch.due_to_open(at(199)).is_empty());
        assert_eq!(open(&mut watch, at(200)).gap.from_us, 140_000_000);
    }

    #[test]
    fn gap_ends_once_the_agent_has_reported_everything() {
        let mut watch = Watch::new(MIN);
        watch.report(&heartbeat("a", 1), at(0));
        open(&mut watch, at(40));
        assert!(watch.due_to_end(9).is_empty());
        assert!(!watch.report(&Report { drained: false, ..heartbeat("a", 1) }, at(50)));
        assert!(watch.due_to_end(9).is_empty(), "changes are still on their way");
        assert!(watch.report(&heartbeat("a", 1), at(55)));
        let due = watch.due_to_end(9);
        assert_eq!((due.len(), due[0].returned_us, due[0].same_start), (1, 50_000_000, true));
        watch.ended(&due);
        assert!(watch.due_to_end(9).is_empty());
        assert!(!watch.report(&heartbeat("a", 1), at(60)));
    }

    #[test]
    fn second_silence_continues_a_gap_that_has_not_ended() {
        let mut watch = Watch::new(MIN);
        watch.report(&heartbeat("a", 1), at(0));
        let first = open(&mut watch, at(40));
        watch.report(&Report { drained: false, ..heartbeat("a", 1) }, at(50));
        assert!(watch.due_to_open(at(90)).is_empty());
        watch.report(&heartbeat("b", 1), at(100));
        let due = watch.due_to_end(9);
        assert_eq!((due[0].gap.from_us, due[0].returned_us), (first.gap.from_us, 100_000_000));
        assert!(!due[0].same_start);
    }

    #[test]
    fn goodbye_opens_a_gap_at_once() {
        let mut watch = Watch::new(MIN);
        watch.report(&heartbeat("a", 1), at(0));
        assert!(watch.report(&Report { goodbye: true, ..heartbeat("a", 1) }, at(3)));
        let due = open(&mut watch, at(3));
        assert_eq!((due.gap.kind, due.gap.from_us), (CoverageKind::AgentStopped, 3_000_000));
        assert!(watch.due_to_end(9).is_empty());
    }

    #[test]
    fn agent_that_returns_and_stops_at_once_has_another_gap() {
        let mut watch = Watch::new(MIN);
        watch.report(&heartbeat("a", 1), at(0));
        watch.report(&Report { goodbye: true, ..heartbeat("a", 1) }, at(3));
        let first = open(&mut watch, at(3));
        watch.report(&Report { drained: false, ..heartbeat("b", 1) }, at(4));
        assert!(watch.report(&Report { goodbye: true, ..heartbeat("b", 1) }, at(5)));
        let due = watch.due_to_end(9);
        assert_eq!((&due[0].gap, due[0].returned_us), (&first.gap, 4_000_000));
        assert!(watch.due_to_open(at(5)).is_empty(), "the first one has not ended yet");
        watch.ended(&due);
        assert_eq!(open(&mut watch, at(5)).gap.from_us, 5_000_000);
    }

    #[test]
    fn agent_that_leaves_has_one_gap_and_is_forgotten() {
        let mut watch = Watch::new(MIN);
        watch.report(&heartbeat("a", 1), at(0));
        watch.report(&Report { goodbye: true, ..heartbeat("a", 1) }, at(3));
        open(&mut watch, at(3));
        let leave = Report { goodbye: true, leaves: true, drained: false, ..heartbeat("b", 1) };
        assert!(watch.report(&leave, at(9)));
        assert!(watch.due_to_open(at(9)).is_empty(), "the gap is open already");
        let due = watch.due_to_end(9);
        assert_eq!(
            (due[0].gap.from_us, due[0].returned_us, due[0].left),
            (3_000_000, 9_000_000, true)
        );
        watch.ended(&due);
        assert!(watch.due_to_open(at(9_999)).is_empty() && watch.silent().is_empty());
        watch.report(&heartbeat("c", 1), at(10_000));
        assert_eq!(watch.due_to_open(at(10_030)).len(), 1, "it is back and fell silent");
    }

    #[test]
    fn agent_is_away_once_it_has_a_gap_and_its_time_has_passed() {
        let mut watch = Watch::new(MIN);
        let silence = Duration::from_mins(1);
        assert!(watch.is_away(A, silence, at(0)), "it never connected");
        watch.report(&heartbeat("a", 60), at(0));
        assert!(!watch.is_away(A, silence, at(179)), "its gap is not open: it may be alive");
        open(&mut watch, at(180));
        assert!(watch.is_away(A, silence, at(180)));
        watch.report(&Report { drained: false, ..heartbeat("a", 60) }, at(181));
        assert!(!watch.is_away(A, silence, at(400)), "it has returned");
    }

    #[test]
    fn gap_of_an_agent_that_left_ends_after_a_restart() {
        let mut watch = Watch::new(MIN);
        let gap = Gap { kind: CoverageKind::AgentSilent, from_us: 7, nonce: "a".into() };
        watch.restore(A, Incarnation(1), gap, true, at(3));
        assert!(watch.silent().is_empty());
        let due = watch.due_to_end(9);
        assert!(due[0].left);
        watch.ended(&due);
        assert!(watch.due_to_open(at(9_999)).is_empty());
    }

    #[test]
    fn agent_is_silent_until_it_is_heard_also_before_its_gap_ends() {
        let mut watch = Watch::new(MIN);
        watch.report(&heartbeat("a", 1), at(5));
        assert!(watch.silent().is_empty());
        open(&mut watch, at(40));
        assert_eq!(watch.silent(), [(A, 5_000_000)].into());
        watch.report(&Report { drained: false, ..heartbeat("a", 1) }, at(50));
        assert!(watch.silent().is_empty(), "its changes are still on their way");
        watch.due_to_open(at(90));
        assert_eq!(watch.silent(), [(A, 5_000_000)].into(), "it fell silent again");
        watch.report(&Report { goodbye: true, ..heartbeat("a", 1) }, at(95));
        assert!(watch.silent().is_empty(), "it was stopped");
    }

    #[test]
    fn restart_before_the_next_sweep_opens_no_gap() {
        let mut watch = Watch::new(MIN);
        watch.report(&Report { goodbye: true, ..heartbeat("a", 1) }, at(3));
        watch.report(&heartbeat("b", 1), at(4));
        assert!(watch.due_to_open(at(5)).is_empty());
    }

    #[test]
    fn agent_heard_while_its_gap_is_stored_has_returned() {
        let mut watch = Watch::new(MIN);
        watch.report(&heartbeat("a", 1), at(0));
        let due = watch.due_to_open(at(40));
        watch.report(&heartbeat("a", 1), at(41));
        watch.opened(&due);
        assert!(watch.report(&heartbeat("a", 1), at(51)));
        assert_eq!(watch.due_to_end(9)[0].returned_us, 41_000_000);
    }

    #[test]
    fn restored_gap_and_expected_agent_survive_a_restart() {
        let mut watch = Watch::new(MIN);
        let kind = CoverageKind::AgentSilent;
        let gap = Gap { kind, from_us: 7, nonce: "a".into() };
        watch.restore(A, Incarnation(1), gap.clone(), false, at(0));
        watch.expect(AgentId(2), Incarnation(1), 5, at(0));
        assert!(watch.due_to_open(at(899)).is_empty());
        let due = watch.due_to_open(at(900));
        assert_eq!((due.len(), due[0].agent, due[0].gap.from_us), (1, AgentId(2), 5));
        watch.report(&heartbeat("a", 1), at(901));
        assert_eq!((&watch.due_to_end(9)[0].gap, watch.due_to_end(9)[0].same_start), (&gap, true));
    }

    #[test]
    fn new_incarnation_starts_without_a_gap() {
        let mut watch = Watch::new(MIN);
        watch.report(&heartbeat("a", 1), at(0));
        open(&mut watch, at(40));
        let next = Report { incarnation: Incarnation(2), ..heartbeat("b", 1) };
        assert!(!watch.report(&next, at(50)));
        assert!(watch.due_to_end(9).is_empty());
    }
}
