//! The answer of samples: one `ReadResponse`, compressed as a whole.

use budget::{Budget, HeldMemory};
use promql::{Labels, QueryError};

use super::encode::{push_bytes, push_labels, push_length, push_sample};
use crate::Refusal;
use crate::query;
use crate::stream::{BodySender, PIECE_BYTES};

const MEMORY_OVER: &str = "the answer needs more memory than one query, or all queries together, may \
     hold: accept the response type STREAMED_XOR_CHUNKS, or ask for fewer series or a shorter range";
/// Samples between two looks at the memory.
const CHECK_SAMPLES: usize = 4096;

// Field numbers of messages (`prompb/remote.proto`).
const RESULTS: u8 = 1;
const SERIES: u8 = 1;

/// Writes series as one message, within the memory of its query.
pub(super) struct SampleWriter<'b> {
    budget: &'b Budget,
    held: HeldMemory,
    message: Vec<u8>,
    /// The position in the message at which the result of the query begins.
    result: usize,
    /// The series that is being written.
    series: Vec<u8>,
    samples: usize,
}

impl<'b> SampleWriter<'b> {
    pub(super) fn new(budget: &'b Budget) -> Self {
        let held = budget.nothing();
        let (message, series) = (Vec::new(), Vec::new());
        Self { budget, held, message, result: 0, series, samples: 0 }
    }

    /// Begins a series.
    pub(super) fn begin(&mut self, labels: &Labels) {
        self.series.clear();
        self.samples = 0;
        push_labels(&mut self.series, labels);
    }

    /// Appends a sample of the series.
    pub(super) fn push(&mut self, time_ms: i64, value: f64) -> Result<(), Refusal> {
        push_sample(&mut self.series, time_ms, value);
        self.samples += 1;
        if self.samples.is_multiple_of(CHECK_SAMPLES) { self.hold() } else { Ok(()) }
    }

    /// Ends a series. One without samples is not in the answer.
    pub(super) fn end(&mut self) -> Result<(), Refusal> {
        if self.samples == 0 {
            return Ok(());
        }
        self.hold()?;
        push_bytes(&mut self.message, SERIES, &self.series);
        Ok(())
    }

    /// Ends the result of a query.
    pub(super) fn end_result(&mut self) {
        let mut head = Vec::new();
        push_length(&mut head, RESULTS, self.message.len() - self.result);
        self.message.splice(self.result..self.result, head);
        self.result = self.message.len();
    }

    /// Compresses the answer and hands it over.
    pub(super) fn finish(mut self, pieces: &BodySender) -> Result<(), Refusal> {
        let compressed_max = snap::raw::max_compress_len(self.message.len());
        let over = |error| refusal(error, self.budget);
        self.held.set(self.message.capacity() + compressed_max).map_err(over)?;
        let compressed = snap::raw::Encoder::new().compress_vec(&self.message);
        let compressed = compressed.map_err(|_| Refusal::bad_data(MEMORY_OVER))?;
        drop((self.message, self.series));
        self.held.set(compressed.capacity()).map_err(over)?;
        // Copied, so that what waits for the client is not the whole.
        compressed.chunks(PIECE_BYTES).try_for_each(|piece| pieces.send(piece.to_vec()))
    }

    /// Holds the memory of both buffers, which grow to twice of what is in them, and that of appending
    /// the one to the other.
    fn hold(&mut self) -> Result<(), Refusal> {
        let bytes = 2 * self.message.len() + 4 * self.series.len();
        self.held.set(bytes).map_err(|error| refusal(error, self.budget))
    }
}

/// Returns the refusal of an answer that exceeds a limit.
fn refusal(error: String, budget: &Budget) -> Refusal {
    if budget.time_left().is_zero() {
        return query::refusal(QueryError::Over(error), budget);
    }
    Refusal::bad_data(MEMORY_OVER)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]
mod tests {
    use budget::{Memory, QUERY_TIME_MAX};

    use super::*;

    #[test]
    fn answer_that_needs_too_much_memory_names_the_remedy() {
        let memory = Memory::default();
        let other = || Budget::new(QUERY_TIME_MAX, memory.clone(), || false);
        let others = [other(), other()];
        let mut held: Vec<HeldMemory> = others.iter().map(Budget::nothing).collect();
        for held in &mut held {
            held.set(512 << 20).unwrap();
        }
        let budget = other();
        let mut writer = SampleWriter::new(&budget);
        writer.begin(&Labels::new(vec![("a".into(), "b".into())]));
        let pushed = (0..10_000_000).try_for_each(|time| writer.push(time, 1.0));
        let refused = pushed.unwrap_err();
        assert_eq!(refused, Refusal::bad_data(MEMORY_OVER));
        assert!(writer.series.len() < 8 << 20, "{}", writer.series.len());
        drop(writer);
        drop((budget, held, others));
        assert_eq!(memory.held_bytes(), 0);
    }
}
