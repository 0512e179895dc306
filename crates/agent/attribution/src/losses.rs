//! Intervals in which messages were lost, and the sequence numbers that show it.

use std::collections::{HashMap, VecDeque};

use crate::limits;
use crate::message::Message;

/// Intervals in which the table is incomplete, nanoseconds of `CLOCK_MONOTONIC`.
#[derive(Debug, Default)]
pub(crate) struct LossIntervals {
    intervals: VecDeque<(u64, u64)>,
}

impl LossIntervals {
    pub(crate) fn add(&mut self, from_ns: u64, to_ns: u64) {
        self.intervals.push_back((from_ns, to_ns));
        if self.intervals.len() > limits::LOSSES_MAX
            && let Some((from_ns, _)) = self.intervals.pop_front()
            && let Some(second) = self.intervals.front_mut()
        {
            second.0 = from_ns;
        }
    }

    /// Returns the first interval that overlaps this one.
    pub(crate) fn within(&self, from_ns: u64, to_ns: u64) -> Option<(u64, u64)> {
        let overlap = |(from, to): &&(u64, u64)| *from <= to_ns && *to >= from_ns;
        self.intervals.iter().find(overlap).copied()
    }
}

/// The last sequence number of each CPU.
#[derive(Debug, Default)]
pub(crate) struct Sequences {
    last: HashMap<u32, u32>,
}

impl Sequences {
    /// Returns false if messages of this CPU are missing before this one.
    pub(crate) fn follows(&mut self, message: &Message) -> bool {
        let before = self.last.insert(message.cpu, message.sequence);
        before.is_none_or(|before| before.wrapping_add(1) == message.sequence)
    }
}
