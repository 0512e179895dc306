//! The sink side: changes become rows and events.

use model::traits::PortError;
use model::{Batch, Sink, SinkOutcome};

/// Takes a dataset's changes; see [`crate::Queue::sink`]. Cheap; one per thread.
pub struct QueueSink {}

impl Sink for QueueSink {
    fn apply(&mut self, _: &mut Batch) -> Result<SinkOutcome, PortError> {
        todo!()
    }
}
