//! The baseline side: what was last observed.

use model::traits::PortError;
use model::{Baseline, BaselineItem};

/// A dataset's baseline on a connection of its own; see [`crate::Queue::baseline`].
pub struct QueueBaseline {}

impl Baseline for QueueBaseline {
    fn directory(&mut self, _: &[u8], _: &mut Vec<BaselineItem>) -> Result<(), PortError> {
        todo!()
    }

    fn directories_below(&mut self, _: &[u8]) -> Result<Vec<Vec<u8>>, PortError> {
        todo!()
    }
}
