//! The time by which an event is ordered, paged and filtered: the time at which the agent found it.
//! If the agent's clock cannot have been right, it is the time at which the server received the
//! event; then only the event's body holds the agent's time.

use model::limits::CLOCK_OFF_US;
use model::{AgentReport, Record, SessionRecord, Write};

/// Times before this are not believed, microseconds since the epoch: the year 2001. A machine
/// without a battery for its clock boots in 1970.
const FOUND_US_MIN: u64 = 1_000_000_000_000_000;

/// The time at which events were received, and whether their own times count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct EventTime {
    received_us: u64,
    clock_off: bool,
}

impl EventTime {
    /// Returns the time of the events of a session.
    pub(super) fn of_session(session: &SessionRecord) -> Self {
        let clock_off = matches!(session.writes.last(), Some(Write::ClockOff { .. }));
        Self { received_us: session.received_at_us, clock_off }
    }

    /// Returns the time of an event of the server.
    pub(super) fn of_server(at_us: u64) -> Self {
        Self { received_us: at_us, clock_off: false }
    }

    /// Returns the time at which they were received, microseconds since the epoch.
    pub(super) fn received_us(self) -> u64 {
        self.received_us
    }

    /// Returns the time that orders an event whose body says `found_us`, microseconds since the
    /// epoch.
    pub(super) fn order_us(self, found_us: Option<u64>) -> u64 {
        let ahead = |found: u64| found > self.received_us.saturating_add(CLOCK_OFF_US);
        let before_time = |found: u64| found < FOUND_US_MIN && self.received_us >= FOUND_US_MIN;
        let believed = |found: &u64| !self.clock_off && !ahead(*found) && !before_time(*found);
        found_us.filter(believed).unwrap_or(self.received_us)
    }
}

/// Returns the time at which the server received a record, microseconds since the epoch; `None` if
/// the record has none.
pub(super) fn received_us(record: &Record) -> Option<u64> {
    match record {
        Record::Session(session) => Some(session.received_at_us),
        Record::RegistryRows(_) => None,
        Record::Retain { event, .. } => event.as_ref().map(|event| event.at_us),
        Record::AgentRemoved { at_us, .. }
        | Record::ServerEvent { at_us, .. }
        | Record::AgentEvents { at_us, .. }
        | Record::Report(AgentReport { at_us, .. }) => Some(*at_us),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW_US: u64 = 1_790_000_000_000_000;
    const DAY_US: u64 = 86_400_000_000;

    #[test]
    fn implausible_event_time_is_replaced_by_receive_time() {
        let time = EventTime::of_server(NOW_US);
        for fine in [NOW_US, NOW_US + DAY_US, NOW_US - 400 * DAY_US, FOUND_US_MIN] {
            assert_eq!(time.order_us(Some(fine)), fine);
        }
        for wrong in [NOW_US + DAY_US + 1, NOW_US + 3_650 * DAY_US, 0, FOUND_US_MIN - 1] {
            assert_eq!(time.order_us(Some(wrong)), NOW_US);
        }
        assert_eq!(time.order_us(None), NOW_US);
    }

    #[test]
    fn events_with_clock_off_are_ordered_by_receive_time() {
        let time = EventTime { received_us: NOW_US, clock_off: true };
        assert_eq!(time.order_us(Some(NOW_US - 2 * DAY_US)), NOW_US);
    }
}
